"""HTTP statuses by what they mean to a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed.errors import ConnectionLost, HttpStatusError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# About who asks, never about the message: authorization and its proxies.
UNAUTHORIZED = frozenset({401, 403, 407})
# By which a server demands a token, or one with more scopes.
CHALLENGES = frozenset({401, 403})
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


class SessionGone(ConnectionLost):
    """The server refused a request because its session has ended: the request was not executed."""


class Challenged(HttpStatusError):
    """The server demands a token for a message of the handshake. ``answer`` gets one: called with
    the number of earlier challenges, it returns whether the handshake is to be begun again. The
    time limits of the handshake do not run meanwhile: a user logs in."""

    def __init__(self, error: HttpStatusError, answer: Callable[[int], Awaitable[bool]]) -> None:
        super().__init__(str(error), error.status, error.reason, error.retry_after)
        self.answer = answer
