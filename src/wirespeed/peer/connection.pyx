"""One end of a connection: its phase and its loss, the faults of its peer.

An end that answers is drained. An end that asks fails what was not answered. An end with a session
drops notifications to a peer that does not read. docs/architecture.md, "Closing", has the table of
phases.
"""

from libc.stdint cimport uint64_t

from wirespeed._core._simd cimport WIRESPEED_ABI
from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.json_text cimport json_text
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.session cimport Session
from wirespeed.transport.link cimport Link

import logging
from collections import deque

import msgspec

from wirespeed._core import _simd, responder
from wirespeed.errors import ConnectionClosed
from wirespeed.protocol.codes import SHUTTING_DOWN
from wirespeed.transport.taskpool_choice import LAST_WAIT

cdef object encode = msgspec.json.Encoder().encode
cdef object to_builtins = msgspec.to_builtins

if _simd.ABI != <int> WIRESPEED_ABI:
    raise ImportError(
        "wirespeed and wirespeed-core are of different versions: install the same version of both"
    )

cdef enum:
    MAX_LOGGED_FAULTS = 100


def encode_data(data):
    """Return the JSON text of an error's data, which is what msgspec encodes. Lone surrogates,
    which a peer's text may hold, are written as escapes."""
    try:
        return encode(data)
    except UnicodeEncodeError:
        return json_text(to_builtins(data))


responder.encode_data_by(encode_data)


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


cdef class AnsweringConnection(PeerConnection):
    """An end that answers what it was asked before it closes.

    Args:
        service: Has ``shutdown_grace``, the seconds that requests get at the end; None for an end
            that is never drained.
        loop: The event loop.
        log: See `PeerConnection`.
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
        cdef AnsweringConnection me = self     # the flush may close the connection
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
        cdef AnsweringConnection me = self     # the flush may close the connection
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


cdef class SessionConnection(AnsweringConnection):
    """An end with a `Session`: what `wirespeed.transport.service.Service.connect` returns, where
    the service can be served over HTTP."""

    def __init__(self, Session session not None, service, loop, log):
        AnsweringConnection.__init__(self, service, loop, log)
        self.wire = self.session = session
        self.outlet = session.outbox

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
        raise NotImplementedError

    cdef HttpHead head_of_c(self, Message m):
        cdef ReplyRoute route = None
        if self.session.inflight.routes is not None:
            route = self.session.route_of_c(m.ref)
        return None if route is None else <HttpHead> route.http_head

    def head_of(self, Message m not None, /):
        """Return the fields of the HTTP request that brought a request; None: there are none, or
        they are gone."""
        return self.head_of_c(m)

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
        AnsweringConnection.on_drained(me)

    # -- clients without a session -------------------------------------------------------------

    cdef int assume_c(self, object revision) except -1:
        self.revision = revision
        self.session.batches = revision.batches
        return 0

    cdef bint renew_c(self) except -1:
        self.revision = self.principal = self.peer = None
        self.session.batches = False
        self.outlet = self.session.outbox
        self.release_waiters_c()           # for room at the client that was served
        return self.phase == OPEN and not (
            self.session.inflight.live or self.session.pending.live
        )

    # -- the end -------------------------------------------------------------------------------

    cpdef bint answered_all(self) except -1:
        return self.session.inflight.live == 0 and self.session.n_whole == 0

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
