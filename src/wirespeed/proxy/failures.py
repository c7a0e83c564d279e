"""The texts that clients get about a server that fails.

The texts of errors name commands, folders, URLs, and what a server or something before it said.
These are for the log. Clients learn the name of the server and what happened to it.
"""

from __future__ import annotations

from wirespeed.errors import (
    AuthorizationError,
    ChildExited,
    ConnectionClosed,
    ConnectionLost,
    HttpStatusError,
    InvalidResponse,
    TransportError,
    VersionMismatch,
)


class ServerLost(TransportError):
    """A server cannot be asked. The text is for clients."""


def is_down(name: str) -> str:
    """The text for clients of a server that cannot be used now."""
    return f"the server {name} is down"


def told(name: str, error: BaseException) -> str:
    """The text for clients of an error of the connection to a server. The texts of the errors that
    the proxy raises itself, and of answers that are not valid, name no place."""
    if isinstance(error, ServerLost | VersionMismatch | InvalidResponse):
        return str(error).partition("\n")[0]
    if isinstance(error, HttpStatusError):
        return f"the server {name} answered with the HTTP status {error.status}"
    if isinstance(error, TimeoutError):
        return f"the server {name} did not answer in time"
    if isinstance(error, AuthorizationError):
        return f"the server {name} does not accept the credentials of the proxy"
    if isinstance(error, ConnectionLost | ConnectionClosed | ChildExited):
        return f"the server {name} was lost before it answered"
    return is_down(name)
