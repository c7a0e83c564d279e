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

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # isort: off
    from wirespeed import core as core
    from wirespeed.client import (
        Client as Client,
        Socket as Socket,
        Stdio as Stdio,
        SyncClient as SyncClient,
        WebSocket as WebSocket,
    )
    from wirespeed.limits import Limits as Limits
    from wirespeed.server import (
        Context as Context,
        Server as Server,
    )
    from wirespeed.transport.net.serve import (
        run as run,
        serve as serve,
    )
    from wirespeed.transport.options import (
        ListenOptions as ListenOptions,
        Refusal as Refusal,
        UpgradeRequest as UpgradeRequest,
    )

# isort: on
__version__ = "0.1.0"


def _exports(package: str, homes: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """The ``__all__`` and the ``__getattr__`` of a package whose names are loaded when they are
    first used. ``homes``: by module, the names that it defines, with blanks between. The modules
    themselves are loaded as attributes of the package, too."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        import importlib

        home = home_of.get(name)
        if home is None:
            if f"{package}.{name}" in homes:
                return importlib.import_module(f"{package}.{name}")
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(importlib.import_module(package), name, value)
        return value

    return sorted(home_of), load


_names, __getattr__ = _exports(
    __name__,
    {
        "wirespeed.client": "Client Socket Stdio SyncClient WebSocket",
        "wirespeed.config": "",
        "wirespeed.core": "",
        "wirespeed.errors": "",
        "wirespeed.limits": "Limits",
        "wirespeed.server": "Context Server",
        "wirespeed.transport.net.serve": "run serve",
        "wirespeed.transport.options": "ListenOptions Refusal UpgradeRequest",
    },
)
__all__ = [*_names, "__version__", "core", "get_include"]


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


def __dir__() -> list[str]:
    return sorted(__all__)
