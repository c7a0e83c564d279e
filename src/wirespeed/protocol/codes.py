"""Error codes by name. Sources: JSON-RPC 2.0 section 5.1; MCP 2026-07-28 basic (error codes); the
pages of older revisions for what only they have."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

# 2024-11-05 to 2025-11-25 (server/resources); later a peer may still send it.
RESOURCE_NOT_FOUND = -32002
# 2025-11-25 only (client/elicitation).
URL_ELICITATION_REQUIRED = -32042
# A client whose user refused (client/sampling of the legacy revisions).
USER_REJECTED = -1

HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_PROTOCOL_VERSION = -32022
# Of modern servers only. The specification does not list the "recognised modern errors"; these are
# the codes that it reserves for 2026-07-28.
MODERN_ERRORS = frozenset(
    {HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION}
)

# Ours: outside -32768..-32000, which JSON-RPC and MCP reserve.
OVERLOADED = -31000
SHUTTING_DOWN = -31001
# The request that a task stood for was cancelled, so it has no result (2025-11-25 tasks/result).
TASK_CANCELLED = -31002
# The access token of the request lacks scopes. ``data`` has the parameters of the challenge (RFC
# 6750 section 3): error, scope, resource_metadata.
INSUFFICIENT_SCOPE = -31003
# The server behind a proxy ended, or its connection was lost, before it had answered.
SERVER_LOST = -31004
# The server behind a proxy did not answer within the time that the proxy gives it.
REQUEST_TIMEOUT = -31005
# The request had begun, and was cut off before it ended: it may have taken effect. A client that
# repeats it may do twice what it asked for once.
CUT_OFF = -31006
# The store that the hosts of a server share did not answer, and the request needs it. The client
# may try again later.
STORE_AWAY = -31007
# Of servers and proxies of this package that cannot serve now: they say nothing about an era.
UNAVAILABLE = frozenset(
    {OVERLOADED, SHUTTING_DOWN, SERVER_LOST, REQUEST_TIMEOUT, CUT_OFF, STORE_AWAY}
)
