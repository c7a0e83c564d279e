"""A connection whose bytes go to another process: of TLS, whose state cannot be passed on.

A relay has two ends: the client, and the process that answers it. What arrives at one end leaves at
the other. An end is read while less than `output_high` bytes wait at the other one.
"""

cimport cython

from wirespeed._core.framing.base cimport FRAME_MORE, FRAME_READY, FrameWriter, Framer
from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire
from wirespeed.transport.fd cimport FdLink
from wirespeed.transport.link cimport Endpoint

cdef enum:
    MAX_PART = 0x40000000    # bytes; a read is shorter
    # Bytes below which a read is copied: a part that is not would keep all memory of its read.
    COPY_BELOW = 65536


@cython.final
@cython.no_gc
cdef class RawFramer(Framer):
    """A stream without frames: what has arrived is taken as it is."""

    def __cinit__(self):
        self.setup_c(MAX_PART, FrameWriter())

    cdef int next_frame_c(self, Span *frame) except -1:
        if self.start == self.end:
            if self.end and self.lent is None:
                self.drop_slab_c()         # an idle connection holds no memory
            return FRAME_MORE
        frame.p = self.slab.base + self.start
        frame.n = self.end - self.start
        self.start = self.end
        return FRAME_READY


@cython.final
cdef class RelayWire(Wire):
    """The wire of one end."""

    cdef Wire other

    def __cinit__(self, limits):
        self.join_c(limits, RawFramer())
        self.outbox.copy_below = COPY_BELOW

    cdef bint want_read_c(self) noexcept:
        return self.other is None or self.other.outbox.size < self.other.output_high


cdef class RelayEnd(Endpoint):
    """One end of a relay."""

    cdef RelayEnd other
    cdef bint last                     # nothing follows: close when all is sent

    def __init__(self, limits):
        self.wire = RelayWire(limits)

    cdef int join_c(self, RelayEnd other) except -1:
        self.other = other
        (<RelayWire> self.wire).other = other.wire
        return 0

    cpdef object on_data(self):
        cdef RelayEnd me = self, other = self.other
        cdef Framer framer = self.wire.framer
        cdef Span part
        if self.last:
            self.end_c()
        while me.link is not None and framer.next_frame_c(&part) == FRAME_READY:
            if other.link is not None:
                other.wire.outbox.refer_c(framer.slab, part.p, part.n)
                other.link.wrote_c()

    cpdef object on_drained(self):
        if self.other.link is not None:
            self.other.link.update_reading()

    cpdef object on_eof(self):
        self.link.close()

    cpdef object on_lost(self, exc):
        cdef RelayEnd other = self.other
        if other.link is not None:
            other.end_c()
        else:
            other.over_c()
            self.over_c()

    cdef int end_c(self) except -1:
        """Close once all is sent. The process at this end has a short time to take it."""
        cdef RelayEnd me = self
        self.last = True
        self.link.flush()
        if me.link is not None:
            me.wire.framer.over = True
            me.link.check_over_c()
        return 0

    cdef int over_c(self) except -1:
        """Both ends are closed."""
        self.other = (<RelayWire> self.wire).other = None
        return 0


@cython.final
cdef class Relay(RelayEnd):
    """The end of the client. Make its link, then call `start`.

    Args:
        limits: Of each end; `output_high` applies.
        loop: The event loop.
        fd: The socket of the other end. It is closed by its owner, after `closed`.
        patience: Seconds that the client has to read what is left when the other end is closed.
        grace: Seconds that the relay goes on after `drain`. The process at the other end is told to
            end by the same signal, as a rule, and closes the connection when its request is
            answered.

    Attributes:
        closed: A future: why the connection of the client was lost; None: it was closed.
        draining: Whether it was told to end.
    """

    cdef readonly object closed
    cdef readonly bint draining
    cdef public object principal, peer
    cdef object reason
    cdef double patience, grace

    def __init__(self, limits, *, loop, int fd, double patience, double grace):
        cdef RelayEnd answerer = RelayEnd(limits)
        RelayEnd.__init__(self, limits)
        self.join_c(answerer)
        answerer.join_c(self)
        FdLink(loop, answerer, fd, fd)
        self.closed = loop.create_future()
        self.patience = patience
        self.grace = grace

    def start(self):
        """Begin to read at the other end. The link of the client is started by itself."""
        self.other.link.start()

    cpdef object on_lost(self, exc):
        self.reason = exc
        RelayEnd.on_lost(self, exc)

    cdef int end_c(self) except -1:
        """Close once the client has taken all."""
        cdef Relay me = self
        self.last = True
        self.link.flush()
        if me.link is None:
            return 0
        if me.link.idle:
            me.wire.framer.over = True
            return me.link.check_over_c()
        return me.link.arm_c(me.patience)

    cdef int over_c(self) except -1:
        if not self.closed.done():
            self.closed.set_result(self.reason)
        return 0

    def drain(self):
        """Go on for the time of grace, or until the other end is closed."""
        if not self.draining:
            self.draining = True
            if self.link is not None:
                self.link.arm_c(self.grace)

    def abort(self):
        """Close both ends now."""
        cdef RelayEnd other = self.other
        if self.link is not None:
            self.link.close()
        if other is not None and other.link is not None:
            other.link.close()
