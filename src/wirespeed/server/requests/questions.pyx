"""The requests of a server to its client (legacy eras): elicitation, sampling, roots, ping."""

cimport cython
from libc.math cimport INFINITY

import msgspec

from wirespeed._core.envelope cimport ERROR, INVALID, RESULT, Message
from wirespeed._core.session cimport Session
from wirespeed.transport.link cimport Endpoint

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
    """The questions of one connection."""

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
