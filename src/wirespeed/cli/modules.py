"""Imports a Python file of the user and picks the server in it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import wirespeed
from wirespeed.cli.failures import cannot_start, print_lines
from wirespeed.cli.show import plural

if TYPE_CHECKING:
    from wirespeed import Server
    from wirespeed.litemcp import LiteServer

    Service: TypeAlias = Server | LiteServer
    Routes: TypeAlias = dict[str, Service]

# The default names, if a file has several servers.
USUAL_NAMES = ("server", "mcp", "app", "main")


def load(path: str) -> ModuleType:
    """Import a file with the ``sys.path`` of ``python FILE``, but not as ``__main__``."""
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
    sys.modules[name] = module  # for pickling and for types named in strings
    try:
        loader.exec_module(module)
    except SystemExit as exc:
        raise cannot_start(
            f"{path} ended itself while it was imported: exit({exc.code}); what only a program "
            'does goes below if __name__ == "__main__":'
        ) from None
    except Exception as exc:
        line = show(exc, loader.path)
        reason = "".join(traceback.format_exception_only(exc)).strip().rpartition("\n")[2]
        if type(exc).__module__.startswith("wirespeed."):
            reason = str(exc)
        raise cannot_start(f"{path} cannot be imported: {line}{reason}{_remedy(exc)}") from exc
    return module


def _remedy(exc: BaseException) -> str:
    """Return a hint for an error at an import, if Python's own text has none; "" for most
    errors."""
    if isinstance(exc, ModuleNotFoundError) and exc.name:
        return f"; install the package that has it for {sys.executable}"
    if isinstance(exc, NameError) and exc.name:
        return f"; import or define {exc.name} first"
    return ""


def show(exc: BaseException, path: str) -> str:
    """Print the traceback on stderr, with the frames of the user's files only. Returns "line N: "
    for the last frame in the file, or ""."""
    shown = traceback.TracebackException.from_exception(exc)
    at: int | None = exc.lineno if isinstance(exc, SyntaxError) and exc.filename == path else None
    at = next((frame.lineno for frame in reversed(shown.stack) if frame.filename == path), at)
    link: traceback.TracebackException | None = shown
    while link is not None:
        link.stack[:] = [frame for frame in link.stack if _of_user(frame.filename)]
        earlier = link.__cause__ or link.__context__
        if earlier is not None and not any(_of_user(one.filename) for one in earlier.stack):
            link.__cause__ = link.__context__ = earlier = None  # errors inside the library
        link = earlier
    print_lines("".join(shown.format()))
    return "" if at is None else f"line {at}: "


def _of_user(file: str) -> bool:
    libraries = [
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ]
    return not file.startswith(("<", os.path.dirname(wirespeed.__file__), *libraries))


# -- choice of the server -------------------------------------------------------------------------


def pick(
    module: ModuleType, path: str, name: str | None, *, lite: bool = False, routes: bool = False
) -> Service | Routes:
    """Return the server of a module. Failure (3): there is no server, or no choice among several.

    ``lite``: a LiteMCP server. ``routes``: prefer a dict of several servers by path,
    ``{"/path": server}``.
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
    for fitting in wanted.groups(module):
        # A mounted server is a part of another server.
        servers = {name: s for name, s in fitting.items() if not _is_mounted(s)} or fitting
        if len({id(server) for server in servers.values()}) == 1:
            return next(iter(servers.values()))  # type: ignore[no-any-return]
        for usual in USUAL_NAMES:
            if usual in servers:
                return servers[usual]  # type: ignore[no-any-return]
    servers = wanted.all(module)
    if not servers:
        raise cannot_start(f"{path} has no {wanted.word} at module level; {wanted.remedy}")
    text = f"{path} has several servers; name one of them, as in {path}:NAME: {', '.join(servers)}"
    if routes:
        text += '; or put them on paths, in a dict {"/path": server}'
    raise cannot_start(text)


class _Wanted:
    """The types that can be served, in the order of preference."""

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
        """Return the matching objects by name: first dicts of servers, then servers."""
        return [
            _having(module, self._is_routes) if self.routes else {},
            _having(module, lambda value: isinstance(value, self.kinds)),
        ]

    def all(self, module: ModuleType) -> dict[str, Any]:
        return _having(module, self.fits)


def _is_mounted(value: object) -> bool:
    from wirespeed import Server

    return isinstance(value, Server) and bool(value.service.mounts.elsewhere)


def _having(module: ModuleType, fits: Callable[[object], bool]) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if fits(value)}


def _kinds(lite: bool) -> tuple[type, ...]:
    kinds: tuple[type, ...] = ()
    # A file with a LiteServer has loaded its module. For other files the module is not needed.
    module = sys.modules.get("wirespeed.litemcp")
    if module is not None:
        kinds = (module.LiteServer,)
    if lite:
        return kinds
    from wirespeed import Server

    return (Server, *kinds)


def title(service: Service) -> str:
    """Return the title of a server: ``calculator (9 tools)``, ``add (LiteMCP)``; the name of one
    behind the proxy."""
    from wirespeed import Server

    if isinstance(service, Server):
        return f"{service.name} ({plural(len(service.tools), 'tool')})"
    return f"{service.name} (LiteMCP)" if isinstance(service, _kinds(lite=True)) else service.name
