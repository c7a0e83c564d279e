"""Values that live as long as a request, a connection or a server: made, shared, torn down.

`wirespeed.server.dependencies.registry` says what is provided and by whom; here it is made. Values
of a request are made and torn down in the task of its handler. A value of a connection or a server
is made once, in a task of its own, which also tears it down: a task group or a cancel scope inside
a generator begins and ends in one task, and no caller's cancellation or context reaches it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future as Job
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from wirespeed.errors import ConnectionClosed
from wirespeed.server.requests.launchers import Threads

if TYPE_CHECKING:
    from wirespeed.server.requests.call import Call

logger = logging.getLogger("wirespeed.server")

LAST_WAIT = 0.25  # seconds for a task to end after its cancellation
MISSING: Any = object()


class Scope(IntEnum):
    """The life of a provided value; the wider, the greater."""

    REQUEST = 1
    CONNECTION = 2
    SERVER = 3

    @property
    def word(self) -> str:
        """The name of the scope in `Server.provide`."""
        return self.name.lower()


class Given(IntEnum):
    """Parameters of a provider that no provider fills."""

    CONTEXT = 1
    SERVER = 2


class ValueProvider(Protocol):
    """A function that provides a value (`wirespeed.server.dependencies.provider.Provider`)."""

    scope: Scope
    is_resource: bool

    async def arguments(self, take: Callable[[Any], Awaitable[Any]]) -> list[Any]:
        """The arguments of a call, each from ``take(source)``."""

    def call(self, values: list[Any]) -> Awaitable[Any]:
        """An awaitable of the value, for a provider that is not a resource."""

    async def manager(self, values: list[Any]) -> Any:
        """The async context manager of a resource."""


# -- resources: what is to be left again ----------------------------------------------------------


class InThread:
    """A blocking context manager, entered and left in worker threads."""

    def __init__(self, manager: contextlib.AbstractContextManager[Any], threads: Threads) -> None:
        self._manager = manager
        self._threads = threads

    async def __aenter__(self) -> Any:
        job: Job[Any] = self._threads.begin(self._manager.__enter__)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            # a thread cannot be stopped: what it still enters is left again, without a waiter
            job.add_done_callback(self._leave_late)
            raise

    async def __aexit__(self, *exc: object) -> Any:
        return await self._threads.in_thread(self._manager.__exit__, [*exc], None)

    def _leave_late(self, job: Job[Any]) -> None:
        if not job.cancelled() and job.exception() is None:
            self._threads.submit(self._leave)

    def _leave(self) -> None:
        try:
            self._manager.__exit__(None, None, None)
        except BaseException:
            logger.exception("the teardown of an abandoned dependency failed")


class AtOnce:
    """A context manager entered and left on the loop's thread."""

    def __init__(self, manager: contextlib.AbstractContextManager[Any]) -> None:
        self._manager = manager

    async def __aenter__(self) -> Any:
        return self._manager.__enter__()

    async def __aexit__(self, *exc: object) -> Any:
        return self._manager.__exit__(*exc)  # type: ignore[arg-type]


# -- the scope of a request -----------------------------------------------------------------------


class Exits:
    """The exits of one request: ``entered``, its resources in order, and wider scopes."""

    __slots__ = ("_call", "_shared", "entered")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.entered: list[tuple[ValueProvider, Any]] = []
        self._shared: list[Shared] = []

    def use(self, shared: Shared) -> None:
        """Hold a wider scope up until `leave_shared`."""
        shared.enter(self._call)
        self._shared.append(shared)

    def leave_shared(self) -> None:
        """The handler has ended."""
        for shared in self._shared:
            shared.leave(self._call)

    async def enter(self, provider: ValueProvider, arguments: list[Any]) -> Any:
        """The value of a resource, which `unwind` will leave."""
        manager = await provider.manager(arguments)
        value = await manager.__aenter__()
        self.entered.append((provider, manager))
        return value

    async def unwind(self, failure: BaseException | None) -> None:
        """Leave all, the last one first.

        ``failure``, the handler's exception, is thrown into each, so that it can roll back; it
        cannot be swallowed there. When the request failed already, the error of a teardown is
        logged; otherwise the first error is raised, because the result cannot be trusted.
        """
        active = failure
        while self.entered:
            provider, manager = self.entered.pop()
            kind = None if active is None else type(active)
            traceback = None if active is None else active.__traceback__
            try:
                await manager.__aexit__(kind, active, traceback)
            except BaseException as exc:
                if exc is active:
                    continue
                if active is None or not isinstance(exc, Exception):
                    active = exc  # a cancellation or an exit replaces an ordinary error
                else:
                    logger.error("the teardown of %s failed", provider, exc_info=exc)
        if active is not None and active is not failure:
            raise active


# -- wider scopes ---------------------------------------------------------------------------------


class _Kept:
    """One value of a `Shared` and the task that made it."""

    __slots__ = ("made", "provider", "release", "task")

    def __init__(self, provider: ValueProvider, loop: asyncio.AbstractEventLoop) -> None:
        self.provider = provider
        self.made: asyncio.Future[Any] = loop.create_future()
        self.release = asyncio.Event()
        self.task: asyncio.Task[None]


class Shared:
    """The values of one connection, or of one server.

    Args:
        scope: Which of the two.
        server: The value for providers that take the server.
        wider: The scope that values here may use; None for the widest.
        context: The context variables that providers run with.
        grace: Seconds that one teardown may take before it is cancelled; None for no limit.
        ready: What to await before anything is made.
    """

    def __init__(
        self,
        scope: Scope,
        server: object,
        wider: Callable[[], Shared] | None,
        context: contextvars.Context,
        grace: float | None = None,
        ready: asyncio.Future[None] | None = None,
    ) -> None:
        self.scope = scope
        self.values: dict[ValueProvider, Any] = {}  # complete: looked at before `get` is awaited
        self.closing = False
        self._server = server
        self._wider = wider
        self._context = context
        self._grace = grace
        self._ready = ready
        self._loop = asyncio.get_running_loop()
        self._kept: dict[ValueProvider, _Kept] = {}  # in the order of completion, from there on
        self._users: set[Call] = set()
        self._unused: asyncio.Future[None] | None = None

    async def get(self, provider: ValueProvider) -> Any:
        """The value of a provider; made now if it is the first time, once for all who wait.

        A failure is raised for all who wait, and is not kept: the next call tries again.
        """
        if provider.scope is not self.scope:
            assert self._wider is not None  # registration refuses narrower ones
            return await self._wider().get(provider)
        if self._ready is not None and not self._ready.done():
            await asyncio.wait((self._ready,))
        value = self.values.get(provider, MISSING)
        if value is not MISSING:
            return value
        if self.closing:
            raise ConnectionClosed(f"{provider} is wanted when its {self.scope.word} is over")
        kept = self._kept.get(provider)
        if kept is None:
            kept = self._kept[provider] = _Kept(provider, self._loop)
            kept.task = self._loop.create_task(
                self._keep(kept), name=f"wirespeed {provider}", context=self._context.copy()
            )
        await asyncio.wait(
            (kept.made,)
        )  # others wait for it, too: our cancellation must not reach it
        return kept.made.result()

    async def _keep(self, kept: _Kept) -> None:
        """The task of one value."""
        provider = kept.provider
        try:
            arguments = await provider.arguments(self._take)
            if not provider.is_resource:
                self._put(kept, await provider.call(arguments))
                return
            async with await provider.manager(arguments) as value:
                self._put(kept, value)
                await kept.release.wait()
            if not kept.release.is_set():
                raise RuntimeError(f"{provider} swallowed what was raised in it")
        except BaseException as exc:
            self._failed(kept, exc)
            if not isinstance(exc, Exception | asyncio.CancelledError):
                raise  # KeyboardInterrupt, SystemExit

    def _take(self, source: Any) -> Awaitable[Any]:
        return _ready(self._server) if source is Given.SERVER else self.get(source)

    def _put(self, kept: _Kept, value: Any) -> None:
        if self.closing and not kept.provider.is_resource:
            raise asyncio.CancelledError
        del self._kept[kept.provider]
        self._kept[kept.provider] = kept  # now the last: torn down before what it is made of
        self.values[kept.provider] = value
        kept.made.set_result(value)

    def _failed(self, kept: _Kept, exc: BaseException) -> None:
        provider = kept.provider
        self.values.pop(provider, None)
        if self._kept.get(provider) is kept and not self.closing:
            del self._kept[provider]
        if not kept.made.done():
            if isinstance(exc, asyncio.CancelledError):
                exc = ConnectionClosed(f"the {self.scope.word} ended while {provider} was made")
            kept.made.set_exception(exc)
            kept.made.exception()  # the waiter may be gone
        elif kept.release.is_set():
            if not isinstance(exc, asyncio.CancelledError):
                logger.error("the teardown of %s failed", provider, exc_info=exc)
        else:
            text = "%s ended early; it is made again when it is wanted"
            logger.error(text, provider, exc_info=exc)

    # -- the end ---------------------------------------------------------------------------------

    def enter(self, call: Call) -> None:
        """The handler of a call uses values of this scope."""
        self._users.add(call)

    def leave(self, call: Call) -> None:
        """The handler of a call has ended."""
        self._users.discard(call)
        if not self._users and self._unused is not None and not self._unused.done():
            self._unused.set_result(None)

    async def _users_gone(self) -> None:
        """Wait for handlers that use this scope. They were cancelled and get `LAST_WAIT`; handlers
        that go on as tasks after their link get all the time they need."""
        while self._users:
            self._unused = self._loop.create_future()
            detached = any(call.detached for call in self._users)
            await asyncio.wait((self._unused,), timeout=None if detached else LAST_WAIT)
            if not detached:
                return

    async def aclose(self) -> None:
        """Tear everything down after the last user, in reverse order; errors are logged."""
        self.closing = True
        try:
            await self._users_gone()
            making = [kept.task for kept in self._kept.values() if not kept.made.done()]
            if making:
                for task in making:
                    task.cancel()
                await asyncio.wait(making, timeout=LAST_WAIT)
            for kept in reversed(list(self._kept.values())):
                kept.release.set()
                await self._ended(kept)
        except asyncio.CancelledError:
            for kept in self._kept.values():
                kept.task.cancel()
            raise
        finally:
            self._kept.clear()
            self.values.clear()

    async def _ended(self, kept: _Kept) -> None:
        if kept.task.done():
            return
        await asyncio.wait((kept.task,), timeout=self._grace)
        if not kept.task.done():
            logger.error("the teardown of %s took more than %g s", kept.provider, self._grace)
            kept.task.cancel()
            await asyncio.wait((kept.task,), timeout=LAST_WAIT)


async def _ready(value: Any) -> Any:
    return value
