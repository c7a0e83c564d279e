"""The WebSocket fuzz driver itself works: a short run finds nothing and sees every outcome."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import wirespeed

DRIVER = Path(__file__).with_name("fuzz_websocket.py")
SOURCE = Path(wirespeed.__file__).parent.parent


def test_a_short_run() -> None:
    done = subprocess.run(
        [sys.executable, str(DRIVER), "--seed", "7", "--count", "600"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen = {line.split(maxsplit=1)[1] for line in done.stdout.splitlines()}
    assert seen == {
        "request", "notification", "invalid", "text", "binary",
        "failed 1002", "failed 1003", "failed 1007", "failed 1009",
    }  # fmt: skip
