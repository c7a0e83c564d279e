"""The link of a client to a server of HTTP: each message is the body of a POST.

2026-07-28 basic/transports/streamable-http; basic/transports of the older revisions. A modern
request is cancelled by closing its response. Legacy servers have sessions, a stream of their own
messages (GET), and responses that can be resumed after their stream broke.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed._core.envelope import parse
from wirespeed._core.wire import show_carried
from wirespeed.client.http.answers import (
    BUSY,
    NO_VERDICT,
    NOT_STREAMABLE,
    TRY_LATER,
    UNAUTHORIZED,
    SessionGone,
    reason_of,
    retry_after,
    same_origin,
    status_error,
)
from wirespeed.client.http.exchanges import (
    MAX_FAILURES,
    EndWaiter,
    EventStream,
    Exchange,
    OldStream,
    Post,
)
from wirespeed.client.http.headers import MirroredArguments, field_value, name_value
from wirespeed.errors import (
    ConnectionLost,
    HttpStatusError,
    InvalidResponse,
    RemoteError,
    TransportError,
    WirespeedError,
)
from wirespeed.protocol import codes
from wirespeed.protocol.header_values import NAMED_BY
from wirespeed.protocol.messages import ErrorObject
from wirespeed.protocol.revisions import META_PROTOCOL_VERSION
from wirespeed.transport.link import Link
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.client.connection.connection import ClientConnection
    from wirespeed.client.http.authorization import AuthorizedExchanges
    from wirespeed.client.targets import Http
    from wirespeed.transport.http.client_connection import HttpCall
    from wirespeed.transport.http.pool import HttpPool
    from wirespeed.transport.options import Headers

logger = logging.getLogger("wirespeed.client")

# Notifications and responses whose POSTs may be under way at once. Further ones wait in the outbox.
MAX_NOTES = 1000
# How often a message may be put off by 429 or 503, and the seconds of all delays.
MAX_TRIES = 3
MAX_DELAY = 30.0
# Head fields of calls that are kept, by the name of the tool.
MAX_NAMES = 4096

_VERSION = f"params._meta.{META_PROTOCOL_VERSION}"

_error = msgspec.json.Decoder(ErrorObject).decode


class HttpLink(Link):
    """The messages of one connection, over HTTP.

    Attributes:
        connection: The client's end.
        pool: The connections to the server.
        failure: Why the link ended; None while it has not, or when the client closed it.
        lost: Whether the link has ended.
        mirrored: The arguments of listed tools that are header fields.
        old: Whether the server speaks HTTP+SSE.
        reads_for: The request whose response has brought the message that is delivered; or None.
        auth: The token of the requests; None where the target has no ``auth``.
    """

    def __init__(
        self,
        connection: ClientConnection,
        target: Http,
        make_pool: Callable[[int], HttpPool],
    ) -> None:
        super().__init__(connection.loop, connection)
        show_carried(self.wire)
        self.at_once = True
        self.connection = connection
        self.pool = make_pool(target.max_connections)
        self.failure: TransportError | None = None
        self.lost = False
        self.old = False
        self.reads_for: int | None = None
        self._make_pool = make_pool
        self._target = target
        self._place = target.address.target  # where messages go
        self._requests: dict[int, Post] = {}
        self._notes: set[Post] = set()
        self._streams: set[Exchange] = set()
        self._lines: deque[bytes] = deque()  # messages that wait for `_gate`
        self._gate: Post | None = None  # notifications/initialized, which others must not overtake
        self.mirrored = MirroredArguments()
        self._session: str | None = None
        self._gone: str | None = None  # why the link ends with its last request
        self._paused: list[HttpCall] = []  # whose events the session has no room for
        self._side: HttpPool | None = None  # for notes while all connections have calls
        self._idle: asyncio.Future[None] | None = None
        self._max_depth = connection.session.limits.max_depth
        self._quiet = RateLimitedLog(logger)
        own = "".join(f"{name}: {value}\r\n" for name, value in target.request_headers().items())
        self._own = own.encode("ascii")
        self._base = (
            self._own
            + b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        )
        self._heads: dict[tuple[str, str, str], bytes] = {}
        self.auth: AuthorizedExchanges | None = None
        if target.auth is not None:
            from wirespeed.client.http.authorization import AuthorizedExchanges

            address = target.address
            session = target.auth.session(target.url, ssl=target.ssl)
            origin = f"{address.scheme}://{address.authority}"
            self.auth = AuthorizedExchanges(self, origin, session)

    # -- a link ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Nothing is read before the first message."""

    def update_reading(self) -> None:
        """Read the events of servers on that sent more requests than the session takes."""
        if self._paused and self.wire.want_read:
            paused, self._paused = self._paused, []
            for call in paused:
                call.paused = False

    def flush(self) -> None:
        """Send the queued messages."""
        if self.lost:
            return
        outbox = self.wire.outbox
        while outbox.size or self._lines:
            if self._gate is not None or len(self._notes) >= MAX_NOTES:
                break
            if self._lines:
                self._send(self._lines.popleft())
            else:
                lines = b"".join(self.wire.data_to_send()).split(b"\n")
                lines.pop()  # nothing is behind the last newline
                self._lines.extend(lines)
        self.check_drained()

    def close(self) -> None:
        """End all requests. Notifications that are under way are not stopped."""
        self._over(None)

    def lose(self, exc: BaseException | None) -> None:
        """End because of an error."""
        if self.failure is None and isinstance(exc, TransportError):
            self.failure = exc
        self._over(exc)

    def _over(self, exc: BaseException | None) -> None:
        if self.lost:
            return
        self.lost = True
        ended: list[Exchange] = [*self._requests.values(), *self._streams]
        if exc is not None:
            ended.extend(self._notes)
            self._notes.clear()
        self._requests.clear()
        self._streams.clear()
        self._lines.clear()
        for exchange in ended:
            exchange.abort()
        if self.auth is not None:
            self.auth.close()
        self.detach()
        self.connection.on_lost(exc)

    async def finish(self) -> None:
        """Wait for the notifications that are under way, and end the session."""
        if self._notes and self._idle is None:
            self._idle = self.loop.create_future()
            await self._idle
        if self._session is not None and self.failure is None:
            ended = self.loop.create_future()
            fields = self._session_fields(self._own)
            if self.auth is not None:
                more = await self.auth.fields_now("DELETE", self._place)
                if more is None:
                    return
                fields += more
            self.pool.request("DELETE", self._place, fields, None, EndWaiter(ended))
            await ended

    async def release(self) -> None:
        """Close all connections."""
        for note in self._notes:
            note.abort()
        self._notes.clear()
        await self.pool.close()
        if self._side is not None:
            await self._side.close()
        if self.auth is not None:
            await self.auth.session.close()

    def abandon(self) -> None:
        """Close all sockets of a loop that is closed."""
        self.pool.release()
        if self._side is not None:
            self._side.release()

    # -- messages out ----------------------------------------------------------------------------

    def _send(self, line: bytes) -> None:
        message = parse(line, max_depth=self._max_depth)
        method = message.method
        if method is None:
            self._note(line, self._head("", message), "a response")
        elif message.kind == "request":
            if method == "initialize":
                self._begin()
            id = int(message.raw_id or b"0")
            post = self._requests[id] = Post(self, line, self._head(method, message), method, id)
            post.send()
        elif method != "notifications/cancelled" or not self._cancel(message):
            note = self._note(line, self._head(method, message), method)
            if method == "notifications/initialized":
                self._gate = note

    def _note(self, line: bytes, fields: bytes, what: str) -> Post:
        note = Post(self, line, fields, what, None)
        self._notes.add(note)
        note.send()
        return note

    def _begin(self) -> None:
        """A legacy handshake begins: no earlier request is awaited."""
        self._session = None
        for post in self._requests.values():
            post.abort()
        self._requests.clear()

    def _cancel(self, message: Message) -> bool:
        """The caller of a request gave up. Returns whether the server need not be told: closing the
        response of a modern request cancels it."""
        raw = message.lease("params.requestId")
        post = self._requests.pop(int(bytes(raw)), None) if raw is not None else None
        if post is None:
            return self._modern
        unsent = post.call is None and not post.status
        self._drop_stream(post)
        post.abort()
        return unsent or self._modern

    @property
    def _modern(self) -> bool:
        revision = self.connection.revision
        return revision is not None and revision.modern

    def post(self, post: Post) -> HttpCall | None:
        """Send a message. None: it is sent when its token is there."""
        pool = self.pool if post.id is not None else self._pool_of_notes()
        fields = post.fields
        if self.auth is not None:
            more = self.auth.fields("POST", self._place, post)
            if more is None:
                return None
            fields += more
        return pool.request("POST", self._place, fields, post.text, post)

    def _pool_of_notes(self) -> HttpPool:
        """Where notifications and responses go. Calls may wait for them, so they do not wait for a
        connection while calls have all of them."""
        busy = len(self._requests) + len(self._streams)
        if busy < self._target.max_connections:
            return self.pool
        if self._side is None:
            self._side = self._make_pool(1)
        return self._side

    def moved(self, place: str) -> None:
        """The server redirected a message to another path, where the next ones go at once."""
        self._place = place

    def get(self, stream: Exchange) -> HttpCall | None:
        """Request a stream of events. None: the request waits for a token, and is then sent."""
        self._streams.add(stream)
        fields = self._session_fields(self._own) + b"Accept: text/event-stream\r\n"
        if stream.last_id is not None:
            fields += b"Last-Event-ID: %b\r\n" % stream.last_id.encode()
        place = self._target.address.target
        if self.auth is not None:
            more = self.auth.fields("GET", place, stream)
            if more is None:
                return None
            fields += more
        return self.pool.request("GET", place, fields, None, stream)

    # -- header fields ---------------------------------------------------------------------------

    def _head(self, method: str, message: Message) -> bytes:
        revision = self.connection.revision
        if revision is None or method == "initialize":
            return self._base
        if not revision.modern:
            return self._session_fields(self._base)
        # a client of a proxy may have named another one
        version = message.text(_VERSION) or revision.version
        name = name_value(method, message)
        key = (version, method, name)
        head = self._heads.get(key)
        if head is None:
            text = f"MCP-Protocol-Version: {field_value(version)}\r\n"
            if method:
                text += f"Mcp-Method: {field_value(method)}\r\n"
            if method in NAMED_BY:
                text += f"Mcp-Name: {field_value(name)}\r\n"
            head = self._base + text.encode("ascii")
            if len(self._heads) < MAX_NAMES:
                self._heads[key] = head
        if method == "tools/call":
            head += self.mirrored.lines(name, message.lease("params.arguments"))
        return head

    def _session_fields(self, fields: bytes) -> bytes:
        """Header fields with those of a legacy session."""
        revision = self.connection.revision
        if revision is not None and not self.old:
            fields += f"MCP-Protocol-Version: {revision.version}\r\n".encode("ascii")
        if self._session is not None:
            fields += f"Mcp-Session-Id: {self._session}\r\n".encode("ascii")
        return fields

    def session_opened(self, status: int, headers: Headers) -> None:
        """The server answered ``initialize``."""
        if status != 200 or self.old:
            return
        session = headers.get("mcp-session-id")
        if session is None:
            return
        if session and all("!" <= c <= "~" for c in session):
            self._session = session
        else:
            self._quiet.log(
                logging.WARNING,
                "%s: its session id is not visible ASCII, and is not used",
                self._target.where,
            )

    # -- messages in -----------------------------------------------------------------------------

    def receive(self, data: Any, call: HttpCall | None, request: int | None = None) -> None:
        """A message of the server arrived; ``call`` brings more. ``request``: the request whose
        response it arrived in."""
        if self.lost:
            return
        if self.connection.session.receive_message(data):
            self.reads_for = request
        try:
            self.deliver()
        finally:
            self.reads_for = None
        if call is not None and not self.wire.want_read and not self.lost:
            call.paused = True
            self._paused.append(call)

    # -- the end of a POST -----------------------------------------------------------------------

    def posted(self, post: Post, exc: BaseException | None, sent: bool) -> None:
        """A POST is over: its answer is there, or will not come."""
        if exc is None and post.status != 200 and (self._demands(post) or self._again(post)):
            return
        self._settle(post, exc, sent)
        self._end_if_gone()

    def _end_if_gone(self) -> None:
        if self._gone is not None and not self._requests:
            self.lose(ConnectionLost(self._gone))

    def _settle(self, post: Post, exc: BaseException | None, sent: bool) -> None:
        """Find out what has become of a message."""
        if post.id is None:
            self._noted(post, exc)
        elif not post.waits:
            self._requests.pop(post.id, None)
        elif isinstance(exc, WirespeedError) and not sent:
            self._fail(post, exc)
        elif post.status == 200 or (post.status == 202 and self.old):
            self._unanswered(post, exc)
        elif exc is not None:
            self._fail(post, self._broken(post, exc))
        else:
            self._refused(post)

    def _demands(self, exchange: Exchange) -> bool:
        """Whether the server demanded a token, which is being got."""
        return self.auth is not None and not self.lost and self.auth.refused(exchange)

    def _again(self, post: Post) -> bool:
        """Send a message again later, that the server put off."""
        status = post.status
        if status not in TRY_LATER or post.tries >= MAX_TRIES:
            return False
        seconds = retry_after(post.headers)
        if seconds is None or post.waited + seconds > MAX_DELAY:
            return False
        post.tries += 1
        post.waited += seconds
        self._quiet.log(
            logging.INFO,
            "%s answered %s with %d; it is sent again in %.3g s",
            self._target.where,
            post.what,
            status,
            seconds,
        )
        post.later(seconds, post.send)
        return True

    def _unanswered(self, post: Post, exc: BaseException | None) -> None:
        """A POST was taken, and its response has not arrived."""
        if self.old or not self.wire.want_read:
            return  # it arrives on the stream, or has arrived and is not read yet
        if post.last_id is not None and not self._modern:
            stream = EventStream(self, post)
            self._streams.add(stream)
            stream.reopen()
        elif exc is not None or post.headers.get("content-type", "").startswith("text/event-"):
            self._fail(post, self._broken(post, exc))
        else:
            kind = post.headers.get("content-type") or "no content type"
            text = f"the answer to {post.what} is not a JSON-RPC response ({kind:.100})"
            self._fail(post, InvalidResponse(text))

    def _refused(self, post: Post) -> None:
        """A request was answered with a status other than 200."""
        assert post.id is not None
        message = parse(post.body, max_depth=self._max_depth)
        if message.kind == "result" and message.raw_id == b"%d" % post.id:
            self.receive(post.body, None)
            self._requests.pop(post.id, None)
            return
        own = message.kind == "error" and message.raw_id == b"%d" % post.id
        if not own and self._session_is_gone(post.status, message, post):
            return
        refusal = self._refusal(post, message, own)
        if (
            post.what == "initialize"
            and post.status in NOT_STREAMABLE
            and self._target.sse
            and not self.old
            and getattr(refusal, "code", None) not in codes.MODERN_ERRORS
        ):
            OldStream(self, post, refusal).send()
        else:
            self._fail(post, refusal)

    def _refusal(self, post: Post, message: Message, own: bool) -> RemoteError | HttpStatusError:
        """The error of a request that was answered with a status. Some servers leave the id of the
        request out of their JSON-RPC errors. ``own``: the error has it."""
        error = message.error if message.kind == "error" else None
        said = None
        if error is not None:
            with contextlib.suppress(msgspec.DecodeError):
                said = _error(error)
        if said is None:
            return self.status_error(post, body=post.body)
        if post.status in UNAUTHORIZED or (post.status in NO_VERDICT and not own):
            return self.status_error(post, said=said.message)
        return RemoteError(said.code, said.message, said.data)

    def status_error(
        self,
        exchange: Exchange,
        what: str = "",
        *,
        body: bytes = b"",
        said: str = "",
        note: str = "",
    ) -> HttpStatusError:
        """The error of an exchange that was answered with a status."""
        secrets = self._target.secrets()
        if self.auth is not None:
            secrets += self.auth.session.secrets()
        return status_error(
            self._target.where,
            what or exchange.what,
            exchange.status,
            exchange.headers,
            body,
            secrets=secrets,
            said=said,
            note=note,
        )

    def _session_is_gone(
        self, status: int, message: Message | None = None, post: Post | None = None
    ) -> bool:
        """End the link if a status says that the session has ended (basic/transports, "Session
        Management"). Some servers answer 400 for an unknown session. ``post``: The request that
        was refused; without one, the requests that are under way are waited for."""
        if self._session is None or self.lost:
            return False
        if status != 404:
            error = None if status != 400 or message is None else message.error
            if error is None or b"session" not in bytes(error).lower():
                return False
        text = (
            f"{self._target.where}: the server ended the session "
            f"({status} {reason_of(status)}): what it held is lost"
        )
        if post is not None:
            self._fail(post, SessionGone(text))
        elif self._requests:  # a server that drains answers what it has
            self._gone = text
            return True
        self.lose(ConnectionLost(text))
        return True

    def _noted(self, note: Post, exc: BaseException | None) -> None:
        """The POST of a notification or a response is over."""
        self._notes.discard(note)
        if self._idle is not None and not self._notes and not self._idle.done():
            self._idle.set_result(None)
        if self.lost:
            return
        if exc is not None or not 200 <= note.status < 300:
            if exc is None and self._session_is_gone(
                note.status, parse(note.body, max_depth=self._max_depth)
            ):
                return
            why = exc or f"{note.status} {reason_of(note.status)}"
            self._quiet.log(
                logging.WARNING, "%s did not take %s: %s", self._target.where, note.what, why
            )
        if note is self._gate:
            self._gate = None
            if not self.old:
                EventStream(self).send()
        self.flush_now()

    def _broken(self, post: Post, exc: BaseException | None) -> ConnectionLost:
        """The error of a request whose answer did not arrive."""
        why = "the answer ended without it" if exc is None else f"{exc}"
        return ConnectionLost(f"{self._target.where}: {post.what} got no response: {why}")

    def _fail(self, post: Post, exc: BaseException) -> None:
        assert post.id is not None
        self._requests.pop(post.id, None)
        self.connection.fail_request(post.id, exc)

    # -- streams ---------------------------------------------------------------------------------

    def resumed(self, stream: EventStream) -> None:
        """The response arrived on a stream that went on."""
        assert stream.post is not None and stream.post.id is not None
        self._requests.pop(stream.post.id, None)
        self._streams.discard(stream)
        stream.abort()

    def _drop_stream(self, post: Post) -> None:
        for stream in [s for s in self._streams if getattr(s, "post", None) is post]:
            self._streams.discard(stream)
            stream.abort()

    def stream_ended(self, stream: EventStream, exc: BaseException | None) -> None:
        """A stream of events ended, or was refused."""
        if exc is None and self._demands(stream):
            return
        post = stream.post
        if self._session_is_gone(stream.status):
            self._streams.discard(stream)
            if post is not None and not self.lost:  # its answer will not come
                self._fail(post, self._broken(post, exc))
                self._end_if_gone()
            return
        if post is not None and not post.waits:
            self.resumed(stream)
        elif stream.streaming or not stream.status or stream.status in BUSY:
            stream.failures += 1
            if post is not None and stream.failures > MAX_FAILURES:
                self._streams.discard(stream)
                self._fail(post, self._broken(post, exc))
            else:
                stream.reopen()
        else:
            self._streams.discard(stream)
            if post is not None:
                note = "; the broken response cannot be resumed"
                self._fail(
                    post,
                    self.status_error(stream, post.what, note=note),
                )
            elif exc is not None:
                self._quiet.log(logging.WARNING, "%s sends no events: %s", self._target.where, exc)

    # -- HTTP+SSE of 2024-11-05 ------------------------------------------------------------------

    def endpoint_named(self, stream: OldStream, reference: str) -> None:
        """The server said where messages go: begin again there."""
        if self.old:
            return
        place = same_origin(self._target.address, reference)
        if place is None:
            self._streams.discard(stream)
            stream.abort()
            text = f"{self._target.where}: the event endpoint names another origin, or no URL"
            self._fail(stream.post, TransportError(text))
            return
        self.old = True
        self._place = place
        stream.post.send()

    def old_ended(self, stream: OldStream, exc: BaseException | None) -> None:
        """The stream of HTTP+SSE ended, and the session with it; or there is no such stream."""
        if exc is None and self._demands(stream):
            return
        post = stream.post
        self._streams.discard(stream)
        if self.old:
            why = f": {exc}" if exc is not None else ""
            self.lose(ConnectionLost(f"{self._target.where}: the stream of events ended{why}"))
            return
        refusal = stream.refusal
        if isinstance(refusal, HttpStatusError) and stream.status not in (0, 200, post.status):
            note = f", and GET with {stream.status} {reason_of(stream.status)}".rstrip()
            if "websocket" in stream.headers.get("upgrade", "").lower():
                scheme = "wss" if self._target.address.secure else "ws"
                note = f"; the server speaks WebSocket there: use {scheme}://"
            refusal = self.status_error(post, body=post.body, note=note)
        self._fail(post, refusal)
