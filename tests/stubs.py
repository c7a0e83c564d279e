"""Compares the stub of each compiled module with what is really there: ``python tests/stubs.py``.

A Python module is its own stub: what stubtest says of it is how it misreads msgspec structs,
Literal aliases and decorators. mypy in its strict mode reads these modules.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALLOWLIST = ROOT / "tests" / "typing" / "stubtest_allowlist.txt"


def modules() -> list[str]:
    """The compiled modules that have a stub."""
    source = ROOT / "src"
    stubs = (path.with_suffix("") for path in source.rglob("*.pyi"))
    return sorted(
        ".".join(path.relative_to(source).parts)
        for path in stubs
        if path.with_suffix(".pyx").exists()
    )


if __name__ == "__main__":
    command = [sys.executable, "-m", "mypy.stubtest", *modules(), "--allowlist", str(ALLOWLIST)]
    sys.exit(subprocess.call(command))
