"""One life of a server: its lifespan, and the values of scope "server". Loaded by the first holder.

A life begins with its first holder (a listener, stdio, a client in this process,
``async with server.running()``) and ends with the last. The lifespan runs in a task of its own:
holders come and go in different tasks, but a task group inside a lifespan must begin and end in the
same task. With ``workers``, each process has its own life.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from wirespeed.errors import StartupError
from wirespeed.server.dependencies.scope import LAST_WAIT, Scope, Shared
from wirespeed.server.watchdog import WATCHDOG

if TYPE_CHECKING:
    from wirespeed.server.service import McpService

logger = logging.getLogger("wirespeed.server")


@contextlib.asynccontextmanager
async def running(service: McpService) -> AsyncIterator[Any]:
    """Hold a server alive on the running loop; returns the state of its lifespan.

    StartupError: the lifespan failed, its own exception is the cause.
    """
    life = await hold(service)
    try:
        yield life.state
    finally:
        await release(life)


async def hold(service: McpService) -> Life:
    """The life of a server, begun now for the first holder. See `McpService.hold`."""
    loop = asyncio.get_running_loop()
    while (life := service.life) is not None:
        if life.loop is loop and not life.closing:
            break
        if life.loop is loop:
            await asyncio.wait((life.task,))
        elif life.loop.is_closed():  # nothing can be ended there
            service.life = None
        else:
            raise RuntimeError(
                f"{service!r} is served in another event loop, and a server runs in one at a time: "
                "threads may share one SyncClient(server), or each makes a server of its own"
            )
    if life is None:
        life = service.life = Life(service)
    life.n_holders += 1
    try:
        await asyncio.wait((life.begun,))
    except asyncio.CancelledError:
        await release(life)
        raise
    life.begun.result()
    return life


async def release(life: Life) -> None:
    """End a `hold`. The last holder waits until everything is torn down."""
    life.n_holders -= 1
    if not life.n_holders:
        await life.end()


def _note_undescribed(service: McpService) -> None:
    tools = service.tools.items
    names = [name for name, tool in list(tools.items()) if not tool.entry.description]
    if names:
        logger.info(
            "%d of %d tools have no description, by which models choose: %s",
            len(names),
            len(tools),
            ", ".join(names[:10]) + (", …" if names[10:] else ""),
        )


class Life:
    """A server's life on the running loop; `hold` makes it.

    ``state`` is what the lifespan yielded, None without one; ``shared`` are the values of scope
    "server"; ``begun`` is done when the lifespan was entered, or has failed.
    """

    def __init__(self, service: McpService) -> None:
        self.service = service
        self.loop = asyncio.get_running_loop()
        self.state: Any = None
        self.n_holders = 0
        self.closing = False
        self.begun: asyncio.Future[None] = self.loop.create_future()
        # not the first request's: providers must not depend on which request came first
        self.context = contextvars.copy_context()
        self.shared = Shared(Scope.SERVER, service.server, None, self.context, ready=self.begun)
        self._children: dict[McpService, Life | None] = {}  # mounted ones; None while they begin
        self._changes: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self.task = self.loop.create_task(self._live(), name=f"wirespeed server {service.name}")

    async def end(self) -> None:
        """Tear everything down; errors are logged."""
        self.closing = True
        self._over.set()
        if not self.begun.done():
            self.task.cancel()
        try:
            await asyncio.wait((self.task,))
        except asyncio.CancelledError:
            self.task.cancel()  # the end of the process does not wait any longer
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
            if self.service.life is self:
                self.service.life = None

    async def _span(self) -> None:
        """From the start of the lifespan to its end."""
        _note_undescribed(self.service)
        self.service.extensions.check()
        dependencies = self.service.dependencies
        if dependencies is not None:
            dependencies.check()
        async with self._lifespan() as self.state:
            if dependencies is not None and dependencies.state is not None:
                self.shared.values[dependencies.state] = self.state
            try:
                for child in self.service.mounts.servers():
                    await self._adopt(child)
                self.begun.set_result(None)
                if self.service.stores is not None:
                    self.service.stores.changes.begin()
                with WATCHDOG.watching(self.service):
                    await self._over.wait()
            except BaseException:
                if not self.begun.done():
                    await self._release_children()
                raise
            await self._tear_down()

    def _lifespan(self) -> AbstractAsyncContextManager[Any]:
        function = self.service.lifespan
        if function is None:
            return contextlib.nullcontext()
        made: Any = function(self.service.server)
        if inspect.isasyncgen(made):
            return contextlib.asynccontextmanager(lambda: made)()
        if not hasattr(made, "__aenter__"):
            raise TypeError(
                "a lifespan is an async generator function, or returns an async context manager; "
                f"this one returned {type(made).__name__}"
            )
        manager: AbstractAsyncContextManager[Any] = made
        return manager

    def _failed(self, exc: BaseException) -> bool:
        """Report a failure to waiting holders, or log it. Returns whether the life goes on."""
        if self.begun.done():
            if self._over.is_set():
                if not isinstance(exc, asyncio.CancelledError):
                    logger.error("the end of %r failed", self.service, exc_info=exc)
            else:
                cancelled = isinstance(exc, asyncio.CancelledError)  # the loop is ending
                logger.error(
                    "the lifespan of %r ended early%s",
                    self.service,
                    ": its task was cancelled" if cancelled else "",
                    exc_info=None if cancelled else exc,
                )
            return True
        self.closing = True
        if isinstance(exc, StartupError):
            error = exc  # of a server mounted on this one
        elif isinstance(exc, asyncio.CancelledError):
            error = StartupError(f"the start of server {self.service.name!r} was cancelled")
        else:
            why = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
            error = StartupError(f"server {self.service.name!r} cannot be started: {why}")
            error.__cause__ = exc
        self.begun.set_exception(error)
        self.begun.exception()  # the waiter may be gone
        return False

    async def _tear_down(self) -> None:
        if self.service.tasks.service is not None:
            await self.service.tasks.service.close()
        if self.service.stores is not None:
            await self.service.stores.close()
        dependencies = self.service.dependencies
        if dependencies is not None:
            await dependencies.connections_over()
        await self.shared.aclose()
        await self._release_children()

    # -- servers mounted on this one ---------------------------------------------------------------

    def adopt_soon(self, child: McpService) -> None:
        """From any thread: hold a server that was mounted."""
        self._change(self._adopt_late, child)

    def disown_soon(self, child: McpService) -> None:
        """From any thread: a server was unmounted."""
        self._change(self._disown, child)

    def _change(
        self, work: Callable[[McpService], Coroutine[Any, Any, None]], child: McpService
    ) -> None:
        def start() -> None:
            if not self.closing:
                task = self.loop.create_task(work(child), context=self.context.copy())
                self._changes.add(task)
                task.add_done_callback(self._changes.discard)

        with contextlib.suppress(RuntimeError):  # the loop was closed
            self.loop.call_soon_threadsafe(start, context=self.context)

    async def _adopt(self, child: McpService) -> None:
        if child not in self._children:
            self._children[child] = None
            try:
                self._children[child] = await hold(child)
            except BaseException:
                del self._children[child]
                raise

    async def _adopt_late(self, child: McpService) -> None:
        try:
            await self._adopt(child)
        except StartupError as exc:
            logger.error("%s: it was mounted on %r", exc, self.service, exc_info=exc)
        if child not in self.service.mounts.servers():
            await self._disown(child)  # it was unmounted meanwhile

    async def _disown(self, child: McpService) -> None:
        if self._children.get(child) is not None and child not in self.service.mounts.servers():
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
