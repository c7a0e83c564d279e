"""The client for code without an event loop: the same methods, blocking."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import threading
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterator,
)
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Never,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    overload,
)

from wirespeed.client.client import Client
from wirespeed.errors import ConnectionClosed
from wirespeed.transport.loop import loop_factory

if TYPE_CHECKING:
    from types import TracebackType

    from wirespeed.client.subscriptions.events import Event, SubscriptionFilter
    from wirespeed.client.subscriptions.subscription import Subscription
    from wirespeed.client.sync_tasks import BlockingTask
    from wirespeed.client.tasks.task import ToolTask

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_FROM_A_CALLBACK = "a callback cannot block its own client: call from another thread"


class Openable(Protocol):
    """A client as a `Blocking` one needs it."""

    async def __aenter__(self) -> Any: ...

    async def close(self) -> None:
        """End it."""


C = TypeVar("C", bound=Openable)


class Blocking(Generic[C]):
    """A client on a loop in a thread of its own.

    Its methods block, may be called from several threads at once (the calls are multiplexed on the
    one link), and an interrupt (Ctrl-C) in one cancels that call. Callbacks run in the loop's
    thread.
    """

    def __init__(self, client: C) -> None:
        self._client = client
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ending: threading.Thread | None = None  # of the loop before
        # Held while work is handed to the loop: what was handed over before `close` took the loop
        # away is ended by it, and nothing is handed over after. A signal handler that uses the
        # client may run while its own thread holds it.
        self._lock = threading.RLock()
        # Generators that are iterated over. The collector must not find them together with what
        # they stand on: it would have the loop close each of them, in any order.
        self._walked: set[AsyncGenerator[Any, None]] = set()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_process(self) -> None:
        """The thread of the loop is not there in a forked child, and the lock may be held."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                "this client belongs to the process that forked: make another one after the fork"
            )

    def open(self) -> None:
        """As `Client.open`."""
        self._check_process()
        if self._ending is not None:
            self._ending.join()
        with self._lock:
            if self._loop is None:
                loop = loop_factory()()
                thread = threading.Thread(
                    target=self._serve, args=(loop,), name="wirespeed-client", daemon=True
                )
                thread.start()
                self._loop, self._thread = loop, thread
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            if threading.current_thread() is not self._thread:
                self.close()
            raise

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            _end_tasks(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            _end_tasks(loop)  # which close generators that were left a moment ago
            loop.close()

    def close(self) -> None:
        """As `Client.close`. Does nothing in a forked child."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if threading.current_thread() is self._thread:
                raise RuntimeError(_FROM_A_CALLBACK)
            loop, thread = self._loop, self._thread
            if loop is None or thread is None:
                return
            self._loop = self._thread = None
            self._ending = thread
            future = asyncio.run_coroutine_threadsafe(self._client.close(), loop)
        try:
            future.result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if os.getpid() != self._pid:
            work.close()
            self._check_process()
        # made before the work is handed over: an interrupt at any moment finds it
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            with self._lock:
                loop = self._loop
                if loop is None:
                    work.close()
                    raise ConnectionClosed(
                        'the client is not open: use "with SyncClient(…) as client:", or open()'
                    )
                if threading.current_thread() is self._thread:
                    work.close()
                    raise RuntimeError(_FROM_A_CALLBACK)
                try:
                    loop.call_soon_threadsafe(_begin, loop, work, done)
                except RuntimeError:  # a signal handler closed the client in this very moment
                    work.close()
                    raise ConnectionClosed("the client was closed") from None
            return done.result()
        except concurrent.futures.CancelledError:
            raise ConnectionClosed("the client was closed") from None
        except BaseException:
            done.cancel()
            raise

    def _leave(self, items: AsyncGenerator[Any, None]) -> None:
        """Nobody iterates over a generator any more."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and closed the generator
                loop.call_soon_threadsafe(_close_generator, loop, items)
        self._walked.discard(items)


def blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """A method of `SyncClient` from one of `Client`: same parameters, same result, but it waits."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._client, *args, **kwargs))

    return call


def iterating(
    method: Callable[Concatenate[Client, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[SyncClient, P], Iterator[T]]:
    """The same for a method that gives an asynchronous generator."""

    @functools.wraps(method)
    def iterate(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        yield from walk(self, method(self._client, *args, **kwargs))

    return iterate


def walk(client: Blocking[Any], items: AsyncGenerator[T, None]) -> Iterator[T]:
    """What an asynchronous generator gives, waiting for each. One that is left early is closed, and
    nobody waits for that: the garbage collector may end this generator anywhere, also in the loop's
    own thread, and while the client's lock is held."""
    client._walked.add(items)
    try:
        while (item := client._run(_next(items))) is not _END:
            yield item  # type: ignore[misc]
    finally:
        client._leave(items)


class BlockingSubscription:
    """What changed, as an iterator that waits: see `Client.subscribe` and `Subscription`."""

    def __init__(self, client: SyncClient, subscription: Subscription) -> None:
        self._client = client
        self._subscription = subscription

    def __repr__(self) -> str:
        return repr(self._subscription)

    def __enter__(self) -> Self:
        self._client._run(self._subscription.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """As `Subscription.close`."""
        with contextlib.suppress(ConnectionClosed):  # then it has ended already
            self._client._run(_close(self._subscription))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event = self.next_event()
        if event is None:
            raise StopIteration
        return event

    def next_event(self, timeout: float | None = None) -> Event | None:
        """As `Subscription.next_event`: None at the end; CallTimeout after so many seconds."""
        return self._client._run(self._subscription.next_event(timeout))

    @property
    def wanted(self) -> SubscriptionFilter:
        """What was asked for."""
        return self._subscription.wanted

    @property
    def honoured(self) -> SubscriptionFilter | None:
        """What of it the server tells."""
        return self._subscription.honoured


def wrapping(
    method: Callable[Concatenate[Client, P], T], wrap: Callable[[SyncClient, T], R]
) -> Callable[Concatenate[SyncClient, P], R]:
    """A method of `SyncClient` whose result is the blocking form of that of `Client`."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self, method(self._client, *args, **kwargs))

    return call


def opening(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
    wrap: Callable[[SyncClient, T], R],
) -> Callable[Concatenate[SyncClient, P], R]:
    """The same for a coroutine method: it waits for the result, and wraps it."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self, self._run(method(self._client, *args, **kwargs)))

    return call


class Mirrored(Generic[T]):
    """A property of `SyncClient` that is one of `Client`."""

    def __init__(self, read: Callable[[Client], T]) -> None:
        self._read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self.__doc__ = f"As `Client.{name}`."

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...

    @overload
    def __get__(self, client: SyncClient, owner: type) -> T: ...

    def __get__(self, client: SyncClient | None, owner: type) -> Self | T:
        return self if client is None else self._read(client._client)

    def __set__(self, client: SyncClient, value: Never) -> Never:
        raise AttributeError("a property of the client cannot be set")


def _like(
    template: Callable[Concatenate[Client, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[SyncClient, P], None]]:
    """Give a method the parameters of one of `Client`."""
    return functools.wraps(template)


def _blocking_task(client: SyncClient, task: ToolTask) -> BlockingTask:
    from wirespeed.client.sync_tasks import BlockingTask

    return BlockingTask(client, task)


class SyncClient(Blocking[Client]):
    """A `Client` on a loop in a thread of its own; the arguments are the same.

    Its methods are those of `Client` and block. They may be called from several threads at once
    (the calls are multiplexed on the one link), and an interrupt (Ctrl-C) in one cancels that call.
    Callbacks run in the loop's thread.
    """

    @_like(Client.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(Client(*args, **options))

    restart = blocking(Client.restart)
    call_tool = blocking(Client.call_tool)
    resume = blocking(Client.resume)
    request = blocking(Client.request)
    ping = blocking(Client.ping)
    discover = blocking(Client.discover)
    set_log_level = blocking(Client.set_log_level)

    list_tasks = blocking(Client.list_tasks)

    list_tools = blocking(Client.list_tools)
    iter_tools = iterating(Client.iter_tools)
    list_tools_page = blocking(Client.list_tools_page)
    list_resources = blocking(Client.list_resources)
    iter_resources = iterating(Client.iter_resources)
    list_resources_page = blocking(Client.list_resources_page)
    list_resource_templates = blocking(Client.list_resource_templates)
    iter_resource_templates = iterating(Client.iter_resource_templates)
    list_resource_templates_page = blocking(Client.list_resource_templates_page)
    list_prompts = blocking(Client.list_prompts)
    iter_prompts = iterating(Client.iter_prompts)
    list_prompts_page = blocking(Client.list_prompts_page)

    read_resource = blocking(Client.read_resource)
    read_template = blocking(Client.read_template)
    subscribe_resource = blocking(Client.subscribe_resource)
    unsubscribe_resource = blocking(Client.unsubscribe_resource)
    get_prompt = blocking(Client.get_prompt)
    complete = blocking(Client.complete)

    add_root = blocking(Client.add_root)
    remove_root = blocking(Client.remove_root)
    roots_changed = blocking(Client.roots_changed)

    start_tool = opening(Client.start_tool, _blocking_task)
    get_task = opening(Client.get_task, _blocking_task)
    subscribe = wrapping(Client.subscribe, BlockingSubscription)

    def clear_cache(self) -> None:
        """As `Client.clear_cache`."""
        self._client.clear_cache()

    timeout = Mirrored(lambda client: client.timeout)
    protocol_version = Mirrored(lambda client: client.protocol_version)
    server_info = Mirrored(lambda client: client.server_info)
    server_capabilities = Mirrored(lambda client: client.server_capabilities)
    instructions = Mirrored(lambda client: client.instructions)
    counters = Mirrored(lambda client: client.counters)


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    while pending := asyncio.all_tasks(loop):
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))


def _begin(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    done: concurrent.futures.Future[T],
) -> None:
    """On the loop's thread: do the work, for whoever waits in another one until it is done."""
    if done.cancelled():
        work.close()
        return
    task = loop.create_task(work)

    def given_up(done: concurrent.futures.Future[T]) -> None:
        if done.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the task ended
                loop.call_soon_threadsafe(task.cancel)

    def ended(task: asyncio.Task[T]) -> None:
        exc = None if task.cancelled() else task.exception()
        if task.cancelled():
            done.cancel()
        elif not done.set_running_or_notify_cancel():
            return  # given up in this very moment
        elif exc is not None:
            done.set_exception(exc)
        else:
            done.set_result(task.result())

    done.add_done_callback(given_up)
    task.add_done_callback(ended)


_END: Final = object()


def _close_generator(loop: asyncio.AbstractEventLoop, items: AsyncGenerator[Any, None]) -> None:
    async def close() -> None:
        # RuntimeError: an interrupted step of it is being cancelled, which ends it, too
        with contextlib.suppress(RuntimeError):
            await items.aclose()

    loop.create_task(close())


async def _next(items: AsyncGenerator[T, None]) -> T | object:
    return await anext(items, _END)


async def _close(subscription: Subscription) -> None:
    subscription.close()
