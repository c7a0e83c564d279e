"""The service that listeners serve: all connections of clients to one server, or to all servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import msgspec

from wirespeed.peer.service import HttpService
from wirespeed.protocol import codes
from wirespeed.proxy.access.header_params import HeaderParams
from wirespeed.proxy.access.tool_schemas import ToolSchemas
from wirespeed.proxy.affinity import Seals, place_of
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.downstream import Downstream, WithoutSession
from wirespeed.proxy.flow.admission import RequestLimits
from wirespeed.proxy.hosts.client_state import ClientState
from wirespeed.proxy.hosts.over_http import OverHttp
from wirespeed.proxy.isolation.assignment import Assignment, assignment_of
from wirespeed.proxy.names.watch import NameWatch
from wirespeed.proxy.own_requests import modern_version, own_info
from wirespeed.proxy.service_life import ServiceLife
from wirespeed.proxy.upstream import Upstream, UpstreamOwner
from wirespeed.transport.memory import pair

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.base import Framer
    from wirespeed.limits import Limits
    from wirespeed.peer.http.http_session import HttpSession
    from wirespeed.peer.http.sessions import Sessions
    from wirespeed.proxy.access.audit import AuditLog
    from wirespeed.proxy.access.grants import Grants
    from wirespeed.proxy.access.principals import Principals, ProxyAuthority
    from wirespeed.proxy.access.skills import SkillApprovals, SkillGate
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.config import ProxyConfig
    from wirespeed.proxy.flow.quotas import EndpointQuotas
    from wirespeed.proxy.flow.rates import Rates
    from wirespeed.proxy.hook_config import HookConfig
    from wirespeed.proxy.hooks import HookedTools
    from wirespeed.proxy.hosts.membership import Membership
    from wirespeed.proxy.hosts.stores import ProxyStores
    from wirespeed.proxy.identity.logins import Logins
    from wirespeed.proxy.isolation.per_principal import PerPrincipal
    from wirespeed.proxy.lite import LiteFront, LiteFronts
    from wirespeed.proxy.merge.merged import Merged
    from wirespeed.proxy.meta_tools import MetaTools
    from wirespeed.proxy.operation.meter import Meter
    from wirespeed.proxy.supervision.supervisor import Supervisor
    from wirespeed.transport.http.exchange import HttpTarget
    from wirespeed.transport.http.options import HttpOptions, SessionDirectory
    from wirespeed.transport.http.server_card import ServerIdentity
    from wirespeed.transport.link import Link
    from wirespeed.transport.taskpool import TaskPool

logger = logging.getLogger("wirespeed.proxy")

# Requests of all clients at once that a server may have: the ids of `Pending` allow more.
_OUTSTANDING = (1 << 20) - 1
# Bytes that wait for a server to read them, at which the clients take turns: what it must read
# before it sees the next message. The pipe holds 64 KiB more.
_OUTPUT_HIGH, _OUTPUT_LOW = 256 * 1024, 64 * 1024


class ServiceAttachments(NamedTuple):
    """The attachments of a service. It has them from its birth on, so that nothing is lost when
    another takes its place.

    Attributes:
        audit: What notes the calls of tools; None: nothing does.
        tracer: What makes spans of requests; None: nothing does.
        meter: Counts requests of its clients and of the server.
        member: The process among the workers and hosts of the proxy.
        stores: The stores that the hosts of the proxy share; None: they share nothing.
        before_fork: Called before workers are forked, once for each service.
    """

    audit: AuditLog | None
    tracer: Any
    meter: Meter
    member: Membership
    stores: ProxyStores | None = None
    before_fork: Callable[[], None] = lambda: None


class ProxyService(HttpService):
    """An `HttpService` that passes everything on to servers.

    Attributes:
        name: The server's, or the proxy's.
        config: The server's; None for the endpoint of all servers.
        assignment: What knows which server.
        downstreams: The clients at this moment.
        farewell: What requests get after the last ones that are answered.
        opens: The methods of extensions whose requests stay open; None: there are none.
        flow: The limits of requests to the server; None without any, and for several servers.
        rates: How many requests clients may send; None: any number.
        quotas: How many calls of tools they may have in a day; None: any number.
        cut: How many clients were disconnected, by reason.
        auth: Who decides which clients may come in; None: the listener.
        access: What they may do; None: everything.
        audit: What notes what they do; None: nothing does.
        tracer: What makes spans of their requests; None: nothing does.
        meter: What is counted of them, and of the server.
        proxy_name: The name of the proxy, with which session ids begin; None: the listener's.
        mirrored: Compares arguments of tools with header fields.
        meta_tools: The tools of a search in place of a list; None: clients list all.
        hooks: The hooks of the server; None: it has none.
        skills: Decides which of its skills clients see; None: they see all.
        identities: Finds the connections of each principal; None: the server sees the proxy.
        logins: The logins of principals at the server; None: the server has no logins.
        names: Looks up the addresses of the server; None: the configuration has them.
        life: Its servers, which run while a listener needs them.
    """

    reads_headers: bool = False

    def __init__(
        self,
        config: ProxyConfig,
        name: str,
        assignment: Assignment,
        attached: ServiceAttachments,
        backend: BackendConfig | None = None,
    ) -> None:
        self.name = name
        self.proxy_name: str | None = None
        self.config = backend
        self.flow = None
        if backend is not None and backend.flow.is_on:
            self.flow = RequestLimits(backend.flow, backend.name)
        self.rates: Rates | None = None
        self.quotas: EndpointQuotas | None = None
        self.cut = {"slow reader": 0, "idle": 0, "replaced": 0}
        self.limits = config.limits
        self.opens = config.opens
        self.shutdown_grace = config.shutdown_grace
        self.assignment = assignment
        # A set of thousands takes three times the memory.
        self.downstreams: dict[Downstream, None] = {}
        self.farewell = "the proxy is shutting down"
        self.auth: ProxyAuthority | None = None
        self.access: Grants | None = None
        self.audit, self.tracer, self.meter, self._member = attached[:4]
        self.stores, self._before_fork = attached[4:]
        self.meta_tools: MetaTools | None = None
        self.hooks: HookedTools | None = None
        self.skills: SkillGate | None = None
        self.identities: PerPrincipal | None = None
        self.logins: Logins | None = None
        self.names = None
        if backend is not None and backend.resolve is not None:
            self.names = NameWatch(backend, cast("Any", assignment))
        self.life = ServiceLife(name, assignment, self.names, self.audit, self.stores)
        self._hooked: tuple[HookConfig, ...] = ()
        self._closing: asyncio.Future[None] | None = None
        self._drained: str | None = None
        self._translates = backend is not None and backend.translate
        self.is_alone = len(config.backends) == 1
        self.mirrored = HeaderParams(
            ToolSchemas(name, lambda owner, client: self.join(owner, client)[0]).ask
        )
        self._runs = backend  # what its servers are started by
        self._lite: LiteFronts | None = None
        self._over_http = OverHttp()

    @classmethod
    def of(cls, config: ProxyConfig, backend: BackendConfig, attached: ServiceAttachments) -> Self:
        """Return the service that passes everything on to one server."""
        limits = config.limits.replace(
            max_outstanding=_OUTSTANDING,
            output_high=min(config.limits.output_high, _OUTPUT_HIGH),
            output_low=min(config.limits.output_low, _OUTPUT_LOW),
        )
        used = backend
        if backend.protocol == "litemcp":
            from wirespeed.litemcp.bridge import as_mcp_server

            server: Any = as_mcp_server(backend.name, backend.target, config.limits)
            used = replace(backend, target=server, isolation="shared")
        if backend.identity is not None:
            service = cls._of_identities(config, backend, limits, attached)
        else:
            is_process = not hasattr(used.target, "url")
            seals = Seals(backend.name, attached.member, is_process=is_process)
            assignment = assignment_of(used, limits, attached.meter, seals)
            service = cls(config, backend.name, assignment, attached, backend)
        service._runs = used
        return service

    @classmethod
    def _of_identities(
        cls,
        config: ProxyConfig,
        backend: BackendConfig,
        limits: Limits,
        attached: ServiceAttachments,
    ) -> Self:
        """Return the service of a server with `identity`."""
        from wirespeed.proxy.identity.credentials import LoginCredentials, credentials_of
        from wirespeed.proxy.isolation.per_principal import PerPrincipal

        audit, identity = attached.audit, backend.identity
        assert identity is not None

        def note(principal: str, outcome: str, reason: str | None) -> None:
            if audit is not None:
                audit.identity(backend.name, identity.type, principal, outcome, reason)

        credentials = credentials_of(backend, note)
        seals = Seals(backend.name, attached.member, is_process=False)
        assignment = PerPrincipal(backend, limits, attached.meter, seals, credentials)
        service = cls(config, backend.name, assignment, attached, backend)
        service.identities = assignment
        if isinstance(credentials, LoginCredentials):
            from wirespeed.proxy.identity.logins import Logins

            service.logins = Logins(
                credentials, lambda: service.proxy_name or "", assignment.forget
            )
        return service

    @property
    def sees_users(self) -> bool:
        """Whether the server knows principals (`identity`)."""
        return self.identities is not None

    @property
    def supervisors(self) -> list[Supervisor]:
        """The lives of its servers."""
        if self.identities is not None:  # each life has a configuration of its own
            return self.identities.supervisors
        return [one for one in self.meter.supervisors if one.config is self._runs]

    def lite(self, tool: str) -> LiteFront:
        """Return what serves a tool of the server to clients of LiteMCP."""
        if self._lite is None:
            from wirespeed.proxy.lite import LiteFronts

            self._lite = LiteFronts(self)
        return self._lite.of(tool)

    def trace(self, tracer: Any) -> None:
        """Let a tracer make spans of the requests of clients that come."""
        self.tracer = tracer

    def guard(
        self,
        proxy_name: str | None,
        principals: Principals | None,
        server: str | None,
        names: Callable[[str], Iterable[str]],
        shows: Callable[[str], bool] | None,
    ) -> None:
        """Let only principals use the service, if there are any, and nobody a tool that the server
        does not show. ``server``, ``names`` and ``shows`` as of `Principals.grants`."""
        self.proxy_name = proxy_name
        grants = None
        if principals is not None:
            grants = principals.grants(server, names, shows)
            if self.auth is None:
                self.auth = principals.authority(server)
            else:
                self.auth.adopt(principals)
        if grants is None and shows is not None:
            from wirespeed.proxy.access.grants import everyone  # most proxies have no rules

            grants = everyone(shows)
        if self.access is None or grants is None:
            self.access = grants
        else:
            self.access.adopt(grants)

    def count(self, quotas: EndpointQuotas | None) -> None:
        """Set how many calls of tools clients may have in a day; None: any number."""
        self.quotas = quotas

    def hold_skills(self, approvals: SkillApprovals | None) -> None:
        """Show clients the skills that are approved alone; None: all skills."""
        if approvals is None:
            self.skills = None
        elif self.skills is None or self.skills.approvals is not approvals:
            from wirespeed.proxy.access.skills import SkillGate  # most servers have none

            self.skills = SkillGate(self.name, approvals)
        for downstream in self.downstreams:
            downstream.skills = self.skills

    @property
    def is_drained(self) -> bool:
        """Whether an operator has taken the server out of use."""
        return self._drained is not None

    async def control(self, action: str, principal: str = "") -> str:
        """Carry out an action of an operator. ``drain`` refuses new requests, and lets those go on
        that the server has. ``resume`` ends that. ``restart`` replaces processes and connections
        by new ones. ``logout`` ends the login of a principal. Returns the outcome in words.
        ValueError: there is no such action."""
        if action == "restart":
            restart = getattr(self.assignment, "restart", None)
            if restart is None:
                raise ValueError("the endpoint of all servers has nothing to restart")
            restart("an operator asked for it")
        elif action in ("drain", "resume"):
            text = f"the server {self.name} is drained by an operator"
            self._drained = text if action == "drain" else None
            for downstream in self.downstreams:
                downstream.drained = self._drained
        elif action == "logout":
            if self.logins is None or not principal:
                text = "name the principal" if self.logins else "users do not log in to it"
                raise ValueError(f"nobody can be logged out of {self.name}: {text}")
            if not await self.logins.log_out(principal):
                return "there is no such login"
        else:
            raise ValueError(f"there is no action {action[:50]!r}")
        logger.warning("%s: an operator asks for: %s", self.name, action)
        return "done"

    def replaced(self, farewell: str) -> None:
        """Another service takes the place of this one. ``farewell``: What requests get after the
        last ones that are answered."""
        self.farewell = farewell

    def adopt(
        self, config: ProxyConfig, rates: Rates | None, backend: BackendConfig | None
    ) -> None:
        """Take what may change while it serves: limits for connections of clients that come.
        ``backend``: how its server is shown."""
        self.config = backend
        self.limits, self.shutdown_grace, self.rates = config.limits, config.shutdown_grace, rates
        self.opens = config.opens
        self._search(config, backend)
        self._hook(backend)
        if backend is not None and backend.urls:
            readdress = getattr(self.assignment, "readdress", None)
            if readdress is not None:
                readdress(backend.urls)
        for downstream in list(self.downstreams):
            downstream.hooks, downstream.opens = self.hooks, self.opens
            if downstream.outer is None:
                downstream.allow(rates, self.access, self.meta_tools, self.quotas)
                self._review(downstream)
        self.is_alone = len(config.backends) == 1
        if self._lite is not None:
            self._lite.review()

    def _search(self, config: ProxyConfig, backend: BackendConfig | None) -> None:
        """Begin or end a search in place of a list, as the configuration says."""
        search = None if backend is None else backend.tool_search
        if backend is None or len(config.backends) == 1:
            search = search or config.tool_search
        if search is None:
            self.meta_tools = None
        elif self.meta_tools is None or self.meta_tools.config != search:
            from wirespeed.proxy.meta_tools import MetaTools  # most proxies have none

            self.meta_tools = MetaTools(search)

    def _hook(self, backend: BackendConfig | None) -> None:
        """Set up the hooks of the server."""
        wanted = () if backend is None else backend.hooks
        if wanted == self._hooked:
            return
        self._hooked, before, self.hooks = wanted, self.hooks, None
        if backend is not None and wanted:
            from wirespeed.proxy.hooks import HookedTools  # most servers have none

            self.hooks = HookedTools(backend)
        if before is not None:
            self._closing = asyncio.ensure_future(before.close())

    def _review(self, downstream: Downstream) -> None:
        """End the connection or the session of a client whose principal may use nothing any more. A
        lane is of the principal of the request that it has."""
        if self.access is None or self.access.of(downstream.principal) is not None:
            return
        if not downstream.shared or downstream.session.inflight.live:
            downstream.turn_away(codes.INVALID_REQUEST, "this client may not do that")
            downstream.drain()

    def before_fork(self, n: int) -> None:
        """The process will fork ``n`` workers."""
        self._member.fork(n)
        self._before_fork()

    def after_fork(self, worker: int) -> None:
        """This is one of the workers."""
        self._member.share(worker)

    async def hold(self) -> None:
        """Start the servers, for the first listener. TransportError: the only one cannot be
        started, or the audit log cannot be written."""
        if self.is_alone:
            await self.life.hold()
        else:  # the others do not wait for it
            self.life.begin()

    async def release(self, held: None) -> None:
        """End the servers, after the last listener. Clients that are left have their requests
        answered."""
        if not self.life.release():
            return
        while self.downstreams:
            for downstream in list(self.downstreams):
                downstream.drain()
            if self.downstreams:
                await asyncio.wait([downstream.closed for downstream in self.downstreams])
        await self.life.end()
        if self.hooks is not None:
            await self.hooks.close()
        if self.logins is not None:
            self.logins.close()

    def connect(
        self,
        make_link: Callable[[Any], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
        lane: bool = False,
        searches: bool = True,
    ) -> Downstream:
        """Serve one more client. ``lane``: the requests come from clients without sessions.
        ``searches``: Whether it may have a search in place of a list of tools."""
        downstream = self._downstream(loop, framer, lane, self._translates)
        downstream.searches = searches
        downstream.allow(self.rates, self.access, self.meta_tools, self.quotas)
        downstream.watch(self.audit, self.tracer)
        if self.stores is not None and self.stores.shares_sessions and not lane:
            downstream.remember(ClientState())
        if self.audit is not None and self.audit.notes_sessions and not lane:
            self.audit.watch(downstream)
        if self._member.shown and not lane:
            downstream.elsewhere = self._over_http
        make_link(downstream)
        self._join(downstream)
        return downstream

    def _downstream(
        self,
        loop: asyncio.AbstractEventLoop,
        framer: Framer | None,
        lane: bool,
        translates: bool,
        outer: Downstream | None = None,
    ) -> Downstream:
        """Make the end of one more client, which has no link yet."""
        reason = self.assignment.refuses_lanes if lane else ""
        router = WithoutSession(reason) if reason else self.assignment
        of_one = self.config is not None and not reason  # else tools have other names
        made = Downstream(
            self,
            loop,
            framer,
            router,
            shared=lane,
            translates=translates,
            outer=outer,
            mirrored=self.mirrored if of_one else None,
        )
        made.identities = self.identities
        made.drained = self._drained
        if made.is_client:  # else the client's own connection asks them
            made.hooks, made.skills = self.hooks, self.skills
        return made

    def _join(self, downstream: Downstream) -> None:
        if downstream.is_client:
            self.downstreams[downstream] = None
            self.meter.client_came(downstream, self.downstreams)
        if self.life.has_ended:  # the client was on its way when the configuration changed
            refusal = codes.SHUTTING_DOWN, self.farewell
            downstream.bind(Binding.to_router(WithoutSession(), self.flow, refusal))
        downstream.router.joined(downstream)

    def server_of(self, name: str | None) -> str | None:
        """Return the name of the server that has a tool or prompt, by its name at this endpoint.
        None: it is not known."""
        if self.config is not None:
            return self.name
        return None if name is None else cast("Merged", self.assignment).server_of(name)

    def tools_changed(self) -> None:
        """A server says that its tools have changed."""
        self.mirrored.forget()

    def left(self, downstream: Downstream) -> None:
        """A client has left."""
        self.downstreams.pop(downstream, None)
        self.meter.client_left(downstream, self.downstreams)

    def join(
        self, owner: UpstreamOwner, client: Downstream, *, translate: bool = True
    ) -> tuple[Upstream, Downstream]:
        """Return both ends of a connection of the proxy itself, for a client of it.

        ``owner``: Of the connection. ``translate``: Whether it may be of any era.
        """
        loop = client.loop
        upstream = Upstream(self.name, owner, self.limits, loop)
        downstream = self._downstream(
            loop, None, client.shared, translate and self._translates, client
        )
        links = pair(loop, upstream, downstream)
        self._join(downstream)
        upstream.closed.add_done_callback(lambda _: downstream.abort())
        for link in links:
            link.start()
        return upstream, downstream

    def translate(self, downstream: Downstream, message: Message, own: Upstream | None) -> None:
        """Serve a client of an era that the server does not speak, from this request on.

        ``own``: Its own connection to the server, or None.
        """
        from wirespeed.proxy.translation.legacy_client import LegacyClient
        from wirespeed.proxy.translation.modern_client import ModernClient

        join = partial(self.join, translate=False)
        kind = LegacyClient if modern_version(message) is None else ModernClient
        to = kind(downstream, join, own).route(downstream, message)
        assert to is None  # it connects first

    def identity(self, guarded: bool) -> ServerIdentity | None:
        """The server as its card describes it, by the name that the proxy has for it and the
        version of the proxy. Where clients need a token, the names of servers are not told."""
        from wirespeed.transport.http.server_card import ServerIdentity

        if self.config is None:
            return ServerIdentity(
                own_info(), (*self.modern_versions[::-1], *self.legacy_versions[::-1])
            )
        if guarded and not self.is_alone:
            return None
        return ServerIdentity({**own_info(), "name": self.name}, ())

    def well_known(self, path: str) -> Mapping[str, HttpTarget]:
        """Return the targets of further paths, where it is served at ``path``."""
        found = {} if self.auth is None else dict(self.auth.well_known(path))
        return found if self.logins is None else {**found, **self.logins.targets()}

    def http_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """Return what answers HTTP requests. ValueError: an option is not for the proxy."""
        from wirespeed.peer.http.endpoint import StreamableHttp

        if options.stateless:
            raise ValueError("the proxy needs sessions: it cannot be stateless")
        return self._over_http.add(StreamableHttp(self, self._named(options), loop, pool))

    def session_directory(self, url: str) -> SessionDirectory:
        """Return the directory of sessions. ``url``: Where other hosts reach this one. ValueError:
        the proxy has no cluster, or the URL is not that of a host."""
        if self.stores is None:
            raise ValueError("host_url needs a cluster")
        return self.stores.session_hosts(url)

    def place_of(self, message: Message, /) -> str | None:
        """As `HttpService.place_of`: tasks, `requestState` and cursors of servers that the proxy
        starts."""
        return place_of(message)

    def session_messages(self, connection: Any, /) -> tuple[bytes, ...] | None:
        """As `HttpService.session_messages`. A session whose server is its client's own stays."""
        downstream: Downstream = connection
        state: ClientState | None = downstream.state
        if state is None or downstream.revision is None:
            return None
        if self.config is None:
            moves = cast("Merged", self.assignment).may_move(downstream)
        else:
            moves = downstream.router.is_shared
        return state.messages() if moves else None

    @property
    def sessions(self) -> list[Sessions[HttpSession]]:
        """The tables of sessions of its listeners over HTTP."""
        return self._over_http.sessions

    def sse_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """Return what answers HTTP requests of clients of 2024-11-05."""
        from wirespeed.peer.http.sse import SseEndpoint

        return SseEndpoint(self, self._named(options), loop, pool)

    def _named(self, options: HttpOptions) -> HttpOptions:
        """Return the options with the name of the proxy for ids of sessions."""
        return msgspec.structs.replace(options, name=self.proxy_name or options.name)
