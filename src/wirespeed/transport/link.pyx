# cython: nonecheck=True
# A link without a wire is a mistake that a Python subclass can make: it must not be a segfault.
"""The seam between a wire and a byte stream of any kind.

An Endpoint (a server's or a client's connection) owns a wire and handles its events. A Link moves
the bytes between the wire and a stream. Links report events of the stream to endpoints;
endpoints report to links that output is queued.
"""

cimport cython

from wirespeed._core.framing.rfc6455 cimport GOING_AWAY, TRY_AGAIN
from wirespeed._core.outbox cimport ALL

import logging
import os
from weakref import WeakKeyDictionary

from wirespeed.transport.rate_limited_log import RateLimitedLog

_quiet = RateLimitedLog(logging.getLogger("wirespeed.transport"))
if os.environ.get("WIRESPEED_TRACE") == "1":
    from wirespeed.transport import wire_trace

    wire_trace.start()
cdef int ERROR = logging.ERROR

cdef enum:
    LINGER = 2        # seconds that the peer has for closing after both sides said goodbye

cdef enum:            # of a _Turn
    QUIET
    DELIVERING        # links that are written to are noted
    FLUSHING          # links that are written to wait for the next turn

cdef object turns = WeakKeyDictionary()      # by loop


cdef _Turn turn_of(loop):
    """The turn of a loop. A loop that cannot be referred to weakly has one for each link."""
    cdef _Turn turn
    try:
        turn = turns.get(loop)
        if turn is None:
            turn = turns[loop] = _Turn()
    except TypeError:
        turn = _Turn()
    return turn


cdef class Endpoint:
    """The owner of a wire. Every method is called on the thread of the loop."""

    cpdef object on_data(self):
        """Bytes arrived: take the events out of the wire."""
        raise TypeError("an Endpoint must implement on_data()")

    cpdef object on_eof(self):
        """The peer sends no more bytes. It may still read."""

    cpdef object on_lost(self, exc):
        """The link is closed in both directions. `exc` is None after a close of our own."""

    cpdef object on_drained(self):
        """The outbox fell to its low mark after it had reached the high mark."""

    def on_slow(self):
        """The peer has read nothing for too long: its listener ends the link now."""

    def on_failed(self, exc):
        """An exception was raised while the link worked, or in `on_data`. True: the endpoint has
        told the peer, and closes the link. False: the link closes itself."""
        return False


@cython.final
cdef class Hold:
    """Output of a link that waits for something else; made by `Link.hold`."""

    def end(self):
        """Let the output leave in the next turn of the loop, or with other output before; unless a
        hold before it is not over. A second call does nothing."""
        cdef Link link = self.link
        cdef list holds
        cdef bint is_first
        if link is None:
            return
        holds = link.holds
        is_first = holds[0] is self
        holds.remove(self)
        self.drop_c()
        if not is_first:
            return
        if holds:
            link.wire.outbox.may_leave = <size_t> ((<Hold> holds[0]).at - link.wire.bytes_out)
        else:
            link.holds = None
            link.wire.outbox.may_leave = <size_t> ALL
        link.loop.call_soon(link.resume_output)    # later: a frame may be half written

    cdef int drop_c(self) except -1:
        self.link = None
        self.timer.cancel()
        self.timer = None              # it refers to the hold
        return 0


@cython.final
cdef class _Turn:

    def __cinit__(self):
        self.written = []

    cdef int end_c(self) except -1:
        """The outermost delivery is over: flush the links that were written to meanwhile. What
        these flushes write to other links leaves in the next turn of the loop, so that the work of
        one turn is bounded."""
        cdef Link link
        cdef list written = self.written
        if not written:
            self.phase = QUIET
            return 0
        self.written = []
        self.phase = FLUSHING
        written.reverse()
        try:
            while written:
                link = written.pop()
                link.flush_scheduled = False
                link.flush_for_c()
        finally:
            self.phase = QUIET
            while written:             # the program ends (KeyboardInterrupt, SystemExit)
                link = written.pop()
                link.flush_scheduled = False
                link.wrote_c()
        return 0


cdef class Link:
    """A byte stream joined to an endpoint. Abstract; see `fd`, `stdio` and `memory`.

    TypeError when the endpoint has no wire yet.
    """

    def __init__(self, loop, Endpoint endpoint not None):
        if endpoint.wire is None:
            raise TypeError("an endpoint needs a wire before it gets a link")
        self.loop = loop
        self.endpoint = endpoint
        self.wire = endpoint.wire
        self.turn = turn_of(loop)
        endpoint.link = self
        self.close_timeout = 5.0
        self.flush_callback = self._flush_soon

    def start(self):
        """Begin to read."""
        raise TypeError("a Link must implement start()")

    def close(self):
        """Close at once and drop the queued output. `Endpoint.on_lost(None)` follows at once."""
        raise TypeError("a Link must implement close()")

    def end(self, int code=<int> GOING_AWAY, str reason="", timeout=None):
        """Close in order: send all queued output and the framing's goodbye (the close frame of
        WebSocket, RFC 6455 section 7.1.2), then wait for the peer's goodbye, for `timeout` seconds
        (`close_timeout` by default). A framing without a goodbye closes when all output has left,
        and gives the peer as many seconds to read it; no more events come meanwhile. Without a
        code, the goodbye is `farewell`."""
        cdef Link me = self            # the flush may close the link
        if self.ending or self.parting or self.endpoint.link is not self:
            return
        if code == GOING_AWAY and self.farewell is not None:
            code, reason = self.farewell
        if self.wire.framer.goodbye_c(code, reason):
            self.ending = True
            self.arm_c(self.close_timeout if timeout is None else <double> timeout)
            self.flush()
        elif self.wire.framer.over:
            return
        else:
            self.parting = self.closing = True
            self.flush()
            me.part_c()
            if me.endpoint.link is me:
                me.arm_c(me.close_timeout if timeout is None else <double> timeout)
        if me.endpoint.link is me:
            me.update_reading()
            me.check_over_c()

    def half_close(self):
        """Tell the peer that no more bytes will come, where the stream can do that."""
        self.close()

    cdef int arm_c(self, double seconds) except -1:
        if self.close_timer is None:
            self.close_timer = self.loop.call_later(seconds, self._close_timed_out)
        return 0

    def _close_timed_out(self):
        self.close_timer = None
        if self.half_closed and self.still_sends():
            self.arm_c(LINGER)
        else:
            self.close()

    def still_sends(self):
        """Whether the stream has output left that closing would drop, although the outbox is
        empty. The answer must become False some time."""
        return False

    cdef int check_over_c(self) except -1:
        """After both goodbyes, once all output is sent: half-close, so that a reset cannot destroy
        the last bytes, and wait for the peer to close (RFC 6455 section 7.1.1)."""
        if self.wire.framer.over and not self.half_closed and self.endpoint.link is self:
            self.arm_c(LINGER)
            if self.wire.outbox.size == 0:
                self.half_closed = True
                self.half_close()
        return 0

    cdef int ended_c(self) except -1:
        """The peer sends no more bytes."""
        if self.endpoint.link is not self or self.parting:
            return 0
        if self.wire.framer.over or self.ending:
            self.close()
        elif self.wire.framer.needs_goodbye:
            self.lose(ConnectionResetError("the peer left without a closing frame"))
        else:
            self.endpoint.on_eof()
        return 0

    def ended(self):
        """The peer sends no more bytes (for links written in Python)."""
        self.ended_c()

    def lose(self, exc):
        """Close at once because of `exc`; `Endpoint.on_lost(exc)` follows at once."""
        raise TypeError("a Link must implement lose()")

    cdef int released_c(self) except -1:
        """The link is closed: detach it from its endpoint and stop its timer."""
        if self.close_timer is not None:
            self.close_timer.cancel()
            self.close_timer = None
        self.endpoint.link = None
        if self.holds is not None:
            for hold in self.holds:
                (<Hold> hold).drop_c()
            self.holds = None
        if not self.corked:            # else the endpoint may read there
            self.wire.framer.forget_c()
        self.flush_callback = None     # it refers to the link: free both without the collector
        return 0

    cdef int wrote_c(self) except -1:
        """Output was queued. It leaves in one write: at the end of the delivery that runs on this
        loop, or else in the next turn of the loop, or now if it never waits (`at_once`)."""
        if self.wire.outbox.size >= self.wire.output_high:
            self.was_full = True
        if not self.flush_scheduled and not self.corked and self.flush_callback is not None:
            if self.at_once and self.turn.phase == QUIET:
                return self.flush_for_c()
            if self.turn.phase == DELIVERING:
                self.flush_scheduled = True
                self.turn.written.append(self)
            else:
                self.flush_later_c()
        return 0

    cdef int wrote_more_c(self) except -1:
        """Output was queued that can wait for more of this turn of the loop. It leaves in the next
        turn, or before it with other output."""
        if self.corked or self.flush_scheduled or self.flush_callback is None:
            return self.wrote_c()
        if self.wire.outbox.size >= self.wire.output_high:
            self.was_full = True
        return self.flush_later_c()

    cdef int flush_for_c(self) except -1:
        """As `flush_now`, for a caller who has nothing to do with errors of this link."""
        cdef Link me = self            # the endpoint may drop it
        try:
            self.flush_now()
        except Exception as exc:
            me.failed_c(exc)
        return 0

    cdef int failed_c(self, object exc) except -1:
        cdef Link me = self
        cdef bint told = False
        cdef bint no_memory = isinstance(exc, MemoryError)
        cdef str why = (str(exc) or "out of memory") if no_memory else "internal error"
        if self.endpoint.link is self:
            try:
                told = self.endpoint.on_failed(exc)
            except Exception:
                pass                   # there may be no memory for an answer either
        if not told:
            _quiet.log(
                ERROR, "a connection is closed: %s", why, exc_info=None if no_memory else exc
            )
        if told or me.endpoint.link is not me:
            return 0
        try:
            # the peer of a server is told that it may come back
            if (
                no_memory and me.wire.framer.budget is not None and not me.wire.framer.over
                and me.wire.framer.give_up_c(TRY_AGAIN, "too many unfinished messages")
            ):
                me.flush()
                me.check_over_c()
                return 0
        except Exception:
            pass
        lost = ConnectionAbortedError(f"the connection was given up: {why}")
        lost.__cause__ = exc
        try:
            me.lose(lost)
        except Exception as exc:
            _quiet.log(ERROR, "a connection that was closed: internal error", exc_info=exc)
        return 0

    def failed(self, exc):
        """An exception was raised in a callback of the loop: this link is lost."""
        self.failed_c(exc)

    cdef int flush_later_c(self) except -1:
        """Flush in the next turn of the loop."""
        self.flush_scheduled = True
        self.loop.call_soon(self.flush_callback)
        return 0

    def wrote(self):
        """Output was queued. It leaves in one write: at the end of the delivery that runs on this
        loop, or else in the next turn of the loop."""
        self.wrote_c()

    def hold(self, size_t size, double seconds):
        """Keep output for a while. The first ``size`` bytes that are queued leave. All others, and
        what is queued from now on, leave at the end of the `Hold` that is returned, after some
        seconds at the latest. They count as queued meanwhile. The holds of a link begin in the
        order of their bytes. For links that send what `Outbox` lets them gather or take."""
        cdef Hold hold = Hold.__new__(Hold)
        hold.link = self
        hold.at = self.wire.bytes_out + <long long> size
        hold.timer = self.loop.call_later(seconds, hold.end)
        if self.holds is None:
            self.holds = [hold]
            self.wire.outbox.may_leave = size
        else:
            self.holds.append(hold)
        return hold

    def resume_output(self):
        """Send what is held no longer, and go on with what waited for that."""
        if self.endpoint.link is self:
            self.deliver_c()

    def _flush_soon(self):
        self.flush_scheduled = False
        self.flush_for_c()

    cpdef object flush_now(self):
        """Send queued output at once, as `flush` does, and deliver requests that waited for room.

        Without effect on a link that is lost. Inside `Endpoint.on_data` of this link it only
        flushes."""
        if self.endpoint.link is not self:
            return                 # lost meanwhile: a request that waited must not start now
        if self.wire.wants_turn_c() and not self.corked:
            self.deliver_c()       # an answer made room for a request that waited
        else:
            self.flush()

    cdef int deliver_c(self) except -1:
        """Let the endpoint take its events; the output of all of them leaves in one write of each
        link."""
        cdef _Turn turn = self.turn
        if turn.phase != QUIET:
            return self.take_events_c()
        turn.phase = DELIVERING
        try:
            self.take_events_c()
        finally:
            turn.end_c()
        return 0

    cdef int take_events_c(self) except -1:
        cdef Link me = self            # an event may close the link
        try:
            self.corked = True
            try:
                if not self.parting:
                    self.endpoint.on_data()
                self.wire.framer.count_c()
            finally:
                self.corked = False
            if self.endpoint.link is not self:
                self.wire.framer.forget_c()
            if self.wire.outbox.size >= self.wire.output_high:
                self.was_full = True
            self.flush()
            if (
                self.endpoint.link is self and not self.flush_scheduled and not self.parting
                and self.wire.wants_turn_c() and self.wire.has_room_c()
            ):
                # All output has left already: go on, but let the loop serve others first.
                self.flush_later_c()
            self.update_reading()
            return me.check_over_c()
        except Exception as exc:
            return me.failed_c(exc)

    cdef int check_drained_c(self) except -1:
        """After a write: tell the endpoint when callers may go on."""
        cdef Link me = self            # the endpoint may close it
        if self.wire.outbox.size >= self.wire.output_high:
            self.was_full = True
        elif self.was_full and self.wire.outbox.size <= <size_t> self.wire.limits.output_low:
            self.was_full = False
            self.endpoint.on_drained()
        return me.part_c() if me.parting else 0

    cdef int part_c(self) except -1:
        """Close after `end`, if all output has left."""
        if self.endpoint.link is self and self.idle:
            self.close()
        return 0

    def deliver(self):
        """Let the endpoint take its events; the output of all of them leaves in one write of each
        link."""
        self.deliver_c()

    def check_drained(self):
        """After a write: tell the endpoint when callers may go on."""
        self.check_drained_c()

    cpdef object flush(self):
        """Send as much of the queued output as the stream takes without blocking."""
        raise TypeError("a Link must implement flush()")

    cpdef object update_reading(self):
        """Pause or resume reading as the wire wants it."""
        raise TypeError("a Link must implement update_reading()")

    @property
    def idle(self):
        """Whether all queued output has left."""
        return self.wire.outbox.size == 0

    def detach(self):
        """The link is closed: detach it from its endpoint and stop its timer."""
        self.released_c()

    def pump(self):
        """Deliver events that became possible (a request that waited), then flush."""
        if not self.corked:
            self.deliver_c()
