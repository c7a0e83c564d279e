"""Exchanges with the published everything server, recorded on their way and asked again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pairings
import peers
import pytest

from wirespeed import Client, Http, Stdio
from wirespeed.client.targets import Target
from wirespeed.types import Accept, SampleResult

WIRESPEED = [sys.executable, "-m", "wirespeed"]
SCRIPT: list[Any] = [
    ["tools", "names", "tools"],
    *([f"echo {number}", "text", "echo", {"message": f"{number} ☂"}] for number in range(5)),
    ["work", "noted", "trigger-long-running-operation", {"duration": 0.2, "steps": 2}],
    ["wrong", "outcome", "echo"],
    ["prompt", "prompt", "simple-prompt"],
    ["resources", "names", "resources"],
]


def everything(transport: str) -> list[str]:
    node = peers.npm() / "node_modules" / ".bin" / "node"
    published = peers.npm("servers") / "node_modules" / "@modelcontextprotocol"
    return [str(node), str(published / "server-everything" / "dist" / "index.js"), transport]


@contextlib.asynccontextmanager
async def running(word: str, *command: str, **env: str) -> AsyncIterator[None]:
    """A program that has said a word on stderr or stdout, and is told to end."""
    child = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(pairings.START_SECONDS):
            while word.encode() not in (line := await child.stdout.readline()):
                assert line, f"{command} ended without {word!r}"
        reading = asyncio.ensure_future(child.stdout.read())
        yield
        child.terminate()
        await reading
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def recorded(transport: str, record: str) -> AsyncIterator[tuple[list[str], list[str]]]:
    """The everything server behind a tap, and itself: as words of a command, or a URL."""
    if transport == "stdio":
        command = await asyncio.to_thread(everything, "stdio")
        yield [*WIRESPEED, "record", "-o", record, "--", *command], command
        return
    port, tap = free_port(), free_port()
    to, url = f"http://127.0.0.1:{port}/mcp", f"http://127.0.0.1:{tap}/mcp"
    command = await asyncio.to_thread(everything, "streamableHttp")
    async with running("listening", *command, PORT=str(port)):
        tapping = [*WIRESPEED, "record", "-o", record, "--listen", url, "--to", to]
        async with running(" on ", *tapping):
            yield [url], [to]


async def report(*command: str) -> Any:
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    return json.loads(out)


async def replayed(record: str, words: list[str], *options: str) -> dict[str, int]:
    """What became of the requests of a record that are asked again."""
    target = words if "://" in words[0] else ["--", *words]
    line = ["bench", "--replay", record, "--json", "-", *options, *target]
    counts: dict[str, int] = (await report(*WIRESPEED, *line))["counts"]
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_exchange_of_our_client_is_replayed_with_all_answers_right(
    transport: str, tmp_path: Path
) -> None:
    record = str(tmp_path / "record.jsonl")

    async def sampled(params: object) -> SampleResult:
        return SampleResult("sampled", model="none")

    async def elicited(params: object) -> Accept:
        return Accept({"name": "Ann", "check": True})

    async with recorded(transport, record) as (words, plain):
        target: Target = Http(words[0]) if transport == "http" else Stdio(words[0], words[1:])
        async with Client(
            target, on_sample=sampled, on_elicit=elicited, roots=["file:///work"]
        ) as client:
            await client.list_tools()
            echoes = (client.call_tool("echo", {"message": str(n)}) for n in range(8))
            await asyncio.gather(*echoes)
            for name, arguments in (
                ("echo", {}),
                ("get-tiny-image", {}),
                ("get-structured-content", {"location": "Chicago"}),
                # its text has the time
                ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
                ("trigger-sampling-request", {"prompt": "p", "maxTokens": 10}),
                ("trigger-elicitation-request", {}),
                ("get-roots-list", {}),
            ):
                await client.call_tool(name, arguments)
            first, *_ = await client.list_resources()
            await client.read_resource(first.uri)
            await client.list_prompts()
            await client.get_prompt("simple-prompt")
        for options in (("--speed", "10"), ("--speed", "max")):
            assert await replayed(record, plain, *options) == {"ok": 20}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_mcps_client_notices_no_difference(transport: str, tmp_path: Path) -> None:
    record = str(tmp_path / "record.jsonl")

    async def told(words: list[str]) -> dict[str, Any]:
        target = {"url": words[0]} if transport == "http" else {"command": words}
        return await pairings.follow("python2", tmp_path, SCRIPT, mode="auto", **target)

    async with recorded(transport, record) as (words, plain):
        first = await told(words)
        assert first == await told(plain)
        assert first["echo 0"] == "Echo: 0 ☂" and first["work"][-1] == [2, 2]
        assert first["wrong"]["is_error"] and first["closing"]
        assert set(await replayed(record, plain, "--speed", "max")) == {"ok"}
