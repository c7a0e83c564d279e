"""What the streams of events of one endpoint share: the store of events, and comments that keep
silent connections open."""

cimport cython
from libc.math cimport INFINITY

import asyncio
import logging
import time

from wirespeed._core.wire cimport Wire
from wirespeed.transport.http.exchange cimport Exchange

from wirespeed.server.http.event_log import value_of
from wirespeed.transport.rate_limited_log import RateLimitedLog

logger = logging.getLogger("wirespeed.server")

LAST_WAIT = 5.0    # seconds for a store, at the end

cdef enum:
    PARTS = 8


cdef inline long long output_of(Wire wire) noexcept:
    """The bytes that were sent and that are queued."""
    return wire.bytes_out + <long long> wire.outbox.size


@cython.final
cdef class Streams:
    """The streams of one endpoint. One timer looks at a part of them at a time.

    Attributes:
        store: Keeps their events; or None.
        retry: Seconds after which clients come back; None: when they like.
        quiet: Logs that the store fails, once for many streams.
    """

    def __init__(self, loop, options):
        self.store = options.event_store
        self.retry = options.retry
        self.quiet = RateLimitedLog(logger, lines=1)
        self._loop = loop
        self._tasks = set()
        self._keepalive = 0 if options.sse_keepalive is None else options.sse_keepalive
        self._parts = [{} for _ in range(PARTS)]
        self._ends = {}

    cpdef int opened(self, Exchange exchange) except -1:
        """A stream begins, or goes on at another connection; or a response that can become one."""
        if self._keepalive != 0:
            (<dict> self._parts[hash(exchange) % PARTS])[exchange] = -1
            if self._timer is None:
                self._arm()
        return 0

    cpdef int closed(self, Exchange exchange) except -1:
        """The connection of a stream has ended, or the stream."""
        (<dict> self._parts[hash(exchange) % PARTS]).pop(exchange, None)
        if self._ends:
            timer = self._ends.pop(exchange, None)
            if timer is not None:
                timer.cancel()
        return 0

    def end_at(self, Exchange exchange not None, end):
        """Call a function when the client's credentials end, unless the stream is closed before."""
        if exchange.expires != INFINITY:
            seconds = max(0.001, exchange.expires - time.time())
            self._ends[exchange] = self._loop.call_later(seconds, self._end, exchange, end)

    def _end(self, Exchange exchange not None, end):
        if self._ends.pop(exchange, None) is None:
            return
        if time.time() < exchange.expires:     # timers have another clock
            self.end_at(exchange, end)
        else:
            end()

    cdef int _arm(self) except -1:
        # a comment comes after half of the seconds of silence at the earliest
        self._timer = self._loop.call_later(self._keepalive / (2 * PARTS), self._look)
        return 0

    def _look(self):
        cdef Exchange exchange
        cdef Wire wire
        cdef dict part = self._parts[self._next]
        self._timer = None
        if any(self._parts):
            self._arm()
        self._next = (self._next + 1) % PARTS
        for found, before in list(part.items()):
            exchange = found
            if exchange.carrier is None:
                part.pop(exchange, None)
                continue
            wire = exchange.carrier.wire
            if wire.outbox.size == 0 and output_of(wire) == before:
                if exchange.status == 0:
                    exchange.open_events()
                exchange.send_text(b":\n\n")
            part[exchange] = output_of(wire)

    def run(self, work):
        """Run something for a stream; `aclose` waits for it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self):
        """Send no more comments."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for timer in self._ends.values():
            timer.cancel()
        self._ends.clear()

    async def aclose(self):
        """End what is running, and close the store."""
        self.stop()
        try:
            async with asyncio.timeout(LAST_WAIT):
                if self._tasks:
                    await asyncio.wait(self._tasks)
                if self.store is not None:
                    await value_of(self.store.close())
        except TimeoutError:
            logger.warning("the event store did not end within %g s", LAST_WAIT)
            for task in self._tasks:
                task.cancel()
        except Exception:
            logger.exception("the event store failed at its end")
