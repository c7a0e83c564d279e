"""``wirespeed config``: what it prints starts the server."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.cli import one_line, wirespeed

from wirespeed import Client, config

FILE = '''
import os
from helper import NAME
from wirespeed import Server

print("loud"); os.write(1, b"louder")
server = Server(NAME)
other = Server("other one/2")

@server.tool
async def where() -> str:
    """The directory of the process."""
    return os.getcwd()

@other.tool
async def where_else() -> str:
    """Nowhere."""
    return "nowhere"

server.run()
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "helper.py").write_text("NAME = 'notes'\n")
    (folder / "served.py").write_text(FILE)
    return folder


def printed(folder: Path, *words: str) -> dict[str, Any]:
    done = wirespeed("config", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    whole: dict[str, Any] = json.loads(done.stdout)
    return whole


@pytest.mark.parametrize(
    ("url", "kind"),
    [("wss://h.example/mcp", "ws"), ("ws://h:1/", "ws"), ("https://h.example/mcp", "http")],
)
def test_a_server_at_a_url(folder: Path, url: str, kind: str) -> None:
    whole = printed(folder, url, "--key", "tools")
    assert whole == {"mcpServers": {"tools": {"type": kind, "url": url}}}
    server = config.loads(json.dumps(whole))["tools"]
    assert (server.problem, server.transport, server.url) == ("", kind, url)
    assert printed(folder, url, "--vscode") == {"servers": {"server": {"type": kind, "url": url}}}


@pytest.mark.parametrize("url", ["unix:/run/x", "tcp://h:1", "https://"])
def test_a_url_that_no_host_reaches(folder: Path, url: str) -> None:
    done = wirespeed("config", url, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done)


async def test_what_is_printed_starts_the_server(folder: Path, tmp_path: Path) -> None:
    whole = printed(folder, "served.py")
    assert whole == {
        "mcpServers": {
            "notes": {
                "command": os.path.abspath(sys.executable),
                "args": ["-m", "wirespeed", "serve", str(folder / "served.py")],
            }
        }
    }
    file = tmp_path / "mcp.json"
    entry = whole["mcpServers"]["notes"]
    file.write_text(json.dumps({"mcpServers": {"notes": {**entry, "cwd": "/"}}}))
    async with config.load(file)["notes"].client() as client:
        result = await client.call_tool("where")
        assert result.content[0].text == "/"
    done = wirespeed("list", f"{file}#notes", cwd=Path("/"))
    assert (done.returncode, "where" in done.stdout) == (0, True)


async def test_a_named_server_in_the_form_of_vscode(folder: Path) -> None:
    whole = printed(folder, "served.py:other", "--vscode")
    (entry,) = whole["servers"].values()
    assert list(whole["servers"]) == ["other-one-2"]
    assert entry["type"] == "stdio"
    async with Client(config.loads(json.dumps(whole))["other-one-2"].target()) as client:
        assert [tool.name for tool in await client.list_tools()] == ["where_else"]


def test_the_key(folder: Path) -> None:
    assert list(printed(folder, "served.py", "--key", "my_Key-1")["mcpServers"]) == ["my_Key-1"]
    done = wirespeed("config", "served.py", "--key", "my key", cwd=folder)
    assert (done.returncode, one_line(done).startswith("--key: letters, digits")) == (2, True)


def test_a_file_that_cannot_be_served(folder: Path) -> None:
    (folder / "served.py").write_text("x = 1\n")
    done = wirespeed("config", "served.py", cwd=folder)
    assert done.returncode == 3
    assert one_line(done).startswith("served.py has no Server at module level")
    done = wirespeed("config", "missing.py", cwd=folder)
    assert (done.returncode, one_line(done)) == (3, "there is no file missing.py")
