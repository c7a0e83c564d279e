"""Who speaks with whom: every session that the tests hold."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ours
import peers
import wire

LATEST_LEGACY = "2025-11-25"
MODERN = "2026-07-28"
OLDER = ("2024-11-05", "2025-03-26", "2025-06-18")
ALL_LEGACY = ",".join((*OLDER, LATEST_LEGACY))
PROGRAM_SECONDS = 150
SPY = [sys.executable, "-I", "-S", str(peers.PROGRAMS / "spy.py")]
OUR_SERVER = [sys.executable, str(peers.PROGRAMS / "our_server.py")]


@dataclass(frozen=True)
class Pairing:
    """One session.

    Attributes:
        peer: Whose program is at the other end.
        serving: Whether our server serves the peer's client; else our client calls its server.
        mode: How the client finds its version: its own word for it.
        version: What both must agree on; "" when the connection must fail.
        options: Arguments of the server.
        error: What the client must say when it must fail.
        probes: The client asks server/discover first.
    """

    peer: str
    serving: bool
    mode: str
    version: str
    options: tuple[str, ...] = ()
    error: str = ""
    probes: bool = field(default=False, compare=False)

    @property
    def modern(self) -> bool:
        return self.version == MODERN

    @property
    def pinned(self) -> bool:
        """The client was told the version and asks the server nothing."""
        return self.peer == "python2" and self.mode == MODERN

    @property
    def group(self) -> tuple[str, bool]:
        return self.peer, self.serving

    def __str__(self) -> str:
        words = [self.mode, *(o.lstrip("-") for o in self.options)]
        words = ["legacy-only" if w == ALL_LEGACY else w for w in words]
        return "-".join([self.peer, "calls-us" if self.serving else "serves-us", *words])


@dataclass
class Held:
    """A session that was held."""

    pairing: Pairing
    report: dict[str, Any]
    runs: list[wire.Run]

    @property
    def run(self) -> wire.Run:
        """The server's life that counts: some clients ask the first question of another."""
        return self.runs[-1]


def serving(peer: str, mode: str, version: str, **more: Any) -> Pairing:
    """A pairing of our server with a peer's client."""
    return Pairing(peer, True, mode, version, **more)


def calling(peer: str, era: str, version: str, **more: Any) -> Pairing:
    """A pairing of our client with a peer's server."""
    return Pairing(peer, False, era, version, probes=era != "legacy", **more)


def only(versions: str) -> tuple[str, ...]:
    """Options of our server: the versions it speaks."""
    return ("--versions", versions)


def server_command(peer: str) -> list[str]:
    """What launches a peer's server."""
    if peer.startswith("ts"):
        return peers.node(f"{peer}_server.mjs")
    if peer == "time":
        return [peers.python("time"), "-m", "mcp_server_time", "--local-timezone", "UTC"]
    return [peers.python(peer), str(peers.PROGRAMS / f"{peer}_server.py")]


def client_command(peer: str) -> list[str]:
    """What launches a peer's client."""
    if peer.startswith("ts"):
        return peers.node(f"{peer}_client.mjs")
    return [peers.python(peer), str(peers.PROGRAMS / f"{peer}_client.py")]


def hold(pairings: list[Pairing], folder: Path) -> dict[Pairing, Held]:
    """Hold the sessions of one group; their wires are written below the folder."""
    peer, serving = pairings[0].group
    folders = {pairing: folder / f"{number}" for number, pairing in enumerate(pairings)}
    for place in folders.values():
        place.mkdir(parents=True)
    if serving:
        reports = _their_client(peer, folders, folder)
    else:
        command = server_command(peer)
        jobs = {
            pairing: ours.Session(_spied(place, command, pairing), pairing.mode).hold
            for pairing, place in folders.items()
        }
        reports = _our_client(jobs)
    return {
        pairing: Held(pairing, reports[pairing], wire.runs(place))
        for pairing, place in folders.items()
    }


def _spied(place: Path, command: list[str], pairing: Pairing) -> list[str]:
    return [*SPY, str(place), *command, *pairing.options]


def _their_client(
    peer: str, folders: dict[Pairing, Path], folder: Path
) -> dict[Pairing, dict[str, Any]]:
    job = folder / "job.json"
    report = folder / "report.json"
    sessions = [
        {"name": str(pairing), "mode": pairing.mode, "command": _spied(place, OUR_SERVER, pairing)}
        for pairing, place in folders.items()
    ]
    job.write_text(json.dumps({"sessions": sessions, "report": str(report)}))
    done = subprocess.run(
        [*client_command(peer), str(job)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PROGRAM_SECONDS,
    )
    if done.returncode or not report.exists():
        raise AssertionError(
            f"the client of {peer} ended with {done.returncode}:\n{done.stderr[-4000:]}"
        )
    named = json.loads(report.read_text())
    return {pairing: named[str(pairing)] for pairing in folders}


def _our_client(
    jobs: dict[Pairing, Callable[[], Any]],
) -> dict[Pairing, dict[str, Any]]:
    async def main() -> dict[Pairing, dict[str, Any]]:
        two = asyncio.Semaphore(2)

        async def one(hold: Callable[[], Any]) -> dict[str, Any]:
            async with two:
                report: dict[str, Any] = await hold()
                return report

        reports = await asyncio.gather(*map(one, jobs.values()))
        return dict(zip(jobs, reports, strict=True))

    return asyncio.run(main())
