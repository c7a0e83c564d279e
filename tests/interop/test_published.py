"""Servers that others published: each by itself, and all of them at one endpoint of the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pairings
import peers
import pytest
from pairings import LATEST_LEGACY, MODERN

from wirespeed import Client, Stdio
from wirespeed.errors import RemoteError

SERVERS = peers.PUBLISHED
ALWAYS = [name for name, server in SERVERS.items() if server.get("always")]
MERGED_SECONDS = (
    200.0  # until the last of thirty servers is there, on a machine that has other work
)
NO_SUCH_TOOL = "there is no such tool"


def cases() -> list[Any]:
    """The names of all servers; most of them only with --full."""
    full = pytest.mark.full("another server that somebody published")
    return [pytest.param(name, marks=[] if name in ALWAYS else [full]) for name in SERVERS]


def processes(home: Path) -> list[str]:
    """The processes that have a folder as their home, but for those that have ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")  # empty once it has ended
        except OSError:
            continue
        if f"HOME={home}".encode() in variables:
            found.append(process.name)
    return found


def environment(name: str, home: Path) -> dict[str, str]:
    """Variables of a server: what it wants to see, and a home of its own."""
    return {**SERVERS[name].get("env", {}), "HOME": str(home)}


@pytest.mark.parametrize("name", cases())
async def test_alone(name: str, tmp_path: Path) -> None:
    """A client finds the revision, lists and calls, and leaves no process behind."""
    command, *arguments = await asyncio.to_thread(peers.published, name)
    said: list[str] = []
    target = Stdio(
        command, arguments, env=environment(name, tmp_path), cwd=tmp_path, stderr=said.append
    )
    async with Client(target, timeout=60, handshake_timeout=pairings.START_SECONDS) as client:
        assert client.protocol_version == SERVERS[name]["revision"], said
        tools = await client.list_tools()
        assert len(tools) == SERVERS[name]["tools"]
        capabilities = client.server_capabilities
        if "resources" in capabilities:
            await client.list_resources()
        if "prompts" in capabilities:
            await client.list_prompts()
        try:
            assert (await client.call_tool(NO_SUCH_TOOL)).is_error
        except RemoteError as exc:
            assert exc.code in (-32602, -32601, -32603, -32600)
    assert processes(tmp_path) == []


@contextlib.asynccontextmanager
async def merged(names: list[str], folder: Path) -> AsyncIterator[str]:
    """The URL of an endpoint with some servers, of the command line and its defaults."""
    servers = {}
    for name in names:
        command, *arguments = await asyncio.to_thread(peers.published, name)
        env = environment(name, folder)
        servers[name] = {"command": command, "args": arguments, "env": env, "cwd": str(folder)}
    config = folder / "proxy.json"
    listen = {"listen": ["http://127.0.0.1:0/mcp"]}
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
        assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def counts(url: str, era: str, names: list[str]) -> dict[str, int]:
    """How many tools of each server a client sees, once all of them are ready."""
    wanted = sum(SERVERS[name]["tools"] for name in names)
    changed = asyncio.Event()
    async with Client(
        url,
        era=era,  # type: ignore[arg-type]
        timeout=60,
        on_tools_changed=lambda _: changed.set(),
    ) as client:
        assert client.protocol_version == (LATEST_LEGACY if era == "legacy" else MODERN)
        tools = await client.list_tools()
        with contextlib.suppress(TimeoutError):  # the caller sees whose tools are missing
            async with asyncio.timeout(MERGED_SECONDS):
                while len(tools) < wanted:
                    await changed.wait()
                    changed.clear()
                    tools = await client.list_tools()
        with pytest.raises(RemoteError) as caught:
            await client.call_tool(NO_SUCH_TOOL)
        assert caught.value.code == -32602
    assert len({tool.name for tool in tools}) == len(tools)
    return {name: sum(t.name.startswith(f"{name}_") for t in tools) for name in names}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(ALWAYS, id="some"),
        pytest.param(list(SERVERS), id="all", marks=pytest.mark.full("many servers")),
    ],
)
async def test_at_one_endpoint(names: list[str], era: str, tmp_path: Path) -> None:
    """Each server has at the merged endpoint what it has alone, for clients of both eras."""
    async with merged(names, tmp_path) as url:
        assert await counts(url, era, names) == {name: SERVERS[name]["tools"] for name in names}
    assert processes(tmp_path) == []
