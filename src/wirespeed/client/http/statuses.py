"""HTTP statuses by what they mean to a client."""

# About who asks, never about the message: authorization and its proxies.
UNAUTHORIZED = frozenset({401, 403, 407})
# That say nothing about the era of a server: authorization, overload, and a proxy whose server
# cannot be reached.
NO_VERDICT = UNAUTHORIZED | {402, 408, 425, 429, 502, 503, 504}
# After which a message is sent again, if the answer says when.
TRY_LATER = frozenset({429, 503})
# After which a stream of events is asked for again: the server, or its proxy, is busy.
BUSY = frozenset({408, 425, 429, 502, 503, 504})
# Of a server that does not speak Streamable HTTP (2025-11-25 basic/transports, "Backwards
# Compatibility"; 406, 410, 415 and 501 are other ways to refuse a POST).
NOT_STREAMABLE = frozenset({400, 404, 405, 406, 410, 415, 501})
