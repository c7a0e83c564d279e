"""Calls over the connections of clients: as many as fit, or at times of their own.

A `Driver` is for one connection, and keeps a number of calls in flight there. With a `Pacer` it
waits for the time of each call: the latency of a call then runs from that time, also where the
server, or this process, was too slow to take it (an open loop). Either way each answer is checked,
and counted once.

Where a load has several kinds of users, each place in flight is a user who goes through the steps
of a script, one after another; then the next user comes. A pacer has the times at which users come.
"""

cimport cython
from libc.math cimport INFINITY, log
from libc.stdint cimport int64_t

import os
import random
from collections import deque

from wirespeed.bench.recorder cimport (
    CANCELLED, CONNECTION_LOSS, DUPLICATE, LATE, MISSING, OK, PROTOCOL_ERROR, REFUSED, UNEXPECTED,
    WRONG, Outcome, Recorder, now_c,
)
from wirespeed.bench.script cimport Scripts, Walk
from wirespeed.bench.work cimport Work
from wirespeed.client.connection.connection cimport Awaited
from wirespeed.peer.connection cimport AskingConnection

import msgspec

from wirespeed.errors import (
    ConnectionLost,
    HttpStatusError,
    InvalidResponse,
    RemoteError,
    TransportError,
)
from wirespeed.protocol import codes

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/timerfd.h>
    #include <stdint.h>
    static int bench_timer(void) {
        return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    }
    static int bench_timer_set(int fd, int64_t at) {
        struct itimerspec spec = {{0, 0}, {at / 1000000000, at % 1000000000}};
        return timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL);
    }
    #else
    #include <stdint.h>
    static int bench_timer(void) { return -1; }
    static int bench_timer_set(int fd, int64_t at) { (void) fd; (void) at; return -1; }
    #endif
    """
    int bench_timer() nogil
    int bench_timer_set(int fd, int64_t at) nogil

cdef enum:
    LATE_START = 1_000_000             # nanoseconds
    CALLS_A_TICK = 1024                # then the loop reads answers
    MAX_GIVEN_UP = 65536
    MAX_CANCELLED = 32768              # twice as many are known, of those that are not answered

cdef double AFTER_FAILURE = 0.05       # seconds

cdef object encode = msgspec.json.Encoder().encode


@cython.final
cdef class Budget:
    """The number of calls that may still begin, of all connections together.

    Args:
        calls: Their number; None for any, until `close`.

    Attributes:
        begun: The calls that have begun.
        over: Whether no more calls begin.
    """

    def __init__(self, calls=None):
        self.left = -1 if calls is None else calls
        self.over = self.left == 0

    cdef int64_t take_c(self) except -2:
        """The number of the next call; -1: there is none."""
        if self.over:
            return -1
        if self.left > 0:
            self.left -= 1
            self.over = self.left == 0
        self.begun += 1
        return self.begun - 1

    def close(self):
        """Let no more calls begin."""
        self.over = True


cdef Outcome outcome_of(object exc) except *:
    """The outcome of a call that failed without an answer."""
    if isinstance(exc, HttpStatusError):
        return REFUSED if exc.status in (429, 503) else PROTOCOL_ERROR
    if isinstance(exc, RemoteError):
        return REFUSED if exc.code == codes.OVERLOADED else PROTOCOL_ERROR
    return WRONG if isinstance(exc, InvalidResponse) else MISSING


cdef class BenchCall(Awaited):
    """A call of a load that waits for its answer."""


cdef inline bint full(Driver driver) noexcept:
    """Whether the peer does not read what was sent."""
    return driver.outbox is not None and driver.outbox.size >= driver.output_high


cdef inline bint has_room(Driver driver) noexcept:
    return driver.live < driver.in_flight and usable(driver) and not full(driver)


cdef inline int ask(
    Driver driver, Work work, Walk walk, int64_t number, int64_t intended, int64_t now
) except -1:
    """Send a request of the work of a load, or of a user's."""
    cdef BenchCall call = driver.spare.pop() if driver.spare else driver.new_call_c()
    cdef double limit = driver.timeout
    cdef bint sent = False
    call.cancels = work.cancel_after < limit
    if call.cancels:
        limit = work.cancel_after
    if walk is not None:
        call.walk = walk
    if work.arguments is not None and (walk is None or walk.cursor is None):
        call.body = work.arguments.render_c(number, &call.expected)
    else:
        call.expected.p = NULL
        call.body = None
        if walk is not None and walk.cursor is not None:
            call.body = encode({"cursor": walk.cursor})
    if call.work is not work:
        call.work = work
    call.driver = driver
    call.recorder = driver.recorder
    call.intended = intended
    call.sent = now
    call.progress = -INFINITY
    call.disordered = False
    driver.live += 1
    try:
        driver.write_c(call, now / 1e9 + limit)
        sent = True
    finally:
        if not sent:
            driver.live -= 1
    return 0


cdef class Driver:
    """The calls over one connection. Subclasses know the protocol.

    Args:
        connection: An open connection.
        work: What to call: a `Work` for each call, or the `Scripts` of users. None: the one user of
            `begin_visit`.
        recorder: Counts what the server says before the first phase; each phase has its own.
        in_flight: The most calls without an answer.
        timeout: Seconds after which a call counts as missing; an answer after that is late.
        think: Seconds between an answer and the call that takes its place.

    Attributes:
        live: The places in flight that are taken: by calls without an answer, and by users with a
            connection of their own.
        given_up: The ids of calls that took too long, and whose answer may still come.
        visit: Called with this driver, a `Walk`, the number of its first call and its time, for a
            user with a connection of their own. `left` is called at the end of the visit.
        idle: A future of the phase: no call is left to begin or to be answered, or the connection
            is lost.
    """

    def __init__(
        self, AskingConnection connection not None, work, Recorder recorder not None,
        Py_ssize_t in_flight, double timeout, double think=0,
    ):
        self.connection = connection
        self.loop = connection.loop
        if isinstance(work, Scripts):
            self.scripts = work
        else:
            self.work = work
        self.linked = True
        self.in_flight = in_flight
        self.timeout = timeout
        self.think = think
        self.ready = deque()
        self.given_up = {}
        self.cancelled = set()
        self.cancelled_before = set()
        self.spare = []
        self.recorder = recorder
        self.budget = Budget(0)

    # -- for subclasses ------------------------------------------------------------------------

    @property
    def traffic(self):
        """Bytes of messages that were sent and received over the connection."""
        raise NotImplementedError

    @property
    def expects(self):
        """Whether answers to calls that took too long may still come."""
        return bool(self.given_up) and usable(self) and self.comes_late_c()

    def close(self):
        """Count nothing more of the connection."""
        self.pacer = None

    cdef bint comes_late_c(self) except -1:
        """Whether an answer can come after its call is over."""
        return True

    cdef BenchCall new_call_c(self):
        return BenchCall.__new__(BenchCall)

    cdef int write_c(self, BenchCall call, double deadline) except -1:
        raise NotImplementedError

    # -- a phase -------------------------------------------------------------------------------

    def begin(self, Recorder recorder not None, Budget budget not None, Pacer pacer=None):
        """Begin a phase: the calls of a budget, at the times of a pacer or as many as fit."""
        self.recorder = recorder
        self.budget = budget
        self.pacer = pacer
        self.ready.clear()
        self.idle = self.loop.create_future()
        self.go_on_c(now_c())

    def begin_visit(
        self, Recorder recorder not None, Budget budget not None, Walk walk not None,
        int64_t number, int64_t intended,
    ):
        """Begin the steps of one user, whose first call has a number and a time."""
        self.recorder = recorder
        self.budget = budget
        self.idle = self.loop.create_future()
        ask(self, walk.next_c(), walk, number, intended, now_c())
        if self.connection.link is not None:
            self.connection.link.wrote_c()

    def left(self, Walk walk not None, exc=None):
        """A user with a connection of their own has left; because of an exception, before their
        first call."""
        if exc is not None:
            self.count_c(self.recorder, walk, outcome_of(exc))
            self.rest_c()
        self.live -= 1
        self.go_on_c(now_c())

    def settle(self):
        """The budget may be closed: see whether nothing is left to do."""
        self.settle_c()

    cdef bint send_c(self, int64_t intended, int64_t now) except -1:
        """Send the next call, or the first one of the next user. It leaves at the end of the
        delivery or with `Link.flush_now`. Whether there was one."""
        cdef int64_t number
        cdef Walk walk
        if self.work is None and self.scripts is None:
            return False
        number = self.budget.take_c()
        if number < 0:
            return False
        if self.work is not None:
            ask(self, self.work, None, number, intended, now)
            return True
        walk = self.scripts.arrive_c()
        if walk.script.own_connection:
            self.live += 1
            self.visit(self, walk, number, intended)
        else:
            ask(self, walk.next_c(), walk, number, intended, now)
        return True

    cdef bint step_c(self, int64_t now) except -1:
        """Send the next call of a user who is ready. Whether there was one."""
        cdef int64_t number = self.budget.take_c()
        cdef Walk walk
        if number < 0:
            self.ready.clear()
            return False
        walk = self.ready.popleft()
        ask(self, walk.next_c(), walk, number, now, now)
        return True

    cdef int fill_c(self, int64_t now) except -1:
        """Send as many calls as fit."""
        while self.live + self.pauses < self.in_flight and has_room(self):
            if self.work is None and self.ready:
                if not self.step_c(now):
                    break
            elif not self.send_c(now, now):
                break
        if self.connection.link is not None:
            self.connection.link.wrote_c()
        if full(self):
            self.await_room_c()
        return 0

    cdef int await_room_c(self) except -1:
        """Go on when the server, which is `full`, reads again: no answer may be left to do it."""
        if not self.awaits_room and not self.budget.over and usable(self):
            self.awaits_room = True
            self.connection.wait_for_room().add_done_callback(self._has_room)
        return 0

    def _has_room(self, _):
        self.awaits_room = False
        self.go_on_c(now_c())

    cdef int rest_c(self) except -1:
        """Let a place rest: a server that is gone is not asked as fast as it fails."""
        self.pauses += 1
        self.loop.call_later(AFTER_FAILURE, self._paused)
        return 0

    def _paused(self):
        self.pauses -= 1
        self.go_on_c(now_c())

    cdef int go_on_c(self, int64_t now) except -1:
        """Send what there is to send, and see whether nothing is left to do."""
        try:
            if usable(self):
                if self.pacer is None:
                    self.fill_c(now)
                else:
                    if self.work is None and self.ready:
                        self.go_on_walking_c(now)
                    if self.pacer.held:
                        self.pacer.tick_c()
        finally:
            self.settle_c()
        return 0

    cdef int go_on_walking_c(self, int64_t now) except -1:
        """Send the next calls of users who came at the times of a pacer."""
        while self.ready and has_room(self):
            if not self.step_c(now):
                break
        if self.connection.link is not None:
            self.connection.link.wrote_c()
        if self.ready and full(self):
            self.await_room_c()
        return 0

    # -- the ends of calls ---------------------------------------------------------------------

    cdef int expired_c(self, BenchCall call, object id) except -1:
        """The time of a call is over: that of its answer, or that of its cancellation."""
        if call.cancels:
            if len(self.cancelled) >= MAX_CANCELLED:
                self.cancelled_before, self.cancelled = self.cancelled, set()
            self.cancelled.add(id)
            return self.ended_c(call, CANCELLED, now_c())
        if len(self.given_up) >= MAX_GIVEN_UP:
            del self.given_up[next(iter(self.given_up))]
        self.given_up[id] = None
        return self.ended_c(call, MISSING, now_c())

    cdef int failed_c(self, BenchCall call, object exc, Outcome outcome) except -1:
        """No answer to a call will come."""
        if usable(self) and isinstance(exc, TransportError):
            if isinstance(exc, ConnectionLost) and exc.__cause__ is not None:
                # of HTTP, where the other connections go on
                call.recorder.count_c(CONNECTION_LOSS)
            self.rest_c()
        return self.ended_c(call, outcome, now_c())

    cdef int ended_c(self, BenchCall call, Outcome outcome, int64_t now) except -1:
        cdef Walk walk = call.walk
        self.live -= 1
        if outcome != MISSING:
            call.recorder.last = now
        if outcome == OK:
            call.recorder.ok_c(now - call.intended, now - call.sent)
            if walk is not None:
                walk.script.recorder.ok_c(now - call.intended, now - call.sent)
        else:
            self.count_c(call.recorder, walk, outcome)
        call.driver = None
        self.spare.append(call)
        if walk is not None:
            call.walk = None
            if walk.goes_on_c():
                self.ready.append(walk)
        if self.pacer is None and self.think:
            self.pauses += 1
            self.loop.call_later(self.think, self._paused)
        return self.go_on_c(now)

    cdef int count_c(self, Recorder recorder, Walk walk, Outcome outcome) except -1:
        recorder.count_c(outcome)
        if walk is not None:
            walk.script.recorder.count_c(outcome)
        return 0

    cdef int settle_c(self) except -1:
        cdef bint visited
        if self.live or self.idle is None or self.idle.done():
            return 0
        visited = self.work is None and self.scripts is None and not self.ready
        if self.budget.over or visited or not usable(self):
            self.idle.set_result(None)
        return 0

    cdef int stray_c(self, object id, bint issued) except -1:
        # the answer to a call that was cancelled may have been under way: it counts as nothing
        for known in (self.cancelled, self.cancelled_before):
            if id in known:
                known.discard(id)
                return 0
        if id in self.given_up:
            del self.given_up[id]
            self.recorder.count_c(LATE)
        else:
            self.recorder.count_c(DUPLICATE if issued else UNEXPECTED)
        return 0

    def awaited(self, id):
        """Return whether a call with this id is over although its answer may still come."""
        return id in self.given_up or id in self.cancelled or id in self.cancelled_before


@cython.final
cdef class Pacer:
    """The times of the calls of a phase, over all drivers in turn.

    Args:
        drivers: The connections.
        rate: Calls a second.
        poisson: Whether the pauses between the calls are random, as of many independent users
            (exponentially distributed), or all the same.

    Calls leave at their times whatever the answers do, as long as a driver has room. Those whose
    time has come while none has leave at the next answer, and keep their time.
    """

    def __init__(self, list drivers not None, double rate, bint poisson=False, seed=None):
        if not 0 < rate <= 1e7:
            raise ValueError(f"rate must be above 0 and at most 10,000,000 a second, not {rate!r}")
        self.drivers = drivers
        self.interval = 1e9 / rate
        self.poisson = poisson
        self.random = random.Random(seed).random
        self.timer = -1

    def begin(self, loop, Recorder recorder not None, Budget budget not None):
        """Begin: the first call leaves at once."""
        self.loop = loop
        self.recorder = recorder
        self.budget = budget
        self.running = True
        self.due = <double> now_c()
        self.timer = bench_timer()
        if self.timer >= 0:
            loop.add_reader(self.timer, self._tick)
        self.tick_c()

    @property
    def unsent(self):
        """The calls whose time has come, and that no connection had room for."""
        return max(0, <int64_t> ((now_c() - self.due) / self.interval)) if self.held else 0

    def replace(self, Driver before not None, Driver driver not None):
        """Use another driver in place of one whose connection was lost."""
        self.drivers[self.drivers.index(before)] = driver

    def end(self):
        """Send no more calls."""
        self.running = False
        if self.timer >= 0:
            self.loop.remove_reader(self.timer)
            os.close(self.timer)
            self.timer = -1
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def _tick(self):
        self.handle = None
        self.tick_c()

    cdef Driver next_c(self):
        """The next driver that has room, or None."""
        cdef Py_ssize_t n = len(self.drivers)
        cdef Driver driver
        for _ in range(n):
            driver = self.drivers[self.turn]
            self.turn += 1
            if self.turn == n:
                self.turn = 0
            if has_room(driver):
                return driver
        return None

    cdef int tick_c(self) except -1:
        """Send the calls whose time has come."""
        cdef int64_t now
        cdef int n = 0
        cdef Driver driver
        cdef set wrote = set()
        self.held = False
        while self.running and n < CALLS_A_TICK:
            now = now_c()
            if self.due > now:
                break
            driver = self.next_c()
            if driver is None:
                self.held = True
                self.held_until = now
                for driver in self.drivers:
                    if full(driver):
                        driver.await_room_c()
                break
            if now - self.due > LATE_START:
                if self.due > self.held_until:
                    self.recorder.late_starts += 1
                else:
                    self.recorder.held_starts += 1
            if not driver.send_c(<int64_t> self.due, now):
                self.end()
                for driver in self.drivers:
                    driver.settle_c()
                break
            n += 1
            wrote.add(driver)
            self.due += self.pause_c()
        for driver in wrote:
            if driver.connection.link is not None:
                driver.connection.link.flush_now()
        if self.running:
            self.arm_c()
        return 0

    cdef double pause_c(self) except -1:
        if not self.poisson:
            return self.interval
        return -log(1.0 - <double> self.random()) * self.interval

    cdef int arm_c(self) except -1:
        if self.timer >= 0:
            # a time that is over wakes the loop at once; 0 is none
            bench_timer_set(self.timer, 0 if self.held else <int64_t> self.due)
        elif self.handle is None and not self.held:
            self.handle = self.loop.call_at(self.due / 1e9, self._tick)
        return 0
