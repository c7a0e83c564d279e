"""The log of ``wirespeed serve``: levels, formats, refused clients."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from lab.cli import Serving, on_terminal, serving, wirespeed

from wirespeed import SyncClient

SECRET = "open-Sesame.123"
FILE = '''
import logging
from wirespeed import Server

{setup}
server = Server("lab")
log = logging.getLogger("own")
log.info("imported")
log.warning("two\\nlines\\x1b[2J \\udcff")

@server.tool
async def fail() -> None:
    """Fail."""
    raise ValueError("it broke")
'''
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"


def file_of(tmp_path: Path, setup: str = "") -> str:
    path = tmp_path / "served.py"
    path.write_text(FILE.format(setup=setup))
    return str(path)


def stderr_of(*words: str, **env: str) -> list[str]:
    done = wirespeed("serve", *words, **env)
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr.splitlines()


def objects(lines: list[str]) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in lines]
    for one in found:
        assert datetime.fromisoformat(one["time"]).tzinfo is not None
        assert isinstance(one["process"], int)
    return found


def test_warnings_have_times(tmp_path: Path) -> None:
    (line,) = stderr_of(file_of(tmp_path))
    assert re.fullmatch(rf"{TIME} WARNING own: two\\nlines\\x1b\[2J \\udcff", line)


def test_the_level(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    lines = stderr_of(file, "--log-level", "info")
    assert [line.split(" ")[1] for line in lines] == ["INFO", "WARNING"]
    assert stderr_of(file, "--log-level", "error") == []
    done = wirespeed("serve", file, "--log-level", "notice")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_the_configuration_of_the_file_holds_without_options(tmp_path: Path) -> None:
    file = file_of(tmp_path, "logging.basicConfig(level='INFO', format='mine: %(message)s')")
    assert stderr_of(file)[0] == "mine: imported"
    assert len(stderr_of(file)) == 3  # its second record has two lines
    (line,) = stderr_of(file, "--log-level", "warning")
    assert " WARNING own: two" in line


def test_json(tmp_path: Path) -> None:
    (one,) = objects(stderr_of(file_of(tmp_path), "--log-format", "json", LC_ALL="C"))
    assert (one["level"], one["logger"]) == ("warning", "own")
    assert one["message"] == "two\nlines\x1b[2J \udcff"
    # messages of this program are objects, too
    done = wirespeed("serve", "missing.py", "--log-format", "json")
    (one,) = objects(done.stderr.splitlines())
    assert (done.returncode, one["level"], one["logger"]) == (3, "error", "wirespeed.cli")
    assert one["message"] == "there is no file missing.py"
    done = wirespeed("serve", file_of(tmp_path, "1 / 0"), "--log-format", "json")
    trace, one = objects(done.stderr.splitlines())
    assert trace["message"].startswith("Traceback (most recent call last):\n")
    assert one["message"].endswith(
        "cannot be imported: line 5: ZeroDivisionError: division by zero"
    )


def test_a_failed_tool(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    with serving(file, "--on", "ws://127.0.0.1:0/", "--log-format", "json") as running:
        (url,) = running.line(r" on (ws:\S+);").groups()
        assert wirespeed("call", url, "fail").returncode == 1
        assert running.end() == 0
        failed = objects(running.lines)[-1]
    assert failed["message"] == "tool fail failed"
    assert failed["traceback"].endswith("ValueError: it broke")
    with serving(file, "--on", "ws://127.0.0.1:0/") as running:
        (url,) = running.line(r" on (ws:\S+);").groups()
        assert wirespeed("call", url, "fail").returncode == 1
        assert running.end() == 0
        assert running.lines[-1] == "ValueError: it broke"
        assert re.search(
            rf"^{TIME} ERROR wirespeed.server: tool fail failed$", running.said, re.MULTILINE
        )


def refusals(running: Serving) -> list[str]:
    assert running.end() == 0
    pattern = r"WARNING wirespeed\.server: refused [^:]+(?::\d+)?: (.*)"
    return re.findall(pattern, running.said)


def test_refused_clients_without_their_tokens(tmp_path: Path) -> None:
    words = [file_of(tmp_path), "--on", "ws://127.0.0.1:0/mcp"]
    with serving(*words, WIRESPEED_TOKEN=SECRET) as running:
        (url,) = running.line(r" on (ws:\S+);").groups()
        for target, *more in (
            [url],
            [url, "--header", f"Authorization: Bearer {SECRET}x"],
            [url, "--token", SECRET, "--header", "Origin: https://evil.example"],
            [f"{url}/{SECRET}", "--token", SECRET],
        ):
            assert wirespeed("list", target, *more).returncode == 3
        said = refusals(running)
        assert SECRET not in running.said
    assert said == [
        "401 the bearer token is not valid",
        "403 this Origin may not connect",
        "404 nothing is served at this path",
    ]


@pytest.mark.parametrize("url", ["ws://127.0.0.1:0/", "tcp://127.0.0.1:0", "unix"])
def test_clients_above_the_limit(tmp_path: Path, url: str) -> None:
    url = f"unix:{tmp_path}/s" if url == "unix" else url
    words = [file_of(tmp_path), "--on", url, "--max-connections", "1"]
    with serving(*words) as running:
        (url,) = running.line(r" on (\S+);").groups()
        with SyncClient(url):
            assert wirespeed("list", url).returncode == 3
        (why,) = set(refusals(running))
    assert why.endswith("too many connections")


def test_stdio_is_silent(tmp_path: Path) -> None:
    file = tmp_path / "quiet.py"
    file.write_text("from wirespeed import Server\nserver = Server('quiet')\nserver.run()\n")
    assert stderr_of(str(file)) == []
    written, _ = on_terminal(["serve", str(file)], typed=b"\x04", NO_COLOR="1")
    assert "quiet waits on stdin" in written
