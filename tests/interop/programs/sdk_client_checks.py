"""Checks of clients on the adapter of the official SDK: ``sdk_client_checks.py NAME [URL]``, as
`sdk_checks.py`."""

import asyncio
import json
import os
import sys
from typing import Any

import login
import mcp
from mcp import ClientSession
from mcp_types import CONNECTION_CLOSED
from sdk_checks import SERVER, run

import wirespeed
from wirespeed.adapters import mcp as adapter
from wirespeed.auth import MemoryStorage, OAuth

MODES = ("legacy", "auto")


async def text(session: Any, name: str, arguments: dict[str, Any] | None = None) -> str:
    """The text of a call."""
    result = await session.call_tool(name, arguments or {})
    assert not result.is_error, result
    return str(result.content[0].text)


def child(restart: int) -> wirespeed.Stdio:
    path = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    return wirespeed.Stdio(sys.executable, [SERVER], env=path, restart=restart)


async def ended(client: Any) -> None:
    """End the server in the middle of two calls: both fail, with the reason."""
    calls = [client.call_tool("slow", {"seconds": 60}), client.call_tool("ends", {})]
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, mcp.MCPError), outcome
        assert outcome.code == CONNECTION_CLOSED and "status 9" in str(outcome), outcome


async def restarts() -> None:
    """A child that has ended is started again for the next request, as often in a row as the target
    allows."""
    for mode in MODES:
        async with adapter.Client(child(1), mode=mode) as client:
            pids = [await text(client, "pid")]
            for _ in range(2):  # an answer ends a row of losses
                await ended(client)
                pids.append(await text(client, "pid"))
            assert len(set(pids)) == 3, pids
            assert (await client.read_resource("memo://a")).contents
        async with adapter.Client(child(0), mode=mode) as client:
            await text(client, "pid")
            await ended(client)
            try:
                await text(client, "pid")
            except mcp.MCPError as exc:
                assert exc.code == CONNECTION_CLOSED, exc
            else:
                raise AssertionError("a server was started again that must not be")


def protected(url: str, asked: list[str], seconds: float = 0.0) -> wirespeed.Http:
    """A server that a person logs in to; ``asked`` gets each login, which takes some time."""

    async def person(at: str) -> str:
        asked.append(at)
        await asyncio.sleep(seconds)
        return await asyncio.to_thread(login.log_in, at)

    return wirespeed.Http(url, auth=OAuth(redirect=person, storage=MemoryStorage()))


async def logins(url: str) -> None:
    """A client logs in to a protected server, once for all its sessions, and again for a tool that
    needs more."""
    asked: list[str] = []
    target = protected(url, asked)
    reader = {"user": "ada", "scopes": ["mcp"]}
    async with (
        adapter.connect(target) as dispatcher,
        ClientSession(dispatcher=dispatcher) as session,
    ):
        await session.initialize()
        assert json.loads(await text(session, "whoami")) == reader
    for mode in MODES:
        async with adapter.Client(target, mode=mode) as client:
            assert json.loads(await text(client, "whoami")) == reader
    assert len(asked) == 1, asked
    async with adapter.Client(target) as client:
        if "write" in {tool.name for tool in (await client.list_tools()).tools}:
            writer = reader | {"scopes": ["mcp", "tools:write"]}
            assert json.loads(await text(client, "write")) == writer
            assert len(asked) == 2, asked


async def slow_logins(url: str) -> None:
    """While a person logs in, the question for the era waits: a modern server stays one."""
    mcp.client.session.DISCOVER_TIMEOUT_SECONDS = 4.0
    asked: list[str] = []
    async with adapter.Client(protected(url, asked, 6.0), mode="auto") as client:
        assert client.protocol_version == "2026-07-28", client.protocol_version
        assert json.loads(await text(client, "whoami"))["user"] == "ada"
    assert len(asked) == 1, asked


if __name__ == "__main__":
    run(restarts, logins, slow_logins)
