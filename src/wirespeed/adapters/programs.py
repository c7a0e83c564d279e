"""Programs that run on an adapter unchanged: the one of a command line, and child processes."""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from wirespeed.adapters.seams import version_numbers

# The folder of a sitecustomize that calls `install_for` and then runs the sitecustomize behind it.
SITE = str(Path(__file__).parent / "site")
VARIABLE = "WIRESPEED_ADAPTERS"


def environment(*sdks: str, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Two variables of a child process, in which the adapters of these SDKs install themselves.

    They do so when the SDK has been imported there, in Python programs at any depth. The variables
    add to those of ``base`` (by default those of this process), which stay as they are.
    """
    old = os.environ if base is None else base
    given = old.get("PYTHONPATH")
    # an empty entry would be the current directory
    path = [part for part in given.split(os.pathsep) if part != SITE] if given else []
    names = dict.fromkeys(name for name in (*old.get(VARIABLE, "").split(","), *sdks) if name)
    return {"PYTHONPATH": os.pathsep.join([SITE, *path]), VARIABLE: ",".join(names)}


def of_child(variables: dict[str, str]) -> dict[str, str]:
    """Return the variables for a server that this process starts: those that the SDK passes on,
    and those of `environment` if this process has them."""
    sdks = os.environ.get(VARIABLE)
    return variables | environment(*sdks.split(","), base=variables) if sdks else variables


def install_for(sdk: str) -> bool:
    """Install the adapter of an SDK that is loaded: that of its generation."""
    generation = "1" if sdk == "mcp" and version_numbers(version(sdk)) < (2,) else ""
    installed: bool = import_module(f"wirespeed.adapters.{sdk}{generation}").install()
    return installed


def main(adapter: str, install: Callable[[], object], sdk: str, argv: Sequence[str]) -> None:
    """Run a program as `python` does, after `install()`.

    ``argv``: ``[--children] (PROGRAM | -m MODULE) [ARGUMENT …]``. A program may be a command of
    this environment. ``--children``: child processes get `environment`, too.
    """
    rest = list(argv)
    children = rest[:1] == ["--children"]
    if children:
        rest.pop(0)
    by_name = rest[:1] == ["-m"]
    if by_name:
        rest.pop(0)
    if not rest or (not by_name and rest[0].startswith("-")):
        sys.exit(f"usage: python -m {adapter} [--children] (PROGRAM | -m MODULE) [ARGUMENT …]")
    if children:
        os.environ.update(environment(sdk))
    install()
    name = rest[0]
    sys.argv[:] = rest
    if by_name:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    if not os.path.isfile(name) and not os.path.isfile(os.path.join(name, "__main__.py")):
        name = sys.argv[0] = shutil.which(name) or name  # a command of this environment
    if not sys.flags.safe_path:  # with it, sys.path has no folder of the program
        sys.path[0] = os.path.dirname(os.path.realpath(name))
    runpy.run_path(name, run_name="__main__")
