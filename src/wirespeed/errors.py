"""Every exception that wirespeed raises on purpose.

The tree answers the first question of whoever catches: *who said no?*

``LocalError``
    This side gave up: a deadline, a closed link, a limit. The peer said nothing.
``RemoteError``
    The peer answered with a JSON-RPC error object.
``TransportError``
    The link itself failed: a child that cannot start or has died, a broken pipe.
``ConfigError``
    A configuration file is wrong.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "CallTimeout",
    "ChildExited",
    "ConfigError",
    "ConnectionClosed",
    "ConnectionLost",
    "InvalidResponse",
    "LaunchError",
    "LimitExceeded",
    "LocalError",
    "ProtocolError",
    "RemoteError",
    "TransportError",
    "UpgradeRefused",
    "WirespeedError",
]


class WirespeedError(Exception):
    """Base of all wirespeed exceptions."""


class LocalError(WirespeedError):
    """This side ended the operation; nothing here was said by the peer."""


class CallTimeout(LocalError, TimeoutError):
    """The deadline of a call passed on this side; the peer was told to cancel.

    It is a ``TimeoutError`` too, so ``except TimeoutError`` catches it.
    """


class ConnectionClosed(LocalError):
    """The link is closed, or was closed while the operation was under way."""


class LimitExceeded(LocalError):
    """A documented limit was reached (message size, requests in flight, …)."""


class InvalidResponse(WirespeedError):
    """The peer answered with something that is no valid response to the request."""


class RemoteError(WirespeedError):
    """The peer answered with a JSON-RPC error (JSON-RPC 2.0, section 5.1).

    ``code``, ``message`` and ``data`` are the members as received; ``data`` is None
    when the member was absent.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} (code {self.code})"


class ProtocolError(WirespeedError):
    """Raised by a server's handler to answer with a JSON-RPC error.

    ``data`` is any JSON-encodable value; None leaves the member out. Codes of one's own lie outside
    -32768..-32000 (MCP 2026-07-28, basic, "Error Codes").
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} (code {self.code})"


class TransportError(WirespeedError):
    """The link to the peer could not be made, or broke."""


class LaunchError(TransportError):
    """A server's process could not be started; the text names command and directory."""


class ChildExited(TransportError):
    """A server's process ended while it was still needed.

    ``status`` is the exit status, negative for the number of the signal that killed it,
    None when it is not known.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class ConnectionLost(TransportError):
    """A connection to a server elsewhere ended while it was still needed.

    ``code`` is the close code (RFC 6455, section 7.4; 1006 for a peer that left without a word),
    None where the stream has none; ``reason`` is what the peer said with it.
    """

    def __init__(self, message: str, code: int | None = None, reason: str = "") -> None:
        super().__init__(message, code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


class UpgradeRefused(TransportError):
    """A server answered the opening handshake of WebSocket with another HTTP status than 101.

    ``status`` is the status, ``reason`` the first line of what the server said with it.
    """

    def __init__(self, message: str, status: int, reason: str = "") -> None:
        super().__init__(message, status, reason)
        self.status = status
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


class ConfigError(WirespeedError, ValueError):
    """A configuration is wrong; the text names the file, the place and what is expected."""
