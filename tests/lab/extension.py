"""Extension modules as other projects build them, compiled and loaded within a test."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

SETUP = """
import sys
import wirespeed
from Cython.Build import cythonize
from setuptools import Extension, setup

name = sys.argv.pop()
module = Extension(name, [name + ".pyx"], include_dirs=[wirespeed.get_include()])
setup(name=name, py_modules=[], ext_modules=cythonize([module], language_level=3))
"""


def build(folder: Path, name: str, source: str) -> None:
    """Compile a ``.pyx`` in a folder, where its module lies afterwards."""
    (folder / f"{name}.pyx").write_text(source)
    (folder / "setup.py").write_text(SETUP)
    # The compiler is not what a sanitizer is to look at.
    env = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    env["CFLAGS"] = f"{env.get('CFLAGS', '')} -O0"
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace", name],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def load(folder: Path, name: str) -> ModuleType:
    """Import a module that was built in a folder."""
    (path,) = folder.glob(f"{name}.*.so")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
