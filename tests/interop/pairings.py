"""Who speaks with whom: every session that the tests hold."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ours
import peers
import transcripts
from wire_recorder import Conversation

from wirespeed import WebSocket
from wirespeed.transport.loop import loop_factory

LATEST_LEGACY = "2025-11-25"
MODERN = "2026-07-28"
OLDER = ("2024-11-05", "2025-03-26", "2025-06-18")
ALL_LEGACY = ",".join((*OLDER, LATEST_LEGACY))
PROGRAM_SECONDS = 150
START_SECONDS = 120
SPY = [sys.executable, "-E", "-s", "-S", str(peers.PROGRAMS / "spy.py")]
SPIES = {
    "stdio": SPY,
    "ws": [*SPY[:-1], str(peers.PROGRAMS / "ws_spy.py")],
    "http": [*SPY[:-1], str(peers.PROGRAMS / "http_spy.py")],
}
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
        over: What carries the messages: "stdio", "ws" or "http".
    """

    peer: str
    serving: bool
    mode: str
    version: str
    options: tuple[str, ...] = ()
    error: str = ""
    probes: bool = field(default=False, compare=False)
    over: str = "stdio"

    @property
    def modern(self) -> bool:
        return self.version == MODERN

    @property
    def compressed(self) -> bool:
        """permessage-deflate is agreed upon."""
        return "--compression" in self.options

    @property
    def pinned(self) -> bool:
        """The client was told the version and asks the server nothing."""
        return self.peer == "python2" and self.mode == MODERN

    @property
    def group(self) -> tuple[str, bool, str]:
        return self.peer, self.serving, self.over

    def __str__(self) -> str:
        words = [self.mode, *(o.lstrip("-") for o in self.options)]
        words = ["legacy-only" if w == ALL_LEGACY else w for w in words]
        peer = self.peer if self.over == "stdio" else f"{self.peer}-{self.over}"
        return "-".join([peer, "calls-us" if self.serving else "serves-us", *words])


@dataclass
class Held:
    """A session that was held."""

    pairing: Pairing
    report: dict[str, Any]
    runs: list[transcripts.Run]

    @property
    def run(self) -> transcripts.Run:
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


def unfit(run: transcripts.Run, serving: bool) -> list[str]:
    """What our side of a session wrote and its revision does not know, by our own tables."""
    conversation = Conversation("server" if serving else "client")
    ours = "<" if serving else ">"
    for side, line in run.wire:
        conversation.hear(side == ours, line.encode())
    return conversation.problems


Outcome = Held | Exception


def hold(pairings: list[Pairing], folder: Path) -> dict[Pairing, Outcome]:
    """Hold sessions, two at a time; their wires are written below the folder.

    What fails as a whole, as an installation or a peer's program, is the outcome of each pairing.
    """
    groups: dict[tuple[str, bool, str], dict[Pairing, Path]] = {}
    for number, pairing in enumerate(pairings):
        groups.setdefault(pairing.group, {})[pairing] = folder / f"{number}"

    async def main() -> dict[Pairing, Outcome]:
        two = asyncio.Semaphore(2)
        held: dict[Pairing, Outcome] = {}
        tasks = [_hold_group(two, *group, folders) for group, folders in groups.items()]
        for outcomes in await asyncio.gather(*tasks):
            held |= outcomes
        return held

    # no thread of ours may format a traceback while pytest does: CPython 3.11 cannot (gh-106905)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main())


async def _hold_group(
    two: asyncio.Semaphore, peer: str, serving: bool, over: str, folders: dict[Pairing, Path]
) -> dict[Pairing, Outcome]:
    for place in folders.values():
        place.mkdir(parents=True)
    try:
        async with two:
            command = await asyncio.to_thread(client_command if serving else server_command, peer)
            if serving:
                reports = await _their_client(command, folders)
        if not serving:
            tasks = [
                _our_client(two, command, pairing, place) for pairing, place in folders.items()
            ]
            reports = dict(zip(folders, await asyncio.gather(*tasks), strict=True))
    except Exception as exc:
        return dict.fromkeys(folders, exc)
    return {
        pairing: Held(pairing, reports[pairing], transcripts.runs(place))
        for pairing, place in folders.items()
    }


def spied(
    place: Path, command: list[str], options: tuple[str, ...] = (), over: str = "stdio"
) -> list[str]:
    """A server's command, with its wire written down in a folder."""
    variables = peers.our_variables() if command[0] == sys.executable else []
    if over != "stdio":
        options = (*options, f"--{over}")
    return [*SPIES[over], str(place), *variables, "--", *command, *options]


@asynccontextmanager
async def listening(
    place: Path | None, command: list[str], options: tuple[str, ...] = (), over: str = "ws"
) -> AsyncIterator[str]:
    """A server over WebSocket, HTTP or HTTP+SSE: the URL for its clients. Its wire is written down
    in the folder, if there is one; nothing can be read of TLS.

    It is told to end by SIGTERM.
    """
    direct = [*command, *options, f"--{over}"]
    spying = direct if place is None else spied(place, command, options, over)
    env = None if command == OUR_SERVER and place is None else peers.environment()
    async with started(spying, env) as url:
        if not url:
            said = "" if place is None else "".join(r.stderr for r in transcripts.runs(place))
            raise AssertionError(f"{command[-1]} does not listen:\n{said[-4000:]}")
        yield url


@asynccontextmanager
async def started(command: list[str], env: dict[str, str] | None) -> AsyncIterator[str]:
    """A program that runs: the first line that it prints, empty if it ended without one. SIGTERM
    tells it to end."""
    child = await asyncio.create_subprocess_exec(
        *command,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        line = await asyncio.wait_for(child.stdout.readline(), START_SECONDS)
        if not line:
            await child.wait()
        yield line.decode().strip()
    finally:
        if child.returncode is None:
            child.terminate()
        try:
            await asyncio.wait_for(child.wait(), START_SECONDS)
        except TimeoutError:
            child.kill()
            await child.wait()
            raise


async def _our_client(
    two: asyncio.Semaphore, command: list[str], pairing: Pairing, place: Path
) -> dict[str, Any]:
    async with two:
        if pairing.over != "stdio":
            async with listening(place, command, pairing.options, pairing.over) as url:
                websocket = pairing.over == "ws"
                target = WebSocket(url, compression=pairing.compressed) if websocket else url
                return await ours.Ours(target, pairing.mode).hold()
        return await ours.Ours(spied(place, command, pairing.options), pairing.mode).hold()


async def _their_client(
    command: list[str], folders: dict[Pairing, Path]
) -> dict[Pairing, dict[str, Any]]:
    first = next(iter(folders.values()))
    job = first.with_suffix(".job.json")
    report = first.with_suffix(".report.json")
    async with AsyncExitStack() as servers:
        sessions: list[dict[str, Any]] = []
        for pairing, place in folders.items():
            session: dict[str, Any] = {"name": str(pairing), "mode": pairing.mode}
            if pairing.over != "stdio":
                server = listening(place, OUR_SERVER, pairing.options, pairing.over)
                session["url"] = await servers.enter_async_context(server)
            else:
                session["command"] = spied(place, OUR_SERVER, pairing.options)
            sessions.append(session)
        job.write_text(json.dumps({"sessions": sessions, "report": str(report)}))
        await run_program(command, job, report)
    named = json.loads(report.read_text())
    return {pairing: named[str(pairing)] for pairing in folders}


async def run_program(command: list[str], job: Path, report: Path) -> None:
    """Run a peer's program, which takes a job and writes a report."""
    child = await asyncio.create_subprocess_exec(
        *command,
        str(job),
        env=peers.environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, stderr = await asyncio.wait_for(child.communicate(), PROGRAM_SECONDS)
    except TimeoutError:
        child.kill()
        await child.wait()
        raise
    if child.returncode or not report.exists():
        said = stderr.decode(errors="replace")[-4000:]
        raise AssertionError(f"{command[-1]} ended with {child.returncode}:\n{said}")


async def follow(peer: str, folder: Path, script: list[Any], **session: Any) -> dict[str, Any]:
    """The report of a peer's client that goes through a script; see `programs.steps`."""
    command = await asyncio.to_thread(client_command, peer)
    job, report = folder / "job.json", folder / "report.json"
    sessions = [{"name": peer, "mode": "legacy", "script": script, **session}]
    job.write_text(json.dumps({"sessions": sessions, "report": str(report)}))
    await run_program(command, job, report)
    found: dict[str, Any] = json.loads(report.read_text())[peer]
    return found


async def said(*command: str) -> tuple[int, str]:
    """The exit status of a program, and what it printed."""
    child = await asyncio.create_subprocess_exec(
        *command,
        env=peers.environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(START_SECONDS):
        out, _ = await child.communicate()
    assert child.returncode is not None
    return child.returncode, out.decode()
