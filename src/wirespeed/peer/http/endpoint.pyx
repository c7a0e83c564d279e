"""Streamable HTTP of a service: one path, both eras.

Requests of 2026-07-28 are served by *lanes*: connections without a handshake, each of which serves
one request at a time, of any client. A legacy client has a session, with a connection of its own.
Sources: basic/transports/streamable-http of 2026-07-28, basic/transports of the others.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp

from wirespeed._core.envelope cimport INVALID, REQUEST, Message, is_modern, method_is
from wirespeed._core.framing.http.rfc9112 cimport (
    ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, DELETE, GET, LAST_EVENT_ID, MCP_PROTOCOL_VERSION,
    MCP_SESSION_ID, POST,
)
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.framing.line cimport LineFramer
from wirespeed._core.reader cimport MessageReader
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span
from wirespeed.peer.connection cimport SessionConnection
from wirespeed.peer.http.exchange cimport AUTO, EVENTS, JSON, McpExchange, Streams
from wirespeed.peer.http.headers cimport copy_of, joined
from wirespeed.peer.http.sessions cimport (
    SessionEntry, SessionLink, Sessions, names_process_c,
)
from wirespeed.transport.http.exchange cimport Exchange, HttpTarget, PassedClient
from wirespeed.transport.taskpool cimport TaskPool

import logging
from functools import partial

from wirespeed.peer.http.adoption import Adoption
from wirespeed.peer.http.exchange import SESSION_OVER, dismiss_all, not_passed, refuse
from wirespeed.peer.http.headers import accepts, is_json
from wirespeed.peer.http.http_session import HttpSession
from wirespeed.peer.http.sessions import SessionElsewhere, SessionLimit, is_id
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.transport.options import OF_SESSION, NotPassed, User
from wirespeed.transport.service import Peer

cdef enum:
    MAX_FREE = 256        # lanes that are kept for the next requests

cdef dict RESPONSES = {"auto": AUTO, "json": JSON, "sse": EVENTS}
cdef uint64_t DECIDING = (
    (<uint64_t> 1 << <int> MCP_PROTOCOL_VERSION) | (<uint64_t> 1 << <int> MCP_SESSION_ID)
)
cdef str FIRST_HTTP = "2025-03-26"     # the version where a client names none


logger = logging.getLogger("wirespeed.server")


cdef inline bint is_value(Span value, bytes text) noexcept:
    return (
        value.n == <size_t> PyBytes_GET_SIZE(text)
        and memcmp(value.p, PyBytes_AS_STRING(text), value.n) == 0
    )


cdef object named_by(Exchange exchange):
    """The worker that another host names; None: no other host passes the request on."""
    cdef PassedClient passed = exchange.carrier.passed
    return passed.worker if passed is not None and passed.far else None


cdef inline str text_of(Span value):
    return PyBytes_FromStringAndSize(<const char *> value.p, <Py_ssize_t> value.n).decode("latin-1")


@cython.final
cdef class StreamableHttp(HttpTarget):
    """The endpoint of one service.

    Args:
        service: An `HttpService`.
        options: A `HttpOptions`.
        loop: The event loop.
        pool: Runs handlers.
    """

    def __init__(self, service, options, loop, TaskPool pool not None):
        self.service = service
        self.options = options
        self.loop = loop
        self.pool = pool
        self.lanes = []
        self.response = RESPONSES[options.response]
        self.reader = MessageReader(
            limits=service.limits, framer=LineFramer(service.limits.max_message)
        )
        self.modern_version = max(service.modern_versions, default="").encode()
        self.accept = self.legacy_version = b""
        self.streams = Streams(loop, options)
        if not options.stateless:
            self.sessions = Sessions(
                loop, name=options.name, ttl=options.session_ttl,
                max_sessions=options.max_sessions,
                max_per_principal=options.max_sessions_per_principal,
                on_ended=None if options.directory is None else self._session_ended,
            )
            self.directory = options.directory
        if self.directory is not None:
            self.adoption = Adoption(self, self.sessions, self.directory)
            self.lease = self.directory.lease
            self.directory.join(self, self.sessions.name)

    @property
    def shutdown_grace(self):
        return self.service.shutdown_grace

    cdef Exchange exchange_c(self):
        cdef McpExchange ex = McpExchange.__new__(McpExchange)
        ex.response = self.response
        ex.streams = self.streams
        return ex

    cdef int take_c(self, Exchange exchange, Slab slab, const uint8_t *p, size_t n) except -1:
        try:
            return self.serve_here_c(exchange, slab, p, n)
        except SessionElsewhere as exc:
            body = PyBytes_FromStringAndSize(<const char *> p, <Py_ssize_t> n)
            self._elsewhere(exchange, exc.id, exc.host, body)
        return 0

    cdef int serve_here_c(
        self, Exchange exchange, Slab slab, const uint8_t *p, size_t n
    ) except -1:
        """Answer a request. SessionElsewhere: it is of a session of another process."""
        cdef HttpHead head = exchange.read_head_c()
        cdef Span value
        cdef SessionEntry session
        if head.method_c == POST:
            return self.post_c(<McpExchange> exchange, head, slab, p, n)
        if self.sessions is None or not self.service.legacy_versions:
            return self.refuse_c(
                exchange, 405, "this endpoint takes POST only", [("Allow", "POST")]
            )
        if head.method_c != GET and head.method_c != DELETE:
            return self.refuse_c(
                exchange, 405, "this endpoint takes POST, GET and DELETE",
                [("Allow", "POST, GET, DELETE")],
            )
        session = self.session_c(exchange, head)
        if session is None:
            return 0
        (<McpExchange> exchange).response = AUTO
        if head.method_c == DELETE:
            self.sessions.end(session)
            exchange.respond(204)
        elif not self.is_acceptable_c(<McpExchange> exchange, head):
            return 0
        elif (<McpExchange> exchange).response == JSON:
            return self.refuse_c(exchange, 406, "the response is text/event-stream", ())
        else:
            (<McpExchange> exchange).client = session.connection
            session.open_stream(
                exchange, text_of(value) if head.value_c(LAST_EVENT_ID, &value) else None
            )
        return 0

    # -- requests ------------------------------------------------------------------------------

    cdef int post_c(
        self, McpExchange ex, HttpHead head, Slab slab, const uint8_t *p, size_t n
    ) except -1:
        cdef Span value
        cdef Message m = None
        if not head.value_c(CONTENT_TYPE, &value) or not (
            is_value(value, b"application/json") or is_json(text_of(value))
        ):
            return self.refuse_c(ex, 415, "the body must be application/json", ())
        if head.value_c(CONTENT_ENCODING, &value) and not is_value(value, b"identity"):
            return self.refuse_c(
                ex, 415, "coded bodies are not taken", [("Accept-Encoding", "identity")]
            )
        if not self.is_acceptable_c(ex, head):
            return 0
        if n >= 3 and memcmp(p, b"\xef\xbb\xbf", 3) == 0:    # a byte order mark
            p += 3
            n -= 3
        if head.value_c(MCP_PROTOCOL_VERSION, &value) and not self.is_legacy_c(value):
            if not is_value(value, self.modern_version):
                m = self.read_c(slab, p, n)
                if m.kind_c != INVALID and not is_modern(m):
                    return self.refuse_c(ex, 400, "this protocol version is not supported", ())
                # what refuses a request of the era without sessions names the supported versions
            ex.modern = True
            if names_process_c(Span(p, n)):
                if m is None:
                    m = self.read_c(slab, p, n)
                if self.is_passed_on_c(ex, m, p, n):
                    return 0
            return self.serve_c(self.lane_c(), ex, head, slab, p, n, m)
        return self.legacy_c(ex, head, slab, p, n)

    cdef Message read_c(self, Slab slab, const uint8_t *p, size_t n):
        """Read a body before it is known what serves it."""
        cdef Message m = Message.new()
        self.reader.read_c(m, slab, Span(p, n))
        return m

    cdef int legacy_c(
        self, McpExchange ex, HttpHead head, Slab slab, const uint8_t *p, size_t n
    ) except -1:
        cdef Span value
        cdef Message m
        cdef SessionConnection lane
        cdef SessionEntry session = None
        cdef bint opens = False
        if not self.is_one_c(ex, head):
            return 0
        if head.value_c(MCP_SESSION_ID, &value) and self.sessions is not None:
            session = self.known_c(ex, value)
            if session is not None:
                return self.resumable_c(session, ex, head, slab, p, n, None)
        m = self.read_c(slab, p, n)
        if m.kind_c == REQUEST and not is_modern(m):
            opens = method_is(m, b'"initialize"', "initialize")
        if not opens and head.value_c(MCP_SESSION_ID, &value) and self.sessions is not None:
            return self.refuse_c(ex, 404, SESSION_OVER, ())
        if self.sessions is None or m.kind_c == INVALID or is_modern(m):
            lane = self.lane_c()
            if self.sessions is None and not is_modern(m):
                version = FIRST_HTTP
                if head.value_c(MCP_PROTOCOL_VERSION, &value):
                    version = text_of(value)
                lane.assume_c(REVISIONS[version])
            return self.serve_c(lane, ex, head, slab, p, n, m)
        if not opens or not self.service.legacy_versions:
            if opens or not self.service.legacy_versions:
                ex.modern = True           # there is no other era
                return self.serve_c(self.lane_c(), ex, head, slab, p, n, m)   # names the versions
            return self.refuse_c(ex, 400, "the request needs the header field Mcp-Session-Id", ())
        if self.lease is not None and not self.lease.lasts_c():
            body = PyBytes_FromStringAndSize(<const char *> p, <Py_ssize_t> n)
            self.adoption.renew_first(ex, body)
            return 0
        try:
            session = self.sessions.open(ex.principal, self.new_session)
        except SessionLimit as exc:
            return self.refuse_c(ex, exc.status, str(exc), [("Retry-After", str(exc.retry_after))])
        if self.directory is not None:
            session.keep_at(self)
        ex.opened = session
        session.connection.principal = ex.principal
        session.connection.peer = Peer(ex.address, ex.user)
        return self.resumable_c(session, ex, head, slab, p, n, m)

    cdef int resumable_c(
        self, SessionEntry session, McpExchange ex, HttpHead head, Slab slab, const uint8_t *p,
        size_t n, Message m
    ) except -1:
        """Give a body to a session."""
        if self.streams.store is not None:
            ex.session = session
        return self.serve_c(session.connection, ex, head, slab, p, n, m)

    cdef int serve_c(
        self, SessionConnection client, McpExchange ex, HttpHead head, Slab slab, const uint8_t *p,
        size_t n, Message m,
    ) except -1:
        """Give a body to what serves it. ``m``: The message in it, where it was read."""
        cdef PassedClient passed = ex.carrier.passed
        cdef bint has_fields = passed is None or not passed.streams
        ex.client = client
        client.session.null_ids = False
        if has_fields:
            ex.http_head = head
        else:
            ex.response = AUTO                 # a stream takes messages before the answer
        if client.shared:
            ex.is_lane = True
            client.principal = ex.principal
            client.peer = ex
            client.outlet = ex.out
            (<SessionLink> client.link).via = ex.carrier.link
        # an array is read by what serves it; so is what has blanks around it
        if m is not None and m.kind_c != INVALID and p[0] == c'{' and p[n - 1] == c'}':
            client.session.take_in_c(m, ex)
        else:
            client.session.receive_message_c(slab, p, n, ex)
        client.link.deliver_c()
        ex.http_head = None                    # its bytes may go
        if has_fields and client.shared and client.session.pauses_requests and ex.n_open:
            ex.http_head = copy_of(head)        # for when it is read
        if self.draining:                      # the gate took long
            client.drain()
        if ex.carrier is None:
            return 0
        if ex.response == EVENTS and ex.status == 0 and ex.n_open:
            ex.open_now_c()
        return ex.watch_c()

    cdef bint is_legacy_c(self, Span version) except -1:
        """Whether a version that a header names is one of the legacy ones of this server."""
        cdef str text
        if version.n == 0 or is_value(version, self.modern_version):
            return False
        if not is_value(version, self.legacy_version):
            text = joined(text_of(version))
            if text not in self.service.legacy_versions:
                return False
            self.legacy_version = text.encode()
        return True

    cdef SessionEntry session_c(self, Exchange ex, HttpHead head):
        """The session that a request names; None: the request was refused."""
        cdef Span value
        cdef SessionEntry session
        if not head.value_c(MCP_SESSION_ID, &value):
            self.refuse_c(ex, 400, "the request needs the header field Mcp-Session-Id", ())
            return None
        if not self.is_one_c(ex, head):
            return None
        session = self.known_c(ex, value)
        if session is None:
            self.refuse_c(ex, 404, SESSION_OVER, ())
            return None
        if head.value_c(MCP_PROTOCOL_VERSION, &value) and not self.is_legacy_c(value):
            self.refuse_c(ex, 400, "this protocol version has no sessions", ())
            return None
        return session

    cdef SessionEntry known_c(self, Exchange ex, Span value):
        """The session with an id; None: there is none. SessionElsewhere: another process has it."""
        cdef str id = joined(text_of(value))
        cdef SessionEntry session = self.sessions.find(id, ex.principal)
        if session is not None and session.connection.link is not None:
            if (
                self.lease is not None and not self.lease.lasts_c()
                and not self.directory.may_serve(id)
            ):
                raise SessionElsewhere(id, None)       # maybe by now
            if ex.user is not None and ex.user.data is OF_SESSION:
                opener = session.connection.peer.user
                ex.user = User(ex.user, ex.user.scopes, None if opener is None else opener.data)
            return session                     # else it ended in this turn
        if self.directory is None:
            where = self.sessions.owner(id)
            if where is not None:
                raise SessionElsewhere(id, where)
        elif is_id(id) and not self.directory.own.has_ended(id):
            raise SessionElsewhere(id, self.directory.host_of(id, named_by(ex)))
        return None

    cdef bint is_one_c(self, Exchange ex, HttpHead head) except -1:
        """Whether the fields that decide who serves a request have one value each. If not, the
        request is refused."""
        if head.duplicates & DECIDING:
            for name in ("mcp-protocol-version", "mcp-session-id"):
                if joined(ex.headers.get(name, "")).find(",") >= 0:
                    self.refuse_c(ex, 400, f"the header fields {name} differ", ())
                    return False
        return True

    cdef bint is_acceptable_c(self, McpExchange ex, HttpHead head) except -1:
        """Whether the client takes a response that we can send. If not, the request is refused."""
        cdef Span value
        cdef bint twice
        cdef Response accepted = self.accepted
        if head.value_c(ACCEPT, &value):
            twice = head.twice_c(ACCEPT)
            if twice or value.n == 0 or not is_value(value, self.accept):
                text = ex.headers["accept"] if twice else text_of(value)
                json, events = accepts(text)
                if not json and not events:
                    self.refuse_c(
                        ex, 406,
                        "the response is application/json or text/event-stream: Accept needs both",
                        (),
                    )
                    return False
                accepted = AUTO if json and events else JSON if json else EVENTS
                if not twice:
                    self.accept, self.accepted = text.encode("latin-1"), accepted
            if accepted != AUTO:
                ex.response = accepted
        return True

    cdef int refuse_c(self, Exchange ex, int status, str sentence, object fields) except -1:
        refuse(ex, status, sentence, fields)
        return 0

    # -- what serves them ----------------------------------------------------------------------

    cdef SessionConnection connect_c(self, bint lane):
        cdef SessionConnection client = self.service.connect(
            self._make_link, loop=self.loop, pool=self.pool, lane=lane
        )
        client.shared = lane
        return client

    def _make_link(self, client):
        return SessionLink(self.loop, client)

    def new_session(self, id, streams_name=None, epoch=0):
        """A new session, which the table does not have yet."""
        cdef SessionConnection client = self.connect_c(False)
        # what answers a question of an earlier process answers none of this one
        client.session.pending.begin_after(epoch)
        session = HttpSession(id, client, self.streams, streams_name, epoch)
        client.closed.add_done_callback(lambda _: self.sessions.end(session))
        (<SessionLink> client.link).carry = session.carry
        (<SessionLink> client.link).session = session
        return session

    cdef SessionConnection lane_c(self):
        """A lane for one request."""
        cdef SessionConnection lane = self.spare
        if lane is not None:
            self.spare = None
        elif self.lanes:
            lane = <SessionConnection> self.lanes.pop()
        else:
            lane = self.connect_c(True)
            lane.session.shows_late_responses = True
            lane.closed.add_done_callback(partial(self._lane_closed, lane))
        return lane

    cdef int over_c(self, Exchange exchange) except -1:
        cdef SessionConnection lane = (<McpExchange> exchange).client
        cdef SessionEntry session
        if lane.link is None:
            return 0
        if not lane.shared:
            session = (<SessionLink> lane.link).session
            if session is None:
                return 0
            session.rest_c()
            if session.keeps_state:
                self.directory.own.changed(self, session)
            return 0
        if not lane.renew() or self.draining or len(self.lanes) >= MAX_FREE:
            self.loop.call_soon(lane.abort)    # it may be at work still
        elif self.spare is None:
            self.spare = lane
        else:
            self.lanes.append(lane)
        return 0

    def _lane_closed(self, lane, closed):
        """No request waits for a lane that is gone."""
        dismiss_all(lane, "the server is gone")

    # -- several processes -----------------------------------------------------------------------

    cdef bint is_passed_on_c(
        self, McpExchange ex, Message m, const uint8_t *p, size_t n
    ) except -1:
        """Whether another process gets a request of 2026-07-28, which names it."""
        cdef PassedClient passed = ex.carrier.passed
        if ex.stays or m.kind_c != REQUEST:
            return False
        id, host = self.elsewhere(m, named_by(ex))
        if host is None or (
            passed is not None and passed.worker >= 0
            and not (passed.far and isinstance(host, int))
        ):
            return False
        ex.stays = True
        body = PyBytes_FromStringAndSize(<const char *> p, <Py_ssize_t> n)
        self.pass_on(ex, id, host, body, partial(self._stays, ex, body))
        return True

    def elsewhere(self, Message m not None, named=None):
        """Return which other process a request of 2026-07-28 names: the beginning of the ids of its
        sessions, and ``host`` as of `pass_on`, or None where there is no such process. ``named``:
        The worker that another host names, which passes the request on."""
        place = None if self.sessions is None else self.service.place_of(m)
        if place is None:
            return "", None
        name, _, worker = place.rpartition(".")
        id = f"{name or self.sessions.name}.{worker}."
        if self.directory is None:
            return id, self.sessions.owner(id)
        return id, self.directory.host_of(id, named)

    def pass_on(self, Exchange exchange not None, id, host, body, otherwise):
        """Pass a request on. ``host``: As of `SessionElsewhere`, and known."""
        if isinstance(host, int):
            exchange.carrier.pass_on(exchange, host, body, otherwise)
        else:
            self.directory.pass_on(exchange, id, host, body, otherwise)

    def _stays(self, Exchange exchange, body, why):
        """The process that a request names does not answer. If it has not seen the request, this
        one says what that means."""
        if exchange.carrier is None:
            return                             # the client is gone
        if why is NotPassed.LOST or why is NotPassed.FULL:
            not_passed(exchange, body, why)
        else:
            exchange.carrier.take_again(exchange, body)

    def _elsewhere(self, Exchange exchange, id, host, body):
        """Answer a request of a session that this process does not have. ``host``: As of
        `SessionElsewhere`."""
        cdef PassedClient passed = exchange.carrier.passed
        if passed is not None and not (passed.far and isinstance(host, int)):
            if self.adoption is None:
                exchange.respond(421)
            else:
                self.adoption.not_here(exchange, id, body)
        elif host is None:
            self.adoption.seek(exchange, id, body)
        elif self.adoption is None:
            self.pass_on(exchange, id, host, body, partial(not_passed, exchange, body))
        else:
            asked = self.directory.owner_of(id, host)
            otherwise = partial(self.adoption.not_passed, exchange, id, asked, body)
            self.pass_on(exchange, id, host, body, otherwise)

    def _session_ended(self, id):
        self.directory.own.ended(id, for_good=not self.draining)

    def used_since(self, double when):
        """The sessions that were used after a time of the monotonic clock."""
        return self.sessions.used_since(when)

    def state_of(self, session):
        """The messages that give a new connection the state of a session; None: it cannot move."""
        return self.service.session_messages(session.connection)

    def kept_of(self, session):
        """The values of handlers that move with a session to another host."""
        return self.service.session_kept(session.connection)

    async def save_session(self, session):
        """Write the state of a session where other hosts read it."""
        await self.directory.own.save(self, session)

    def drop_session(self, session):
        """End a session here, which another process has now."""
        session.keep_events()
        self.directory.own.dropped(session.id)
        self.sessions.end(session)

    def drop_sessions(self):
        """End the sessions here that others may have now."""
        for session in self.sessions.used_since(-1.0):
            if not self.directory.may_serve(session.id):
                self.drop_session(session)

    # -- the end -------------------------------------------------------------------------------

    async def prepare(self):
        """Let the other hosts know of this one, before clients show them its sessions."""
        if self.directory is not None:
            await self.directory.announced()

    def share(self, int worker, int n):
        """Name this process in the ids of sessions."""
        if self.sessions is not None:
            self.sessions.share(worker, n)
        if self.directory is not None:
            self.directory.share(worker, n)

    def drain(self):
        """End the sessions: their requests are answered, their streams closed."""
        if self.directory is not None and not self.draining:
            for session in self.sessions.used_since(-1.0):
                session.keep_events()
            self.directory.own.draining(self)
        self.draining = True
        if self.sessions is not None:
            self.sessions.drain()
        if self.spare is not None:
            self.lanes.append(self.spare)
            self.spare = None
        while self.lanes:
            self.lanes.pop().abort()

    async def drained(self):
        """Wait for the requests of the sessions. Others are answered after `close`, too."""
        if self.sessions is not None:
            await self.sessions.drained()

    def close(self):
        """End everything now. The connections end the requests in progress."""
        self.drain()
        if self.sessions is not None:
            self.sessions.close()
        if self.adoption is not None:
            self.adoption.close()

    async def aclose(self):
        """Wait for the event store, and leave the other hosts."""
        await self.streams.aclose()
        if self.directory is not None:
            await self.directory.leave(self)
