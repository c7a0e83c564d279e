"""The fuzz driver itself works: a short run of it finds nothing and sees every outcome."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import wirespeed

DRIVER = Path(__file__).with_name("fuzz_core.py")
SOURCE = Path(wirespeed.__file__).parent.parent


def drive(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DRIVER), *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )


def test_a_short_run() -> None:
    done = drive("--seed", "7", "--count", "500")
    assert done.returncode == 0, done.stderr
    seen = {line.split(maxsplit=1)[1] for line in done.stdout.splitlines()}
    assert seen == {
        "request", "notification", "result", "error", "invalid (parse)", "invalid (request)",
        "invalid (response)", "invalid (notification)",
    }  # fmt: skip
    assert drive("--seed", "7", "--count", "500").stdout == done.stdout
