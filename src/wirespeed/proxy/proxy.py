"""Many clients on few servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed._exports import set_public_home
from wirespeed.proxy.service import ProxyService

if TYPE_CHECKING:
    from wirespeed.proxy.config import ProxyConfig
    from wirespeed.transport.options import OnListening


class Proxy:
    """Passes the requests of its clients to a server, and the answers back.

    >>> server = BackendConfig(target=Stdio("my-server"), isolation="shared")
    >>> await Proxy(ProxyConfig(backend=server, listen=("ws://127.0.0.1:8765/mcp",))).serve()

    Every client uses ids and progress tokens of its own. The proxy edits them in place, and decodes
    nothing else of what it passes on.
    """

    def __init__(self, config: ProxyConfig) -> None:
        self.config = config
        self._service = ProxyService(config)

    @property
    def service(self) -> ProxyService:
        """What transports serve."""
        return self._service

    async def serve(self, *, on_listening: OnListening | None = None) -> None:
        """Serve at all URLs until SIGTERM or SIGINT; without a URL on stdio, until the client ends.

        ``on_listening``: Called with the URLs of a listener as soon as clients can connect to it.

        Raises:
            ValueError: A URL is wrong.
            TransportError: A listener or the server cannot be started.
        """
        if not self.config.listen:
            from wirespeed.transport.stdio import serve_stdio

            await serve_stdio(self._service)
        else:
            from wirespeed.transport.net.serve import serve_together

            await serve_together(
                [(url, self._service, on_listening, {}) for url in self.config.listen]
            )


set_public_home(globals())
