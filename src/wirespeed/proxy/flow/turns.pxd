# One of those that take turns. Its owner is dropped when it leaves for good.
cdef class Turn:
    cdef readonly object owner
    cdef readonly long long balance    # bytes that it may still send; below 0: sent in advance
    cdef readonly Turns at             # what it waits for, or has the turn of; None: neither


# Turns in bytes: deficit round robin.
cdef class Turns:
    cdef readonly object owner
    cdef readonly Turn current         # it has the turn; None: nobody has
    cdef readonly long long quantum    # bytes of a turn
    cdef object ring                   # an OrderedDict: those that wait, the next one first

    # One has sent n bytes. 1: it goes on with its turn; 0: it waits for the next.
    cdef bint sent_c(self, Turn one, long long n) except -1
    # Who has the turn, or gets it now; None: nobody waits.
    cdef Turn next_c(self)
    # One has nothing to send, or has left.
    cdef int leave_c(self, Turn one) except -1
