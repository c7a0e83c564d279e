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
    "Declined",
    "HandlerFailed",
    "InputNeeded",
    "InvalidResponse",
    "LaunchError",
    "LimitExceeded",
    "LocalError",
    "MissingCapability",
    "ProtocolError",
    "RemoteError",
    "ResourceNotFound",
    "StartupError",
    "TaskCancelled",
    "TransportError",
    "Unsupported",
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


class Declined(LocalError):
    """A handler of this client declined to answer the server, and the call ended.

    A handler may raise it. Then an elicitation is answered with "decline", and sampling with error
    -1 (to a legacy server) or not at all (2026-07-28 has no answer for that).
    """


class HandlerFailed(LocalError):
    """A client's handler (``on_elicit``, ``on_sample``, ``roots``) failed, and the call ended.

    ``__cause__`` is the handler's exception, or the error of its answer. The server gets no
    details.
    """


class InputNeeded(LocalError):
    """A server asks for input (2026-07-28 basic/patterns/mrtr), and the client has no handler for
    it, or has driven ``max_rounds`` rounds.

    ``requests`` has the questions by their keys: `ElicitParams`, `SampleParams`, or
    `ListRootsParams`. ``state`` is the server's request state, or None. `Client.resume` continues.

    ``task`` is the `ToolTask` that asks, if the call became one, otherwise None. The task waits for
    the answers until its time to live is over: ``cancel()`` it if you do not continue.
    """

    def __init__(
        self, message: str, requests: dict[str, Any], state: str | None, call: Any = None
    ) -> None:
        super().__init__(message, requests, state, call)
        self.requests = requests
        self.state = state
        self.task: Any = getattr(call, "task", None)
        self._call = call

    def __str__(self) -> str:
        return str(self.args[0])


class Unsupported(LocalError):
    """The server's revision has no such request, or the server has not declared the feature that it
    belongs to (basic/lifecycle, "Operation"). Nothing was sent.
    """


class StartupError(LocalError):
    """A server cannot be started: its lifespan failed (``__cause__`` is what it raised), or it
    wants a dependency that nobody provides."""


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

    @property
    def resource_missing(self) -> bool:
        """Whether this, in answer to resources/read, says that there is no such resource: code
        -32602 from 2026-07-28 on, -32002 before (server/resources, "Error Handling")."""
        return self.code in (-32602, -32002)

    def __str__(self) -> str:
        return f"{self.message} (code {self.code})"


class TaskCancelled(RemoteError):
    """A task has no result, because it was cancelled (`Client.start_tool`)."""


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

    def __reduce__(self) -> tuple[Any, ...]:  # subclasses are made of other arguments
        return ProtocolError.__new__, (type(self), *self.args), self.__dict__


def shortened(text: str) -> str:
    """A peer's text as an error message quotes it: 256 characters at most."""
    return text if len(text) <= 256 else f"{text[:256]}…"


class ResourceNotFound(ProtocolError):
    """There is no such resource (server/resources, "Error Handling").

    A server sends it with the code that the client's revision has for it: -32602 from 2026-07-28
    on, -32002 before. ``uri`` goes into ``data``; left out, it is the one that was asked for.
    """

    def __init__(self, uri: str | None = None, message: str = "Resource not found") -> None:
        super().__init__(-32602, message, None if uri is None else {"uri": uri})
        self.uri = uri


class MissingCapability(ProtocolError):
    """A client cannot be asked something, because it did not declare that it can be.

    ``required`` is the object of ClientCapabilities that would be needed, such as
    ``{"elicitation": {"url": {}}}``. A handler may catch this and do without. Otherwise a client
    of 2026-07-28 gets -32021 with ``data.requiredCapabilities``; up to 2025-11-25, where there is
    no such code, a tool's result says it (``isError``), and anything else gets *code*.
    """

    def __init__(
        self, required: dict[str, Any], message: str | None = None, *, code: int = -32021
    ) -> None:
        if message is None:
            ((name, parts),) = required.items()
            path = ".".join([name, *parts])
            message = f"The client does not declare the capability {path}"
        super().__init__(code, message, {"requiredCapabilities": required})
        self.required = required

    def __str__(self) -> str:
        return self.message


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
