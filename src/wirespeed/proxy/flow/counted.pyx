"""Calls that a quota counts and that no server has yet. What is never sent is given back."""

cimport cython
from libc.stdint cimport uint64_t

from wirespeed._core.inflight cimport InFlight

from wirespeed.protocol import codes

cdef enum:
    MANY = 64


@cython.final
cdef class CountedCalls:
    """The calls of one client that are counted and not sent, by their references."""

    def __cinit__(self):
        self.calls = {}
        self.passed_on = set()
        self.most = MANY

    cdef int add_c(self, uint64_t ref, object spending, InFlight inflight) except -1:
        """A call was counted."""
        if <size_t> len(self.calls) >= self.most:
            for old in list(self.calls):
                if inflight.slot_c(old) is NULL:      # it was cancelled
                    self.refused_c(old)
            self.most = max(<size_t> MANY, 2 * <size_t> len(self.calls))
        self.calls[ref] = spending
        return 0

    cdef int sent_c(self, uint64_t ref, bint to_part) except -1:
        """A request was sent. ``to_part``: To a part of the proxy, whose answer shows whether a
        server gets it."""
        if not to_part:
            self.calls.pop(ref, None)
        elif ref in self.calls:
            self.passed_on.add(ref)
        return 0

    cdef int refused_c(self, uint64_t ref) except -1:
        """A request is over without an answer. If it was not sent, no quota counts it."""
        spending = self.calls.pop(ref, None)
        if ref in self.passed_on:
            self.passed_on.discard(ref)
        elif spending is not None:
            spending.give_back()
        return 0

    cdef int answered_c(self, uint64_t ref, int code) except -1:
        """A request has its answer, perhaps an error. Some say that no server has it."""
        if code == codes.OVERLOADED or code == codes.SHUTTING_DOWN:
            self.passed_on.discard(ref)
            return self.refused_c(ref)
        self.passed_on.discard(ref)
        self.calls.pop(ref, None)
        return 0

    cdef int close_c(self) except -1:
        """The client has left."""
        for ref in list(self.calls):
            self.refused_c(ref)
        return 0
