"""Framing and envelopes alone: a byte stream in, messages out, without a state of requests.

For proxies and SDKs that do their own multiplexing; `wirespeed._core.session` builds on it.
"""

cimport cython
from cpython.ref cimport Py_REFCNT

from wirespeed._core.batch cimport split_c
from wirespeed._core.envelope cimport BATCH, FAULT_PARSE, FAULT_REQUEST, INVALID, Message
from wirespeed._core.framing.base cimport FRAME_MORE, FRAME_OVERSIZE, Framer
from wirespeed._core.framing.line cimport LineFramer
from wirespeed._core.span cimport Span

from wirespeed.limits import Limits


@cython.final
cdef class MessageReader:
    """Reads the messages of a byte stream in place; iterate over it for those that are there now.

    Args:
        limits: `max_message`, `max_depth` and `max_batch` apply.
        batches: Whether an array is a batch, whose elements are messages; else it is invalid.
        framer: How messages lie in the stream; one a line by default.
    """

    def __cinit__(self, *, limits=None, bint batches=False, Framer framer=None):
        limits = Limits() if limits is None else limits
        self.limits = limits
        self.max_depth = limits.max_depth
        self.framer = LineFramer(limits.max_message) if framer is None else framer
        self.batches = batches

    def receive_data(self, data, /):
        """Take in the next bytes of the stream, a contiguous bytes-like object, read in place."""
        self.framer.feed_c(data)

    def receive_eof(self):
        """No more bytes will come. An unfinished frame is the last one, where that can be told."""
        self.framer.eof = True

    def __iter__(self):
        return self

    def __next__(self):
        cdef Message m
        while True:
            if self.elements:
                return self.elements.pop()
            m = self.next_c()
            if m is None:
                raise StopIteration
            if m.kind_c != BATCH:
                return m

    @property
    def payload_bytes_copied(self):
        """Bytes of messages that had to be moved because they did not arrive in one piece."""
        return self.framer.bytes_moved

    cdef Message next_c(self):
        """The next frame as a message; None when there is no whole one.

        Of kind BATCH only when its elements are now in `self.elements`.
        """
        cdef Span frame = Span(NULL, 0)
        cdef int got
        cdef Message m = self.spare
        # two in turn: while an iteration still holds one, the other is free
        self.spare = self.spare_next
        if m is None or Py_REFCNT(m) != 1:
            m = Message.new()
        else:
            m.drop_c()
        self.spare_next = m
        got = self.framer.next_frame_c(&frame)
        if got == FRAME_MORE:
            # our reference to the last message must not pin the input memory
            if self.spare is not None and Py_REFCNT(self.spare) == 1:
                self.spare.drop_c()
            else:
                self.spare = None
            return None
        if got == FRAME_OVERSIZE:
            m.lost_c(
                frame, self.limits.max_id,
                f"longer than the limit of {self.limits.max_message} bytes",
            )
        elif frame.p[0] == c'[' and self.batches:
            m.hold_c(self.framer.slab, frame.p, frame.n)
            m.kind_c = BATCH
            self.elements = split_c(m, self.limits.max_batch, self.max_depth)
            if self.elements is not None:
                self.elements.reverse()
        else:
            m.read_c(self.framer.slab, frame.p, frame.n, self.max_depth)
            if m.kind_c == BATCH:
                m.invalid_c(FAULT_REQUEST, "batches are not part of this protocol revision")
        if m.kind_c == INVALID and m.fault_c == FAULT_PARSE and m.slab is not None:
            if self.framer.refuse_c(m.p, m.n):
                m.drop_c()
                return None
        return m
