"""Serving FastMCP servers at every URL of wirespeed: `serve` and `run`."""

from __future__ import annotations

import contextlib
from typing import Any

from fastmcp.server.context import reset_transport, set_transport

from wirespeed.adapters.mcp.service import SdkService


class FastMcpService(SdkService):
    """A FastMCP server for the listeners of wirespeed, as `wirespeed.serve` takes it.

    The options are those of `wirespeed.adapters.mcp.SdkService`. ValueError: the server has `auth`,
    which only its own HTTP transport enforces.
    """

    def __init__(self, server: Any, *, over_stdio: bool = False, **options: Any) -> None:
        if server.auth is not None and not over_stdio:
            raise ValueError(
                f"the auth of {server.name!r} is enforced by FastMCP's own HTTP transport alone: "
                "use server.run(transport='http'), or serve it without and with authenticate=…"
            )
        super().__init__(server._mcp_server, over_stdio=over_stdio, **options)
        self.fastmcp = server
        # what FastMCP takes for stdio, it does not ask for authorization
        self._transport = "stdio" if over_stdio else "streamable-http"
        self._alive = contextlib.AsyncExitStack()

    async def hold(self) -> None:
        """Enter the lifespan of the server, unless somebody has."""
        if not self._held:
            await self._alive.enter_async_context(self.fastmcp._lifespan_manager())
        token = set_transport(self._transport)
        try:
            await super().hold()
        except BaseException:
            if not self._held:
                await self._alive.aclose()
            raise
        finally:
            reset_transport(token)

    async def release(self, held: None) -> None:
        """End a `hold`; the last one leaves the lifespan."""
        await super().release(held)
        if not self._held:
            await self._alive.aclose()


def _serviced(server: Any, transport: str | None, options: dict[str, Any]) -> tuple[Any, Any]:
    """The service of a server, and the URL; None for stdio."""
    url = None if transport in (None, "stdio") else transport
    names = ("limits", "shutdown_grace", "raise_exceptions", "json_response")
    own = {name: options.pop(name) for name in names if name in options}
    return FastMcpService(server, over_stdio=url is None, **own), url


async def serve(server: Any, transport: str | None = None, **options: Any) -> None:
    """Serve a FastMCP server inside a running loop.

    >>> await serve(FastMCP("calculator"), "ws://127.0.0.1:8765/mcp", token="…")

    Args:
        server: The server.
        transport: None or "stdio"; or a URL: ``http://``, ``https://``, ``ws://``, ``wss://``,
            ``unix:`` or ``tcp://``.
        options: Those of `wirespeed.adapters.mcp.serve`.
    """
    from wirespeed.adapters.mcp.serving import serve as sdk_serve

    service, url = _serviced(server, transport, options)
    await sdk_serve(service, url, **options)


def run(server: Any, transport: str | None = None, **options: Any) -> None:
    """`serve` on a new event loop, on uvloop where it is installed, in one or several processes
    (``workers``)."""
    from wirespeed.adapters.mcp.serving import run as sdk_run

    service, url = _serviced(server, transport, options)
    sdk_run(service, url, **options)
