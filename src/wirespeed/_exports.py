"""Loads the public names of every package, each at its first use.

The stub of a package (``__init__.pyi``, ``types.pyi``) is the one place that names them, for type
checkers and for this module: ``from its.module import Name as Name``, each name by itself. The file
that defines a class may move; the name from which users import the class stays. That name is the
one that `repr`, tracebacks and pickles show.

Of the distribution `wirespeed-core` alone there are two of these packages, and some of their names.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` is loaded when something needs it
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Functions and classes that make servers and clients are in `wirespeed`, the values of their API in
# `wirespeed.types`, each name once.
STUBS = {
    "wirespeed": "__init__.pyi",
    "wirespeed.config": "config/__init__.pyi",
    "wirespeed.transport": "transport/__init__.pyi",
    "wirespeed.peer": "peer/__init__.pyi",
    "wirespeed.types": "types.pyi",
    "wirespeed.middleware": "middleware.pyi",
    "wirespeed.auth": "auth/__init__.pyi",
    "wirespeed.skills": "skills/__init__.pyi",
    "wirespeed.tasks": "tasks/__init__.pyi",
    "wirespeed.cluster": "cluster/__init__.pyi",
    "wirespeed.proxy": "proxy/__init__.pyi",
    "wirespeed.litemcp": "litemcp/__init__.pyi",
}
HERE = os.path.dirname(__file__)
# Whether the distribution `wirespeed` is there, not only `wirespeed-core`.
IS_WHOLE = os.path.exists(os.path.join(HERE, "types.pyi"))
if not IS_WHOLE:
    STUBS = {name: STUBS[name] for name in ("wirespeed", "wirespeed.transport")}


def _homes(package: str) -> dict[str, list[str]]:
    with open(os.path.join(HERE, STUBS[package]), encoding="utf-8") as stub:
        text = stub.read().replace("(\n", "")  # of an import that does not fit into one line
    homes: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("from "):
            _, home, _, name, *_ = line.split()
            homes.setdefault(home, []).append(name)
    return homes


# The names by package, by the module that defines them. A package has its public modules by itself.
HOMES = {package: _homes(package) for package in STUBS}


def _is_there(module: str) -> bool:
    path = os.path.join(HERE, *module.split(".")[1:])
    return any(os.path.exists(path + end) for end in (".pyi", ".py", "/__init__.py"))


def exports(package: str) -> tuple[list[str], Callable[[str], Any]]:
    """The ``__all__`` and the ``__getattr__`` of a package, which load a name when it is first
    used. The package's own modules that its stub has are loaded as attributes, too."""
    homes = HOMES[package]
    home_of = {name: home for home, names in homes.items() for name in names if home != package}

    def load(name: str) -> Any:
        import importlib

        home = home_of.get(name)
        if home is None and name not in homes.get(package, ()):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not IS_WHOLE and not _is_there(home or f"{package}.{name}"):
            raise ImportError(
                f"{package}.{name} is in the distribution wirespeed, and wirespeed-core is"
                " installed alone: pip install wirespeed"
            )
        if home is None:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(home), name)
        setattr(importlib.import_module(package), name, value)
        return value

    return sorted(name for name in home_of if IS_WHOLE or _is_there(home_of[name])), load


def set_public_home(namespace: dict[str, Any]) -> None:
    """Set ``__module__`` of a module's public classes and functions to their package.

    It is the last line of each module that has some. Annotations of structs are no strings there:
    `msgspec` and `typing` look the names in strings up in ``__module__``.
    """
    module = namespace["__name__"]
    for package, homes in HOMES.items():
        for name in homes.get(module, ()):
            value = namespace[name]
            if getattr(value, "__qualname__", None) == name and value.__module__ == module:
                value.__module__ = package
