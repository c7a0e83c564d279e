"""Build of the compiled modules; everything else is in pyproject.toml.

A wheel of `wirespeed` leaves out what belongs to `wirespeed-core` (``core/pyproject.toml``). What
is compiled beside its sources is all of it. The source distribution of the core, which has this
file too, holds nothing else.

WIRESPEED_BUILD   release (default) | debug | trace | asan; see CONTRIBUTING.md
WIRESPEED_ONLY    comma-separated module names to build, for daily work
                  (e.g. ``wirespeed._core.slab,wirespeed._core.outbox``)
"""

import os
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from fnmatch import fnmatch
from pathlib import Path

if sys.platform == "win32":
    sys.exit("wirespeed does not support Windows yet: it needs Linux or macOS (WSL works).")

from Cython.Build import cythonize
from Cython.Compiler import Options
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext as _build_ext
from setuptools.command.build_py import build_py as _build_py

MODES = ("release", "debug", "trace", "asan")
MODE = os.environ.get("WIRESPEED_BUILD") or "release"
if MODE not in MODES:
    sys.exit(f"WIRESPEED_BUILD={MODE!r} is not one of {', '.join(MODES)}")

ROOT = Path("src")
CSRC = ROOT / "csrc"
PUBLIC_HEADERS = ("scan.h",)  # what the .pxd files include; wirespeed.get_include() finds them
JOBS = os.cpu_count() or 1

# Metadata commands need no C files.
BUILDING = not {"egg_info", "sdist", "dist_info"} & set(sys.argv)
IN_PLACE = bool({"--inplace", "-i", "editable_wheel"} & set(sys.argv))
# The files of the other distribution, by patterns.
CORE: list[str] = []
if BUILDING and not IN_PLACE and Path("core", "pyproject.toml").exists():
    CORE = tomllib.loads(Path("core", "pyproject.toml").read_text())["tool"]["wirespeed"]["files"]

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "auto_pickle": False,
    "autotestdict": False,
    "warn.unused": True,
    "warn.maybe_uninitialized": True,
    "warn.deprecated.DEF": True,
}
# Flags that gcc and clang both know. They follow Python's own, so they win over its -O and NDEBUG.
CFLAGS = ["-std=c11", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"]
CFLAGS += ["-Werror=int-conversion", "-Werror=incompatible-pointer-types"]  # as newer ones do
LDFLAGS: list[str] = []
MACROS: list[tuple[str, str | None]] = []
if MODE == "release":
    CFLAGS += ["-O3", "-g0"]
else:
    DIRECTIVES |= {
        "boundscheck": True,
        "initializedcheck": True,
        "nonecheck": True,
        "overflowcheck": True,
    }
    CFLAGS += ["-O1", "-g", "-UNDEBUG", "-fno-omit-frame-pointer"]
    MACROS += [("WIRESPEED_DEBUG", "1")]
if MODE == "trace":
    DIRECTIVES["linetrace"] = True
    MACROS += [("CYTHON_TRACE_NOGIL", "1"), ("CYTHON_USE_SYS_MONITORING", "0")]
if MODE == "asan":
    SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    CFLAGS += SANITIZE
    LDFLAGS += SANITIZE


def is_ours(path: str) -> bool:
    """Whether a source belongs to the distribution that is built."""
    name = Path(path).relative_to(ROOT / "wirespeed").as_posix()
    return not any(fnmatch(name, one) for one in CORE)


class build_py(_build_py):
    """Takes the sources of the distribution, and puts the public C headers into the core's.

    An editable install has none of its own: wirespeed.get_include() gives src/csrc there.
    """

    def find_package_modules(self, package: str, folder: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, folder)
        return [one for one in found if is_ours(one[2])]

    def find_data_files(self, package: str, folder: str) -> list[str]:
        return [one for one in super().find_data_files(package, folder) if is_ours(one)]

    def headers(self) -> dict[str, str]:
        if self.editable_mode or CORE:
            return {}
        include = Path(self.build_lib, "wirespeed", "include")
        return {str(include / name): str(CSRC / name) for name in PUBLIC_HEADERS}

    def run(self) -> None:
        super().run()
        for target, source in self.headers().items():
            self.mkpath(str(Path(target).parent))
            self.copy_file(source, target, preserve_mode=False)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *self.headers()]

    def get_output_mapping(self) -> dict[str, str]:
        return super().get_output_mapping() | self.headers()


class build_ext(_build_ext):
    """Keeps the modes apart in the source tree too."""

    def copy_extensions_to_source(self) -> None:
        # What lies there may be newer and yet of another mode.
        self.force = True
        super().copy_extensions_to_source()


def extension(pyx: Path) -> Extension:
    """One extension a .pyx; only _core._simd links the C kernels."""
    name = ".".join(pyx.relative_to(ROOT).with_suffix("").parts)
    kernels = name == "wirespeed._core._simd"
    return Extension(
        name,
        [str(pyx), *(sorted(map(str, CSRC.glob("*.c"))) if kernels else ())],
        depends=sorted(map(str, CSRC.glob("*.h"))),
        include_dirs=[str(CSRC)],
        extra_compile_args=CFLAGS,
        extra_link_args=LDFLAGS,
        define_macros=MACROS,
    )


def extensions() -> list[Extension]:
    sources = sorted((ROOT / "wirespeed").rglob("*.pyx"))
    found = [extension(pyx) for pyx in sources if is_ours(str(pyx))]
    only = {name for name in os.environ.get("WIRESPEED_ONLY", "").split(",") if name}
    if unknown := only - {ext.name for ext in found}:
        sys.exit(f"WIRESPEED_ONLY names no module of this package: {', '.join(sorted(unknown))}")
    return [ext for ext in found if ext.name in only] if only else found


def check_compiler() -> None:
    """End the build with one sentence if C cannot be compiled: before Cython's work, and without
    the compiler's own many lines."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    try:
        tried = subprocess.run(
            [*compiler, f"-I{sysconfig.get_path('include')}", "-E", "-x", "c", "-"],
            input="#include <Python.h>\n",
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as exc:
        why = f"{compiler[0]}: {exc.strerror}"
    else:
        if tried.returncode == 0:
            return
        lines = [line for line in tried.stderr.splitlines() if "error" in line]
        why = (lines or tried.stderr.splitlines() or [f"{compiler[0]} failed"])[0].strip()
    sys.exit(
        "wirespeed is compiled while it is installed and needs a C compiler and Python's headers "
        f'({why}): "apt install gcc python3-dev", "dnf install gcc python3-devel", '
        '"apk add gcc musl-dev python3-dev" or "xcode-select --install" installs them.'
    )


Options.warning_errors = True
# From Python 3.14 on, the processes that compile .pyx files import this file.
if __name__ == "__main__":
    if BUILDING:
        check_compiler()
    setup(
        cmdclass={"build_ext": build_ext, "build_py": build_py},
        ext_modules=cythonize(
            extensions(),
            include_path=["src"],
            compiler_directives=DIRECTIVES,
            annotate=MODE == "debug",
            # coverage looks for the C file beside the .pyx
            build_dir=None if MODE == "trace" else f"build/cython-{MODE}",
            nthreads=JOBS,
            quiet=True,
        )
        if BUILDING
        else extensions(),
        options={
            # a mode finds nothing of another one to take for its own
            "build": {"build_base": f"build/{MODE}"},
            "build_ext": {"parallel": JOBS},
        },
    )
