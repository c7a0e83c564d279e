"""Two proxies of ours behind a load balancer: no session is lost, streams and WebSocket pass."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import balancers
import pairings
import pytest
from lab.process import free_port

from wirespeed import Client

# Those of the sample first; the others are installed for --full.
BALANCERS = [
    "several.conf",
    "haproxy.cfg",
    pytest.param("envoy.yaml", marks=pytest.mark.full("another load balancer")),
    pytest.param("Caddyfile", marks=pytest.mark.full("another load balancer")),
]
NAMES = ("east", "west")
N_SESSIONS = 200
AT_ONCE = 20


class Proxies:
    """Two proxies.

    Attributes:
        ports: Where they listen, by name.
        admin: Their admin listeners.
    """

    def __init__(self) -> None:
        self.ports = {name: free_port() for name in NAMES}
        self.admin = {name: free_port() for name in NAMES}
        self.children: dict[str, Process] = {}

    async def start(self, name: str) -> None:
        command = [sys.executable, "-m", "wirespeed", "proxy"]
        command += ["--listen", f"http://127.0.0.1:{self.ports[name]}/mcp", "--name", name]
        command += ["--admin", f"http://127.0.0.1:{self.admin[name]}", "--isolation", "shared"]
        self.children[name] = await asyncio.create_subprocess_exec(
            *command, "--", *pairings.OUR_SERVER, stdin=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(pairings.START_SECONDS):
            while not await balancers.reachable(self.ports[name]):
                assert self.children[name].returncode is None
                await asyncio.sleep(0.02)

    async def kill(self, name: str) -> None:
        if self.children[name].returncode is None:
            self.children[name].kill()
        await self.children[name].wait()


@asynccontextmanager
async def two_proxies(balancer: str, folder: Path) -> AsyncIterator[tuple[Proxies, int]]:
    """Two proxies, and the port of a load balancer before them."""
    proxies = Proxies()
    try:
        await asyncio.gather(*map(proxies.start, NAMES))
        ports = [str(proxies.ports[name]) for name in NAMES]
        async with balancers.behind(balancer, folder / "balancer", ports) as port:
            yield proxies, port
    finally:
        for name in proxies.children:
            await proxies.kill(name)


class Exchange:
    """A request on a connection of its own, and the head of its answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.status = 0
        self.fields: dict[str, str] = {}

    async def send(self, method: str, body: Any = None, session: str = "") -> None:
        self.reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        text = b"" if body is None else json.dumps(body).encode()
        head = [f"{method} /mcp HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(text)}"]
        head += ["Accept: application/json, text/event-stream", "Content-Type: application/json"]
        if session:
            head += [f"Mcp-Session-Id: {session}", "MCP-Protocol-Version: 2025-11-25"]
        self._writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + text)
        top = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = top.strip().split("\r\n")
        self.status = int(first.split()[1])
        pairs = [line.split(": ", 1) for line in lines]
        self.fields = {name.lower(): value for name, value in pairs}

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


async def ask(port: int, method: str, body: Any = None, session: str = "") -> Exchange:
    exchange = Exchange(port)
    await exchange.send(method, body, session)
    await exchange.close()
    return exchange


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}


async def begin(port: int) -> str:
    """Open a session through a load balancer. Returns its id."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    opened = await ask(port, "POST", hello)
    assert opened.status == 200
    return opened.fields["mcp-session-id"]


@pytest.mark.parametrize("balancer", BALANCERS)
async def test_no_session_is_lost(balancer: str, tmp_path: Path) -> None:
    async with two_proxies(balancer, tmp_path) as (_, port):
        places = asyncio.Semaphore(AT_ONCE)
        lost: list[tuple[str, str, int]] = []
        names: list[str] = []

        async def hold() -> None:
            async with places:
                session = await begin(port)
                names.append(session.partition(".")[0])
                told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                for what, method, body, wanted in (
                    ("initialized", "POST", told, 202),
                    ("a call", "POST", call("add", a=2, b=3), 200),
                    ("the stream", "GET", None, 200),
                    ("another call", "POST", call("add", a=2, b=3), 200),
                    ("the end", "DELETE", None, 204),
                    ("a call after the end", "POST", call("add", a=2, b=3), 404),
                ):
                    answer = await ask(port, method, body, session)
                    if answer.status != wanted:
                        lost.append((session, what, answer.status))

        await asyncio.gather(*(hold() for _ in range(N_SESSIONS)))
        assert lost == []
        assert set(names) == set(NAMES)  # both had some of them


@pytest.mark.parametrize("balancer", BALANCERS)
async def test_the_stream_of_a_session_has_what_its_server_says(
    balancer: str, tmp_path: Path
) -> None:
    async with two_proxies(balancer, tmp_path) as (_, port):
        for name in NAMES:
            session = ""
            while not session.startswith(f"{name}."):
                session = await begin(port)
            stream = Exchange(port)
            await stream.send("GET", session=session)
            assert stream.fields["content-type"].startswith("text/event-stream")
            await ask(port, "POST", call("grow", name=f"late-{name}"), session)
            async with asyncio.timeout(pairings.START_SECONDS):
                await stream.reader.readuntil(b"notifications/tools/list_changed")
            await stream.close()


@pytest.mark.parametrize("balancer", BALANCERS)
async def test_clients_of_both_eras_over_http_and_websocket(balancer: str, tmp_path: Path) -> None:
    async with two_proxies(balancer, tmp_path) as (_, port):

        async def use(over: str, era: Any) -> None:
            async with Client(f"{over}://127.0.0.1:{port}/mcp", era=era) as client:
                for _ in range(5):
                    assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"

        ways = [(over, era) for over in ("http", "ws") for era in ("legacy", "modern")]
        await asyncio.gather(*(use(*way) for way in ways * 5))


@pytest.mark.parametrize("balancer", BALANCERS)
async def test_a_session_of_a_proxy_that_has_gone_gets_404(balancer: str, tmp_path: Path) -> None:
    """At 404 clients initialize again."""
    async with two_proxies(balancer, tmp_path) as (proxies, port):
        session = ""
        while not session.startswith("west."):
            session = await begin(port)
        await proxies.kill("west")
        async with asyncio.timeout(pairings.START_SECONDS):
            while (await ask(port, "POST", call("add", a=2, b=3), session)).status != 404:
                await asyncio.sleep(0.1)
            another = await begin(port)
        assert another.startswith("east.")
        assert (await ask(port, "POST", call("add", a=2, b=3), another)).status == 200
