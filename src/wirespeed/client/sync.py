"""The client for code without an event loop: the same methods, blocking."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Never,
    ParamSpec,
    Self,
    TypeVar,
    cast,
    overload,
)

from wirespeed._exports import set_public_home
from wirespeed.client.client import Client
from wirespeed.client.loop_thread import Blocking, like, walk
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout
from wirespeed.errors import ConnectionClosed

if TYPE_CHECKING:
    from types import TracebackType

    from wirespeed.client.subscriptions.subscription import Event, Subscription, SubscriptionFilter
    from wirespeed.client.tasks.messages import TaskState
    from wirespeed.client.tasks.task import ToolTask
    from wirespeed.protocol.results import CallToolResult

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def own(client: Client, method: Callable[Concatenate[Client, P], T]) -> Callable[P, T]:
    """The method of a client, which a subclass may have replaced."""
    found: Callable[P, T] = getattr(client, method.__name__)
    return found


def blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """Return the blocking method of `SyncClient` for a method of `Client`, with its parameters."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(own(self._client, method)(*args, **kwargs))

    return call


def iterating(
    method: Callable[Concatenate[Client, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[SyncClient, P], Iterator[T]]:
    """Return the blocking method for a method that returns an asynchronous generator."""

    @functools.wraps(method)
    def iterate(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        yield from walk(self, own(self._client, method)(*args, **kwargs))

    return iterate


class BlockingSubscription:
    """Changes, as a blocking iterator: see `Client.subscribe` and `Subscription`."""

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
        with contextlib.suppress(ConnectionClosed):  # then the subscription has ended already
            self._client._run(_close(self._subscription))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event = self.next_event()
        if event is None:
            raise StopIteration
        return event

    def next_event(self, timeout: float | None = None) -> Event | None:
        """Return the next event; None at the end. CallTimeout: no event arrived within the given
        seconds. See `Subscription.next_event`."""
        return self._client._run(self._subscription.next_event(timeout))

    @property
    def wanted(self) -> SubscriptionFilter:
        """The filter of the subscription."""
        return self._subscription.wanted

    @property
    def honoured(self) -> SubscriptionFilter | None:
        """The part of the filter that the server reports."""
        return self._subscription.honoured


class BlockingTask:
    """A call of a tool as a task: a `ToolTask` with blocking methods. ``for`` iterates over its
    states."""

    def __init__(self, client: SyncClient, task: ToolTask) -> None:
        self._client = client
        self._task = task

    def __repr__(self) -> str:
        return f"<BlockingTask {self.id}: {self.state.status}>"

    @property
    def id(self) -> str | None:
        """As `ToolTask.id`."""
        return self._task.id

    @property
    def tool(self) -> str | None:
        """As ``ToolTask.tool``."""
        return self._task.tool

    @property
    def state(self) -> TaskState:
        """As ``ToolTask.state``."""
        return self._task.state

    def status(self, *, timeout: Timeout = CLIENT_DEFAULT) -> TaskState:
        """As `ToolTask.status`."""
        return self._client._run(self._task.status(timeout=timeout))

    def result(self, *, timeout: Timeout = None) -> CallToolResult:
        """As `ToolTask.result`."""
        return self._client._run(self._task.result(timeout=timeout))

    def cancel(self, *, timeout: Timeout = CLIENT_DEFAULT) -> TaskState:
        """As `ToolTask.cancel`."""
        return self._client._run(self._task.cancel(timeout=timeout))

    def answer(self, answers: Mapping[str, Any], *, timeout: Timeout = CLIENT_DEFAULT) -> None:
        """As `ToolTask.answer`."""
        self._client._run(self._task.answer(answers, timeout=timeout))

    def __iter__(self) -> Iterator[TaskState]:
        return walk(self._client, cast("AsyncGenerator[TaskState, None]", aiter(self._task)))


def wrapping(
    method: Callable[Concatenate[Client, P], T], wrap: Callable[[SyncClient, T], R]
) -> Callable[Concatenate[SyncClient, P], R]:
    """Return a method of `SyncClient` that wraps the result of the method of `Client`."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self, own(self._client, method)(*args, **kwargs))

    return call


def opening(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
    wrap: Callable[[SyncClient, T], R],
) -> Callable[Concatenate[SyncClient, P], R]:
    """Return a method of `SyncClient` that waits for the result of a coroutine, and wraps it."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self, self._run(own(self._client, method)(*args, **kwargs)))

    return call


class _ClientProperty(Generic[T]):
    """A property of `SyncClient` that reads the property of `Client`."""

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


class SyncClient(Blocking[Client]):
    """A `Client` whose event loop runs in a thread of its own. The arguments are those of `Client`.

    Its methods are those of `Client`, and block. Several threads may call them at once: the calls
    share one link. An interrupt (Ctrl-C) cancels the call of its thread. Callbacks run in the
    loop's thread.
    """

    @like(Client.__init__)
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

    list_skills = blocking(Client.list_skills)
    get_skill = blocking(Client.get_skill)
    read_skill = blocking(Client.read_skill)
    save_skill = blocking(Client.save_skill)
    list_skill_folder = blocking(Client.list_skill_folder)

    read_resource = blocking(Client.read_resource)
    read_template = blocking(Client.read_template)
    subscribe_resource = blocking(Client.subscribe_resource)
    unsubscribe_resource = blocking(Client.unsubscribe_resource)
    get_prompt = blocking(Client.get_prompt)
    complete = blocking(Client.complete)

    add_root = blocking(Client.add_root)
    remove_root = blocking(Client.remove_root)
    roots_changed = blocking(Client.roots_changed)

    start_tool = opening(Client.start_tool, BlockingTask)
    get_task = opening(Client.get_task, BlockingTask)
    subscribe = wrapping(Client.subscribe, BlockingSubscription)

    def clear_cache(self) -> None:
        """As `Client.clear_cache`."""
        self._client.clear_cache()

    timeout = _ClientProperty(lambda client: client.timeout)
    protocol_version = _ClientProperty(lambda client: client.protocol_version)
    server_info = _ClientProperty(lambda client: client.server_info)
    server_capabilities = _ClientProperty(lambda client: client.server_capabilities)
    instructions = _ClientProperty(lambda client: client.instructions)
    counters = _ClientProperty(lambda client: client.counters)


async def _close(subscription: Subscription) -> None:
    subscription.close()


set_public_home(globals())
