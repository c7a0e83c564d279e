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
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec

from wirespeed.errors import TransportError
from wirespeed.transport.net import bind
from wirespeed.transport.net.group import Attendant, Group, Plan
from wirespeed.transport.net.handover import Mailboxes
from wirespeed.transport.net.listener import urls_of

if TYPE_CHECKING:
    from wirespeed.transport.options import OnListening
    from wirespeed.transport.signals import Drainable

logger = logging.getLogger("wirespeed.server")

FIRST_PAUSE = 0.1  # seconds before a worker that died is replaced; doubled each time
LONGEST_PAUSE = 10.0
HEALTHY = 10.0  # seconds of life after which the pause is short again
READY = b"R"  # a worker's word
AT_ONCE = b"A"  # its parent's

_ENDING = (signal.SIGTERM, signal.SIGINT)


def run_workers(n: int, plans: Sequence[Plan], attendant: Attendant | None = None) -> None:
    """Serve in ``n`` processes until SIGTERM or SIGINT. Call it in the main thread.

    ``on_listening`` of the plans is called in this process, as soon as all of them listen.
    ``attendant``: Knows the listeners in each worker. SIGHUP is passed on to the workers.

    Raises:
        ValueError: An address cannot be shared.
        TransportError: The server cannot listen at an address, or the first workers end before
            they listen.
    """
    if any(plan.address.scheme == "unix" for plan in plans):
        raise ValueError("several workers need a port: ws://, wss://, http://, https:// or tcp://")
    if not hasattr(os, "fork") or not hasattr(socket, "SO_REUSEPORT"):
        raise ValueError("several workers need an operating system with fork and SO_REUSEPORT")
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(_Place(n, plan)) for plan in plans]
        services = list({id(one): one for plan in plans for one in plan.services.values()}.values())

        def work(parent: Parent) -> None:
            from wirespeed.transport.loop import run

            for place in places:
                place.reserved.close()
            left = len(places)

            def listens(urls: tuple[str, ...]) -> None:
                nonlocal left
                left -= 1
                if not left:
                    parent.say_ready()

            for service in services:
                if hasattr(service, "after_fork"):
                    service.after_fork(parent.slot)
            group = Group(attendant, may_grow=False)
            shared = [place.of(parent.slot, listens) for place in places]
            run(group.run(shared, obey=parent.obeyed))

        def announce() -> None:
            for place in places:
                if place.plan.on_listening is not None:
                    place.plan.on_listening(urls_of(place.plan.address, place.plan.services))

        for service in services:
            if hasattr(service, "before_fork"):
                service.before_fork(n)
        Crew(n, work, reloads=attendant is not None).run(announce)


class _Place:
    """An address of all workers: the port is reserved meanwhile."""

    def __init__(self, n: int, plan: Plan) -> None:
        options = msgspec.structs.replace(plan.options, reuse_port=True)
        self.reserved = bind.listen(plan.address, bind.resolve(plan.address), options, reserve=True)
        self.plan = plan._replace(address=self.reserved.address, options=options)
        shares_sessions = (
            plan.address.is_http
            and not options.http.stateless
            and any(getattr(service, "has_sessions", False) for service in plan.services.values())
        )
        self._mailboxes = Mailboxes(n) if shares_sessions else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.reserved.close()
        if self._mailboxes is not None:
            self._mailboxes.close()

    def of(self, worker: int, on_listening: OnListening) -> Plan:
        """The plan of a worker."""
        mailbox = None if self._mailboxes is None else self._mailboxes.of(worker)
        return self.plan._replace(on_listening=on_listening, mailbox=mailbox)


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
        reloads: Whether SIGHUP is for the workers; otherwise it ends the process.
    """

    def __init__(self, n: int, work: Callable[[Parent], None], *, reloads: bool = False) -> None:
        self._n = n
        self._work = work
        self._reloads = reloads
        self._has_reloads = False  # SIGHUP has come
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

        def reload(number: int, frame: object) -> None:
            self._has_reloads = True

        def refuse(number: int, frame: object) -> None:
            logger.error("SIGUSR2 is for one process: several workers are not replaced")

        before = {number: signal.signal(number, end) for number in _ENDING}
        before[signal.SIGUSR2] = signal.signal(signal.SIGUSR2, refuse)
        if self._reloads:
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, reload)
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
        if self._n_signals > self._n_sent or self._has_reloads:
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
        if self._has_reloads:
            self._has_reloads = False
            for worker in self._workers.values():
                os.kill(worker.pid, signal.SIGHUP)
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
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
            if self._reloads:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until its attendant is there
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

    def say_ready(self) -> None:
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
