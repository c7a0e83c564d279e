"""Many clients on few servers."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.proxy.merge.names import Names
from wirespeed.proxy.service import ProxyService
from wirespeed.transport.address import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed.proxy.access.audit import AuditLog
    from wirespeed.proxy.access.principals import Principals
    from wirespeed.proxy.config import ProxyConfig
    from wirespeed.transport.options import OnListening


class Proxy:
    """Passes the requests of its clients to servers, and the answers back.

    >>> server = BackendConfig(target=Stdio("my-server"), isolation="shared")
    >>> await Proxy(ProxyConfig(backends=(server,), listen=("ws://127.0.0.1:8765/mcp",))).serve()

    Every client uses ids and progress tokens of its own. The proxy edits them in place, and decodes
    nothing else of what it passes on.
    """

    def __init__(self, config: ProxyConfig) -> None:
        self.config = config
        self._services = {one.name: ProxyService.of(config, one) for one in config.backends}
        self._audit: AuditLog | None = None
        if config.audit is not None:
            from wirespeed.proxy.access.audit import AuditLog

            self._audit = AuditLog(config.audit)
        self._principals: Principals | None = None
        if config.principals or config.auth is not None:
            from wirespeed.proxy.access.principals import Principals

            self._principals = Principals(config)
        for one in config.backends:
            shown = None if len(self._services) == 1 else Names(one).full
            self._guard(self._services[one.name], one.name, shown)

    def _guard(
        self, service: ProxyService, server: str | None, shown: Callable[[str], str] | None = None
    ) -> None:
        """Let only principals use a service, if there are any, and note what they call."""
        service.audit = self._audit
        if self._principals is not None:
            service.auth = self._principals.authority(server)
            service.access = self._principals.grants(server, shown)

    @property
    def services(self) -> dict[str, ProxyService]:
        """What transports serve: one for each server, by its name."""
        return dict(self._services)

    def trace(self, tracer: Any) -> None:
        """Let a tracer make spans of requests, before clients connect. `wirespeed.ext.otel` calls
        it. ValueError: there is a tracer already."""
        if self._whole.tracer is not None:
            raise ValueError(f"{self!r} is traced already")
        for service in {*self._services.values(), self._whole}:
            service.tracer = tracer

    def reopen_logs(self) -> None:
        """Go on with the audit log in a new file: the old one has been given another name."""
        if self._audit is not None:
            self._audit.reopen()

    def routes(self, url: str) -> tuple[str, dict[str, ProxyService]]:
        """Return a URL to listen at without its path, and what is served there by path.

        Raises:
            ValueError: The URL is wrong.
        """
        address = parse(url)
        if self._principals is not None and not address.has_paths:
            raise ValueError(
                f"principals and auth are for HTTP and WebSocket only, not for {address.scheme}:"
            )
        found = {}
        if not address.has_paths or address.path != "/" or len(self._services) == 1:
            found[address.path if address.has_paths else "/"] = self._whole
        if address.has_paths:
            address = msgspec.structs.replace(address, path="/")
            found |= {f"/servers/{name}": service for name, service in self._services.items()}
        return str(address), found

    @cached_property
    def _whole(self) -> ProxyService:
        """All servers as one."""
        if len(self._services) == 1:
            return next(iter(self._services.values()))
        from wirespeed.proxy.merge.merged import Merged

        members = [
            (self._services[one.name], Names(one), one.start_timeout)
            for one in self.config.backends
        ]
        merged = Merged(members, self.config.page_size)
        service = ProxyService(self.config, "proxy", merged)
        self._guard(service, None)
        merged.access = service.access
        return service

    async def serve(self, *, on_listening: OnListening | None = None) -> None:
        """Serve at all URLs until SIGTERM or SIGINT; without a URL on stdio, until the client ends.

        ``on_listening``: Called with the URLs of a listener as soon as clients can connect to it.

        Raises:
            ValueError: A URL is wrong.
            TransportError: A listener or a server cannot be started.
        """
        if not self.config.listen:
            if self._principals is not None:
                raise ValueError("principals and auth need a URL to listen at: stdio has no tokens")
            from wirespeed.transport.stdio import serve_stdio

            await serve_stdio(self._whole)
        else:
            from wirespeed.proxy.listening import options_of
            from wirespeed.transport.net.serve import serve_together

            await serve_together(
                [
                    (*self.routes(one.url), on_listening, options_of(one))
                    for one in self.config.listeners
                ]
            )


set_public_home(globals())
