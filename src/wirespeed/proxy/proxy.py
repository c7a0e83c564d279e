"""Many clients on few servers."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.proxy.operation.meter import Meter
from wirespeed.proxy.service import ProxyService
from wirespeed.transport.address import parse

if TYPE_CHECKING:
    from wirespeed.proxy.config import ProxyConfig
    from wirespeed.proxy.operation.admin import AdminService
    from wirespeed.proxy.operation.status import Facts
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
        if config.admin is not None:
            self.observe()

    @property
    def services(self) -> dict[str, ProxyService]:
        """What transports serve: one for each server, by its name."""
        return dict(self._services)

    def observe(self) -> None:
        """Measure the requests to servers that are started from now on."""
        for service in self._services.values():
            service.meter.observe()

    @cached_property
    def admin(self) -> AdminService | None:
        """What the admin listener serves; None without one. Its token is written to stderr if it
        was not configured."""
        if self.config.admin is None:
            return None
        from wirespeed.proxy.operation.admin import AdminService, make_token

        token = self.config.admin.token or make_token()
        return AdminService(lambda: self.endpoints, self._facts, token)

    @property
    def endpoints(self) -> list[ProxyService]:
        """The service of each server, and that of all of them, if there are several."""
        found = list(self._services.values())
        return found if len(found) == 1 else [*found, self._whole]

    def _facts(self) -> Facts:
        from wirespeed import __version__
        from wirespeed.proxy.operation.status import Facts

        return Facts(__version__, list(self.config.listen))

    def routes(self, url: str) -> tuple[str, dict[str, ProxyService]]:
        """Return a URL to listen at without its path, and what is served there by path.

        Raises:
            ValueError: The URL is wrong.
        """
        address = parse(url)
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
        from wirespeed.proxy.merge.names import Names

        members = [
            (self._services[one.name], Names(one), one.start_timeout)
            for one in self.config.backends
        ]
        merged = Merged(members, self.config.page_size)
        return ProxyService(self.config, "proxy", merged, Meter())

    async def serve(self, *, on_listening: OnListening | None = None) -> None:
        """Serve at all URLs until SIGTERM or SIGINT; without a URL on stdio, until the client ends.

        ``on_listening``: Called with the URLs of a listener as soon as clients can connect to it,
        of the admin listener too.

        Raises:
            ValueError: A URL is wrong.
            TransportError: A listener or a server cannot be started.
        """
        from wirespeed.transport.net.serve import serve_together

        places: list[Any] = [(*self.routes(url), on_listening, {}) for url in self.config.listen]
        if self.config.admin is not None:
            places.append((self.config.admin.listen, self.admin, on_listening, {}))
        if self.config.listen:
            await serve_together(places)
            return
        from wirespeed.transport.stdio import serve_stdio

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


set_public_home(globals())
