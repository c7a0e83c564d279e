"""Build of the compiled modules; everything else is in pyproject.toml.

A wheel of `wirespeed` leaves out what belongs to `wirespeed-core` (``core/pyproject.toml``). What
is compiled beside its sources is all of it. The source distribution of the core, which has this
file too, holds nothing else.

WIRESPEED_BUILD      release (default) | debug | trace | asan; see CONTRIBUTING.md
WIRESPEED_ONLY       comma-separated module names to build, for daily work
                     (e.g. ``wirespeed._core.slab,wirespeed._core.outbox``)
WIRESPEED_COMPILED   folder of what earlier installs compiled, by default build/compiled
"""

import contextlib
import fcntl
import gc
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatch
from importlib.metadata import version
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

# What is built in place is brought up to date by the times of files, what is installed is not.
BUILD = f"build/{MODE}" if IN_PLACE else f"build/install-{MODE}"
TRANSLATED = f"build/cython-{MODE}" if IN_PLACE else f"{BUILD}/cython"
COMPILED = Path(os.environ.get("WIRESPEED_COMPILED") or "build/compiled").resolve()
KEPT = 8  # sets of compiled modules
CONFIG_HEADER = Path(sysconfig.get_config_h_filename())
SUMS = "sums.json"  # the digest of each kept module
COMPILER_VARIABLES = (
    *("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "SDKROOT"),
    *("GCC_EXEC_PREFIX", "LD_RUN_PATH", "ARCHFLAGS", "MACOSX_DEPLOYMENT_TARGET"),
)

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
# Code of Cython's own that would otherwise be in each module: how functions are called, types are
# set up and so on. It is a fifth of the work of the C compiler.
SHARED = ROOT / "wirespeed" / "_core" / "_cython.c"
# Flags that gcc and clang both know. They follow Python's own, so they win over its -O and NDEBUG.
CFLAGS = ["-std=c11", "-fvisibility=hidden"]
CFLAGS += ["-Werror=int-conversion", "-Werror=incompatible-pointer-types"]  # as newer ones do
LDFLAGS: list[str] = []
MACROS: list[tuple[str, str | None]] = []
# Off: what takes the compiler long, and saves no call of benchmarks/guard 1 % of its instructions.
UNORDERED = "-fno-schedule-insns2 -fno-tree-vrp"
PLAIN = f"{UNORDERED} -fno-tree-vectorize -fno-gcse -fno-ipa-cp"
# The level of a release, by the first pattern of paths below src/wirespeed that fits. A listed
# module makes a call of benchmarks/guard faster by 0.1 % or more. The others compile in half of the
# time, by -O1 with inlining.
LEVELS = {
    "-O3": ("_core/_simd.pyx",),
    f"-O3 {UNORDERED}": (
        "_core/envelope.pyx",
        "_core/framing/base.pyx",
        "_core/framing/websocket.pyx",
        "_core/inflight.pyx",
        "_core/outbox.pyx",
        "_core/pending.pyx",
        "_core/session.pyx",
        "_core/slab.pyx",
        "peer/http/exchange.pyx",
        "transport/http/connection.pyx",
        "transport/pooled_tasks.pyx",
    ),
    "-O2": (
        "_core/*",
        "server/connection.pyx",
        "server/requests/call.pyx",
        "transport/http/exchange.pyx",
    ),
    f"-O2 {PLAIN}": (
        "adapters/mcp/dispatcher.pyx",
        "client/connection/*",
        "peer/connection.pyx",
        "peer/http/endpoint.pyx",
        "peer/http/headers.pyx",
        "proxy/side.pyx",
        "server/middleware/chain.pyx",
        "server/requests/*",
        "server/tools/tool.pyx",
        "transport/taskpool.pyx",
    ),
}
INLINING = "-finline-functions -foptimize-sibling-calls -finline-small-functions -freorder-blocks"
# clang ignores most of these, and says so without this one; zig knows few others
CFLAGS += ["-Wno-ignored-optimization-argument"]
if MODE == "release":
    CFLAGS += ["-g0"]
else:
    DIRECTIVES |= {
        "boundscheck": True,
        "initializedcheck": True,
        "nonecheck": True,
        "overflowcheck": True,
    }
    CFLAGS += ["-O1", "-g", "-UNDEBUG", "-fno-omit-frame-pointer"]
    CFLAGS += ["-Wall", "-Wextra", "-Wno-unused-parameter"]
    MACROS += [("WIRESPEED_DEBUG", "1")]
if MODE == "trace":
    DIRECTIVES["linetrace"] = True
    MACROS += [("CYTHON_TRACE_NOGIL", "1"), ("CYTHON_USE_SYS_MONITORING", "0")]
if MODE == "asan":
    SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    CFLAGS += SANITIZE
    LDFLAGS += SANITIZE


def matches(path: Path, patterns: Iterable[str]) -> bool:
    """Whether a pattern of paths below src/wirespeed means a source."""
    name = path.relative_to(ROOT / "wirespeed").as_posix()
    return any(fnmatch(name, one) for one in patterns)


def is_ours(path: str) -> bool:
    """Whether a source belongs to the distribution that is built."""
    return not matches(Path(path), CORE)


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
        if not self.editable_mode and Path(self.build_lib).is_relative_to(BUILD):
            shutil.rmtree(self.build_lib, ignore_errors=True)  # it may have files that are gone
        super().run()
        for target, source in self.headers().items():
            self.mkpath(str(Path(target).parent))
            self.copy_file(source, target, preserve_mode=False)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *self.headers()]

    def get_output_mapping(self) -> dict[str, str]:
        return super().get_output_mapping() | self.headers()


def translate(extensions: list[Extension], *, force: bool) -> None:
    """Make C of the .pyx files, and the sources of the extensions these C files."""
    made = cythonize(
        extensions,
        include_path=["src"],
        compiler_directives=DIRECTIVES,
        shared_utility_qualified_name=module_name(SHARED),
        shared_utility_features_disabled=["MemoryView"],
        annotate=MODE == "debug",
        # coverage looks for the C file beside the .pyx
        build_dir=None if MODE == "trace" else TRANSLATED,
        nthreads=JOBS,
        force=force,
        quiet=True,
    )
    for ext, translated in zip(extensions, made, strict=True):
        ext.sources = translated.sources


class build_ext(_build_ext):
    """Translates and compiles. What is installed is compiled once for the same `digest`."""

    def build_extensions(self) -> None:
        if IN_PLACE:
            translate(self.extensions, force=bool(self.force))
            super().build_extensions()
            return
        kept = COMPILED / self.digest()
        # coverage needs the C files
        if MODE == "trace" or not self.take(kept):
            self.force = self.compiler.force = True
            translate(self.extensions, force=bool(self.force))
            super().build_extensions()
            self.keep(kept)
            if MODE == "release":  # a debugger shows the C of the others
                shutil.rmtree(self.build_temp, ignore_errors=True)
                shutil.rmtree(TRANSLATED, ignore_errors=True)

    def take(self, kept: Path) -> bool:
        """Take what an earlier install has kept, if all of it is there as it was."""
        try:
            sums = json.loads((kept / SUMS).read_text())
            data = {ext.name: (kept / f"{ext.name}.so").read_bytes() for ext in self.extensions}
        except (OSError, ValueError):
            return False
        if sums != {name: hashlib.sha256(module).hexdigest() for name, module in data.items()}:
            return False
        for name, module in data.items():
            target = Path(self.get_ext_fullpath(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(module)
            target.chmod(0o755)
        with contextlib.suppress(OSError):  # it is another user's, or just went
            os.utime(kept)
        return True

    def digest(self) -> str:
        """A digest of all that decides what compiling gives: sources, flags, compiler, Python."""
        sources = [Path("setup.py"), *CSRC.iterdir()]
        sources += (ROOT / "wirespeed").rglob("*.pyx")
        sources += (ROOT / "wirespeed").rglob("*.pxd")
        facts = [sys.version, sysconfig.get_platform(), sysconfig.get_config_var("EXT_SUFFIX")]
        headers = (Path(sysconfig.get_path("include"), "patchlevel.h"), CONFIG_HEADER)
        facts += [path.read_bytes() for path in headers if path.exists()]
        facts += [version("Cython"), version("setuptools"), compiler_version(), MODE]
        facts += [self.compiler.compiler_so, self.compiler.linker_so]
        facts += [os.environ.get(name) for name in COMPILER_VARIABLES]
        facts += [ext.name for ext in self.extensions]
        made = hashlib.sha256(repr(facts).encode())
        for path in sorted(sources):
            data = path.read_bytes()
            made.update(f"{path} {len(data)}\n".encode() + data)
        return made.hexdigest()

    def keep(self, kept: Path) -> None:
        """Keep what was compiled for later installs, and drop what was not used for longest."""
        if "=native" in str(self.compiler.compiler_so):
            return  # for this processor alone
        folder: Path | None = None
        try:
            COMPILED.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(dir=COMPILED))
            folder.chmod(0o755)
            sums = {}
            for ext in self.extensions:
                module = Path(self.get_ext_fullpath(ext.name)).read_bytes()
                (folder / f"{ext.name}.so").write_bytes(module)
                sums[ext.name] = hashlib.sha256(module).hexdigest()
            (folder / SUMS).write_text(json.dumps(sums))
            shutil.rmtree(kept, ignore_errors=True)  # it was not as it should be
            folder.rename(kept)
            olds = sorted(COMPILED.iterdir(), key=os.path.getmtime)[:-KEPT]
        except OSError:  # nothing can be written here, or another build was first
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            return
        for old in olds:
            shutil.rmtree(old, ignore_errors=True)

    def copy_extensions_to_source(self) -> None:
        # What lies there may be newer and yet of another mode.
        self.force = True
        super().copy_extensions_to_source()


def optimization(pyx: Path) -> list[str]:
    """The flags of a module that other modules do not have."""
    if MODE != "release":
        return []
    found = (level for level, patterns in LEVELS.items() if matches(pyx, patterns))
    return next(found, f"-O1 {INLINING}").split()


def module_name(source: Path) -> str:
    return ".".join(source.relative_to(ROOT).with_suffix("").parts)


def extension(pyx: Path) -> Extension:
    """One extension a .pyx; only _core._simd links the C kernels."""
    name = module_name(pyx)
    kernels = name == "wirespeed._core._simd"
    return Extension(
        name,
        [str(pyx), *(sorted(map(str, CSRC.glob("*.c"))) if kernels else ())],
        depends=sorted(map(str, CSRC.glob("*.h"))),
        include_dirs=[str(CSRC)],
        extra_compile_args=[*CFLAGS, *optimization(pyx)],
        extra_link_args=LDFLAGS,
        define_macros=MACROS,
    )


def extensions() -> list[Extension]:
    sources = [*sorted((ROOT / "wirespeed").rglob("*.pyx")), SHARED]
    found = [extension(source) for source in sources if is_ours(str(source))]
    only = {name for name in os.environ.get("WIRESPEED_ONLY", "").split(",") if name}
    if unknown := only - {ext.name for ext in found}:
        sys.exit(f"WIRESPEED_ONLY names no module of this package: {', '.join(sorted(unknown))}")
    return [ext for ext in found if ext.name in only] if only else found


def compiler_command() -> list[str]:
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def compiler_version() -> str:
    command = [*compiler_command(), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def check_compiler() -> None:
    """End the build with one sentence if C cannot be compiled: before Cython's work, and without
    the compiler's own many lines."""
    compiler = compiler_command()
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


def lock_build() -> None:
    """Wait for another build of this folder: both write the same files. The end of the process
    unlocks."""
    with contextlib.suppress(OSError):  # where nothing can be written, or locked
        Path(BUILD).mkdir(parents=True, exist_ok=True)
        fcntl.flock(os.open(f"{BUILD}/lock", os.O_CREAT | os.O_RDWR, 0o666), fcntl.LOCK_EX)


Options.warning_errors = True
# Cython's trees are large and live long: collections are a third of its time. Without them all
# modules take a gigabyte.
gc.disable()
# From Python 3.14 on, the processes that compile .pyx files import this file.
if __name__ == "__main__":
    if BUILDING:
        check_compiler()
        if not IN_PLACE:
            lock_build()
    setup(
        cmdclass={"build_ext": build_ext, "build_py": build_py},
        ext_modules=extensions(),
        options={
            # a mode finds nothing of another one to take for its own
            "build": {"build_base": BUILD},
            "build_ext": {"parallel": JOBS},
        },
    )
