"""The core does no I/O and knows no clock, and its modules build on one another one way only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wirespeed

pytestmark = pytest.mark.smoke

CORE = Path(wirespeed.__file__).parent / "_core"
# Each may cimport and import those before it.
ORDER = (
    "_simd", "span", "spares", "slab", "outbox", "framing.inlet", "framing.writer",
    "framing.base", "framing.line", "framing.blankline", "framing.rfc6455",
    "framing.websocket_writer", "framing.websocket", "wire", "frames", "envelope", "batch",
    "pending", "inflight", "reader", "responder", "session",
)  # fmt: skip
FORBIDDEN = {
    "asyncio", "socket", "threading", "_thread", "time", "select", "selectors", "subprocess",
    "signal", "ssl", "uvloop", "multiprocessing", "concurrent", "datetime", "logging", "io",
}  # fmt: skip
# What the core may use besides itself.
OUTSIDE = {"cython", "cpython", "libc", "collections", "json", "msgspec", "os", "typing"}
IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\b|c?import\s+([\w.]+))", re.MULTILINE)


def sources() -> dict[str, list[Path]]:
    """The sources of each module of the core."""
    found: dict[str, list[Path]] = {}
    for path in sorted(CORE.rglob("*.p*")):
        if path.suffix in (".pyx", ".pxd", ".py") and path.stem != "__init__":
            name = ".".join(path.relative_to(CORE).with_suffix("").parts)
            found.setdefault(name, []).append(path)
    return found


def imports(path: Path) -> set[str]:
    return {one or other for one, other in IMPORT.findall(path.read_text())}


def test_every_module_has_its_place() -> None:
    assert set(sources()) == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_imports_point_one_way(name: str) -> None:
    above = {f"wirespeed._core.{other}" for other in ORDER[: ORDER.index(name)]}
    above |= {f"wirespeed._core.{name}", "wirespeed.limits"}
    for path in sources()[name]:
        for module in imports(path):
            if module.startswith("wirespeed"):
                assert module in above, f"{path.name} imports {module}"
            else:
                assert module.partition(".")[0] in OUTSIDE, f"{path.name} imports {module}"


@pytest.mark.parametrize("name", ORDER)
def test_no_input_output_no_clock(name: str) -> None:
    for path in sources()[name]:
        found = {module.partition(".")[0] for module in imports(path)}
        assert not found & FORBIDDEN
        # nor through libc: descriptors, sockets, clocks and threads
        found_c = {module for module in imports(path) if module.startswith(("libc", "posix"))}
        assert found_c <= {"libc.stdint", "libc.string", "libc.math", "libc.stdlib"}
        # struct iovec is in sys/uio.h; bigmem.h is our own
        headers = set(re.findall(r'extern from "<?([^">]+)', path.read_text()))
        assert headers <= {"scan.h", "bigmem.h", "sys/uio.h"}


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(CORE.parent.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_the_core_loads_no_event_loop() -> None:
    """Beyond what msgspec itself loads."""
    extra = loaded_by("import wirespeed.core") - loaded_by("import msgspec, os, json, collections")
    assert "wirespeed._core.session" in extra
    assert not {module.partition(".")[0] for module in extra} & (FORBIDDEN - {"io"})
