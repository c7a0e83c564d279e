"""Many clients on few servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from wirespeed._exports import set_public_home
from wirespeed.errors import ConfigError, WirespeedError
from wirespeed.proxy.flow.rates import Rates
from wirespeed.proxy.listen_options import options_of
from wirespeed.proxy.listening import Listening, Routes, routes
from wirespeed.proxy.merge.names import Names, names_of_tool
from wirespeed.proxy.operation.meter import Meter
from wirespeed.proxy.reload import Changes, Reloads, compare
from wirespeed.proxy.service import ProxyService
from wirespeed.transport.address import parse

if TYPE_CHECKING:
    from wirespeed.proxy.access.audit import AuditLog
    from wirespeed.proxy.access.principals import Principals
    from wirespeed.proxy.config import ProxyConfig
    from wirespeed.proxy.merge.merged import Merged, Offer
    from wirespeed.proxy.operation.admin import AdminService
    from wirespeed.proxy.operation.status import Facts
    from wirespeed.transport.options import (
        HttpRequest,
        ListenFields,
        OnListening,
        Refusal,
    )

logger = logging.getLogger("wirespeed.proxy")


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
        self._services = {one.name: ProxyService.of(config, one) for one in config.backends}
        self._tracer: Any = None
        self._is_observed = config.admin is not None
        self._audit: AuditLog | None = None
        if config.audit is not None:
            from wirespeed.proxy.access.audit import AuditLog
            from wirespeed.proxy.config import AuditConfig

            to = AuditConfig(to=config.audit) if isinstance(config.audit, str) else config.audit
            self._audit = AuditLog(to, self.name)
        self._principals = _principals_of(config)
        self._whole = self._joined(config, self._services)
        self.rates = self._adopted(config, self._services, self._whole)
        self.listening = Listening()
        self._is_on_stdio = False
        self._reloading = asyncio.Lock()

    @property
    def services(self) -> dict[str, ProxyService]:
        """What transports serve: one for each server, by its name."""
        return dict(self._services)

    def trace(self, tracer: Any) -> None:
        """Let a tracer make spans of requests, before clients connect. `wirespeed.ext.otel` calls
        it. ValueError: there is a tracer already."""
        if self._whole.tracer is not None:
            raise ValueError(f"{self!r} is traced already")
        self._tracer = tracer
        for service in {*self._services.values(), self._whole}:
            service.tracer = tracer

    def reopen_logs(self) -> None:
        """Go on with the audit log in a new file: the old one has been given another name."""
        if self._audit is not None:
            self._audit.reopen()

    def observe(self) -> None:
        """Measure the requests to servers that are started from now on."""
        self._is_observed = True
        for service in {*self._services.values(), self._whole}:
            service.meter.observe()

    @cached_property
    def admin(self) -> AdminService | None:
        """What the admin listener serves; None without one. Its token is written to stderr if it
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
        return found if len(found) == 1 else [*found, self._whole]

    def facts(self) -> Facts:
        """What is known besides numbers."""
        from wirespeed import __version__
        from wirespeed.proxy.operation.status import CertificateEntry, Facts

        return Facts(
            __version__,
            self.name,
            [one.url for one in self.config.listeners],
            config=self.source,
            reloads=self.reloads.ok,
            reloads_refused=self.reloads.failed,
            reload_error=self.reloads.error,
            reloaded=self.reloads.last,
            draining=self.listening.draining,
            certificates=[
                CertificateEntry(url, one.files[0], one.expires)
                for url, one in self.listening.certificates
                if one.expires is not None
            ],
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

    def _joined(self, config: ProxyConfig, services: dict[str, ProxyService]) -> ProxyService:
        """All servers as one."""
        if len(services) == 1:
            return next(iter(services.values()))
        from wirespeed.proxy.merge.merged import Merged  # most proxies have one server

        merged = Merged(_offers(config, services), config.page_size, config.ready_within)
        return ProxyService(config, "proxy", merged, Meter())

    def _adopted(
        self, config: ProxyConfig, services: dict[str, ProxyService], whole: ProxyService
    ) -> Rates | None:
        """Let all services take what they share."""
        by_principal = {} if self._principals is None else self._principals.rates
        rates = None
        if config.rate is not None or by_principal:
            rates = Rates(config.rate, by_principal)
        names = {one.name: Names(one) for one in config.backends}
        for one in config.backends:
            of_tool = partial(names[one.name].of_tool, alone=len(names) == 1)
            shows = one.tools.allows if one.tools.restricts else None
            self._guard(services[one.name], one.name, of_tool, shows)
        if (merged := _merged(whole, services)) is not None:
            self._guard(whole, None, partial(names_of_tool, names.values()), None)
            merged.access = whole.access
        for service in (*services.values(), whole):
            service.adopt(config, rates)
            if self._is_observed:
                service.meter.observe()
        return rates

    def _guard(
        self,
        service: ProxyService,
        server: str | None,
        names: Callable[[str], Iterable[str]],
        shows: Callable[[str], bool] | None,
    ) -> None:
        """Let only principals use a service, if there are any, and nobody a tool that the server
        does not show. Note what they call. ``names`` and ``shows`` as of `Principals.grants`."""
        service.audit, service.tracer = self._audit, self._tracer
        service.proxy_name = self.name
        grants = None
        if self._principals is not None:
            grants = self._principals.grants(server, names, shows)
            if service.auth is None:
                service.auth = self._principals.authority(server)
            else:
                service.auth.adopt(self._principals)
        if grants is None and shows is not None:
            from wirespeed.proxy.access.grants import everyone  # most proxies have no rules

            grants = everyone(shows)
        if service.access is None or grants is None:
            service.access = grants
        else:
            service.access.adopt(grants)

    @property
    def listen_fields(self) -> ListenFields:
        """What the configuration says of all listeners."""
        return {
            "slow_reader_timeout": self.config.slow_client_timeout,
            "on_refused": None if self._audit is None else self._note_refusal,
        }

    @property
    def admin_fields(self) -> ListenFields:
        """What the configuration says of the admin listener."""
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
                {**self.listen_fields, **options_of(one)[0]},
            )
            for one in self.config.listeners
        ]
        if self.config.admin is not None:
            places.append((self.config.admin.listen, self.admin, on_listening, self.admin_fields))
        if self.config.listen:
            self.listening.expect(one.url for one in self.config.listeners)
            await serve_together(places, attendant=self.listening)
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
        """Take the configuration that a function returns. A fault is logged."""
        try:
            try:
                config = load()
            except Exception as exc:
                self._reloaded(exc)
                raise
            await self.reload(config)
        except WirespeedError as exc:
            logger.error("the configuration stays as it was: %s", exc)

    async def reload(self, config: ProxyConfig) -> Changes:
        """Take another configuration while clients are served.

        Servers that are the same keep their processes and sessions. The others are started before
        clients get to them; requests in flight end where they began, within ``shutdown_grace``.
        Connections to a server that changed are closed then, and sessions over HTTP end. Where
        several servers are one endpoint, its clients stay, and learn that the lists changed.

        Returns:
            What was changed. A server that cannot be started is logged, and tried again.

        Raises:
            ConfigError: A URL or an option is wrong. Nothing has changed.
            TransportError: A new URL cannot be listened at. Nothing has changed.
        """
        async with self._reloading:
            await self.listening.settled()
            try:
                changes = await self._reload(config)
            except Exception as exc:
                self._reloaded(exc)
                raise
            self._reloaded(None, changes)
            logger.info("reloaded: %s", changes)
            for text in changes.pending:
                logger.warning("%s", text)
            return changes

    def _reloaded(self, error: Exception | None, changes: Changes | None = None) -> None:
        """A reload has ended."""
        self.reloads.count(error)
        if self._audit is not None:
            self._audit.reload(None if changes is None else str(changes), self.reloads.error)

    async def _reload(self, config: ProxyConfig) -> Changes:
        if _is_guarded(config) != _is_guarded(self.config):
            raise ConfigError("whether there are principals or auth changes at a restart only")
        changes = compare(self.config, config)
        principals = self._principals
        if changes.settings and {"principals", "auth"} & {*changes.settings}:
            principals = _principals_of(config)
        stay = self._services.keys() - {*changes.changed, *changes.removed}
        services = {
            one.name: self._services[one.name] if one.name in stay else ProxyService.of(config, one)
            for one in config.backends
        }
        whole = self._whole_of(config, services)
        if self._is_on_stdio and whole is not self._whole:
            text = "the server of stdio changes at a restart only"
            return replace(changes, pending=(*changes.pending, text))
        try:
            found = [
                (one, *routes(one.url, config.backends, services, whole))
                for one in config.listeners
            ]
        except ValueError as exc:
            raise ConfigError(str(exc)) from None
        moves = self.listening.plan(found)
        if moves.refusal is not None:
            changes = replace(changes, pending=(*changes.pending, moves.refusal))
        fresh = [one for name, one in services.items() if name not in stay]
        serves = bool(self.listening) or self._is_on_stdio
        starts = [one.begin() for one in fresh] if serves else []
        try:
            if starts:  # clients have the old ones meanwhile
                patience = max(one.start_timeout for one in config.backends)
                await asyncio.wait(starts, timeout=patience)
            self._principals = principals
            await self._swap(config, services, whole)
            await self.listening.change(moves)
        finally:
            if starts:  # whoever serves them holds them now
                for one in fresh:
                    await one.release(None)
        return changes

    async def _swap(
        self, config: ProxyConfig, services: dict[str, ProxyService], whole: ProxyService
    ) -> None:
        """Take other services. Listeners have the earlier ones still."""
        for name, one in self._services.items():
            if services.get(name) is not one:
                one.farewell = f"the server {name} was changed"
        if whole is not self._whole and self._whole not in self._services.values():
            self._whole.farewell = "the servers were changed"
        self.rates = self._adopted(config, services, whole)
        if (merged := _merged(whole, services)) is not None:
            await merged.replace(_offers(config, services), config.page_size, config.ready_within)
        self.config, self._services, self._whole = config, services, whole

    def _whole_of(self, config: ProxyConfig, services: dict[str, ProxyService]) -> ProxyService:
        """All servers of a configuration as one: what there is, if its clients can stay."""
        if 1 in (len(services), len(self._services)):
            return self._joined(config, services)
        return self._whole


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


def _merged(whole: ProxyService, services: dict[str, ProxyService]) -> Merged | None:
    """What joins the servers, if there are several."""
    return None if len(services) == 1 else cast("Merged", whole.assignment)


def _offers(config: ProxyConfig, services: dict[str, ProxyService]) -> list[Offer]:
    from wirespeed.proxy.merge.merged import Offer

    return [Offer(services[one.name], Names(one), one.start_timeout) for one in config.backends]


set_public_home(globals())
