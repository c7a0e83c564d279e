"""The HTTP fuzz driver itself works: a short run finds nothing and sees every outcome."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import wirespeed

DRIVER = Path(__file__).with_name("fuzz_http.py")
SOURCE = Path(wirespeed.__file__).parent.parent


def test_a_short_run() -> None:
    done = subprocess.run(
        [sys.executable, str(DRIVER), "--seed", "7", "--count", "2000"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen = {line.split(maxsplit=1)[1] for line in done.stdout.splitlines()}
    assert seen == {
        "body", "failed 400", "failed 413", "failed 414", "failed 417", "failed 431",
        "failed 501", "failed 502", "failed 505",
    }  # fmt: skip
