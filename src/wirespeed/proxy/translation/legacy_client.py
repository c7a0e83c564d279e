"""A client of a legacy era with a server of 2026-07-28."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError, VersionMismatch
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_VERSIONS,
    LOG_LEVELS,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROTOCOL_VERSION,
    REVISIONS,
    declared,
    offers,
    understood,
)
from wirespeed.proxy.affinity import whole
from wirespeed.proxy.backend_config import RetryConfig
from wirespeed.proxy.isolation.handshake import learn_tools
from wirespeed.proxy.own_requests import modern_version, params_of, unsupported
from wirespeed.proxy.supervision.resilience import Retries
from wirespeed.proxy.translation.input_requests import INPUT_METHODS, input_responses
from wirespeed.proxy.translation.request_edits import Raising
from wirespeed.proxy.translation.results import (
    encode,
    initialized,
    lowered,
    lowered_error,
    malformed,
    members_of,
)
from wirespeed.proxy.translation.subscriptions import Updates
from wirespeed.proxy.translation.translator import Translator

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.upstream import Upstream

# Requests that no revision before 2026-07-28 has, and those of tasks, which are not translated.
_UNKNOWN = REVISIONS[LATEST_MODERN].requests.difference(
    *(REVISIONS[v].requests for v in LEGACY_VERSIONS)
)
_PATIENCE = 10.0  # seconds for the list of its tools
_TASKS = frozenset({"tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update"})


class LegacyClient(Translator):
    """The translator that answers ``initialize``, ``ping``, the log level and subscriptions. Each
    other request is passed on with the members of 2026-07-28 in its ``_meta``."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.capabilities: dict[str, Any] = {}
        self._info: object = None
        self._offered: dict[str, Any] = {}
        self._level: str | None = None
        self._updates: Updates | None = None
        self._greeted = False
        self._translation = Raising(self._answered)
        self.take(
            {
                "initialize": self._initialize,
                "ping": self._ping,
                "logging/setLevel": self._set_level,
                "resources/subscribe": self._subscribe,
                "resources/unsubscribe": self._unsubscribe,
                **dict.fromkeys(_UNKNOWN, self._unknown),
                **dict.fromkeys(_TASKS, self._task),
            }
        )

    # -- handshakes ------------------------------------------------------------------------------

    async def greet(self, upstream: Upstream, message: Message) -> None:
        """Ask the server what it is."""
        params = params_of(message)
        wanted = params.get("protocolVersion")
        offered = params.get("capabilities")
        if not isinstance(wanted, str):
            raise ProtocolError(codes.INVALID_PARAMS, "protocolVersion must be a string")
        self.capabilities = declared(understood(offered), LATEST_MODERN)
        self._info = params.get("clientInfo")
        upstream.speak(REVISIONS[LATEST_MODERN])
        upstream.expect_no_requests()
        found = await upstream.ask("server/discover", {"_meta": self.meta()})
        versions = found.get("supportedVersions") if isinstance(found, dict) else None
        if not isinstance(versions, list) or LATEST_MODERN not in versions:
            raise VersionMismatch("the server does not speak 2026-07-28", [])
        await learn_tools(upstream, Retries(RetryConfig()), _PATIENCE)
        version = wanted if wanted in LEGACY_VERSIONS else LATEST_LEGACY
        self._hello = initialized(found, version, upstream.name)
        self._offered = self._hello["capabilities"]
        self._updates = Updates(self.downstream, upstream, self._offered, self.meta)
        self._translation.decodes = version < "2025-06-18"

    def meta(self) -> dict[str, Any]:
        """Return the envelope of the client's requests."""
        meta: dict[str, Any] = {
            META_PROTOCOL_VERSION: LATEST_MODERN,
            META_CLIENT_CAPABILITIES: self.capabilities,
        }
        if isinstance(self._info, dict):
            meta[META_CLIENT_INFO] = self._info
        if self._level is not None:
            meta[META_LOG_LEVEL] = self._level
        return meta

    def _declare(self) -> None:
        self._translation.declare(encode(self.meta())[1:-1])

    def handle(self, message: Message) -> Upstream | None:
        """Return the server of a request, or None if it was answered."""
        downstream = self.downstream
        modern = modern_version(message)
        if modern is not None:
            downstream.refuse(message, *unsupported(LEGACY_VERSIONS, modern))
        elif message.method == "initialize" and not self._greeted:
            self._greeted = True
            downstream.speak(self._hello["protocolVersion"])
            self._declare()
            self.downstream.answer(message, encode(self._hello))
            downstream.bind(downstream.binding.translated(self._translation))
            if self.upstream is not None:  # else the client has left: that was its last answer
                self._resume()
        elif self.upstream is not None and self._greeted:
            if downstream.across is None:
                self._resume()
            return self.upstream
        else:
            downstream.refuse(message, codes.INVALID_PARAMS, "the connection is not initialized")
        return None

    def _resume(self) -> None:
        """Let requests go to the server, which is there, or is there again."""
        assert self.upstream is not None
        self.downstream.bind(
            self.downstream.binding.joined_to(self.upstream).admitting(legacy=True)
        )
        assert self._updates is not None
        self._updates.start()

    def lost(self) -> None:
        """The connection is gone: requests to be answered later fail, and their questions end."""
        self.downstream.bind(self.downstream.binding.admitting(legacy=False))
        self.stop_works()
        if self._updates is not None:
            self._updates.stop()

    # -- requests --------------------------------------------------------------------------------

    def _initialize(self, downstream: Any, message: Message) -> None:
        if self._greeted:
            self.downstream.refuse(
                message, codes.INVALID_REQUEST, "the connection is initialized already"
            )
        else:
            downstream.pause()  # what follows waits, too
            self.route(downstream, message)

    def _ping(self, downstream: Any, message: Message) -> None:
        self.downstream.answer(message, b"{}")

    def _unknown(self, downstream: Any, message: Message) -> None:
        self.downstream.refuse(
            message,
            codes.METHOD_NOT_FOUND,
            f"Method not found: {message.method} (it is of 2026-07-28)",
        )

    def _task(self, downstream: Any, message: Message) -> None:
        self.downstream.refuse(
            message,
            codes.METHOD_NOT_FOUND,
            f"Method not found: {message.method} (the server is of 2026-07-28, whose tasks are "
            "not translated)",
        )

    def _set_level(self, downstream: Any, message: Message) -> None:
        """Keep the level: each request names it."""
        level = params_of(message).get("level")
        if "logging" not in self._offered:
            self.downstream.refuse(
                message, codes.METHOD_NOT_FOUND, "Method not found: logging/setLevel"
            )
        elif level not in LOG_LEVELS:
            self.downstream.refuse(
                message, codes.INVALID_PARAMS, f"level is one of {', '.join(LOG_LEVELS)}"
            )
        else:
            self._level = level
            self._declare()
            self.downstream.answer(message, b"{}")

    def _subscribe(self, downstream: Any, message: Message) -> None:
        uri = params_of(message).get("uri")
        if not offers(self._offered, "resources", "subscribe"):
            self.downstream.refuse(
                message, codes.METHOD_NOT_FOUND, f"Method not found: {message.method}"
            )
        elif not isinstance(uri, str):
            self.downstream.refuse(message, codes.INVALID_PARAMS, "uri must be a string")
        else:
            assert self._updates is not None
            self.work(message, self._empty(message, self._updates.subscribe(uri)))

    def _unsubscribe(self, downstream: Any, message: Message) -> None:
        uri = params_of(message).get("uri")
        if not isinstance(uri, str):
            self.downstream.refuse(message, codes.INVALID_PARAMS, "uri must be a string")
        elif self._updates is None:
            self.downstream.refuse(
                message, codes.INVALID_PARAMS, "the connection is not initialized"
            )
        else:
            self.work(message, self._empty(message, self._updates.unsubscribe(uri)))

    async def _empty(self, message: Message, work: Coroutine[Any, Any, None]) -> None:
        await work
        self.downstream.answer(message, b"{}")

    # -- answers ---------------------------------------------------------------------------------

    def _answered(self, request: Message, answer: Message, n: int = 0) -> Message | bytes | None:
        """Return what the client gets instead of an answer of the server; None: not yet."""
        if answer.error is not None:
            return lowered_error(request, answer)
        try:
            return self._result(request, answer, n)
        except msgspec.DecodeError as exc:
            raise malformed(exc) from None

    def _result(self, request: Message, answer: Message, n: int) -> bytes | None:
        method = request.method or ""
        members = members_of(answer.result)
        kind = msgspec.json.decode(members.get("resultType", b'"complete"'))
        if kind == "input_required" and method in INPUT_METHODS:
            self.work(request, self._round(request, members, n))
            return None
        if kind != "complete":
            raise ProtocolError(
                codes.INTERNAL_ERROR, f"the server's result is of an unknown type: {kind!r}"
            )
        version = (
            LATEST_LEGACY if self.downstream.revision is None else self.downstream.revision.version
        )
        return lowered(method, members, version)

    async def _round(self, request: Message, result: dict[str, Raw], n: int) -> None:
        """Ask the client, then send its request again."""
        more = await input_responses(
            self.downstream, request, result, self.capabilities, n, self.delays.rounds
        )
        params = members_of(request.params)
        meta = self.meta() | members_of(params.get("_meta"))
        text = whole(request.method, {**params, **more, "_meta": meta})

        def after(answer: Message) -> Message | bytes | None:
            return self._answered(request, answer, n + 1)

        self.downstream.pass_request(request, self.upstream, text=text, after=after)

    # -- what the server says --------------------------------------------------------------------

    def server_asks(self, upstream: Upstream, message: Message) -> None:
        """Drop a request: servers of 2026-07-28 send none."""

    def said(self, message: Message) -> None:
        """Pass a log message on, if it is as severe as the client asked for."""
        if message.method != "notifications/message" or self._level is None:
            return
        params = members_of(message.params)
        level = msgspec.json.decode(params.get("level", b"null"))
        if level in LOG_LEVELS[LOG_LEVELS.index(self._level) :]:
            about = self.downstream.open_request()
            self.downstream.say("notifications/message", encode(params), about)
