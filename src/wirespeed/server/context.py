"""The context of a handler: its request, progress, log messages, and questions to the client."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import Unsupported
from wirespeed.protocol.revisions import (
    LOG_LEVELS,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    understood,
)
from wirespeed.server.requests.call import use_contexts

if TYPE_CHECKING:
    from asyncio import Future

    from wirespeed._core.envelope import Message
    from wirespeed._core.slab import Lease
    from wirespeed.errors import ProtocolError
    from wirespeed.protocol.asking import Root, SamplingMessage
    from wirespeed.protocol.results import GetPromptResult, ReadResourceResult
    from wirespeed.server.asking.asker import Asker, InputRequest, OnProgress
    from wirespeed.server.asking.elicitation import Elicited, ElicitRequest
    from wirespeed.server.asking.sampling import Sampled, SampleOptions
    from wirespeed.server.requests.call import Call
    from wirespeed.server.server import Server
    from wirespeed.server.service import McpService
    from wirespeed.server.session_state import State
    from wirespeed.transport.headers import Headers
    from wirespeed.transport.options import User

logger = logging.getLogger("wirespeed.server")

_encode = msgspec.json.Encoder(enc_hook=str).encode

_SMALL = 4096  # bytes of params that are rather copied than kept pinned
_AT_ONCE = 64  # messages about a request in one turn of the loop, where nothing makes it wait

T = TypeVar("T")


class _Params(msgspec.Struct):
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)


_decode = msgspec.json.Decoder(_Params).decode


class _Ready:
    """An awaitable that is done."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class _Turn(_Ready):
    """An awaitable that is done in the next turn of the loop, or when there is room then."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, None, None]:
        yield
        waiter = self._call.connection.wait_for_room(self._call.ref)
        if waiter is not None:  # the client has come back for what it has missed
            yield from waiter


_READY = _Ready()


class Context:
    """The request that a handler works on. A parameter annotated with this class receives it::

        @server.tool
        async def crawl(url: str, ctx: Context) -> int:
            await ctx.progress(0, total=3)

    `progress` and `log` queue a message at once, and may be called in a worker thread. Await the
    returned value to wait while the client is slow to read, and to give other requests a turn now
    and then. After the end of the handler they do nothing.

    **Asking the client.** `elicit`, `elicit_url`, `sample` and `roots` ask the client's user, its
    model, or the client itself. In 2026-07-28 a server sends no requests: it answers the client's
    request with the questions and cancels the handler (its ``finally`` blocks run). The client
    repeats the request with the answers, and **the handler runs again from its start**. It gets the
    answers to its earlier questions at once. Therefore:

    * Code before a question runs once more in each round. Make it harmless to repeat, and do what
      must happen once (pay, write, send) after the last question.
    * Ask the same questions again: a question whose text has changed is asked again. Concurrent
      questions (`asyncio.gather`) go in one round.
    * The client may never come back. It keeps the earlier answers itself, sealed
      (`wirespeed.server.asking.request_state`), for ``Server(state_ttl=…)`` seconds.

    The same handler serves both eras. With `wirespeed.types.InputRequired` a
    handler runs the rounds itself.
    """

    __slots__ = (
        "_asker",
        "_call",
        "_log_from",
        "_n_said",
        "_params",
        "_peer",
        "_progress",
        "_raw_id",
        "_state",
        "_token",
    )

    def __init__(self, call: Call, message: Message) -> None:
        self._call = call
        self._peer = call.peer  # a later request of the connection may have another client
        self._raw_id = message.raw_id
        token = message.lease("params._meta.progressToken")
        self._token: bytes | None = None if token is None else token.copy()
        if self._token is not None and self._token[0] != 0x22 and not _is_integer(self._token):
            self._token = None  # neither string nor integer
        self._progress: float | None = None
        self._n_said = 0
        self._asker: Asker | None = None
        if call.revision.modern:
            level = message.text("params._meta.io.modelcontextprotocol/logLevel")
            self._log_from: int | None = None if level is None else LOG_LEVELS.index(level)
            # for `meta`, and for the binding of request states
            params = message.params
            self._params: Lease | bytes | None = params
            if params is not None and len(params) <= _SMALL:
                self._params = params.copy()
            if call.input is not None:
                self._asking()  # checks requestState before the handler runs
        else:
            self._log_from = None
            meta = message.lease("params._meta")
            self._params = None if meta is None else b'{"_meta":%b}' % meta.copy()

    @property
    def request_id(self) -> int | str:
        """The id of the request."""
        decoded: int | str = msgspec.json.decode(self._raw_id or b"null", type=int | str)
        return decoded

    @property
    def protocol_version(self) -> str:
        """The revision of MCP that this request is served by."""
        version: str = self._call.revision.version
        return version

    @property
    def meta(self) -> dict[str, Any]:
        """The request's ``_meta`` (basic, "_meta"), such as ``traceparent``; empty if the request
        has none. Decoded at each access."""
        if self._params is None:
            return {}
        try:
            return _decode(self._params).meta
        except msgspec.DecodeError:  # not an object: of a legacy client, where it is not checked
            return {}

    @property
    def client_info(self) -> dict[str, Any] | None:
        """The identity of the client (``name``, ``version`` …), for display only: it is not
        verified. None if the client sent none."""
        if self._call.revision.modern:
            said: dict[str, Any] | None = self.meta.get(META_CLIENT_INFO)
            return said
        info: dict[str, Any] | None = self._call.connection.state.client_info
        return info

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """The client's capabilities for this request."""
        if self._call.revision.modern:
            return understood(self.meta[META_CLIENT_CAPABILITIES])
        capabilities: dict[str, Any] = self._call.connection.state.capabilities
        return capabilities

    @property
    def lifespan_state(self) -> Any:
        """The value that the lifespan of the server yielded; None without one. RuntimeError: the
        server is not alive on this loop (see `Server.running`)."""
        return self._service().lifespan_state()

    @property
    def server(self) -> Server:
        """The server that the handler was registered at."""
        return self._service().server

    @property
    def user(self) -> User | None:
        """The user that ``authenticate`` of the listener returned for this client
        (`wirespeed.ListenOptions`), or the subject of its access token
        (`wirespeed.auth.ResourceServer`); None without either."""
        peer = self._peer
        return None if peer is None else peer.user

    @property
    def peer(self) -> str | None:
        """The address of the client, as text for people; None on stdio and in memory."""
        peer = self._peer
        return None if peer is None else peer.address

    @property
    def headers(self) -> Headers:
        """The header fields of the client's HTTP request, by name in any case: those of the upgrade
        to WebSocket. Empty on other transports. They may hold secrets."""
        peer = self._peer
        if peer is None:
            from wirespeed.transport.headers import Headers

            return Headers()
        return peer.headers

    @property
    def state(self) -> dict[str, Any]:
        """A dict for whatever the middleware (`wirespeed.types.InboundRequest.state`), the
        dependencies and the handler of this request share. It ends with the request; each round of
        a modern client is a request of its own."""
        self._keep_state()
        return self._state

    def _keep_state(self) -> None:
        """Find `state`, before the call leaves its middleware and becomes a task."""
        if not hasattr(self, "_state"):  # not set earlier: most handlers do not look
            self._state: dict[str, Any] = self._call.shared_state()

    @property
    def session_state(self) -> dict[str, Any]:
        """A dict that lives as long as the session of a client of a legacy era. With several hosts
        (`HttpOptions.host_url`), values that JSON has move with the session to another host.

        Unsupported: 2026-07-28 has no sessions. Keep what outlives a request by `user`, or return
        a handle that the client passes as an argument.
        """
        state = self._session()
        if state.session is None:
            state.session = {}
        return state.session

    @property
    def session_id(self) -> str:
        """An opaque, random id of the session of a client of a legacy era. Unsupported: as of
        `session_state`."""
        state = self._session()
        if state.session_id is None:
            state.session_id = os.urandom(16).hex()
        return state.session_id

    def _session(self) -> State:
        revision = self._call.revision
        if revision.modern:
            raise Unsupported(
                f"{revision.version} has no sessions: keep what outlives a request by the user, or "
                "by a handle that the client passes"
            )
        connection = self._call.connection
        session: Any = getattr(connection.link, "session", None)
        if session is not None:
            session.keep_state()
        state: State = connection.state
        return state

    async def enable(self, *, tags: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        """Show the client of this session what has one of these tags or names (URIs of resources),
        whatever was disabled before, and tell it that its lists changed. What a `filter` hides
        stays hidden.

        Raises:
            Unsupported: As of `session_state`. For clients of 2026-07-28 there is
                ``Server(filter=…)``.
            ValueError: Nothing is named, or nothing that is registered has such a tag or name.
        """
        self._show(True, tags, names)

    async def disable(self, *, tags: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        """Hide it from the client of this session. Otherwise as `enable`."""
        self._show(False, tags, names)

    def _show(self, shown: bool, tags: Iterable[str], names: Iterable[str]) -> None:
        from wirespeed.server.permissions import Shown, checked_words

        self._check_thread("change what a session shows")
        state = self._session()
        connection = self._call.connection
        chosen = checked_words(tags, names)
        kinds = connection.service.visibility.touched(*chosen)
        if not kinds:
            raise ValueError(f"nothing has the tags {chosen[0]} or the names {chosen[1]}")
        said = Shown() if state.shown is None else state.shown
        said.say(shown, *chosen)
        state.shown = said
        self._seen_changed(kinds)

    async def reset_visibility(self) -> None:
        """Forget what was enabled and disabled for this session. Unsupported: as of
        `session_state`."""
        self._check_thread("change what a session shows")
        state = self._session()
        if state.shown is not None:
            state.shown = None
            self._seen_changed(("tools", "prompts", "resources"))

    def _seen_changed(self, kinds: Iterable[str]) -> None:
        connection: Any = self._call.connection
        connection.forget_tools()
        for kind in kinds:
            connection.changes.list_changed(kind)

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Read a resource of this `server`, as a call of its function within this request: the
        function gets this context, and no middleware and no `filter` is asked.

        Raises:
            ResourceNotFound: There is no such resource.
            TimeoutError: The ``timeout`` of the resource is over.
            Exception: What the function raised.
        """
        self._check_thread("read a resource")
        result: ReadResourceResult = await self._service().resources.fetch(uri, self)
        return result

    async def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None
    ) -> GetPromptResult:
        """Get a prompt of this `server`, as `read_resource` reads a resource. Arguments that are
        not strings are passed as their JSON.

        Raises:
            ProtocolError: There is no such prompt, or the arguments do not fit (-32602).
            TimeoutError: The ``timeout`` of the prompt is over.
            Exception: What the function raised.
        """
        self._check_thread("get a prompt")
        prompts = self._service().prompts
        result: GetPromptResult = await prompts.fetch(name, arguments or {}, self)
        return result

    def _service(self) -> McpService:
        call = self._call
        service: McpService = call.operation.owner or call.connection.service
        return service

    @property
    def cancelled(self) -> bool:
        """Whether the client cancelled the request. A tool in a thread looks here; one on the
        loop is cancelled."""
        return self._call.ended

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Awaitable[None]:
        """Report progress to the client (basic/utilities/progress).

        Sent only if the client requested progress, and only while the value rises. ``message`` is
        left out for clients of 2024-11-05.
        """
        if self._token is None or (self._progress is not None and progress <= self._progress):
            return _READY
        if not math.isfinite(progress) or not (total is None or math.isfinite(total)):
            raise ValueError("progress and total must be finite numbers")
        params = b'{"progressToken":%b,"progress":%b' % (self._token, _encode(progress))
        if total is not None:
            params += b',"total":%b' % _encode(total)
        if message is not None and self._call.revision.progress_message:
            params += b',"message":%b' % _encode(message)
        return self._on_loop(self._send_progress, progress, params + b"}")

    def _send_progress(self, progress: float, params: bytes) -> None:
        # looked at here again: threads of the same call may have overtaken each other
        if self._progress is None or progress > self._progress:
            self._progress = progress
            self._call.notify("notifications/progress", params)

    def log(self, level: str, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client (server/utilities/logging).

        ``level`` is one of debug, info, notice, warning, error, critical, alert, emergency;
        ``data`` any JSON-encodable value. Sent when it reaches the level that the client set, in
        2026-07-28 only where this request asked for logs.
        """
        try:
            severity = LOG_LEVELS.index(level)
        except ValueError:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}") from None
        if self._call.revision.modern:
            if self._log_from is None or severity < self._log_from:
                return _READY
        elif severity < self._call.connection.state.log_level:
            return _READY
        params = b'{"level":%b' % _encode(level)
        if logger is not None:
            params += b',"logger":%b' % _encode(logger)
        params += b',"data":%b}' % _encode(data)
        return self._on_loop(self._call.notify, "notifications/message", params)

    def debug(self, data: Any) -> Awaitable[None]:
        """`log` at level debug."""
        return self.log("debug", data)

    def info(self, data: Any) -> Awaitable[None]:
        """`log` at level info."""
        return self.log("info", data)

    def warning(self, data: Any) -> Awaitable[None]:
        """`log` at level warning."""
        return self.log("warning", data)

    def error(self, data: Any) -> Awaitable[None]:
        """`log` at level error."""
        return self.log("error", data)

    # -- asking the client -----------------------------------------------------------------------

    @overload
    async def elicit(
        self,
        message: str,
        form: None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Elicited[None]: ...

    @overload
    async def elicit(
        self,
        message: str,
        form: type[T],
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Elicited[T]: ...

    @overload
    async def elicit(
        self,
        message: str,
        form: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Elicited[dict[str, Any]]: ...

    @overload
    async def elicit(
        self,
        message: str,
        form: Any,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Elicited[Any]: ...

    async def elicit(
        self,
        message: str,
        form: Any = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Elicited[Any]:
        """Ask the user to fill in a form (client/elicitation, "Form Mode"; 2025-06-18 on)::

            class Seat(msgspec.Struct):
                row: int
                window: bool = False

            answer = await ctx.elicit("Which seat?", Seat)
            if answer:  # accepted
                book(answer.content.row)

        Never ask for passwords or keys in a form: use `elicit_url`.

        Args:
            message: The text to show.
            form: A class with flat fields, a single type, or the JSON Schema of a form (see
                `wirespeed.schema.forms`). None only asks for consent.
            timeout: Seconds to wait for a client of a legacy era; None for no limit.
            on_progress: A plain function that is called on the event loop when a client of a legacy
                era reports progress: with the progress, which rises, the total or None, and a
                message or None. ``on_progress=ctx.progress`` passes it on to the caller. Not called
                for a handler that works on a task.

        Raises:
            MissingCapability: The client did not declare this; nothing was sent.
            SignatureError: The class or schema is not a form.
            InvalidResponse: The answer does not fit.
            RemoteError: The client answered with an error.
            CallTimeout, ConnectionClosed: There is no answer.
            LocalError: The handler has ended, and a task that it started asks.
            LimitExceeded: ``Limits.max_outstanding`` questions have no answer yet.
        """
        from wirespeed.server.asking.elicitation import ElicitRequest

        question = ElicitRequest(message, form)
        answer: Elicited[Any] = await self._ask(question, timeout, on_progress)
        return answer

    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        elicitation_id: str | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Elicited[None]:
        """Ask the user to open a link (client/elicitation, "URL Mode"; 2025-11-25 on), for data
        that must not pass through the client: credentials, payments.

        "accept" means that the user agreed to open the link, not that anything was done there. The
        link must not contain secrets or grant access; the page must verify that its visitor is the
        user that was asked. ``elicitation_id`` is sent in 2025-11-25, and random by default. With
        an id of your own, `elicitation_complete` can report that the user has finished.
        ``timeout``, ``on_progress`` and errors as of `elicit`.
        """
        from wirespeed.server.asking.elicitation import ElicitRequest

        question = ElicitRequest(message, url=url, elicitation_id=elicitation_id)
        answer: Elicited[None] = await self._ask(question, timeout, on_progress)
        return answer

    def links_required(self, *links: ElicitRequest) -> ProtocolError:
        """The error that makes a client of 2025-11-25 show links to its user and then repeat the
        request (client/elicitation, "URL Elicitation Required Error": -32042)::

            raise ctx.links_required(ElicitRequest("Sign in", url="https://…"))

        For clients of other revisions, and for clients without url mode, it returns a
        `MissingCapability`. `elicit_url` works with every client that has url mode.
        """
        from wirespeed.server.asking.elicitation import links_required

        return links_required(links, self.client_capabilities, self.protocol_version)

    def elicitation_complete(self, elicitation_id: str) -> Awaitable[None]:
        """Tell a client of 2025-11-25 that the user has finished with a link (client/elicitation,
        "Completion Notifications"), also after the end of the handler. In other revisions this does
        nothing."""
        if "notifications/elicitation/complete" not in self._call.revision.server_notifications:
            return _READY
        params = b'{"elicitationId":%b}' % _encode(elicitation_id)
        return self._on_loop(self._say, "notifications/elicitation/complete", params)

    def _say(self, method: str, params: bytes) -> None:
        connection = self._call.connection
        if connection.link is not None:
            connection.send_notification(method, params, about=self._call.ref)
            connection.wrote()

    async def sample(
        self,
        messages: str | SamplingMessage | Sequence[str | SamplingMessage],
        *,
        max_tokens: int,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        **options: Unpack[SampleOptions],
    ) -> Sampled:
        """Ask the client's model (client/sampling; deprecated in 2026-07-28)::

            answer = await ctx.sample("What is the capital of France?", max_tokens=100)
            return answer.text

        Args:
            messages: The conversation: `SamplingMessage`, or strings for messages of the user.
            max_tokens: The most tokens that the model may return.
            timeout: Seconds to wait, as of `elicit`.
            on_progress: Called with the progress, as of `elicit`.
            system, temperature, stop_sequences, metadata: For the model; the client may change or
                drop them.
            model_preferences: ``hints``, ``cost_priority`` …, as `ModelPreferences` or a dict
                with the names of the specification.
            tools: What the model may call (2025-11-25 on): objects as in tools/list, or tools of
                this server. The caller runs them and asks again.
            tool_choice: Whether the model may, must or must not call the tools.
            include_context: Deprecated; left out for clients that do not declare it.

        Raises:
            ValueError: Tool results do not match tool uses, or are mixed with other content.
            MissingCapability, InvalidResponse, RemoteError, CallTimeout, ConnectionClosed: As of
                `elicit`. RemoteError with code -1: the user refused.
        """
        from wirespeed.server.asking.sampling import SampleRequest

        question = SampleRequest(messages, max_tokens=max_tokens, **options)
        answer: Sampled = await self._ask(question, timeout, on_progress)
        return answer

    async def roots(self, *, timeout: float | None = None) -> list[Root]:
        """Ask for the directories and files that the client considers relevant (client/roots;
        deprecated in 2026-07-28). They are hints, not an access control. Errors as of `elicit`."""
        from wirespeed.server.asking.asker import RootsRequest

        answer: list[Root] = await self._ask(RootsRequest(), timeout)
        return answer

    async def ping(self, *, timeout: float | None = None) -> None:
        """Wait until the client answers a ping (basic/utilities/ping of the legacy revisions). Does
        nothing in 2026-07-28, where a server sends no requests. Errors as of `elicit`."""
        self._check_thread()
        if "ping" in self._call.revision.server_requests:
            call = self._call
            await call.connection.ask("ping", None, timeout=timeout, about=call.ref)

    def close_stream(self, *, retry: float | None = None) -> bool:
        """Close the connection that waits for the answer to this request, so that a long call holds
        none. The client comes back for what was sent meanwhile, ``retry`` seconds later; by default
        after ``HttpOptions(retry=…)``, or when it likes ("Sending Messages to the Server" of
        2025-11-25 basic/transports).

        Returns whether the client was told to come back. Otherwise nothing happens: on other
        transports and in other revisions, without an event store (``HttpOptions(event_store=…)``),
        for a client that takes JSON only, and while no connection waits.
        """
        self._check_thread("close the stream")
        if retry is not None and not 0 <= retry < math.inf:
            raise ValueError("retry must be seconds")
        pause = getattr(self._call.route, "pause", None)
        closed: bool = pause is not None and pause(retry)
        return closed

    @property
    def input_responses(self) -> Mapping[str, Any]:
        """The answers to the `InputRequired` of the last round, by its keys: `Elicited` (with a
        dict as content: see `AcceptedElicitation.as_form`), `Sampled`, or a list of `Root`. Empty
        in the first round. An answer may be missing. ProtocolError -32602: one is malformed."""
        return {} if self._asker is None else self._asker.answers()

    @property
    def request_state(self) -> Any:
        """The ``state`` of the last round's `InputRequired`, unchanged by the client; None in the
        first round."""
        return None if self._asker is None else self._asker.state

    def _asking(self) -> Asker:
        asker = self._asker
        if asker is None:
            from wirespeed.server.asking.rounds import asker_of

            asker = self._asker = asker_of(self._call, self.client_capabilities, self._params)
        self._check_thread()
        return asker

    async def _ask(
        self, question: InputRequest, timeout: float | None, on_progress: OnProgress | None = None
    ) -> Any:
        from wirespeed.server.asking.asker import QuestionOptions, checked

        if on_progress is not None:
            checked(on_progress)
        return await self._asking().ask(question, QuestionOptions(timeout, on_progress))

    def _check_thread(self, do: str = "ask the client") -> None:
        if threading.get_ident() != self._call.connection.thread:
            raise RuntimeError(f"only the event loop's thread can {do}: make the handler async")

    def _on_loop(self, send: Callable[..., None], *args: Any) -> _Ready | Future[None]:
        connection = self._call.connection
        if threading.get_ident() != connection.thread:
            try:
                connection.loop.call_soon_threadsafe(send, *args)
            except RuntimeError:
                logger.debug("a tool's thread outlived its server's loop")
            return _READY
        send(*args)
        waiter: Future[None] | None = connection.wait_for_room(self._call.ref)
        if waiter is not None:
            return waiter
        self._n_said += 1  # a client that has left makes nothing wait
        return _READY if self._n_said % _AT_ONCE else _Turn(self._call)


def _is_integer(number: bytes) -> bool:
    return number.removeprefix(b"-").isdigit()


use_contexts(Context)


set_public_home(globals())
