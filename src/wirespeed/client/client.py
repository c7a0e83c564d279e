"""The client that people use: one target, many concurrent calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, Unpack, overload

from wirespeed._exports import set_public_home
from wirespeed.client.answering.options import HandlerOptions, SharedRoots, answering_of
from wirespeed.client.cache import ResponseCache
from wirespeed.client.connection.handshake import Era, Identity
from wirespeed.client.connection.lifecycle import Lifecycle
from wirespeed.client.extensions import ClientExtension, ClientExtensions
from wirespeed.client.feature_requests import (
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    TOOLS,
    FeatureRequests,
)
from wirespeed.client.output_checks import OutputChecks, Validate
from wirespeed.client.requests.middleware import ClientMiddleware, OutboundChain, OutboundRequest
from wirespeed.client.requests.rounds import MAX_ROUNDS, InputRounds
from wirespeed.client.requests.send import (
    CallOptions,
    Meta,
    OnNotice,
    OnProgress,
    RequestOptions,
    Sender,
    ToolCallOptions,
    any_result,
    params_text,
)
from wirespeed.client.results.features import (
    Discovery,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    LogMessage,
    PromptInfo,
    PromptRef,
    ResourceInfo,
    ResourceRef,
    ResourceTemplateInfo,
    SkillFile,
    ToolInfo,
)
from wirespeed.client.results.tool_values import ResultType
from wirespeed.client.subscriptions.callbacks import ChangeCallbacks, Consumers
from wirespeed.client.subscriptions.router import SubscriptionRouter
from wirespeed.client.subscriptions.subscription import (
    FIELDS,
    Subscription,
    SubscriptionFilter,
)
from wirespeed.client.targets import as_target
from wirespeed.client.tasks.calls import TaskCalls
from wirespeed.client.timeouts import CLIENT_DEFAULT, DELAYS, Timeout, seconds_of
from wirespeed.errors import ConnectionClosed, InputNeeded, Unsupported, WirespeedError
from wirespeed.limits import Limits
from wirespeed.protocol.results import (
    CallToolResult,
    Completion,
    GetPromptResult,
    ReadResourceResult,
)
from wirespeed.protocol.revisions import LOG_LEVELS

if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType

    import msgspec

    from wirespeed import Server
    from wirespeed.auth.client.session import Authorization
    from wirespeed.client.answering.answerer import AnyRoot
    from wirespeed.client.skills import RemoteSkill, SkillRequests
    from wirespeed.client.targets import Http, Socket, WebSocket
    from wirespeed.client.tasks.messages import TaskState
    from wirespeed.client.tasks.task import ToolTask
    from wirespeed.transport.child.command import Stdio

__all__ = ["Client", "Era", "OnProgress"]

T = TypeVar("T")


class Client:
    """An MCP client: an async context manager. `open` and `close` may run in different tasks.

    Args:
        target: ``Stdio(command, args)``, ``Http(url)``, ``WebSocket(url)``, ``Socket(url)``, a URL
            (``http://…``, ``https://…``, ``ws://…``, ``wss://…``, ``unix:…``, ``tcp://…``) for one
            of these three, the path of a Python file (``FILE.py`` or ``FILE.py:NAME``), which
            ``wirespeed serve`` serves, or a `Server` in this process. The content of a
            configuration file, or its servers by name, make a `ClientGroup`.
        headers, token, auth: As of `Http` and `WebSocket`, for a target that is their URL.
        user: For a `Server` in this process: the `User` that the client is, or the name of one, as
            if a listener had let the user in. Handlers see the user, and scopes are checked.
            Without it, the client is that of stdio: nobody, who may do everything.
        era: ``"auto"`` sends ``server/discover`` first, to find out whether the server is modern
            (2026-07-28); ``"legacy"`` sends ``initialize`` at once; ``"modern"`` never falls back
            to ``initialize``. The era of the server is kept for restarts.
        timeout: Seconds for each request, the wait until it can be sent included; None for no
            limit. A call may have a limit of its own. A request that takes longer is cancelled on
            the server and fails with `CallTimeout`.
        handshake_timeout: Seconds for the handshake.
        probe_timeout: Seconds after which a server that does not answer ``server/discover`` counts
            as a legacy server.
        name, version: The client's ``clientInfo``.
        log_level: The least severe level of log messages: see `set_log_level`.
        on_log: Called with each `LogMessage` of the server.
        on_prompts_changed, on_resources_changed, on_tools_changed: Called with the new list when
            the server reports a change of its list, and after a restart. A change of the resources
            may be a change of the resource templates. With such a callback, a server with
            ``Stdio(restart=…)`` or ``WebSocket(restart=…)`` is started or connected to again as
            soon as it is lost; without, at the next call.
        on_resource_updated: Called with the URI of a changed resource, and after a restart with the
            URI of each resource that `subscribe_resource` was called for. The URI may be that of a
            part of such a resource.
        on_elicit, on_elicit_url, on_elicit_complete, on_sample, sampling_tools, roots: Handlers for
            the server's questions: see `wirespeed.client.answering.options.HandlerOptions`.
        max_rounds: The most rounds of questions that the handlers answer in one call to a modern
            server (basic/patterns/mrtr). 0: each call with a question fails with `InputNeeded`.
        capabilities: Further capabilities to declare, such as ``{"experimental": …}``. A feature
            without its handler (``{"elicitation": {"form": {}}}``) is declared to modern servers,
            and calls that ask for it fail with `InputNeeded`: see `resume`.
        extensions: The client's extensions: their names, or an `Extension` for one whose messages
            the client serves, hears or sees; or a mapping of names to settings. With
            ``["io.modelcontextprotocol/tasks"]`` servers may answer a call with a task: `call_tool`
            waits for its result, and `start_tool` returns the task.
        validate: Whether structured output is checked against the tool's ``outputSchema``, by
            jsonschema-rs (the extra ``wirespeed[validate]``); a call whose result breaks the schema
            fails with InvalidResponse. False, the default: no result is checked. ``"auto"``: the
            results of listed tools are checked; a schema that cannot be used and a result that is
            too large are logged as a warning, and the result is not checked. True: every result is
            checked; the client lists the tools where a schema is not known, and a result that
            cannot be checked fails with InvalidResponse.
        cache: Whether lists, resources and discovery of a modern server are kept as long as they
            are fresh (``ttlMs``). They are dropped when the server reports a change, when the
            client connects again, and by `clear_cache`.
        digests: Experimental: whether a list is kept by the ``digest`` that a modern server gives:
            the next time its first page is asked for, and no others if it has the same digest. The
            entries are the same objects then. The server is told which digests the client knows.
        middleware: Coroutine functions around each request, the outermost first:
            ``async def mw(request, call_next): return await call_next(request)``. ``request`` is an
            `OutboundRequest`; the caller gets the result or the exception of the outermost one. The
            handshake and subscriptions do not pass the middleware.
        limits: The limits of the connection.
        auto_start: With False, the first request inside ``async with`` starts the server; `open`
            starts it at once.

    Callbacks run on the loop's thread, and may be coroutine functions. The calls of one coroutine
    function run one after another. At most 1,000 of these calls wait; then the oldest are dropped,
    which is logged once. Exceptions of callbacks are logged.
    """

    _delays = DELAYS

    def __init__(
        self,
        target: Stdio
        | Http
        | WebSocket
        | Socket
        | Server
        | str
        | PathLike[str]
        | Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        auth: Authorization | None = None,
        user: str | None = None,
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
        max_rounds: int = MAX_ROUNDS,
        capabilities: Mapping[str, Any] | None = None,
        extensions: Iterable[str | ClientExtension] | Mapping[str, Mapping[str, Any]] = (),
        validate: Validate = False,
        cache: bool = True,
        digests: bool = False,
        middleware: Iterable[ClientMiddleware] = (),
        limits: Limits | None = None,
        auto_start: bool = True,
        **handlers: Unpack[HandlerOptions],
    ) -> None:
        if era not in ("auto", "legacy", "modern"):
            raise ValueError('era must be "auto", "legacy" or "modern"')
        if log_level is not None and log_level not in LOG_LEVELS:
            raise ValueError(f"log_level must be one of {', '.join(LOG_LEVELS)}")
        if not isinstance(max_rounds, int) or max_rounds < 0:
            raise ValueError(f"max_rounds must be a count, not {max_rounds!r}")
        for what, seconds in (
            ("timeout", timeout),
            ("handshake_timeout", handshake_timeout),
            ("probe_timeout", probe_timeout),
        ):
            if not seconds_of(seconds, None, what) > 0:
                raise ValueError(f"{what} must be seconds above 0, not {seconds!r}")
        for top, settings in (capabilities or {}).items():
            if not isinstance(top, str) or not isinstance(settings, Mapping):
                raise TypeError(f"capabilities[{top!r}] must be a mapping")
        from wirespeed import __version__

        answering = answering_of(handlers, Client.__init__.__kwdefaults__ or ())
        info = {"name": name, "version": version or __version__}
        added = ClientExtensions(extensions)
        declared = dict(capabilities or {})
        if added.declared:
            declared["extensions"] = added.declared
        self._cache = ResponseCache() if cache else None
        chain = (*middleware, *added.middleware)
        known = None
        if digests:
            from wirespeed.client.digests import KnownLists

            known = KnownLists(self._cache)
            chain = (*chain, known.tell)
        self.target = as_target(target, headers, token, auth, user)
        self._identity = Identity(
            info, declared, log_level, answering, added.legacy, added.requests
        )
        self._auto_start = auto_start
        self._sender = Sender(timeout, OutboundChain(chain) if chain else None, self.open)
        self._features = FeatureRequests(self._sender, self._cache, self._learn, known)
        self._subscriptions = SubscriptionRouter(self._sender, self._cache)
        self._rounds = InputRounds(self._sender, self._identity, max_rounds, self._delays.rounds)
        self._skills: SkillRequests | None = None  # made at the first use
        self._task_only = self._sender.listed.task_only
        self._tasks = TaskCalls(self._sender, self._rounds, self._subscriptions)
        self._roots = SharedRoots(self._sender, self._identity)
        if hasattr(self.target, "sse"):  # Http, whose module need not be loaded for this
            self._sender.relist = self._features.tools_again
        if validate is not False:
            self._sender.checks = OutputChecks(validate, self._features.tools_again)
        consumers = Consumers(
            on_log=on_log,
            on_resource_updated=on_resource_updated,
            lists={
                "tools": (on_tools_changed, self.list_tools),
                "prompts": (on_prompts_changed, self.list_prompts),
                "resources": (on_resources_changed, self.list_resources),
            },
        )
        self._consumers = ChangeCallbacks(
            self._subscriptions,
            self._cache,
            self._identity,
            consumers,
            handshake_timeout,
            self._delays,
            added,
        )
        self._life = Lifecycle(
            self.target,
            era,
            self._identity,
            Limits() if limits is None else limits,
            self._consumers,
            handshake_timeout=handshake_timeout,
            probe_timeout=probe_timeout,
            delays=self._delays,
        )
        self._life.watch = added.watch
        self._sender.life = self._consumers.life = self._life
        self._sender.listed.fetch = self.list_tools
        self._sender.listed.spawn = self._life.spawn
        self._sender.continuation = self._tasks

    if not TYPE_CHECKING:

        def __new__(cls, target=None, *args, **options):
            if cls is Client and isinstance(target, Mapping):
                from wirespeed import ClientGroup

                return object.__new__(ClientGroup)
            return object.__new__(cls)

        __new__.__wrapped__ = __init__  # its parameters are those that people see

    def _learn(self, tools: list[ToolInfo]) -> list[ToolInfo]:
        """A page of tools arrived. Returns the tools that can be called."""
        agreement = self._life.agreement
        if self._sender.relist is not None and agreement is not None and agreement.revision.modern:
            link: Any = None if self._life.live is None else self._life.live.link
            if link is not None:
                tools = link.mirrored.learn(tools)
        if self._sender.checks is not None:
            self._sender.checks.learn(tools)
        self._sender.listed.learn(tools)
        return tools

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
            self._sender.start_at_use = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Launch or connect, and agree on a revision. Does nothing if the client is open.

        LaunchError, ChildExited: the server cannot be started, or ended at once; the text has the
        command, the directory, the exit status and the end of its stderr. TransportError: a server
        elsewhere cannot be reached. UpgradeRefused: the server answered the WebSocket upgrade with
        an HTTP status. HttpStatusError: a server of HTTP answered the handshake with a status.
        AuthorizationError: the server demands a token, and ``auth`` cannot get one.
        VersionMismatch: there is no common revision. CallTimeout: the server did not answer in
        time. ConnectionClosed: `close` was called meanwhile.
        """
        try:
            await self._life.open()
        except BaseException as exc:
            closed = ConnectionClosed("the client could not be opened")
            self._consumers.parted(exc if isinstance(exc, WirespeedError) else closed)
            raise

    async def close(self) -> None:
        """Close the client: calls that wait fail with ConnectionClosed, and a child process is
        ended and reaped. May be called twice, and from another task than `open`."""
        if self._life.leave_other_loop():
            return
        opening = self._sender.give_up_start()
        self._consumers.closed(ConnectionClosed("the client was closed"))
        await self._life.close()
        if opening is not None and not opening.done():
            await asyncio.wait((opening,))

    async def restart(self) -> None:
        """End the server, if it runs, and start it again. The client subscribes again."""
        await self._life.close("the client was restarted")
        await self.open()

    # -- what the server is ----------------------------------------------------------------------

    @property
    def protocol_version(self) -> str:
        """The revision agreed on."""
        return self._sender.agreed.revision.version

    @property
    def server_info(self) -> dict[str, Any] | None:
        """The identity of the server (``name``, ``version`` …)."""
        return self._sender.agreed.server_info

    @property
    def server_capabilities(self) -> dict[str, Any]:
        """The capabilities of the server."""
        return self._sender.agreed.capabilities

    @property
    def instructions(self) -> str | None:
        """The server's instructions for models."""
        return self._sender.agreed.instructions

    @property
    def counters(self) -> dict[str, int]:
        """Counts of messages and bytes on the connection: see `wirespeed.core.Session.counters`."""
        live = self._life.live
        return {} if live is None else live.session.counters

    @property
    def timeout(self) -> float | None:
        """Seconds that a request may take if the call has no timeout; None for no limit."""
        return self._sender.timeout

    # -- tools -----------------------------------------------------------------------------------

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | msgspec.Struct | bytes | None = None,
        **options: Unpack[CallOptions],
    ) -> Coroutine[Any, Any, CallToolResult]: ...

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | msgspec.Struct | bytes | None = None,
        *,
        type: type[T],
        **options: Unpack[CallOptions],
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | msgspec.Struct | bytes | None = None,
        *,
        type: Any,
        **options: Unpack[CallOptions],
    ) -> Coroutine[Any, Any, Any]: ...

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | msgspec.Struct | bytes | None = None,
        **options: Unpack[ToolCallOptions],
    ) -> Coroutine[Any, Any, Any]:
        """Call a tool (server/tools). Cancelling the asyncio task cancels the call on the server.
        A tool that only runs as a task is run as a task, and the call returns the task's result.

        Args:
            name: The tool.
            arguments: A mapping or a msgspec struct, or the JSON text of an object as bytes (which
                is checked).

        Raises:
            TypeError, ValueError: The arguments cannot be sent, or *type* cannot be decoded;
                nothing was sent.
            LimitExceeded: ``max_outstanding`` calls wait for their answers already.
            CallTimeout: No answer arrived in time.
            RemoteError: The server answered with an error. A tool that fails is not an error, but a
                result with ``is_error``: see `CallToolResult.raise_for_error`.
            InvalidResponse: The answer is not valid, or does not fit *type*.
            ConnectionClosed, ChildExited, ConnectionLost: The link is gone.
            HttpStatusError: A server of HTTP, or a proxy before it, answered with a status alone.
            TransportError: A lost connection cannot be made again.
        """
        by = self._tasks if name in self._task_only else self._sender
        through = self._sender.middleware
        if not options and through is None:
            return by.call_tool(name, arguments)  # the commonest call: one coroutine
        if "type" in options:
            wanted = ResultType(options.pop("type"))
            call = self.call_tool(name, arguments, **options)
            return wanted.of(name, call)
        rest: Any = options
        if through is None:
            try:
                return by.call_tool(name, arguments, **rest)
            except TypeError:  # of the names of options: nothing has run yet
                unknown = [key for key in rest if key not in ToolCallOptions.__optional_keys__]
            raise TypeError(
                f"call_tool() has no option {unknown[0]!r}; the arguments of the tool are one "
                f"mapping: call_tool({name!r}, {{{unknown[0]!r}: …}})"
            )
        return self._call_through(through, by, name, arguments, **rest)

    def _call_through(
        self,
        through: OutboundChain,
        by: Sender | TaskCalls,
        name: str,
        arguments: Any,
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
    ) -> Coroutine[Any, Any, CallToolResult]:
        """Call a tool through the middleware."""

        async def send(passed: OutboundRequest) -> CallToolResult:
            return await by.call_tool(
                name, passed.arguments, passed.timeout, on_progress, passed.meta
            )

        request = OutboundRequest(self._sender, "tools/call", name, None, arguments, meta, timeout)
        return through.run(request, send)

    async def resume(
        self,
        needed: InputNeeded,
        answers: Mapping[str, Any] | None = None,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
    ) -> Any:
        """Continue a call or a task that failed with `InputNeeded`, and wait for its result.

        This is possible until the server refuses its ``state`` as expired. If you cannot keep the
        exception, send ``inputResponses`` and ``requestState`` yourself, with `request`.

        Args:
            needed: The exception.
            answers: What handlers would return, by the keys of ``needed.requests``: `Accept`,
                "decline", `SampleResult`, a list of roots … The server may ask again for a key that
                is left out.
            timeout: Seconds from now on, as of `call_tool`.

        Raises:
            TypeError, ValueError: An answer does not fit its request; nothing was sent.
            InputNeeded: The server asks again, and the client has no handler for it.
            WirespeedError: As of `call_tool`.
        """
        return await self._rounds.resume(self._tasks, needed, answers, timeout)

    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | msgspec.Struct | bytes | None = None,
        *,
        ttl: float | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolTask:
        """Call a tool as a task: the call returns at once, and the result is fetched later.

        >>> task = await client.start_tool("crawl", {"url": "https://example.org/"})
        >>> async for state in task:
        ...     print(state.status, state.message)
        >>> result = await task.result()

        A server of 2025-11-25 is requested to make a task. A server of 2026-07-28 decides itself;
        the request declares the tasks extension. If the server answers with the result, the
        `ToolTask` has it from the start.

        Args:
            name, arguments, meta: As of `call_tool`.
            ttl: The requested time to live in seconds (2025-11-25; the server may choose another).
            timeout: Seconds for the answer with the task, as of `call_tool`. The time limit of the
                task is its time to live.
            on_progress: Called as of `call_tool`; in 2025-11-25 as long as the task works and the
                `ToolTask` exists, in 2026-07-28 until the call becomes a task.

        Questions of the server go to the client's handlers, as with `call_tool`.

        Raises:
            WirespeedError: As of `call_tool`.
        """
        return await self._tasks.start(name, arguments, ttl, **options)

    async def get_task(self, task_id: str, *, timeout: Timeout = CLIENT_DEFAULT) -> ToolTask:
        """A task by its id, also one of an earlier client. RemoteError -32602: the server has no
        such task for this client. LocalError: the server has no tasks."""
        return await self._tasks.get(task_id, timeout)

    async def list_tasks(self, *, timeout: Timeout = CLIENT_DEFAULT) -> list[TaskState]:
        """The tasks of this client that the server still has (2025-11-25 only). LocalError: the
        server has no such list."""
        return await self._tasks.list(timeout)

    # -- lists -----------------------------------------------------------------------------------

    # Lists that are fresh are not requested again: see ``cache``.

    async def list_tools(self, **options: Unpack[RequestOptions]) -> list[ToolInfo]:
        """All tools, from all pages, which take ``timeout`` together."""
        return await self._features.whole(TOOLS, **options)

    def iter_tools(self, **options: Unpack[RequestOptions]) -> AsyncGenerator[ToolInfo, None]:
        """The tools, page by page, each requested when it is needed; ``timeout`` is for each page.
        InvalidResponse for a server whose pages never end."""
        return self._features.walk(TOOLS, **options)

    async def list_tools_page(
        self, cursor: str | None = None, **options: Unpack[RequestOptions]
    ) -> ListToolsResult:
        """One page of tools/list; ``next_cursor`` is None on the last."""
        return await self._features.page(TOOLS, cursor, **options)

    async def list_resources(self, **options: Unpack[RequestOptions]) -> list[ResourceInfo]:
        """All resources, from all pages (server/resources, "Listing Resources")."""
        return await self._features.whole(RESOURCES, **options)

    def iter_resources(
        self, **options: Unpack[RequestOptions]
    ) -> AsyncGenerator[ResourceInfo, None]:
        """The resources, page by page, as `iter_tools`."""
        return self._features.walk(RESOURCES, **options)

    async def list_resources_page(
        self, cursor: str | None = None, **options: Unpack[RequestOptions]
    ) -> ListResourcesResult:
        """One page of resources/list."""
        return await self._features.page(RESOURCES, cursor, **options)

    async def list_resource_templates(
        self, **options: Unpack[RequestOptions]
    ) -> list[ResourceTemplateInfo]:
        """All templates of resources, from all pages (server/resources, "Resource Templates")."""
        return await self._features.whole(TEMPLATES, **options)

    def iter_resource_templates(
        self, **options: Unpack[RequestOptions]
    ) -> AsyncGenerator[ResourceTemplateInfo, None]:
        """The templates, page by page, as `iter_tools`."""
        return self._features.walk(TEMPLATES, **options)

    async def list_resource_templates_page(
        self, cursor: str | None = None, **options: Unpack[RequestOptions]
    ) -> ListResourceTemplatesResult:
        """One page of resources/templates/list."""
        return await self._features.page(TEMPLATES, cursor, **options)

    async def list_prompts(self, **options: Unpack[RequestOptions]) -> list[PromptInfo]:
        """All prompts, from all pages (server/prompts, "Listing Prompts")."""
        return await self._features.whole(PROMPTS, **options)

    def iter_prompts(self, **options: Unpack[RequestOptions]) -> AsyncGenerator[PromptInfo, None]:
        """The prompts, page by page, as `iter_tools`."""
        return self._features.walk(PROMPTS, **options)

    async def list_prompts_page(
        self, cursor: str | None = None, **options: Unpack[RequestOptions]
    ) -> ListPromptsResult:
        """One page of prompts/list."""
        return await self._features.page(PROMPTS, cursor, **options)

    # -- resources -------------------------------------------------------------------------------

    async def read_resource(self, uri: str, **options: Unpack[CallOptions]) -> ReadResourceResult:
        """Read a resource (server/resources, "Reading Resources").

        A missing resource is a RemoteError whose ``resource_missing`` is true: its code is -32602
        from 2026-07-28 on, and -32002 before.
        """
        return await self._features.read(uri, **options)

    async def read_template(
        self,
        uri_template: str,
        variables: Mapping[str, Any] | None = None,
        /,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
        **more: Any,
    ) -> ReadResourceResult:
        """Read the resource whose URI is a template (RFC 6570) with these variables, which are
        keywords or a mapping. ValueError, TypeError: the template is not valid, or a variable is of
        the wrong kind. Otherwise as `read_resource`."""
        from wirespeed.protocol.uri_template import UriTemplate

        uri = UriTemplate(uri_template).expand(variables, **more)
        return await self._features.read(uri, timeout, on_progress, meta)

    # -- skills ----------------------------------------------------------------------------------

    def _skill_requests(self) -> SkillRequests:
        if self._skills is None:
            from wirespeed.client.skills import SkillRequests, label_of

            self._skills = SkillRequests(self, self._features, label_of(self.target))
        return self._skills

    async def list_skills(
        self, *, server: str | None = None, **options: Unpack[RequestOptions]
    ) -> list[RemoteSkill]:
        """The skills that the server lists, from all pages: their entries, without any file. The
        server may have others. An entry that is not valid is left out, which is logged.

        ``server``: A label for the server; by default its URL, its command or, in this process,
        its name. Unsupported: the server has no skills.
        """
        return await self._skill_requests().listed(server, **options)

    async def get_skill(
        self, uri: str, *, server: str | None = None, **options: Unpack[RequestOptions]
    ) -> RemoteSkill:
        """A skill by the URI of its ``SKILL.md``, whether it is listed or not. RemoteError -32602:
        the server has no such skill. InvalidResponse: its entry is not valid."""
        return await self._skill_requests().get(uri, server, **options)

    async def read_skill(
        self,
        skill: RemoteSkill | str,
        path: str = "SKILL.md",
        **options: Unpack[RequestOptions],
    ) -> SkillFile:
        """Read a file of a skill, and verify it: `RemoteSkill.read`. For a URI, its skill is
        fetched first."""
        if isinstance(skill, str):
            skill = await self.get_skill(skill, **options)
        return await skill.read(path, **options)

    async def save_skill(
        self,
        skill: RemoteSkill | str,
        folder: str | PathLike[str],
        **options: Unpack[RequestOptions],
    ) -> None:
        """Write a skill into a new folder: `RemoteSkill.to_directory`. For a URI, its skill is
        fetched first."""
        if isinstance(skill, str):
            skill = await self.get_skill(skill, **options)
        await skill.to_directory(folder, **options)

    async def list_skill_folder(
        self, uri: str, **options: Unpack[RequestOptions]
    ) -> list[ResourceInfo]:
        """The direct children of a folder, from all pages, as the server has them now. They add
        nothing to the entry of a skill. Unsupported: the server does not list folders."""
        return await self._skill_requests().directory(uri, **options)

    async def subscribe_resource(self, uri: str, **options: Unpack[RequestOptions]) -> None:
        """Have ``on_resource_updated`` called when a resource changes: with resources/subscribe
        up to 2025-11-25, later with a ``subscriptions/listen`` that the client keeps. After a
        reconnection the client subscribes again.

        RemoteError: the server refuses. NotHonoured: the server does not report changes of the
        resource.
        """
        revision = await self._sender.revision()
        await self._consumers.hold(uri, revision.modern, **options)

    async def unsubscribe_resource(self, uri: str, **options: Unpack[RequestOptions]) -> None:
        """End a subscription of `subscribe_resource`, if there is one for the URI."""
        revision = await self._sender.revision()
        await self._consumers.release(uri, revision.modern, **options)

    def subscribe(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Iterable[str] = (),
        more: Mapping[str, Any] | None = None,
        max_events: int = 1000,
        **options: Unpack[RequestOptions],
    ) -> Subscription:
        """Receive reports of changes, as long as an ``async with`` lasts:

        >>> async with client.subscribe(tools=True, uris=["file:///x"]) as events:
        ...     async for event in events:
        ...         match event:
        ...             case ToolsChanged(): ...
        ...             case ResourceUpdated(uri): ...

        Args:
            tools, prompts, resources: Whether these lists change.
            uris: Resources whose changes the server should report.
            more: Further members of the filter of ``subscriptions/listen``, for extensions, whose
                notifications are `Notice` events. 2026-07-28 on.
            max_events: Events that wait to be fetched; when there would be more, they are all
                replaced by one `Overflowed`.
            timeout: Seconds for the server to acknowledge the subscription.
            meta: Further members of ``_meta`` of the requests of the subscription.

        See `Subscription` for the events, and how the iterator ends.
        """
        if isinstance(uris, str):
            raise TypeError("uris is a list of URIs, not one string")
        wanted = SubscriptionFilter(
            tools=tools,
            prompts=prompts,
            resources=resources,
            uris=tuple(dict.fromkeys(uris)),
            more=dict(more or {}),
        )
        if not all(isinstance(uri, str) for uri in wanted.uris):
            raise TypeError("uris must be strings")
        if not wanted:
            raise ValueError("subscribe to something: tools, prompts, resources or uris")
        if known := wanted.more.keys() & FIELDS:
            raise ValueError(f"more cannot have {', '.join(sorted(known))}, which has its argument")
        return Subscription(self._subscriptions, wanted, max_events, **options)

    # -- prompts ---------------------------------------------------------------------------------

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> GetPromptResult:
        """Get the messages of a prompt (server/prompts, "Getting a Prompt"). TypeError: an argument
        is not a string."""
        return await self._features.get_prompt(name, arguments, **options)

    async def complete(
        self,
        ref: PromptRef | ResourceRef | PromptInfo | ResourceTemplateInfo,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Completion:
        """Suggestions for an argument that the user began to type (server/utilities/completion).

        Args:
            ref: The prompt, or the template of resources, that has the argument.
            argument: The name of the argument.
            value: The text that was typed so far.
            context: Arguments that have values already (from 2025-06-18 on; not sent to older
                servers).
        """
        return await self._features.complete(ref, argument, value, context, **options)

    # -- roots -----------------------------------------------------------------------------------

    async def add_root(self, root: AnyRoot) -> bool:
        """Add a root: a path, a ``file://`` URI or a `Root`, which replaces a root with the same
        URI. A legacy server is notified of the change; a modern server sees it when it asks.
        False: the same root was in the list.

        TypeError, ValueError: not a root, or the client's roots are a function.
        """
        return self._roots.add(root)

    async def remove_root(self, root: AnyRoot) -> bool:
        """Remove a root. False: it was not in the list. Otherwise as of `add_root`."""
        return self._roots.remove(root)

    async def roots_changed(self) -> None:
        """Tell a legacy server that the function for the roots returns another list."""
        self._roots.changed()

    # -- the rest --------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        decode: Callable[[Any], Any] = any_result,
        on_notice: OnNotice | None = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Send any request. ``params`` are without ``_meta``, which the client adds. ``decode`` is
        called with the JSON text of the result, bytes-like, which must be copied to be kept; its
        value is returned. ``resultType`` is not checked. Otherwise as `call_tool`.

        ``on_notice`` is for a request of an extension that stays open, with ``timeout=None``: it is
        called with method and params of each notification that carries the id of the request."""
        body = None
        if params is not None:
            if not isinstance(params, Mapping):
                raise TypeError(f"params must be a mapping, not {type(params).__name__}")
            if "_meta" in params:
                raise ValueError("the client itself writes params._meta: see the argument meta")
            body = params_text(method, dict(params))
        return await self._sender.send(method, body, decode, on_notice=on_notice, **options)

    async def ping(self, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None) -> None:
        """Wait for an answer to a ping. A modern server has no ping: it gets server/discover."""
        sender = self._sender
        limit = sender.seconds(timeout)
        _, left = await sender.ready("ping", limit)
        method = "server/discover" if sender.agreed.revision.modern else "ping"
        await sender.send(method, None, any_result, left, meta=meta)

    async def discover(self, **options: Unpack[RequestOptions]) -> Discovery:
        """The identity and the capabilities of a modern server (server/discover of 2026-07-28). A
        legacy server sends them with the handshake: see `Client.server_capabilities`. Unsupported:
        the server is a legacy server."""
        return await self._features.discover(**options)

    async def set_log_level(
        self, level: str, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> None:
        """Set the least severe level of log messages to get. In 2026-07-28 each request has the
        level. Unsupported: a server of an older revision does not have logging."""
        if level not in LOG_LEVELS:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}")
        sender, method = self._sender, "logging/setLevel"
        limit = sender.seconds(timeout)
        connection, left = await sender.ready(method, limit)
        agreed = sender.agreed
        if not agreed.revision.modern and "logging" not in agreed.capabilities:
            raise Unsupported("the server has not declared logging, so it has no log level")
        self._identity.log_level = level
        if agreed.revision.modern:
            self._identity.declare(connection, agreed.revision.version)
            return
        body = params_text(method, {"level": level})
        await sender.send(method, body, any_result, left, meta=meta)

    def clear_cache(self) -> None:
        """Drop all cached answers."""
        if self._cache is not None:
            self._cache.clear()


set_public_home(globals())
