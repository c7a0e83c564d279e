"""Our server behind nginx and HAProxy, with the settings of the page "Behind nginx or HAProxy".

The wire is read between the proxy and the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pairings
import peers
import pytest
import transcripts
from checks import CHECKS, HTTP_CHECKS
from pairings import LATEST_LEGACY, MODERN, Held, Pairing, serving

from wirespeed import Client
from wirespeed.transport.loop import loop_factory

pytestmark = pytest.mark.full("proxies of a system")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "behind-a-proxy.md"
FILE = re.compile(r'^```\w+ title="(mcp\.conf|haproxy\.cfg)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
FILES = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))
# What Debian's own nginx.conf has around the file of the page, in folders of this test.
NGINX = """\
daemon off;
{user}
error_log stderr;
pid {folder}/pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    scgi_temp_path {folder}/scgi;
    uwsgi_temp_path {folder}/uwsgi;
    {file}
}}
"""
# HAProxy notices that a client left when it writes to it: at a comment of the server.
OFTEN = ("--keepalive", "0.2")
SESSIONS = [
    serving("python2", "legacy", LATEST_LEGACY, over="http"),
    serving("python2", "auto", MODERN, probes=True, over="http"),
    serving("ts2", "legacy", LATEST_LEGACY, over="http"),
    serving("ts2", "auto", MODERN, over="http"),
]


def command(proxy: str, folder: Path, port: int, servers: list[str]) -> list[str]:
    """What runs a proxy at a port, in front of servers at their places."""
    installed = peers.debian()
    name = {"nginx": "mcp.conf", "haproxy": "haproxy.cfg"}[proxy]
    text = FILES[name].replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    for number, place in enumerate((*servers, *servers)[:2]):
        text = text.replace(f"127.0.0.1:{8000 + number}", place)
    text = text.replace("Host tools.example", "Host 127.0.0.1")
    assert "127.0.0.1:80" not in text
    if proxy == "nginx":
        user = "user root;" if os.getuid() == 0 else ""  # the folder is this user's
        text = NGINX.format(user=user, folder=folder, file=text)
    (folder / name).write_text(text)
    if proxy == "nginx":
        return [str(installed / "usr/sbin/nginx"), "-p", str(folder), "-c", str(folder / name)]
    return [str(installed / "usr/sbin/haproxy"), "-db", "-f", str(folder / name)]


@asynccontextmanager
async def behind(proxy: str, folder: Path, servers: list[str]) -> AsyncIterator[str]:
    """The URL of a proxy in front of servers, which it has seen to be healthy."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    places = [urlsplit(url).netloc for url in servers]
    libraries = ":".join(str(path) for path in (peers.debian() / "usr/lib").glob("*-linux-gnu"))
    child = await asyncio.create_subprocess_exec(
        *command(proxy, folder, port, places),
        env=peers.environment() | {"LD_LIBRARY_PATH": libraries},
        stdin=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(pairings.START_SECONDS):
            while not await reachable(port):
                assert child.returncode is None, f"{proxy} ended with {child.returncode}"
                await asyncio.sleep(0.02)
        yield urlunsplit(urlsplit(servers[0])._replace(netloc=f"127.0.0.1:{port}"))
    finally:
        child.terminate()
        await child.wait()


async def reachable(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def of_a_health_check(head: tuple[str, list[str]]) -> bool:
    lines = head[1]
    return "/healthz" in lines[0] or "Content-Type: text/plain; charset=utf-8" in lines


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, Pairing], Held]:
    """The sessions of others' clients with our server, through each proxy."""
    folder = tmp_path_factory.mktemp("proxies")
    held = {}

    async def hold(proxy: str, pairing: Pairing) -> Held:
        place = folder / f"{proxy}-{pairing}"
        wire, job, report = (place / name for name in ("wire", "job.json", "report.json"))
        wire.mkdir(parents=True)
        async with (
            pairings.listening(wire, pairings.OUR_SERVER, OFTEN, "http") as server,
            behind(proxy, place / proxy, [server]) as url,
        ):
            session = {"name": str(pairing), "mode": pairing.mode, "url": url}
            job.write_text(json.dumps({"sessions": [session], "report": str(report)}))
            await pairings.run_program(pairings.client_command(pairing.peer), job, report)
        seen = json.loads(report.read_text())[str(pairing)]
        runs = transcripts.runs(wire)
        for run in runs:
            run.heads = [head for head in run.heads if not of_a_health_check(head)]
        return Held(pairing, seen, runs)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        for proxy in ("nginx", "haproxy"):
            for pairing in SESSIONS:
                held[proxy, pairing] = runner.run(hold(proxy, pairing))
    return held


@pytest.mark.parametrize("feature", CHECKS | HTTP_CHECKS)
@pytest.mark.parametrize("pairing", SESSIONS, ids=str)
@pytest.mark.parametrize("peer", ["nginx", "haproxy"])
def test_session(
    sessions: dict[tuple[str, Pairing], Held], peer: str, pairing: Pairing, feature: str
) -> None:
    (CHECKS | HTTP_CHECKS)[feature](sessions[peer, pairing])


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("peer", ["nginx", "haproxy"])
async def test_progress_passes_at_once_and_giving_up_reaches_the_server(
    peer: str, era: Any, tmp_path: Path
) -> None:
    """A call reports progress and goes on: the client sees it, and its giving up reaches the
    server."""
    async with (
        pairings.listening(None, pairings.OUR_SERVER, OFTEN, "http") as server,
        behind(peer, tmp_path / "proxy", [server]) as url,
        Client(url, era=era) as client,
    ):
        seen = asyncio.Event()
        call = asyncio.ensure_future(
            client.call_tool("wait", {"tag": "mine"}, on_progress=lambda *values: seen.set())
        )
        async with asyncio.timeout(pairings.START_SECONDS):
            await seen.wait()
            call.cancel()
            await asyncio.wait([call])
            while "mine" not in json.loads((await client.call_tool("noticed")).text):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("peer", ["nginx", "haproxy"])
async def test_giving_up_a_call_that_says_nothing_reaches_the_server(
    peer: str, tmp_path: Path
) -> None:
    """Comments make the call a stream, so the proxy notices that the client left."""
    async with (
        pairings.listening(None, pairings.OUR_SERVER, OFTEN, "http") as server,
        behind(peer, tmp_path / "proxy", [server]) as url,
        Client(url, era="modern") as client,
        asyncio.timeout(pairings.START_SECONDS),
    ):
        call = asyncio.ensure_future(client.call_tool("wait", {"tag": "mine"}))
        await asyncio.wait([call], timeout=1.0)  # without progress nothing says that it runs
        call.cancel()
        while "mine" not in json.loads((await client.call_tool("noticed")).text):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("peer", ["haproxy"])
async def test_sessions_stay_with_their_server(peer: str, tmp_path: Path) -> None:
    """Of two servers each has some sessions: a tool that one session adds is there in every call of
    the session."""
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(
                pairings.listening(None, pairings.OUR_SERVER, OFTEN, "http")
            )
            for _ in range(2)
        ]
        url = await stack.enter_async_context(behind(peer, tmp_path / "proxy", servers))
        clients = [await stack.enter_async_context(Client(url, era="legacy")) for _ in range(6)]
        for _ in range(5):
            for client in clients:
                assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
        names = [{tool.name for tool in await client.list_tools()} for client in clients]
        assert all("add" in found for found in names)
        await clients[0].call_tool("grow", {"name": "late"})
        grown = ["late" in {tool.name for tool in await client.list_tools()} for client in clients]
        assert grown[0] and not all(grown)
