"""The connection as a call sees it: the session, the task pool, the output, the questions.

Messages and eras are the business of `wirespeed.server.connection`, which is built on `Serving`.
"""

cimport cython
from libc.math cimport INFINITY
from libc.stdint cimport uint64_t

import itertools
import logging
import threading

import msgspec

from wirespeed._core.envelope cimport ERROR, INVALID, RESULT, Message
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.session cimport Session
from wirespeed.transport.link cimport Endpoint
from wirespeed.transport.served cimport Served
from wirespeed.transport.taskpool cimport Completion, TaskPool

from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InvalidResponse,
    LimitExceeded,
    RemoteError,
)
from wirespeed.protocol.messages import ErrorObject

cdef object decode_error = msgspec.json.Decoder(ErrorObject).decode


cdef object gone():
    return ConnectionClosed("the client is gone")


@cython.final
cdef class Questions:
    """The requests of a server to its client (legacy eras): elicitation, sampling, roots, ping."""

    def __init__(self, Endpoint connection not None, Session session not None, loop, middleware):
        self.connection = connection
        self.session = session
        self.loop = loop
        self.middleware = middleware

    def ask(self, str method not None, bytes params, *, timeout=None, about=0):
        """Send a request to the client: a future of the JSON text of its result.

        The future fails with RemoteError, InvalidResponse, CallTimeout (after ``timeout`` seconds;
        the client is told to cancel), ConnectionClosed, or LimitExceeded (`Limits.max_outstanding`
        questions have no answer yet). Cancelling the future cancels the request on the wire.
        ``about``: the `ref` of the client's request that it is about.
        """
        if self.middleware is not None:
            return self.middleware(self.connection, method, params, timeout, about)
        return self.send(method, params, timeout, about)

    def send(self, str method not None, bytes params, timeout, about):
        """`ask`, behind all middleware."""
        future = self.loop.create_future()
        if self.connection.link is None or self.session.framer.eof:   # no answer can come
            future.set_exception(gone())
            return future
        try:
            id = self.session.send_request(
                method, params, token=future, deadline=INFINITY, about=about
            )
        except OverflowError as exc:
            future.set_exception(LimitExceeded(str(exc)))
            return future
        timer = None
        if timeout is not None:
            timer = self.loop.call_later(timeout, self._expired, id, future, method, about)
        future.add_done_callback(lambda done: self._done(id, done, timer, about))
        self.connection.link.wrote_c()
        return future

    def _expired(self, id, future, method, about):
        if not future.done():
            self._cancel(id, "timed out", about)
            future.set_exception(CallTimeout(f"no answer to {method} within its time limit"))

    def _done(self, id, future, timer, about):
        if timer is not None:
            timer.cancel()
        if future.cancelled():
            self._cancel(id, None, about)

    def _cancel(self, id, reason, about):
        if self.connection.link is not None:
            self.session.cancel(id, reason, about=about)
            self.connection.link.wrote_c()

    cdef int answered_c(self, Message m) except -1:
        """The client answered one of the questions."""
        cdef object future = m.token
        if future is None or future.done():
            return 0
        if m.kind_c == RESULT:
            future.set_result(m.result.copy())
        elif m.kind_c == INVALID:
            future.set_exception(InvalidResponse(f"the client's response is not valid: {m.reason}"))
        elif m.kind_c == ERROR:
            try:
                error = decode_error(m.error)
            except msgspec.DecodeError as exc:
                future.set_exception(InvalidResponse(f"the client's error is not valid: {exc}"))
            else:
                future.set_exception(RemoteError(error.code, error.message, error.data))
        return 0

    cdef int fail_all_c(self) except -1:
        """The client is gone, so no answers will come."""
        for _, future in self.session.fail_all():
            if not future.done():
                future.set_exception(gone())
        return 0


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
