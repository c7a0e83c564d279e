"""Completion in the shell: real bash on a terminal, and what the other shells are given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.cli import environment, listening
from lab.cli import forked as wirespeed

FILE = '''
from typing import Literal
from wirespeed import Server

server = Server("shell")

@server.tool
async def search(word: str, limit: int = 3, mode: Literal["fast", "full"] = "fast") -> str:
    """Search: all of it."""
    return word

@server.tool
async def seal(on: bool = True) -> str:
    return "sealed"

server.add_resource("note://plain", "Plain.")

@server.resource("note://{id}/{part}")
async def note(id: str, part: str) -> str:
    return id

@server.prompt
def reply(name: str) -> str:
    return name

@server.completion(reply, "name")
async def names(value: str) -> list[str]:
    return [name for name in ("Ann", "Anton") if name.startswith(value)]
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shell")
    (folder / "shell.py").write_text(FILE)
    servers = {"time": {"command": "x"}, "tide": {"command": "x"}, "a b": {"command": "x"}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with listening(str(folder / "shell.py"), "--on", "ws://127.0.0.1:0/mcp") as found:
        yield found


def offered(folder: Path, line: str, current: str | None = None) -> list[str]:
    """What bash is given for a line: a word behind its type."""
    typed = line.split(" ")[-1]
    done = wirespeed(
        cwd=folder,
        _WIRESPEED_COMPLETE="bash_complete",
        COMP_LINE=line,
        COMP_POINT=str(len(line.encode())),
        COMP_CURRENT=typed if current is None else current,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("wirespeed insp", ["plain,inspect"]),
        ("wirespeed call sh", ["file,sh"]),
        ("wirespeed call mcp.json#ti", ["plain,mcp.json#time", "plain,mcp.json#tide"]),
        ("wirespeed call shell.py se", ["plain,search", "plain,seal"]),
        ("wirespeed call shell.py search w", ["open,word="]),
        ("wirespeed inspect shell.py re", ["plain,reply"]),
        ("wirespeed prompt shell.py reply ", ["open,name="]),
        ("wirespeed complete shell.py reply ", ["plain,name"]),
        ("wirespeed install cl", ["plain,claude-desktop", "plain,claude-code"]),
        ("wirespeed install cursor sh", ["file,sh"]),
        ("wirespeed call broken.py se", []),
        ("wirespeed call http://127.0.0.1:9/ se", []),
    ],
)
def test_words_for_bash(folder: Path, url: str, line: str, words: list[str]) -> None:
    assert offered(folder, line.replace("shell.py", url)) == words


@pytest.mark.parametrize(
    ("line", "current", "words"),
    [
        ("wirespeed call shell.py search mode=f", "f", ["plain,fast", "plain,full"]),
        ("wirespeed call shell.py search mode=", "=", ["plain,fast", "plain,full"]),
        ("wirespeed call shell.py seal on=t", "t", ["plain,true"]),
        ("wirespeed read shell.py note://p", "//p", ["plain,//plain"]),
        ("wirespeed read shell.py note:", ":", ["plain,//plain", "plain,//{id}/{part}"]),
        ("wirespeed prompt shell.py reply name=A", "A", ["plain,Ann", "plain,Anton"]),
    ],
)
def test_words_that_readline_breaks(
    folder: Path, url: str, line: str, current: str, words: list[str]
) -> None:
    found = offered(folder, line.replace("shell.py", url), current)
    assert [one for one in found if not one.startswith("open")] == words


def test_other_shells(url: str) -> None:
    line = f"wirespeed call {url} search "
    for shell in ("zsh", "fish"):
        done = wirespeed(
            _WIRESPEED_COMPLETE=f"{shell}_complete",
            COMP_WORDS=line + ("''" if shell == "zsh" else ""),
            COMP_CWORD="4" if shell == "zsh" else "",
        )
        assert done.returncode == 0
        first = "open\nword=\n_" if shell == "zsh" else "plain,word="
        assert done.stdout.startswith(first)
        done = wirespeed(_WIRESPEED_COMPLETE=f"{shell}_source")
        assert done.returncode == 0
    assert '"open"' in wirespeed(_WIRESPEED_COMPLETE="zsh_source").stdout


def test_a_server_that_is_started_does_not_complete(folder: Path) -> None:
    """Else a server that is this command line would start a server, which would do the same."""
    (folder / "direct.py").write_text(
        f"{FILE}\nimport os\nassert '_WIRESPEED_COMPLETE' not in os.environ\nserver.run()\n"
    )
    line = f"wirespeed call -- {sys.executable} direct.py -- se"
    assert offered(folder, line) == ["plain,search", "plain,seal"]


def test_bash_itself(url: str, tmp_path: Path) -> None:
    """The function that bash calls fills COMPREPLY."""
    command = tmp_path / "wirespeed"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m wirespeed "$@"\n')
    command.chmod(0o755)
    script = """
eval "$(_WIRESPEED_COMPLETE=bash_source wirespeed)"
compopt() { echo compopt "$@"; }
COMP_LINE="wirespeed call $URL search mode=fu"
COMP_POINT=${#COMP_LINE}
COMP_WORDS=(wirespeed call "$URL" search mode = fu)
COMP_CWORD=6
_wirespeed_completion wirespeed
echo "${COMPREPLY[@]}"
COMPREPLY=()
COMP_LINE="wirespeed call $URL search li"
COMP_POINT=${#COMP_LINE}
COMP_WORDS=(wirespeed call "$URL" search li)
COMP_CWORD=4
_wirespeed_completion wirespeed
echo "${COMPREPLY[@]}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=environment(URL=url, PATH=f"{tmp_path}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == ["full", "compopt -o nospace", "limit="]
