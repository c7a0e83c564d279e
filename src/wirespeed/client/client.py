"""The client that people use: one target, many concurrent calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Never, Self

from wirespeed.client.cache import ResponseCache
from wirespeed.client.connection.channels import as_target
from wirespeed.client.connection.handshake import Identity
from wirespeed.client.connection.lifecycle import Era, Lifecycle
from wirespeed.client.handlers import Handlers, OnElicit, OnSample, RootsOption
from wirespeed.client.methods import Requests
from wirespeed.client.requests.middleware import ClientMiddleware, OutboundChain
from wirespeed.client.requests.rounds import MAX_ROUNDS
from wirespeed.client.requests.send import Meta, OnProgress
from wirespeed.client.results.features import PromptInfo, ResourceInfo
from wirespeed.client.results.tools import LogMessage, ToolInfo
from wirespeed.client.subscriptions.callbacks import Consumers, News
from wirespeed.client.subscriptions.router import Hub
from wirespeed.client.tasks.calls import TaskCalls
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout, seconds_of
from wirespeed.client.validation.checks import OutputChecks, Validate
from wirespeed.errors import ConnectionClosed, Unsupported, WirespeedError
from wirespeed.limits import Limits
from wirespeed.protocol.revisions import LOG_LEVELS

if TYPE_CHECKING:
    from types import TracebackType

    from wirespeed.client.targets.remote import Socket, WebSocket
    from wirespeed.server import Server
    from wirespeed.transport.child.command import Stdio

__all__ = ["Client", "Era", "OnProgress"]


class Client(TaskCalls, Requests, Handlers):
    """An MCP client, to be used as an async context manager (or with `open` and `close`, which may
    run in different tasks).

    Args:
        target: ``Stdio(command, args)``, ``WebSocket(url)``, ``Socket(url)``, a URL (``ws://…``,
            ``wss://…``, ``unix:…``, ``tcp://…``) for the latter two, or a `Server` in this process.
        era: ``"auto"`` finds out whether the server is modern (2026-07-28) by asking
            ``server/discover`` first; ``"legacy"`` starts with ``initialize`` at once; ``"modern"``
            never falls back. What was found out is kept for restarts.
        timeout: Seconds that a request may take unless a call says otherwise, waiting until it can
            be sent included; None for no limit. The server is told to cancel, and the call fails
            with `CallTimeout`.
        handshake_timeout: Seconds that the server may take to be ready.
        probe_timeout: Seconds after which a silent server is taken for a legacy one.
        name, version: What the client says it is.
        log_level: The least severe level of log messages to get, as of `set_log_level`.
        on_log: Called with each `LogMessage` of the server.
        on_prompts_changed, on_resources_changed, on_tools_changed: Called with the new list when
            the server says that it changed, and after a restart (templates of resources may have
            changed with them: ask for those). A server that may be restarted
            (``Stdio(restart=…)``), or connected to again (``WebSocket(restart=…)``), then is so as
            soon as it was lost; otherwise at the next call.
        on_resource_updated: Called with the URI of a resource that changed, of those that
            `subscribe_resource` was called for, and with each of these after a restart. It may be
            the URI of a part of one.
        on_elicit, on_elicit_url, on_elicit_complete, on_sample, sampling_tools, roots, max_rounds:
            Answers to what the server asks: see `Handlers`.
        capabilities: What the client declares besides, such as ``{"experimental": …}``. A feature
            without its handler (``{"elicitation": {"form": {}}}``) is declared to modern servers,
            and calls that ask for it fail with `InputNeeded`: see `resume`.
        extensions: Extensions of 2026-07-28 that the client has, by name, with their settings where
            they have some: ``["io.modelcontextprotocol/tasks"]`` lets servers answer a call with a
            task, which `call_tool` waits for and `start_tool` gives (see there).
        task_requests: Whether a server of 2025-11-25 may have its sampling and elicitation answered
            as tasks, where the client has handlers for them.
        validate: Whether structured output is checked against the tool's ``outputSchema``, by
            jsonschema-rs (the extra ``wirespeed[validate]``); a call whose result breaks the schema
            fails with InvalidResponse. False, the default: no result is checked. ``"auto"``: the
            results of tools that were listed are checked; a schema that cannot be used and a result
            that is too large are logged as a warning, and the result goes unchecked. True: every
            result is checked; the tools are listed where a schema is not known, and what cannot be
            checked fails with InvalidResponse.
        cache: Whether answers of a modern server are kept as long as it says that they are fresh
            (``ttlMs``): lists, resources that are read, discovery. They are dropped when the server
            says that something changed, when the connection is made again, and by `clear_cache`.
        middleware: Coroutine functions around each request, the outermost first:
            ``async def mw(request, call_next): return await call_next(request)``, where ``request``
            is an `OutboundRequest`, and the result or the exception is what the caller gets. Not
            for the handshake and subscriptions.
        limits: What the connection may take.
        auto_start: False leaves the start to the first request inside ``async with`` (`open` still
            starts at once).

    Callbacks run on the loop's thread, and may be coroutine functions: each of those is called for
    one thing after another. At most 1,000 calls of it wait; then the oldest are left out, which is
    logged once. What callbacks raise is logged.
    """

    def __init__(
        self,
        target: Stdio | WebSocket | Socket | Server | str,
        *,
        era: Era = "auto",
        timeout: float | None = 60.0,
        handshake_timeout: float = 60.0,
        probe_timeout: float = 10.0,
        name: str = "wirespeed",
        version: str | None = None,
        log_level: str | None = None,
        on_log: Callable[[LogMessage], object] | None = None,
        on_prompts_changed: Callable[[list[PromptInfo]], object] | None = None,
        on_resource_updated: Callable[[str], object] | None = None,
        on_resources_changed: Callable[[list[ResourceInfo]], object] | None = None,
        on_tools_changed: Callable[[list[ToolInfo]], object] | None = None,
        on_elicit: OnElicit | None = None,
        on_elicit_url: OnElicit | None = None,
        on_elicit_complete: Callable[[str], object] | None = None,
        on_sample: OnSample | None = None,
        sampling_tools: bool = False,
        roots: RootsOption | None = None,
        max_rounds: int = MAX_ROUNDS,
        capabilities: Mapping[str, Any] | None = None,
        extensions: Iterable[str] | Mapping[str, Mapping[str, Any]] = (),
        task_requests: bool = False,
        validate: Validate = False,
        cache: bool = True,
        middleware: Iterable[ClientMiddleware] = (),
        limits: Limits | None = None,
        auto_start: bool = True,
    ) -> None:
        if era not in ("auto", "legacy", "modern"):
            raise ValueError('era must be "auto", "legacy" or "modern"')
        if log_level is not None and log_level not in LOG_LEVELS:
            raise ValueError(f"log_level must be one of {', '.join(LOG_LEVELS)}")
        for what, seconds in (
            ("timeout", timeout),
            ("handshake_timeout", handshake_timeout),
            ("probe_timeout", probe_timeout),
        ):
            if not seconds_of(seconds, None, what) > 0:
                raise ValueError(f"{what} must be seconds above 0, not {seconds!r}")
        from wirespeed import __version__

        self.target = as_target(target)
        self.era = era
        self.timeout = timeout
        self.handshake_timeout = handshake_timeout
        self.probe_timeout = probe_timeout
        asked = {"sampling": on_sample, "elicitation": on_elicit or on_elicit_url}
        tasks = self._set_up_tasks(extensions, asked if task_requests else None)
        declared, answering = self._set_up_handlers(
            on_elicit=on_elicit,
            on_elicit_url=on_elicit_url,
            on_elicit_complete=on_elicit_complete,
            on_sample=on_sample,
            sampling_tools=sampling_tools,
            roots=roots,
            capabilities={**(capabilities or {}), **tasks},
            max_rounds=max_rounds,
        )
        if validate is not False:
            self._checks = OutputChecks(validate, self._list_tools_again)
        info = {"name": name, "version": version or __version__}
        self._identity = Identity(info, declared, log_level, answering)
        self._auto_start = auto_start
        self._start_at_use = False
        chain = tuple(middleware)
        self._outgoing = OutboundChain(chain) if chain else None
        self._cache = ResponseCache() if cache else None
        self._hub = Hub(self, self._cache)
        consumers = Consumers(
            on_log=on_log,
            on_resource_updated=on_resource_updated,
            lists={
                "tools": (on_tools_changed, self.list_tools),
                "prompts": (on_prompts_changed, self.list_prompts),
                "resources": (on_resources_changed, self.list_resources),
            },
        )
        self._news = News(self._hub, self._cache, self._identity, consumers, handshake_timeout)
        self._life = self._news.life = Lifecycle(
            self.target,
            era,
            self._identity,
            Limits() if limits is None else limits,
            self._news,
            handshake_timeout=handshake_timeout,
            probe_timeout=probe_timeout,
        )

    def __repr__(self) -> str:
        agreement = self._life.agreement
        state = "closed" if agreement is None else agreement.revision.version
        return f"<Client of {self.target!r}: {state}>"

    # -- opening and closing ---------------------------------------------------------------------

    if not TYPE_CHECKING:  # type checkers refuse "with" because these are not there

        def __enter__(self) -> Never:
            raise TypeError(
                'Client is an asynchronous context manager: use "async with", or SyncClient'
            )

        def __exit__(self, *exc: object) -> None:
            pass

    async def __aenter__(self) -> Self:
        if self._auto_start:
            await self.open()
        else:
            self._start_at_use = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Launch or connect, and agree on a revision. Nothing happens if that is so already.

        LaunchError, ChildExited: the server cannot be started, or ended at once; the text has the
        command, the directory, the exit status and the end of its stderr. TransportError: a server
        elsewhere cannot be reached; UpgradeRefused: it answered with an HTTP status, which says
        nothing of eras. VersionMismatch: no revision in common. CallTimeout: it did not answer in
        time. ConnectionClosed: `close` was called meanwhile.
        """
        try:
            await self._life.open()
        except BaseException as exc:
            closed = ConnectionClosed("the client could not be opened")
            self._news.parted(exc if isinstance(exc, WirespeedError) else closed)
            raise

    async def close(self) -> None:
        """End it: calls that still wait fail with ConnectionClosed, a child process is ended and
        reaped. Safe to call twice, and from another task than `open`."""
        if self._life.leave_other_loop():
            return
        self._start_at_use = False
        opening, self._opening = self._opening, None
        if opening is not None and opening.get_loop() is not asyncio.get_running_loop():
            opening = None
        if opening is not None:
            opening.cancel()
        self._news.closed(ConnectionClosed("the client was closed"))
        await self._life.close()
        if opening is not None and not opening.done():
            await asyncio.wait((opening,))

    async def restart(self) -> None:
        """End the server, if it still runs, and start it anew. Subscriptions are made again."""
        await self._life.close("the client was restarted")
        await self.open()

    # -- what the server is ----------------------------------------------------------------------

    @property
    def protocol_version(self) -> str:
        """The revision agreed on."""
        return self._agreed.revision.version

    @property
    def server_info(self) -> dict[str, Any] | None:
        """What the server says it is (``name``, ``version`` …)."""
        return self._agreed.server_info

    @property
    def server_capabilities(self) -> dict[str, Any]:
        """What the server says it can do."""
        return self._agreed.capabilities

    @property
    def instructions(self) -> str | None:
        """How a model is to use the server."""
        return self._agreed.instructions

    @property
    def counters(self) -> dict[str, int]:
        """What went over the link so far: see `wirespeed.core.Session.counters`."""
        live = self._life.live
        return {} if live is None else live.session.counters

    # -- the rest --------------------------------------------------------------------------------

    async def ping(self, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None) -> None:
        """Ask whether the server is there; a modern one, which has no ping, for its discovery."""
        until = self._until(self._seconds(timeout))
        await self._ready("ping", self._seconds(timeout))
        method = "server/discover" if self._agreed.revision.modern else "ping"
        await self.request(method, timeout=self._rest(until), meta=meta)

    async def set_log_level(
        self, level: str, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> None:
        """The least severe level of log messages to get. In 2026-07-28 each request says it.
        Unsupported: a server of a revision before that, which has no logging."""
        if level not in LOG_LEVELS:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}")
        until = self._until(self._seconds(timeout))
        await self._ready("logging/setLevel", self._seconds(timeout))
        agreed = self._agreed
        if not agreed.revision.modern and "logging" not in agreed.capabilities:
            raise Unsupported("the server has not declared logging, so it has no log level")
        self._identity.log_level = level
        if not agreed.revision.modern:
            params = {"level": level}
            await self.request("logging/setLevel", params, timeout=self._rest(until), meta=meta)
        elif self._life.live is not None:
            self._life.live.use(agreed.revision, self._identity.meta(agreed.revision.version))
