"""The exchanges of a link: POSTs that carry a message each, and GETs that receive events.

Their methods ``on_…`` are those of a receiver of `wirespeed.transport.http.pool`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import Future, TimerHandle

    from wirespeed.client.http.link import HttpLink
    from wirespeed.errors import HttpStatusError, RemoteError
    from wirespeed.transport.http.client_connection import HttpCall
    from wirespeed.transport.options import Headers

# Seconds before a broken stream is opened again, where the server has not said; doubled for each
# further failure in a row, up to a maximum.
RETRY = 1.0
MAX_RETRY = 30.0
# Failures in a row after which a response is given up.
MAX_FAILURES = 6

NO_HEADERS: Any = {}


class Exchange:
    """A request of HTTP, which may be sent several times.

    Attributes:
        n_tokens: Which token it was sent with, where the link has tokens.
        n_challenges: How often the server demanded another one.
    """

    __slots__ = (
        "call",
        "headers",
        "last_id",
        "link",
        "n_challenges",
        "n_tokens",
        "over",
        "retry",
        "status",
        "timer",
    )

    what = "a stream of events"

    def __init__(self, link: HttpLink) -> None:
        self.link = link
        self.call: HttpCall | None = None
        self.timer: TimerHandle | None = None
        self.status = 0  # of the answer; 0 before it
        self.headers: Headers = NO_HEADERS
        self.last_id: str | None = None  # of the last event with an id
        self.retry: float | None = None  # seconds, as the server said
        self.over = False  # nothing that arrives now matters
        self.n_tokens = self.n_challenges = 0

    @property
    def request(self) -> int | None:
        """The id of the request that the answer is about, where it is about one alone."""
        return None

    def send(self) -> None:
        """Send the request, the first time or again."""
        raise NotImplementedError

    def abort(self) -> None:
        """End the exchange, wherever it stands. A server of 2026-07-28 cancels the request."""
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        call, self.call = self.call, None
        if call is not None:
            call.abort()

    def on_response(self, status: int, headers: Headers, streaming: bool) -> None:
        """The head of the answer arrived."""
        self.status, self.headers = status, headers
        if self.link.auth is not None:
            self.link.auth.session.answered(headers)

    def on_body(self, data: Any) -> None:
        """The whole body of an answer that is not a stream of events."""

    def on_event(self, event: str, data: Any, id: str | None, retry: int | None) -> None:
        """One event of the answer."""
        if self.over:
            return
        if id is not None:
            self.last_id = id
        if retry is not None:
            self.retry = retry / 1000
        if len(data) and event == "message":
            self.link.receive(data, self.call, self.request)

    def on_end(self, exc: BaseException | None, sent: bool) -> None:
        """The exchange is over: nothing else arrives."""

    def later(self, seconds: float, run: Any) -> None:
        """Call a function later, unless the exchange is aborted before."""
        self.timer = self.link.loop.call_later(seconds, run)


class Post(Exchange):
    """A message on its way to the server, and the answer to it.

    Attributes:
        text: The message, JSON text.
        what: The message in errors: its method, or "a response".
        id: The id of a request; None for other messages.
        body: The body of an answer that is neither a stream nor a success.
        tries: How often the server put the message off.
        waited: Seconds that the message has been put off.
    """

    __slots__ = ("body", "fields", "id", "text", "tries", "waited", "what")

    def __init__(
        self, link: HttpLink, text: bytes, fields: bytes, what: str, id: int | None
    ) -> None:
        super().__init__(link)
        self.text = text
        self.fields = fields
        self.what = what
        self.id = id
        self.body = b""
        self.tries = 0
        self.waited = 0.0

    def send(self) -> None:
        """Send the message, the first time or again."""
        self.timer = None
        self.status, self.headers, self.body = 0, NO_HEADERS, b""
        self.call = self.link.post(self)

    @property
    def request(self) -> int | None:
        return self.id

    @property
    def waits(self) -> bool:
        """Whether the message is a request whose response has not arrived."""
        return self.id is not None and self.link.connection.awaits(self.id)

    def on_response(self, status: int, headers: Headers, streaming: bool) -> None:
        self.status, self.headers = status, headers  # as the base class, without a call of it
        if self.link.auth is not None:
            self.link.auth.session.answered(headers)
        if self.over or self.call is None:
            return
        if self.call.n_redirects:
            self.link.moved(self.call.target)
        if self.what == "initialize":
            self.link.session_opened(status, headers)

    def on_body(self, data: Any) -> None:
        if self.over:
            return
        if self.status == 200 and self.id is not None and not self.link.old:
            if len(data):
                self.link.receive(data, None)
        else:
            self.body = bytes(data)

    def on_end(self, exc: BaseException | None, sent: bool) -> None:
        """The exchange is over."""
        self.call = None
        if not self.over:
            self.link.posted(self, exc, sent)


class EventStream(Exchange):
    """A GET whose answer is a stream of events.

    Attributes:
        post: The message whose response goes on here; None: the stream of the session.
        failures: The number of failures in a row.
    """

    __slots__ = ("failures", "post", "streaming")

    def __init__(self, link: HttpLink, post: Post | None = None) -> None:
        super().__init__(link)
        self.post = post
        self.failures = 0
        self.streaming = False
        if post is not None:
            self.last_id, self.retry = post.last_id, post.retry

    def send(self) -> None:
        """Send the request, the first time or again."""
        self.timer = None
        self.status, self.streaming = 0, False
        self.call = self.link.get(self)

    def on_response(self, status: int, headers: Headers, streaming: bool) -> None:
        super().on_response(status, headers, streaming)
        self.streaming = streaming and status == 200
        if self.streaming:
            self.n_challenges = 0  # each token that ends is one of its own

    def on_event(self, event: str, data: Any, id: str | None, retry: int | None) -> None:
        self.failures = 0
        super().on_event(event, data, id, retry)
        if self.post is not None and not self.post.waits:
            self.link.resumed(self)

    def on_end(self, exc: BaseException | None, sent: bool) -> None:
        """The stream ended, or there was none."""
        self.call = None
        if not self.over:
            self.link.stream_ended(self, exc)

    @property
    def request(self) -> int | None:
        return None if self.post is None else self.post.id

    def reopen(self) -> None:
        """Open the stream again, after the pause that the server asked for."""
        pause = RETRY if self.retry is None else self.retry
        if self.failures:
            pause = max(pause, min(RETRY * 2.0**self.failures, MAX_RETRY))
        self.later(pause, self.send)


class OldStream(Exchange):
    """The stream of HTTP+SSE (2024-11-05 basic/transports), which carries all messages of the
    server. Its first event says where the client's messages go.

    Attributes:
        post: The ``initialize`` that the server refused as Streamable HTTP.
        refusal: How it was refused.
    """

    __slots__ = ("post", "refusal")

    def __init__(self, link: HttpLink, post: Post, refusal: RemoteError | HttpStatusError) -> None:
        super().__init__(link)
        self.post = post
        self.refusal = refusal

    def send(self) -> None:
        """Send the request, the first time or again."""
        self.status = 0
        self.call = self.link.get(self)

    def on_event(self, event: str, data: Any, id: str | None, retry: int | None) -> None:
        if event == "endpoint" and not self.over:
            self.link.endpoint_named(self, bytes(data).decode(errors="replace"))
        else:
            super().on_event(event, data, None, None)

    def on_end(self, exc: BaseException | None, sent: bool) -> None:
        """The session is over, or there was none."""
        self.call = None
        if not self.over:
            self.link.old_ended(self, exc)


class EndWaiter:
    """Waits for the end of an exchange."""

    def __init__(self, ended: Future[None]) -> None:
        self._ended = ended

    def on_response(self, status: int, headers: Headers, streaming: bool) -> None:
        pass

    def on_body(self, data: Any) -> None:
        pass

    def on_event(self, event: str, data: Any, id: str | None, retry: int | None) -> None:
        pass

    def on_end(self, exc: BaseException | None, sent: bool) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
