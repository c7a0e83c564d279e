"""A TCP connection of an HTTP server: one request after another.

A request is taken when the response before it is complete (RFC 9112 section 9.3.2). Bytes are read
on meanwhile, a bounded number of them, so that the end of the client is noticed.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp

import asyncio
import inspect
import logging

from wirespeed._core.framing.base cimport FRAME_READY
from wirespeed._core.framing.http.rfc9112 cimport (
    AUTHENTICATION, AUTHORIZATION, HEAD, HOST, OPTIONS, ORIGIN,
)
from wirespeed._core.framing.http.framer cimport HttpFramer
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.slab cimport Lease, Slab
from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire
from wirespeed.transport.http.exchange cimport (
    Carrier, Exchange, HttpTarget, PassedClient, headers_c,
)
from wirespeed.transport.http.site cimport Admitted, HttpSite, PageOrigin, value_of

from wirespeed._core.framing.http.writer import field_lines
from wirespeed.errors import shortened
from wirespeed.transport.gate import Refused
from wirespeed.transport.http import cors
from wirespeed.transport.options import HttpRequest, Refusal

logger = logging.getLogger("wirespeed.server")
cdef int WARNING = logging.WARNING
cdef int INFO = logging.INFO

TOO_MANY = Refusal(503, "too many connections", {"Retry-After": "5"})
TOO_SLOW = Refusal(503, "the request could not be authorized in time", {"Retry-After": "5"})
SHUTTING_DOWN = Refusal(503, "the server is shutting down")
EXPIRED = Refusal(401, "the credentials of the client have expired")
NO_BODY = Refusal(413, "this request needs no body")
NO_ROOM = Refusal(503, "too many requests are not complete yet", {"Retry-After": "5"})
NOTHING = "nothing is served at this path"
PLAIN = ("Content-Type", "text/plain; charset=utf-8")

cdef enum:
    MAX_AHEAD = 65536     # bytes that are read while a request is being answered
    CLIENT_LEFT = 499     # in the access log: no response, because nobody waited for it

cdef enum:                # what the connection waits for
    RESPONSE
    REQUEST               # its first byte
    REST_OF_HEAD
    REST_OF_BODY
    VERDICT               # of the gate

cdef tuple STAGES = (None, "request", "head", "body", "verdict")


@cython.final
cdef class HttpWire(Wire):
    """The wire of an `HttpConnection`."""

    def __cinit__(self, HttpFramer framer not None, limits):
        self.join_c(limits, framer)

    cdef bint want_read_c(self) noexcept:
        if self.still:
            return False
        if self.busy or self.pending:
            return self.framer.buffered_c() < MAX_AHEAD
        return self.outbox.size < self.output_high

    cdef bint wants_turn_c(self) noexcept:
        return self.pending and not self.busy


cdef bint wants_websocket(HttpHead head) except -1:
    """Whether the client asks for a WebSocket on this stream (RFC 6455 section 4.1)."""
    cdef str name, value
    for name, value in head.fields:
        if name.lower() == "upgrade" and value.lower() == "websocket":
            return True
    return False


@cython.final
cdef class HttpConnection(Carrier):
    """One TCP connection, or what stands for one.

    Args:
        site: What is served.
        address: The address of the client, as text for people.
        full: Refuse every request, because there are too many connections.
    """

    def __init__(self, HttpSite site not None, str address not None, *, bint full=False):
        options = site.options
        self.full = full
        self.site = site
        self.address = address
        self.framer = HttpFramer(
            "server", max_body=site.limits.max_message, max_head=options.max_head,
            max_target=options.max_target, max_fields=options.max_fields,
        )
        self.framer.shows_failed = True
        self.framer.budget = site.budget
        self.output = self.framer.output
        self.wire = self.http = HttpWire(self.framer, site.limits)
        self.closed = site.loop.create_future()

    # -- what the link tells -------------------------------------------------------------------

    cpdef object on_data(self):
        cdef HttpConnection me = self    # an answer may close the connection
        cdef Span body
        self.http.pending = False
        if self.opening is not None:
            me.hand_over_c()
            return
        if self.last and self.exchange is None:
            me.close_c()
        while me.link is not None and self.opening is None:
            if self.http.still:
                break
            if self.exchange is not None or self.http.outbox.size >= self.http.output_high:
                self.http.pending = self.framer.buffered_c() != 0
                break
            if self.framer.next_frame_c(&body) != FRAME_READY:
                self.unfinished_c()
                break
            self.request_c(body)

    cpdef object on_drained(self):
        if self.exchange is not None:
            self.exchange.drained_c()

    def on_slow(self):
        """Tell the exchange whose client does not read its response."""
        if self.exchange is not None:
            self.exchange.on_slow()

    cpdef object on_eof(self):
        cdef HttpConnection me = self
        # A client that ends its side while its request is answered has left: a closed socket and
        # one that is closed on one side look the same. Output that is complete is sent.
        self.last = True
        if me.exchange is None:
            me.close_c()
        elif me.link is not None:
            me.link.close()

    cpdef object on_lost(self, exc):
        cdef HttpConnection me = self
        cdef Exchange exchange = self.exchange
        self.exchange = None
        try:
            if exchange is not None:
                self.log_c(exchange)
                exchange.gone_c()
            elif self.http.still:
                self._withdraw()
        finally:
            if not me.closed.done():
                me.closed.set_result(exc)

    def on_failed(self, exc):
        """There is no memory for the rest of a request: refuse it."""
        if (
            not isinstance(exc, MemoryError) or self.exchange is not None or self.refused
            or self.last or self.opening is not None
        ):
            return False
        return self.turn_away_c(NO_ROOM) == 0

    # -- requests ------------------------------------------------------------------------------

    cdef int unfinished_c(self) except -1:
        """A request is not whole yet. Refuse it if it breaks a rule, before the rest arrives."""
        cdef HttpFramer framer = self.framer
        if self.refused:
            return 0
        if framer.failure is not None:
            self.output.answer_c(1, False, True)
            return self.refuse_c(framer.failure[0], framer.failure[1], ())
        if not framer.has_head_c() or self.looked:
            return 0
        self.looked = True
        target = self.target_c()
        self.site.date_c()
        if self.full:
            return self.turn_away_c(TOO_MANY)
        if target is None:
            return self.turn_away_c(Refusal(404, NOTHING))
        if self.is_unasked_c(target, framer.head):
            if framer.head.chunked or framer.head.length > <uint64_t> MAX_AHEAD:
                return self.turn_away_c(NO_BODY)
            return self.continue_c()
        try:
            verdict = self.judge_c(target, framer.head)
        except Refused as exc:
            return self.turn_away_c(exc.refusal)
        if verdict is not None:
            self.http.still = True
            self.admission = self.site.admit_c(self._admit_early(target, verdict))
            return 0
        self.known_early = self.admitted
        return self.continue_c()

    cdef int continue_c(self) except -1:
        """The body of the request may come."""
        if self.framer.awaits_continue_c():
            self.framer.continued = True
            self.output.send_continue_c()
        return 0

    async def _admit_early(self, HttpTarget target, verdict):
        """Read the body of a request when the gate has decided."""
        refusal = None
        try:
            verdict = await verdict
        except asyncio.CancelledError:     # of this task, or of one of the gate's own
            refusal = SHUTTING_DOWN
        except Refused as exc:
            refusal = exc.refusal
        except Exception as exc:
            logger.error("internal error of the gate", exc_info=exc)
            refusal = Refusal(500, "internal error")
        self.http.still = False
        if self.link is None or self.refused:
            return                         # the client is gone, or was refused meanwhile
        if refusal is None:
            self.admit_c(target, self.framer.known_head_c(), verdict)
            self.known_early = self.admitted
            self.continue_c()
        else:
            self.turn_away_c(refusal)
        if self.link is not None:
            self.link.deliver_c()

    def _withdraw(self):
        """The client is gone, or was refused, before the gate has decided."""
        self.site.withdraw_c(self.admission)

    cdef int turn_away_c(self, object refusal) except -1:
        """Refuse a request that is not whole."""
        cdef HttpHead head = self.framer.known_head_c()
        if head is None:
            self.output.answer_c(1, False, True)
        else:
            self.output.answer_c(head.minor, head.method_c == HEAD, True)
        return self.refuse_c(refusal.status, refusal.reason, refusal.headers.items())

    cdef int refuse_c(self, int status, str sentence, object fields) except -1:
        """Send a response that is the last one, and close: the rest of the input is not read."""
        cdef tuple shown = self.shown_c()
        cdef int level = self.level_c(status, self.framer.known_head_c())
        self.refused = True
        self.framer.stop_c()
        self.framer.respond(
            status, sentence.encode() + b"\n", fields=(PLAIN, *fields, *shown)
        )
        self.site.quiet.log(
            level, "refused %s: %d %s", self.address, status, sentence
        )
        self.framer.settle_c()             # free what was read of it
        self.last = True
        return self.close_c()

    cdef int nothing_c(self, HttpHead head) except -1:
        """Answer a request for a path at which nothing is served. A page sees the 404 only if its
        preflight succeeds."""
        cdef tuple fields = self.shown_c()
        cdef object headers = headers_c(head) if fields else {}
        if head.method_c == OPTIONS and cors.is_preflight(headers):
            self.framer.respond(204, fields=cors.preflight_fields(headers, cors.METHODS))
            return self.ended_c()
        self.site.quiet.log(WARNING, "refused %s: 404 %s", self.address, NOTHING)
        self.framer.respond(404, NOTHING.encode() + b"\n", fields=(PLAIN, *fields))
        return self.ended_c()

    # -- access checks -------------------------------------------------------------------------

    cdef HttpTarget target_c(self):
        """The target at the path of the request; None: nothing is served there."""
        cdef Span path = self.framer.head.path_c()
        cdef bytes text
        if (
            self.path is not None and self.known is self.site.targets
            and path.n == <size_t> PyBytes_GET_SIZE(self.path)
            and memcmp(path.p, PyBytes_AS_STRING(self.path), path.n) == 0
        ):
            return self.target
        text = PyBytes_FromStringAndSize(<const char *> path.p, <Py_ssize_t> path.n)
        self.known = self.site.targets
        self.target = self.known.get(text)
        if self.target is None:                # a slash at the end says nothing else
            other = text.removesuffix(b"/") if text.endswith(b"/") else text + b"/"
            self.target = self.known.get(other)
        if self.target is None:
            self.target = self.site.below_c(text)
        self.path = None if self.target is None else text
        return self.target

    cdef object read_request_c(self):
        """The request whose head has arrived, for the gate."""
        cdef HttpHead head = self.framer.head
        cdef object headers = headers_c(head), forwarded = self.site.forwarded
        return HttpRequest(
            path=head.path, query=head.query or "", headers=headers,
            peer=self.address if forwarded is None else forwarded.peer(self.address, headers),
            method=head.method, certificate=self.certificate,
        )

    cdef bint is_admitted_c(self, HttpTarget target, HttpHead head) except -1:
        """Whether the gate let in a request with the same fields before."""
        if self.admitted is not None and self.admitted.covers_c(target, head, self.site.now):
            return True
        self.admitted = self.site.find_c(target, head)
        return self.admitted is not None

    cdef bint is_unasked_c(self, HttpTarget target, HttpHead head) except -1:
        """Whether the request of a page's browser is answered without asking the gate."""
        return head.method_c == OPTIONS and "OPTIONS" not in target.methods

    cdef object judge_c(self, HttpTarget target, HttpHead head):
        """Ask the gate about a request, unless it has decided on the same fields before. Returns
        None, and `admitted` is the verdict, or what has to be awaited. Refused: it is not let
        in."""
        if not target.opens and self.is_admitted_c(target, head):
            return None
        verdict = target.admit(self.site.gate, self.read_request_c())
        if inspect.isawaitable(verdict):
            return verdict
        self.admit_c(target, head, verdict)
        return None

    cdef int admit_c(self, HttpTarget target, HttpHead head, object verdict) except -1:
        """The gate has let a request in."""
        # what may depend on a certificate holds for this connection alone
        self.admitted = self.site.keep_c(
            target, head, verdict, not target.opens and self.certificate is None
        )
        self.fields = field_lines(verdict.fields) if verdict.fields else None
        return 0

    # -- web pages (Fetch, "CORS protocol") ----------------------------------------------------

    cdef PageOrigin page_c(self, HttpHead head):
        """The page that sends a request; None: no page does. Refused: it may not connect."""
        cdef PageOrigin page = self.page
        if page is not None and page.sends_c(head):
            return page
        request = self.read_request_c()
        self.site.gate.check_page(request)
        if "origin" not in request.headers:
            return None
        page = PageOrigin(value_of(head, ORIGIN), value_of(head, HOST))
        if head.n_authority == 0:
            self.page = page
        return page

    cdef bint options_c(self, Exchange exchange, HttpHead head) except -1:
        """Let the browser of a web page show it the response. True: the request is OPTIONS, and was
        answered. Refused: the page may not connect."""
        cdef PageOrigin page
        cdef tuple methods = exchange.target.methods
        if exchange.target.for_pages:
            if head.method_c == OPTIONS:
                exchange.respond(204, b"", cors.public_preflight_fields(methods))
            return head.method_c == OPTIONS
        page = self.page_c(head)
        if page is not None:
            exchange.more_fields = page.lines
        if head.method_c != OPTIONS or "OPTIONS" in methods:
            return False
        headers = headers_c(head)
        fields = [("Allow", ", ".join((*methods, "OPTIONS")))]
        if cors.is_preflight(headers):
            exchange.more_fields = b""
            fields += cors.preflight_fields(headers, methods)
        exchange.respond(204, b"", fields)
        return True

    cdef tuple shown_c(self):
        """The header fields that let a page read the refusal of its request."""
        cdef HttpHead head = self.framer.known_head_c()
        cdef PageOrigin page = None
        cdef Span field
        if head is None:
            # Its Origin is not known. The last page is asked for, unless others may use this
            # connection: its browser compares the origin.
            if not self.output.apart and self.site.forwarded is None:
                page = self.page
        elif head.value_c(ORIGIN, &field):
            try:
                page = self.page_c(head)
            except Refused:
                pass
        return () if page is None else page.fields

    cdef int level_c(self, int status, HttpHead head) except -1:
        """The level of the log line of a refusal. A first request without credentials is how
        clients find out what is needed."""
        cdef Span field
        if (
            status == 401 and head is not None and not head.value_c(AUTHORIZATION, &field)
            and not head.value_c(AUTHENTICATION, &field)
        ):
            return INFO
        return WARNING

    # -- the access log ------------------------------------------------------------------------

    cdef long long sent_c(self) noexcept:
        return <long long> self.http.bytes_out + <long long> self.http.outbox.size

    cdef int note_c(self, Exchange exchange) except -1:
        """A request begins that is logged at its end."""
        exchange.keep_head_c()
        self.began = self.site.loop.time()
        self.sent_before = self.sent_c()
        return 0

    cdef int log_c(self, Exchange exchange) except -1:
        """A request is at its end."""
        if self.site.log is not None:
            self.site.log.log(
                exchange.address, exchange.method, exchange.path, exchange.status or CLIENT_LEFT,
                self.sent_c() - self.sent_before, self.site.loop.time() - self.began,
                exchange.headers.get("mcp-method"),
            )
        return 0

    cdef int request_c(self, Span body) except -1:
        """Answer the request that was framed last."""
        cdef HttpConnection me = self    # an answer may close the connection
        cdef HttpFramer framer = self.framer
        cdef HttpHead head = framer.head
        cdef HttpTarget target = self.target_c()
        cdef Exchange exchange
        cdef Span origin
        cdef Admitted early = None
        if self.looked:
            self.looked = False
            early, self.known_early = self.known_early, None
        self.n_requests += 1
        self.output.date = self.site.date_c()
        self.output.answer_c(
            head.minor, head.method_c == HEAD,
            framer.ended or self.last or self.full or self.site.closes
            or self.n_requests == self.site.max_requests,
        )
        if self.full:
            return self.refuse_c(TOO_MANY.status, TOO_MANY.reason, TOO_MANY.headers.items())
        if head.upgrades and wants_websocket(head):
            self.output.closes = True      # such a client asks for nothing else
            if target is not None and target.websocket is not None:
                target = target.websocket
        if target is None:
            return self.nothing_c(head)
        exchange = target.exchange_c()
        exchange.join_c(self, target)
        self.exchange = exchange
        self.http.busy = True
        if self.site.log is not None:
            self.note_c(exchange)
        if self.site.forwarded is not None and self.passed is None:
            exchange.address = self.site.forwarded.peer(self.address, headers_c(head))
        try:
            if self.passed is not None:
                self.introduce_c(exchange)
                target.take_c(exchange, framer.slab, body.p, body.n)
                return me.rest_c(exchange)
            if (
                (head.method_c == OPTIONS or head.value_c(ORIGIN, &origin))
                and self.options_c(exchange, head)
            ):
                return 0
            if early is not None and early.lasts_c(target, head, self.site.now):
                self.admitted = early
            else:
                verdict = self.judge_c(target, head)
                if verdict is not None:
                    self.http.still = True
                    self.admission = self.site.admit_c(
                        self._admit(exchange, Lease.of(framer.slab, body.p, body.n), verdict)
                    )
                    exchange.on_gone = self._withdraw
                    return 0
            if self.fields is not None:
                exchange.more_fields += self.fields
                self.fields = None
            exchange.user = self.admitted.user
            exchange.expires = self.admitted.expires
            exchange.principal = self.admitted.principal
            target.take_c(exchange, framer.slab, body.p, body.n)
        except Refused as exc:
            self._refuse(exchange, exc.refusal)
        except Exception as exc:
            self._failed(exchange, exc)
        return me.rest_c(exchange)

    def pass_on(self, Exchange exchange not None, int worker, bytes body not None, otherwise):
        """Let another worker answer a request. ``otherwise``: As of `AskingEnd.pass_on`."""
        self.site.workers.pass_on(exchange, worker, body, otherwise)

    cdef int serve_c(self, PassedClient client) except -1:
        self.passed = client
        self.address = client.address
        return 0

    cdef int introduce_c(self, Exchange exchange) except -1:
        """Another process has let the client in. Refused: its credentials have expired."""
        cdef PassedClient client = self.passed
        if client.expires <= self.site.now:
            raise Refused(EXPIRED)
        exchange.user = client.user
        exchange.expires = client.expires
        exchange.principal = client.principal
        return 0

    def upgrade(self, bytes answer not None, opening):
        """Answer the request in progress with the head of a response behind which the stream is
        of another protocol. `on_upgrade` gets what is to be opened, and the bytes that were read
        behind the request, when the answer has left."""
        cdef HttpConnection me = self
        cdef Exchange exchange = self.exchange
        exchange.keep_head_c()
        exchange.status = 101
        self.exchange = exchange.carrier = None
        self.http.busy = self.http.still = False
        self.opening = opening
        self.last = True
        self.http.outbox.text_c(answer)
        self.log_c(exchange)
        self.link.flush()
        if me.link is not None:
            me.hand_over_c()

    cdef int hand_over_c(self) except -1:
        """Leave the stream to another protocol once all is sent."""
        cdef object opening = self.opening
        if self.http.outbox.size:
            self.http.pending = True
        else:
            self.opening = None
            self.on_upgrade(opening, self.framer.take_rest_c())
        return 0

    cdef int rest_c(self, Exchange exchange) except -1:
        """A request goes on: keep its head, and none of its input."""
        cdef HttpFramer framer = self.framer
        if self.exchange is exchange:
            exchange.keep_head_c()
            if framer.start == framer.end and framer.lent is None:
                framer.drop_slab_c()
        return 0

    async def _admit(self, Exchange exchange, Lease body, verdict):
        """Answer a request when the gate has decided."""
        try:
            verdict = await verdict
            if exchange.carrier is None:
                return             # the client is gone, or was refused meanwhile
            exchange.on_gone = None
            exchange.user, exchange.principal = verdict.user, verdict.principal
            exchange.expires = verdict.expires
            if verdict.fields:
                exchange.more_fields += field_lines(verdict.fields)
            exchange.target.take_c(exchange, body.slab, body.p, <size_t> body.n)
        except asyncio.CancelledError:     # of this task, or of one of the gate's own
            if exchange.carrier is not None:
                self._refuse(exchange, SHUTTING_DOWN)
        except Refused as exc:
            self._refuse(exchange, exc.refusal)
        except Exception as exc:
            self._failed(exchange, exc)
        self.http.still = False
        if self.link is not None:
            self.rest_c(exchange)
            self.link.update_reading()
            self.link.flush_now()

    def take_again(self, Exchange exchange not None, bytes body not None):
        """Let the target answer a request whose answer had to wait for something."""
        cdef Slab slab = Slab.borrow(body)
        try:
            exchange.target.take_c(exchange, slab, slab.base, slab.capacity)
        except Refused as exc:
            self._refuse(exchange, exc.refusal)
        except Exception as exc:
            self._failed(exchange, exc)
        if self.link is not None:
            self.rest_c(exchange)
            self.link.flush_now()

    def _refuse(self, Exchange exchange, refusal):
        self.site.quiet.log(
            self.level_c(refusal.status, exchange.read_head_c()),
            "refused %s: %d %s", exchange.address, refusal.status, refusal.reason,
        )
        if not exchange.status:
            exchange.respond(
                refusal.status, refusal.reason.encode() + b"\n",
                [PLAIN, *refusal.headers.items()],
            )

    def _failed(self, Exchange exchange, exc):
        logger.error("internal error at %s", shortened(exchange.path), exc_info=exc)
        if not exchange.status:
            exchange.respond(500, b"internal error\n", [PLAIN])
        elif self.link is not None:
            self.link.close()

    cdef int over_c(self, Exchange exchange) except -1:
        if self.exchange is exchange:
            self.exchange = None
            self.http.busy = False
            self.log_c(exchange)
            return self.ended_c()
        return 0

    cdef int ended_c(self) except -1:
        """A response is complete."""
        if self.output.closes or self.last:
            self.last = True
            return self.close_c()
        return 0

    cdef int close_c(self) except -1:
        """Close once all is sent."""
        cdef HttpConnection me = self
        if me.link is not None:
            me.link.flush()
        if me.link is not None and me.link.idle:
            me.framer.finish_c()
            if me.framer.eof:
                me.link.close()        # the client closed first: there is nothing to wait for
            else:
                me.link.check_over_c()
        return 0

    # -- the end -------------------------------------------------------------------------------

    cdef int waits_for_c(self) noexcept:
        if self.http.still:
            return VERDICT
        if self.exchange is not None:
            return RESPONSE
        if self.framer.has_head_c():
            return REST_OF_BODY
        return REST_OF_HEAD if self.framer.buffered_c() else REQUEST

    @property
    def waits_for(self):
        """The stage that is awaited: of the client "request", "head" or "body", of the gate
        "verdict"; None while we answer."""
        return STAGES[self.waits_for_c()]

    def time_out(self):
        """The client or the gate took too long."""
        cdef int stage = self.waits_for_c()
        if self.last:
            self.abort()                   # it does not read the last response
        elif stage == REQUEST:
            self.drain()
        elif stage == VERDICT:
            self.give_up_c(TOO_SLOW)
        elif stage != RESPONSE:
            self.output.answer_c(1, False, True)
            self.refuse_c(408, f"the {STAGES[stage]} of the request took too long", ())

    cdef int give_up_c(self, object refusal) except -1:
        """Refuse the request on which the gate has not decided, and close."""
        cdef HttpConnection me = self
        self._withdraw()
        if self.exchange is None:
            self.http.still = False
            self.turn_away_c(refusal)
            if me.link is not None:
                me.link.update_reading()
        else:
            self.output.closes = True
            self._refuse(self.exchange, refusal)
        return 0

    def drain(self):
        """Answer the request in progress, then close."""
        cdef HttpConnection me = self
        cdef bint closing = self.last
        if not self.draining:
            self.draining = self.last = True
            if me.exchange is None:
                if closing or self.waits_for_c() == REQUEST:
                    me.close_c()
                elif self.http.still:
                    self.give_up_c(SHUTTING_DOWN)
                else:
                    self.output.answer_c(1, False, True)
                    self.refuse_c(SHUTTING_DOWN.status, SHUTTING_DOWN.reason, ())
            elif self.http.still and self.exchange.target.opens:
                self.give_up_c(SHUTTING_DOWN)
            else:
                self.output.closes = True
                me.exchange.drain_c()

    def abort(self):
        """Close now."""
        if self.link is not None:
            self.link.close()
