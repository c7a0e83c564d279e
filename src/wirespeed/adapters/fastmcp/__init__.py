"""FastMCP on this engine.

`install()` is for programs that stay as they are: it installs `wirespeed.adapters.mcp`, and takes
work that nobody sees out of each call. `Transport` and `Client` reach every target of wirespeed,
`run` and `serve` serve a FastMCP server at every URL::

    from fastmcp import FastMCP
    from wirespeed.adapters import fastmcp

    server = FastMCP("calculator")
    fastmcp.run(server, "ws://127.0.0.1:8765/mcp")

The extra ``wirespeed[fastmcp]`` brings FastMCP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.adapters.fastmcp.client import Client as Client
    from wirespeed.adapters.fastmcp.client import Transport as Transport
    from wirespeed.adapters.fastmcp.installation import environment as environment
    from wirespeed.adapters.fastmcp.installation import install as install
    from wirespeed.adapters.fastmcp.installation import installed as installed
    from wirespeed.adapters.fastmcp.installation import uninstall as uninstall
    from wirespeed.adapters.fastmcp.serving import FastMcpService as FastMcpService
    from wirespeed.adapters.fastmcp.serving import run as run
    from wirespeed.adapters.fastmcp.serving import serve as serve

__all__ = [
    "Client",
    "FastMcpService",
    "Transport",
    "environment",
    "install",
    "installed",
    "run",
    "serve",
    "uninstall",
]

_HOMES = {
    "Client": "client",
    "FastMcpService": "serving",
    "Transport": "client",
    "run": "serving",
    "serve": "serving",
}


def __getattr__(name: str) -> Any:
    """Load the module of a name at the first use of the name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'installation')}"), name)
