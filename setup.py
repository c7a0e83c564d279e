"""Build of the compiled modules; everything else is in pyproject.toml.

WIRESPEED_BUILD   release (default) | debug | trace | asan
WIRESPEED_ONLY    comma-separated module names to build, for daily work
                  (e.g. ``wirespeed._core.slab,wirespeed._core.outbox``)
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

if sys.platform == "win32":
    sys.exit("wirespeed does not support Windows yet: it needs Linux or macOS (WSL works).")

from Cython.Build import cythonize
from Cython.Compiler import Options

MODES = ("release", "debug", "trace", "asan")
MODE = os.environ.get("WIRESPEED_BUILD", "release")
if MODE not in MODES:
    sys.exit(f"WIRESPEED_BUILD={MODE!r} is not one of {', '.join(MODES)}")

ROOT = Path("src")
CSRC = ROOT / "csrc"

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
CFLAGS = ["-std=c11", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"]
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
    found = [extension(pyx) for pyx in sorted((ROOT / "wirespeed").rglob("*.pyx"))]
    only = [name for name in os.environ.get("WIRESPEED_ONLY", "").split(",") if name]
    return [ext for ext in found if ext.name in only] if only else found


Options.warning_errors = True
# Metadata commands (egg_info, sdist) need no C files.
BUILDING = not {"egg_info", "sdist", "dist_info"} & set(sys.argv)
setup(
    ext_modules=cythonize(
        extensions(),
        include_path=["src"],
        compiler_directives=DIRECTIVES,
        annotate=MODE == "debug",
        build_dir=None if MODE == "trace" else f"build/cython-{MODE}",
        nthreads=os.cpu_count() or 1,
        quiet=True,
    )
    if BUILDING
    else extensions(),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
