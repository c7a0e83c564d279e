"""The adapter of the official SDK, in the environment of the SDK (`programs/sdk_checks.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import peers
import pytest

import wirespeed

SECONDS = 120.0


def environment() -> dict[str, str]:
    """The variables of a child that has this wirespeed and the SDK."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    python = peers.python("python2")
    packages = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    ours = str(Path(wirespeed.__file__).parents[1])
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WIRESPEED_")}
    return kept | {"PYTHONPATH": os.pathsep.join([packages.stdout.strip(), ours])}


@pytest.mark.parametrize(
    "check",
    [
        *("seams", "clients", "clients_apart", "targets", "over_http", "transcripts"),
        *("same_results", "no_asyncio"),
    ],
)
def test_the_adapter(check: str) -> None:
    program = str(peers.PROGRAMS / "sdk_checks.py")
    done = subprocess.run(
        [sys.executable, program, check],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("ok\n")
