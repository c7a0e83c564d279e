"""Clients of bare HTTP with 2025-11-25. Each request has a connection of its own, so a balancer
gives each to another host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from clients import ANY, BROKEN, CODES, PATIENCE, REFUSED, STEPS
from lab.hosts import Visitor, Ways
from lab.http import Peer, Response, call, message
from seen import Seen

SAMPLE = {"role": "assistant", "content": {"type": "text", "text": "well"}, "model": "m"}
YES = {"action": "accept", "content": {"value": "yes"}}


class SessionOver(Exception):
    """The session is not known any more."""


class BareClient:
    """A client of bare HTTP with 2025-11-25, in one session. ``asks``: Whether it calls tools that
    ask it something."""

    def __init__(self, seen: Seen, ways: Ways, who: str, *, asks: bool) -> None:
        self.seen = seen
        self._asks = asks
        self._who = who
        self._n = 0
        self.visitor = Visitor(ways)
        self._asked = self._opened = self._subscribed = self._used = time.monotonic()
        self._last: dict[str, int] = {}  # events by the name of their stream
        self._updated = asyncio.Event()
        self._heard: deque[str] = deque(maxlen=20)  # what the stream of the session did last

    async def live(self, pause: float) -> None:
        """Open the session, use it and end it."""
        try:
            await self.visitor.initialize(ANY)
            self._opened = self._used = time.monotonic()
        except (*BROKEN, KeyError):  # a refusal opens no session
            self.seen.outcomes["not opened"] += 1
            await asyncio.sleep(0.1)
            return
        listening = asyncio.create_task(self._listen())
        try:
            while await self._told("resources/subscribe", uri=f"stock://{self._who}") != 200:
                await asyncio.sleep(0.2)
            self._subscribed = time.monotonic()
            for _ in range(self.seen.random.randrange(4, 12)):
                await asyncio.sleep(self.seen.random.uniform(0, 2 * pause))
                await self._use()
            await self._hear_once_more()
            await self._told(None, "DELETE")
        except SessionOver:
            self.seen.outcomes["sessions lost"] += 1
            if not self.seen.may_be_lost(self._asked, self._opened, self._used):
                self.seen.note(
                    f"{self._who} has lost its session, opened at {self._opened:.2f}, now "
                    f"{time.monotonic():.2f}"
                )
        finally:
            self.seen.left(self._who)
            listening.cancel()
            await asyncio.wait([listening])
            if not listening.cancelled() and (exc := listening.exception()) is not None:
                self.seen.note(f"{self._who} listens: {exc!r}")

    async def _use(self) -> None:
        kind = self.seen.random.random()
        if kind < 0.4:
            await self._ask("work", steps=self.seen.random.choice((0, 0, STEPS)), pause=0.05)
        elif kind < 0.6:
            await self._ask("work", steps=STEPS, pause=0.3, leaves=True)
        elif kind < 0.8 and self._asks:
            await self._ask(self.seen.random.choice(("ask", "sample")))
        elif kind < 0.9:
            await self._ask("work", steps=1, pause=10, cancels=True)
        else:
            await self._sell()

    async def _sell(self) -> str:
        return await self._ask("sell", who=self._who)

    async def _told(self, method: str | None, verb: str = "POST", **params: Any) -> int:
        """The status of a request that runs no handler; 0: the connection was lost."""
        self._n += 1
        body = b"" if method is None else message(method, params, f"told {self._n}")
        return await self._status(verb, body)

    async def _status(self, verb: str, body: bytes) -> int:
        try:
            response = await self.visitor.ask(ANY, verb, body=body)
        except BROKEN:
            self.seen.outcomes["connection lost, without a handler"] += 1
            return 0
        if response.status == 200 and "error" in response.json:
            self.seen.outcomes["error, without a handler"] += 1
            if response.json["error"]["code"] not in CODES:
                self.seen.note(f"{self._who}: {response.body!r}")
            return 0
        if response.status in REFUSED:
            self.seen.outcomes[f"status {response.status}, without a handler"] += 1
        if response.status == 404:
            raise SessionOver
        if response.status < 400:
            self._used = time.monotonic()
        if response.status not in (200, 202, 204, *REFUSED):
            self.seen.note(f"{self._who}: {response.status} {response.body!r}")
        return response.status

    # -- requests ------------------------------------------------------------------------------

    async def _ask(
        self, tool: str, *, leaves: bool = False, cancels: bool = False, **arguments: Any
    ) -> str:
        """Call a tool. Returns the outcome."""
        self._n += 1
        nonce = f"{self._who}/{self._n}-{tool}"
        body = call(tool, {**arguments, "nonce": nonce}, self._n, _meta={"progressToken": self._n})
        outcome = "no outcome"
        since = time.monotonic()
        try:
            outcome = await BareCall(self, self._n, nonce, leaves, cancels).run(body)
        except SessionOver:
            outcome = "session over"
            raise
        finally:
            self.seen.ended(since, outcome)
        return outcome

    async def events(
        self, peer: Peer, response: Response, last: str
    ) -> AsyncIterator[tuple[str, Any]]:
        """The events of a response: the last id, and the message or None."""
        self._used = time.monotonic()
        if not response.is_stream:
            while await peer.more(response):
                pass
            yield last, response.json
            return
        n, more = 0, True
        while more:
            more = await peer.more(response)
            for event in response.events[n:]:
                n += 1
                if "id" in event:
                    last = event["id"]
                    self._check_order(last)
                yield last, json.loads(event["data"]) if event.get("data") else None

    def _check_order(self, event_id: str) -> None:
        """Each event of a stream comes once and in order."""
        name, _, number = event_id.rpartition("-")
        n = int(number)
        if n not in ((self._last[name] + 1,) if name in self._last else (0, 1)):
            self.seen.note(f"{self._who}: event {event_id} after {self._last.get(name)}")
        self._last[name] = n

    async def deliver(self, body: bytes) -> None:
        """Send what the server waits for, until a host takes it."""
        for _ in range(100):
            if await self._status("POST", body) in (200, 202):
                return
            await asyncio.sleep(0.1)

    # -- the stream of the session -------------------------------------------------------------

    async def _listen(self) -> None:
        """Hear of updates, and come back for the rest whenever the stream ends."""
        last = ""
        while True:
            peer = None
            with contextlib.suppress(*BROKEN):
                try:
                    fields = {"last_event_id": last} if last else {}
                    self._heard.append(f"{time.monotonic():.2f} GET behind {last or 'nothing'}")
                    peer = await self.visitor.send(ANY, "GET", accept="text/event-stream", **fields)
                    response = await peer.head()
                    self._heard.append(f"{time.monotonic():.2f} status {response.status}")
                    if response.status == 400:
                        last = ""
                    if response.status != 200:
                        self.seen.outcomes[f"status {response.status}, stream"] += 1
                    else:
                        async for reached, said in self.events(peer, response, last):
                            last = reached
                            self._heard.append(f"{time.monotonic():.2f} event {last}")
                            if said is not None:
                                self._hear(said)
                finally:
                    if peer is not None:
                        peer.close()
            await asyncio.sleep(0.2)

    def _hear(self, said: Any) -> None:
        """Take a notification. A host that may have missed changes says that all has changed."""
        if said["method"] == "notifications/resources/updated":
            self._updated.set()
            if said["params"] != {"uri": f"stock://{self._who}"}:
                self.seen.note(f"{self._who} heard {said}")

    async def _hear_once_more(self) -> None:
        """The subscription goes along with the session."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self._updated.clear()
            await self._sell()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(3):
                    await self._updated.wait()
                return
        if not self.seen.may_be_lost(self._asked, self._subscribed, self._used):
            self.seen.note(
                f"{self._who} has lost its subscription of {self._subscribed:.2f}, now "
                f"{time.monotonic():.2f}: {', '.join(self._heard)}"
            )


class BareCall:
    """A call of a tool, whose stream is resumed wherever it breaks.

    Args:
        leaves: Whether the client itself breaks the stream.
        cancels: Whether the client cancels the call when it has heard of it.
    """

    def __init__(
        self, client: BareClient, id: int, nonce: str, leaves: bool, cancels: bool
    ) -> None:
        self._client = client
        self._id = id
        self._nonce = nonce
        self._leaves = leaves
        self._cancels = cancels
        self._last = ""  # event
        self._heard = 0
        self._doing = ""

    def _wrong(self, text: str) -> None:
        self._client.seen.note(f"{self._nonce} {text}")

    async def run(self, body: bytes) -> str:
        """Returns the outcome."""
        since = time.monotonic()
        until = since + PATIENCE
        while time.monotonic() < until:
            try:
                if self._last:
                    fields = {"accept": "text/event-stream", "last_event_id": self._last}
                    outcome = await self._exchange("GET", **fields)
                else:
                    outcome = await self._exchange("POST", body=body)
            except TimeoutError:
                self._wrong(f"heard nothing since {since:.2f}: event {self._last}, {self._doing}")
                return "silence"
            except asyncio.CancelledError:
                self._wrong(f"waits since {since:.2f}: event {self._last}, {self._doing}")
                raise
            except BROKEN:
                outcome = ""
            if outcome:
                return outcome
            if not self._last:
                return "connection lost"
            self._client.seen.outcomes["resumed"] += 1
            await asyncio.sleep(0.1)
        self._wrong("has no outcome")
        return "no outcome"

    async def _exchange(self, method: str, **fields: Any) -> str:
        """Send the request, or one for the rest of its stream. Returns the outcome; empty: the
        stream has ended before it."""
        self._doing = f"{method} of {time.monotonic():.2f}"
        peer = await self._client.visitor.send(ANY, method, **fields)
        try:
            response = await peer.head()
            self._doing += f", status {response.status}"
            if response.status == 404:
                raise SessionOver
            if response.status != 200:
                return await self._refused(peer, response)
            async for reached, said in self._client.events(peer, response, self._last):
                self._last = reached
                if said is not None and "method" not in said:
                    return self._judge(said)
                if said is not None:
                    await self._hear(said)
                if self._leaves and self._last and self._heard:
                    self._leaves = False
                    return ""
            return "cancelled" if self._cancels and self._heard else ""
        finally:
            peer.close()

    async def _refused(self, peer: Peer, response: Response) -> str:
        while await peer.more(response):
            pass
        if response.status in REFUSED and self._last:
            self._client.seen.outcomes[f"status {response.status}, stream"] += 1
            return ""  # later
        if response.status not in REFUSED and not (response.status == 400 and self._last):
            self._wrong(f"got {response.status} {response.body!r}")
        return f"status {response.status}"

    async def _hear(self, said: Any) -> None:
        if "id" in said:
            await self._answer(said)
        if said["method"] != "notifications/progress":
            return
        self._heard += 1
        due = {"progressToken": self._id, "progress": self._heard, "message": self._nonce}
        if due.items() - said["params"].items():
            self._wrong(f"heard {said['params']}, due is {due}")
        if self._cancels:
            await self._client.deliver(message("notifications/cancelled", {"requestId": self._id}))

    def _judge(self, said: Any) -> str:
        if said.get("id") != self._id:
            self._wrong(f"got the answer {said}")
        if "error" in said:
            code = said["error"]["code"]
            if code not in CODES:
                self._wrong(f"{said['error']}")
            return f"error {code}"
        text = said["result"]["content"][0]["text"]
        if text.split(" ")[0] != self._nonce or said["result"].get("isError"):
            self._wrong(f"got {text}")
        return "answered"

    async def _answer(self, question: Any) -> None:
        """Answer a question of a handler, by any host."""
        self._doing = f"asked {question['id']} at {time.monotonic():.2f}"
        if self._nonce not in json.dumps(question["params"]):
            self._wrong(f"was asked {question}")
        result = YES if question["method"] == "elicitation/create" else SAMPLE
        body = json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": result}).encode()
        await self._client.deliver(body)
        self._doing += f", answered by {time.monotonic():.2f}"
