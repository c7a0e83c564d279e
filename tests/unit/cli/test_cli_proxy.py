"""``wirespeed proxy``: on stdio, at a URL, and command lines that are wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_lab import one_line, wirespeed
from raw import call, initialize, tool_server

pytestmark = pytest.mark.smoke


def test_on_stdio() -> None:
    lines = [initialize(1), call("x", "add", {"a": 1, "b": 2})]
    for isolation in ("session", "shared"):
        done = wirespeed(
            "proxy",
            "--isolation",
            isolation,
            "--",
            *tool_server(),
            stdin="".join(json.dumps(line) + "\n" for line in lines),
        )
        assert done.returncode == 0, done.stderr
        hello, answer = (json.loads(line) for line in done.stdout.splitlines())
        assert hello["result"]["protocolVersion"] == "2025-06-18"
        assert answer["id"] == "x"
        assert answer["result"]["content"][0]["text"] == "3"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["proxy"], 2, "give the command of the server after --"),
        (["proxy", "--token-file", "f", "--", "x"], 2, "--token-file needs --listen URL"),
        (["proxy", "--listen", "unix:s", "--origin", "https://a", "--", "x"], 2, "--origin is for"),
        (["proxy", "--isolation", "shared", "--", "/no/such"], 3, "'/no/such' does not exist"),
        (
            ["proxy", "--isolation", "shared", "--", sys.executable, "-c", "raise SystemExit(7)"],
            3,
            "exited with status 7",
        ),
    ],
)
def test_what_is_wrong(tmp_path: Path, words: list[str], code: int, text: str) -> None:
    done = wirespeed(*words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert text in one_line(done)
