"""Users of a load: the steps that each kind of user takes, and users who are on their way."""

cimport cython

import random
from bisect import bisect_right
from itertools import accumulate

from wirespeed.bench.recorder cimport Recorder
from wirespeed.bench.work cimport Work

cdef enum:
    MAX_PAGES = 10_000                 # of a list: a server may name further ones for ever


@cython.final
cdef class Step:
    """One of several requests, at random, a number of times."""

    def __init__(self, list works not None, Py_ssize_t times=1):
        self.works = works
        self.times = times


@cython.final
cdef class Script:
    """A kind of users.

    Args:
        name: Its name.
        weight: The share of users that are of this kind, of the sum of all weights.
        steps: What each user does, in order.
        own_connection: Whether each user connects, and leaves after the last step.

    Attributes:
        recorder: Counts the calls of these users in one phase of a run.
    """

    def __init__(
        self, str name not None, double weight, list steps not None, bint own_connection=False
    ):
        self.name = name
        self.weight = weight
        self.steps = steps
        self.own_connection = own_connection
        self.recorder = Recorder()


@cython.final
cdef class Scripts:
    """All kinds of users. Who comes next is random.

    Args:
        scripts: The kinds.
        seed: Of the random choices; None for others in each run.
    """

    def __init__(self, list scripts not None, seed=None):
        self.scripts = scripts
        self.bounds = list(accumulate([script.weight for script in scripts]))
        self.random = random.Random(seed).random

    def works(self):
        """Return each request that is in a step."""
        return [
            work for script in self.scripts for step in script.steps for work in step.works
        ]

    def begin(self, bint paced):
        """Begin a phase: the counts of each kind are 0."""
        cdef Script script
        for script in self.scripts:
            script.recorder = Recorder(paced)

    cdef Walk arrive_c(self):
        """A user arrives."""
        cdef Walk walk = Walk.__new__(Walk)
        cdef Py_ssize_t n = len(self.scripts) - 1
        if n:
            n = min(n, <Py_ssize_t> bisect_right(self.bounds, self.random() * self.bounds[n]))
        walk.script = self.scripts[n]
        walk.random = self.random
        return walk


@cython.final
cdef class Walk:
    """A user on the way through the steps of a script."""

    def __init__(self):
        raise TypeError("users are made by Scripts")

    cdef bint goes_on_c(self) except -1:
        """Whether there is a next request."""
        return self.listing is not None or self.left or self.at < len(self.script.steps)

    cdef Work next_c(self):
        """The next request."""
        cdef Step step
        cdef list works
        if self.listing is not None:
            work, self.listing = self.listing, None
            return work
        self.cursor = None
        self.n_pages = 0
        if self.left == 0:
            step = self.script.steps[self.at]
            self.at += 1
            self.left = step.times
        self.left -= 1
        step = self.script.steps[self.at - 1]
        works = step.works
        if len(works) == 1:
            return works[0]
        return works[<Py_ssize_t> (<double> self.random() * len(works))]

    cdef int paged_c(self, Work work, str cursor) except -1:
        """The page of a list was answered. `cursor`: of the next one, or None."""
        if cursor is not None and self.n_pages < MAX_PAGES:
            self.listing, self.cursor = work, cursor
            self.n_pages += 1
        return 0
