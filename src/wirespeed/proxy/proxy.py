"""Many clients on few servers."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.proxy.flow.rates import Rates
from wirespeed.proxy.service import ProxyService
from wirespeed.transport.address import parse

if TYPE_CHECKING:
    from wirespeed.proxy.config import ProxyConfig
    from wirespeed.transport.options import ListenFields, OnListening


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
        self.rates: Rates | None = None
        if config.rate is not None:
            self.rates = Rates(config.rate)
        for service in self._services.values():
            service.rates = self.rates

    @property
    def services(self) -> dict[str, ProxyService]:
        """What transports serve: one for each server, by its name."""
        return dict(self._services)

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
        service = ProxyService(self.config, "proxy", Merged(members, self.config.page_size))
        service.rates = self.rates
        return service

    @property
    def listen_fields(self) -> ListenFields:
        """What the configuration says of all listeners."""
        return {"slow_reader_timeout": self.config.slow_client_timeout}

    async def serve(self, *, on_listening: OnListening | None = None) -> None:
        """Serve at all URLs until SIGTERM or SIGINT; without a URL on stdio, until the client ends.

        ``on_listening``: Called with the URLs of a listener as soon as clients can connect to it.

        Raises:
            ValueError: A URL is wrong.
            TransportError: A listener or a server cannot be started.
        """
        if not self.config.listen:
            from wirespeed.transport.stdio import serve_stdio

            await serve_stdio(self._whole)
        else:
            from wirespeed.transport.net.serve import serve_together

            await serve_together(
                [
                    (*self.routes(url), on_listening, self.listen_fields)
                    for url in self.config.listen
                ]
            )


set_public_home(globals())
