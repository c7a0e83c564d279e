"""Real hosts start the server that ``wirespeed install`` wrote into their files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import peers
import pytest

SECONDS = 120
FILE = """
from wirespeed import Server

server = Server("notes")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b
"""
# By host: its program in node_modules, and what its list says of a server that works.
PROGRAMS = {
    "claude-code": ("@anthropic-ai/claude-code-linux-*/claude", "Connected"),
    "opencode": ("opencode-linux-*/bin/opencode", "connected"),
}


def program(host: str) -> str:
    """The program for this machine. Other builds are beside it."""
    found = (peers.npm("hosts") / "node_modules").glob(PROGRAMS[host][0])
    return str(next(one for one in found if "musl" not in str(one) and "baseline" not in str(one)))


# Claude Code asks its user about the servers of a project.
@pytest.mark.parametrize(
    ("host", "scope"), [("claude-code", "user"), ("opencode", "user"), ("opencode", "project")]
)
def test_a_host_starts_what_was_installed(host: str, scope: str, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    folder.mkdir()
    (folder / "notes.py").write_text(FILE)
    env = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    env |= {
        "HOME": str(home),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    env.pop("CLAUDE_CONFIG_DIR", None)

    def run(*command: str) -> str:
        done = subprocess.run(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            text=True,
            check=True,
        )
        return done.stdout

    words = ["install", host, "notes.py", *(["--project"] if scope == "project" else [])]
    if "PYTHONPATH" in env:
        words += ["--env", "PYTHONPATH"]
    run(sys.executable, "-m", "wirespeed", *words)
    listed = run(program(host), "mcp", "list")
    line = next(line for line in listed.splitlines() if "notes" in line)
    assert PROGRAMS[host][1] in line, listed
