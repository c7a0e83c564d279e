"""Services that Streamable HTTP can serve."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from wirespeed._exports import set_public_home
from wirespeed.limits import Limits
from wirespeed.protocol.revisions import LEGACY_VERSIONS, MODERN_VERSIONS

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.base import Framer
    from wirespeed.peer.connection import SessionConnection
    from wirespeed.transport.http.exchange import HttpTarget
    from wirespeed.transport.http.options import HttpOptions
    from wirespeed.transport.link import Link
    from wirespeed.transport.taskpool import TaskPool


class HttpService(ABC):
    """The base of services of MCP: a `wirespeed.transport.Service` that can be served at every URL.

    A subclass defines `connect`. Streamable HTTP of all revisions is the listener's: sessions and
    their ids, GET and DELETE, answers as JSON or as events, resumption, the checks of header fields
    and the statuses of errors.

    Attributes:
        limits: The limits of one connection.
        subprotocol: The WebSocket subprotocol that it speaks; None for any.
        auth_headers: The header fields, in lower case, that may bring a bearer token.
        refusal_status: The HTTP status for a missing or wrong token.
        legacy_versions: The revisions that clients may use, of those with a handshake.
        modern_versions: The revisions that clients may use, of those without a handshake.
        shutdown_grace: Seconds that running requests have at the end.
    """

    limits: Limits = Limits()
    subprotocol: str | None = "mcp"
    auth_headers: Sequence[str] = ("authorization",)
    refusal_status: int = 401
    legacy_versions: Sequence[str] = LEGACY_VERSIONS
    modern_versions: Sequence[str] = MODERN_VERSIONS
    shutdown_grace: float = 5.0

    @property
    def has_sessions(self) -> bool:
        """Whether clients have sessions over HTTP: those of revisions with a handshake."""
        return bool(self.legacy_versions)

    async def hold(self) -> Any:  # noqa: B027
        """Begin: called before the first connection, once for each listener. Returns the argument
        of `release`. An exception ends the start of the listener."""

    async def release(self, held: Any, /) -> None:  # noqa: B027
        """End, after the last connection of a listener."""

    def stream_framer(self) -> "Framer | None":
        """Return the framing on a byte stream; None, the default, for one message a line."""
        return None

    @abstractmethod
    def connect(
        self,
        make_link: "Callable[[Any], Link]",
        *,
        loop: asyncio.AbstractEventLoop,
        pool: "TaskPool",
        framer: "Framer | None" = None,
        lane: bool = False,
    ) -> "SessionConnection":
        """Serve one more connection: make it, call ``make_link`` with it, and return it.

        ``framer``: How messages lie in the stream; None for one a line. ``lane``: It serves
        requests of clients that have no session, one at a time (HTTP). Without ``lane`` it is the
        connection of one client, or over HTTP of its session.
        """

    def place_of(self, message: "Message", /) -> str | None:
        """Return the process that has what a request of 2026-07-28 names, as the ids of its
        sessions begin: ``NAME.WORKER``; without the name for a worker of this host. None, the
        default: any process may answer. A request that names a process has a tilde behind a digit,
        as in ``a.1~``."""
        return None

    def session_messages(self, connection: "SessionConnection", /) -> tuple[bytes, ...] | None:
        """Return the messages, as JSON text, that give a new connection the state of this one:
        ``initialize`` first. None, the default: its session cannot move to another host."""
        return None

    def session_kept(self, connection: "SessionConnection", /) -> bytes:
        """Return further state of a session, which moves with it to another host; by default
        none."""
        return b""

    def restore_session(self, connection: "SessionConnection", kept: bytes, /) -> None:
        """Give a connection what `session_kept` of the one before it has returned, after its
        messages. It is not called where that is empty."""
        raise NotImplementedError

    def http_target(
        self, options: "HttpOptions", *, loop: asyncio.AbstractEventLoop, pool: "TaskPool"
    ) -> "HttpTarget":
        """Return what answers the requests at its path: a `StreamableHttp`."""
        from wirespeed.peer.http.endpoint import StreamableHttp

        return StreamableHttp(self, options, loop, pool)

    def sse_target(
        self, options: "HttpOptions", *, loop: asyncio.AbstractEventLoop, pool: "TaskPool"
    ) -> "HttpTarget":
        """Return what answers the requests of clients of 2024-11-05 at ``sse_path``."""
        from wirespeed.peer.http.sse import SseEndpoint

        return SseEndpoint(self, options, loop, pool)


set_public_home(globals())
