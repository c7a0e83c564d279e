"""The fuzz drivers: a short run of each finds nothing, sees every outcome, and is repeatable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wirespeed

HERE = Path(__file__).parent
SOURCE = Path(wirespeed.__file__).parent.parent

OUTCOMES = {
    "core": {
        "request", "notification", "result", "error", "invalid (parse)", "invalid (request)",
        "invalid (response)", "invalid (notification)",
    },
    "websocket": {
        "request", "notification", "invalid", "text", "binary",
        "failed 1002", "failed 1003", "failed 1007", "failed 1009",
    },
    "http": {
        "body", "failed 400", "failed 413", "failed 414", "failed 417", "failed 431",
        "failed 501", "failed 502", "failed 505",
    },
}  # fmt: skip


def drive(driver: str, count: int) -> str:
    done = subprocess.run(
        [sys.executable, HERE / f"fuzz_{driver}.py", "--seed", "7", "--count", str(count)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("driver", "count"), [("core", 500), ("websocket", 600), ("http", 2000)])
def test_a_short_run(driver: str, count: int) -> None:
    said = drive(driver, count)
    assert {line.split(maxsplit=1)[1] for line in said.splitlines()} == OUTCOMES[driver]
    assert drive(driver, count) == said


def test_a_short_run_against_a_server() -> None:
    """How often a response is lost with its connection depends on timing."""
    said = drive("streamable", 300)
    assert {line.split(maxsplit=1)[1] for line in said.splitlines()} >= {
        "200",
        "400",
        "404",
        "left",
    }
