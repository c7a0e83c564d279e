"""Our client and those of others, through one endpoint of the proxy, at servers that others
published: mcp-server-time, server-everything and server-filesystem."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pairings
import peers
import pytest
from ours import Ours
from pairings import follow, said

TIME, ECHO, FILES = "time_get_current_time", "everything_echo", "files_list_directory"
WORK = "everything_trigger-long-running-operation"


@asynccontextmanager
async def proxied(folder: Path) -> AsyncIterator[str]:
    """The URL of the endpoint. A folder of files has one, `a.txt`."""
    node = str(await asyncio.to_thread(lambda: peers.npm() / "node_modules" / ".bin" / "node"))
    folder_of_servers = await asyncio.to_thread(peers.npm, "servers")
    published = folder_of_servers / "node_modules" / "@modelcontextprotocol"
    files = folder / "files"
    files.mkdir()
    (files / "a.txt").write_text("a")
    time, *arguments = await asyncio.to_thread(pairings.server_command, "time")
    everything = str(published / "server-everything" / "dist" / "index.js")
    filesystem = str(published / "server-filesystem" / "dist" / "index.js")
    servers = {
        "time": {"command": time, "args": arguments},
        "everything": {"command": node, "args": [everything, "stdio"]},
        "files": {"command": node, "args": [filesystem, str(files)]},
    }
    for server in servers.values():
        server["proxy"] = {"isolation": "shared"}
    config = folder / "proxy.json"
    # starts take long where much else runs
    listen = {"listen": ["http://127.0.0.1:0/mcp"], "readyWithin": 60}
    config.write_text(json.dumps({"mcpServers": servers, "proxy": listen}))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "wirespeed", "proxy", "--config", str(config)),
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stderr is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(pairings.START_SECONDS):
            while not (found := [word for word in lines[-1:] if "/mcp" in word]):
                lines.append((await child.stderr.readline()).decode())
                assert lines[-1], lines
        reading = asyncio.ensure_future(child.stderr.read())
        yield next(word for word in found[0].replace(";", " ").split() if word.startswith("http"))
        child.terminate()
        await reading
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()


def script(folder: str) -> list[Any]:
    calls = {TIME: {"timezone": "UTC"}, ECHO: {"message": "hi"}, FILES: {"path": folder}}
    return [
        *([name, "text", name, arguments] for name, arguments in calls.items()),
        ["steps", "noted", WORK, {"duration": 0.4, "steps": 2}],
        ["read", "first_read"],
        ["prompt", "prompt", "everything_simple-prompt"],
        ["tools", "names", "tools"],
        ["prompts", "names", "prompts"],
    ]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("peer", ["ours", "python2", "ts2"])
async def test_clients(peer: str, mode: str, tmp_path: Path) -> None:
    """With a server that speaks no 2026-07-28 behind it, the endpoint is of a legacy era."""
    async with proxied(tmp_path) as url:
        rows = script(str(tmp_path / "files"))
        if peer == "ours":
            seen = await Ours(url, mode, script=rows).hold()
        else:
            seen = await follow(peer, tmp_path, rows, url=url, mode=mode)
    assert seen["closing"]
    assert seen["version"] in (pairings.LATEST_LEGACY, pairings.MODERN)
    assert {TIME, ECHO, FILES, WORK} <= set(seen["tools"])
    assert "UTC" in seen[TIME]
    assert seen[ECHO] == "Echo: hi"
    assert "a.txt" in seen[FILES]
    assert seen["steps"] == [[1, 2], [2, 2]]
    assert seen["read"] == 1
    assert "everything_simple-prompt" in seen["prompts"]
    assert len(seen["prompt"]) == 1


@pytest.mark.parametrize("peer", ["inspector"])
async def test_inspector(peer: str, tmp_path: Path) -> None:
    node = str((await asyncio.to_thread(peers.npm)) / "node_modules" / ".bin" / "node")
    package = (await asyncio.to_thread(peers.npm, peer)) / "node_modules/@modelcontextprotocol"
    program = [node, str(package / "inspector/clients/launcher/build/index.js"), "--cli"]

    async with proxied(tmp_path) as url:

        async def asked(method: str, *more: str) -> Any:
            where = [url, "--transport", "http", "--method", method]
            home = ["env", f"HOME={tmp_path}"]  # it writes there
            status, text = await said(*home, *program, *where, *more, "--format", "json")
            assert status == 0, text
            return json.loads(text.splitlines()[0])["result"]

        listed = await asked("tools/list")
        assert {TIME, ECHO, FILES} <= {tool["name"] for tool in listed["tools"]}
        for tool, arguments, expected in (
            (TIME, {"timezone": "UTC"}, "UTC"),
            (ECHO, {"message": "hi"}, "Echo: hi"),
            (FILES, {"path": str(tmp_path / "files")}, "a.txt"),
        ):
            given = ["--tool-name", tool, "--tool-args-json", json.dumps(arguments)]
            called = await asked("tools/call", *given)
            assert expected in called["content"][0]["text"]
