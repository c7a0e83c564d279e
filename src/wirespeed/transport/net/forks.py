"""Several processes that serve at one port (SO_REUSEPORT): started, watched, replaced, ended.

The workers are forked before the event loop starts, so each worker has the program's state without
imports or pickling. The parent itself does not serve. It holds the port, so that the port is not
lost between two workers, and passes on signals.

Each worker has a listening socket of its own. When a successor starts, the parent asks for them,
because the connections that wait in the queue of a socket are lost when nobody has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
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
from wirespeed.transport.address import urls_of
from wirespeed.transport.backoff import Backoff
from wirespeed.transport.net import activation
from wirespeed.transport.net.group import ListenerGroup, ListenerObserver, ListenPlan
from wirespeed.transport.net.sockets import listen, resolve
from wirespeed.transport.net.workers import WorkerSockets
from wirespeed.transport.service import Forked, HasSessions, has_capability

if TYPE_CHECKING:
    from wirespeed.transport.net.activation import HotRestart, Successor
    from wirespeed.transport.options import OnListening
    from wirespeed.transport.signals import Drainable

logger = logging.getLogger("wirespeed.server")

BACKOFF = Backoff(0.1, 10.0)  # before a worker that died is replaced
HEALTHY = 10.0  # seconds of life after which the pause is short again
PATIENCE = 5.0  # seconds in which a worker answers its parent
_MAX_SOCKETS = 253  # in one message (SCM_MAX_FD)
READY = b"R"  # words of a worker: it listens;
HERE = b"H"  # its sockets are in this message;
DRAINING = b"D"  # it has none any more;
LEFT = b"G"  # it accepts no more clients
AT_ONCE = b"A"  # words of its parent: end;
SOCKETS = b"S"  # send your sockets;
LEAVE = b"L"  # another process has them

_ENDING = (signal.SIGTERM, signal.SIGINT)


def run_workers(
    n: int,
    plans: Sequence[ListenPlan],
    observer: ListenerObserver | None = None,
    hot_restart: HotRestart | None = None,
) -> None:
    """Serve in ``n`` processes until SIGTERM or SIGINT. Call it in the main thread.

    ``on_listening`` of the plans is called in this process, as soon as all of them listen.
    ``observer``: Knows the listeners in each worker. SIGHUP is passed on to the workers.
    ``hot_restart``: Starts a process in place of this one and its workers at SIGUSR2; None: none
    does.

    Raises:
        ValueError: An address cannot be shared.
        TransportError: The server cannot listen at an address, or the first workers end before
            they listen.
    """
    if any(plan.address.file for plan in plans):
        raise ValueError("several workers need a port: ws://, wss://, http://, https:// or tcp://")
    if not hasattr(os, "fork") or not hasattr(socket, "SO_REUSEPORT"):
        raise ValueError("several workers need an operating system with fork and SO_REUSEPORT")
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(_Place(n, plan)) for plan in plans]
        services = list({id(one): one for plan in plans for one in plan.services.values()}.values())

        def work(parent: WorkerSupervisor) -> None:
            from wirespeed.transport.loop import run

            for place in places:
                place.reserved.close()
            activation.keep_worker(parent.slot)
            left = len(places)

            def listens(urls: tuple[str, ...]) -> None:
                nonlocal left
                left -= 1
                if not left:
                    parent.say_ready()

            for service in services:
                if has_capability(service, Forked):
                    service.after_fork(parent.slot)
            group = ListenerGroup(observer, may_grow=False)
            shared = [place.of(parent.slot, listens) for place in places]
            run(group.run(shared, obey=functools.partial(parent.obeyed, group)))

        def announce() -> None:
            activation.keep_worker(None)
            for place in places:
                if place.plan.on_listening is not None:
                    place.plan.on_listening(urls_of(place.plan.address, place.plan.services))

        for service in services:
            if has_capability(service, Forked):
                service.before_fork(n)
        common = [
            one
            for place in places
            for one in place.reserved.passable
            if one.name == activation.MANAGER
        ]
        crew = WorkerPool(
            n, work, reloads=observer is not None, hot_restart=hot_restart, common=common
        )
        crew.run(announce)


class _Place:
    """An address of all workers: the port is reserved meanwhile."""

    def __init__(self, n: int, plan: ListenPlan) -> None:
        options = msgspec.structs.replace(plan.options, reuse_port=True)
        self.reserved = listen(plan.address, resolve(plan.address), options, reserve=True)
        self.plan = plan._replace(address=self.reserved.address, options=options)
        shares_sessions = (
            plan.address.is_http
            and not options.http.stateless
            and any(
                has_capability(one, HasSessions) and one.has_sessions
                for one in plan.services.values()
            )
        )
        self._sockets = WorkerSockets(n) if shares_sessions else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.reserved.close()
        if self._sockets is not None:
            self._sockets.close()

    def of(self, worker: int, on_listening: OnListening) -> ListenPlan:
        """The plan of a worker."""
        others = None if self._sockets is None else self._sockets.of(worker)
        return self.plan._replace(on_listening=on_listening, others=others)


class WorkerProcess:
    """One worker process, in its parent."""

    __slots__ = ("began", "pid", "pipe", "ready", "slot")

    def __init__(self, slot: int, pid: int, pipe: socket.socket) -> None:
        self.slot = slot
        self.pid = pid
        self.pipe = pipe
        self.ready = False
        self.began = time.monotonic()


class WorkerPool:
    """The workers of a parent.

    Args:
        n: The number of workers.
        work: The function of each worker. Its argument is the parent, which it notifies when it
            listens.
        reloads: Whether SIGHUP is for the workers; otherwise it ends the process.
        hot_restart: Starts a process in place of all of them at SIGUSR2; None: none does.
        common: The listening sockets that the workers share, for the successor.
    """

    def __init__(
        self,
        n: int,
        work: Callable[[WorkerSupervisor], None],
        *,
        reloads: bool = False,
        hot_restart: HotRestart | None = None,
        common: Sequence[activation.Passed] = (),
    ) -> None:
        self._hot_restart = hot_restart
        self._common = common
        self._successor: Successor | None = None
        self._wants_successor = False  # SIGUSR2 has come
        self._left = False  # the successor is ready
        self._n = n
        self._work = work
        self._reloads = reloads
        self._has_reloads = False  # SIGHUP has come
        self._workers: dict[int, WorkerProcess] = {}  # by pid
        self._deaths = [0] * n  # of each slot, in a row
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
                    self._succeed()
            except BaseException:
                self._kill()
                raise
            finally:
                if self._successor is not None:
                    self._successor.end()
        if self._failure is not None:
            raise self._failure

    @property
    def _stopping(self) -> bool:
        return self._n_signals > 0 or self._left or self._failure is not None

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

        def succeed(number: int, frame: object) -> None:
            self._wants_successor = self._successor is None

        before = {number: signal.signal(number, end) for number in _ENDING}
        if self._hot_restart is not None:
            before[signal.SIGUSR2] = signal.signal(signal.SIGUSR2, succeed)
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
        awaited: list[Any] = [wake, *(w.pipe for w in waiting)]
        if self._successor is not None:
            awaited.append(self._successor)
            left = max(0.0, self._successor.deadline - time.monotonic())
            timeout = left if timeout is None else min(timeout, left)
        readable, _, _ = select.select(awaited, [], [], timeout)
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
        self._workers[pid] = WorkerProcess(slot, pid, ours)

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
                self._due[slot] = now + BACKOFF.pause(self._deaths[slot])

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

    def _ended(self, worker: WorkerProcess, status: int) -> None:
        how = f"status {status}" if status >= 0 else signal.Signals(-status).name
        if self._stopping:
            if status not in (0, -signal.SIGTERM):
                logger.error("worker %d ended with %s", worker.pid, how)
            return
        if not worker.ready and not self._announced:
            self._failure = TransportError(f"a worker ended with {how} before it listened")
            return
        if time.monotonic() - worker.began >= HEALTHY:
            self._deaths[worker.slot] = 0
        pause = BACKOFF.pause(self._deaths[worker.slot])
        logger.error("worker %d ended with %s; another follows in %g s", worker.pid, how, pause)
        self._deaths[worker.slot] += 1
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

    # -- a successor -------------------------------------------------------------------------------

    def _succeed(self) -> None:
        """Start a successor if one is wanted, and end when it is ready."""
        if self._successor is not None:
            if self._stopping:
                self._successor.end()
            elif (ready := self._successor.judge()) is None:
                return
            elif ready:
                self._left = True
                self._let_leave()
                self._successor.take_over()
            self._successor = None
            activation.keep_worker(None)
        elif self._wants_successor and self._all_ready and not self._stopping:
            assert self._hot_restart is not None
            found = self._collect()
            if found is None:  # tried again when all of them serve
                return
            self._wants_successor = False
            # a worker that takes the place of one that dies meanwhile listens on its sockets
            activation.hold(found)
            self._successor = self._hot_restart.begin([*self._common, *found])
            if self._successor is None:
                activation.keep_worker(None)

    def _let_leave(self) -> None:
        """Let the workers accept no more clients, and wait until they do not."""
        self._tell(LEAVE)
        for worker in self._workers.values():
            worker.pipe.settimeout(PATIENCE)
            with contextlib.suppress(OSError):  # it hangs, or has died
                worker.pipe.recv(1)

    def _collect(self) -> list[activation.Passed] | None:
        """The sockets of all workers, with names. None: not all of them have any now."""
        found: list[activation.Passed] = []
        n = 0
        self._tell(SOCKETS)
        for worker in self._workers.values():
            worker.pipe.settimeout(PATIENCE)
            try:
                word, fds, _, _ = socket.recv_fds(worker.pipe, 1, _MAX_SOCKETS, activation.FLAGS)
            except TimeoutError:
                logger.error("worker %d hangs, so no other process is started", worker.pid)
                self._wants_successor = False
                continue
            except OSError:  # it has died
                continue
            n += word == HERE
            name = f"{activation.OWN}-{worker.slot}"
            found += [activation.Passed(socket.socket(fileno=fd), name) for fd in fds]
        if n == self._n:
            return found
        for one in found:
            one.socket.close()
        return None

    def _tell(self, word: bytes) -> None:
        for worker in self._workers.values():
            with contextlib.suppress(OSError):  # it has died
                worker.pipe.send(word)

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
            if self._hot_restart is not None:
                signal.signal(signal.SIGUSR2, signal.SIG_IGN)
            if self._reloads:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until its observer is there
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._work(WorkerSupervisor(slot, pipe))
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


class WorkerSupervisor:
    """The parent, in its worker.

    Attributes:
        slot: The number of the worker. One that replaces another has its number.
    """

    def __init__(self, slot: int, pipe: socket.socket) -> None:
        self.slot = slot
        self._pipe = pipe
        self._leaving: asyncio.Task[None] | None = None

    def say_ready(self) -> None:
        """Tell the parent that this worker listens."""
        self._pipe.send(READY)

    def _send_sockets(self, group: ListenerGroup) -> None:
        if group.together.draining:
            self._pipe.send(DRAINING)
            return
        own = [one.socket.fileno() for one in group.sockets if one.name == activation.OWN]
        socket.send_fds(self._pipe, [HERE], own)

    @contextlib.contextmanager
    def obeyed(
        self, group: ListenerGroup, loop: asyncio.AbstractEventLoop, served: Drainable
    ) -> Iterator[None]:
        """End the worker on signals of the parent, and send it the sockets of the group.

        Every SIGTERM, of any sender, means to finish the requests in flight: a service manager
        signals every process of a service. The death of the parent means the same. Only a message
        of the parent ends the worker at once.
        """
        pipe = self._pipe.fileno()

        def heard() -> None:
            words = b""
            with contextlib.suppress(ConnectionError):
                words = os.read(pipe, 64)
            if AT_ONCE in words:
                served.abort()
            if SOCKETS in words:
                self._send_sockets(group)
            if LEAVE in words:
                group.stop_accepting()
                self._pipe.send(LEFT)
                self._leaving = loop.create_task(group.leave())
            if not words:
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
