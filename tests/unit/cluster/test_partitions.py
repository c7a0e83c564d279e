"""One owner at most, however the network between hosts and the store is cut."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.hosts import Visitor
from lab.partition import STORE, Partition, divided
from lab.store import StoreServer

pytestmark = pytest.mark.compiled

LONGER = 6.0  # seconds: more than an entry and a lease live


class Watch:
    """Asks all hosts for the session of one, all the time, and notes who answers.

    Attributes:
        visitor: Who has the session.
        heard: When each answer was asked for and there, and by whom.
        refused: Whom the client asked in vain, since the last look.
    """

    def __init__(self, net: Partition, name: str, group: asyncio.TaskGroup) -> None:
        self.visitor = Visitor(net.hosts)
        self.name = name
        self.heard: list[tuple[float, float, str]] = []
        self.refused: set[str] = set()
        self.answered: set[tuple[str, str]] = set()
        self._group = group
        self._tasks: list[asyncio.Task[None]] = []

    def ask_always(self, *hosts: str) -> None:
        for host in hosts:
            self._tasks.append(self._group.create_task(self._ask_always(host)))

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.check()

    async def _ask_always(self, host: str) -> None:
        while True:
            began = time.monotonic()
            response = await self.visitor.call(host, "who")
            if response.status == 200:
                last = (response.messages if response.is_stream else [response.json])[-1]
                if "result" in last:
                    owner = last["result"]["content"][0]["text"]
                    self.heard.append((began, time.monotonic(), owner))
                    self.answered.add((host, owner))
                else:
                    assert last["error"]["code"] == -31006, last  # its host was lost
            else:
                assert response.status in (502, 503), response.body
                self.refused.add(host)
            await asyncio.sleep(0.05)

    def check(self) -> list[str]:
        """The owners, one after another. None had the session again, nor two at a time."""
        owners: list[str] = []
        for _, _, owner in sorted(self.heard):
            if owner not in owners:
                owners.append(owner)
        for earlier, later in itertools.pairwise(owners):
            begun = max(began for began, _, owner in self.heard if owner == earlier)
            first = min(there for _, there, owner in self.heard if owner == later)
            assert begun < first, (earlier, begun, later, first)
        return owners

    async def until(self, host: str, *owners: str) -> str:
        """Wait until a host's answer comes from one of some owners."""
        self.answered.clear()
        while not self.answered & {(host, owner) for owner in owners}:
            await asyncio.sleep(0.02)
        return next(owner for owner in owners if (host, owner) in self.answered)


@contextlib.asynccontextmanager
async def watched(
    folder: Path, store: StoreServer, names: str, watching: str, **options: Any
) -> AsyncIterator[tuple[Partition, list[Watch]]]:
    """Hosts with one letter each, whose network can be cut, and a session of each that is watched,
    which is in the store."""
    async with divided(folder, store, *names, **options) as net, asyncio.TaskGroup() as group:
        watches = [Watch(net, name, group) for name in watching]
        for one in watches:
            while "mcp_session_id" not in one.visitor.fields:
                with contextlib.suppress(KeyError):  # a host without a lease opens no session
                    await one.visitor.initialize(one.name)
        await asyncio.sleep(1.2)
        for one in watches:
            one.ask_always(*net.hosts.hosts)
        for one in watches:
            for host in net.hosts.hosts:
                await one.until(host, one.name)
        yield net, watches
        for one in watches:
            one.end()


async def stays(watches: list[Watch], refused: set[str]) -> None:
    """For long, sessions stay at their hosts, and some other hosts do not find them."""
    await asyncio.sleep(LONGER)
    for one in watches:
        one.refused.clear()
    await asyncio.sleep(1)
    for one in watches:
        assert one.check() == [one.name]
        assert one.refused == refused


async def test_one_host_is_cut_off(tmp_path: Path, store_server: StoreServer) -> None:
    async with watched(tmp_path, store_server, "abc", "ab") as (net, (of_a, of_b)):
        net.cut({"a"}, {"b", "c", STORE})
        owner = await of_a.until("b", "b", "c")
        assert await of_a.until("c", owner) == owner
        assert of_a.check() == ["a", owner]
        net.heal()
        assert await of_a.until("a", owner) == owner
        assert of_b.check() == ["b"]


async def test_one_of_two_hosts_is_cut_off(tmp_path: Path, store_server: StoreServer) -> None:
    async with watched(tmp_path, store_server, "ab", "a") as (net, (of_a,)):
        net.cut({"a"}, {"b", STORE})
        await of_a.until("b", "b")
        net.heal()
        await of_a.until("a", "b")
        assert of_a.check() == ["a", "b"]


async def test_a_majority_is_cut_off_together(tmp_path: Path, store_server: StoreServer) -> None:
    """It goes on, and the host that reaches the store does not adopt."""
    async with watched(tmp_path, store_server, "abc", "ab") as (net, watches):
        net.cut({"a", "b"}, {"c", STORE})
        await stays(watches, {"c"})
        net.heal()
        for one in watches:
            await one.until("c", one.name)


async def test_a_majority_does_not_reach_the_store(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """It hears that another host does, and gives its sessions up."""
    async with watched(tmp_path, store_server, "abc", "ab") as (net, watches):
        net.cut({"a", "b", "c"}, {"c", STORE})
        for one in watches:
            await one.until("c", "c")


async def test_connections_between_hosts_that_open_slowly(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """Those to hosts that have no entry stay open, too."""
    async with watched(tmp_path, store_server, "abc", "a") as (net, (of_a,)):
        net.pause = 0.6
        net.cut({"a", "b", "c"}, {"c", STORE})
        await of_a.until("c", "c")


async def test_the_store_comes_and_goes_for_the_host_that_adopts(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """Hosts whose leases are over do not hold each other's sessions back meanwhile."""
    async with (
        watched(tmp_path, store_server, "abc", "ab") as (net, watches),
        asyncio.TaskGroup() as group,
    ):
        net.cut({"a", "b", "c"}, {"c", STORE})
        for one in watches:
            one.refused.clear()
            while one.name not in one.refused:
                await asyncio.sleep(0.02)

        async def come_and_go() -> None:
            while True:
                net.cut({"a", "b", "c"}, {STORE})
                await asyncio.sleep(1.5)
                net.cut({"a", "b", "c"}, {"c", STORE})
                await asyncio.sleep(1.5)

        task = group.create_task(come_and_go())
        for one in watches:
            await one.until("c", "c")
        task.cancel()


async def test_all_are_cut_off_from_the_store(tmp_path: Path, store_server: StoreServer) -> None:
    async with watched(tmp_path, store_server, "abc", "ac") as (net, watches):
        net.cut({"a", "b", "c"}, {STORE})
        await stays(watches, set())
        net.heal()
        await asyncio.sleep(2)
        for one in watches:
            await one.until("b", one.name)


async def test_a_host_joins_that_the_others_do_not_know(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with watched(tmp_path, store_server, "abc", "ab") as (net, watches):
        net.cut({"a", "b", "c"}, {"d", STORE})
        await net.start("d")
        for one in watches:
            one.ask_always("d")
        await stays(watches, {"d"})
        net.heal()
        for one in watches:
            await one.until("d", one.name)


async def test_a_host_starts_again_elsewhere(tmp_path: Path, store_server: StoreServer) -> None:
    """The process before it lives, cut off with a majority."""
    async with watched(tmp_path, store_server, "ab", "ab") as (net, watches):
        net.cut({"a", "b"}, {"b'", STORE})
        await net.start("b'")
        for one in watches:
            one.ask_always("b'")
        await stays(watches, {"b'"})


async def test_a_majority_that_is_cut_off_for_long(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with watched(tmp_path, store_server, "abc", "ab", without_store=8.0) as (net, watches):
        net.cut({"a", "b"}, {"c", STORE})
        await asyncio.sleep(LONGER)
        for one in watches:
            assert one.check() == [one.name]
        for one in watches:
            await one.until("c", "c")
        net.heal()
        for one in watches:
            await one.until(one.name, "c")


async def test_a_majority_is_killed(tmp_path: Path, store_server: StoreServer) -> None:
    """Nobody knows that it is not cut off: its sessions are adopted later."""
    async with divided(tmp_path, store_server, "a", "b", "c", without_store=8.0) as net:
        one = Visitor(net.hosts)
        await one.initialize("a")
        await asyncio.sleep(1.2)
        for name in "ab":
            await net.hosts.kill(name)
        assert await one.answer("c", "who") == "c"
