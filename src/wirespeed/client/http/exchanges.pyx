"""The requests of a client's link over HTTP: POSTs that carry a message each, and GETs that
receive events.

Their methods ``on_…`` are those of a receiver of `wirespeed.transport.http.pool`.
"""

cimport cython

from wirespeed.transport.http.client_connection cimport HttpCall

from wirespeed.transport.backoff import Backoff

# Seconds before a broken stream is opened again, where the server has not said; doubled for each
# further failure in a row, up to a maximum.
RETRY = 1.0
MAX_RETRY = 30.0
# Failures in a row after which a response is given up.
MAX_FAILURES = 6

cdef object NO_HEADERS = {}


cdef class ClientExchange:
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

    def __init__(self, link):
        self.link = link
        self.what = "a stream of events"
        self.headers = NO_HEADERS

    @property
    def request(self):
        """The id of the request that the answer is about, where it is about one alone."""
        return None

    def send(self):
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

    def on_response(self, int status, headers, bint streaming):
        """The head of the answer arrived."""
        self.status, self.headers = status, headers
        if self.link.auth is not None:
            self.link.auth.session.answered(headers)

    def on_body(self, data):
        """The whole body of an answer that is not a stream of events."""

    def on_event(self, event, data, id, retry):
        """One event of the answer."""
        if self.over:
            return
        if id is not None:
            self.last_id = id
        if retry is not None:
            self.retry = retry / 1000
        if len(data) and event == "message":
            self.link.receive(data, self.call, self.request)

    def on_end(self, exc, sent):
        """The exchange is over: nothing else arrives."""

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

    def __init__(self, link, bytes text not None, bytes fields not None, str what not None, id):
        self.link = link
        self.headers = NO_HEADERS
        self.text = text
        self.fields = fields
        self.what = what
        self.id = id
        self.body = b""

    def send(self):
        """Send the message, the first time or again."""
        self.timer = None
        self.status, self.headers, self.body = 0, NO_HEADERS, b""
        self.call = self.link.post(self)

    def put_off(self, double seconds):
        """The server put the message off: send it again later."""
        self.tries += 1
        self.waited += seconds
        self.later(seconds, self.send)

    @property
    def request(self):
        return self.id

    @property
    def waits(self):
        """Whether the message is a request whose response has not arrived."""
        return self.id is not None and self.link.connection.awaits(self.id)

    def on_response(self, int status, headers, bint streaming):
        ClientExchange.on_response(self, status, headers, streaming)
        if self.over or self.call is None:
            return
        if self.call.n_redirects:
            self.link.moved(self.call.target)
        if self.what == "initialize":
            self.link.session_opened(status, headers)

    def on_body(self, data):
        if self.over:
            return
        if self.status == 200 and self.id is not None and not self.link.old:
            if len(data):
                self.link.receive(data, None)
        else:
            self.body = bytes(data)

    def on_end(self, exc, sent):
        """The exchange is over."""
        self.call = None
        if not self.over:
            self.link.posted(self, exc, sent)


@cython.final
cdef class EventStream(ClientExchange):
    """A GET whose answer is a stream of events.

    Attributes:
        post: The message whose response goes on here; None: the stream of the session.
        failures: The number of failures in a row.
    """

    def __init__(self, link, Post post=None):
        ClientExchange.__init__(self, link)
        self.post = post
        if post is not None:
            self.last_id, self.retry = post.last_id, post.retry

    def send(self):
        """Send the request, the first time or again."""
        self.timer = None
        self.status, self.streaming = 0, False
        self.call = self.link.get(self)

    def on_response(self, int status, headers, bint streaming):
        ClientExchange.on_response(self, status, headers, streaming)
        self.streaming = streaming and status == 200
        if self.streaming:
            self.n_challenges = 0  # each token that ends is one of its own

    def on_event(self, event, data, id, retry):
        self.failures = 0
        ClientExchange.on_event(self, event, data, id, retry)
        if self.post is not None and not self.post.waits:
            self.link.resumed(self)

    def on_end(self, exc, sent):
        """The stream ended, or there was none."""
        self.call = None
        if not self.over:
            self.link.stream_ended(self, exc)

    @property
    def request(self):
        return None if self.post is None else self.post.id

    def fail(self):
        """The stream broke, or could not be opened."""
        self.failures += 1

    def reopen(self):
        """Open the stream again, after the pause that the server asked for."""
        pause = RETRY if self.retry is None else self.retry
        if self.failures:
            pause = max(pause, Backoff(RETRY, MAX_RETRY).pause(self.failures))
        self.later(pause, self.send)


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

    def send(self):
        """Send the request, the first time or again."""
        self.status = 0
        self.call = self.link.get(self)

    def on_event(self, event, data, id, retry):
        if event == "endpoint" and not self.over:
            self.link.endpoint_named(self, bytes(data).decode(errors="replace"))
        else:
            ClientExchange.on_event(self, event, data, None, None)

    def on_end(self, exc, sent):
        """The session is over, or there was none."""
        self.call = None
        if not self.over:
            self.link.old_ended(self, exc)


@cython.final
cdef class EndWaiter:
    """A receiver that waits for the end of an exchange."""

    def __init__(self, ended):
        self.ended = ended

    def on_response(self, int status, headers, bint streaming):
        pass

    def on_body(self, data):
        pass

    def on_event(self, event, data, id, retry):
        pass

    def on_end(self, exc, sent):
        if not self.ended.done():
            self.ended.set_result(None)
