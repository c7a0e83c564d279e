"""A sitecustomize for child processes (`wirespeed.adapters.programs.environment`).

When an SDK that `WIRESPEED_ADAPTERS` names has been imported, its adapter is installed. Until then
nothing of wirespeed is loaded. The sitecustomize that this one hides runs after it.
"""

from __future__ import annotations

import importlib.util
import os
import sys

TYPE_CHECKING = False  # `typing` is not loaded in every child
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


def _install(sdk: str) -> None:
    try:
        from wirespeed.adapters.programs import install_for

        install_for(sdk)
    except Exception as exc:
        print(f"wirespeed: {sdk} stays as it is: {exc}", file=sys.stderr)


class _Loader:
    """The loader of an SDK, which installs the adapter behind it."""

    def __init__(self, stock: Any, loaded: Callable[[], None]) -> None:
        self._stock = stock
        self._loaded = loaded

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._stock.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._stock
        self._stock.exec_module(module)
        self._loaded()
        _install(module.__name__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)


class _Finder:
    def __init__(self, sdks: set[str]) -> None:
        self._sdks = sdks

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in self._sdks:
            return None
        self._sdks.discard(name)  # while the other finders are asked
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._sdks.add(name)  # a program may ask for the spec alone, or find the SDK later
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(  # type: ignore[assignment]
                spec.loader, lambda: self._sdks.discard(name)
            )
        return spec


def _chain() -> None:
    """Run the sitecustomize that would have been found without this folder."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [part for part in sys.path if not part or os.path.abspath(part) != here]
    ours = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as exc:
        if exc.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, _Finder(set(os.environ.get("WIRESPEED_ADAPTERS", "").split(","))))
    _chain()
