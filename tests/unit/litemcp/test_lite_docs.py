"""The examples of docs/litemcp.md do what it says."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab.lite import FOREVER
from lab.process import free_port
from lab.raw import without_sanitizers

PAGE = Path(__file__).resolve().parents[3] / "docs" / "litemcp.md"
PORT = "8765"
BLOCK = re.compile(r'```python title="(?P<name>\w+\.py)"\n(?P<code>.*?)```', re.DOTALL)
PRINTS = re.compile(
    r'```python title="(?P<name>\w+\.py)"\n[^`]*```\n\nprints\n\n```text\n(?P<text>.*?)```',
    re.DOTALL,
)

SHELL = re.compile(
    r"```sh\n(?P<code>curl.*?)```.*?```json\n(?P<answer>.*?)\n```", re.DOTALL
).finditer(PAGE.read_text("utf-8"))
((CURL, ANSWER),) = (found.groups() for found in SHELL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The programs of the page, with a port that is free."""
    port = str(free_port())
    for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        code = found["code"].replace(PORT, port)
        (tmp_path / found["name"]).write_text(code, encoding="utf-8")
    (tmp_path / "port").write_text(port)
    return tmp_path


EXPECTED = {found["name"]: found["text"] for found in PRINTS.finditer(PAGE.read_text("utf-8"))}


def start(folder: Path, name: str) -> subprocess.Popen[bytes]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"}
    return subprocess.Popen(
        [sys.executable, name],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def output(folder: Path, name: str) -> str:
    with start(folder, name) as process:
        out, errors = process.communicate(timeout=FOREVER)
    assert process.returncode == 0, errors.decode()
    return out.decode()


def test_the_page_has_its_examples() -> None:
    assert set(EXPECTED) == {"ask.py", "ask_tools.py", "bridges.py"}


@pytest.mark.own_environment
@pytest.mark.parametrize("name", ["ask.py", "bridges.py"])
def test_the_examples_print_what_the_page_says(folder: Path, name: str) -> None:
    assert output(folder, name) == EXPECTED[name]


def test_the_example_with_a_server(folder: Path) -> None:
    port = int((folder / "port").read_text())
    with start(folder, "tools.py") as server:
        try:
            deadline = time.monotonic() + FOREVER
            while True:
                assert server.poll() is None
                assert time.monotonic() < deadline
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.02)
            assert output(folder, "ask_tools.py") == EXPECTED["ask_tools.py"]
            if shutil.which("curl"):
                command = CURL.replace(PORT, str(port))
                shown = subprocess.check_output(
                    ["sh", "-ec", command], text=True, env=without_sanitizers()
                )
                assert shown.startswith('{"version":[1,0,0],"name":"upper","description":')
                assert shown.endswith("}" + ANSWER)
        finally:
            server.terminate()
        _, errors = server.communicate(timeout=FOREVER)
    assert (server.returncode, errors.count(b"\n")) == (0, 1), errors
    assert errors.startswith(b"wirespeed: listening at http://127.0.0.1:")
