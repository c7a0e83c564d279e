"""Builds what is measured into a cache folder: environments of Python, packages of npm, programs of
Go, Rust and Java, the C programs of benchmarks/load.

    python benchmarks/field/builder.py [--only NAME,…] [--list]

Each target is built once into a folder named after its pins and its sources, under
$WIRESPEED_FIELD_CACHE or ~/.cache/wirespeed-field. A target that fails is named with the end of
what its tools said, and the others are built all the same; what needs it is then "not built".
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
LOAD = HERE.parent / "load"
PINS = tomllib.loads((HERE / "pins.toml").read_text())
SECONDS = 3600.0  # of one tool; rmcp takes ten minutes on one processor


class NotBuilt(Exception):
    """A target that could not be built; the text says why, in one line."""


def cache() -> Path:
    """The folder of all targets, made when it is missing."""
    place = os.environ.get("WIRESPEED_FIELD_CACHE")
    folder = Path(place) if place else Path.home() / ".cache" / "wirespeed-field"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.resolve()


def environment() -> dict[str, str]:
    """The environment without what is meant for wirespeed's own interpreter."""
    ours = ("PYTHON", "WIRESPEED_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def _run(command: list[str], cwd: Path, **variables: str) -> None:
    if shutil.which(command[0]) is None:
        raise NotBuilt(f"there is no {command[0]}")
    log = cwd / "build.log"
    with log.open("ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                env=environment() | variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise NotBuilt(str(exc)) from None
    if done.returncode:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise NotBuilt(f"{command[0]} exited with {done.returncode}: {_telling(lines)}")


def _telling(lines: list[str]) -> str:
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it said nothing"])[-1].strip()[:300]


# -- kinds of targets ---------------------------------------------------------------------------


def _python(name: str) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
        pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        _run([*pip, "--no-input", "--disable-pip-version-check", *PINS["python"][name]], folder)

    return build


def _npm(name: str) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        manifest = {"private": True, "type": "module", "dependencies": PINS["npm"][name]}
        (folder / "package.json").write_text(json.dumps(manifest))
        options = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        _run(["npm", "install", *options], folder)
        if name == "typescript":
            for program in (PROGRAMS / "node").glob("*.mjs"):
                shutil.copy(program, folder)

    return build


def _go(folder: Path) -> None:
    shutil.copytree(PROGRAMS / "go", folder, dirs_exist_ok=True)
    pins = dict(PINS["go"])
    lines = ["module example.invalid/field", f"go {pins.pop('go')}"]
    lines += [f"require {module} {version}" for module, version in pins.items()]
    (folder / "go.mod").write_text("\n".join(lines) + "\n")
    _run(["go", "mod", "tidy"], folder)
    for sdk in ("gosdk", "mcpgo"):
        for program in ("server", "client"):
            target = str(folder / "bin" / f"{sdk}_{program}")
            _run(["go", "build", "-p", "1", "-o", target, f"./{sdk}/{program}"], folder)


_CARGO = """\
[package]
name = "field"
version = "0.0.0"
edition = "2024"
publish = false

[dependencies]
axum = {{ version = "={axum}", default-features = false, features = ["http1", "tokio"] }}
libc = "0.2"
rmcp = {{ version = "={rmcp}", features = [
  "client", "transport-child-process", "transport-io", "transport-streamable-http-server",
] }}
serde = {{ version = "1", features = ["derive"] }}
serde_json = "1"
tokio = {{ version = "={tokio}", features = ["full"] }}
"""


def _rust(folder: Path) -> None:
    shutil.copytree(PROGRAMS / "rust", folder, dirs_exist_ok=True)
    (folder / "Cargo.toml").write_text(_CARGO.format(**PINS["rust"]))
    jobs = os.environ.get("CARGO_BUILD_JOBS", "1")
    # shared, so that a change of a program does not build all crates again
    made = cache() / "rust-target"
    command = ["cargo", "build", "--quiet", "--release", "-j", jobs]
    _run(command, folder, CARGO_TARGET_DIR=str(made))
    (folder / "bin").mkdir()
    for program in ("server", "client"):
        shutil.copy(made / "release" / program, folder / "bin")


_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>field</groupId>
  <artifactId>field</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source>
    <maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = """\
    <dependency>
      <groupId>{0}</groupId>
      <artifactId>{1}</artifactId>
      <version>{2}</version>
    </dependency>"""


def _java(folder: Path) -> None:
    pins = PINS["java"]
    shutil.copytree(PROGRAMS / "java", folder, dirs_exist_ok=True)
    wanted = [
        ("io.modelcontextprotocol.sdk", "mcp", pins["mcp"]),
        ("org.apache.tomcat.embed", "tomcat-embed-core", pins["tomcat"]),
        ("org.slf4j", "slf4j-nop", pins["slf4j"]),
    ]
    made = "\n".join(_DEPENDENCY.format(*one) for one in wanted)
    (folder / "pom.xml").write_text(_POM.format(dependencies=made))
    copy = ["dependency:copy-dependencies", "-DoutputDirectory=target/lib"]
    _run(["mvn", "-q", "-B", "package", *copy], folder)


def _c(folder: Path) -> None:
    _run(["make", "-s", "-C", str(LOAD), f"BUILD={folder}"], folder)


def _oha(folder: Path) -> None:
    pin = f"oha@{PINS['oha']['oha']}"
    jobs = os.environ.get("CARGO_BUILD_JOBS", "1")
    options = ["--quiet", "--locked", "-j", jobs]
    _run(["cargo", "install", *options, "--root", str(folder), pin], folder)


# -- targets ------------------------------------------------------------------------------------

TARGETS: dict[str, Callable[[Path], None]] = {
    "c": _c,
    **{f"python-{name}": _python(name) for name in PINS["python"]},
    **{f"npm-{name}": _npm(name) for name in PINS["npm"]},
    "go": _go,
    "java": _java,
    "rust": _rust,
    "oha": _oha,
}
# Targets that take the sources of a folder with them.
_SOURCES = {
    "c": LOAD,
    "npm-typescript": PROGRAMS / "node",
    "go": PROGRAMS / "go",
    "java": PROGRAMS / "java",
    "rust": PROGRAMS / "rust",
}


def _folder(name: str) -> Path:
    table, _, key = name.partition("-")
    pins = PINS.get(table, {})
    parts = [name, json.dumps(pins[key] if key else pins, sort_keys=True)]
    if table == "python":
        parts.append(sys.version)
    digest = hashlib.sha256("\n".join(parts).encode())
    source = _SOURCES.get(name)
    if source is not None:
        for file in sorted(path for path in source.rglob("*") if path.is_file()):
            digest.update(file.relative_to(source).as_posix().encode() + file.read_bytes())
    return cache() / f"{name}-{digest.hexdigest()[:12]}"


def find(name: str) -> Path:
    """Return the folder of a target. NotBuilt: it is not there, and the text says why."""
    folder = _folder(name)
    if (folder / ".complete").exists():
        return folder
    why = folder / ".failed"
    raise NotBuilt(why.read_text() if why.exists() else f"builder.py was not run for {name}")


def make(name: str) -> Path:
    """Build a target if it is not there, and return its folder. NotBuilt: it failed."""
    folder = _folder(name)
    if (folder / ".complete").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        TARGETS[name](folder)
    except NotBuilt as exc:
        (folder / ".failed").write_text(str(exc))
        raise
    (folder / ".complete").touch()
    return folder


def make_all(names: Iterable[str]) -> dict[str, str]:
    """Build targets, and say so. Returns why some are not built."""
    failed = {}
    for name in names:
        began = time.monotonic()
        try:
            folder = make(name)
        except NotBuilt as exc:
            failed[name] = str(exc)
            print(f"{name}: not built: {exc}", flush=True)
        else:
            print(f"{name}: {folder} ({time.monotonic() - began:.0f} s)", flush=True)
    return failed


def missing(names: Iterable[str]) -> dict[str, str]:
    """Return why targets are not there, of those that are not."""
    found = {}
    for name in names:
        try:
            find(name)
        except NotBuilt as exc:
            found[name] = str(exc)
    return found


def main() -> int:
    """Build what is asked for. Returns 1 if a target failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names of targets, with commas between them")
    parser.add_argument("--list", action="store_true", help="only print the names")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(TARGETS)}")
    if options.list:
        print("\n".join(names))
        return 0
    return 1 if make_all(names) else 0


if __name__ == "__main__":
    sys.exit(main())
