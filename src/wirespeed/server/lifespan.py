"""One life of a server on one event loop: its lifespan, and what is provided for as long.

A life begins with its first holder (what serves at a URL or on stdio, a client in this process,
``async with server.running()``) and ends with the last. The lifespan runs in a task of its own:
holders come and go in different ones, but a task group inside a lifespan wants to begin and end in
the same. With ``workers``, each process has lives of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeAlias

from wirespeed.errors import StartupError
from wirespeed.server.scopes import LAST_WAIT, Scope, Shared

if TYPE_CHECKING:
    from wirespeed.server.server import Server

Lifespan: TypeAlias = "Callable[[Any], AsyncIterator[Any] | AbstractAsyncContextManager[Any]]"

logger = logging.getLogger("wirespeed.server")


@contextlib.asynccontextmanager
async def running(server: Server) -> AsyncIterator[Any]:
    """Hold a server alive on the running loop; gives the state of its lifespan.

    StartupError: the lifespan failed, its own exception is the cause.
    """
    life = await hold(server)
    try:
        yield life.state
    finally:
        await release(life)


async def hold(server: Server) -> Life:
    """The life of a server on this loop, begun now if it is the first holder's. See `running`."""
    lives = server._lives
    loop = asyncio.get_running_loop()
    for other in list(lives):
        if other.is_closed():  # nothing can be ended there any more
            lives.pop(other, None)
    while (life := lives.get(loop)) is not None and life.closing:
        await asyncio.wait((life.task,))
    if life is None:
        life = lives[loop] = Life(server)
    life.n_holders += 1
    try:
        await asyncio.wait((life.begun,))
    except asyncio.CancelledError:
        await release(life)
        raise
    life.begun.result()
    return life


def _note_undescribed(server: Server) -> None:
    tools = server.tools.values()
    names = [tool.name for tool in tools if not tool.entry.description]
    if names:
        logger.info(
            "%d of %d tools have no description, by which models choose: %s",
            len(names),
            len(tools),
            ", ".join(names[:10]) + (", …" if names[10:] else ""),
        )


async def release(life: Life) -> None:
    """Hold it no longer. The last holder waits until everything is torn down."""
    life.n_holders -= 1
    if not life.n_holders:
        await life.end()


def state_of(server: Server, loop: asyncio.AbstractEventLoop) -> Any:
    """What a server's lifespan yielded on a loop. RuntimeError: it is not alive there."""
    life = server._lives.get(loop)
    if life is None or not life.begun.done():
        raise RuntimeError(f"{server!r} is not alive in this event loop: see `Server.running`")
    return life.state


class Life:
    """A server's life on the running loop; `hold` makes it.

    ``state`` is what the lifespan yielded, None without one; ``shared`` what is provided for as
    long; ``begun`` is done when the lifespan was entered, or has failed.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.state: Any = None
        self.n_holders = 0
        self.closing = False
        self.begun: asyncio.Future[None] = self.loop.create_future()
        # not that of the first request: what a provider sees does not depend on who came first
        self.context = contextvars.copy_context()
        self.shared = Shared(Scope.SERVER, server, None, self.context, ready=self.begun)
        self._children: dict[Server, Life | None] = {}  # mounted ones; None while they begin
        self._changes: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self.task = self.loop.create_task(self._live(), name=f"wirespeed server {server.name}")

    async def end(self) -> None:
        """Tear everything down; errors are logged."""
        self.closing = True
        self._over.set()
        if not self.begun.done():
            self.task.cancel()
        try:
            await asyncio.wait((self.task,))
        except asyncio.CancelledError:
            self.task.cancel()  # who ends the process has lost patience
            await asyncio.wait((self.task,), timeout=LAST_WAIT)
            raise

    async def _live(self) -> None:
        try:
            await self._span()
        except GeneratorExit:
            raise  # the loop was closed under us
        except BaseException as exc:
            if not isinstance(exc, Exception | asyncio.CancelledError):
                self._failed(exc)
                raise  # KeyboardInterrupt, SystemExit
            if self._failed(exc) and not self._over.is_set():
                await self._over.wait()  # the lifespan ended before its time; we still serve
                await self._tear_down()
        finally:
            self.closing = True
            if self.server._lives.get(self.loop) is self:
                del self.server._lives[self.loop]

    async def _span(self) -> None:
        """From the begin of the lifespan to its end."""
        _note_undescribed(self.server)
        dependencies = self.server._dependencies
        if dependencies is not None:
            dependencies.check()
        async with self._lifespan() as self.state:
            if dependencies is not None and dependencies.state is not None:
                self.shared.values[dependencies.state] = self.state
            try:
                for child in self.server._mounted():
                    await self._adopt(child)
                self.begun.set_result(None)
                await self._over.wait()
            except BaseException:
                if not self.begun.done():
                    await self._release_children()
                raise
            await self._tear_down()

    def _lifespan(self) -> AbstractAsyncContextManager[Any]:
        function = self.server._lifespan
        if function is None:
            return contextlib.nullcontext()
        made: Any = function(self.server)
        if inspect.isasyncgen(made):
            return contextlib.asynccontextmanager(lambda: made)()
        if not hasattr(made, "__aenter__"):
            raise TypeError(
                "a lifespan is an async generator function, or one that gives an async context "
                f"manager; this one gave {type(made).__name__}"
            )
        manager: AbstractAsyncContextManager[Any] = made
        return manager

    def _failed(self, exc: BaseException) -> bool:
        """Say it to those whom it concerns. Whether the life goes on."""
        if self.begun.done():
            if self._over.is_set():
                if not isinstance(exc, asyncio.CancelledError):
                    logger.error("the end of %r failed", self.server, exc_info=exc)
            else:
                logger.error("the lifespan of %r ended early", self.server, exc_info=exc)
            return True
        self.closing = True
        if isinstance(exc, StartupError):
            error = exc  # of a server mounted on this one
        elif isinstance(exc, asyncio.CancelledError):
            error = StartupError(f"the start of server {self.server.name!r} was cancelled")
        else:
            why = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
            error = StartupError(f"server {self.server.name!r} cannot be started: {why}")
            error.__cause__ = exc
        self.begun.set_exception(error)
        self.begun.exception()  # whoever waited may be gone
        return False

    async def _tear_down(self) -> None:
        if self.server._task_service is not None:
            await self.server._task_service.close()
        dependencies = self.server._dependencies
        if dependencies is not None:
            await dependencies.connections_over()
        await self.shared.aclose()
        await self._release_children()

    # -- servers mounted on this one ---------------------------------------------------------------

    def adopt_soon(self, child: Server) -> None:
        """From any thread: hold a server that was mounted meanwhile."""
        self._change(self._adopt_late, child)

    def disown_soon(self, child: Server) -> None:
        """From any thread: a server was unmounted."""
        self._change(self._disown, child)

    def _change(self, work: Callable[[Server], Coroutine[Any, Any, None]], child: Server) -> None:
        def start() -> None:
            if not self.closing:
                task = self.loop.create_task(work(child), context=self.context.copy())
                self._changes.add(task)
                task.add_done_callback(self._changes.discard)

        with contextlib.suppress(RuntimeError):  # the loop was closed
            self.loop.call_soon_threadsafe(start, context=self.context)

    async def _adopt(self, child: Server) -> None:
        if child not in self._children:
            self._children[child] = None
            try:
                self._children[child] = await hold(child)
            except BaseException:
                del self._children[child]
                raise

    async def _adopt_late(self, child: Server) -> None:
        try:
            await self._adopt(child)
        except StartupError as exc:
            logger.error("%s: it was mounted on %r", exc, self.server, exc_info=exc)
        if child not in self.server._mounted():
            await self._disown(child)  # again, meanwhile

    async def _disown(self, child: Server) -> None:
        if self._children.get(child) is not None and child not in self.server._mounted():
            life = self._children.pop(child)
            assert life is not None
            await release(life)

    async def _release_children(self) -> None:
        if self._changes:
            await asyncio.wait(list(self._changes))
        while self._children:
            _, life = self._children.popitem()
            if life is not None:
                await release(life)
