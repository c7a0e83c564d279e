"""The build backend of `wirespeed-core`: setuptools, in a tree of the files that belong to it.

In the repository these files lie in ``../src``, beside those of `wirespeed`. The source
distribution is that tree, so a wheel is built the same way from both. There is no hook for editable
installs: ``pip install -e`` of the repository's own folder has the core, too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from setuptools import build_meta

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
SUFFIXES = {".py", ".pyx", ".pxd", ".pyi", ".typed"}


def is_core(name: str) -> bool:
    """Whether a file, by its path below ``src/wirespeed``, belongs to the core."""
    text = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    return any(fnmatch(name, one) for one in tomllib.loads(text)["tool"]["wirespeed"]["files"])


def gather(tree: Path) -> None:
    """Make the tree of the source distribution."""
    for name in ("pyproject.toml", "README.md", "MANIFEST.in", "backend.py"):
        shutil.copy2(HERE / name, tree)
    for name in ("setup.py", "LICENSE"):
        shutil.copy2(REPOSITORY / name, tree)
    source = REPOSITORY / "src"
    shutil.copytree(source / "csrc", tree / "src" / "csrc")
    for path in sorted((source / "wirespeed").rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.suffix in SUFFIXES and is_core(name.removeprefix("wirespeed/")):
            target = tree / "src" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


@contextlib.contextmanager
def inside_tree() -> Iterator[None]:
    if (HERE / "src").is_dir():  # this is the source distribution
        yield
        return
    # the tree goes away; what is compiled in it is kept in the repository
    os.environ.setdefault("WIRESPEED_COMPILED", str(REPOSITORY / "build" / "compiled"))
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="wirespeed-core.") as folder:
        gather(Path(folder))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    return []


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return []


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    folder = os.path.abspath(metadata_directory)
    with inside_tree():
        return build_meta.prepare_metadata_for_build_wheel(folder, config_settings)


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    folder = os.path.abspath(wheel_directory)
    metadata = metadata_directory and os.path.abspath(metadata_directory)
    with inside_tree():
        return build_meta.build_wheel(folder, config_settings, metadata)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    folder = os.path.abspath(sdist_directory)
    with inside_tree():
        return build_meta.build_sdist(folder, config_settings)
