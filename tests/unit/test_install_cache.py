"""What an install compiles once: setup.py keeps compiled modules for later installs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.own_environment

ROOT = Path(__file__).resolve().parents[2]

COMPILER = """#!/bin/sh
case " $* " in *" -c "*) echo "$*" >> '{log}'; sleep "${{SECONDS_MORE:-0}}" ;; esac
exec cc "$@"
"""


class Checkout:
    """A package of one compiled module, with the project's own setup.py."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copy(ROOT / "setup.py", folder)
        for name in ("core", "src/csrc", "src/wirespeed"):
            (folder / name).mkdir(parents=True)
        shutil.copy(ROOT / "core/pyproject.toml", folder / "core")
        (folder / "pyproject.toml").write_text('[project]\nname = "wirespeed"\nversion = "0"\n')
        (folder / "src/wirespeed/__init__.py").touch()
        self.source = folder / "src/wirespeed/one.pyx"
        self.write(self.source, "ONE = 1\n")
        self.compiler, self.log = folder / "compiler", folder / "log"
        self.compiler.write_text(COMPILER.format(log=self.log))
        self.compiler.chmod(0o755)

    def write(self, path: Path, text: str) -> None:
        """As an archive unpacks a file: its time is that of long ago."""
        path.write_text(text)
        os.utime(path, (1e9, 1e9))

    def begin(self, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "out"],
            cwd=self.folder,
            env=os.environ | {"CC": str(self.compiler), "WIRESPEED_COMPILED": ""} | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait(self, building: subprocess.Popen[str]) -> None:
        told, _ = building.communicate()
        assert building.returncode == 0, told

    @property
    def kept(self) -> list[Path]:
        return sorted((self.folder / "build/compiled").iterdir())

    def build(self, **env: str) -> tuple[int, str]:
        """Build as an install does. Returns how many files were compiled, and the module."""
        self.log.unlink(missing_ok=True)
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        self.wait(self.begin(**env))
        compiled = self.log.read_text().splitlines() if self.log.exists() else []
        (made,) = (self.folder / "out").glob("wirespeed/one.*")
        return len(compiled), hashlib.sha256(made.read_bytes()).hexdigest()


def test_an_install_compiles_the_same_once_and_never_takes_another(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    compiled, first = checkout.build()
    assert compiled == 1
    assert checkout.build() == (0, first)
    shutil.rmtree(tmp_path / "build" / "install-release")
    assert checkout.build() == (0, first)
    # a change that no time shows
    checkout.write(checkout.source, "ONE = 2\n")
    compiled, second = checkout.build()
    assert compiled == 1
    assert second != first
    assert checkout.build(CFLAGS="-DOTHER=1")[0] == 1
    checkout.write(checkout.source, "ONE = 1\n")
    assert checkout.build() == (0, first)
    # a declaration that others may cimport
    checkout.write(tmp_path / "src/wirespeed/two.pxd", "cdef int two\n")
    assert checkout.build()[0] == 1


def test_a_kept_module_that_is_not_whole_is_compiled_again(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    _, first = checkout.build()
    (kept,) = checkout.kept
    module = kept / "wirespeed.one.so"
    whole = module.read_bytes()
    for harm in (lambda: module.write_bytes(bytes(len(whole))), module.unlink):
        harm()
        assert checkout.build() == (1, first)
    assert checkout.build() == (0, first)
    assert checkout.kept == [kept]


def test_what_fits_this_processor_alone_is_not_kept(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    for _ in range(2):
        assert checkout.build(CFLAGS="-mtune=native")[0] == 1


def test_an_install_succeeds_where_nothing_can_be_kept(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    (tmp_path / "file").touch()
    assert checkout.build(WIRESPEED_COMPILED="file")[0] == 1


def test_installs_at_once_compile_one_after_another(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    both = [checkout.begin(SECONDS_MORE="2") for _ in range(2)]
    for one in both:
        checkout.wait(one)
    assert len(checkout.log.read_text().splitlines()) == 1
