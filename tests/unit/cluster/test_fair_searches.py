"""A client that asks for many sessions that nobody has makes no other client wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lab.hosts import Visitor, Ways
from lab.http import Peer, call, serving
from lab.session import Lab
from lab.store import StoreServer, free_port

from wirespeed import HttpOptions, HttpRequest, User
from wirespeed.cluster import SessionHosts
from wirespeed.peer.http.adoption import AT_ONCE, MAX_HELD, SearchTurns

pytestmark = pytest.mark.compiled

SECRET = b"s" * 16


class Slow(SessionHosts):
    """Hosts of which no session is found until somebody says so.

    Attributes:
        asked: For whose sessions it was asked, in that order.
        answers: How many of these searches may end.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked: list[bytes | None] = []
        self.answers = asyncio.Semaphore(0)

    async def find(
        self, session_id: str, principal: bytes | None, lost_by: Any = None, unreached: Any = None
    ) -> bool:
        self.asked.append(principal)
        await self.answers.acquire()
        return False

    async def until(self, n: int) -> None:
        """Wait for n searches."""
        while len(self.asked) < n:
            await asyncio.sleep(0.01)


class SlowHost:
    """A host with such a directory, and its clients."""

    def __init__(self, store: StoreServer) -> None:
        self.ways = Ways({"a": free_port()})
        self.url = f"http://127.0.0.1:{self.ways.ports['a']}"
        self.directory = Slow(store.cluster(), "lab", self.url, secret=SECRET)
        self._n_requests = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        def who(request: HttpRequest) -> User:
            self._n_requests += 1
            return User(request.token or "")

        http = HttpOptions(directory=self.directory, name="a")
        url = f"{self.url}/mcp"
        async with serving(Lab().server, url=url, http=http, authenticate=who):
            yield
        self.ways.close()

    async def send(self, name: str, n: int, size: int = 1) -> list[Peer]:
        """Send requests of a client, each of another session that nobody has. The host has them."""
        one, sent = Visitor(self.ways, name), []
        until = self._n_requests + n
        for number in range(n):
            one.fields["mcp_session_id"] = f"b.0.{number:032}"
            sent.append(await one.send("a", body=call("echo", {"text": size * "x"})))
        while self._n_requests < until:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # they wait
        return sent


async def test_a_client_with_many_searches(store_server: StoreServer) -> None:
    host = SlowHost(store_server)
    async with host.serving():
        many = await host.send("anne", AT_ONCE + 40)
        assert len(host.directory.asked) == AT_ONCE
        (bob,) = await host.send("bob", 1)
        more = await host.send("carol", 3)
        for _ in range(6):
            host.directory.answers.release()
        await host.directory.until(AT_ONCE + 6)
        found = host.directory.asked
        letters = dict(zip(dict.fromkeys(found), "ABC", strict=True))  # Anne, Bob, Carol
        assert "".join(letters[one] for one in found[AT_ONCE:]) == "ABCACA"
        for _ in range(AT_ONCE + 40):
            host.directory.answers.release()
        for peer in (bob, *more, *many):
            assert (await peer.response()).status == 404


async def test_a_client_with_long_requests(store_server: StoreServer) -> None:
    """Bodies that wait are bounded for each client. One body always has room."""
    host = SlowHost(store_server)
    async with host.serving():
        waiting = []
        for client in ("anne", "bob"):
            waiting += await host.send(client, 1, MAX_HELD)
            (refused,) = await host.send(client, 1, MAX_HELD)
            assert (await refused.response()).status == 503
        for _ in range(3):
            host.directory.answers.release()
        for peer in waiting:
            assert (await peer.response()).status == 404
        (again,) = await host.send("anne", 1, MAX_HELD)
        assert (await again.response()).status == 404


async def test_a_client_that_leaves_does_not_wait(store_server: StoreServer) -> None:
    """Its session is not looked for."""
    host = SlowHost(store_server)
    async with host.serving():
        many = await host.send("anne", AT_ONCE + 40)
        for peer in many[AT_ONCE:]:
            peer.writer.transport.abort()
        await asyncio.sleep(0.1)  # the host has heard of it
        (bob,) = await host.send("bob", 1)
        for _ in range(AT_ONCE + 1):
            host.directory.answers.release()
        for peer in (bob, *many[:AT_ONCE]):
            assert (await peer.response()).status == 404
        assert len(host.directory.asked) == AT_ONCE + 1


async def test_turns_of_those_that_leave() -> None:
    """Others get them, whether they were given or not."""
    turns = SearchTurns(1)
    await turns.take("a")
    tasks = [asyncio.create_task(turns.take(client)) for client in "bcd"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    turns.give()
    tasks[0].cancel()
    await tasks[2]
    turns.give()
    await turns.take("a")
    assert [task.cancelled() for task in tasks] == [True, True, False]
