"""What joins a wire to a byte stream, whatever the stream is.

An Endpoint (a server's or a client's connection) owns a wire and looks at what comes; a Link
moves the bytes. Links tell endpoints what happened; endpoints tell links that something is queued.
"""

from wirespeed._core.wire cimport Wire


cdef enum:
    LINGER = 2        # seconds that the peer gets to close when all is said


cdef class Endpoint:
    """The owner of a wire. Every method is called on the loop's thread."""

    cpdef object on_data(self):
        """Bytes came in: take the events out of the wire."""
        raise TypeError("an endpoint must say what it does with events")

    cpdef object on_eof(self):
        """The peer will send no more; it may still read."""

    cpdef object on_lost(self, exc):
        """Nothing can be sent or read any more. `exc` is None after a close of our own."""

    cpdef object on_drained(self):
        """The outbox fell below its low mark after it was above the high one."""


cdef class Link:
    """A byte stream joined to an endpoint. Abstract; see `fd`, `files` and `memory`."""

    def __init__(self, loop, Endpoint endpoint not None):
        self.loop = loop
        self.endpoint = endpoint
        endpoint.link = self
        self.close_timeout = 5.0
        self.flush_callback = self._flush_soon

    def start(self):
        """Begin to read."""
        raise TypeError("a link must say how it begins")

    def close(self):
        """Stop now; what is queued is dropped. `Endpoint.on_lost(None)` follows at once."""
        raise TypeError("a link must say how it ends")

    def end(self, int code=1001, str reason="", patience=None):
        """Close in order: say goodbye in the words of the framing (the close frame of WebSocket,
        RFC 6455 section 7.1.2), send all that is queued, and wait for the peer to answer, for
        `patience` seconds or `close_timeout`. Where the framing has no such words this is
        `close`."""
        if self.ending or self.endpoint.link is not self:
            return
        if not self.endpoint.wire.framer.goodbye_c(code, reason):
            if not self.endpoint.wire.framer.over:
                self.close()
            return
        self.ending = True
        self.arm_c(self.close_timeout if patience is None else <double> patience)
        self.flush()
        if self.endpoint.link is self:
            self.update_reading()
            self.check_over_c()

    def half_close(self):
        """Tell the peer that nothing more will come, where the stream can do that."""
        self.close()

    cdef int arm_c(self, double seconds) except -1:
        if self.patience is None:
            self.patience = self.loop.call_later(seconds, self._out_of_patience)
        return 0

    def _out_of_patience(self):
        self.patience = None
        self.close()

    cdef int check_over_c(self) except -1:
        """When all is said and sent: half-close, so that what we sent last is not lost by a reset,
        and wait for the peer to close (RFC 6455 section 7.1.1)."""
        cdef Wire wire = self.endpoint.wire
        if wire.framer.over and not self.half_closed and self.endpoint.link is self:
            self.arm_c(LINGER)
            if wire.outbox.size == 0:
                self.half_closed = True
                self.half_close()
        return 0

    cdef int ended_c(self) except -1:
        """The peer will send no more."""
        cdef Wire wire = self.endpoint.wire
        if self.endpoint.link is not self:
            return 0
        if wire.framer.over or self.ending:
            self.close()
        elif wire.framer.needs_goodbye:
            self.lose(ConnectionResetError("the peer left without a closing frame"))
        else:
            self.endpoint.on_eof()
        return 0

    def ended(self):
        """The peer will send no more (for links written in Python)."""
        self.ended_c()

    def lose(self, exc):
        """Stop now, because of `exc`; `Endpoint.on_lost(exc)` follows at once."""
        raise TypeError("a link must say how it ends")

    cdef int released_c(self) except -1:
        """The link is gone: its endpoint has none any more, and no timer runs."""
        if self.patience is not None:
            self.patience.cancel()
            self.patience = None
        self.endpoint.link = None
        self.flush_callback = None     # it refers to us: what we hold goes now, not at a collection
        return 0

    cdef int wrote_c(self) except -1:
        """Something was queued: send it at the end of this tick, with whatever else comes."""
        cdef Wire wire = self.endpoint.wire
        if wire.outbox.size >= wire.output_high:
            self.was_full = True       # somebody may wait from now on
        if not self.flush_scheduled and not self.corked and self.flush_callback is not None:
            self.flush_scheduled = True
            self.loop.call_soon(self.flush_callback)
        return 0

    def wrote(self):
        """Something was queued: send it at the end of this tick, with whatever else comes."""
        self.wrote_c()

    def _flush_soon(self):
        self.flush_scheduled = False
        if self.endpoint.wire.n_waiting:
            self.deliver_c()       # an answer made room for a request that waited
        else:
            self.flush()

    cdef int deliver_c(self) except -1:
        """Let the endpoint look at its events; what it queues leaves in one write."""
        cdef Wire wire = self.endpoint.wire
        self.corked = True
        try:
            self.endpoint.on_data()
        finally:
            self.corked = False
        self.flush()
        if self.endpoint.link is self and wire.n_waiting and wire.has_room_c():
            # all of it has left already: go on, but let the loop have its turn
            self.wrote_c()
        self.update_reading()
        return self.check_over_c()

    cdef int check_drained_c(self) except -1:
        """After a write: tell the endpoint when callers may go on."""
        cdef Wire wire = self.endpoint.wire
        if wire.outbox.size >= wire.output_high:
            self.was_full = True
        elif self.was_full and wire.outbox.size <= <size_t> wire.limits.output_low:
            self.was_full = False
            self.endpoint.on_drained()
        return 0

    def deliver(self):
        """Let the endpoint look at its events; what it queues leaves in one write."""
        self.deliver_c()

    def check_drained(self):
        """After a write: tell the endpoint when callers may go on."""
        self.check_drained_c()

    cpdef object flush(self):
        """Send what is queued, as much as goes without waiting."""
        raise TypeError("a link must say how it sends")

    cpdef object update_reading(self):
        """Pause or resume reading as the wire wants it."""
        raise TypeError("a link must say how it reads")

    @property
    def idle(self):
        """Whether everything queued has left."""
        return self.endpoint.wire.outbox.size == 0

    def detach(self):
        """The link is gone: its endpoint has none any more, and no timer runs."""
        self.released_c()

    def pump(self):
        """Look for events that became possible (a request that waited), then flush."""
        if not self.corked:
            self.deliver_c()
