"""The requests of a client's link over HTTP: POSTs that carry a message each, and GETs that
receive events.

Each receives its own response.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.slab cimport Slab
from wirespeed.transport.http.client_connection cimport HttpCall, ResponseReceiver
from wirespeed.transport.link cimport Link

from wirespeed.client.http.answers import TRY_LATER, retry_after
from wirespeed.transport.backoff import Backoff
from wirespeed.transport.http.client_connection import ResponseHeaders

# Seconds before a broken stream is opened again, where the server has not said; doubled for each
# further failure in a row. No pause is longer than the second number, except where an event of the
# stream asks for a longer one.
RETRY = 1.0
MAX_RETRY = 30.0
# Failures in a row after which a response is given up, where the server has not said.
MAX_FAILURES = 6
# Seconds of pauses after which a response is given up that the server puts off, or a message that
# is sent again.
MAX_WAITED = 60.0

cdef object NO_HEADERS = {}


cdef class ExchangeLink(Link):
    """The base of `HttpLink`: the owner of exchanges."""

    cdef HttpCall post_c(self, Post post):
        raise NotImplementedError

    cdef int receive_c(
        self, Slab slab, const uint8_t *p, size_t n, HttpCall call, object request
    ) except -1:
        raise NotImplementedError

    cdef int posted_c(self, Post post, object exc, bint sent) except -1:
        raise NotImplementedError


cdef class ClientExchange(ResponseReceiver):
    """A request of HTTP, which may be sent several times.

    Attributes:
        link: The `HttpLink`.
        what: What is sent, in errors: of a message its method, or "a response".
        status: Of the response; 0 before it.
        last_id: Of the last event with an id.
        retry: Seconds before a stream is opened again, as the server said; or None.
        over: Whether nothing that arrives now matters.
        n_tokens: Which token it was sent with, where the link has tokens.
        n_challenges: How often the server demanded another one.
    """

    def __init__(self, ExchangeLink link not None):
        self.link = link
        self.what = "a stream of events"

    @property
    def headers(self):
        """The header fields of the response; none before it."""
        if self.known_headers is None:
            if self.head is None:
                return NO_HEADERS
            self.known_headers = ResponseHeaders(self.head, self.max_head)
        return self.known_headers

    cdef int forget_head_c(self) except -1:
        """The request is sent again."""
        self.status = 0
        self.head = self.known_headers = None
        return 0

    @property
    def request(self):
        """The id of the request that the answer is about, where it is about one alone."""
        return None

    cpdef object send(self):
        """Send the request, the first time or again."""
        raise NotImplementedError

    def abort(self):
        """End the exchange, wherever it stands. A server of 2026-07-28 cancels the request."""
        cdef HttpCall call = self.call
        self.over = True
        self.call = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if call is not None:
            call.abort()

    cdef int response_c(self, HttpHead head, bint streaming) except -1:
        """The head of the answer arrived."""
        self.status = head.status
        self.head = PyBytes_FromStringAndSize(<const char *> head.p, <Py_ssize_t> head.at)
        self.max_head = head.max_head
        self.known_headers = None
        if self.link.auth is not None:
            self.link.auth.session.answered(self.headers)
        return 0

    cdef int event_c(self, str event, object data, str id, object retry) except -1:
        """One event of the answer."""
        cdef Slab slab
        if self.over:
            return 0
        if id is not None:
            self.last_id = id
        if retry is not None:
            self.retry = retry / 1000
        if len(data) and event == "message":
            slab = Slab.borrow(data)
            self.link.receive_c(slab, slab.base, slab.capacity, self.call, self.request)
        return 0

    def on_end(self, exc, bint sent):
        """The exchange is over: nothing else arrives. ``sent``: The server may have got it."""
        self.end_c(exc, sent)

    cdef object put_off_c(self):
        """The seconds for which the server puts the request off (RFC 9110 section 10.2.3), within
        bounds; None: it does not say."""
        seconds = retry_after(self.headers) if self.status in TRY_LATER else None
        return None if seconds is None else min(max(seconds, RETRY), MAX_RETRY)

    def later(self, seconds, run):
        """Call a function later, unless the exchange is aborted before."""
        self.timer = self.link.loop.call_later(seconds, run)


@cython.final
cdef class Post(ClientExchange):
    """A message on its way to the server, and the answer to it.

    Attributes:
        text: The message, JSON text.
        fields: Its header fields, whole lines.
        id: The id of a request; None for other messages.
        body: The body of an answer that is neither a stream nor a success.
        tries: How often the server put the message off.
        waited: Seconds that the message has been put off.
    """

    def __init__(self):
        raise TypeError("posts are made by the link")

    @staticmethod
    cdef Post of(ExchangeLink link, bytes text, bytes fields, str what, object id):
        cdef Post post = Post.__new__(Post)
        post.link = link
        post.text = text
        post.fields = fields
        post.what = what
        post.id = id
        post.body = b""
        return post

    cpdef object send(self):
        """Send the message, the first time or again."""
        self.timer = None
        self.forget_head_c()
        self.body = b""
        self.call = self.link.post_c(self)

    def put_off(self, double seconds):
        """The server put the message off: send it again later."""
        self.tries += 1
        self.waited += seconds
        self.later(seconds, self.send)

    def repeat(self):
        """The message was lost on its way: send it again later. Returns whether that is still worth
        it."""
        if self.waited >= MAX_WAITED:
            return False
        seconds = self.put_off_c()
        self.put_off(Backoff(RETRY, MAX_RETRY).pause(self.tries) if seconds is None else seconds)
        return True

    @property
    def request(self):
        return self.id

    @property
    def waits(self):
        """Whether the message is a request whose response has not arrived."""
        return self.id is not None and self.link.connection.awaits(self.id)

    cdef int response_c(self, HttpHead head, bint streaming) except -1:
        ClientExchange.response_c(self, head, streaming)
        if self.over or self.call is None:
            return 0
        if self.call.n_redirects:
            self.link.moved(self.call.target)
        if self.what == "initialize":
            self.link.session_opened(self.status, self.headers)
        return 0

    cdef int body_c(self, Slab slab, const uint8_t *p, size_t n) except -1:
        if self.over:
            return 0
        if self.status == 200 and self.id is not None and not self.link.old:
            return self.link.receive_c(slab, p, n, None, None) if n else 0
        self.body = (<const char *> p)[:n]
        return 0

    cdef int end_c(self, object exc, bint sent) except -1:
        """The exchange is over."""
        self.call = None
        if not self.over:
            self.link.posted_c(self, exc, sent)
        return 0


@cython.final
cdef class EventStream(ClientExchange):
    """A GET whose answer is a stream of events.

    Attributes:
        post: The message whose response goes on here; None: the stream of the session.
        failures: The number of failures in a row for which the server has not said when to come
            back.
        waited: Seconds for which the server has put the request off, in a row.
    """

    def __init__(self, link, Post post=None):
        ClientExchange.__init__(self, link)
        self.post = post
        if post is not None:
            self.last_id, self.retry = post.last_id, post.retry

    cpdef object send(self):
        """Send the request, the first time or again."""
        self.timer = None
        self.status, self.streaming = 0, False
        self.call = self.link.get(self)

    cdef int response_c(self, HttpHead head, bint streaming) except -1:
        ClientExchange.response_c(self, head, streaming)
        self.streaming = streaming and self.status == 200
        if self.streaming:
            self.n_challenges = 0  # each token that ends is one of its own
        return 0

    cdef int event_c(self, str event, object data, str id, object retry) except -1:
        self.failures = 0
        self.waited = 0.0
        ClientExchange.event_c(self, event, data, id, retry)
        if self.post is not None and not self.post.waits:
            self.link.resumed(self)
        return 0

    cdef int end_c(self, object exc, bint sent) except -1:
        """The stream ended, or there was none."""
        self.call = None
        if not self.over:
            self.link.stream_ended(self, exc)
        return 0

    @property
    def request(self):
        return None if self.post is None else self.post.id

    def fail(self):
        """The stream broke, or could not be opened. Returns whether its response is given up."""
        seconds = self.put_off_c()
        if seconds is None:
            self.failures += 1
            seconds = Backoff(RETRY, MAX_RETRY).pause(self.failures)
        else:
            self.waited += seconds
        self.pause = seconds
        return self.failures > MAX_FAILURES or self.waited > MAX_WAITED

    def reopen(self):
        """Open the stream again, after the pause that the server asked for."""
        self.later(max(self.pause, RETRY if self.retry is None else self.retry), self.send)


@cython.final
cdef class OldStream(ClientExchange):
    """The stream of HTTP+SSE (2024-11-05 basic/transports), which carries all messages of the
    server. Its first event says where the client's messages go.

    Attributes:
        post: The ``initialize`` that the server refused as Streamable HTTP.
        refusal: How it was refused.
    """

    def __init__(self, link, Post post not None, refusal):
        ClientExchange.__init__(self, link)
        self.post = post
        self.refusal = refusal

    cpdef object send(self):
        """Send the request, the first time or again."""
        self.status = 0
        self.call = self.link.get(self)

    cdef int event_c(self, str event, object data, str id, object retry) except -1:
        if event == "endpoint" and not self.over:
            self.link.endpoint_named(self, bytes(data).decode(errors="replace"))
        else:
            ClientExchange.event_c(self, event, data, None, None)
        return 0

    cdef int end_c(self, object exc, bint sent) except -1:
        """The session is over, or there was none."""
        self.call = None
        if not self.over:
            self.link.old_ended(self, exc)
        return 0


@cython.final
cdef class EndWaiter(ResponseReceiver):
    """A receiver that waits for the end of an exchange."""

    def __init__(self, ended):
        self.ended = ended

    cdef int end_c(self, object exc, bint sent) except -1:
        if not self.ended.done():
            self.ended.set_result(None)
        return 0
