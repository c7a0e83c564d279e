"""The connection as a call sees it: the task pool, the calls that run, the questions.

Messages and eras are the business of `wirespeed.server.connection`, which is built on `Serving`.
"""

from libc.math cimport INFINITY
from libc.stdint cimport uint64_t

import itertools
import logging
import threading

import msgspec

from wirespeed._core.envelope cimport ERROR, INVALID, RESULT, Message
from wirespeed._core.session cimport Session
from wirespeed.peer.connection cimport SessionConnection
from wirespeed.transport.taskpool cimport Completion, TaskPool

from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InvalidResponse,
    LimitExceeded,
    RemoteError,
)
from wirespeed.protocol.messages import ErrorObject

logger = logging.getLogger("wirespeed.server")

cdef object decode_error = msgspec.json.Decoder(ErrorObject).decode
cdef object next_serial = itertools.count(1).__next__


cdef object gone():
    return ConnectionClosed("the client is gone")


cdef class Serving(SessionConnection):
    """The base of a server's connection."""

    def __init__(self, service, loop, TaskPool pool not None, framer=None):
        session = Session(limits=service.limits, role="server", framer=framer)
        SessionConnection.__init__(self, session, service, loop, logger)
        self.most_unread = 4 * self.session.output_high
        self.pool = pool
        self.thread = threading.get_ident()
        self.serial = next_serial()
        self.observer = service.middleware.observer
        if self.observer is not None:
            self.observer.joined()
        self.asks = service.middleware.asks
        self.modern_end = service.discovery.modern_end
        self.running = set()

    cdef int cancelled_ended_c(self, Completion call) except -1:
        """The handler of a cancelled call has ended."""
        return 0

    # -- a client that does not read -----------------------------------------------------------

    cdef bint drops_c(self, uint64_t about) except -1:
        cdef bint drops = SessionConnection.drops_c(self, about)
        if drops and not self.dropping:
            self.dropping = True
            logger.warning("the client does not read: notifications are dropped")
        return drops

    cpdef object on_drained(self):
        self.dropping = False
        SessionConnection.on_drained(self)

    cdef bint renew_c(self) except -1:
        self.dropping = False
        return SessionConnection.renew_c(self)

    # -- questions to the client (legacy eras): elicitation, sampling, roots, ping -------------

    def ask(self, str method not None, bytes params, *, timeout=None, about=0):
        """Send a request to the client: a future of the JSON text of its result.

        The future fails with RemoteError, InvalidResponse, CallTimeout (after ``timeout`` seconds;
        the client is told to cancel), ConnectionClosed, or LimitExceeded (`Limits.max_outstanding`
        questions have no answer yet). Cancelling the future cancels the request on the wire.
        ``about``: the `ref` of the client's request that it is about.
        """
        if self.asks is not None:
            return self.asks(self, method, params, timeout, about)
        return self.ask_client(method, params, timeout, about)

    def ask_client(self, str method not None, bytes params, timeout, about):
        """`ask`, behind all middleware."""
        future = self.loop.create_future()
        if self.link is None or self.session.framer.eof:   # no answer can come
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
        future.add_done_callback(lambda done: self._asked(id, done, timer, about))
        self.link.wrote_c()
        return future

    def _expired(self, id, future, method, about):
        if not future.done():
            self._withdraw(id, "timed out", about)
            future.set_exception(CallTimeout(f"no answer to {method} within its time limit"))

    def _asked(self, id, future, timer, about):
        if timer is not None:
            timer.cancel()
        if future.cancelled():
            self._withdraw(id, None, about)

    def _withdraw(self, id, reason, about):
        if self.link is not None:
            self.session.cancel(id, reason, about=about)
            self.link.wrote_c()

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

    cdef int fail_questions_c(self) except -1:
        """The client is gone, so no answers will come."""
        for _, future in self.session.fail_all():
            if not future.done():
                future.set_exception(gone())
        return 0
