"""Many clients on few servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import ConfigError, WirespeedError
from wirespeed.proxy.flow.quotas import Counts, ProcessCounts, Quotas
from wirespeed.proxy.flow.rates import Ask, Rates
from wirespeed.proxy.hosts.membership import Membership
from wirespeed.proxy.listening import (
    Moves,
    ProxyListeners,
    Routes,
    base_of,
    options_of,
    routes,
    shared_at,
)
from wirespeed.proxy.merge.lists import ShownNames, names_of_tool
from wirespeed.proxy.operation.meter import Meter
from wirespeed.proxy.reload import Changes, IncomingServer, Reloads, compare, same_server
from wirespeed.proxy.service import ProxyService, ServiceAttachments
from wirespeed.transport.address import parse
from wirespeed.transport.http.options import HttpOptions
from wirespeed.transport.token_buckets import TokenBuckets

if TYPE_CHECKING:
    from wirespeed.proxy.access.audit import AuditLog
    from wirespeed.proxy.access.principals import Principals
    from wirespeed.proxy.access.skills import SkillApprovals
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.config import ProxyConfig
    from wirespeed.proxy.hosts.stores import ProxyStores
    from wirespeed.proxy.merge.member import Offer
    from wirespeed.proxy.merge.merged import Merged
    from wirespeed.proxy.operation.admin import AdminService
    from wirespeed.proxy.operation.snapshot import Facts
    from wirespeed.transport.options import HttpRequest, ListenFields, OnListening, Refusal

logger = logging.getLogger("wirespeed.proxy")

# Seconds that a server which is ready waits for others of the same reload.
_MOMENT = 0.5


class Proxy:
    """Passes the requests of its clients to servers, and the answers back.

    >>> server = BackendConfig(target=Stdio("my-server"), isolation="shared")
    >>> await Proxy(ProxyConfig(backends=(server,), listen=("ws://127.0.0.1:8765/mcp",))).serve()

    Every client uses ids and progress tokens of its own. The proxy edits them in place, and decodes
    nothing else of what it passes on.

    Attributes:
        config: What it does.
        name: Its name. It stays when a reload changes the configuration.
        reloads: What became of `reload`.
        listening: Its listeners.
    """

    def __init__(self, config: ProxyConfig) -> None:
        self.config = config
        self.name = config.shown_name
        self.source: str | None = None
        self.reloads = Reloads()
        self._tracer: Any = None
        self._shown: tuple[ProxyConfig, dict[str, Any]] | None = None
        self._is_observed = config.admin is not None
        self._meters: dict[str | None, Meter] = {}  # by server; None: of all of them
        self._audit: AuditLog | None = None
        if config.audit is not None:
            from wirespeed.proxy.access.audit import AuditLog
            from wirespeed.proxy.config import AuditConfig

            to = AuditConfig(to=config.audit) if isinstance(config.audit, str) else config.audit
            self._audit = AuditLog(to, self.name)
        self._stores = _stores_of(config)
        self._member = Membership() if self._stores is None else self._stores.member(self.name)
        stores = self._stores
        self._ask_rate: Ask = TokenBuckets().delay if stores is None else stores.buckets.ask
        self._principals = _principals_of(config)
        self._counts: Counts = ProcessCounts() if stores is None else stores.counts
        self.rates: Rates | None = None
        self._approvals: SkillApprovals | None = None
        self._services = {one.name: self._born(config, one) for one in config.backends}
        self._coming: dict[str, IncomingServer] = {}
        self._whole = self._joined(config, self._services)
        self._adopt(config, self._services, self._whole)
        self._shared_at = shared_at(config)
        self.listening = ProxyListeners(lambda: self.config.drain_delay)
        self._is_on_stdio = False
        self._reloading = asyncio.Lock()
        self._telling: set[asyncio.Task[None]] = set()

    @property
    def services(self) -> dict[str, ProxyService]:
        """The services that transports serve: one for each server, by its name."""
        return dict(self._services)

    def trace(self, tracer: Any) -> None:
        """Let a tracer make spans of requests, before clients connect. `wirespeed.ext.otel` calls
        it. ValueError: there is a tracer already."""
        if self._whole.tracer is not None:
            raise ValueError(f"{self!r} is traced already")
        self._tracer = tracer
        for service in {*self._services.values(), self._whole}:
            service.trace(tracer)

    def reopen_logs(self) -> None:
        """Go on with the audit log in a new file: the old one has been given another name."""
        if self._audit is not None:
            self._audit.reopen()

    def observe(self) -> None:
        """Measure the requests to servers that are started from now on."""
        self._is_observed = True
        for meter in self._meters.values():
            meter.observe()

    @cached_property
    def admin(self) -> AdminService | None:
        """The service of the admin listener; None without one. Its token is written to stderr if it
        was not configured."""
        if self.config.admin is None:
            return None
        from wirespeed.proxy.operation.admin import AdminService, make_token

        token = self.config.admin.token or make_token()
        return AdminService(lambda: self.endpoints, self.facts, token)

    @property
    def endpoints(self) -> list[ProxyService]:
        """The service of each server, and that of all of them, if there are several."""
        found = list(self._services.values())
        return found if self._whole.config is not None else [*found, self._whole]

    @property
    def _in_force(self) -> dict[str, Any]:
        """The configuration without its secrets."""
        if self._shown is None or self._shown[0] is not self.config:
            from wirespeed.proxy.operation.in_force import in_force

            self._shown = self.config, in_force(self.config)
        return self._shown[1]

    def facts(self) -> Facts:
        """Return what is known besides numbers."""
        from wirespeed import __version__
        from wirespeed.proxy.operation.snapshot import CertificateEntry, Facts

        return Facts(
            __version__,
            self.name,
            [one.url for one in self.config.listeners],
            config=self.source,
            reloads=self.reloads.ok,
            reloads_refused=self.reloads.failed,
            reload_error=self.reloads.error,
            reloaded=self.reloads.last,
            coming={name: one.error for name, one in self._coming.items()},
            draining=self.listening.draining,
            certificates=[
                CertificateEntry(url, one.files[0], one.expires)
                for url, one in self.listening.certificates
                if one.expires is not None
            ],
            configuration=self._in_force,
            store=None if self._stores is None else self._stores.entry(),
        )

    def routes(self, url: str) -> tuple[str, Routes]:
        """Return a URL to listen at without its path, and what is served there by path.

        Raises:
            ValueError: The URL is wrong.
        """
        if self._principals is not None and not parse(url).has_paths:
            raise ValueError(f"principals and auth are for HTTP and WebSocket only, not for {url}")
        return routes(url, self.config.backends, self._services, self._whole)

    def check_stdio(self) -> None:
        """ConfigError: clients need tokens, so they cannot be served on stdio."""
        if self._principals is not None:
            raise ConfigError("principals and auth need a URL to listen at: stdio has no tokens")

    def _attached(self, name: str | None) -> ServiceAttachments:
        """Return what is attached to the service of a server, or of all servers (None)."""
        meter = self._meters.setdefault(name, Meter())
        if self._is_observed:
            meter.observe()
        return ServiceAttachments(
            self._audit, self._tracer, meter, self._member, self._stores, self._share
        )

    def _share(self) -> None:
        """Count for all workers together, which will be forked."""
        if self._stores is None and isinstance(self._counts, ProcessCounts):
            from wirespeed.proxy.flow.host_table import HostTable
            from wirespeed.proxy.flow.quotas import HostCounts
            from wirespeed.proxy.flow.rates import HostBuckets

            table = HostTable()
            self._member.count_together(table)
            self._ask_rate, self._counts = HostBuckets(table).delay, HostCounts(table)
            self.rates = None
            self._adopt(self.config, self._services, self._whole)

    def _born(self, config: ProxyConfig, backend: BackendConfig) -> ProxyService:
        """A new service of a server."""
        return ProxyService.of(config, backend, self._attached(backend.name))

    def _joined(self, config: ProxyConfig, services: dict[str, ProxyService]) -> ProxyService:
        """All servers as one."""
        if len(config.backends) == 1:
            return next(iter(services.values()))
        from wirespeed.proxy.merge.merged import Merged  # most proxies have one server

        offers = _offers(config, services)
        merged = Merged(offers, config.page_size, config.ready_within, config.extensions)
        return ProxyService(config, "proxy", merged, self._attached(None))

    def _adopt(
        self, config: ProxyConfig, services: dict[str, ProxyService], whole: ProxyService
    ) -> None:
        """Let all services take what they share."""
        by_principal = {} if self._principals is None else self._principals.rates
        if self.rates is None or not self.rates.are(config.rate, by_principal):
            given = config.rate is not None or by_principal
            self.rates = Rates(config.rate, by_principal, self._ask_rate) if given else None
        if self._approvals is None or self._approvals.path != config.approvals:
            self._approvals = _approvals_of(config)
        own = {} if self._principals is None else self._principals.quotas
        quotas = None
        if config.quotas or any(own.values()):
            quotas = Quotas(config.quotas, own, self._counts)
        names = {one.name: ShownNames(one) for one in config.backends}
        exchanges = {
            one.name: one.identity is not None and one.identity.type in ("exchange", "enterprise")
            for one in config.backends
        }
        whole.reads_headers = any(exchanges.values())
        for name, used in services.items():
            used.reads_headers = exchanges[name]
        for one in config.backends:
            service = services.get(one.name)
            if service is not None:
                of_tool = partial(names[one.name].of_tool, alone=len(names) == 1)
                shows = one.tools.allows if one.tools.restricts else None
                service.guard(self.name, self._principals, one.name, of_tool, shows)
                service.count(None if quotas is None else quotas.at(of_tool))
                service.hold_skills(self._approvals if one.skills == "approved" else None)
        if (merged := _merged(whole)) is not None:
            of_any = partial(names_of_tool, names.values())
            whole.guard(self.name, self._principals, None, of_any, None)
            whole.count(None if quotas is None else quotas.at(of_any))
            merged.allow(whole.access)
        for backend in config.backends:
            service = services.get(backend.name)
            if service is not None:
                # an earlier server may go on in place of a changed one
                shown = backend if _runs(service, backend) else service.config
                service.adopt(config, self.rates, shown)
        if whole.config is None:
            whole.adopt(config, self.rates, None)

    def listen_fields(self, url: str, given: ListenFields) -> ListenFields:
        """Return the options of a listener, as the configuration says. ``given``: Those that are
        set for the listener alone."""
        found: ListenFields = {
            "slow_reader_timeout": self.config.slow_client_timeout,
            "on_refused": None if self._audit is None else self._note_refusal,
        }
        found |= given
        cluster = self.config.cluster
        if cluster is not None and cluster.host_url and base_of(url) == self._shared_at:
            http = found.get("http") or HttpOptions()
            found["http"] = msgspec.structs.replace(http, host_url=cluster.host_url)
        return found

    @property
    def admin_fields(self) -> ListenFields:
        """The options of the admin listener, as the configuration says."""
        if (audit := self._audit) is None:
            return {}
        return {"on_refused": partial(audit.refuse_client, server="admin")}

    def _note_refusal(self, request: HttpRequest, refusal: Refusal) -> None:
        """A client was not let in. The path says which server it wanted."""
        assert self._audit is not None
        _, kind, name, *_ = *request.path.split("/"), "", ""
        found = name if kind in ("servers", "lite") and name in self._services else None
        if found is None and len(self._services) == 1:
            (found,) = self._services
        self._audit.refuse_client(request, refusal, found)

    async def serve(self, *, on_listening: OnListening | None = None) -> None:
        """Serve at all URLs until SIGTERM or SIGINT; without a URL on stdio, until the client ends.

        ``on_listening``: Called with the URLs of a listener as soon as clients can connect to it,
        of the admin listener too.

        Raises:
            ValueError: A URL is wrong.
            TransportError: A listener or a server cannot be started.
        """
        from wirespeed.transport.net.serve import serve_together

        places: list[Any] = [
            (
                *self.routes(one.url),
                on_listening,
                self.listen_fields(one.url, options_of(one)[0]),
            )
            for one in self.config.listeners
        ]
        if self.config.admin is not None:
            places.append((self.config.admin.listen, self.admin, on_listening, self.admin_fields))
        if self.config.listen:
            self.listening.expect(one.url for one in self.config.listeners)
            await serve_together(places, observer=self.listening)
            return
        self.check_stdio()
        from wirespeed.transport.stdio import serve_stdio

        self._is_on_stdio = True
        if not places:
            await serve_stdio(self._whole)
            return
        watching = asyncio.ensure_future(serve_together(places, signals=False))
        serving = asyncio.ensure_future(serve_stdio(self._whole))
        try:
            await asyncio.wait((watching, serving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (watching, serving):
                task.cancel()
            await asyncio.wait((watching, serving))
        for task in (watching, serving):
            if not task.cancelled():
                task.result()

    # -- another configuration -------------------------------------------------------------------

    async def reload_from(self, load: Callable[[], ProxyConfig]) -> None:
        """Take the configuration that a function returns, which is called in a thread. A fault is
        logged. Servers that start are not waited for."""
        try:
            try:
                config = await asyncio.get_running_loop().run_in_executor(None, load)
            except Exception as exc:
                self._count(exc)
                raise
            changes, coming = await self._apply(config)
        except WirespeedError as exc:
            logger.error("the configuration stays as it was: %s", exc)
            return
        if coming:
            names = ", ".join(one.service.name for one in coming)
            logger.info("reloading: %s; starting: %s", changes, names)
        telling = asyncio.ensure_future(self._tell(changes, coming))
        self._telling.add(telling)
        telling.add_done_callback(lambda done: self._telling.discard(telling))
        if not coming:
            await telling

    async def reload(self, config: ProxyConfig) -> Changes:
        """Take another configuration while clients are served.

        What is removed or revoked ends at once: tokens, principals, servers, rules. Servers that
        are the same keep their processes and sessions. Those that are new or changed are started,
        and take their place when they are ready: until then clients have the earlier ones, for as
        long as the new one cannot be started. Requests in flight end where they began, within
        ``shutdown_grace``. Connections to a server that changed are closed then, and sessions over
        HTTP end. Where several servers are one endpoint, its clients stay, and learn that the
        lists changed.

        Returns:
            What was changed. A server that cannot be started is logged, and tried again.

        Raises:
            ConfigError: A URL or an option is wrong. Nothing has changed.
            TransportError: A new URL cannot be listened at. Nothing has changed.
        """
        changes, coming = await self._apply(config)
        await self._tell(changes, coming)
        return replace(changes, kept=tuple(name for name in changes.changed if name in self._kept))

    @property
    def _kept(self) -> list[str]:
        """The servers that go on as they were, because the new one cannot be started."""
        return [name for name, one in self._coming.items() if name in self._services and one.error]

    async def _tell(self, changes: Changes, coming: list[IncomingServer]) -> None:
        """Log what was changed, when the first start of each server has ended."""
        if coming:
            await asyncio.wait([one.tried for one in coming])
        logger.info("reloaded: %s", changes)
        for text in changes.pending:
            logger.warning("%s", text)

    async def _apply(self, config: ProxyConfig) -> tuple[Changes, list[IncomingServer]]:
        """Take another configuration. Returns what was changed, and the servers that start."""
        async with self._reloading:
            await self.listening.settled()
            try:
                found = await self._take(config)
            except Exception as exc:
                self._count(exc)
                raise
            self._count(None, found[0])
            return found

    def _count(self, error: Exception | None, changes: Changes | None = None) -> None:
        """A configuration was taken, or refused."""
        self.reloads.count(error)
        if self._audit is not None:
            self._audit.reload(None if changes is None else str(changes), self.reloads.error)

    async def _take(self, config: ProxyConfig) -> tuple[Changes, list[IncomingServer]]:
        if _is_guarded(config) != _is_guarded(self.config):
            raise ConfigError("whether there are principals or auth changes at a restart only")
        changes = compare(self.config, config)
        principals = self._principals
        if changes.settings and {"principals", "auth"} & {*changes.settings}:
            principals = _principals_of(config)
        services: dict[str, ProxyService] = {}
        stay: dict[str, IncomingServer] = {}  # that start already
        fresh: list[BackendConfig] = []
        for one in config.backends:
            service, coming = self._services.get(one.name), self._coming.get(one.name)
            if service is not None:
                services[one.name] = service
            if _runs(service, one):
                continue
            if coming is not None and _runs(coming.service, one):
                stay[one.name] = coming
            else:
                fresh.append(one)
        serves = bool(self.listening) or self._is_on_stdio
        if not serves or not services:  # there is nothing that could go on meanwhile
            services |= {one.name: self._born(config, one) for one in fresh}
            fresh = []
        services = {one.name: services[one.name] for one in config.backends if one.name in services}
        whole = self._whole_of(config, services)
        alone = len(config.backends) == 1
        if self._is_on_stdio and (whole is not self._whole or (alone and (fresh or stay))):
            text = "the server of stdio changes at a restart only"
            return replace(changes, pending=(*changes.pending, text)), []
        moves = self._moves(config, services, whole)
        if moves.refusal is not None:
            changes = replace(changes, pending=(*changes.pending, moves.refusal))
        for name, coming in self._coming.items():
            if name not in stay:
                coming.end()
        self._coming = stay
        self._principals = principals
        begun = [one for name, one in services.items() if self._services.get(name) is not one]
        if serves:
            for service in begun:
                service.life.begin()
        try:
            await self._swap(config, services, whole)
            await self.listening.change(moves)
        finally:
            if serves:  # whoever serves them holds them now
                for service in begun:
                    await service.release(None)
        for backend in fresh:
            service = self._born(config, backend)
            self._coming[backend.name] = IncomingServer(
                service, self._replace, backend.name in services
            )
            self.listening.keep(self._coming[backend.name].task)
        return changes, list(self._coming.values())

    def _moves(
        self, config: ProxyConfig, services: dict[str, ProxyService], whole: ProxyService
    ) -> Moves:
        """Return what becomes of the listeners. ConfigError: a URL or an option is wrong."""
        try:
            found = [
                (one, *routes(one.url, config.backends, services, whole))
                for one in config.listeners
            ]
        except ValueError as exc:
            raise ConfigError(str(exc)) from None
        return self.listening.plan(found)

    async def _replace(self, coming: IncomingServer) -> None:
        """A server that was started takes its place, with those that are started in the same
        moment: clients of all servers learn of one change."""
        await asyncio.wait([one.started for one in self._coming.values()], timeout=_MOMENT)
        async with self._reloading:
            if self._coming.get(coming.service.name) is not coming or self.listening.draining:
                return
            config, found = self.config, dict(self._services)
            ready = {name: one.service for name, one in self._coming.items() if one.is_ready}
            found |= ready
            services = {one.name: found[one.name] for one in config.backends if one.name in found}
            whole = self._whole_of(config, services)
            moves = self._moves(config, services, whole)
            self._coming = {name: one for name, one in self._coming.items() if name not in ready}
            await self._swap(config, services, whole)
            await self.listening.change(moves)

    async def _swap(
        self, config: ProxyConfig, services: dict[str, ProxyService], whole: ProxyService
    ) -> None:
        """Take other services. Listeners have the earlier ones still."""
        for name, one in self._services.items():
            if services.get(name) is not one:
                what = "changed" if name in services else "removed"
                one.replaced(f"the server {name} was {what}")
        if whole is not self._whole and self._whole not in self._services.values():
            self._whole.replaced("the servers were changed")
        self._adopt(config, services, whole)
        if (merged := _merged(whole)) is not None:
            offers = _offers(config, services)
            await merged.replace(offers, config.page_size, config.ready_within, config.extensions)
        self.config, self._services, self._whole = config, services, whole
        for gone in self._meters.keys() - services.keys() - self._coming.keys() - {None}:
            del self._meters[gone]

    def _whole_of(self, config: ProxyConfig, services: dict[str, ProxyService]) -> ProxyService:
        """All servers of a configuration as one: what there is, if its clients can stay."""
        if len(config.backends) == 1 or self._whole.config is not None:
            return self._joined(config, services)
        return self._whole


def _runs(service: ProxyService | None, backend: BackendConfig) -> bool:
    """Whether the servers of a service are those of a configuration."""
    config = None if service is None else service.config
    return config is not None and same_server(config, backend)


def _is_guarded(config: ProxyConfig) -> bool:
    return bool(config.principals) or config.auth is not None


def _principals_of(config: ProxyConfig) -> Principals | None:
    if not _is_guarded(config):
        return None
    from wirespeed.proxy.access.principals import Principals

    try:
        return Principals(config)
    except ValueError as exc:
        raise ConfigError(f"proxy.auth: {exc}") from None


def _stores_of(config: ProxyConfig) -> ProxyStores | None:
    if config.cluster is None:
        return None
    try:
        from wirespeed.proxy.hosts.stores import ProxyStores
    except ModuleNotFoundError as exc:
        raise ConfigError(f"proxy.cluster: {exc}") from None
    return ProxyStores(config.cluster)


def _approvals_of(config: ProxyConfig) -> SkillApprovals | None:
    if config.approvals is None:
        return None
    from wirespeed.proxy.access.skills import SkillApprovals

    return SkillApprovals(config.approvals)


def _merged(whole: ProxyService) -> Merged | None:
    """Return what joins the servers, if there are several."""
    return None if whole.config is not None else cast("Merged", whole.assignment)


def _offers(config: ProxyConfig, services: dict[str, ProxyService]) -> list[Offer]:
    from wirespeed.proxy.merge.member import Offer

    return [
        Offer(
            services[one.name],
            ShownNames(one),
            one.start_timeout,
            one.delays.retry,
            config.list_digests,
        )
        for one in config.backends
        if one.name in services
    ]


set_public_home(globals())
