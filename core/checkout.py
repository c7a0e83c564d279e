"""The build backend of `wirespeed`: that of setuptools, which knows where a checkout has the core.

`wirespeed` requires `wirespeed-core` of its own version. pip asks a source tree for its metadata
before it builds a wheel, and takes the requirements from there: in a checkout the answer names the
folder of the core, which pip then builds, too. So ``pip install .`` needs no index for the core.
The wheel itself has the version alone, as have source distributions: what is installed or published
names no folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

CORE = Path(__file__).resolve().parent
REQUIRED = re.compile(r"^Requires-Dist: wirespeed-core==.*$", re.MULTILINE)


def point_to(core: Path, metadata: Path) -> None:
    """Say in the metadata of a checkout where the core is."""
    if (CORE.parent / "PKG-INFO").exists():  # a source distribution
        return
    file = metadata / "METADATA"
    text, n = REQUIRED.subn(f"Requires-Dist: wirespeed-core @ {core.as_uri()}", file.read_text())
    assert n == 1, f"{file} does not require wirespeed-core"
    file.write_text(text)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    name = build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)
    point_to(CORE, Path(metadata_directory, name))
    return name


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    return build_meta.build_wheel(wheel_directory, config_settings)


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Any = None
) -> str:
    name = build_meta.prepare_metadata_for_build_editable(metadata_directory, config_settings)
    point_to(CORE / "editable", Path(metadata_directory, name))
    return name


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    return build_meta.build_editable(wheel_directory, config_settings)
