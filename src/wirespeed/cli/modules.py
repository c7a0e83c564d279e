"""A Python file of the user: imported, and what it has to serve."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from wirespeed.cli.failures import cannot_start

if TYPE_CHECKING:
    from wirespeed.litemcp import LiteServer
    from wirespeed.server import Server

    Service: TypeAlias = Server | LiteServer
    Routes: TypeAlias = dict[str, Service]

# Which of several servers is meant when none is named.
USUAL_NAMES = ("server", "mcp", "app")


def load(path: str) -> ModuleType:
    """Import a file as ``python FILE`` would find its neighbours, but not as ``__main__``."""
    directory, file = os.path.split(os.path.abspath(path))
    stem = file.removesuffix(".py")
    taken = stem in sys.modules or stem in sys.stdlib_module_names or stem == "wirespeed"
    name = stem if stem.isidentifier() and not taken else f"wirespeed_served_{stem}"
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(directory, file))
    spec = importlib.util.spec_from_file_location(name, loader.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    if sys.path[:1] != [directory]:
        sys.path.insert(0, directory)
    sys.argv = [path]
    sys.modules[name] = module  # pickling, and types that are named in strings, look there
    try:
        loader.exec_module(module)
    except SystemExit as exc:
        raise cannot_start(f"{path} ended itself while it was imported: exit({exc.code})") from None
    except Exception as exc:
        show(exc, loader.path)
        reason = "".join(traceback.format_exception_only(exc)).strip().rpartition("\n")[2]
        raise cannot_start(f"{path} cannot be imported: {reason}") from exc
    return module


def show(exc: BaseException, path: str) -> None:
    """The traceback on stderr, from the user's file on."""
    frame: TracebackType | None = exc.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != path:
        frame = frame.tb_next
    traceback.print_exception(type(exc), exc, frame)


# -- what is meant --------------------------------------------------------------------------------


def pick(
    module: ModuleType, path: str, name: str | None, *, lite: bool = False, routes: bool = False
) -> Service | Routes:
    """The server that is meant. Failure (3) if there is none, or no way to tell.

    ``lite``: one that speaks LiteMCP. ``routes``: several on paths, ``{"/path": server}``, will do,
    and are preferred.
    """
    wanted = _Wanted(lite, routes)
    if name is not None:
        found: object = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if wanted.fits(found):
            return found  # type: ignore[return-value]
        others = wanted.all(module)
        what = "nothing called" if found is None else f"no {wanted.word} called"
        hint = f"it has {', '.join(others)}" if others else wanted.nothing
        raise cannot_start(f"{path} has {what} {name}; {hint}")
    for servers in wanted.groups(module):
        if len({id(server) for server in servers.values()}) == 1:
            return next(iter(servers.values()))  # type: ignore[no-any-return]
        for usual in USUAL_NAMES:
            if usual in servers:
                return servers[usual]  # type: ignore[no-any-return]
    servers = wanted.all(module)
    if not servers:
        raise cannot_start(f"{path} has no {wanted.word} at module level; {wanted.remedy}")
    text = f"{path} has several servers, so say which, as in {path}:NAME: {', '.join(servers)}"
    if routes:
        text += '; or put them on paths, in a dict {"/path": server}'
    raise cannot_start(text)


class _Wanted:
    """What may be served: by type, and in the order of preference."""

    def __init__(self, lite: bool, routes: bool) -> None:
        self.kinds: tuple[type, ...] = _kinds(lite)
        self.routes = routes
        self.word = "LiteServer" if lite else "Server"
        self.nothing = f"it has no {self.word} at module level"
        self.remedy = "make one: Server('a name')"

    def fits(self, value: object) -> bool:
        return isinstance(value, self.kinds) or (self.routes and self._is_routes(value))

    def _is_routes(self, value: object) -> bool:
        return (
            isinstance(value, dict)
            and bool(value)
            and all(isinstance(path, str) and path.startswith("/") for path in value)
            and all(isinstance(server, self.kinds) for server in value.values())
        )

    def groups(self, module: ModuleType) -> list[dict[str, Any]]:
        """What fits, by name: first the dicts of several, then the servers."""
        return [
            _having(module, self._is_routes) if self.routes else {},
            _having(module, lambda value: isinstance(value, self.kinds)),
        ]

    def all(self, module: ModuleType) -> dict[str, Any]:
        return _having(module, self.fits)


def _having(module: ModuleType, fits: Callable[[object], bool]) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if fits(value)}


def _kinds(lite: bool) -> tuple[type, ...]:
    kinds: tuple[type, ...] = ()
    # A file that made a LiteServer has loaded its module; none else needs it.
    module = sys.modules.get("wirespeed.litemcp")
    if module is not None:
        kinds = (module.LiteServer,)
    if lite:
        return kinds
    from wirespeed.server import Server

    return (Server, *kinds)
