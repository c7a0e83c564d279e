"""Changes of a client's roots: who wants to know of them.

client/roots, "Root List Changes", of 2024-11-05 to 2025-11-25: a client tells that there are other
roots, and the server asks for them. In 2026-07-28 clients tell nothing; who needs the roots asks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from wirespeed.errors import CallTimeout, ConnectionClosed, InvalidResponse, RemoteError
from wirespeed.server import launch
from wirespeed.server.part import Part

if TYPE_CHECKING:
    from asyncio import Future

    from wirespeed.protocol.asking import Root
    from wirespeed.server.connection import ServerConnection
    from wirespeed.server.server import Server

__all__ = ["Roots", "RootsChange"]

F = TypeVar("F", bound=Callable[["RootsChange"], Any])

METHOD = "notifications/roots/list_changed"

logger = logging.getLogger("wirespeed.server")


class RootsChange:
    """A client that has other roots than before. There is no request, so nothing but the roots can
    be asked, and nothing be reported."""

    __slots__ = ("_connection", "_server")

    def __init__(self, connection: ServerConnection, server: Server) -> None:
        self._connection = connection
        self._server = server

    async def roots(self, *, timeout: float | None = None) -> list[Root]:
        """The roots that there are now: `Context.roots`, with the same errors."""
        from wirespeed.server.questions import RootsRequest

        connection = self._connection
        if threading.get_ident() != connection.thread:
            raise RuntimeError("the client is asked from the event loop: make the handler async")
        question = RootsRequest()
        params = question.encoded(self.client_capabilities, self.protocol_version)
        found: list[Root] = question.answer(
            await connection.ask(question.method, params, timeout=timeout)
        )
        return found

    @property
    def protocol_version(self) -> str:
        """The revision of MCP that was negotiated."""
        revision = self._connection.revision
        assert revision is not None
        return revision.version

    @property
    def client_info(self) -> dict[str, Any] | None:
        """What the client says it is; self-reported."""
        return self._connection.state.client_info

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """What the client says it can do."""
        return self._connection.state.capabilities

    @property
    def principal(self) -> bytes | None:
        """A digest of the credential that the client came with; None without one."""
        return self._connection.principal

    @property
    def connection_id(self) -> int:
        """A number that no other connection of this process has or had; requests' middleware sees
        the same (`wirespeed.server.passage.InboundRequest`)."""
        return self._connection.serial

    @property
    def lifespan_state(self) -> Any:
        """As `Context.lifespan_state`, of the server that the handler was registered at."""
        from wirespeed.server.lifespan import state_of

        return state_of(self._server, self._connection.loop)


class Roots(Part):
    """What a server has for changes of its clients' roots."""

    _roots_handlers: list[Callable[[RootsChange], Any]]
    # Clients whose change is being told of, and whether there was another one meanwhile.
    _roots_told: dict[ServerConnection, bool]

    def _setup_roots(self) -> None:
        self._roots_handlers = []
        self._roots_told = {}

    def on_roots_changed(self, function: F, /) -> F:
        """Call a function whenever a client tells that its roots have changed (client/roots, "Root
        List Changes"; up to 2025-11-25)::

            @server.on_roots_changed
            async def changed(change: RootsChange) -> None:
                watched[change.connection_id] = await change.roots()

        A plain function runs in a worker thread, and cannot ask. Several are called one after the
        other. For one client they run one at a time: changes that are told meanwhile are one, of
        which they hear when they have ended. They end with the connection; what they raise is
        logged. Clients that declare no roots are not heard. A server that is mounted hears of the
        clients of the server that it is mounted on.
        """
        if not callable(function):
            raise TypeError(f"a handler must be callable, not {type(function).__name__}")
        self._roots_handlers.append(function)
        return function

    def _roots_changed(self, connection: ServerConnection) -> None:
        """A client says so."""
        if (
            connection.draining
            or connection.revision is None
            or METHOD not in connection.revision.notifications
            or not isinstance(connection.state.capabilities.get("roots"), dict)
            or not any(handlers for _, handlers in self._roots_wanted())
        ):
            return
        if connection in self._roots_told:
            self._roots_told[connection] = True
            return
        self._roots_told[connection] = True
        running = None

        def gone(_: Future[None]) -> None:
            if running is not None:
                running.cancel()

        def ended(_: None, exc: BaseException | None) -> None:
            connection.closed.remove_done_callback(gone)
            del self._roots_told[connection]  # also if it was cancelled before it began

        connection.closed.add_done_callback(gone)
        running = connection.pool.start(self._tell_roots(connection), ended)

    def _roots_wanted(self) -> Iterator[tuple[Server, list[Callable[[RootsChange], Any]]]]:
        """The handlers, here and at the mounted servers."""
        yield cast("Server", self), self._roots_handlers
        for child in cast("Server", self)._mounted():
            yield from child._roots_wanted()

    async def _tell_roots(self, connection: ServerConnection) -> None:
        told = self._roots_told
        while told[connection]:
            told[connection] = False
            for server, handlers in list(self._roots_wanted()):
                for handler in list(handlers):
                    await _tell(handler, RootsChange(connection, server))


async def _tell(handler: Callable[[RootsChange], Any], change: RootsChange) -> None:
    start = launch.coroutine if launch.is_coroutine_function(handler) else launch.in_thread
    try:
        await start(handler, [change], None)
    except (RemoteError, InvalidResponse, CallTimeout) as exc:
        logger.warning("the client does not tell its roots: %s", exc)
    except ConnectionClosed:
        logger.debug("the client went before it told its roots")
    except Exception:
        logger.exception("a handler of changed roots failed")
