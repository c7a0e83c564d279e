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

from wirespeed._exports import IS_WHOLE, exports

_names, __getattr__ = exports(__name__)
__all__ = [*_names, "__version__", "core", "get_include", "transport"]
if IS_WHOLE:
    __all__ += ["types"]


def __dir__() -> list[str]:
    return sorted(__all__)


__version__ = "0.1.0"


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
