"""Calls over the connections of clients: as many as fit, or at times of their own.

A `Driver` is for one connection, and keeps a number of calls in flight there. With a `Pacer` it
waits for the time of each call: the latency of a call then runs from that time, also where the
server, or this process, was too slow to take it (an open loop). Either way each answer is checked,
and counted once.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.math cimport log
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

import logging
import os
import random

import msgspec

from wirespeed._core._simd cimport WS_ID_INTEGER, WS_RESULT
from wirespeed._core.envelope cimport ERROR, INVALID, RESULT, Message, span_of
from wirespeed._core.span cimport Span
from wirespeed.bench.arguments cimport Arguments
from wirespeed.bench.recorder cimport (
    CONNECTION_LOSS, MISSING, OK, PROTOCOL_ERROR, REFUSED, TOOL_ERROR, WRONG, Outcome, Recorder,
    now_c,
)
from wirespeed.client.connection.connection cimport Awaited, ClientConnection
from wirespeed.peer.connection cimport OPEN

from wirespeed.errors import (
    ConnectionLost,
    HttpStatusError,
    InvalidResponse,
    RemoteError,
    TransportError,
)
from wirespeed.protocol import codes
from wirespeed.protocol.messages import ErrorObject

logger = logging.getLogger("wirespeed.bench")

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
    MAX_LEARNED = 16                   # then answers differ in more than their text
    MAX_PARTS = 8

cdef double AFTER_FAILURE = 0.05       # seconds

cdef object encode = msgspec.json.Encoder().encode


class _Text(msgspec.Struct):
    type: str
    text: str = ""


class _Echo(msgspec.Struct):
    content: list[_Text] = []
    isError: bool = False
    resultType: str = "complete"


class _Any(msgspec.Struct):
    isError: bool = False
    resultType: str = "complete"


cdef object decode_echo = msgspec.json.Decoder(_Echo).decode
cdef object decode_any = msgspec.json.Decoder(_Any).decode
cdef object decode_value = msgspec.json.Decoder().decode
cdef object decode_error = msgspec.json.Decoder(ErrorObject).decode


@cython.final
cdef class Work:
    """The request of each call of a load, and the check of its answer.

    Args:
        tool: The name of the tool.
        arguments: Its arguments. If a text is expected back, an answer is right if the first block
            of text is that text.
        check: Called with a result as decoded JSON; returns whether it is right. None: each result
            is right whose text is expected, or any.
    """

    def __init__(self, str tool not None, Arguments arguments not None, check=None):
        self.tool = tool
        self.name = encode(tool)
        self.arguments = arguments
        self.check = check

    cdef Outcome judge_c(self, Message m, Span expected) except *:
        cdef Span raw = span_of(m, WS_RESULT)
        try:
            if expected.p is not NULL:
                if self.form is not None and self.has_form_c(raw, expected):
                    return OK
                result = decode_echo(m.result)
                if result.isError:
                    return TOOL_ERROR
                if result.resultType != "complete":
                    return WRONG
                text = decode_value(b'"%b"' % (<const char *> expected.p)[:expected.n])
                for block in result.content:
                    if block.type == "text":
                        if block.text != text:
                            return WRONG
                        self.learn_c(raw, expected)
                        return OK
                return WRONG
            result = decode_any(m.result)
            if result.isError:
                return TOOL_ERROR
            if result.resultType != "complete":
                return WRONG
            if self.check is not None and not self.check(decode_value(m.result)):
                return WRONG
        except msgspec.MsgspecError:
            return WRONG
        except Exception:
            logger.exception("the check of an answer failed")
            return WRONG
        return OK

    cdef bint has_form_c(self, Span result, Span expected) noexcept:
        cdef const uint8_t *p = result.p
        cdef Py_ssize_t i, n = len(self.form)
        cdef object part
        cdef size_t size
        if result.n != <size_t> self.form_size + <size_t> (n - 1) * expected.n:
            return False
        for i in range(n):
            part = self.form[i]
            size = <size_t> PyBytes_GET_SIZE(part)
            if memcmp(p, PyBytes_AS_STRING(part), size) != 0:
                return False
            p += size
            if i < n - 1:
                if memcmp(p, expected.p, expected.n) != 0:
                    return False
                p += expected.n
        return True

    cdef int learn_c(self, Span result, Span expected) except -1:
        """Learn the form of a right answer, if each text in its place makes a right answer."""
        cdef bytes text = (<const char *> expected.p)[:expected.n]
        cdef bytes fresh = os.urandom(12).hex().encode()
        cdef Py_ssize_t i
        if not text or b"\\" in text or self.learned >= MAX_LEARNED:
            return 0
        self.learned += 1
        parts = (<const char *> result.p)[:result.n].split(text)
        if not 1 < len(parts) <= MAX_PARTS:
            return 0
        # each place is the whole value of a string: whatever stands there, the rest is the same
        for i in range(len(parts) - 1):
            behind = parts[i + 1]
            if not parts[i].endswith(b'"') or not behind.startswith(b'"'):
                return 0
            if behind[1:].lstrip(b" \t").startswith(b":"):
                return 0
        answer = decode_echo(fresh.join(parts))
        if answer.isError or answer.resultType != "complete":
            return 0
        for block in answer.content:
            if block.type == "text":
                if block.text.encode() == fresh:
                    self.form = parts
                    self.form_size = sum([len(part) for part in parts])
                return 0
        return 0


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


@cython.final
cdef class BenchCall(Awaited):
    """A call of a load that waits for its answer."""

    cdef int answered_c(self, ClientConnection connection, Message m) except -1:
        cdef Driver driver = self.driver
        cdef int64_t now = now_c()
        cdef Outcome outcome
        if m.kind_c == RESULT:
            outcome = driver.work.judge_c(m, self.expected)
        elif m.kind_c == ERROR:
            try:
                code = decode_error(m.error).code
            except msgspec.MsgspecError:
                outcome = WRONG
            else:
                outcome = REFUSED if code == codes.OVERLOADED else PROTOCOL_ERROR
        else:
            outcome = WRONG
        return driver.ended_c(self, outcome, now)

    cdef int expired_c(self, ClientConnection connection) except -1:
        cdef Driver driver = self.driver
        if len(driver.given_up) >= MAX_GIVEN_UP:
            del driver.given_up[next(iter(driver.given_up))]
        driver.given_up[self.id] = None
        return driver.ended_c(self, MISSING, now_c())

    cdef bint failed_c(self, object exc) except -1:
        cdef Driver driver = self.driver
        if driver.usable_c() and isinstance(exc, ConnectionLost) and exc.__cause__ is not None:
            # of HTTP, where the other connections go on
            self.recorder.count_c(CONNECTION_LOSS)
        if driver.usable_c() and isinstance(exc, TransportError):
            # a server that is gone is not asked as fast as it fails
            driver.pauses += 1
            driver.loop.call_later(AFTER_FAILURE, driver._paused)
        driver.ended_c(self, outcome_of(exc), now_c())
        return True


@cython.final
cdef class Driver:
    """The calls over one connection.

    Args:
        connection: An open connection.
        work: What to call.
        recorder: Counts what the server says before the first phase; each phase has its own.
        in_flight: The most calls without an answer.
        timeout: Seconds after which a call counts as missing; an answer after that is late.
        think: Seconds between an answer and the call that takes its place.

    Attributes:
        live: The calls without an answer.
        given_up: The ids of calls that took too long, and whose answer may still come.
        idle: A future of the phase: no call is left to begin or to be answered, or the connection
            is lost.
    """

    def __init__(
        self, ClientConnection connection not None, Work work not None,
        Recorder recorder not None, Py_ssize_t in_flight, double timeout, double think=0,
    ):
        self.connection = connection
        self.loop = connection.loop
        self.work = work
        self.in_flight = in_flight
        self.timeout = timeout
        self.think = think
        self.given_up = {}
        self.spare = []
        self.recorder = recorder
        self.budget = Budget(0)
        connection.measure(self._stray)

    def begin(self, Recorder recorder not None, Budget budget not None, Pacer pacer=None):
        """Begin a phase: the calls of a budget, at the times of a pacer or as many as fit."""
        self.recorder = recorder
        self.budget = budget
        self.pacer = pacer
        self.idle = self.loop.create_future()
        self.go_on_c(now_c())

    def close(self):
        """Count nothing more of the connection."""
        self.connection.measure(None)
        self.pacer = None

    def settle(self):
        """The budget may be closed: see whether nothing is left to do."""
        self.settle_c()

    cdef bint usable_c(self) noexcept:
        return self.connection.link is not None and self.connection.phase == OPEN

    cdef bint has_room_c(self) noexcept:
        return (
            self.live < self.in_flight and self.usable_c()
            and self.connection.session.outbox.size < self.connection.session.output_high
        )

    cdef bint send_c(self, int64_t intended, int64_t now) except -1:
        """Send the next call, which leaves at the end of the delivery or with `Link.flush_now`.
        Whether there was one."""
        cdef int64_t number = self.budget.take_c()
        cdef BenchCall call
        if number < 0:
            return False
        call = self.spare.pop() if self.spare else BenchCall.__new__(BenchCall)
        call.body = self.work.arguments.render_c(number, &call.expected)
        call.driver = self
        call.recorder = self.recorder
        call.intended = intended
        call.sent = now
        self.live += 1
        try:
            self.connection.await_c(call, True, now / 1e9 + self.timeout)
            self.connection.write_call_c(call.id, self.work.name, call.body, False, None)
        except BaseException:
            self.live -= 1
            raise
        return True

    cdef int fill_c(self, int64_t now) except -1:
        """Send as many calls as fit."""
        while self.live + self.pauses < self.in_flight and self.has_room_c():
            if not self.send_c(now, now):
                break
        if self.connection.link is not None:
            self.connection.link.wrote_c()
        self.await_room_c()
        return 0

    cdef int await_room_c(self) except -1:
        """Go on when the server reads again: no answer may be left to do it."""
        if (
            not self.awaits_room and not self.budget.over and self.usable_c()
            and self.connection.session.outbox.size >= self.connection.session.output_high
        ):
            self.awaits_room = True
            self.connection.wait_for_room().add_done_callback(self._has_room)
        return 0

    def _has_room(self, _):
        self.awaits_room = False
        self.go_on_c(now_c())

    def _paused(self):
        self.pauses -= 1
        self.go_on_c(now_c())

    cdef int go_on_c(self, int64_t now) except -1:
        """Send what there is to send, and see whether nothing is left to do."""
        try:
            if self.usable_c():
                if self.pacer is None:
                    self.fill_c(now)
                elif self.pacer.held:
                    self.pacer.tick_c()
        finally:
            self.settle_c()
        return 0

    cdef int ended_c(self, BenchCall call, Outcome outcome, int64_t now) except -1:
        self.live -= 1
        if outcome != MISSING:
            call.recorder.last = now
        if outcome == OK:
            call.recorder.ok_c(now - call.intended, now - call.sent)
        else:
            call.recorder.count_c(outcome)
        call.driver = None
        self.spare.append(call)
        if self.pacer is None and self.think:
            self.pauses += 1
            self.loop.call_later(self.think, self._paused)
        return self.go_on_c(now)

    cdef int settle_c(self) except -1:
        if self.idle is None or self.idle.done():
            return 0
        if self.live == 0 and (self.budget.over or not self.usable_c()):
            self.idle.set_result(None)
        return 0

    def _stray(self, Message m not None):
        """A response that answers no call."""
        if m.kind_c == INVALID or m.scan.id_kind != WS_ID_INTEGER:
            what = "unexpected"
        else:
            id = int(m.raw_id)
            if id in self.given_up:
                del self.given_up[id]
                what = "late"
            elif -1 < id < 2 ** 62 and self.connection.session.pending.was_issued(id):
                what = "duplicate"
            else:
                what = "unexpected"
        self.recorder.count(what)


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
            if driver.has_room_c():
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
                    driver.await_room_c()
                break
            if now - self.due > LATE_START and self.due > self.held_until:
                self.recorder.late_starts += 1
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
