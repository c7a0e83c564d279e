"""The clients of the package, and what measures how soon a session is served again. A nonce is
CLIENT/SESSION/NUMBER-TOOL."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import h11
from lab.hosts import Visitor, Ways
from lab.http import Peer
from seen import Seen

from wirespeed import Client, Http, WebSocket
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    HttpStatusError,
    RemoteError,
    TransportError,
    WirespeedError,
)
from wirespeed.protocol import codes
from wirespeed.types import Accept, ElicitParams, SampleParams, SampleResult

REFUSED = (502, 503, 504)  # nobody can answer now
CODES = (codes.SHUTTING_DOWN, codes.SERVER_LOST, codes.CUT_OFF, codes.STORE_AWAY)
BROKEN = (OSError, h11.ProtocolError, AssertionError)
PATIENCE = 60.0  # seconds of one request; it covers all that heals
ANY = "any"  # the balancer
STEPS = 3


class Places(Ways):
    """The balancer and the hosts, as places of the network."""

    def __init__(self, places: dict[str, tuple[str, int]]) -> None:
        super().__init__({name: port for name, (_, port) in places.items()})
        self._places = places

    def at(self, host: str) -> tuple[str, int]:
        """The address and the port of a place."""
        return self._places[host]

    async def connect(self, host: str) -> Peer:
        return Peer(self.ports[host], *await asyncio.open_connection(*self._places[host]))


class LibraryClient:
    """A client of the package."""

    def __init__(self, seen: Seen, target: Http | WebSocket, era: Any, who: str) -> None:
        self._seen = seen
        self._target = target
        self._era = era
        self._who = who
        self._n = 0

    async def live(self, pause: float) -> None:
        def on_elicit(asked: ElicitParams) -> Accept:
            self._check_question(asked.message)
            return Accept({"value": "yes"})

        async def on_sample(asked: SampleParams) -> SampleResult:
            self._check_question(str(asked))
            return SampleResult(content="well", model="m")

        async def on_elicit_soon(asked: ElicitParams) -> Accept:
            return on_elicit(asked)

        try:
            async with Client(
                self._target, era=self._era, on_elicit=on_elicit_soon, on_sample=on_sample
            ) as client:
                for _ in range(self._seen.random.randrange(4, 12)):
                    await asyncio.sleep(self._seen.random.uniform(0, 2 * pause))
                    await self._use(client)
        except WirespeedError as exc:
            self._seen.outcomes[f"not opened: {self._said(exc)}"] += 1

    def _check_question(self, text: str) -> None:
        if f"{self._who}/" not in text:
            self._seen.wrong.append(f"{self._who} was asked {text}")

    async def _use(self, client: Client) -> None:
        kind = self._seen.random.random()
        if kind < 0.6:
            steps = self._seen.random.choice((0, 0, STEPS))
            await self._ask(client, "work", steps=steps, pause=0.05)
        elif kind < 0.8:
            await self._ask(client, self._seen.random.choice(("ask", "sample")))
        else:
            await self._ask(client, "work", timeout=0.05, steps=1, pause=10)

    async def _ask(
        self, client: Client, tool: str, timeout: float = PATIENCE, **arguments: Any
    ) -> None:
        self._n += 1
        nonce = f"{self._who}/{self._n}-{tool}"
        heard: list[Any] = []
        outcome = "no outcome"
        since = time.monotonic()
        try:
            result = await client.call_tool(
                tool,
                {**arguments, "nonce": nonce},
                timeout=timeout,
                on_progress=lambda done, _, text: heard.append((done, text)),
            )
            outcome = "answered"
            if result.text.split(" ")[0] != nonce or result.is_error:
                self._seen.wrong.append(f"{nonce} got {result.text}")
        except CallTimeout:
            outcome = "cancelled" if timeout < PATIENCE else "no outcome"
            if timeout == PATIENCE:
                self._seen.wrong.append(f"{nonce}: no outcome of {tool}, since {since:.2f}")
        except WirespeedError as exc:
            outcome = self._said(exc)
        finally:
            self._seen.ended(nonce, outcome)
        if heard != [(n, nonce) for n in range(1, len(heard) + 1)]:
            self._seen.wrong.append(f"{nonce} heard {heard}")

    def _said(self, exc: WirespeedError) -> str:
        """The outcome that an error is."""
        if isinstance(exc, RemoteError) and exc.code in CODES:
            return f"error {exc.code}"
        if isinstance(exc, HttpStatusError) and (
            exc.status in REFUSED or "cannot be resumed" in str(exc)
        ):
            return f"status {exc.status}"
        if not isinstance(exc, (TransportError, ConnectionClosed)) or isinstance(
            exc, HttpStatusError
        ):
            self._seen.wrong.append(f"{self._who}: {exc!r}")
        return type(exc).__name__


class Probe:
    """Has a session at a host, and asks the others for it all of the time."""

    def __init__(self, seen: Seen, ways: Places, host: str, others: list[str]) -> None:
        self._seen = seen
        self._ways = ways
        self._host = host
        self._others = others

    async def run(self) -> None:
        n = session = 0
        while not self._seen.is_over:
            session += 1
            visitor = Visitor(self._ways)
            with contextlib.suppress(*BROKEN, KeyError):  # it may open none
                await visitor.initialize(self._host)
                while not self._seen.is_over and self._host not in self._seen.open:
                    await asyncio.sleep(0.1)
                if self._seen.is_over:
                    break
                kind, since = self._seen.open[self._host]
                while self._host in self._seen.open or time.monotonic() < since + 10:
                    others = [one for one in self._others if one not in self._seen.open]
                    if others and "" not in self._seen.open:
                        n += 1
                        nonce = f"probe-{self._host}/{session}/{n}"
                        with contextlib.suppress(*BROKEN):
                            async with asyncio.timeout(1):
                                to = self._seen.random.choice(others)
                                response = await visitor.call(to, "work", nonce=nonce)
                            if response.status == 200:
                                self._seen.adopted[kind].append(time.monotonic() - since)
                                break
                            if response.status == 404:
                                break
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.2)
