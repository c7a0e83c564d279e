"""What joins a session to a byte stream, whatever the stream is.

An Endpoint (a server's or a client's connection) owns the session and looks at its events; a Link
moves the bytes. Links tell endpoints what happened; endpoints tell links that something is queued.
"""

from wirespeed._core.session cimport Session


cdef class Endpoint:
    """The owner of a session. Every method is called on the loop's thread."""

    cpdef object on_data(self):
        """Bytes came in: take the events out of the session."""
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
        self.flush_callback = self._flush_soon

    def start(self):
        """Begin to read."""
        raise TypeError("a link must say how it begins")

    def close(self):
        """Stop now; what is queued is dropped. `Endpoint.on_lost(None)` follows at once."""
        raise TypeError("a link must say how it ends")

    cdef int wrote_c(self) except -1:
        """Something was queued: send it at the end of this tick, with whatever else comes."""
        cdef Session session = self.endpoint.session
        if session.outbox.size >= session.output_high:
            self.was_full = True       # somebody may wait from now on
        if not self.flush_scheduled and not self.corked:
            self.flush_scheduled = True
            self.loop.call_soon(self.flush_callback)
        return 0

    def wrote(self):
        """Something was queued: send it at the end of this tick, with whatever else comes."""
        self.wrote_c()

    def _flush_soon(self):
        self.flush_scheduled = False
        if self.endpoint.session.n_waiting:
            self.deliver_c()       # an answer made room for a request that waited
        else:
            self.flush()

    cdef int deliver_c(self) except -1:
        """Let the endpoint look at its events; what it queues leaves in one write."""
        cdef Session session = self.endpoint.session
        self.corked = True
        try:
            self.endpoint.on_data()
        finally:
            self.corked = False
        self.flush()
        if self.endpoint.link is self and session.n_waiting and session.has_room_c():
            # all of it has left already: go on, but let the loop have its turn
            self.wrote_c()
        self.update_reading()
        return 0

    cdef int check_drained_c(self) except -1:
        """After a write: tell the endpoint when callers may go on."""
        cdef Session session = self.endpoint.session
        if session.outbox.size >= session.output_high:
            self.was_full = True
        elif self.was_full and session.outbox.size <= <size_t> session.limits.output_low:
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
        """Pause or resume reading as the session wants it."""
        raise TypeError("a link must say how it reads")

    @property
    def idle(self):
        """Whether everything queued has left."""
        return self.endpoint.session.outbox.size == 0

    def detach(self):
        """The link is gone: its endpoint has none any more."""
        self.endpoint.link = None

    def pump(self):
        """Look for events that became possible (a request that waited), then flush."""
        if not self.corked:
            self.deliver_c()
