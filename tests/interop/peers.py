"""Installs what others wrote, so that it can be spoken with; `pins.toml` says which versions.

Each peer is installed once into a folder named after its pins, under $WIRESPEED_INTEROP_CACHE or
the system's folder for temporary files. A mark in the folder says that it is complete; a lock
beside it lets test runs share the cache.
"""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

import wirespeed

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
PINS = tomllib.loads((HERE / "pins.toml").read_text())
PUBLISHED = tomllib.loads((HERE / "published.toml").read_text())
INSTALL_SECONDS = 600
TEST_SECONDS = 300  # faulthandler_timeout of pyproject.toml
INSTALLERS = {
    # Scripts of packages download browsers.
    "npm": [
        *("npm", "install", "--prefix", "{folder}", "--ignore-scripts", "--no-audit", "--no-fund"),
        *("--no-package-lock", "--loglevel=error", "{pin}"),
    ],
    "go": ["env", "GOBIN={folder}/bin", "go", "install", "{pin}"],
    "cargo": ["cargo", "install", "--quiet", "--locked", "--debug", "--root", "{folder}", "{pin}"],
}


class PeerUnavailable(Exception):
    """A peer cannot be installed; the text has the command and what it said."""


def cache() -> Path:
    """Where the peers are, made when it is missing, and only our own."""
    place = os.environ.get("WIRESPEED_INTEROP_CACHE")
    folder = Path(place or Path(tempfile.gettempdir()) / f"wirespeed-interop-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PeerUnavailable(f"{folder} belongs to someone else; set WIRESPEED_INTEROP_CACHE")
    return folder.resolve()


@functools.cache
def python(peer: str) -> str:
    """The interpreter of a Python peer's own virtual environment."""
    pins: list[str] = PINS["python"][peer]
    version = "{}.{}".format(*sys.version_info)

    folder = _installed(f"{peer}-py{version}", [sys.base_prefix, *pins], _environment_of(pins))
    return str(folder / "bin" / "python")


@functools.cache
def sources(distribution: str, version: str) -> Path:
    """The unpacked source distribution of a package."""

    def install(folder: Path) -> None:
        folder.mkdir()
        options = ["--quiet", "--no-deps", "--no-binary", distribution]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options]
        _run([*pip, "--dest", str(folder), f"{distribution}=={version}"])
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        archive.unlink()

    folder = _installed(f"sdist-{distribution}", [f"{distribution}=={version}"], install)
    return next(one for one in folder.iterdir() if one.is_dir())


@functools.cache
def npm(table: str = "npm") -> Path:
    """The folder whose ``node_modules`` has the packages of a table of pins: by default the
    TypeScript peers and node itself."""
    pins: dict[str, str] = PINS[table]

    def install(folder: Path) -> None:
        folder.mkdir()
        (folder / "package.json").write_text(
            json.dumps({"private": True, "type": "module", "dependencies": pins})
        )
        _run(
            ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"],
            cwd=folder,
        )

    return _installed(table, [f"{name}@{version}" for name, version in pins.items()], install)


@functools.cache
def crate(name: str) -> str:
    """The program of a crate among the programs, built once. Its Cargo.toml has the pins."""
    source = PROGRAMS / name
    of = [(source / part).read_text() for part in ("Cargo.toml", "src/main.rs")]

    def install(folder: Path) -> None:
        folder.mkdir()
        cargo = ["cargo", "install", "--quiet", "--debug", "--root", str(folder)]
        with tempfile.TemporaryDirectory() as scratch:
            copy = shutil.copytree(source, Path(scratch) / name)  # it writes a lock beside it
            _run([*cargo, "--path", str(copy), "--target-dir", str(Path(scratch) / "target")])

    return str(_installed(f"crate-{name}", of, install) / "bin" / name)


@functools.cache
def published(name: str) -> list[str]:
    """The command that launches a server of `published.toml`."""
    server = PUBLISHED[name]
    program, *arguments = server["command"]
    key = f"published-{name}"
    if "pypi" in server:
        pins: list[str] = server["pypi"]
        version = "{}.{}".format(*sys.version_info)
        key, of = f"{key}-py{version}", [sys.base_prefix, *pins]
        return [str(_installed(key, of, _environment_of(pins)) / "bin" / program), *arguments]
    kind = next(kind for kind in INSTALLERS if kind in server)
    pin: str = server[kind]

    def install(folder: Path) -> None:
        folder.mkdir()
        _run([word.format(pin=pin, folder=folder) for word in INSTALLERS[kind]], cwd=folder)

    folder = _installed(key, [pin], install)
    if kind != "npm":
        return [str(folder / "bin" / program), *arguments]
    script = folder / "node_modules" / ".bin" / program
    return [str(npm() / "node_modules" / ".bin" / "node"), str(script.resolve()), *arguments]


@functools.cache
def debian() -> Path:
    """The folder with the files of Debian's packages, which are unpacked and not installed."""
    names: list[str] = PINS["debian"]["packages"]

    def install(folder: Path) -> None:
        folder.mkdir()
        _run(["apt-get", "download", *names], cwd=folder)
        for package in folder.glob("*.deb"):
            _run(["dpkg-deb", "--extract", str(package), str(folder)])

    return _installed("debian", names, install)


def node(program: str) -> list[str]:
    """The command that runs one of the .mjs programs with its packages in reach.

    Modules are looked up from where a program lies, so all programs are copied beside them.
    """
    sources = {source.name: source.read_bytes() for source in sorted(PROGRAMS.glob("*.mjs"))}
    digest = hashlib.sha256(b"".join(sources.values())).hexdigest()[:12]
    folder = npm() / f"programs-{digest}"
    with _locked(folder.with_suffix(".lock")):
        if not folder.exists():
            scratch = Path(tempfile.mkdtemp(dir=folder.parent))
            for name, data in sources.items():
                (scratch / name).write_bytes(data)
            scratch.rename(folder)
    return [str(npm() / "node_modules" / ".bin" / "node"), str(folder / program)]


def ours(folder: Path) -> Path:
    """A folder that has our package and what it needs, for the environments of peers."""
    place = folder / "ours"
    place.mkdir(exist_ok=True)
    for package in (wirespeed, msgspec):
        link = place / package.__name__
        if not link.exists():
            link.symlink_to(Path(package.__file__).parent, target_is_directory=True)
    return place


async def report(command: list[str], seconds: float = 120.0) -> dict[str, Any]:
    """The JSON that a peer's program prints; AssertionError with its stderr if it fails."""
    child = await asyncio.create_subprocess_exec(
        *command,
        env=environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, said = await asyncio.wait_for(child.communicate(), seconds)
    except TimeoutError:
        child.kill()
        await child.wait()
        raise
    assert child.returncode == 0, said.decode(errors="replace")[-3000:]
    found: dict[str, Any] = json.loads(out)
    return found


def environment() -> dict[str, str]:
    """What a peer gets of ours: nothing that is there for the code under test."""
    return {name: value for name, value in os.environ.items() if not _for_ours(name)}


def our_variables() -> list[str]:
    """What our server needs of our environment, as NAME=VALUE: how it is found and built."""
    return [f"{name}={value}" for name, value in os.environ.items() if _for_ours(name)]


def _for_ours(name: str) -> bool:
    sanitizer = name == "LD_PRELOAD" or name.endswith("SAN_OPTIONS")
    return sanitizer or name.startswith(("PYTHON", "WIRESPEED_"))


def _environment_of(pins: list[str]) -> Callable[[Path], None]:
    """What makes a folder a virtual environment with some packages."""

    def install(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        _run([*pip, "install", "--quiet", "--no-input", *pins])

    return install


def _installed(name: str, pins: list[str], install: Callable[[Path], None]) -> Path:
    key = hashlib.sha256("\n".join(pins).encode()).hexdigest()[:12]
    home = cache()
    folder = home / f"{name}-{key}"
    if (folder / ".complete").exists():
        return folder
    _limit_test(2 * INSTALL_SECONDS)  # another process may install it, or what this one waits for
    with _locked(home / f"{name}-{key}.lock"):
        if not (folder / ".complete").exists():
            # Scripts of a virtual environment hold its path, so a mark, not a rename.
            shutil.rmtree(folder, ignore_errors=True)
            install(folder)
            (folder / ".complete").touch()
    _limit_test(TEST_SECONDS)
    return folder


def _limit_test(seconds: float) -> None:
    """Renew the time after which a test counts as one that hangs: an installation is no part of
    it."""
    if "PYTEST_CURRENT_TEST" in os.environ:
        faulthandler.dump_traceback_later(seconds, file=sys.__stderr__, exit=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=INSTALL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise PeerUnavailable(f"{' '.join(command)}: {exc}") from exc
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise PeerUnavailable(f"{' '.join(command)} exited with {done.returncode}:\n{said}")
