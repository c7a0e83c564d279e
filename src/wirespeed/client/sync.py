"""The client for code without an event loop: the same methods, blocking."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from wirespeed.client.client import Client, OnProgress
from wirespeed.errors import ConnectionClosed
from wirespeed.transport.loop import loop_factory

if TYPE_CHECKING:
    from types import TracebackType

    import msgspec

    from wirespeed.client.results import CallToolResult, ListToolsResult, ToolInfo

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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ending: threading.Thread | None = None  # of the loop before
        # Held while work is handed to the loop: what was handed over before `close` took the loop
        # away is ended by it, and nothing is handed over after.
        self._lock = threading.Lock()

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

    def open(self) -> None:
        """As `Client.open`."""
        if self._ending is not None:
            self._ending.join()
        with self._lock:
            if self._loop is None:
                self._loop = loop_factory()()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._loop,), name="wirespeed-client", daemon=True
                )
                self._thread.start()
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
            pending = asyncio.all_tasks(loop)
            for task in pending:
                task.cancel()
            if pending:
                loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def close(self) -> None:
        """As `Client.close`."""
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
        # made before the work is handed over: an interrupt at any moment finds it
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            with self._lock:
                loop = self._loop
                if loop is None:
                    work.close()
                    raise ConnectionClosed("the client is not open")
                if threading.current_thread() is self._thread:
                    work.close()
                    raise RuntimeError(_FROM_A_CALLBACK)
                loop.call_soon_threadsafe(_begin, loop, work, done)
            return done.result()
        except concurrent.futures.CancelledError:
            raise ConnectionClosed("the client was closed") from None
        except BaseException:
            done.cancel()
            raise


class SyncClient(Blocking[Client]):
    """A `Client` on a loop in a thread of its own; the arguments are the same.

    Its methods block, may be called from several threads at once (the calls are multiplexed on the
    one link), and an interrupt (Ctrl-C) in one cancels that call. Callbacks run in the loop's
    thread.
    """

    def __init__(self, target: Any, **options: Any) -> None:
        super().__init__(Client(target, **options))

    def restart(self) -> None:
        """As `Client.restart`."""
        self._run(self._client.restart())

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | msgspec.Struct | bytes | None = None,
        *,
        timeout: float | None = -1.0,
        on_progress: OnProgress | None = None,
    ) -> CallToolResult:
        """As `Client.call_tool`."""
        return self._run(
            self._client.call_tool(name, arguments, timeout=timeout, on_progress=on_progress)
        )

    def list_tools(self, *, timeout: float | None = -1.0) -> list[ToolInfo]:
        """As `Client.list_tools`."""
        return self._run(self._client.list_tools(timeout=timeout))

    def iter_tools(self, *, timeout: float | None = -1.0) -> Iterator[ToolInfo]:
        """As `Client.iter_tools`."""
        items = self._client.iter_tools(timeout=timeout)
        try:
            while (tool := self._run(_next(items))) is not None:
                yield tool
        finally:
            with contextlib.suppress(ConnectionClosed):  # then the loop's end has closed it
                self._run(items.aclose())

    def list_tools_page(
        self, cursor: str | None = None, *, timeout: float | None = -1.0
    ) -> ListToolsResult:
        """As `Client.list_tools_page`."""
        return self._run(self._client.list_tools_page(cursor, timeout=timeout))

    def request(self, method: str, params: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """As `Client.request`."""
        return self._run(self._client.request(method, params, **options))

    def ping(self, *, timeout: float | None = -1.0) -> None:
        """As `Client.ping`."""
        self._run(self._client.ping(timeout=timeout))

    def set_log_level(self, level: str) -> None:
        """As `Client.set_log_level`."""
        self._run(self._client.set_log_level(level))

    @property
    def protocol_version(self) -> str:
        """As `Client.protocol_version`."""
        return self._client.protocol_version

    @property
    def server_info(self) -> dict[str, Any] | None:
        """As `Client.server_info`."""
        return self._client.server_info

    @property
    def server_capabilities(self) -> dict[str, Any]:
        """As `Client.server_capabilities`."""
        return self._client.server_capabilities

    @property
    def instructions(self) -> str | None:
        """As `Client.instructions`."""
        return self._client.instructions

    @property
    def counters(self) -> dict[str, int]:
        """As `Client.counters`."""
        return self._client.counters


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


async def _next(items: AsyncGenerator[ToolInfo, None]) -> ToolInfo | None:
    return await anext(items, None)
