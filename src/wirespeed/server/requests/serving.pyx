"""What a call needs of its connection: the session, the task pool, the output.

Messages and eras are the business of `wirespeed.server.connection`, which is built on `Serving`.
"""

import itertools
import logging
import threading

from libc.stdint cimport uint64_t

from wirespeed._core.outbox cimport Outbox
from wirespeed._core.session cimport Session
from wirespeed.server.requests.questions cimport Questions
from wirespeed.transport.served cimport Served
from wirespeed.transport.taskpool cimport Completion, TaskPool

logger = logging.getLogger("wirespeed.server")

cdef object next_serial = itertools.count(1).__next__


cdef class Serving(Served):
    """The base of a server's connection."""

    def __init__(self, service, loop, TaskPool pool not None, framer=None):
        Served.__init__(
            self, Session(limits=service.limits, role="server", framer=framer), loop
        )
        self.service = service
        self.pool = pool
        self.thread = threading.get_ident()
        self.serial = next_serial()
        self.observer = service.middleware.observer
        if self.observer is not None:
            self.observer.joined()
        self.questions = Questions(self, self.session, loop, service.middleware.asks)
        self.modern_end = service.discovery.modern_end
        self.running = set()
        self.waiters = []

    cdef int check_drained_c(self) except -1:
        """A call has ended while the connection drains."""
        return 0

    cdef int cancelled_ended_c(self, Completion call) except -1:
        """The handler of a cancelled call has ended."""
        return 0

    # -- output --------------------------------------------------------------------------------

    def wrote(self):
        """Something was queued: it leaves at the end of this tick."""
        if self.link is not None:
            self.link.wrote_c()

    cdef int notify_c(self, str method, bytes params, uint64_t about) except -1:
        """Send a notification about a request, unless the client does not read: nothing awaits that
        notifications leave, so without a bound they would fill the memory."""
        if self.session.writer_about_c(about).out.size >= 4 * self.session.output_high:
            self.n_dropped += 1
            if not self.dropping:
                self.dropping = True
                logger.warning("the client does not read: notifications are dropped")
            return 0
        self.session.send_notification(method, params, about=about)
        self.link.wrote_c()
        return 0

    def wait_for_room(self, uint64_t about=0):
        """A future to await while the client is slow to read; None while it is not. ``about``: the
        `ref` of the request that is talked of."""
        cdef Outbox out = self.outlet
        if about != 0:
            out = self.session.writer_about_c(about).out
        if self.link is None or out.size < self.session.output_high:
            return None
        waiter = self.loop.create_future()
        self.waiters.append(waiter)
        return waiter

    def _release_waiters(self):
        cdef list waiters = self.waiters
        self.waiters = []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    cdef bint renew_c(self) except -1:
        cdef bint good = Served.renew_c(self)
        self.dropping = False
        if self.waiters:               # for room at the client that was served
            self._release_waiters()
        return good

    cpdef object on_drained(self):
        cdef Serving me = self
        self.dropping = False
        self._release_waiters()
        if me.draining:
            self.check_drained_c()
