"""Checks of servers on the adapter of the official SDK: ``sdk_http_checks.py NAME``, as
`sdk_checks.py`."""

import asyncio
import contextlib
import functools
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import sdk_server
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from sdk_checks import SERVER, both_eras, listening, program, run, served

import wirespeed
from wirespeed.adapters import mcp as adapter
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

STAYS = "Streamable HTTP of this server stays as it is"
WORKERS = """
import sys

from sdk_server import server
from wirespeed.adapters import mcp as adapter

adapter.run(server, sys.argv[1], workers=2, on_listening=lambda urls: print(*urls, flush=True))
"""
CLIENT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"},
}
REPORTS = {"name": "reports", "arguments": {}, "_meta": {"progressToken": "t"}}


def exchanged(
    port: int, method: str, params: Any = None, request_id: int | None = None, **fields: str
) -> http.client.HTTPResponse:
    """The response to one message; its body is not read."""
    message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    if request_id is not None:
        message["id"] = request_id
    return sent(port, "POST", json.dumps(message), **fields)


def sent(port: int, verb: str, body: str | None, **fields: str) -> http.client.HTTPResponse:
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    headers |= {"Accept": "application/json, text/event-stream"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(verb, "/mcp", body, headers)
    return connection.getresponse()


def events(response: http.client.HTTPResponse, last: int) -> list[tuple[str, Any]]:
    """The ids and messages of a stream, up to the response to a request. An event without a
    message has None."""
    found: list[tuple[str, Any]] = []
    assert response.headers["content-type"].startswith("text/event-stream"), response.headers
    name = ""
    while line := response.readline().decode():
        field, _, value = line.rstrip("\r\n").partition(":")
        if field == "id":
            name = value.strip()
        elif field == "data":
            found.append((name, json.loads(value) if value.strip() else None))
            if found[-1][1] and found[-1][1].get("id") == last:
                return found
    raise AssertionError(f"the stream ended after {found}")


def resume(port: int) -> None:
    """A client that has lost a stream gets the rest of it."""
    first = exchanged(port, "initialize", CLIENT, 1)
    session = {"mcp_session_id": first.headers["mcp-session-id"]}
    session |= {"mcp_protocol_version": CLIENT["protocolVersion"]}
    first.read()
    assert exchanged(port, "notifications/initialized", **session).status == 202
    seen = events(exchanged(port, "tools/call", REPORTS, 2, **session), 2)
    kinds = [message.get("method", "result") for _, message in seen if message]
    assert kinds == ["notifications/progress", "result"], seen
    assert len({name for name, _ in seen}) == len(seen) and all(name for name, _ in seen), seen
    for n, (name, _) in enumerate(seen[:-1], 1):
        again = events(sent(port, "GET", None, last_event_id=name, **session), 2)
        assert [one for one in again if one[1]] == [one for one in seen[n:] if one[1]], again


def text_of(log: IO[str]) -> str:
    log.seek(0)
    return log.read()


# -- checks --------------------------------------------------------------------------------------


async def event_stores() -> None:
    """A server with an event store stays on the SDK's HTTP, which the log says once; by `serve` it
    has one of ours."""
    with tempfile.TemporaryFile("w+") as log:
        async with program("events", log) as port:
            await asyncio.to_thread(resume, port)
            await both_eras(f"http://127.0.0.1:{port}/mcp")
        assert text_of(log).count(f"it has an event store: {STAYS}") == 1, text_of(log)
    options = wirespeed.HttpOptions(event_store=wirespeed.MemoryEventStore())
    async with served(sdk_server.server, "http://127.0.0.1:0/mcp", http=options) as url:
        await asyncio.to_thread(resume, urlsplit(url).port)
        await both_eras(url)


async def token_verifiers() -> None:
    """The tokens of a server are verified by the SDK's HTTP, which the log says once; elsewhere it
    is not served. `serve` has tokens of its own."""
    with tempfile.TemporaryFile("w+") as log:
        async with program("verified", log) as port:
            await asyncio.to_thread(only_with_a_token, port)
            assert await callers(f"http://127.0.0.1:{port}/mcp") == ["ada", "ada"]
        assert text_of(log).count(f"it verifies tokens: {STAYS}") == 1, text_of(log)
    closed = MCPServer("closed", **sdk_server.protection())
    for url in ("http://127.0.0.1:0/mcp", "ws://127.0.0.1:0/mcp", "tcp://127.0.0.1:0"):
        try:
            async with served(closed, url):
                raise AssertionError("served to everybody")
        except ValueError as exc:
            assert "'closed' are verified by the SDK's own HTTP alone" in str(exc), exc
    async with served(sdk_server.server, "http://127.0.0.1:0/mcp", token="right") as url:
        await asyncio.to_thread(only_with_a_token, urlsplit(url).port)
        assert await callers(url) == ["nobody", "nobody"]  # it is not the SDK's token


def only_with_a_token(port: int | None) -> None:
    assert port is not None
    for fields in ({}, {"authorization": "Bearer wrong"}):
        refused = exchanged(port, "initialize", CLIENT, 1, **fields)
        assert refused.status == 401, refused.status
        assert refused.headers["www-authenticate"].startswith("Bearer")
    let_in = exchanged(port, "initialize", CLIENT, 1, authorization="Bearer right")
    assert let_in.status == 200, let_in.status


async def callers(url: str) -> list[str]:
    """Whose token the server sees, in both eras."""
    found = []
    for mode in ("legacy", "auto"):
        async with adapter.Client(wirespeed.Http(url, token="right"), mode=mode) as client:
            result: Any = await client.call_tool("caller", {})
            found.append(result.content[0].text)
    return found


async def mounted() -> None:
    """An application that has a server as a part is the SDK's own, and works."""
    async with program("mounted") as port:
        await both_eras(f"http://127.0.0.1:{port}/part/mcp")
        await both_eras(f"http://127.0.0.1:{port}/part/mcp", adapter.Client)


async def lifespans() -> None:
    """A lifespan is entered before the first client, and left after the last one."""
    told: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[dict[str, str]]:
        told.append("entered")
        yield {"of": "the lifespan"}
        told.append("left")

    server = MCPServer("lively", lifespan=lifespan)

    @server.tool()
    async def kept(ctx: Context) -> str:
        told.append("called")
        return str(ctx.request_context.lifespan_context["of"])

    for url in ("http://127.0.0.1:0/mcp", "ws://127.0.0.1:0/mcp"):
        told.clear()
        async with served(server, url) as at:
            assert told == ["entered"]
            for mode in ("legacy", "auto"):
                async with adapter.Client(at, mode=mode) as client:
                    result: Any = await client.call_tool("kept", {})
                    assert result.content[0].text == "the lifespan", result
        assert told == ["entered", "called", "called", "left"], told


async def workers() -> None:
    """Two processes serve at one port, and a session stays with one of them."""
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(SERVER).parent), os.environ["PYTHONPATH"]])
    }
    for url in ("http://127.0.0.1:0/mcp", "ws://127.0.0.1:0/mcp"):
        command = [sys.executable, "-c", WORKERS, url]
        child = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        try:
            place = await asyncio.to_thread(child.stdout.readline)
            pids = set()
            for _ in range(200):
                pids |= await pids_of(place.strip(), "modern", 1)
                if len(pids) == 2:
                    break
            assert len(pids) == 2 and str(child.pid) not in pids, pids
            for _ in range(4):
                assert len(await pids_of(place.strip(), "legacy", 40)) == 1
            await both_eras(place.strip(), adapter.Client)
            if url.startswith("http"):
                await both_eras(place.strip())
        finally:
            child.send_signal(signal.SIGTERM)
            status = child.wait(20)
        assert status == 0, status


async def pids_of(url: str, era: Any, calls: int) -> set[str]:
    """The processes that answer one client."""
    async with wirespeed.Client(url, era=era) as client:
        results = await asyncio.gather(*(client.call_tool("pid") for _ in range(calls)))
    return {result.text for result in results}


async def proxied() -> None:
    """Servers under `install()` behind our proxy, for clients of both eras."""
    arguments = ["-m", "wirespeed.adapters.mcp", SERVER]
    path = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    async with program("streamable-http") as port:
        for target in (
            wirespeed.Http(f"http://127.0.0.1:{port}/mcp"),
            wirespeed.Stdio(sys.executable, arguments, env=path),
        ):
            backend = BackendConfig(target=target, name="it")
            proxy = Proxy(ProxyConfig(backends=(backend,), listen=()))
            serve = functools.partial(
                wirespeed.serve, "http://127.0.0.1:0/mcp", proxy.services["it"]
            )
            async with listening(serve) as url:
                await both_eras(url)


if __name__ == "__main__":
    run(event_stores, token_verifiers, mounted, lifespans, workers, proxied)
