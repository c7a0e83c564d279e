"""A client of 2026-07-28 with a server of a legacy era."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    CAPABILITY_OF,
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_VERSIONS,
    LOG_LEVELS,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_SERVER_INFO,
    MODERN_VERSIONS,
    REVISIONS,
    declared,
    understood,
)
from wirespeed.proxy.affinity import whole
from wirespeed.proxy.isolation.handshake import initialize
from wirespeed.proxy.own_requests import modern_version, params_of, unsupported
from wirespeed.proxy.translation.input_requests import (
    INPUT_METHODS,
    META_CAPABILITIES,
    InputRequests,
)
from wirespeed.proxy.translation.request_edits import Lowering
from wirespeed.proxy.translation.results import (
    discovered,
    encode,
    malformed,
    members_of,
    raised,
    raised_error,
)
from wirespeed.proxy.translation.subscriptions import ListenRequests
from wirespeed.proxy.translation.translator import Translator

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.upstream import Upstream

_LEVEL = f"params._meta.{META_LOG_LEVEL}"
_OF_A_ROUND = re.compile(rb'"(?:requestState|inputResponses|task)"')
# Requests that 2026-07-28 does not have.
_REMOVED = frozenset().union(*(REVISIONS[v].requests for v in LEGACY_VERSIONS)) - (
    REVISIONS[LATEST_MODERN].requests
)


class ModernClient(Translator):
    """The translator that answers ``server/discover`` and subscriptions. The rest is passed on, and
    comes back with the members that 2026-07-28 demands."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._hello: dict[str, Any] = {}
        self._info: object = None
        self._level: str | None = None
        self._loggers: list[tuple[Message, int]] = []
        self._listening: ListenRequests | None = None
        self._rounds: InputRequests | None = None
        self.take({"initialize": self._initialize})

    # -- handshakes ------------------------------------------------------------------------------

    async def greet(self, upstream: Upstream, message: Message) -> None:
        """Initialize the server as its client would. If the client's connection is one of many
        clients, what one of them says of itself holds for none of the others."""
        meta = None if self.downstream.shared else params_of(message).get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        offered = meta.get(META_CLIENT_CAPABILITIES)
        capabilities = declared(understood(offered), LATEST_LEGACY)
        hello = self._hello = await initialize(upstream, capabilities, meta.get(META_CLIENT_INFO))
        self._info = hello.get("serverInfo")
        ending = b',"resultType":"complete"'
        end = b""
        if self._info is not None:
            end = b',"_meta":' + encode({META_SERVER_INFO: self._info})
        self._level = None
        self._listening = ListenRequests(self.downstream, upstream, self._offered)
        self._rounds = InputRequests(self.downstream, end, self.delays.answer)
        translation = Lowering(ending + end, self._answered, self._called)
        translation.tracks = any(name in capabilities for name in CAPABILITY_OF.values())
        self.downstream.bind(self.downstream.binding.translated(translation))

    @property
    def _offered(self) -> dict[str, Any]:
        offered = self._hello.get("capabilities")
        return offered if isinstance(offered, dict) else {}

    def _initialize(self, downstream: Any, message: Message) -> None:
        """The client has only asked what there is, and goes on in a legacy era."""
        if not self.hand_back(message):
            self.downstream.refuse(
                message, codes.INVALID_REQUEST, "the connection is one of 2026-07-28 already"
            )

    # -- requests --------------------------------------------------------------------------------

    def handle(self, message: Message) -> Upstream | None:
        """Return the server of a request, or None if it was or will be answered."""
        try:
            return self._handle(message)
        except ProtocolError as exc:
            self.downstream.refuse(message, exc.code, exc.message, exc.data)
            return None

    def _handle(self, message: Message) -> Upstream | None:
        version = modern_version(message)
        method = message.method or ""
        if not version or message.lease(META_CAPABILITIES) is None:
            raise ProtocolError(codes.INVALID_PARAMS, "the envelope of the request is incomplete")
        if version not in MODERN_VERSIONS:
            raise ProtocolError(*unsupported(self._versions, version))
        if method.startswith("tasks/"):
            raise ProtocolError(
                codes.METHOD_NOT_FOUND,
                f"Method not found: {method} (the server is of a legacy era, whose tasks are not "
                "translated)",
            )
        if method in _REMOVED:
            raise ProtocolError(
                codes.METHOD_NOT_FOUND, f"Method not found: {method} (2026-07-28 does not have it)"
            )
        if message.lease(_LEVEL) is not None:
            self._note_level(message)
        if method == "server/discover":
            self.downstream.answer(message, discovered(self._hello, self._versions))
        elif method == "subscriptions/listen":
            assert self._listening is not None
            self._listening.add(message)
        elif method in INPUT_METHODS and _OF_A_ROUND.search(message.params or b""):
            self._pass_round(message)
        else:
            return self.upstream
        return None

    @property
    def _versions(self) -> tuple[str, ...]:
        version = self._hello.get("protocolVersion", LATEST_LEGACY)
        return LEGACY_VERSIONS[: LEGACY_VERSIONS.index(version) + 1]

    def _pass_round(self, message: Message) -> None:
        """Pass a request on that may belong to a round."""
        params = members_of(message.params)
        responses = params.pop("inputResponses", None)
        handle = params.pop("requestState", None)
        params.pop("task", None)  # 2026-07-28 ignores it, and the server would not
        if handle is not None:
            assert self._rounds is not None
            text = msgspec.json.decode(handle)
            text = text if isinstance(text, str) else ""
            self._rounds.resume(message, text, responses)
        else:
            self.downstream.pass_request(message, self.upstream, text=whole(message.method, params))

    # -- answers ---------------------------------------------------------------------------------

    def _answered(self, request: Message, answer: Message) -> Message | bytes | None:
        """Return what the client gets instead of an answer of the server; None: not yet."""
        return self._raised(request.method or "", answer)

    def _called(self, answer: Message) -> Message | bytes:
        """Return the same for a tool, where its call was not kept."""
        return self._raised("tools/call", answer)

    def _raised(self, method: str, answer: Message) -> Message | bytes:
        if answer.result is None:
            return raised_error(answer)
        try:
            return raised(method, answer.result, self._info)
        except msgspec.DecodeError as exc:
            raise malformed(exc) from None

    # -- log levels ------------------------------------------------------------------------------

    def _note_level(self, message: Message) -> None:
        """The server has the most verbose level that a request has asked for."""
        level = message.text(_LEVEL)
        if level not in LOG_LEVELS:
            raise ProtocolError(codes.INVALID_PARAMS, f"logLevel is one of {', '.join(LOG_LEVELS)}")
        # the level of a server that many clients share would hold for all of them
        if "logging" not in self._offered or self.downstream.shared:
            return
        rank = LOG_LEVELS.index(level)
        self._loggers = [one for one in self._loggers if self.downstream.is_open(one[0])]
        self._loggers.append((message, rank))
        if self._level is None or rank < LOG_LEVELS.index(self._level):
            self._level = level
            assert self.upstream is not None
            answer = self.upstream.ask("logging/setLevel", {"level": level})
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _logged(self, message: Message) -> None:
        """A log message goes to a request that is open and asked for it."""
        params = members_of(message.params)
        level = msgspec.json.decode(params.get("level", b"null"))
        if level not in LOG_LEVELS:
            return
        for request, rank in self._loggers:
            if LOG_LEVELS.index(level) >= rank and self.downstream.is_open(request):
                self.downstream.say("notifications/message", encode(params), request.ref)
                return

    # -- what the server says --------------------------------------------------------------------

    def server_asks(self, upstream: Upstream, message: Message) -> None:
        """Ask the client in a round."""
        if message.method == "ping":
            upstream.session.send_result(message, b"{}")
            if upstream.link is not None:
                upstream.link.wrote()
        elif message.method in CAPABILITY_OF and self._rounds is not None:
            self._rounds.ask(upstream, message)
        else:
            upstream.refuse(message, f"Method not found: {message.method}")

    def said(self, message: Message) -> None:
        """Pass a notification on, if a request or a subscription of the client asked for it."""
        method = message.method or ""
        if method == "notifications/message":
            self._logged(message)
        elif method in REVISIONS[LATEST_MODERN].server_notifications and self._listening:
            self._listening.said(message)

    # -- ends ------------------------------------------------------------------------------------

    def end(self) -> None:
        """End the subscriptions in order."""
        if self._listening is not None:
            self._listening.end()

    def lost(self) -> None:
        """The connection is gone."""
        self.end()
        self.stop_works()
        if self._rounds is not None:
            self._rounds.close()
        self._loggers.clear()
