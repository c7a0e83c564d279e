"""`mcp` 1.x, the official SDK of the legacy era, on this engine.

`install()` is for programs that stay as they are: its stdio transports move their messages over
links, and its sessions handle these without a model for each envelope. `connect` and `serve` are
for programs that ask for it, over WebSocket, ``unix:`` and ``tcp://`` too::

    from wirespeed.adapters import mcp1

    mcp1.install()              # or: python -m wirespeed.adapters.mcp1 program.py

    async with mcp1.connect("unix:/run/tools") as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()

The extra ``wirespeed[mcp1]`` brings the SDK. Trio, streams of a program's own and HTTP are left to
the SDK itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wirespeed.adapters.programs import environment

if TYPE_CHECKING:
    from wirespeed.adapters.mcp1.network import connect as connect
    from wirespeed.adapters.mcp1.network import serve as serve

__all__ = ["child_environment", "connect", "install", "installed", "serve", "uninstall"]


def install() -> bool:
    """Put the engine below `mcp` 1.x, in this process, from now on. Idempotent.

    Everything that is replaced is checked first. Of a version that is not known nothing is
    replaced: the SDK stays as it is, one warning says why, and False is returned.
    """
    from wirespeed.adapters.mcp1.replaced import installation

    return installation.install()


def uninstall() -> None:
    """Restore what `install` replaced. Connections that are open stay as they are."""
    from wirespeed.adapters.mcp1.replaced import installation

    installation.uninstall()


def installed() -> bool:
    """Whether `install` has replaced what it replaces."""
    from wirespeed.adapters.mcp1.replaced import installation

    return installation.installed


def child_environment() -> dict[str, str]:
    """Two variables for child processes, in which `install` runs when they import the SDK:
    ``StdioServerParameters(command=…, env=child_environment())``."""
    return environment("mcp")


def __getattr__(name: str) -> Callable[..., Any]:
    if name in ("connect", "serve"):
        from wirespeed.adapters.mcp1 import network

        function: Callable[..., Any] = getattr(network, name)
        return function
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
