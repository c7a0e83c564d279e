"""Every exception that wirespeed raises on purpose.

The base class of an exception tells which side refused or failed:

``LocalError``
    This side ended the operation: a time limit, a closed link, a limit. The peer sent no error.
``RemoteError``
    The peer answered with a JSON-RPC error object.
``TransportError``
    The link itself failed: a child that cannot start or has died, a broken pipe.
``AuthorizationError``
    A client cannot get a token that the server accepts.
``ConfigError``
    A configuration file is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wirespeed.types import (
        CallToolResult,
        ElicitParams,
        ListRootsParams,
        SampleParams,
        ToolTask,
    )

__all__ = [
    "AuthorizationError",
    "CallTimeout",
    "CannotVerify",
    "ChildExited",
    "ConfigError",
    "ConnectionClosed",
    "ConnectionLost",
    "Declined",
    "DependencyError",
    "HandlerFailed",
    "HttpStatusError",
    "InputNeeded",
    "InvalidResponse",
    "InvalidToken",
    "LaunchError",
    "LimitExceeded",
    "LocalError",
    "MissingCapability",
    "NotHonoured",
    "ProtocolError",
    "RemoteError",
    "ResourceNotFound",
    "SignatureError",
    "SkillChanged",
    "StartupError",
    "TaskCancelled",
    "ToolError",
    "TransportError",
    "Unsupported",
    "UpgradeRefused",
    "VersionMismatch",
    "WirespeedError",
]


class WirespeedError(Exception):
    """Base of all wirespeed exceptions."""


class LocalError(WirespeedError):
    """This side ended the operation; the peer sent no error."""


class CallTimeout(LocalError, TimeoutError):
    """The time limit of a call passed on this side; the peer was told to cancel.

    It is a ``TimeoutError`` too, so ``except TimeoutError`` catches it.
    """


class ConnectionClosed(LocalError):
    """The link is closed, or was closed while the operation was under way."""


class LimitExceeded(LocalError):
    """A documented limit was reached (message size, requests in flight, …)."""


class Declined(LocalError):
    """A handler of this client declined to answer the server, and the call ended.

    A handler may raise it. Then an elicitation is answered with "decline". A sampling request of a
    legacy server is answered with error -1; 2026-07-28 has no answer for a declined sampling
    request.
    """


class HandlerFailed(LocalError):
    """A client's handler (``on_elicit``, ``on_sample``, ``roots``) failed, and the call ended.

    ``__cause__`` is the handler's exception, or the error of its answer. The server gets no
    details.
    """


class InputNeeded(LocalError):
    """A server asks for input (2026-07-28 basic/patterns/mrtr), and the client has no handler for
    the request, or the call took ``max_rounds`` rounds already.

    ``requests`` has the questions by their keys: ``ElicitParams``, ``SampleParams`` or
    ``ListRootsParams`` of `wirespeed.types`. ``state`` is the server's request state, or None.
    `Client.resume` continues.

    ``task`` is the `ToolTask` that asks, or None if the call did not become a task. The task waits
    for the answers until its time to live is over: ``cancel()`` it if you do not continue.
    """

    def __init__(
        self,
        message: str,
        requests: dict[str, ElicitParams | SampleParams | ListRootsParams],
        state: str | None,
        call: Any = None,
    ) -> None:
        super().__init__(message, requests, state, call)
        self.requests = requests
        self.state = state
        self.task: ToolTask | None = getattr(call, "task", None)
        self._call = call

    def __str__(self) -> str:
        return str(self.args[0])


class Unsupported(LocalError):
    """The server's revision has no such request, or the server has not declared the feature that it
    belongs to (basic/lifecycle, "Operation"). Nothing was sent.

    In a handler: the client's revision has no sessions (`Context.session_state`).
    """


class NotHonoured(LocalError):
    """A server does not report the changes that were subscribed to."""


class StartupError(LocalError):
    """A server cannot be started: its lifespan failed (``__cause__`` is the exception), or a
    dependency has no provider."""


class InvalidResponse(WirespeedError):
    """The peer's answer is not a valid response to the request."""


class SkillChanged(WirespeedError):
    """A file of a skill differs from the skill's entry, or the entry does not name it. The file
    was not handed out. `Client.get_skill` gets the present entry, for which earlier approvals do
    not count.

    ``uri`` is the skill. ``expected`` and ``found`` are the digests of the file, or None.
    """

    def __init__(
        self, text: str, uri: str = "", expected: str | None = None, found: str | None = None
    ) -> None:
        super().__init__(text)
        self.uri = uri
        self.expected = expected
        self.found = found


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
        """Whether the error means, in answer to resources/read, that the resource is missing: code
        -32602 from 2026-07-28 on, -32002 before (server/resources, "Error Handling")."""
        return self.code in (-32602, -32002)

    def __str__(self) -> str:
        return f"{self.message} (code {self.code})"


class TaskCancelled(RemoteError):
    """A task has no result, because it was cancelled (`Client.start_tool`)."""


class ProtocolError(WirespeedError):
    """Raised by a server's handler to answer with a JSON-RPC error.

    ``data`` is any JSON-encodable value; None leaves the member out. Your own codes must lie
    outside -32768..-32000 (MCP 2026-07-28, basic, "Error Codes").
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


class ToolError(WirespeedError):
    """Raised by a tool to report a failure to the model that called it::

        raise ToolError("there is no city of this name")

    The client gets a result with ``isError`` and this text, whatever ``Server(mask_errors=…)`` is,
    and the log has one line at level INFO: the server did not fail. Handlers of prompts, resources
    and completions, which have no such result, answer with error -32603 and this text.

    A client's `CallToolResult.raise_for_error` and ``call_tool(…, type=T)`` raise it for a result
    with ``isError``. ``result`` is that result; None where a tool raised the exception.
    """

    def __init__(self, *args: object, result: CallToolResult | None = None) -> None:
        super().__init__(*args)
        self.result = result


def uncapitalized(text: str) -> str:
    """Return a text that continues a sentence: its first letter is small, but that of AF_UNIX."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def shortened(text: str) -> str:
    """A peer's text as an error message quotes it: 256 characters at most."""
    return text if len(text) <= 256 else f"{text[:256]}…"


class StoreUnavailable(ProtocolError):
    """The store that hosts share (`wirespeed.cluster.Cluster`) did not answer in time. A request
    that needs it gets error -31007: the client may try again later."""

    def __init__(self) -> None:
        super().__init__(-31007, "The store of this server does not answer: try again later")


class ResourceNotFound(ProtocolError):
    """The resource does not exist (server/resources, "Error Handling").

    A server sends the error with the code of the client's revision: -32602 from 2026-07-28 on,
    -32002 before. ``uri`` goes into ``data``; the default is the URI of the request.
    """

    def __init__(self, uri: str | None = None, message: str = "Resource not found") -> None:
        super().__init__(-32602, message, None if uri is None else {"uri": uri})
        self.uri = uri


class MissingCapability(ProtocolError):
    """A client cannot be asked a question, because it did not declare the capability.

    ``required`` is the object of ClientCapabilities that would be needed, such as
    ``{"elicitation": {"url": {}}}``. A handler may catch the exception and continue. Otherwise a
    client of 2026-07-28 gets -32021 with ``data.requiredCapabilities``. Up to 2025-11-25, which has
    no such code, a tool returns a result with ``isError``, and other requests get *code*.
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


class SignatureError(WirespeedError, TypeError):
    """A callable cannot be what it is registered as, or a type cannot be a form. The text names the
    function or type, the parameter or field, and the reason."""


class DependencyError(SignatureError):
    """A dependency cannot be provided; the text names who takes it, and why."""


class VersionMismatch(WirespeedError):
    """Client and server have no revision in common. ``supported`` lists the server's revisions."""

    def __init__(self, text: str, supported: list[str]) -> None:
        super().__init__(text, supported)
        self.supported = supported

    def __str__(self) -> str:
        return str(self.args[0])


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
    """A network connection to a server ended while it was still needed.

    ``code`` is the close code (RFC 6455, section 7.4; 1006 for a peer that sent no close frame),
    None for a stream without close codes; ``reason`` is the text of the close frame.
    """

    def __init__(self, message: str, code: int | None = None, reason: str = "") -> None:
        super().__init__(message, code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


class UpgradeRefused(TransportError):
    """A server answered the opening handshake of WebSocket with another HTTP status than 101.

    ``status`` is the status, ``reason`` the first line of the answer's body. ``headers`` has the
    header fields of the answer, which no text shows.
    """

    def __init__(
        self, message: str, status: int, reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, status, reason)
        self.status = status
        self.reason = reason
        self.headers: Mapping[str, str] = {} if headers is None else headers

    def __str__(self) -> str:
        return str(self.args[0])


class HttpStatusError(TransportError):
    """A server of HTTP, or a proxy before it, answered a message with an HTTP status instead of a
    JSON-RPC response or a message of LiteMCP.

    ``status`` is the status, ``reason`` its name. ``retry_after`` has the seconds of the answer's
    Retry-After (RFC 9110, section 10.2.3), None if there is none.
    """

    def __init__(
        self, message: str, status: int, reason: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message, status, reason, retry_after)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after

    def __str__(self) -> str:
        return str(self.args[0])


class AuthorizationError(WirespeedError):
    """A client has no token that the server accepts, and cannot get one.

    The text says which step failed and what to do. It holds no token, no code, no secret and no
    query of a URL. ``error`` is the OAuth error code of the server that refused, such as
    ``"access_denied"`` or ``"invalid_client"`` (RFC 6749, sections 4.1.2.1 and 5.2), else "".
    """

    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message, error)
        self.error = error

    def __str__(self) -> str:
        return str(self.args[0])


class ConfigError(WirespeedError, ValueError):
    """A configuration is wrong; the text names the file, the member and the expected value."""


class InvalidToken(WirespeedError):
    """Raised by a verifier of access tokens (`wirespeed.auth.Verifier`) that refuses a token.

    The text is for the server's log and must not hold the token. The client gets HTTP 401 and
    ``error="invalid_token"``.
    """


class CannotVerify(WirespeedError):
    """Raised by a verifier of access tokens that cannot tell whether a token is good, because
    something that the verifier needs is down. The client gets HTTP 503."""
