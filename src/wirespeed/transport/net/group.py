"""The listeners of one process: they drain and end together, and others may join them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from wirespeed.transport.address import Address, is_name
from wirespeed.transport.net.activation import LINGER, HotRestart
from wirespeed.transport.net.listener import Listener, Obey, serve_at
from wirespeed.transport.net.sockets import resolve
from wirespeed.transport.options import ListenOptions, OnListening
from wirespeed.transport.service import DrainsLast, Service, has_capability
from wirespeed.transport.signals import Drainable, Together, signals_drain

if TYPE_CHECKING:
    from wirespeed.transport.net.activation import Passed
    from wirespeed.transport.net.workers import OtherWorkers


class ListenPlan(NamedTuple):
    """The checked arguments of a listener.

    Attributes:
        address: Where it listens.
        services: The services by path.
        options: Its options.
        on_listening: Called with the URLs as soon as clients can connect.
        others: The other workers at the port, where they share sessions.
    """

    address: Address
    services: Mapping[str, Service]
    options: ListenOptions
    on_listening: OnListening | None = None
    others: OtherWorkers | None = None


class ListenerObserver(Protocol):
    """An observer of the listeners of a process while they serve.

    Attributes:
        drain_delay: Seconds for which they go on when the process is told to end, and say so to
            who asks for their state.
    """

    @property
    def drain_delay(self) -> float:
        """See above."""

    def begin(self, group: ListenerGroup) -> None:
        """Called before the first of them starts."""

    def attend(
        self, group: ListenerGroup, number: int, listener: Listener
    ) -> AbstractContextManager[None]:
        """Enter while a listener serves. ``number``: which of the plans, or that of
        `ListenerGroup.add`."""


class ListenerGroup:
    """Several listeners, which drain and end together.

    Args:
        observer: Knows them while they serve.
        may_grow: Whether listeners may be added: no other worker shares the ports.
        hot_restart: Starts another process in place of this one at SIGUSR2; None: none does.
    """

    def __init__(
        self,
        observer: ListenerObserver | None = None,
        *,
        may_grow: bool = True,
        hot_restart: HotRestart | None = None,
    ) -> None:
        self.observer = observer
        self.may_grow = may_grow
        self._hot_restart = hot_restart
        self._succeeding: asyncio.Task[None] | None = None
        self._listeners: list[Listener] = []
        self.together = Together(lambda: 0.0 if observer is None else observer.drain_delay)
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting: set[int] = set()
        self._is_settled = asyncio.Event()

    async def run(self, plans: Sequence[ListenPlan], *, obey: Obey = signals_drain) -> None:
        """Serve until all have ended, or one of the plans has failed. ``obey``: the source of the
        signals to end."""
        loop = asyncio.get_running_loop()
        if self.observer is not None:
            self.observer.begin(self)
        self._starting.update(range(len(plans)))
        with obey(loop, self.together), self._succeeded(loop):
            first = [self.add(plan, number) for number, plan in enumerate(plans)]
            try:
                while self._tasks:
                    done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                    self._tasks -= done
                    if any(_failed(task) for task in done & {*first}):
                        break
            finally:
                self._is_settled.set()
                left = {*self._tasks}
                for task in left:
                    task.cancel()
                if left:
                    await asyncio.wait(left)
        for task in first:
            if not task.cancelled():
                task.result()

    @contextlib.contextmanager
    def _succeeded(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Meanwhile SIGUSR2 has another process take the place of this one."""
        if self._hot_restart is None:
            yield
            return

        def begin() -> None:
            if self._succeeding is None and not self.together.draining:
                self._succeeding = loop.create_task(self._hand_over())

        loop.add_signal_handler(signal.SIGUSR2, begin)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGUSR2)
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # the process is ending already
            if self._succeeding is not None:
                self._succeeding.cancel()

    async def _hand_over(self) -> None:
        """Let another process listen, then end."""
        assert self._hot_restart is not None
        successor = await self._hot_restart.start(self.sockets)
        if successor is None:
            self._succeeding = None
            return
        self.stop_accepting()
        successor.take_over()
        await self.leave()

    @property
    def sockets(self) -> list[Passed]:
        """The listening sockets, with their names."""
        return [one for listener in self._listeners for one in listener.listening.passable]

    async def settled(self) -> None:
        """Wait until all of the plans are listened at, or the group ends."""
        await self._is_settled.wait()

    def stop_accepting(self) -> None:
        """Another process listens with the sockets: clients that connect are its own."""
        for listener in self._listeners:
            listener.leave()

    async def leave(self) -> None:
        """End, because another process listens with the sockets. Clients that were accepted before
        have a moment to ask what they have come for."""
        self.stop_accepting()
        await asyncio.sleep(LINGER)
        self.together.drain_now()

    def add(self, plan: ListenPlan, number: int) -> asyncio.Task[None]:
        """Serve at one more address. The task ends with the listener."""
        task = asyncio.get_running_loop().create_task(self._serve(plan, number))
        self._tasks.add(task)
        return task

    async def _serve(self, plan: ListenPlan, number: int) -> None:
        if is_name(plan.address.host):
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(None, resolve, plan.address)
        else:
            found = resolve(plan.address)

        last = all(
            has_capability(one, DrainsLast) and one.drains_last for one in plan.services.values()
        )

        @contextlib.contextmanager
        def obeyed(loop: asyncio.AbstractEventLoop, served: Drainable) -> Iterator[None]:
            with contextlib.ExitStack() as stack:
                assert isinstance(served, Listener)
                self._listeners.append(served)
                stack.callback(self._listeners.remove, served)
                stack.enter_context(self.together.obeyed(loop, served, last=last))
                if self.observer is not None:
                    stack.enter_context(self.observer.attend(self, number, served))
                self._starting.discard(number)
                if not self._starting:
                    self._is_settled.set()
                yield

        await serve_at(
            plan.address,
            found,
            plan.services,
            plan.options,
            plan.on_listening,
            obey=obeyed,
            others=plan.others,
        )


def _failed(task: asyncio.Task[None]) -> bool:
    return task.cancelled() or task.exception() is not None
