"""wirespeed: a compiled protocol engine for MCP, the Model Context Protocol.

>>> from wirespeed import Server
>>> server = Server("calculator", version="1.0.0")
>>> @server.tool
... async def add(a: int, b: int) -> int:
...     \"\"\"Add two numbers.\"\"\"
...     return a + b

``server.run()`` then serves it over stdio. What a path needs is loaded when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed import core
    from wirespeed.client import Client, Socket, Stdio, SyncClient, WebSocket
    from wirespeed.limits import Limits
    from wirespeed.server import Context, Server
    from wirespeed.transport.listen import run, serve
    from wirespeed.transport.options import ListenOptions, Refusal, UpgradeRequest

__version__ = "0.1.0"

__all__ = [
    "Client",
    "Context",
    "Limits",
    "ListenOptions",
    "Refusal",
    "Server",
    "Socket",
    "Stdio",
    "SyncClient",
    "UpgradeRequest",
    "WebSocket",
    "__version__",
    "core",
    "get_include",
    "run",
    "serve",
]

_HOMES = {
    "Client": "wirespeed.client",
    "Context": "wirespeed.server",
    "Limits": "wirespeed.limits",
    "ListenOptions": "wirespeed.transport.options",
    "Refusal": "wirespeed.transport.options",
    "Server": "wirespeed.server",
    "Socket": "wirespeed.client",
    "Stdio": "wirespeed.client",
    "SyncClient": "wirespeed.client",
    "UpgradeRequest": "wirespeed.transport.options",
    "WebSocket": "wirespeed.client",
    "run": "wirespeed.transport.listen",
    "serve": "wirespeed.transport.listen",
}


def get_include() -> str:
    """The directory of the C headers that the ``.pxd`` files of `wirespeed` include.

    It belongs in ``include_dirs`` of an extension module that cimports `wirespeed`.
    """
    import os

    package = os.path.dirname(os.path.abspath(__file__))
    include = os.path.join(package, "include")
    if os.path.isdir(include):
        return include
    return os.path.join(os.path.dirname(package), "csrc")  # an editable install


def __getattr__(name: str) -> Any:
    import importlib

    if name in ("core", "config", "errors", "server", "client"):
        return importlib.import_module(f"wirespeed.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'wirespeed' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
