"""Serving the SDK's servers: `serve` and `run`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from wirespeed.adapters.descriptors import on_asyncio
from wirespeed.adapters.mcp.service import SdkService
from wirespeed.transport.options import RunOptions, ServeOptions, checked_url

if TYPE_CHECKING:
    from wirespeed.limits import Limits

NO_TRIO = "wirespeed serves on asyncio's event loop, and this is not one: trio is not supported"


class SdkServeOptions(ServeOptions, total=False):
    """The options of `serve`: those of `wirespeed.serve`, and the following.

    Attributes:
        limits: The limits of each connection.
        shutdown_grace: Seconds that running requests have at the end.
        raise_exceptions: Whether an exception of a handler ends its connection.
    """

    limits: Limits
    shutdown_grace: float
    raise_exceptions: bool


class SdkRunOptions(SdkServeOptions, RunOptions, total=False):
    """The options of `run`: those of `serve`, and ``workers``."""


_OWN = ("limits", "shutdown_grace", "raise_exceptions")


async def serve(server: Any, url: str | None = None, **options: Unpack[SdkServeOptions]) -> None:
    """Serve a server of the SDK inside a running loop: on stdio (``None``) until the client leaves,
    or at a URL until SIGTERM or SIGINT.

    >>> await serve(MCPServer("calculator"), "ws://127.0.0.1:8765/mcp", token="…")

    Args:
        server: An `MCPServer` or a low-level `Server`; for HTTP and WebSocket also a mapping of
            paths to servers.
        url: As of `wirespeed.serve`: ``http://``, ``https://``, ``ws://``, ``wss://``, ``unix:`` or
            ``tcp://``.
        options: Those of `wirespeed.serve`; ``limits``, ``shutdown_grace``, ``raise_exceptions``.

    ValueError: an option is wrong, or the server verifies tokens, as only the SDK's own HTTP does.
    RuntimeError: the loop is not one of asyncio.
    """
    if not on_asyncio():
        raise RuntimeError(NO_TRIO)
    services, more = _services(server, options, over_stdio=url is None)
    if url is None:
        _check_stdio(services, more)
        from wirespeed.transport.stdio import serve_stdio

        await serve_stdio(services)
    else:
        from wirespeed.transport.net.serve import serve as serve_at

        await serve_at(url, services, **more)


def run(server: Any, url: str | None = None, **options: Unpack[SdkRunOptions]) -> None:
    """`serve` on a new event loop, on uvloop where it is installed, in one or several processes
    (``workers``)."""
    services, more = _services(server, options, over_stdio=url is None)
    if url is None:
        _check_stdio(services, more)
        from wirespeed.transport.loop import run as run_loop
        from wirespeed.transport.stdio import serve_stdio

        run_loop(serve_stdio(services))
    else:
        from wirespeed.transport.net.serve import run as run_at

        run_at(url, services, **more)


def _services(
    server: Any, options: Mapping[str, Any], *, over_stdio: bool
) -> tuple[Any, dict[str, Any]]:
    """Return the services for what a user gave to `serve`, and the options of their listener."""
    more = dict(options)
    own = {name: more.pop(name) for name in _OWN if name in more}
    own["over_stdio"] = over_stdio
    http = getattr(more.get("options"), "http", None) if "http" not in more else more["http"]
    if http is not None:
        own["json_response"] = http.response == "json"
    if isinstance(server, Mapping):
        return {path: _service(one, own) for path, one in server.items()}, more
    return _service(server, own), more


def _service(server: Any, own: dict[str, Any]) -> Any:
    if isinstance(server, SdkService):
        return server
    return SdkService(server, **own)


def _check_stdio(services: Any, options: Mapping[str, object]) -> None:
    if isinstance(services, Mapping):
        raise ValueError("several servers need a URL: stdio has one")
    checked_url(None, options)
