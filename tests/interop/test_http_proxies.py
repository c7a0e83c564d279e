"""Our server behind nginx and HAProxy, with the files of the page "Behind a load balancer".

The wire is read between the proxy and the server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import balancers
import pairings
import pytest
import transcripts
from checks import CHECKS, HTTP_CHECKS
from pairings import LATEST_LEGACY, MODERN, Held, Pairing, serving

from wirespeed import Client
from wirespeed.transport.loop import loop_factory

pytestmark = pytest.mark.full("proxies of a system")
# HAProxy notices that a client left when it writes to it: at a comment of the server.
OFTEN = ("--keepalive", "0.2")
SESSIONS = [
    serving("python2", "legacy", LATEST_LEGACY, over="http"),
    serving("python2", "auto", MODERN, probes=True, over="http"),
    serving("ts2", "legacy", LATEST_LEGACY, over="http"),
    serving("ts2", "auto", MODERN, over="http"),
]


FILES = {"nginx": "mcp.conf", "haproxy": "haproxy.cfg"}


@asynccontextmanager
async def behind(proxy: str, folder: Path, server: str) -> AsyncIterator[str]:
    """The URL of a proxy in front of a server."""
    place = urlsplit(server)
    async with balancers.behind(FILES[proxy], folder, [str(place.port)]) as port:
        yield urlunsplit(place._replace(netloc=f"127.0.0.1:{port}"))


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
            behind(proxy, place / proxy, server) as url,
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
        behind(peer, tmp_path / "proxy", server) as url,
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
        behind(peer, tmp_path / "proxy", server) as url,
        Client(url, era="modern") as client,
        asyncio.timeout(pairings.START_SECONDS),
    ):
        call = asyncio.ensure_future(client.call_tool("wait", {"tag": "mine"}))
        await asyncio.wait([call], timeout=1.0)  # without progress nothing says that it runs
        call.cancel()
        while "mine" not in json.loads((await client.call_tool("noticed")).text):
            await asyncio.sleep(0.01)
