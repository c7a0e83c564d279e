"""One end of a connection: its phase and its loss, the faults of its peer.

An end that answers is drained. An end that asks fails what was not answered. An end with a session
drops notifications to a peer that does not read, and lets requests wait behind a handler that was
cancelled. docs/architecture.md, "Closing", has the table of phases.
"""

from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport (
    ERROR, INVALID, NOTIFICATION, REQUEST, RESULT, Message, is_modern,
)
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.session cimport Session
from wirespeed.transport.link cimport Link
from wirespeed.transport.taskpool cimport Completion, Running, TaskPool

import logging
from asyncio import CancelledError
from collections import deque

import wirespeed.peer.error_data  # no-cython-lint
from wirespeed.errors import ConnectionClosed, ProtocolError, shortened
from wirespeed.protocol.codes import CUT_OFF, INTERNAL_ERROR, SHUTTING_DOWN
from wirespeed.transport.taskpool_choice import LAST_WAIT

FAREWELL = "The server is shutting down"
WAS_CUT_OFF = f"{FAREWELL}: the request was cut off, and may have taken effect"

cdef enum:
    MAX_LOGGED_FAULTS = 100

cdef double MAX_HOLD = 0.05    # seconds


cdef class PeerConnection(Endpoint):
    """The base of all ends.

    Args:
        loop: The event loop.
        log: The logger of its faults and of its loss; None: they are not logged.
    """

    def __init__(self, loop, log):
        self.loop = loop
        self.log = log
        self.closed = loop.create_future()

    @property
    def draining(self):
        """Whether no more requests are taken; of a client: or sent."""
        return self.phase != OPEN

    # -- for subclasses ------------------------------------------------------------------------

    def loss_level(self, exc):
        """Return the level of the log line about a loss."""
        return logging.INFO

    def clean_up(self, exc):
        """The link is gone, for a reason or None: end what belongs to the connection."""

    # -- the end -------------------------------------------------------------------------------

    cpdef object on_lost(self, exc):
        cdef PeerConnection me = self      # what ends may run any code
        me.phase = CLOSED
        if exc is not None and me.log is not None:
            me.log.log(me.loss_level(exc), "connection lost: %s", exc)
        try:
            me.clean_up(exc)
        finally:
            if not me.closed.done():
                me.closed.set_result(exc)

    # -- faults --------------------------------------------------------------------------------

    cpdef object log_fault(self, long long n, str text, object what):
        """Log the nth fault of the peer, up to a limit: a flood of them must not fill the log, nor
        block the process on a stderr that is not read. ``text``: has one ``%s``."""
        if n <= MAX_LOGGED_FAULTS:
            self.log.warning(text, what)
            if n == MAX_LOGGED_FAULTS:
                self.log.warning("further bad input on this connection is not logged")


cdef class DrainingConnection(PeerConnection):
    """An end that answers what it was asked before it closes: an `Endpoint` with any wire, which is
    a `wirespeed.transport.Connection`.

    A subclass sets ``wire`` and overrides `answered_all` and `on_grace_over`. After `drain` it
    refuses requests, and calls `check_drained` after each answer.

    Args:
        service: Has ``shutdown_grace``, the seconds that requests get at the end; None for an end
            that is never drained.
        loop: The event loop.
        log: The logger of its faults and of its loss; None: they are not logged.
    """

    def __init__(self, service, loop, log):
        PeerConnection.__init__(self, loop, log)
        self.service = service

    # -- for subclasses ------------------------------------------------------------------------

    def on_draining(self):
        """The drain begins: end what has no end of its own."""

    cpdef bint answered_all(self) except -1:
        """Whether all requests that were read are answered."""
        raise NotImplementedError

    def on_grace_over(self):
        """Requests are not waited for any more."""
        raise NotImplementedError

    # -- the end -------------------------------------------------------------------------------

    def drain(self):
        """Take no more requests, answer those in flight within the grace time, then close."""
        self.drain_c()

    def abort(self):
        """Close now."""
        if self.link is not None:
            self.link.close()

    cdef int drain_c(self) except -1:
        cdef DrainingConnection me = self     # the flush may close the connection
        if me.phase != OPEN:
            return 0
        me.phase = DRAINING
        me.on_draining()
        if me.link is not None:
            me.grace_timer = me.loop.call_later(me.service.shutdown_grace, me.on_grace_over)
            me.link.wrote_c()
            me.check_drained()
        return 0

    def wait_last(self, end, *args):
        """Call a function soon: handlers that ignore their cancellation are not waited for."""
        self.grace_timer = self.loop.call_later(LAST_WAIT, end, *args)

    cpdef object check_drained(self):
        """Close a draining connection once everything is answered and sent."""
        cdef DrainingConnection me = self     # the flush may close the connection
        cdef Link link = me.link
        if link is None or not me.answered_all():
            return
        link.closing = True                # nothing more is expected of the peer
        link.update_reading()
        link.flush()
        if me.link is not None and link.idle:
            link.end()

    cpdef object on_drained(self):
        """The peer reads again."""
        if self.phase == DRAINING:
            self.check_drained()

    cpdef object on_eof(self):
        """The peer sends no more: answer its requests, then close."""
        self.drain_c()

    cpdef object on_lost(self, exc):
        if self.grace_timer is not None:
            self.grace_timer.cancel()
            self.grace_timer = None
        PeerConnection.on_lost(self, exc)


cdef class AskingConnection(PeerConnection):
    """An end that asks: the client's. Its owner says why it was lost, and then it fails what was
    not answered (`fail`).

    Args:
        loop: The event loop.
        owner: Gets ``lost(connection, reason)`` when the peer writes no more, and when the link is
            gone: once or more often.
        released: Called when the link is gone; or None.

    Attributes:
        exit_note: Further facts for the errors of requests without an answer.
        lost_error: Why the connection is gone: what calls fail with.
    """

    closed_text = "the connection is closed"
    ended_text = "the connection ended"

    def __init__(self, loop, owner, released):
        PeerConnection.__init__(self, loop, None)
        self.owner = owner
        self.released = released
        self.exit_note = ""
        self.room_waiters = deque()

    # -- for subclasses ------------------------------------------------------------------------

    @property
    def full(self):
        """Whether callers should wait until there is room (`wait_for_room`)."""
        raise NotImplementedError

    def fail_requests(self):
        """No more answers will come: fail the requests that wait, each with an `error`."""
        raise NotImplementedError

    # -- room ----------------------------------------------------------------------------------

    @property
    def usable(self):
        """Whether there is a link that requests can be sent over, now or when it has room."""
        return self.link is not None and self.phase == OPEN

    def wait_for_room(self):
        """Return a future that is done when there may be room or the link is gone. The caller
        then checks `full` again."""
        waiter = self.loop.create_future()
        self.room_waiters.append(waiter)
        return waiter

    cpdef object on_drained(self):
        """Wake callers in their order, one at a time while there is room. Waking all callers would
        be wasted work where only a few large requests fit."""
        while self.room_waiters:
            waiter = self.room_waiters.popleft()
            if not waiter.done():          # not cancelled
                waiter.set_result(None)
                # after the caller's task, which writes first
                self.loop.call_soon(self._more_room)
                return

    def _more_room(self):
        if self.room_waiters and not self.full:
            self.on_drained()

    # -- the end -------------------------------------------------------------------------------

    def leave(self):
        """Ask no more: the peer is gone, or does not read. The link may linger."""
        if self.phase == OPEN:
            self.phase = DRAINING

    cpdef object on_eof(self):
        """The peer sends no more."""
        self.owner.lost(self, "the server closed its output")

    def clean_up(self, exc):
        self.on_drained()
        if self.released is not None:
            self.released()
        reason = self.ended_text if exc is None else f"the link to the server broke ({exc})"
        self.owner.lost(self, reason)

    def fail(self, exc):
        """The connection is gone for good: fail every call at once with `exc`."""
        self.leave()
        if self.lost_error is None:
            self.lost_error = exc
        self.fail_requests()
        self.on_drained()

    def error(self):
        """Return the error of a call that cannot be sent or answered: a new one for each call."""
        if self.lost_error is not None:
            return type(self.lost_error)(*self.lost_error.args)
        return ConnectionClosed(self.closed_text)


cdef class SessionConnection(DrainingConnection):
    """An end with a `wirespeed.core.Session`: what the ``connect`` of a `HttpService` returns.

    A subclass overrides `take`, and answers by `run` or by the methods of ``session``; whatever the
    transport is, the answers find their way. Over HTTP a client of a legacy era has a connection
    for its session. Other requests have a *lane*: a connection that is `shared` and serves one
    request at a time, of any client.

    Args:
        session: The session, with the framing that ``connect`` was given.
        service: Has ``shutdown_grace``, the seconds that requests get at the end.
        loop: The event loop.
        log: The logger of its faults and of its loss; None: they are not logged.

    Attributes:
        principal: A digest of the client's credentials; None without any.
        peer: What the transport knows of the client; None on stdio and in memory.
        revision: The revision that `agree` noted, or that a request without a session has; None:
            the requests are of 2026-07-28, or there was no handshake yet.
    """

    def __init__(self, Session session not None, service, loop, log):
        DrainingConnection.__init__(self, service, loop, log)
        self.wire = self.session = session
        self.outlet = session.outbox
        self.most_unread = 4 * session.output_high

    # -- for subclasses ------------------------------------------------------------------------

    def take(self, Message message not None):
        """Take a message: a request, a notification, a response with the token of its request, or
        one that is not valid. A `wirespeed.errors.ProtocolError` is the answer to the request. Any
        other exception is logged, and answered with -32603.

        Over HTTP a request of 2026-07-28 fits its header fields, and a lane gets no responses.
        """
        raise NotImplementedError

    # -- input ---------------------------------------------------------------------------------

    cpdef object on_data(self):
        cdef SessionConnection me = self   # an event may close the connection
        cdef Message m
        while me.link is not None:
            m = None                       # so that the session may use it again
            m = me.session.next_c()
            if m is None:
                break
            me.take_c(m)
        if me.phase == DRAINING:
            me.check_drained()

    cdef int take_c(self, Message m) except -1:
        cdef HttpHead head
        try:
            if m.kind_c == REQUEST:
                head = self.head_of_c(m)
                if head is not None and is_modern(m):
                    from wirespeed.peer.http.headers import check_headers

                    check_headers(head, m)
            elif m.kind_c == NOTIFICATION:
                if m.ref and type(m.token) is Handler:
                    (<Handler> m.token).cancel_c()
            elif self.shared and self.revision is None and (
                m.kind_c == RESULT or m.kind_c == ERROR or m.token is not None
            ):
                self.peer.refuse_response()
                return 0
            elif m.kind_c == INVALID and m.token is None and self.log is not None:
                self.log_fault(self.session.faults, "bad input: %s", m.reason)
            self.take(m)
        except Exception as exc:
            self.raised_c(m.ref if m.kind_c == REQUEST else 0, m.method, exc)
        return 0

    cdef int raised_c(self, uint64_t ref, str what, object exc) except -1:
        if not isinstance(exc, ProtocolError):
            if self.log is not None:
                self.log.error("internal error at a %s", shortened(str(what)), exc_info=exc)
            exc = ProtocolError(INTERNAL_ERROR, "Internal error")
        if ref:
            self.session.error_c(ref, exc.code, exc.message, exc.data)
        return 0

    cdef HttpHead head_of_c(self, Message m):
        cdef ReplyRoute route = None
        if self.session.inflight.routes is not None:
            route = self.session.route_of_c(m.ref)
        return None if route is None else <HttpHead> route.http_head

    def head_of(self, Message m not None, /):
        """Return the fields of the HTTP request that brought a request, while they are there."""
        return self.head_of_c(m)

    def route_of(self, Message message not None, /):
        """Return the HTTP request that brought a request in flight (`McpExchange`). None: it came
        on the stream."""
        return self.session.route_of_c(message.ref)

    def peer_of(self, Message message not None, /):
        """Return what the transport knows of the client that sent a request in flight: a
        `wirespeed.transport.Peer`, or its `McpExchange`, which has the same attributes."""
        return self.peer_of_c(message.ref)

    cdef object peer_of_c(self, uint64_t ref):
        cdef ReplyRoute route = None if ref == 0 else self.session.route_of_c(ref)
        cdef object peer = None if route is None else route.peer_c()
        return self.peer if peer is None else peer

    @property
    def session_id(self):
        """The id of the session of Streamable HTTP; None without one."""
        session = getattr(self.link, "session", None)
        return None if session is None else session.id

    def agree(self, str version not None, /):
        """Note the revision that the answer to `initialize` names. KeyError: there is no such."""
        from wirespeed.protocol.revisions import REVISIONS

        self.assume_c(REVISIONS[version])

    # -- handlers ------------------------------------------------------------------------------

    def run(self, Message message not None, coroutine, TaskPool pool not None, context=None):
        """Answer a request by a coroutine, which returns the result as JSON text: bytes, or parts.

        A `wirespeed.errors.ProtocolError` is the answer, too. A client that cancels the request, or
        leaves, cancels the coroutine. Returns None if it has ended, else a
        `wirespeed.transport.Running`.
        """
        cdef Handler handler = Handler.__new__(Handler)
        self.handlers = set() if self.handlers is None else self.handlers
        handler.connection = self
        handler.ref = message.ref
        handler.running = pool.start_c(coroutine, handler, context)
        if handler.running is not None:
            self.handlers.add(handler)
            self.session.set_token_c(handler.ref, handler)
        return handler.running

    def cancel_handler(self, Running handler not None, /):
        """Cancel a handler that the subclass has started. Later requests wait until it has ended,
        at most 50 ms: it may hold what they need. Its end is told by `handler_ended`."""
        if handler.cancel():
            self.await_end_c(handler)

    def handler_ended(self, Running handler not None, /):
        """A handler that was cancelled has ended: the requests start that waited for it."""
        self.has_ended_c(handler)

    cdef int await_end_c(self, object handler) except -1:
        self.ending = {handler} if self.ending is None else self.ending | {handler}
        self.session.pauses_requests = True
        if self.hold_timer is None:
            self.hold_timer = self.loop.call_later(MAX_HOLD, self._resume)
        return 0

    cdef int has_ended_c(self, object handler) except -1:
        if self.hold_timer is not None:
            self.ending.discard(handler)
            if not self.ending:
                self._resume()
        return 0

    def _resume(self):
        """Let the requests start that wait behind a cancellation."""
        self.hold_timer.cancel()
        self.hold_timer = None
        self.ending.clear()
        self.session.pauses_requests = False
        self.wrote()

    # -- output --------------------------------------------------------------------------------

    def wrote(self):
        """Something was queued: it leaves at the end of this tick."""
        if self.link is not None:
            self.link.wrote_c()

    cdef bint drops_c(self, uint64_t about) except -1:
        # nothing awaits that notifications leave: without a bound they would fill the memory
        if self.session.writer_about_c(about).out.size < self.most_unread:
            return False
        self.n_dropped += 1
        return True

    cdef int notify_c(self, str method, bytes params, uint64_t about) except -1:
        """Send a notification about a request, unless the peer does not read."""
        if not self.drops_c(about):
            self.session.send_notification(method, params, about=about)
            self.link.wrote_c()
        return 0

    def wait_for_room(self, uint64_t about=0):
        """A future to await while the peer is slow to read; None while it is not. ``about``: the
        `ref` of the request that is talked of."""
        cdef Outbox out = self.outlet
        if about != 0:
            out = self.session.writer_about_c(about).out
        if self.link is None or out.size < self.session.output_high:
            return None
        waiter = self.loop.create_future()
        if self.waiters is None:
            self.waiters = []
        self.waiters.append(waiter)
        return waiter

    cdef int release_waiters_c(self) except -1:
        cdef list waiters = self.waiters
        if waiters is not None:
            self.waiters = None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        return 0

    cpdef object on_drained(self):
        cdef SessionConnection me = self
        me.release_waiters_c()
        DrainingConnection.on_drained(me)

    # -- clients without a session -------------------------------------------------------------

    cdef int assume_c(self, object revision) except -1:
        self.revision = revision
        self.session.batches = revision.batches
        return 0

    cpdef bint renew(self) except -1:
        """Get a lane ready for the next client. False: the last one is still worked for, and the
        lane ends."""
        self.revision = self.principal = self.peer = None
        self.session.batches = False
        self.outlet = self.session.outbox
        self.release_waiters_c()           # for room at the client that was served
        return self.phase == OPEN and not (
            self.session.inflight.live or self.session.pending.live or self.handlers
        )

    # -- the end -------------------------------------------------------------------------------

    def drain(self):
        """Refuse further requests, answer those in flight within the grace time, then close.
        Cancellations and answers to questions are still read."""
        if self.phase == OPEN:
            if self.session.refusal is None:
                self.session.refusal = (SHUTTING_DOWN, FAREWELL)
            self.drain_c()

    def drain_at_rest(self):
        """Close when no request is at work, within the grace time. Until then take more."""
        self.drain_c()

    cpdef bint answered_all(self) except -1:
        """Whether all requests that were read are answered."""
        return self.session.inflight.live == 0 and self.session.n_whole == 0

    def on_grace_over(self):
        """Cancel the handlers of `run`, and cut off the requests that are left soon."""
        self.cancel_handlers_c()
        self.wait_last(self.cut_off, FAREWELL)

    cpdef object on_lost(self, exc):
        cdef SessionConnection me = self   # what ends may run any code
        DrainingConnection.on_lost(me, exc)
        if me.hold_timer is not None:
            me._resume()
        me.cancel_handlers_c()
        me.release_waiters_c()

    cdef int cancel_handlers_c(self) except -1:
        for handler in list(self.handlers or ()):
            (<Handler> handler).running.cancel()
        return 0

    cdef int cut_off_c(self, str why) except -1:
        cdef SessionConnection me = self   # an answer may run any code
        if me.session.refusal is None:
            me.session.refusal = (SHUTTING_DOWN, why)
        me.session.pauses_requests = False
        me.session.cut_off_c(why)
        return 0 if me.link is None else me.link.wrote_c()

    def cut_off(self, str why not None):
        """Answer the requests in flight with an error, for a reason, and close in order."""
        cdef SessionConnection me = self
        me.cut_off_c(why)
        if me.link is not None:
            me.link.flush_now()
        if me.link is not None:
            me.link.end()


cdef class Handler(Completion):
    """The handler of one request; see `SessionConnection.run`."""

    cdef int cancel_c(self) except -1:
        """The peer has cancelled the request: nothing is answered."""
        self.unwanted = True
        if self.running.cancel():
            self.connection.await_end_c(self)
        return 0

    cdef int done_c(self, object result, object exc) except -1:
        cdef SessionConnection connection = self.connection
        connection.handlers.discard(self)
        if self.unwanted:
            connection.session.cancelled_done_c()
            connection.has_ended_c(self)
            if exc is not None and not isinstance(exc, CancelledError):
                connection.raised_c(0, "request that was cancelled", exc)
        elif isinstance(exc, CancelledError):
            connection.session.error_c(self.ref, CUT_OFF, WAS_CUT_OFF, None)
        elif exc is not None:
            connection.raised_c(self.ref, "request", exc)
        else:
            try:
                connection.session.result_c(self.ref, result)
            except Exception as error:
                connection.raised_c(self.ref, "request", error)
        if connection.link is not None:
            connection.link.wrote_c()
            if connection.phase == DRAINING:
                connection.check_drained()
        else:
            connection.session.set_token_c(self.ref, None)    # the token refers to the connection
        return 0
