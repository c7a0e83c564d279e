"""Several processes that serve at one port (SO_REUSEPORT): started, watched, replaced, ended.

The workers are forked before the event loop starts, so each worker has the program's state without
imports or pickling. The parent itself does not serve. It holds the port, so that the port is not
lost between two workers, and passes on signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import msgspec

from wirespeed.errors import TransportError
from wirespeed.transport.net import bind
from wirespeed.transport.net.handover import Mailboxes
from wirespeed.transport.net.listener import serve_at, urls_of
from wirespeed.transport.signals import Together, until_one_fails

if TYPE_CHECKING:
    from wirespeed.transport.address import Address
    from wirespeed.transport.options import ListenOptions, OnListening
    from wirespeed.transport.service import Service
    from wirespeed.transport.signals import Drainable

logger = logging.getLogger("wirespeed.server")

FIRST_PAUSE = 0.1  # seconds before a worker that died is replaced; doubled each time
LONGEST_PAUSE = 10.0
HEALTHY = 10.0  # seconds of life after which the pause is short again
READY = b"R"  # a worker's word
AT_ONCE = b"A"  # its parent's

_ENDING = (signal.SIGTERM, signal.SIGINT)


# Address, services, options, on_listening
Place: TypeAlias = "tuple[Address, Mapping[str, Service], ListenOptions, OnListening | None]"


def run_workers(n: int, places: Sequence[Place]) -> None:
    """Serve in ``n`` processes until SIGTERM or SIGINT, each at all places. Call it in the main
    thread.

    ``on_listening`` of each place is called in this process, as soon as all of them listen.

    Raises:
        ValueError: An address cannot be shared.
        TransportError: The server cannot listen at an address, or the first workers end before
            they listen.
    """
    if any(address.scheme == "unix" for address, *_ in places):
        raise ValueError("several workers need a port: ws://, wss://, http://, https:// or tcp://")
    if not hasattr(os, "fork") or not hasattr(socket, "SO_REUSEPORT"):
        raise ValueError("several workers need an operating system with fork and SO_REUSEPORT")
    with contextlib.ExitStack() as stack:
        doors = [Door(n, place, stack) for place in places]

        def work(parent: Parent) -> None:
            from wirespeed.transport.loop import run

            run(_serve(doors, parent))

        def announce() -> None:
            for door in doors:
                door.announce()

        for service in {id(one): one for door in doors for one in door.services.values()}.values():
            if hasattr(service, "before_fork"):
                service.before_fork(n)
        Crew(n, work).run(announce)


class Door:
    """One port of the workers, held by their parent.

    Args:
        n: The number of workers.
        place: What is served there.
        stack: Releases it.
    """

    def __init__(self, n: int, place: Place, stack: contextlib.ExitStack) -> None:
        address, self.services, options, self._on_listening = place
        self.options = msgspec.structs.replace(options, reuse_port=True)
        self.found = bind.resolve(address)
        self.reserved = stack.enter_context(
            bind.listen(address, self.found, self.options, reserve=True)
        )
        self.address = self.reserved.address
        self.mailboxes: Mailboxes | None = None
        if (
            address.is_http
            and not options.http.stateless
            and any(getattr(service, "has_sessions", False) for service in self.services.values())
        ):
            self.mailboxes = Mailboxes(n)
            stack.callback(self.mailboxes.close)

    def announce(self) -> None:
        """All workers listen."""
        if self._on_listening is not None:
            self._on_listening(urls_of(self.address, self.services))


async def _serve(doors: Sequence[Door], parent: Parent) -> None:
    """Serve at all ports in a worker. It is ready when it listens at all of them."""
    together = Together()
    loop = asyncio.get_running_loop()
    listening: set[Door] = set()

    def listens(door: Door) -> None:
        listening.add(door)
        if len(listening) == len(doors):
            parent.say_ready(())

    tasks = []
    for door in doors:
        door.reserved.close()
        for service in door.services.values():
            if hasattr(service, "after_fork"):
                service.after_fork(parent.slot)
        serving = serve_at(
            door.address,
            door.found,
            door.services,
            door.options,
            lambda urls, door=door: listens(door),  # type: ignore[misc]
            obey=together.obeyed,
            mailbox=None if door.mailboxes is None else door.mailboxes.of(parent.slot),
        )
        tasks.append(loop.create_task(serving))
    with parent.obeyed(loop, together):
        await until_one_fails(tasks)


class Worker:
    """One worker process, in its parent."""

    __slots__ = ("began", "pid", "pipe", "ready", "slot")

    def __init__(self, slot: int, pid: int, pipe: socket.socket) -> None:
        self.slot = slot
        self.pid = pid
        self.pipe = pipe
        self.ready = False
        self.began = time.monotonic()


class Crew:
    """The workers of a parent.

    Args:
        n: The number of workers.
        work: The function of each worker. Its argument is the parent, which it notifies when it
            listens.
    """

    def __init__(self, n: int, work: Callable[[Parent], None]) -> None:
        self._n = n
        self._work = work
        self._workers: dict[int, Worker] = {}  # by pid
        self._pauses = [FIRST_PAUSE] * n
        self._due: dict[int, float] = {}  # slot -> the time of the next start
        self._n_signals = 0
        self._n_sent = 0
        self._announced = False
        self._failure: TransportError | None = None

    def run(self, announce: Callable[[], None]) -> None:
        """Run until all workers have ended."""
        wake, waker = socket.socketpair()
        with wake, waker, self._signals(waker):
            for slot in range(self._n):
                self._start(slot)
            try:
                while self._workers or (self._due and not self._stopping):
                    self._wait(wake)
                    self._reap()
                    self._send_signals()
                    self._start_due()
                    if not self._announced and self._all_ready:
                        self._announced = True
                        announce()
            except BaseException:
                self._kill()
                raise
        if self._failure is not None:
            raise self._failure

    @property
    def _stopping(self) -> bool:
        return self._n_signals > 0 or self._failure is not None

    @property
    def _all_ready(self) -> bool:
        return len(self._workers) == self._n and all(w.ready for w in self._workers.values())

    @contextlib.contextmanager
    def _signals(self, waker: socket.socket) -> Iterator[None]:
        """Let signals wake the parent. The end restores the earlier handlers."""
        waker.setblocking(False)

        def end(number: int, frame: object) -> None:
            self._n_signals += 1

        before = {number: signal.signal(number, end) for number in _ENDING}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        fd = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(fd)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _wait(self, wake: socket.socket) -> None:
        timeout = None
        if self._due and not self._stopping:
            timeout = max(0.0, min(self._due.values()) - time.monotonic())
        if self._n_signals > self._n_sent:
            timeout = 0.0
        waiting = [w for w in self._workers.values() if not w.ready]
        readable, _, _ = select.select([wake, *(w.pipe for w in waiting)], [], [], timeout)
        if wake in readable:
            wake.recv(4096)
        for worker in waiting:
            if worker.pipe in readable and worker.pipe.recv(1) == READY:
                worker.ready = True

    def _start(self, slot: int) -> None:
        ours, theirs = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()  # else both processes would write it
        # a signal between fork and the child's own handlers must not be lost in ours
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            pid = os.fork()
            if pid == 0:
                self._be_worker(slot, ours, theirs, before)
        except OSError:
            ours.close()
            theirs.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._workers[pid] = Worker(slot, pid, ours)

    def _start_due(self) -> None:
        if self._stopping:
            return
        now = time.monotonic()
        for slot in [slot for slot, due in self._due.items() if due <= now]:
            del self._due[slot]
            try:
                self._start(slot)
            except OSError as exc:  # no free process or descriptor: the other workers go on
                logger.error("no worker can be started now: %s", exc)
                self._due[slot] = now + self._pauses[slot]

    def _reap(self) -> None:
        for worker in list(self._workers.values()):
            pid, wait_status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                del self._workers[pid]
                # the worker's last message
                if not worker.ready and select.select([worker.pipe], [], [], 0)[0]:
                    worker.ready = worker.pipe.recv(1) == READY
                worker.pipe.close()
                self._ended(worker, os.waitstatus_to_exitcode(wait_status))

    def _ended(self, worker: Worker, status: int) -> None:
        how = f"status {status}" if status >= 0 else signal.Signals(-status).name
        if self._stopping:
            if status not in (0, -signal.SIGTERM):
                logger.error("worker %d ended with %s", worker.pid, how)
            return
        if not worker.ready and not self._announced:
            self._failure = TransportError(f"a worker ended with {how} before it listened")
            return
        pause = self._pauses[worker.slot]
        if time.monotonic() - worker.began >= HEALTHY:
            pause = FIRST_PAUSE
        logger.error("worker %d ended with %s; another follows in %g s", worker.pid, how, pause)
        self._pauses[worker.slot] = min(2 * pause, LONGEST_PAUSE)
        self._due[worker.slot] = time.monotonic() + pause

    def _send_signals(self) -> None:
        wanted = self._n_signals + (self._failure is not None)
        for _ in range(wanted - self._n_sent):
            self._n_sent += 1
            for worker in self._workers.values():  # not reaped yet, so the pid is still its own
                if self._n_sent == 1:
                    os.kill(worker.pid, signal.SIGTERM)
                elif self._n_sent == 2:
                    # not a second SIGTERM: the first may have been sent to our whole group
                    with contextlib.suppress(OSError):
                        worker.pipe.send(AT_ONCE)
                else:
                    os.kill(worker.pid, signal.SIGKILL)

    def _kill(self) -> None:
        for worker in self._workers.values():
            os.kill(worker.pid, signal.SIGKILL)
        for worker in self._workers.values():
            os.waitpid(worker.pid, 0)
            worker.pipe.close()
        self._workers.clear()

    # -- in the worker -----------------------------------------------------------------------------

    def _be_worker(
        self, slot: int, ours: socket.socket, pipe: socket.socket, mask: Sequence[Any] | set[Any]
    ) -> NoReturn:
        status = 1
        try:
            ours.close()
            for worker in self._workers.values():
                worker.pipe.close()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # a terminal signals all processes; the parent decides
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._work(Parent(slot, pipe))
            status = 0
        except SystemExit as exc:
            status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        except TransportError as exc:
            logger.error("%s", exc)
        except BaseException:
            logger.exception("a worker failed")
        finally:
            # without unwinding the parent's stack, whose cleanup must run once
            with contextlib.suppress(BaseException):
                logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(BaseException):
                    stream.flush()
            os._exit(status)


class Parent:
    """The parent, in its worker.

    Attributes:
        slot: The number of the worker. One that replaces another has its number.
    """

    def __init__(self, slot: int, pipe: socket.socket) -> None:
        self.slot = slot
        self._pipe = pipe

    def say_ready(self, urls: tuple[str, ...]) -> None:
        """Tell the parent that this worker listens."""
        self._pipe.send(READY)

    @contextlib.contextmanager
    def obeyed(self, loop: asyncio.AbstractEventLoop, served: Drainable) -> Iterator[None]:
        """End the worker on signals of the parent.

        Every SIGTERM, of any sender, means to finish the requests in flight: a service manager
        signals every process of a service. The death of the parent means the same. Only a message
        of the parent ends the worker at once.
        """
        pipe = self._pipe.fileno()

        def heard() -> None:
            word = b""
            with contextlib.suppress(ConnectionError):
                word = os.read(pipe, 64)
            if word:
                served.abort()
            else:
                loop.remove_reader(pipe)
                served.drain()

        loop.add_signal_handler(signal.SIGTERM, served.drain)
        loop.add_reader(pipe, heard)
        try:
            yield
        finally:
            loop.remove_reader(pipe)
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the worker is ending already
