"""The parts of one server, and how transports and clients in the same process serve it.

`wirespeed.Server` is what authors see of it. Each part has a type of its own; a part that
needs another finds it here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.peer.service import HttpService
from wirespeed.protocol.revisions import LOG_LEVELS
from wirespeed.server.asking.roots import RootsListeners
from wirespeed.server.connection import ServerConnection
from wirespeed.server.discovery import ServerDiscovery
from wirespeed.server.extensions import ExtensionCatalog
from wirespeed.server.feature_catalogs import PromptCatalog, ResourceCatalog
from wirespeed.server.middleware.stack import MiddlewareStack
from wirespeed.server.permissions import Visibility, checked_words
from wirespeed.server.requests.launchers import Threads
from wirespeed.server.session_state import DEFAULT_LEVEL
from wirespeed.server.subscriptions import LISTS
from wirespeed.server.tasks.catalog import Tasks
from wirespeed.server.tools.catalog import ToolCatalog
from wirespeed.transport.taskpool import TaskPool

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.auth.resource_server import ResourceServer
    from wirespeed.cluster.store import Cluster
    from wirespeed.limits import Limits
    from wirespeed.server.asking.request_state import Sealer
    from wirespeed.server.completion import Completable
    from wirespeed.server.dependencies.registry import Dependencies
    from wirespeed.server.lifespan import Life
    from wirespeed.server.middleware.functions import Middleware
    from wirespeed.server.mounting import Mount
    from wirespeed.server.permissions import Filter
    from wirespeed.server.server import Lifespan, Server
    from wirespeed.server.session_state import State
    from wirespeed.server.shared_stores import SharedStores
    from wirespeed.server.skills.service import SkillService
    from wirespeed.server.tools.signature import Extra
    from wirespeed.transport.http.exchange import HttpTarget
    from wirespeed.transport.http.options import HttpOptions, SessionDirectory
    from wirespeed.transport.http.server_card import ServerIdentity
    from wirespeed.transport.link import Link

# Kinds of changes that hosts tell each other.
LIST = "list"
RESOURCE = "resource"

_PROVIDERS = "wirespeed.server.dependencies.provider"


class Mounts:
    """The servers that are mounted on one server, and those on which it is mounted."""

    def __init__(self, service: McpService) -> None:
        self._service = service
        self.here: list[Mount] = []
        self.elsewhere: tuple[Mount, ...] = ()

    def servers(self) -> list[McpService]:
        """The servers that are mounted here, each once."""
        return list(dict.fromkeys(mount.inner for mount in self.here))

    def add(self, mount: Mount) -> None:
        """Show what the mounted server offers; it passes its middleware, and lives as long."""
        self.here.append(mount)
        inner = mount.inner
        inner.mounts.elsewhere = (*inner.mounts.elsewhere, mount)
        for kind in ("tools", "prompts", "resources"):
            mount.sync(kind)
        self._changed(inner)
        if self._service.life is not None:
            self._service.life.adopt_soon(inner)

    def remove(self, inner: McpService) -> bool:
        """Hide what a mounted server offers. Returns whether it was mounted here."""
        ended = [mount for mount in self.here if mount.inner is inner]
        for mount in ended:
            self.here.remove(mount)
            inner.mounts.elsewhere = tuple(m for m in inner.mounts.elsewhere if m is not mount)
            mount.end()
        if ended:
            self._changed(inner)
            if self._service.life is not None:
                self._service.life.disown_soon(inner)
        return bool(ended)

    def middleware(self) -> Middleware | None:
        """A middleware that stands for those of the mounted servers; None if they have none."""
        if not self.here:
            return None
        from wirespeed.server.mounting import through_mounts

        return through_mounts(self._service)

    def _changed(self, inner: McpService) -> None:
        from wirespeed.server.mounting import has_middleware

        if has_middleware(inner):
            self._service.middleware.chain_changed(for_all=True)


class McpService(HttpService):
    """The parts of one server; see `wirespeed.Server` for the arguments.

    Attributes:
        server: What authors see of it.
        life: Its life on the event loop that serves it; None while nothing does.
        connections: Its clients at this moment.
        auth: Which access tokens clients must bring; None: the listener decides.
        tool_search: The search in place of the list of tools; None: clients list all.
        stores: What it keeps in the store of a cluster; None without one.
    """

    def __init__(
        self,
        server: Server,
        discovery: ServerDiscovery,
        sealer: Sealer,
        *,
        limits: Limits,
        page_size: int | None,
        shutdown_grace: float,
        lifespan: Lifespan | None,
        mask_errors: bool | None,
        extra: Extra,
        coerce: bool,
        filter: Filter | None,
        threads: int,
        auth: ResourceServer | None,
        secret: bytes | None,
    ) -> None:
        self.server = server
        self.stores: SharedStores | None = None
        self._secret = secret  # of all hosts
        self.auth = auth
        self.name = discovery.name
        self.discovery = discovery
        self.legacy_versions = discovery.legacy_versions
        self.modern_versions = discovery.modern_versions
        self.sealer = sealer
        self.limits = limits
        self.page_size = page_size
        self.shutdown_grace = shutdown_grace
        self.mask_errors = mask_errors
        self.connections: set[ServerConnection] = set()
        self.mounts = Mounts(self)
        self.visibility = Visibility(filter, auth, self.catalog, self.mounts.here)
        self.middleware = MiddlewareStack(
            self.connections,
            self.mounts.middleware,
            lambda: [mount.outer.middleware for mount in self.mounts.elsewhere],
        )
        self.threads = Threads(threads)
        self.extensions = ExtensionCatalog(discovery, self.middleware)
        self.tasks = Tasks(discovery, self.extensions)
        self.tools = ToolCatalog(self, self.tasks, extra=extra, coerce=coerce)
        self.tool_search: Any = None
        self.resources = ResourceCatalog(self, self.visibility)
        self.prompts = PromptCatalog(self)
        self.skills: SkillService | None = None  # made by the first `Server.add_skills`
        self.roots = RootsListeners(
            self.threads,
            self.lifespan_state,
            lambda: [server.roots for server in self.mounts.servers()],
        )
        self.lifespan = lifespan
        self.life: Life | None = None
        self.dependencies: Dependencies | None = None  # None until something is provided or taken
        if lifespan is not None:
            if not callable(lifespan):
                raise TypeError(f"a lifespan is a function of the server, not {lifespan!r}")
            self.made_dependencies().provide_state(lifespan)

    def __repr__(self) -> str:
        return repr(self.server)

    # -- changes ---------------------------------------------------------------------------------

    def list_changed(self, kind: str) -> None:
        """A list ("tools", "prompts", "resources") changed; from any thread. ValueError: the change
        does not fit where this server is mounted."""
        for mount in self.mounts.elsewhere:
            mount.check(kind)
        self.discovery.forget()
        self._tell_of_list(kind)
        if self.stores is not None:
            self.stores.changes.tell(LIST, kind)
        for mount in self.mounts.elsewhere:
            mount.sync(kind)

    def resource_updated(self, uri: str) -> None:
        """A resource changed; from any thread."""
        self._tell_of_resource(uri)
        if self.stores is not None:
            self.stores.changes.tell(RESOURCE, uri)
        for mount in self.mounts.elsewhere:
            mount.outer.resource_updated(mount.uri(uri))

    def _tell_of_list(self, kind: str) -> None:
        for connection in list(self.connections):
            if kind == "tools":
                connection.forget_tools()
            connection.changes.list_changed(kind)

    def _tell_of_resource(self, uri: str) -> None:
        for connection in list(self.connections):
            if not self.resources.hides(uri, connection):
                connection.changes.resource_updated(uri)

    def follow_changes(self) -> None:
        """There is a subscriber: hear of the changes that other hosts tell."""
        if self.stores is not None:
            self.stores.changes.follow()

    def _changed_elsewhere(self, kind: str, what: str) -> None:
        if kind == RESOURCE:
            self._tell_of_resource(what)
        elif kind == LIST and what in LISTS:
            self._tell_of_list(what)

    def _missed_changes(self) -> None:
        """Any list and any resource may have changed."""
        for kind in LISTS:
            self._tell_of_list(kind)
        for uri in {uri for one in list(self.connections) for uri in one.changes.all_uris()}:
            self._tell_of_resource(uri)

    def show(self, shown: bool, tags: Iterable[str], names: Iterable[str]) -> None:
        """Enable or disable entries for all clients; from any thread."""
        chosen = checked_words(tags, names)
        self.visibility.shown.say(shown, *chosen)
        self._seen_changed(self.visibility.touched(*chosen))

    def _seen_changed(self, kinds: Iterable[str]) -> None:
        """Clients see other entries of lists, here and where this server is mounted."""
        for kind in kinds:
            self.list_changed(kind)
        for mount in self.mounts.elsewhere:
            mount.outer._seen_changed(kinds)

    def use_tool_search(self, search: Any) -> None:
        """Begin a search in place of the list of tools, a `ServerToolSearch`. RuntimeError: the
        server has one already."""
        if self.tool_search is not None:
            raise RuntimeError(f"{self!r} has a search for its tools already")
        self.tool_search = search  # mounts must not show its tools
        try:
            search.register()
        except ValueError:
            self.tool_search = None
            raise
        for connection in list(self.connections):
            connection.search = self.tool_search
        self.list_changed("tools")

    def enable(self, feature: str) -> None:
        """Offer "prompts", "resources" or "completions" from now on, here and where this server is
        mounted; from any thread."""
        if self.discovery.enable(feature):
            for mount in self.mounts.elsewhere:
                mount.outer.enable(feature)

    def use_cluster(self, cluster: Cluster | str) -> None:
        """Share what outlives a request with other hosts: see `wirespeed.Server`.

        ValueError: the URL of the store is wrong, or the server has a secret of its own.
        RuntimeError: the server has a cluster already. ModuleNotFoundError: redis is missing.
        """
        if self._secret is None:
            raise ValueError(
                f"server {self.name!r} needs state_secret to share a store: at least 16 bytes, the "
                "same on every host"
            )
        if self.stores is not None:
            raise RuntimeError(f"server {self.name!r} has a cluster already")
        from wirespeed.cluster.store import Cluster
        from wirespeed.server.shared_stores import SharedStores

        found = Cluster(cluster) if isinstance(cluster, str) else cluster
        self.stores = stores = SharedStores(
            found,
            self.name,
            self._secret,
            on_change=self._changed_elsewhere,
            on_missed=self._missed_changes,
        )
        self.sealer.share(stores.single_use)
        if self.auth is not None:
            self.auth.share(stores.single_use, self._secret)
        self.tasks.share(stores.new_task_store)

    # -- dependencies ----------------------------------------------------------------------------

    def made_dependencies(self) -> Dependencies:
        """The dependencies of functions, made now if they must be."""
        if self.dependencies is None:
            from wirespeed.server.dependencies.registry import Dependencies

            self.dependencies = Dependencies(self)
        return self.dependencies

    def injecting(self) -> Dependencies | None:
        """The same; None while there cannot be any dependency: an annotation with `Depends` loads
        its module."""
        if self.dependencies is None and _PROVIDERS in sys.modules:
            return self.made_dependencies()
        return self.dependencies

    # -- serving ---------------------------------------------------------------------------------

    async def hold(self) -> Life:
        """Keep the server alive on the running loop until `release`; the first holder enters the
        lifespan. RuntimeError: another event loop serves it. StartupError: the lifespan failed."""
        from wirespeed.server.lifespan import hold

        return await hold(self)

    async def release(self, life: Life) -> None:
        """End a `hold`; the last one leaves the lifespan."""
        from wirespeed.server.lifespan import release

        await release(life)

    def lifespan_state(self) -> Any:
        """The value of the lifespan; None without one. RuntimeError: the server is not alive."""
        life = self.life  # another thread may ask while the life ends
        if life is None or not life.begun.done():
            raise RuntimeError(f"{self!r} is not alive: see `Server.running`")
        return life.state

    def running(self) -> AbstractAsyncContextManager[Any]:
        """`hold` and `release` as a context manager, which returns the state of the lifespan."""
        from wirespeed.server.lifespan import running

        return running(self)

    def connect(
        self,
        make_link: Callable[[ServerConnection], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
        lane: bool = False,
    ) -> ServerConnection:
        """Serve one more client over the link that ``make_link`` makes for it. ``framer``: how
        messages lie in the stream; one a line by default. ``lane``: its requests come from
        different clients."""
        connection = ServerConnection(self, loop, pool, framer)
        make_link(connection)
        self.connections.add(connection)
        return connection

    def http_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """See `HttpService`. Events are kept in the store of the cluster, if there is one and the
        options name none."""
        if options.directory is not None:
            self.follow_changes()
        if self.stores is not None and options.event_store is None:
            options = msgspec.structs.replace(options, event_store=self.stores.new_event_store())
        return super().http_target(options, loop=loop, pool=pool)

    def session_directory(self, url: str) -> SessionDirectory:
        """What finds the sessions of other hosts. ValueError: the server has no cluster, or the URL
        is not that of a host."""
        if self.stores is None:
            raise ValueError("host_url needs a Server with cluster")
        return self.stores.new_session_hosts(url)

    def session_kept(self, connection: Any, /) -> bytes:
        """As `HttpService.session_kept`: of `State`."""
        state: State = connection.state
        return state.kept()

    def restore_session(self, connection: Any, kept: bytes, /) -> None:
        """As `HttpService.restore_session`."""
        state: State = connection.state
        state.restore(kept)
        connection.forget_tools()

    def session_messages(self, connection: Any, /) -> tuple[bytes, ...] | None:
        """As `HttpService.session_messages`."""
        revision, state = connection.revision, connection.state
        if revision is None:
            return None
        hello = {
            "protocolVersion": revision.version,
            "capabilities": state.capabilities,
            "clientInfo": state.client_info,
        }
        said: list[tuple[str, dict[str, Any]]] = [("initialize", hello)]
        said.append(("notifications/initialized", {}))  # who comes back has the answer
        if state.log_level != DEFAULT_LEVEL:
            said.append(("logging/setLevel", {"level": LOG_LEVELS[state.log_level]}))
        said += [("resources/subscribe", {"uri": uri}) for uri in sorted(connection.changes.uris)]
        return tuple(
            msgspec.json.encode(
                {"jsonrpc": "2.0", "method": method, "params": params}
                | ({} if method.startswith("notifications/") else {"id": number})
            )
            for number, (method, params) in enumerate(said)
        )

    def well_known(self, path: str) -> Mapping[str, HttpTarget]:
        """The targets at further paths, where the server is served at a path."""
        return {} if self.auth is None else self.auth.well_known(path, self.scopes)

    def identity(self, guarded: bool) -> ServerIdentity:
        """The server as its card describes it."""
        from wirespeed.transport.http.server_card import ServerIdentity

        return ServerIdentity(self.discovery.info, self.discovery.versions)

    def scopes(self) -> set[str]:
        """The scopes that its tools, prompts, resources and templates need."""
        lists = (self.catalog(name) for name in ("tools", "prompts", "resources", "templates"))
        found = {
            scope
            for items in lists
            for item in list(items.items.values())
            for scope in item.scopes or ()
        }
        return found if self.skills is None else found | self.skills.scopes()

    def made_skills(self) -> SkillService:
        """The skills of the server. They are made at the first access."""
        if self.skills is None:
            from wirespeed.server.skills.service import SkillService

            self.skills = SkillService(self)
        return self.skills

    def catalog(self, name: str) -> Any:
        """One of its lists by name: "tools", "prompts", "resources", "templates", and "skills" of a
        server that has some."""
        if name == "skills":
            return self.skills
        if name == "tools":
            return self.tools
        if name == "prompts":
            return self.prompts
        return self.resources.fixed if name == "resources" else self.resources.templates

    def completable(self, ref: str | Callable[..., Any]) -> Completable:
        """The prompt or template of this name, or of this function. ValueError: there is none."""
        for item in (*self.prompts.items.values(), *self.resources.templates.items.values()):
            if ref == item.key or ref is item.function:
                return item
        raise ValueError(
            f"there is neither a prompt nor a resource template {ref!r}; "
            "register it before its completion"
        )
