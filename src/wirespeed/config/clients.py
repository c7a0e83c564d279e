"""Many servers as one client: opened together, one list of everything, each call to its server.

How lists are merged and names are prefixed is the proxy's, in `wirespeed.merging`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, Unpack

from wirespeed._exports import set_public_home
from wirespeed.client.client import Client
from wirespeed.client.results.features import (
    Discovery,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PromptInfo,
    PromptRef,
    ResourceInfo,
    ResourceRef,
    ResourceTemplateInfo,
    ToolInfo,
)
from wirespeed.config.document import enabled_servers
from wirespeed.config.merged_lists import (
    CHANGES,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    TOOLS,
    ListCallbacks,
    MergedLists,
    first_line,
    together,
)
from wirespeed.config.servers import ServerConfig
from wirespeed.errors import (
    ConfigError,
    ConnectionClosed,
    InputNeeded,
    RemoteError,
    TransportError,
    Unsupported,
    WirespeedError,
)
from wirespeed.merging import Kind, joined_instructions, prefix_of
from wirespeed.protocol import codes

if TYPE_CHECKING:
    from wirespeed.client.answering.answerer import AnyRoot
    from wirespeed.client.requests.send import CallOptions, RequestOptions
    from wirespeed.client.skills import RemoteSkill
    from wirespeed.client.subscriptions.subscription import Subscription
    from wirespeed.client.tasks.messages import TaskState
    from wirespeed.client.tasks.task import ToolTask
    from wirespeed.protocol.results import Completion, GetPromptResult, ReadResourceResult

T = TypeVar("T")

logger = logging.getLogger("wirespeed.client")

# The method of a client that lists everything of a kind.
_LISTING = {
    TOOLS: "list_tools",
    PROMPTS: "list_prompts",
    RESOURCES: "list_resources",
    TEMPLATES: "list_resource_templates",
}
# Options of a client that are those of one target.
_OF_ONE = ("headers", "token", "auth", "user")


class ClientGroup(Client):
    """Many servers as one client, an async context manager with the methods of `Client`::

        async with config.load("mcp.json").clients() as many:
            await many.list_tools()                  # of all servers
            await many.call_tool("calc_add", {"a": 1, "b": 2})
            await many["calc"].ping()                # the client of one server

    ``Client(configuration)`` makes one, too. The servers are opened together. One that cannot be
    opened is in `failures`, and logged; the next request for it tries again. Names of tools and
    prompts have the prefix of their server (``calc_``), unless there is one server only. Resources
    keep their URIs. Of entries of the same name or URI the first server's is listed, which is
    logged. A server that cannot be asked is missing in a list.

    What belongs to one connection is not here: `protocol_version`, `server_info`, `discover`,
    `request` and, of several servers, `subscribe` raise Unsupported. Ask the client of the server.

    Args:
        servers: The content of a configuration file (``{"mcpServers": {…}}``, in all shapes that
            `wirespeed.config.load` reads), the servers that it returns, or targets of clients by
            name.
        at_once: The most servers that are opened at a time.
        prefixes: Other prefixes by the names of servers; ``""`` for none.
        options: Those of `Client` for each server. The callbacks for changed lists are called with
            the merged lists.

    Attributes:
        clients: The client of each server by name, in order.
        failures: Why servers could not be opened, by name.
    """

    def __init__(
        self,
        servers: Mapping[str, Any],
        *,
        at_once: int = 8,
        prefixes: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(at_once, int) or at_once < 1:
            raise ValueError(f"at_once must be a count of at least 1, not {at_once!r}")
        for name in _OF_ONE:
            if options.get(name) is not None:
                raise TypeError(f"{name} is for the client of one server")
        self.clients: dict[str, Client] = {}
        self.failures: dict[str, Exception] = {}
        self._at_once = at_once
        self._is_open = False
        callbacks = {
            kind: options.pop(name)
            for name, kind in CHANGES.items()
            if options.get(name) is not None
        }
        self._asked: weakref.WeakKeyDictionary[InputNeeded, Client] = weakref.WeakKeyDictionary()
        stderr = options.pop("stderr", "inherit")
        found = enabled_servers(servers)
        if not found:
            raise ValueError("there is no server")
        given = dict(prefixes or {})
        if unknown := given.keys() - found.keys():
            raise ValueError(f"prefixes: there is no server {', '.join(sorted(unknown))}")
        alone = len(found) == 1
        prefixes_of = {name: given.get(name, "" if alone else prefix_of(name)) for name in found}
        self._lists = MergedLists(prefixes_of, self._ask)
        self._callbacks = ListCallbacks(callbacks, self._lists, lambda: dict(self._open()))
        self._servers = tuple(found)
        for name, server in found.items():
            heard: dict[str, Any] = {
                option: partial(self._callbacks.changed, kind, name)
                for option, kind in CHANGES.items()
                if kind in callbacks
            }
            try:
                self.clients[name] = (
                    server.client(stderr=stderr, **options, **heard)
                    if isinstance(server, ServerConfig)
                    else Client(server, **options, **heard)
                )
            except ConfigError as exc:
                self._failed(name, exc)

    def __repr__(self) -> str:
        return f"<ClientGroup of {', '.join(self.clients) or 'no server'}>"

    def __getitem__(self, name: str) -> Client:
        client = self.clients.get(name)
        if client is None:
            raise KeyError(f"there is no server {name!r}; there are {', '.join(self.clients)}")
        return client

    # -- opening and closing -----------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def open(self) -> None:
        """Open the clients that are not open. TransportError: none could be opened; for the only
        server its own exception."""
        gate = asyncio.Semaphore(self._at_once)
        self._is_open = True

        async def one(name: str, client: Client) -> None:
            async with gate:
                try:
                    await client.__aenter__()
                except Exception as exc:
                    self._failed(name, exc)
                else:
                    self.failures.pop(name, None)

        await together(one(name, client) for name, client in self.clients.items())
        if all(name in self.failures for name in self.clients):
            if len(self.failures) == 1:
                raise next(iter(self.failures.values()))
            texts = "; ".join(f"{name}: {first_line(self.failures[name])}" for name in self.clients)
            raise TransportError(f"none of the servers could be opened: {texts}")

    def _failed(self, name: str, exc: Exception) -> None:
        logger.warning("the server %s is left out: %s", name, first_line(exc))
        self.failures[name] = exc

    async def close(self) -> None:
        """Close all clients."""
        self._is_open = False
        done = await asyncio.gather(
            *(client.close() for client in self.clients.values()), return_exceptions=True
        )
        for error in done:
            if isinstance(error, BaseException):
                raise error

    async def restart(self) -> None:
        """End all servers, and start them again."""
        await self.close()
        await self.open()

    async def _used(self, name: str) -> Client:
        """The client of a server, opened now if that failed before."""
        client = self.clients.get(name)
        if client is None:  # its configuration has a fault
            raise self.failures[name]
        if name in self.failures and self._is_open:
            await client.open()
            self.failures.pop(name, None)
            await self._callbacks.came_late(name)
        return client

    # -- what the servers are ----------------------------------------------------------------------

    @property
    def protocol_version(self) -> Never:
        """Unsupported: each server has its own."""
        self._of_one("protocol_version")

    @property
    def server_info(self) -> Never:
        """Unsupported: each server has its own."""
        self._of_one("server_info")

    @property
    def server_capabilities(self) -> dict[str, Any]:
        """The capabilities that any of the open servers has."""
        found: dict[str, Any] = {}
        for _, client in self._open():
            for name, settings in client.server_capabilities.items():
                kept = found.setdefault(name, {})
                kept.update({key: value for key, value in settings.items() if not kept.get(key)})
        return found

    @property
    def instructions(self) -> str | None:
        """The instructions of the open servers, each below the name of its server."""
        return joined_instructions({name: one.instructions for name, one in self._open()})

    @property
    def counters(self) -> dict[str, int]:
        """The sums of the counts of all connections."""
        found: dict[str, int] = {}
        for client in self.clients.values():
            for name, count in client.counters.items():
                found[name] = found.get(name, 0) + count
        return found

    @property
    def timeout(self) -> float | None:
        """The longest of the clients' time limits for a request; None: one has no limit."""
        limits = [client.timeout for client in self.clients.values()]
        return None if None in limits else max(filter(None, limits), default=None)

    def _open(self) -> list[tuple[str, Client]]:
        """The clients that have agreed with their servers."""
        return [
            (name, client)
            for name, client in self.clients.items()
            if client._life.agreement is not None
        ]

    def _of_one(self, what: str) -> Never:
        raise Unsupported(f"{what} is of one server: {what} of a client in {self!r}.clients")

    # -- lists -------------------------------------------------------------------------------------

    async def _list(self, kind: Kind, options: Mapping[str, Any]) -> list[Any]:
        """The merged list. If no server answers, the error of the first is raised."""
        names = [name for name in self.clients if name not in self.failures]
        if not names or not self._is_open:
            raise ConnectionClosed("no server is open")
        return await self._lists.ask(kind, {name: self.clients[name] for name in names}, options)

    async def _ask(self, kind: Kind, client: Client, options: Mapping[str, Any]) -> list[Any]:
        await client._sender.revision()  # starts a server that is started at its first use
        if kind.capability not in client.server_capabilities:
            return []
        found: list[Any] = await getattr(client, _LISTING[kind])(**options)
        return found

    async def list_tools(self, **options: Unpack[RequestOptions]) -> list[ToolInfo]:
        """The tools of all servers, by their prefixed names."""
        return await self._list(TOOLS, options)

    async def list_prompts(self, **options: Unpack[RequestOptions]) -> list[PromptInfo]:
        """The prompts of all servers, by their prefixed names."""
        return await self._list(PROMPTS, options)

    async def list_resources(self, **options: Unpack[RequestOptions]) -> list[ResourceInfo]:
        """The resources of all servers."""
        return await self._list(RESOURCES, options)

    async def list_resource_templates(
        self, **options: Unpack[RequestOptions]
    ) -> list[ResourceTemplateInfo]:
        """The templates of resources of all servers."""
        return await self._list(TEMPLATES, options)

    async def _walk(self, kind: Kind, options: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        for entry in await self._list(kind, options):
            yield entry

    def iter_tools(self, **options: Unpack[RequestOptions]) -> AsyncGenerator[ToolInfo, None]:
        """The tools of all servers, from one merged list."""
        return self._walk(TOOLS, options)

    def iter_prompts(self, **options: Unpack[RequestOptions]) -> AsyncGenerator[PromptInfo, None]:
        """The prompts of all servers, from one merged list."""
        return self._walk(PROMPTS, options)

    def iter_resources(
        self, **options: Unpack[RequestOptions]
    ) -> AsyncGenerator[ResourceInfo, None]:
        """The resources of all servers, from one merged list."""
        return self._walk(RESOURCES, options)

    def iter_resource_templates(
        self, **options: Unpack[RequestOptions]
    ) -> AsyncGenerator[ResourceTemplateInfo, None]:
        """The templates of all servers, from one merged list."""
        return self._walk(TEMPLATES, options)

    async def _page(self, kind: Kind, cursor: str | None, options: Mapping[str, Any]) -> list[Any]:
        if cursor is not None:
            raise ValueError("a merged list has one page")
        return await self._list(kind, options)

    async def list_tools_page(
        self, cursor: str | None = None, **options: Unpack[RequestOptions]
    ) -> ListToolsResult:
        """The only page."""
        return ListToolsResult(await self._page(TOOLS, cursor, options))

    async def list_prompts_page(
        self, cursor: str | None = None, **options: Unpack[RequestOptions]
    ) -> ListPromptsResult:
        """The only page."""
        return ListPromptsResult(prompts=await self._page(PROMPTS, cursor, options))

    async def list_resources_page(
        self, cursor: str | None = None, **options: Unpack[RequestOptions]
    ) -> ListResourcesResult:
        """The only page."""
        return ListResourcesResult(resources=await self._page(RESOURCES, cursor, options))

    async def list_resource_templates_page(
        self, cursor: str | None = None, **options: Unpack[RequestOptions]
    ) -> ListResourceTemplatesResult:
        """The only page."""
        found = await self._page(TEMPLATES, cursor, options)
        return ListResourceTemplatesResult(resource_templates=found)

    # -- the server of a name or URI ---------------------------------------------------------------

    async def _named(self, kind: Kind, shown: str) -> tuple[Client, str]:
        """The client of a tool's or a prompt's server, and what the server calls it. RemoteError:
        no server can have it."""
        found = self._lists.holders(kind, shown)
        if not found:
            text = f"no server has {kind.name.removesuffix('s')} {shown!r}"
            prefixes = ", ".join(self._lists.prefixes)
            raise RemoteError(codes.INVALID_PARAMS, f"{text}: names begin with {prefixes}")
        server, *others = found
        if others:
            if self._lists.owner(kind, shown) is None:
                await self._list(kind, {})
            server = self._lists.owner(kind, shown) or ""
            if server not in found:  # it is not listed: the longest prefix says most
                server = self._lists.longest_prefix(found)
        return await self._used(server), found[server]

    async def _holding(self, uri: str) -> Client:
        """The client of the server that has a resource. RemoteError: none lists it."""
        if len(self._servers) == 1:
            return await self._used(self._servers[0])
        owner = self._lists.resource_owner(uri)
        if owner is None:
            await self._list(RESOURCES, {})
            await self._list(TEMPLATES, {})
            owner = self._lists.resource_owner(uri)
        if owner is not None:
            return await self._used(owner)
        raise RemoteError(-32002, "Resource not found: no server lists it", {"uri": uri})

    # -- tools -------------------------------------------------------------------------------------

    def call_tool(
        self, name: str, arguments: Any = None, **options: Any
    ) -> Coroutine[Any, Any, Any]:
        """Call a tool by its prefixed name: see `Client.call_tool`. RemoteError: no server has such
        a tool, too."""
        return self._call(name, arguments, options)

    async def _call(self, name: str, arguments: Any, options: dict[str, Any]) -> Any:
        client, real = await self._named(TOOLS, name)
        return await self._noted(client, client.call_tool(real, arguments, **options))

    async def _noted(self, client: Client, call: Awaitable[T]) -> T:
        """Await a call, and note whose a question is that it ends with."""
        try:
            return await call
        except InputNeeded as exc:
            self._asked[exc] = client
            raise

    async def resume(
        self, needed: InputNeeded, answers: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Continue a call of this group: see `Client.resume`."""
        client = self._asked.get(needed)
        if client is None:
            raise ValueError("the exception is not of a call of this group")
        return await self._noted(client, client.resume(needed, answers, **options))

    async def start_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        ttl: float | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolTask:
        """Call a tool as a task: see `Client.start_tool`."""
        client, real = await self._named(TOOLS, name)
        return await self._noted(client, client.start_tool(real, arguments, ttl=ttl, **options))

    async def get_task(self, task_id: str, **options: Any) -> ToolTask:
        """A task by its id, of the server that has it: each is asked. RemoteError: none has it."""
        error: WirespeedError | None = None
        for _, client in self._open():
            try:
                return await client.get_task(task_id, **options)
            except WirespeedError as exc:
                error = exc
        raise error or ConnectionClosed("no server is open")

    async def list_tasks(self, **options: Any) -> list[TaskState]:
        """The tasks of all servers that list them (2025-11-25)."""
        found: list[TaskState] = []
        for _, client in self._open():
            if "list" in (client.server_capabilities.get("tasks") or ()):
                found += await client.list_tasks(**options)
        return found

    # -- resources and prompts ---------------------------------------------------------------------

    async def read_resource(self, uri: str, **options: Unpack[CallOptions]) -> ReadResourceResult:
        """Read a resource of the server that lists it, or lists a template that fits."""
        client = await self._holding(uri)
        return await self._noted(client, client.read_resource(uri, **options))

    async def read_template(
        self, uri_template: str, variables: Mapping[str, Any] | None = None, /, **options: Any
    ) -> ReadResourceResult:
        """Read the resource of a template: see `Client.read_template`."""
        client = await self._holding(uri_template)
        return await self._noted(client, client.read_template(uri_template, variables, **options))

    async def list_skills(
        self, *, server: str | None = None, **options: Unpack[RequestOptions]
    ) -> list[RemoteSkill]:
        """The skills of all servers, each with the name of its server as the label. ``server``:
        those of one server alone. Skills of several servers with the same URI are different
        skills."""
        if server is not None:
            return await self[server].list_skills(server=server, **options)
        names = [name for name in self.clients if name not in self.failures]
        found: dict[str, list[RemoteSkill]] = {}

        async def one(name: str) -> None:
            try:
                with contextlib.suppress(Unsupported):
                    found[name] = await self.clients[name].list_skills(server=name, **options)
            except WirespeedError as exc:
                logger.warning("the skills of %s are missing: %s", name, first_line(exc))

        await together(map(one, names))
        return [skill for name in names for skill in found.get(name, ())]

    async def get_skill(
        self, uri: str, *, server: str | None = None, **options: Unpack[RequestOptions]
    ) -> RemoteSkill:
        """A skill of a server. Unsupported: there are several servers, and none is named."""
        if server is None:
            if len(self._servers) > 1:
                self._of_one("get_skill without a server")
            server = next(iter(self._servers))
        return await (await self._used(server)).get_skill(uri, server=server, **options)

    async def list_skill_folder(
        self, uri: str, **options: Unpack[RequestOptions]
    ) -> list[ResourceInfo]:
        """The children of a folder of the only server. Unsupported: there are several."""
        if len(self._servers) > 1:
            self._of_one("list_skill_folder")
        return await (await self._used(next(iter(self._servers)))).list_skill_folder(uri, **options)

    async def subscribe_resource(self, uri: str, **options: Unpack[RequestOptions]) -> None:
        """Hear of changes of a resource: see `Client.subscribe_resource`."""
        await (await self._holding(uri)).subscribe_resource(uri, **options)

    async def unsubscribe_resource(self, uri: str, **options: Unpack[RequestOptions]) -> None:
        """End a subscription of `subscribe_resource`."""
        await (await self._holding(uri)).unsubscribe_resource(uri, **options)

    def subscribe(self, **options: Any) -> Subscription:
        """Receive reports of the only server. Unsupported: there are several; the callbacks hear of
        all."""
        if len(self._servers) > 1 or not self.clients:
            self._of_one("subscribe")
        return next(iter(self.clients.values())).subscribe(**options)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> GetPromptResult:
        """Get a prompt by its prefixed name."""
        client, real = await self._named(PROMPTS, name)
        return await self._noted(client, client.get_prompt(real, arguments, **options))

    async def complete(
        self,
        ref: PromptRef | ResourceRef | PromptInfo | ResourceTemplateInfo,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Completion:
        """Suggestions for an argument of a prompt or a template: see `Client.complete`."""
        if isinstance(ref, PromptRef | PromptInfo):
            client, real = await self._named(PROMPTS, ref.name)
            ref = PromptRef(real)
        else:
            uri = ref.uri if isinstance(ref, ResourceRef) else ref.uri_template
            client = await self._holding(uri)
        return await client.complete(ref, argument, value, context=context, **options)

    # -- all servers -------------------------------------------------------------------------------

    async def add_root(self, root: AnyRoot) -> bool:
        """Add a root for all servers."""
        return any([await client.add_root(root) for client in self.clients.values()])

    async def remove_root(self, root: AnyRoot) -> bool:
        """Remove a root for all servers."""
        return any([await client.remove_root(root) for client in self.clients.values()])

    async def roots_changed(self) -> None:
        """Tell all legacy servers that the function for the roots returns another list."""
        for client in self.clients.values():
            await client.roots_changed()

    async def request(self, method: str, *args: Any, **options: Any) -> Never:
        """Unsupported: a method of one server does not say whose it is."""
        self._of_one("request")

    async def discover(self, **options: Any) -> Discovery:
        """Unsupported: each server has its own."""
        self._of_one("discover")

    async def ping(self, **options: Any) -> None:
        """Wait for the answers of all open servers. The error of the first that fails is raised."""
        await together(client.ping(**options) for _, client in self._open())

    async def set_log_level(self, level: str, **options: Any) -> None:
        """Set the level of log messages at all open servers that have them."""
        for _, client in self._open():
            if "logging" in client.server_capabilities:
                await client.set_log_level(level, **options)

    def clear_cache(self) -> None:
        """Drop all cached answers."""
        for client in self.clients.values():
            client.clear_cache()


set_public_home(globals())
