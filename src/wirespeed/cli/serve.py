"""``wirespeed serve``: find the Server in a file of the user, and run it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import traceback
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING

from wirespeed.cli.failures import cannot_start, complain, usage
from wirespeed.cli.show import plural
from wirespeed.cli.targets import check_file, python_file

if TYPE_CHECKING:
    from wirespeed.server import Server

# Which of several servers is meant when none is named.
USUAL_NAMES = ("server", "mcp", "app")


def serve(word: str) -> int:
    """Serve ``FILE.py[:NAME]`` on stdio until the client goes. Failure (3) says why it cannot."""
    from wirespeed.transport.loop import loop_factory
    from wirespeed.transport.stdio import claimed

    try:
        loop_factory()
    except ValueError as exc:
        raise usage(str(exc)) from None

    path, name = python_file(word) or (word, None)
    check_file(path)
    # What the file prints, or reads, while it is imported must not touch the wire.
    with claimed():
        module = load(path)
    server = pick(module, path, name)
    if sys.stdin.isatty():
        tools = plural(len(server.tools), "tool")
        complain(f"serving {server.name} ({tools}) on stdio; Ctrl-D ends it", level="note")
    server.run()
    return 0


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


def pick(module: ModuleType, path: str, name: str | None) -> Server:
    """The server that is meant. Failure (3) if there is none, or no way to tell."""
    from wirespeed.server import Server

    if name is not None:
        found: object = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, Server):
            return found
        others = _servers(module)
        hint = f"it has {', '.join(others)}" if others else "it has no Server at module level"
        what = "nothing called" if found is None else "no Server called"
        raise cannot_start(f"{path} has {what} {name}; {hint}")
    servers = _servers(module)
    if len({id(server) for server in servers.values()}) == 1:
        return next(iter(servers.values()))
    for usual in USUAL_NAMES:
        if usual in servers:
            return servers[usual]
    if not servers:
        raise cannot_start(f"{path} has no Server at module level; make one: Server('a name')")
    names = ", ".join(servers)
    raise cannot_start(f"{path} has several servers, so say which, as in {path}:NAME: {names}")


def _servers(module: ModuleType) -> dict[str, Server]:
    from wirespeed.server import Server

    return {k: v for k, v in vars(module).items() if isinstance(v, Server)}
