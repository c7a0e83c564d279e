"""The server that people write: what they register, and where it listens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, Never, TypeAlias, TypeVar, Unpack, overload

from wirespeed._exports import set_public_home
from wirespeed.limits import Limits
from wirespeed.protocol.blocks import Icon
from wirespeed.protocol.structs import nearest
from wirespeed.server.asking.request_state import DEFAULT_TTL, Sealer, state_secrets
from wirespeed.server.context import Context
from wirespeed.server.discovery import ServerDiscovery
from wirespeed.server.service import McpService
from wirespeed.transport.loop import DEFAULT_SIZE

if TYPE_CHECKING:
    import os

    from wirespeed._core.slab import Lease
    from wirespeed.auth.resource_server import ResourceServer
    from wirespeed.cluster.store import Cluster
    from wirespeed.protocol.apps import App
    from wirespeed.server.asking.roots import RootsChange
    from wirespeed.server.dependencies.registry import ProviderOptions
    from wirespeed.server.extensions import Extension
    from wirespeed.server.middleware.functions import AskMiddleware, Middleware
    from wirespeed.server.permissions import Filter
    from wirespeed.server.prompts import Prompt, PromptOptions
    from wirespeed.server.requests.observer import Observer
    from wirespeed.server.requests.operation import LimitOptions
    from wirespeed.server.resources.resource import (
        FolderOptions,
        Resource,
        ResourceOptions,
        ResourceTemplate,
    )
    from wirespeed.server.skills.sources import SkillOptions, SkillSource
    from wirespeed.server.tools.catalog import RawToolOptions, ToolOptions
    from wirespeed.server.tools.signature import Extra
    from wirespeed.server.tools.tool import Tool
    from wirespeed.skills.skill import Skill, SkillCatalog
    from wirespeed.tasks.store import TaskStore
    from wirespeed.tool_search import ToolSearch
    from wirespeed.transport.http.asgi import AsgiApp
    from wirespeed.transport.options import AsgiOptions, RunOptions, ServeOptions

Lifespan: TypeAlias = "Callable[[Server], AsyncIterator[Any] | AbstractAsyncContextManager[Any]]"

F = TypeVar("F", bound=Callable[..., Any])
OnRoots = TypeVar("OnRoots", bound="Callable[[RootsChange], Any]")
OnRequest = TypeVar("OnRequest", bound="Middleware")
OnQuestion = TypeVar("OnQuestion", bound="AskMiddleware")


class Server:
    """An MCP server.

    Tools, prompts, resources and completions are registered and removed from any thread, before or
    while the server runs. A server runs in one event loop at a time.

    Args:
        name: The name of the server.
        version: The version of the server.
        title: A name for people to read.
        instructions: How a model is to use the server.
        icons, website_url, description: More of its identity (2025-11-25 on).
        experimental: Capabilities that no revision has, by name, with their settings
            (``capabilities.experimental``).
        versions: The revisions that the server speaks; all by default.
        limits: The limits of one connection.
        page_size: Entries on one page of each list; None for one page with all entries.
        list_ttl_ms, cache_scope: Caching hints for lists and discovery (2026-07-28
            server/utilities/caching).
        digests: Experimental: whether lists and discovery have a ``digest`` for modern clients, and
            results name those that a client knows from before a change. Lists that a filter makes
            have none.
        shutdown_grace: Seconds that requests in flight get when the client leaves or the process
            gets SIGINT or SIGTERM.
        extra: What happens to arguments that a tool does not have, where the tool does not say
            (`add_tool`).
        coerce: Whether texts may stand for other arguments, where the tool does not say
            (`add_tool`).
        threads: The most worker threads, which run the plain functions of the server. Further calls
            of such functions wait. A thread cannot be stopped: it is free when its function ends,
            also after a cancellation or a timeout of the request.
        lifespan: An async context manager function, or an async generator function, of the server:
            entered before the first client is served, left after the last is gone, once in each
            process that serves. What it yields is `Context.lifespan_state`.
        state_secret: The secret that seals the ``requestState`` of questions to modern clients
            (`wirespeed.server.asking.request_state`): at least 16 bytes, or several secrets, of
            which the first seals and all open. Random by default; servers behind one address need
            the same.
        state_ttl: Seconds that a client may take to answer.
        state_single_use: Whether a ``requestState`` is accepted only once in each process; with
            ``cluster`` only once on all hosts.
        mask_errors: What clients see of an exception that a handler raises. True: its class, and a
            reference that the line in the log has, too. False: its text. None: its text from a
            tool, and "Internal error" from any other handler and from middleware. The texts of
            `wirespeed.errors.ToolError` and `wirespeed.errors.ProtocolError` always pass. Of a
            mounted server and the server that it is mounted on, the stricter setting counts.
        filter: A plain function of the user (`Context.user`) and an entry of a list
            (`wirespeed.types.ToolEntry`, `PromptEntry`, `ResourceEntry` or `TemplateEntry`) that
            returns whether the client sees the entry. A request for what the client does not see
            is answered as one for what does not exist. It is called for each entry of each list and
            for each call, on the event loop. Lists are then private (2026-07-28
            server/utilities/caching). If it raises an exception, the request gets -32603.
        auth: Which access tokens clients over HTTP and WebSocket must bring, a
            `wirespeed.auth.ResourceServer`. A listener then takes neither ``token`` nor
            ``authenticate``. On stdio, and for clients in the same process, nothing is checked:
            credentials come from the environment (MCP basic/authorization). The server cannot be
            served at ``tcp://`` and ``unix:``.
        cluster: The store that hosts of this server share, as a URL or a
            `wirespeed.cluster.Cluster`: tasks, events of streams, and what is accepted once. Stores
            that are named elsewhere (`use_tasks`, ``HttpOptions(event_store=…)``) stay. It needs
            ``state_secret``, the same on every host.

    Raises:
        ValueError: An argument is out of its range, or a text is not valid Unicode.
        TypeError: A value has no JSON form.
        ModuleNotFoundError: ``cluster`` needs ``pip install 'wirespeed[cluster]'``.
    """

    def __init__(
        self,
        name: str,
        version: str = "0",
        *,
        title: str | None = None,
        instructions: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Iterable[Icon] | None = None,
        experimental: Mapping[str, Mapping[str, Any]] | None = None,
        versions: Iterable[str] | None = None,
        limits: Limits | None = None,
        page_size: int | None = None,
        list_ttl_ms: int = 0,
        cache_scope: Literal["private", "public"] = "private",
        digests: bool = False,
        shutdown_grace: float = 5.0,
        extra: Extra = "forbid",
        coerce: bool = False,
        threads: int = DEFAULT_SIZE,
        lifespan: Lifespan | None = None,
        state_secret: bytes | Iterable[bytes] | None = None,
        state_ttl: float = DEFAULT_TTL,
        state_single_use: bool = False,
        mask_errors: bool | None = None,
        filter: Filter | None = None,
        auth: ResourceServer | None = None,
        cluster: Cluster | str | None = None,
        **unknown: Never,
    ) -> None:
        for option in unknown:
            hint = _INSTEAD.get(option) or nearest(option, Server.__init__.__kwdefaults__ or ())
            raise TypeError(f"Server() got an unexpected keyword argument {option!r}; {hint}")
        if page_size is not None and page_size < 1:
            raise ValueError("page_size must be at least 1")
        discovery = ServerDiscovery(
            name,
            version,
            title=title,
            instructions=instructions,
            description=description,
            website_url=website_url,
            icons=icons,
            experimental=experimental,
            versions=versions,
            list_ttl_ms=list_ttl_ms,
            cache_scope=cache_scope,
            digests=digests,
        )
        secrets = state_secrets(state_secret)
        self._service = McpService(
            self,
            discovery,
            Sealer(secrets, name, state_ttl, single_use=state_single_use),
            limits=Limits() if limits is None else limits,
            page_size=page_size,
            shutdown_grace=shutdown_grace,
            lifespan=lifespan,
            mask_errors=mask_errors,
            extra=extra,
            coerce=coerce,
            filter=filter,
            threads=threads,
            auth=auth,
            secret=None if state_secret is None else secrets[-1],
        )
        if cluster is not None:
            self._service.use_cluster(cluster)
        if digests:
            from wirespeed.server.digests import DigestCheck

            self._service.middleware.add(DigestCheck(self._service))

    def __repr__(self) -> str:
        return f"<Server {self.name!r}, {len(self._service.tools)} tools>"

    @property
    def service(self) -> McpService:
        """The service of this server (`wirespeed.transport.service.Service`), for transports."""
        return self._service

    @property
    def name(self) -> str:
        """The name of the server."""
        return self._service.name

    @property
    def version(self) -> str:
        """The server's own version."""
        return self._service.discovery.version

    @property
    def instructions(self) -> str | None:
        """The instructions for a model that uses the server."""
        return self._service.discovery.instructions

    @property
    def versions(self) -> tuple[str, ...]:
        """The revisions that the server speaks, the newest first of each era."""
        return self._service.discovery.versions

    @property
    def limits(self) -> Limits:
        """The limits of one connection."""
        return self._service.limits

    @property
    def shutdown_grace(self) -> float:
        """Seconds that requests in flight get at the end; may be set."""
        return self._service.shutdown_grace

    @shutdown_grace.setter
    def shutdown_grace(self, seconds: float) -> None:
        self._service.shutdown_grace = seconds

    # -- tools -----------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self, function: str | None = None, /, **options: Unpack[ToolOptions]
    ) -> Callable[[F], F]: ...

    def tool(
        self, function: F | str | None = None, /, **options: Unpack[ToolOptions]
    ) -> F | Callable[[F], F]:
        """Make a function a tool; as ``@server.tool``, ``@server.tool("name")`` or
        ``@server.tool(title=…)``.

        Its name, docstring and signature become the tool's name, description and input schema. A
        text in place of the function is the option ``name``. Options are those of `add_tool`.
        """
        return _decorate(self._service.tools.register, function, options, "tool")

    def add_tool(self, function: Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
        """Register a function as a tool; connected clients are notified.

        Args:
            function: A coroutine function, or a plain one, which runs in a worker thread.
            name, title, description: Instead of the function's own name and docstring.
            annotations: Hints such as ``{"readOnlyHint": True}`` (server/tools).
            icons, meta: For tools/list.
            tags: Words by which `disable` and `Context.enable` find the tool. Clients do not see
                them.
            structured: Whether results have structured content; by default the return type decides.
            extra: ``"forbid"`` refuses arguments that are not parameters, and the input schema says
                so; ``"ignore"`` drops them. By default the server's. Nested types follow their own
                rule, such as msgspec's ``forbid_unknown_fields``.
            coerce: Whether a text may stand for another value where a parameter takes no texts:
                ``"5"`` for 5, ``"true"``, ``"null"``, a list or an object as JSON. By default the
                server's.
            inline: Run a plain function on the event loop's thread, which does nothing else
                meanwhile: for functions of microseconds.
            timeout: Seconds after which a call is cancelled and answered with an error; waiting
                for other calls and for dependencies counts.
            max_concurrency: The most calls that run at a time. See
                `wirespeed.server.requests.launchers`.
            queue: The most calls that wait beyond these, 100 by default; more are refused with an
                error.
            task: Whether a call may (``"optional"``) or must (``"required"``) run as a task that
                outlives its request; for clients of 2025-11-25, and of 2026-07-28 with the tasks
                extension (see `use_tasks`).
            task_after: With ``task="optional"``, the seconds that a call of a modern client may
                take before it becomes a task; 2 by default, 0 for at once.
            scopes: What the access token of a client must permit, besides the scopes of every
                request (`wirespeed.auth.ResourceServer`), or `User.scopes` of the user whom
                ``authenticate`` returned. A client without them gets HTTP 403 with a challenge,
                and on WebSocket error -31003. Not asked of clients of stdio and of the same
                process.

        Raises:
            SignatureError: The signature cannot be a tool's; the text is the reason.
            ValueError: There is a tool of this name, an option is out of its range, or options do
                not go together.
            TypeError: There is no such option, or a value has no JSON form.
        """
        return self._service.tools.register(function, **options)

    def tool_raw(
        self,
        name: str,
        schema: Mapping[str, Any],
        handler: Callable[[Lease], Any] | Callable[[Lease, Context], Any],
        **options: Unpack[RawToolOptions],
    ) -> Tool:
        """Register a handler that gets its arguments undecoded.

        The result is treated like that of a function without a return annotation. The other
        options and the errors are those of `add_tool`.

        Args:
            name: The name of the tool.
            schema: The input schema (server/tools, "Tool"), which is announced, not enforced. Its
                type is ``"object"``.
            handler: Called with a bytes-like view of the JSON object that came in. The view pins
                input memory: keep it only after ``copy()``.
            context: Whether the handler's second argument is the `Context`.
            output_schema: The output schema, which is announced, not enforced. Its type is
                ``"object"``.
        """
        return self._service.tools.register_raw(name, schema, handler, **options)

    def remove_tool(self, name: str) -> None:
        """Remove a tool; calls under way go on. KeyError: there is none of this name."""
        self._service.tools.remove(name)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name."""
        return dict(self._service.tools.items)

    # -- resources -------------------------------------------------------------------------------

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Make the result of a function a resource, or, for a URI with variables, a template::

            @server.resource("config://app", mime_type="application/json")
            def config() -> dict[str, str]: ...

            @server.resource("users://{user_id}/avatar")
            async def avatar(user_id: int, ctx: Context) -> bytes: ...

        Options are those of `add_resource`.
        """
        if not isinstance(uri, str):
            raise TypeError(
                '@server.resource needs the URI of the resource: @server.resource("config://app")'
            )

        def decorate(function: F) -> F:
            self._service.resources.register(uri, function, **options)
            return function

        return decorate

    def add_resource(
        self, uri: str, content: Any, **options: Unpack[ResourceOptions]
    ) -> Resource | ResourceTemplate:
        """Register a resource or a template; connected clients are notified.

        A URI is looked for among the resources first, then matched with the templates in the order
        of their registration.

        Args:
            uri: A URI (RFC 3986), or a template (RFC 6570: ``{var}``, ``{+var}``, and at the end a
                query ``{?a,b}`` or ``{&a,b}`` and a fragment ``{#var}``) whose variables are
                parameters of the function. What is missing of a query or fragment has the
                parameter's default. Values that do not fit a parameter's type mean that there is
                no such resource.
            content: The content of the resource (`wirespeed.server.resources.contents` has the
                kinds), or a function that returns the content at each read; a plain function runs
                in a worker thread. A function that returns None, or raises `ResourceNotFound`,
                means that there is no such resource.
            name, title, description: Instead of the function's own name and docstring, or the URI.
            mime_type: The media type; by default that of the kind of value.
            size: Bytes, before encoding, for resources/list; known for fixed text and bytes.
            annotations, icons, meta: For the list.
            ttl_ms, cache_scope: How long a result may be kept, and by whom (2026-07-28
                server/utilities/caching), instead of the server's.
            timeout: Seconds after which a read is given up, including the wait for other requests.
            max_concurrency: The most requests whose function runs at a time. See
                `wirespeed.server.requests.launchers`.
            queue: The most requests that wait beyond these, 100 by default; more get error -31000.
            scopes: As of `add_tool`. Subscriptions and completions need them, too.
            safe: Whether a template's values that could lead a path out of its folder (``..``, a
                slash in front) mean that there is no such resource. Turn it off only where no
                value becomes part of a path.

        Raises:
            SignatureError: The function's parameters are not the template's variables.
            ValueError: The URI is not valid, the template cannot be matched, or there is such a
                resource already.
            TypeError: There is no such option, or a value has no JSON form.
        """
        return self._service.resources.register(uri, content, **options)

    def add_folder(
        self,
        uri_prefix: str,
        path: str | os.PathLike[str],
        *,
        hidden: bool = False,
        max_size: int = 16 << 20,
        **options: Unpack[FolderOptions],
    ) -> ResourceTemplate:
        """Serve the files below a folder, as the template ``{uri_prefix}/{+path}``.

        >>> server.add_folder("docs://", "/srv/docs")        # docs://guide/start.md

        Nothing outside the folder is read: ``..``, absolute paths, backslashes, NUL and links that
        lead out mean that there is no such resource, and so do files that are not regular files.
        The media type follows from the file's name; UTF-8 text goes out as text, anything else as
        a blob. ``path`` completes, one level at a time. The other options are those of
        `add_resource`.

        Args:
            uri_prefix: What the URIs begin with, such as ``file:///srv/docs`` or ``docs://``.
            path: The folder.
            hidden: Whether files and folders whose names begin with a dot are served.
            max_size: Bytes of the longest file, 16 MiB by default; a longer one is an error.

        Raises:
            NotADirectoryError: There is no such folder.
            ValueError: The prefix is not a URI, or is taken.
        """
        return self._service.resources.register_folder(
            uri_prefix, path, hidden=hidden, max_size=max_size, **options
        )

    def add_skills(
        self,
        source: str | os.PathLike[str] | Skill | Iterable[Skill] | SkillCatalog,
        **options: Unpack[SkillOptions],
    ) -> SkillSource:
        """Serve skills, by the extension ``io.modelcontextprotocol/skills``, to clients of both
        eras.

        >>> server.add_skills("skills")        # skills/refunds/SKILL.md is skill://refunds/SKILL.md

        A folder is read at once, as a whole; `SkillSource.reload` reads it again. A skill in it
        that
        cannot be served (its ``SKILL.md`` has no valid front matter, a name that is not its
        folder's; a link, a device or a name that is not UTF-8 is in it; it exceeds a limit) is left
        out, with a warning that names the file. Files and folders whose names begin with a dot are
        not served. A resource with the same URI as a file of a skill is not shown.

        Args:
            source: A folder of skills, one or several `wirespeed.skills.Skill`, or a
                `wirespeed.skills.SkillCatalog`, whose files are read when they are asked for.
            path: For a folder: the path before the names of skills in URIs, such as
                ``"acme/billing"``.
            listed: Whether the skills are listed. Clients get skills that are not listed by their
                URIs.
            scopes, tags: As of `add_tool`, for the skills and their files. ``Server(filter=…)``
                gets each skill as the `ResourceEntry` of its ``SKILL.md``.
            ttl_ms, cache_scope: As of `add_resource`.
            limits: The limits of what is read, a `wirespeed.skills.SkillLimits`.
            timeout: Seconds that a catalog may take for an answer; 10 by default.

        Raises:
            ModuleNotFoundError: PyYAML is not installed: ``pip install 'wirespeed[skills]'``.
            OSError: The folder cannot be read.
            LimitExceeded: The folder has too many skills, or too many bytes.
            ValueError: A skill with the same URI exists already, or an option is not valid.
        """
        return self._service.made_skills().add(source, options)

    def add_app(self, app: App) -> Resource | ResourceTemplate:
        """Serve a page for the results of tools that have `App.meta`, as a resource; the extension
        ``io.modelcontextprotocol/ui`` is declared to clients of both eras. ValueError: there is
        such a resource already."""
        from wirespeed.protocol.apps import MIME_TYPE, UI_EXTENSION
        from wirespeed.server.extensions import Extension

        contents = app.contents
        made = self._service.resources.register(
            app.uri,
            contents,
            name=app.name,
            title=app.title,
            description=app.description,
            mime_type=MIME_TYPE,
            size=len(app.html.encode()),
            meta=contents.meta,
        )
        if UI_EXTENSION not in self._service.extensions.by_name:
            self.add_extension(Extension(UI_EXTENSION, required=False, eras=("legacy", "modern")))
        return made

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or a template; reads under way go on. KeyError: the server has no such
        resource or template."""
        self._service.resources.remove(uri)

    @property
    def resources(self) -> Mapping[str, Resource]:
        """The resources by URI."""
        return dict(self._service.resources.fixed.items)

    @property
    def resource_templates(self) -> Mapping[str, ResourceTemplate]:
        """The resource templates by URI template."""
        return dict(self._service.resources.templates.items)

    def enable_resources(self) -> None:
        """Offer resources although there is none yet: a client of the legacy revisions learns what
        a server has once, when it connects. What was offered stays offered."""
        self._service.enable("resources")

    def resource_updated(self, uri: str) -> None:
        """Notify the clients that subscribed to the resource, or to a resource that it is a part
        of (``a://b`` for ``a://b/c``), of a change; from any thread."""
        self._service.resource_updated(uri)

    # -- prompts and completion ------------------------------------------------------------------

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(
        self, function: str | None = None, /, **options: Unpack[PromptOptions]
    ) -> Callable[[F], F]: ...

    def prompt(
        self, function: F | str | None = None, /, **options: Unpack[PromptOptions]
    ) -> F | Callable[[F], F]:
        """Make a function a prompt; as ``@server.prompt``, ``@server.prompt("name")`` or
        ``@server.prompt(title=…)``::

            @server.prompt
            def review(code: str, language: Literal["c", "python"] = "python") -> str:
                return f"Please review this {language} code: {code}"

        Its name, docstring and parameters become the prompt's name, description and arguments. A
        text in place of the function is the option ``name``. Options are those of `add_prompt`.
        """
        return _decorate(self._service.prompts.register, function, options, "prompt")

    def add_prompt(self, function: Callable[..., Any], **options: Unpack[PromptOptions]) -> Prompt:
        """Register a function as a prompt; connected clients are notified.

        Args:
            function: A coroutine function, or a plain one, which runs in a worker thread. A
                parameter without a default is a required argument.
            name, title, description: Instead of the function's own name and docstring.
            icons, meta: For prompts/list.
            timeout: Seconds after which a call is given up, including the wait for other calls.
            max_concurrency: The most calls that run at a time. See
                `wirespeed.server.requests.launchers`.
            queue: The most calls that wait beyond these, 100 by default; more get error -31000.
            scopes: As of `add_tool`. Completions need them, too.
            tags: As of `add_tool`.

        Raises:
            SignatureError: The signature cannot be a prompt's; the text is the reason.
            ValueError: There is a prompt of this name.
            TypeError: There is no such option, or a value has no JSON form.
        """
        return self._service.prompts.register(function, **options)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt; calls under way go on. KeyError: there is none of this name."""
        self._service.prompts.remove(name)

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompts by name."""
        return dict(self._service.prompts.items)

    def enable_prompts(self) -> None:
        """Offer prompts although there is none yet: a client of the legacy revisions learns what a
        server has once, when it connects. What was offered stays offered."""
        self._service.enable("prompts")

    @overload
    def completion(
        self, ref: str, argument: str, **options: Unpack[LimitOptions]
    ) -> Callable[[F], F]: ...

    @overload
    def completion(
        self, ref: Callable[..., Any], argument: str, **options: Unpack[LimitOptions]
    ) -> Callable[[F], F]: ...

    def completion(
        self,
        ref: str | Callable[..., Any],
        argument: str | None = None,
        **options: Unpack[LimitOptions],
    ) -> Callable[[F], F]:
        """Complete an argument of a prompt, or a variable of a resource template, by a function::

            @server.completion("review", "language")
            def languages(value: str) -> list[str]: ...

        Args:
            ref: The name of the prompt, or the template (``"users://{id}"``), as registered; or
                the function that was registered as one of them.
            argument: The name of the argument or variable.
            timeout, max_concurrency, queue: As of `add_prompt`.

        Raises:
            ValueError: There is no such prompt or template, or no such argument; an option is out
                of its range.
            SignatureError: The function does not take a value and, perhaps, the known arguments.
        """
        if argument is None:
            raise TypeError(
                "@server.completion needs a prompt or template and the argument's name: "
                '@server.completion("review", "language")'
            )
        return self._service.completable(ref).complete(argument, **options)

    def remove_completion(self, ref: str | Callable[..., Any], argument: str) -> None:
        """Remove the function of an argument, which no longer completes. KeyError: it has none;
        ValueError as of `completion`."""
        self._service.completable(ref).remove_completer(argument)

    # -- dependencies and the lifespan -----------------------------------------------------------

    @overload
    def provide(self, function: F, /) -> F: ...

    @overload
    def provide(
        self, function: None = None, /, **options: Unpack[ProviderOptions]
    ) -> Callable[[F], F]: ...

    def provide(
        self, function: F | None = None, /, **options: Unpack[ProviderOptions]
    ) -> F | Callable[[F], F]:
        """Make a function the provider of the type that it returns or yields.

        ::

            @server.provide(scope="server")
            async def database() -> AsyncIterator[Database]:
                async with connect() as db:
                    yield db

        Tools, prompts, resources and completions that are registered later get the value by
        annotating a parameter with the type. The rules are those of
        `wirespeed.server.dependencies.registry`.

        Args:
            scope: How long a value lives and who shares it: ``"request"``, ``"connection"`` or
                ``"server"``.
            provides: The type, instead of the function's return annotation.
            inline: Call a plain function on the event loop's thread instead of a worker thread.
                The loop does nothing else meanwhile: for functions of microseconds.

        Raises:
            DependencyError: The function cannot be a provider; the text is the reason.
        """
        return _decorate(self._service.made_dependencies().provide, function, options)

    def running(self) -> AbstractAsyncContextManager[Any]:
        """Keep the server alive on the running loop, as everything that serves it does: its
        lifespan is entered for the first that holds it and left for the last.

        >>> async with server.running() as state: ...

        ``state`` is what the lifespan yielded. For code that connects links of its own, or for a
        server that outlives its clients in this process.

        Raises:
            StartupError: The lifespan failed, or a dependency cannot be provided.
            RuntimeError: Another event loop serves the server.
        """
        return self._service.running()

    # -- what is shown ---------------------------------------------------------------------------

    def disable(self, *, tags: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        """Hide the tools, prompts, resources and templates that have one of these tags or names
        (URIs of resources) from all clients, those that are registered later, too. Requests for
        them are answered as for what does not exist. `Context.enable` shows them to one session.
        What was said last, of a name or a tag, decides.
        """
        self._service.show(False, tags, names)

    def enable(self, *, tags: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        """Show what `disable` hid."""
        self._service.show(True, tags, names)

    def use_tool_search(self, search: ToolSearch | None = None) -> None:
        """Show clients a search in place of a long list of tools: `wirespeed.ToolSearch`.

        >>> server.use_tool_search(ToolSearch(visible=("status",)))

        ``tools/list`` has the tools that are ``visible``, ``search_tools`` and ``call_tool``. A
        search finds what the client may see. A call by ``call_tool`` passes middleware, scopes,
        filters, limits and observers as a call of the tool itself does.

        Raises:
            ValueError: A tool has one of the two names.
            RuntimeError: The server has a search already.
        """
        from wirespeed.server.tool_search import ServerToolSearch  # most servers have none
        from wirespeed.tool_search import ToolSearch

        found = ServerToolSearch(self._service, search or ToolSearch())
        self._service.use_tool_search(found)

    # -- mounting --------------------------------------------------------------------------------

    @overload
    def mount(
        self, prefix: str, other: Server, *, separator: str = "_", uri_prefix: str = ""
    ) -> None: ...

    @overload
    def mount(
        self,
        other: Server,
        /,
        *,
        namespace: str | None = None,
        separator: str = "_",
        uri_prefix: str = "",
    ) -> None: ...

    def mount(
        self,
        prefix: str | Server = "",
        other: Server | None = None,
        *,
        namespace: str | None = None,
        separator: str = "_",
        uri_prefix: str = "",
        **unknown: Never,
    ) -> None:
        """Show what another server offers, under a prefix.

        >>> server.mount("calc", calculator)        # its tool "add" is "calc_add" here

        Tools, prompts, resources, templates and completions that are registered at the other server
        later show as well, and clients are notified. The other server may have mounted servers and
        its own clients. Its functions keep their dependencies, lifespan and limits, and requests
        for them pass its middleware behind that of this server. Instructions, extensions and
        settings are those of this server.

        Args:
            prefix: Stands before the names of tools and prompts; "" for none.
            other: The server.
            namespace: The prefix where the server comes first: ``mount(other, namespace="calc")``.
            separator: Stands between prefix and name.
            uri_prefix: Stands before the URIs of resources and templates, such as ``"calc+"``,
                which makes ``config://app`` ``calc+config://app``. By default they stay as they
                are.

        Raises:
            ValueError: A name or a URI is taken; then nothing is mounted. The same is raised, at
                ``other``, for what is registered there later.
        """
        for option in unknown:
            text = "write mount(prefix, server) or mount(server, namespace=…)"
            raise TypeError(f"mount() got an unexpected keyword argument {option!r}; {text}")
        if isinstance(prefix, Server) and other is None:
            other = prefix
            prefix = "" if namespace is None else namespace
        elif namespace is not None:
            raise TypeError(
                "mount(prefix, server) and mount(server, namespace=…): write one of them"
            )
        if not isinstance(other, Server) or not isinstance(prefix, str):
            text = "mount(prefix, server): the prefix comes first, then the server"
            within = isinstance(getattr(other, "server", None), Server)
            raise TypeError(text + f"; write {type(other).__name__}.server" * within)
        from wirespeed.server.mounting import Mount

        self._service.mounts.add(
            Mount(self._service, other._service, prefix, separator, uri_prefix)
        )

    def unmount(self, other: Server) -> None:
        """Hide what a mounted server offers; calls under way go on. ValueError: it is not
        mounted here."""
        if not self._service.mounts.remove(other._service):
            raise ValueError(f"{other!r} is not mounted on {self!r}")

    # -- middleware ------------------------------------------------------------------------------

    def add_middleware(self, middleware: OnRequest) -> OnRequest:
        """Put a coroutine function around every request of every client that connects from now on::

            @server.add_middleware
            async def timed(request: InboundRequest, call_next: CallNext) -> Reply | None:
                began = time.perf_counter()
                try:
                    return await call_next(request)
                finally:
                    log(request.method, request.name, time.perf_counter() - began)

        The middleware that was added first is the outermost. A middleware gets the request before
        anything is decoded (`wirespeed.types.InboundRequest`), and the result after it was encoded
        (`wirespeed.types.Reply`). A middleware may answer without the handler, with
        ``Reply.result(…)`` or by raising `wirespeed.errors.ProtocolError`; may replace the
        request, with ``call_next(request.replace(…))``, and the handler's reply; may call
        ``call_next`` again after it ended. ``call_next`` raises
        ProtocolError when the answer is an error; a tool that fails is not an error, but a reply
        with ``is_error``. Any other exception is logged, and the client gets -32603 "Internal
        error".

        The middleware and the handler run in one task: the handler sees context variables of the
        middleware, and a cancellation by the client reaches both. A cancelled request has no
        answer. For subscriptions/listen, which stays open, ``call_next`` returns None, and the
        middleware must return None, too.
        """
        return self._service.middleware.add(middleware)

    def add_ask_middleware(self, middleware: OnQuestion) -> OnQuestion:
        """Put a coroutine function around every request of the server to its clients (legacy):
        ``async def mw(question, call_next) -> bytes``, the JSON text of the client's result. See
        `wirespeed.types.ServerRequest`. A refusal of the client is raised as
        `wirespeed.errors.RemoteError`."""
        return self._service.middleware.add_ask(middleware)

    def observe(self, **options: Any) -> Observer:
        """The observer of this server, made at the first call, with the options of
        `wirespeed.server.requests.observer.Observer`. It observes later connections."""
        return self._service.middleware.observe(**options)

    # -- extensions, tasks, roots ----------------------------------------------------------------

    def add_extension(self, extension: Extension) -> Extension:
        """Offer an extension to modern clients. ValueError: another extension has the name or one
        of the methods."""
        return self._service.extensions.add(extension)

    @property
    def extensions(self) -> Mapping[str, Extension]:
        """The extensions by name."""
        return dict(self._service.extensions.by_name)

    def use_tasks(
        self,
        store: TaskStore | None = None,
        *,
        ttl: float | None = 3600.0,
        max_ttl: float | None = 86_400.0,
        poll_interval: float = 1.0,
    ) -> None:
        """Set the store of tasks and their lifetime. Without this call, the first tool with
        ``task=`` makes a store in memory with the defaults below.

        Args:
            store: The store of the tasks, a `wirespeed.tasks.MemoryTaskStore` by default.
            ttl: Seconds that a task is kept after its creation; None for as long as the store.
            max_ttl: The longest ``ttl`` that a client may request (2025-11-25); None for no limit.
            poll_interval: Seconds that clients should wait between two requests for a task's state.

        A task belongs to the principal of the connection that it was made over; without
        authentication it belongs to everyone who knows its id, which cannot be guessed.

        RuntimeError: tasks are in use already.
        """
        self._service.tasks.use(store, ttl=ttl, max_ttl=max_ttl, poll_interval=poll_interval)

    def on_roots_changed(self, function: OnRoots, /) -> OnRoots:
        """Call a function whenever a client reports that its roots changed (client/roots, "Root
        List Changes"; up to 2025-11-25)::

            @server.on_roots_changed
            async def changed(change: RootsChange) -> None:
                watched[change.connection_id] = await change.roots()

        A plain function runs in a worker thread, and cannot ask. Several are called one after the
        other. Calls for one client never overlap; changes that arrive meanwhile are reported once,
        afterwards. The calls end with the connection; what they raise is logged. Clients that
        declare no roots are ignored. A mounted server hears of the clients of the server that it is
        mounted on.
        """
        return self._service.roots.add(function)

    # -- running ---------------------------------------------------------------------------------

    async def serve(self, url: str | None = None, **options: Unpack[ServeOptions]) -> None:
        """Serve inside a running loop: stdio (``None``) until the client leaves, or a URL until
        SIGTERM or SIGINT.

        >>> await server.serve("ws://127.0.0.1:8765/mcp", token="…")

        Options are those of `wirespeed.serve` and `wirespeed.ListenOptions`.
        """
        from wirespeed.transport.options import checked_url

        url = checked_url(url, options)
        if url is None:
            from wirespeed.transport.stdio import serve_stdio

            await serve_stdio(self._service)
        else:
            from wirespeed.transport.net.serve import serve

            await serve(url, self._service, **options)

    def asgi(self, path: str = "/mcp", **options: Unpack[AsgiOptions]) -> AsgiApp:
        """Return an ASGI 3 application that serves Streamable HTTP, for other HTTP servers and for
        applications that mount it.

        >>> app = server.asgi(token="…")  # uvicorn tools:app

        Options are the fields of `wirespeed.ListenOptions` that are about requests: ``token``,
        ``authenticate``, ``origins``, ``hosts``, ``max_connections`` (requests at once) and
        ``http``. The timeouts of a connection are those of the HTTP server. By default any Host is
        accepted, and pages that came from the server's own IP address.

        ``path``: Below the path where the application is mounted.
        """
        from wirespeed.transport.http.asgi import AsgiApp
        from wirespeed.transport.options import ListenOptions

        return AsgiApp(self._service, path, ListenOptions(**options))

    def run(
        self,
        url: str | None = None,
        *,
        transport: Literal["stdio"] | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        """`serve` on a new event loop, on uvloop where it is installed, until the client leaves or
        the process gets SIGINT or SIGTERM.

        Options are those of `wirespeed.run`: ``workers``, and all of `serve`. ``run("stdio")`` and
        ``run(transport="stdio")`` say in words what no URL says; every other transport has a URL.
        """
        from wirespeed.transport.options import checked_url

        url = checked_url(url, options, transport)
        if url is None:
            from wirespeed.transport.loop import run

            run(self.serve())
        else:
            from wirespeed.transport.net.serve import run as run_at

            run_at(url, self._service, **options)


def _decorate(
    register: Callable[..., object],
    function: F | str | None,
    options: Mapping[str, object],
    kind: str | None = None,
) -> F | Callable[[F], F]:
    """Register a function and return it, now or as a decorator with options does. What has a
    *kind* may be given its name in place of the function."""
    if kind is not None and isinstance(function, str):
        if "name" in options:
            raise TypeError(
                f"@server.{kind}({function!r}, name={options['name']!r}) has two names: give one"
            )
        options, function = {**options, "name": function}, None

    def decorate(function: F) -> F:
        register(function, **options)
        return function

    return decorate if function is None else decorate(function)  # type: ignore[arg-type]


# Arguments that other libraries' servers have, and what to write for each.
_INSTEAD = {
    "tools": "server.add_tool(function) registers a tool",
    "middleware": "server.add_middleware(function) adds it",
}


set_public_home(globals())
