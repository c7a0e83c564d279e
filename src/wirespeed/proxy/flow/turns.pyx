"""Turns in bytes: each of those that wait may send a quantum, then the next one.

This is deficit round robin in the form that needs no look at what waits: one sends while its
balance is above 0, so it may overdraw it by a part of its last message, and pays for that in its
next turns. Between two that always have something to send the difference is below one quantum and
the longest message, however long they send.
"""

cimport cython

from collections import OrderedDict


@cython.final
cdef class Turn:
    """One of those that take turns.

    Args:
        owner: Whose turn it is.
    """

    def __init__(self, owner):
        self.owner = owner


@cython.final
cdef class Turns:
    """The order of those that wait.

    Args:
        quantum: The bytes of a turn.
        owner: What they wait for.
    """

    def __init__(self, long long quantum, owner=None):
        if quantum < 1:
            raise ValueError("a quantum has at least one byte")
        self.quantum = quantum
        self.owner = owner
        self.ring = OrderedDict()

    def __len__(self):
        """The number of those that wait or have the turn."""
        return len(self.ring) + (self.current is not None)

    cdef bint sent_c(self, Turn one, long long n) except -1:
        one.balance -= n
        if one is self.current:
            if one.balance > 0:
                return True
            self.current = None
        one.at = self
        if one not in self.ring:
            self.ring[one] = None
        return False

    cdef Turn next_c(self):
        cdef Turn one
        cdef long long rounds
        while self.current is None and self.ring:
            for _ in range(len(self.ring)):
                one = self.ring.popitem(False)[0]
                one.balance += self.quantum
                if one.balance > 0:
                    self.current = one
                    return one
                self.ring[one] = None
            # All have sent in advance: go on with the round in which the first of them has paid.
            rounds = min([-(<Turn> each).balance for each in self.ring]) // self.quantum
            for each in self.ring:
                (<Turn> each).balance += rounds * self.quantum
        return self.current

    cdef int leave_c(self, Turn one) except -1:
        if one is self.current:
            self.current = None
        else:
            self.ring.pop(one, None)
        one.at = None
        one.balance = 0
        return 0

    # -- for Python ------------------------------------------------------------------------------

    def sent(self, Turn one not None, long long n):
        """One has sent n bytes. Return whether it goes on with its turn; else it waits for the
        next."""
        return self.sent_c(one, n)

    def next(self):
        """Return who has the turn, or gets it now; None if nobody waits."""
        return self.next_c()

    def leave(self, Turn one not None):
        """One has nothing to send, or has left. It owes nothing any more."""
        self.leave_c(one)
