"""The official Python SDK, mcp 1.x, on this engine.

`install()` is for programs that stay as they are: the stdio transports of the SDK move their
messages over links, and its sessions handle these without a model for each envelope. `connect` and
`serve` are for programs that ask for it, over WebSocket, ``unix:`` and ``tcp://`` too::

    from wirespeed.adapters import mcp1

    mcp1.install()              # or: python -m wirespeed.adapters.mcp1 program.py

    async with mcp1.connect("unix:/run/tools") as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()

The extra ``wirespeed[mcp1]`` brings the SDK. Trio, streams of a program's own and HTTP are left to
the SDK itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.adapters.mcp1.installation import environment as environment
    from wirespeed.adapters.mcp1.installation import install as install
    from wirespeed.adapters.mcp1.installation import installed as installed
    from wirespeed.adapters.mcp1.installation import uninstall as uninstall
    from wirespeed.adapters.mcp1.network import SessionService as SessionService
    from wirespeed.adapters.mcp1.network import connect as connect
    from wirespeed.adapters.mcp1.network import serve as serve

__all__ = [
    "SessionService",
    "connect",
    "environment",
    "install",
    "installed",
    "serve",
    "uninstall",
]


def __getattr__(name: str) -> Any:
    """Load the module of a name at the first use of the name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = "network" if name in ("SessionService", "connect", "serve") else "installation"
    return getattr(import_module(f"{__name__}.{home}"), name)
