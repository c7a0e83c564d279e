"""Skills with other SDKs: their clients read and verify ours, ours reads and verifies theirs, and
the proxy has all of them at one endpoint."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import peers
import pytest

from wirespeed import Client, Stdio

# FastMCP's client has skills in the modern era alone.
RUST = pytest.mark.full("rmcp is built by cargo")
CASES = [
    ("fastmcp", "modern"),
    ("ts2", "modern"),
    ("ts2", "legacy"),
    pytest.param("rmcp", "modern", marks=RUST),
    pytest.param("rmcp", "legacy", marks=RUST),
]


def program(peer: str) -> list[str]:
    if peer == "ts2":
        return peers.node("ts2_skills.mjs")
    if peer == "rmcp":
        return [peers.crate("rmcp_skills")]
    return [peers.python("adapter_fastmcp"), str(peers.PROGRAMS / "fastmcp_skills.py")]


def ours(folder: Path) -> list[str]:
    return [sys.executable, "-m", "wirespeed", "serve", "--skills", str(folder)]


Files = dict[str, dict[str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Skills whose files must arrive byte by byte."""
    place = tmp_path / "skills"
    for name in ("refunds", "ops/deploy"):
        skill = place / name
        (skill / "a b").mkdir(parents=True)
        fields = f"name: {skill.name}\ndescription: 'About it: ü'\nmetadata:\n  since: \"2026\"\n"
        head = f"---\n{fields}---\n"
        (skill / "SKILL.md").write_text(f"{head}Read [it](a%20b/ö.md).\n")
        (skill / "a b" / "ö.md").write_bytes(b"\xef\xbb\xbfBOM\r\n\xe2\x80\xa8<&>\n")
        (skill / "bytes.bin").write_bytes(bytes(range(256)))
        (skill / "empty.txt").write_bytes(b"")
    return place


def expected(folder: Path, server: str = "") -> Files:
    found: Files = {}
    for head in folder.rglob("SKILL.md"):
        root = head.parent
        uri = f"skill://{server}{root.relative_to(folder)}/SKILL.md"
        found[uri] = {
            str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in root.rglob("*")
            if file.is_file()
        }
    return found


def read(peer: str, era: str, command: list[str]) -> Any:
    done = subprocess.run(
        [*program(peer), "read", era, *command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


async def verified(target: Stdio, era: Any) -> Files:
    """The skills as our client reads them. It compares each file with the entry."""
    found: Files = {}
    async with Client(target, era=era, timeout=60) as client:
        for skill in await client.list_skills():
            root = skill.uri.removesuffix("SKILL.md")
            assert (await client.get_skill(skill.uri)).entry == skill.entry
            files = found[skill.uri] = {}
            for file in skill.resources or ():
                data = (await skill.read(file.uri)).data
                path = unquote(file.uri.removeprefix(root))
                files[path] = hashlib.sha256(data).hexdigest()
    return found


@pytest.mark.parametrize(("peer", "era"), CASES)
def test_theirs_reads_ours(peer: str, era: str, folder: Path) -> None:
    assert read(peer, era, ours(folder)) == expected(folder)


@pytest.mark.parametrize(("peer", "era"), CASES)
def test_ours_reads_theirs(peer: str, era: str, folder: Path) -> None:
    command, *arguments = [*program(peer), "serve", str(folder)]
    found = asyncio.run(verified(Stdio(command, arguments), era))
    assert found == expected(folder)


@pytest.mark.parametrize(
    "found", [("fastmcp", "ts2"), pytest.param(("rmcp", "ts2"), marks=RUST)], ids="-".join
)
def test_at_one_endpoint(found: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    """Servers of others and ours behind the proxy, read by the clients of all of them."""
    commands = {"ours": ours(folder)}
    commands |= {peer: [*program(peer), "serve", str(folder)] for peer in found}
    servers = {name: {"command": one[0], "args": one[1:]} for name, one in commands.items()}
    file = tmp_path / "proxy.json"
    file.write_text(json.dumps({"mcpServers": servers, "proxy": {"readyWithin": 60}}))
    proxy = [sys.executable, "-m", "wirespeed", "proxy", "--config", str(file)]
    wanted: Files = {}
    for name in servers:
        wanted |= expected(folder, f"{name}/")
    for peer in found:
        assert read(peer, "modern", proxy) == wanted
    assert asyncio.run(verified(Stdio(proxy[0], proxy[1:]), "modern")) == wanted
