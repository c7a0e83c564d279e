"""Changes of a client's roots, and the handlers that are called for them.

client/roots, "Root List Changes", of 2024-11-05 to 2025-11-25: a client reports that its roots
changed, and the server asks for them. In 2026-07-28 clients report no changes. The request for
roots is `wirespeed.server.asking.asker.RootsRequest`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from wirespeed._exports import set_public_home
from wirespeed.errors import CallTimeout, ConnectionClosed, InvalidResponse, RemoteError
from wirespeed.server.requests.launchers import Threads, coroutine
from wirespeed.transport.loop import is_coroutine_function

if TYPE_CHECKING:
    from asyncio import Future

    from wirespeed.protocol.asking import Root
    from wirespeed.server.requests.call import Serving

F = TypeVar("F", bound=Callable[["RootsChange"], Any])

METHOD = "notifications/roots/list_changed"

logger = logging.getLogger("wirespeed.server")


class RootsChange:
    """A client whose roots changed. There is no request: a handler can ask for the roots and for
    nothing else, and cannot report progress."""

    __slots__ = ("_connection", "_lifespan_state")

    def __init__(self, connection: Serving, lifespan_state: Callable[[], Any]) -> None:
        self._connection = connection
        self._lifespan_state = lifespan_state

    async def roots(self, *, timeout: float | None = None) -> list[Root]:
        """The present roots, as `Context.roots`, with the same errors."""
        from wirespeed.server.asking.asker import RootsRequest

        connection = self._connection
        if threading.get_ident() != connection.thread:
            raise RuntimeError(
                "only the event loop's thread can ask the client: make the handler async"
            )
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
        """The client's own description of itself."""
        return self._connection.state.client_info

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """The capabilities of the client."""
        return self._connection.state.capabilities

    @property
    def principal(self) -> bytes | None:
        """A digest of the credential that the client came with; None without one."""
        return self._connection.principal

    @property
    def connection_id(self) -> int:
        """A number that no other connection of this process has or had; requests' middleware sees
        the same (`wirespeed.types.InboundRequest`)."""
        return self._connection.serial

    @property
    def lifespan_state(self) -> Any:
        """As `Context.lifespan_state`, of the server that the handler was registered at."""
        return self._lifespan_state()


class RootsListeners:
    """The handlers of changes of the clients' roots.

    Args:
        threads: The threads that plain functions run in.
        lifespan_state: Returns what the lifespan of the server yielded.
        mounted: Returns the listeners of the servers that are mounted on the server.

    Attributes:
        handlers: The author's functions.
        being_told: Clients whose change the handlers are being told of, and whether there was
            another change meanwhile.
    """

    def __init__(
        self,
        threads: Threads,
        lifespan_state: Callable[[], Any],
        mounted: Callable[[], Iterable[RootsListeners]],
    ) -> None:
        self._threads = threads
        self._lifespan_state = lifespan_state
        self._mounted = mounted
        self.handlers: list[Callable[[RootsChange], Any]] = []
        self.being_told: dict[Serving, bool] = {}

    def add(self, function: F) -> F:
        """See `Server.on_roots_changed`."""
        if not callable(function):
            raise TypeError(f"a handler must be callable, not {type(function).__name__}")
        self.handlers.append(function)
        return function

    def changed(self, connection: Serving) -> None:
        """A client says that its roots changed."""
        if (
            connection.draining
            or connection.revision is None
            or METHOD not in connection.revision.notifications
            or not isinstance(connection.state.capabilities.get("roots"), dict)
            or not any(listeners.handlers for listeners in self._all())
        ):
            return
        if connection in self.being_told:
            self.being_told[connection] = True
            return
        self.being_told[connection] = True
        running = None

        def gone(_: Future[BaseException | None]) -> None:
            if running is not None:
                running.cancel()

        def ended(_: None, exc: BaseException | None) -> None:
            connection.closed.remove_done_callback(gone)
            del self.being_told[connection]  # also if it was cancelled before it began

        connection.closed.add_done_callback(gone)
        running = connection.pool.start(self._tell_all(connection), ended)

    def _all(self) -> Iterator[RootsListeners]:
        """These listeners, and those of the mounted servers."""
        yield self
        for listeners in self._mounted():
            yield from listeners._all()

    async def _tell_all(self, connection: Serving) -> None:
        while self.being_told[connection]:
            self.being_told[connection] = False
            for listeners in list(self._all()):
                for handler in list(listeners.handlers):
                    change = RootsChange(connection, listeners._lifespan_state)
                    await _tell(handler, change, listeners._threads)


async def _tell(
    handler: Callable[[RootsChange], Any], change: RootsChange, threads: Threads
) -> None:
    start = coroutine if is_coroutine_function(handler) else threads.in_thread
    try:
        await start(handler, [change], None)
    except (RemoteError, InvalidResponse, CallTimeout) as exc:
        logger.warning("the client does not tell its roots: %s", exc)
    except ConnectionClosed:
        logger.debug("the client went before it told its roots")
    except Exception:
        logger.exception("a handler of changed roots failed")


set_public_home(globals())
