"""The official Python SDK, mcp 2, on this engine.

`install()` is for programs that stay as they are. `serve`, `run`, `connect` and `Client` are for
programs that ask for it, on every transport::

    from wirespeed.adapters import mcp as adapter

    adapter.install()           # or: python -m wirespeed.adapters.mcp program.py

    adapter.run(MCPServer("calculator"), "ws://127.0.0.1:8765/mcp")

    async with adapter.Client("ws://127.0.0.1:8765/mcp") as client:
        await client.call_tool("add", {"a": 1, "b": 2})

The extra ``wirespeed[mcp]`` brings the SDK. The module of a name is loaded at the first use of the
name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.adapters.mcp.client import Client as Client
    from wirespeed.adapters.mcp.client import connect as connect
    from wirespeed.adapters.mcp.installation import environment as environment
    from wirespeed.adapters.mcp.installation import install as install
    from wirespeed.adapters.mcp.installation import installed as installed
    from wirespeed.adapters.mcp.installation import uninstall as uninstall
    from wirespeed.adapters.mcp.service import SdkService as SdkService
    from wirespeed.adapters.mcp.serving import run as run
    from wirespeed.adapters.mcp.serving import serve as serve

_HOMES = {
    "Client": "client",
    "SdkService": "service",
    "connect": "client",
    "environment": "installation",
    "install": "installation",
    "installed": "installation",
    "run": "serving",
    "serve": "serving",
    "uninstall": "installation",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Load the module of a name at the first use of the name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
