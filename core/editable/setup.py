"""wirespeed-core where wirespeed is installed in place: a line that puts ../../src on the path."""

import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py as _build_py

CORE = Path(__file__).resolve().parents[1]


class build_py(_build_py):
    def run(self) -> None:
        self.mkpath(self.build_lib)
        Path(self.build_lib, "wirespeed-core.pth").write_text(f"{CORE.parent / 'src'}\n")


setup(
    version=tomllib.loads((CORE / "pyproject.toml").read_text())["project"]["version"],
    py_modules=["wirespeed"],  # so that build_py runs
    cmdclass={"build_py": build_py},
    options={"build": {"build_base": str(CORE.parent / "build" / "editable")}},
)
