"""The clients of the package. A nonce is CLIENT/SESSION/NUMBER-TOOL."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import h11
from lab.hosts import Ways
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
        reader, writer = await asyncio.open_connection(*self._places[host])
        return Peer(self.ports[host], reader, writer, PATIENCE)


class LibraryClient:
    """A client of the package. ``asks``: Whether it calls tools that ask it something."""

    def __init__(
        self, seen: Seen, target: Http | WebSocket, era: Any, who: str, *, asks: bool
    ) -> None:
        self._seen = seen
        self._asks = asks
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
        self._seen.left(self._who)

    def _check_question(self, text: str) -> None:
        if f"{self._who}/" not in text:
            self._seen.note(f"{self._who} was asked {text}")

    async def _use(self, client: Client) -> None:
        kind = self._seen.random.random()
        if kind < 0.6:
            steps = self._seen.random.choice((0, 0, STEPS))
            await self._ask(client, "work", steps=steps, pause=0.05)
        elif kind < 0.8 and self._asks:
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
                self._seen.note(f"{nonce} got {result.text}")
        except CallTimeout:
            outcome = "cancelled" if timeout < PATIENCE else "no outcome"
            if timeout == PATIENCE:
                self._seen.note(f"{nonce}: no outcome of {tool}, since {since:.2f}")
        except WirespeedError as exc:
            outcome = self._said(exc)
        finally:
            self._seen.ended(since, outcome)
        if heard != [(n, nonce) for n in range(1, len(heard) + 1)]:
            self._seen.note(f"{nonce} heard {heard}")

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
            self._seen.note(f"{self._who}: {exc!r}")
        return type(exc).__name__
