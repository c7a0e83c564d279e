"""Streams whose host is killed at any time: a client that resumes one at another host misses no
event and gets none twice. The hosts are processes. ``WIRESPEED_KILLS=100`` kills 100 of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path
from typing import Any

import h11
import pytest
from lab.hosts import Deployment, Visitor, deployed
from lab.http import call
from lab.store import MakeServer, StoreServer

from wirespeed.cluster.store import STORE_TIMEOUT

pytestmark = pytest.mark.compiled

ROUNDS = int(os.environ.get("WIRESPEED_KILLS", "1"))
CLIENTS = 16
SIZES = [3, 200, 9_000, 20, 70_000, 1]  # of messages: copied ones, and ones that are referred to


class Follower:
    """A client of one stream: what it has seen, over several hosts.

    Attributes:
        steps: The numbers of the progress, in the order in which they came.
        last: The id of the last event.
        over: The error that ended the stream.
    """

    def __init__(self, hosts: Deployment, number: int) -> None:
        self.visitor = Visitor(hosts)
        self.number = number
        self.steps: list[int] = []
        self.last: str | None = None
        self.over: int | None = None

    def _see(self, events: list[dict[str, str]], messages: list[Any]) -> None:
        for event in events:
            self.last = event.get("id", self.last)
        for message in messages:
            if "method" in message:
                self.steps.append(message["params"]["progress"])
            else:
                assert message["id"] == self.number
                self.over = message["error"]["code"]

    async def listen(self, host: str, pause: float) -> None:
        """Read the stream of a call at a host until it breaks."""
        arguments = {"pause": pause, "sizes": SIZES}
        body = call("tell", arguments, self.number, _meta={"progressToken": self.number})
        peer = await self.visitor.send(host, body=body)
        response = await peer.head()
        with contextlib.suppress(h11.RemoteProtocolError, ConnectionError):
            while await peer.more(response):
                pass
        self._see(response.events, response.messages)
        peer.close()

    async def resume(self, host: str) -> None:
        """Read the rest of the stream at another host, when that has the session."""
        assert self.last is not None
        while True:
            response = await self.visitor.ask(
                host, "GET", accept="text/event-stream", last_event_id=self.last
            )
            if response.status not in (502, 503):
                break
            await asyncio.sleep(0.05)
        assert response.status == 200, (self.number, self.last, response.body)
        self._see(response.events, response.messages)


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_each_event_comes_once_and_in_order(
    tmp_path: Path, store_server: StoreServer, number: int
) -> None:
    chance = random.Random(number)
    async with deployed(tmp_path, store_server.url, "a", "b", "c") as hosts:
        clients = [Follower(hosts, n) for n in range(1, CLIENTS + 1)]
        for one in clients:
            await one.visitor.initialize("a")
        await asyncio.sleep(1.5)  # the others have read of a, and the records are written
        streams = [
            asyncio.create_task(one.listen(chance.choice("aab"), chance.uniform(0, 0.003)))
            for one in clients
        ]
        await asyncio.sleep(chance.uniform(0, 1))
        await hosts.kill("a")
        await asyncio.gather(*streams)
        await asyncio.gather(*(one.resume(chance.choice("bc")) for one in clients))
        for one in clients:
            assert one.steps == list(range(len(one.steps))), (one.number, one.steps)
            assert one.over == -31006


async def test_a_stream_of_which_the_store_has_nothing(
    tmp_path: Path, new_store_server: MakeServer
) -> None:
    """Its host is killed before the store has taken the first event."""
    store = new_store_server()
    async with deployed(tmp_path, store.url, "a", "b", store_timeout=STORE_TIMEOUT) as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await asyncio.sleep(1.5)
        store.freeze()
        body = call("wait", {"seconds": 60}, 7, _meta={"progressToken": 7})
        peer = await one.send("a", body=body)
        begun = await peer.head()
        while not begun.events:
            await peer.more(begun)
        await hosts.kill("a")
        store.thaw()
        assert await one.answer("b", "who") == "b"
        rest = await one.ask(
            "b", "GET", accept="text/event-stream", last_event_id=begun.events[0]["id"]
        )
        (answer,) = rest.messages
        assert (answer["id"], answer["error"]["code"]) == (7, -31006)


async def test_a_stream_of_which_the_store_has_less_than_the_client(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """A host that stands still sends what the store does not have, when it goes on."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await asyncio.sleep(1.5)
        body = call("wait", {"seconds": 60}, 7, _meta={"progressToken": 7})
        peer = await one.send("a", body=body)
        begun = await peer.head()
        await peer.until(begun, 1)
        await hosts.kill("a")
        assert await one.answer("b", "who") == "b"
        stream = begun.events[0]["id"].rpartition("-")[0]
        rest = await one.ask("b", "GET", accept="text/event-stream", last_event_id=f"{stream}-9")
        (answer,) = rest.messages
        assert (answer["id"], answer["error"]["code"]) == (7, -31006)
