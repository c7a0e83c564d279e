"""Places of clients with servers of their own, in a process, over workers and over hosts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.hosts import Visitor
from lab.http import LEGACY, Response
from lab.principals import TOKENS
from lab.proxy import MODERN, Lab
from lab.proxy_hosts import ProxyHosts, proxies, tea, two_of
from lab.raw import FOREVER
from lab.store import MakeServer, StoreServer

from wirespeed import Limits
from wirespeed.cluster import Cluster
from wirespeed.cluster.places import RedisPlaces
from wirespeed.proxy.affinity import Seals
from wirespeed.proxy.flow.host_table import HostTable
from wirespeed.proxy.flow.places import HostPlaces, ProcessPlaces
from wirespeed.proxy.hosts.membership import Membership
from wirespeed.proxy.isolation.assignment import assignment_of
from wirespeed.proxy.operation.meter import Meter


def test_of_one_process() -> None:
    places = ProcessPlaces()
    assert [places.take(2, 1) for _ in range(3)] == [0, 0, 1]
    assert places.take(3, 1) == 0  # the limit has changed
    assert places.take(1, 1) == 3  # and once more
    places.give_back()
    places.give_back()
    assert [places.take(2, 1) for _ in range(2)] == [0, 1]


def test_of_all_workers() -> None:
    table = HostTable()
    one, two = (HostPlaces(table, "tea", worker, 2) for worker in range(2))
    other = HostPlaces(table, "other", 1, 2)
    assert [places.take(3, 1) for places in (one, one, two, one, two)] == [0, 0, 0, 1, 1]
    assert two.take(1, 1) == 3
    assert [other.take(1, 1), other.take(1, 1)] == [0, 1]
    one.give_back()
    assert [two.take(3, 1), one.take(3, 1)] == [0, 1]
    again = HostPlaces(table, "tea", 1, 2)  # that worker has died, and another one is there
    assert [again.take(3, 1) for _ in range(3)] == [0, 0, 1]


def test_a_worker_with_less_than_its_part() -> None:
    """It has a claim to the next place."""
    table = HostTable()
    one, two = (HostPlaces(table, "tea", worker, 2) for worker in range(2))
    assert [one.take(3, 1) for _ in range(3)] == [0, 0, 0]
    assert not one.is_claimed()
    assert two.take(3, 1) == 1
    assert one.is_claimed() and not two.is_claimed()
    one.give_back()
    assert not one.is_claimed()
    assert one.take(3, 1) == 1
    assert two.take(3, 1) == 0
    assert two.take(3, 1) == 1 and not one.is_claimed()  # it has its part
    one.give_back()
    assert one.take(3, 1) == 0


@pytest.mark.parametrize("isolation", ["session", "auto"])
async def test_a_worker_that_takes_the_place_of_another_one(tmp_path: Path, isolation: str) -> None:
    """The clients of the earlier one have left with it."""
    table = HostTable()
    dead, other = (HostPlaces(table, "tea", worker, 2) for worker in range(2))
    assert dead.take(1, 1) == 0
    member = Membership()
    member.fork(2)
    member.count_together(table)
    member.share(0)
    (config,) = Lab(tmp_path, isolation, versions=MODERN, name="tea").proxy.config.backends
    seals = Seals("tea", member, is_process=True)
    assignment = assignment_of(config, Limits(), Meter(), seals)
    await assignment.start()
    try:
        assert other.take(1, 1) == 0
    finally:
        await assignment.stop()


@contextlib.asynccontextmanager
async def process(
    store: StoreServer, server: str = "tea", *, is_local: bool = False
) -> AsyncIterator[RedisPlaces]:
    """The places of a process, which has a part of them while the store is away."""
    places = RedisPlaces(Cluster(store.url), "proxy", server, is_local=is_local)
    try:
        yield places
    finally:
        await places.close()


async def taken(places: RedisPlaces, n: int, limit: int) -> int:
    """Of n clients that come at once, how many get a place."""
    return (await asyncio.gather(*(places.take(limit, 1) for _ in range(n)))).count(0)


async def test_of_all_hosts(store_server: StoreServer) -> None:
    async with (
        process(store_server) as one,
        process(store_server) as two,
        process(store_server, "other") as other,
    ):
        assert await taken(one, 2, 5) == 2
        found = await asyncio.gather(taken(one, 5, 5), taken(two, 5, 5))
        assert sum(found) == 3
        assert await taken(other, 3, 2) == 2
        one.give_back()
        one.give_back()
        for _ in range(2):
            while await two.take(5, 1):
                await asyncio.sleep(0.01)
        assert await two.take(5, 1) == 1 and await two.take(3, 1) == 3
        assert await taken(one, 1, 6) == 1
        for key in store_server.ask("KEYS", "*places1*"):
            assert 0 < store_server.ask("PTTL", key) <= 10_000


async def test_a_process_with_less_than_its_part(store_server: StoreServer) -> None:
    async with process(store_server) as one, process(store_server) as two:
        assert await taken(one, 3, 3) == 3
        assert await two.take(3, 1) == 1
        async with asyncio.timeout(FOREVER):
            while not one.is_claimed():
                await asyncio.sleep(0.05)
        assert not one.is_claimed() and not two.is_claimed()  # it says so once
        one.give_back()
        while await two.take(3, 1):
            assert await one.take(3, 1) == 1
        assert await two.take(3, 1) == 1
        one.give_back()
        while await one.take(3, 1):
            await asyncio.sleep(0.01)


async def test_a_process_that_is_gone(store_server: StoreServer) -> None:
    """Its number counts until it should have been renewed. What another program wrote counts
    nothing."""
    async with process(store_server) as one:
        assert await taken(one, 2, 2) == 2
        (key,) = store_server.ask("KEYS", "*places1*")
        ((name, text),) = store_server.ask("HGETALL", key).items()
        n, _, until = text.partition(" ")
        assert n == "2" and await taken(one, 1, 2) == 0
        store_server.ask("HSET", key, name, f"{n} {int(until) - 10_000}", "other", "many 5")
        assert await taken(one, 3, 2) == 2
        assert list(store_server.ask("HGETALL", key)) == [name]


@pytest.mark.parametrize("is_local", [False, True])
async def test_while_the_store_is_away(new_store_server: MakeServer, is_local: bool) -> None:
    """A process has its part of the limit. When the store is back, it hears how many there are."""
    store = new_store_server()
    async with process(store, is_local=is_local) as places:
        store.kill()
        assert await taken(places, 3, 5) == is_local
        assert await places.take(5, 1) == 1
        store.start()
        while await taken(places, 1, 5) == 0:
            await asyncio.sleep(0.1)
        told = ""
        while told != str(is_local + 1):
            for key in store.ask("KEYS", "*places1*"):
                told = store.ask("HVALS", key)[0].partition(" ")[0]
            await asyncio.sleep(0.1)


async def test_a_client_that_leaves_as_its_process_ends(new_store_server: MakeServer) -> None:
    """Its place is given back before the process ends. The connection to the store is closed."""
    store = new_store_server()
    cluster = store.cluster()
    places = RedisPlaces(cluster, "proxy", "tea", is_local=True)
    store.freeze()
    over = places.take(4, 2)
    over.add_done_callback(lambda _: places.give_back())
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(places.close())
    await asyncio.sleep(0.01)
    store.thaw()
    await closing
    assert await over == 0
    await asyncio.sleep(0.01)
    assert cluster.state == "idle"


# -- processes -------------------------------------------------------------------------------------


PRINCIPALS = [{"name": name, "token": TOKENS[name]} for name in ("anne", "bob")]


@contextlib.asynccontextmanager
async def four_places(
    folder: Path, where: str, store: StoreServer, **options: Any
) -> AsyncIterator[tuple[ProxyHosts, str]]:
    """Two workers or hosts whose clients have four places together, and the names of the hosts."""
    names, of_kind = two_of(where, store)
    servers = {"tea": tea(folder, "session", maxClients=4)}
    async with proxies(folder, *names, servers=servers, **of_kind, **options) as hosts:
        yield hosts, names


def processes(folder: Path) -> int:
    """The number of servers of a folder that run."""
    found = 0
    for one in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            found += one.name.isdecimal() and str(folder / "tea.py").encode() in (
                one / "cmdline"
            ).read_bytes().split(b"\0")
    return found


async def until_few(folder: Path, n: int) -> None:
    """Wait until n servers of a folder run at most: that of a client that has made room ends a
    little later."""
    async with asyncio.timeout(FOREVER):
        while processes(folder) > n:
            await asyncio.sleep(0.05)


async def opened(hosts: ProxyHosts, name: str, **fields: Any) -> Response:
    """The answer to `initialize` on a connection of its own."""
    peer = await hosts.connect(name)
    try:
        return await peer.initialize(**fields)
    finally:
        peer.close()


async def listening(hosts: ProxyHosts, name: str, **fields: Any) -> Response:
    """The answer to `initialize`. The session has an open stream then: it does not make room,
    however long the others take."""
    peer = await hosts.connect(name)
    response = await peer.initialize(**fields)
    if response.status == 200:
        fields["mcp_session_id"] = response.headers["mcp-session-id"]
        peer.send("GET", accept="text/event-stream", mcp_protocol_version=LEGACY, **fields)
        assert (await peer.head()).status == 200
    return response


@pytest.mark.own_environment
@pytest.mark.compiled
@pytest.mark.parametrize("where", ["workers", "hosts"])
async def test_clients_with_servers_of_their_own(
    tmp_path: Path, store_server: StoreServer, where: str
) -> None:
    """`maxClients` bounds those of all workers and hosts together."""
    async with four_places(tmp_path, where, store_server) as (hosts, names):
        refused = 0
        for _ in range(8):
            for name in names:
                response = await opened(hosts, name)
                refused += response.json.get("error", {}).get("code") == -31000
                await until_few(tmp_path, 4)
        assert refused or processes(tmp_path) == 4


@pytest.mark.own_environment
@pytest.mark.compiled
@pytest.mark.parametrize("where", ["workers", "hosts"])
async def test_no_process_refuses_while_another_has_room(
    tmp_path: Path, store_server: StoreServer, where: str
) -> None:
    """One host may have all `maxClients`. Those of a host that is killed are free soon."""
    four = {name: name.ljust(32, "x") for name in ("anne", "bob", "carol", "dave")}
    principals = [{"name": name, "token": token} for name, token in four.items()]
    tokens = [f"Bearer {token}" for token in four.values()]
    shared = four_places(tmp_path, where, store_server, principals=principals)
    async with shared as (hosts, names):
        for token in tokens:
            assert (await listening(hosts, "a", authorization=token)).status == 200
        response = await opened(hosts, names[-1], authorization=tokens[0])
        assert response.json["error"]["code"] == -31000
        assert response.json["error"]["message"] == "tea has 4 clients: there may be no more"
        if where == "hosts":
            await hosts.kill("a")
            async with asyncio.timeout(FOREVER):
                for token in tokens:
                    while (await listening(hosts, "b", authorization=token)).status != 200:
                        await asyncio.sleep(0.1)


@pytest.mark.own_environment
@pytest.mark.compiled
@pytest.mark.parametrize("on_store_loss", ["local", "refuse"])
async def test_nobody_makes_room_in_vain(
    tmp_path: Path, new_store_server: MakeServer, on_store_loss: str
) -> None:
    """While the store is away, a host with more than its part of `maxClients` takes no client. So
    none of its clients loses its place to one."""
    store = new_store_server()
    cluster = {"hosts": 4, "onStoreLoss": on_store_loss}
    servers = {"tea": tea(tmp_path, "session", maxClients=8)}
    options: dict[str, Any] = {"store": store, "cluster": cluster, "principals": PRINCIPALS}
    async with proxies(tmp_path, "a", servers=servers, **options) as hosts:
        many = [Visitor(hosts, TOKENS["anne"]) for _ in range(4)]
        for one in many:
            await one.initialize("a")
        store.kill()
        async with asyncio.timeout(FOREVER):
            while True:
                bob = await opened(hosts, "a", authorization=f"Bearer {TOKENS['bob']}")
                if bob.json.get("error", {}).get("code") == -31000:
                    break
        for one in many:
            response = await one.call("a", "who")
            assert response.status == 200, response.body


@pytest.mark.own_environment
@pytest.mark.compiled
@pytest.mark.parametrize("where", ["workers", "hosts"])
async def test_one_client_does_not_take_all_places(
    tmp_path: Path, store_server: StoreServer, where: str
) -> None:
    """Its sessions make room for those of others at every worker and host."""
    anne, bob = (f"Bearer {TOKENS[name]}" for name in ("anne", "bob"))
    shared = four_places(tmp_path, where, store_server, principals=PRINCIPALS)
    async with shared as (hosts, names):
        peer = await hosts.connect("a")
        taken = ""
        for _ in range(4):  # on one connection: they are at one worker
            response = await peer.initialize(authorization=anne)
            taken = response.headers["mcp-session-id"].rpartition(".")[0]
        peer.close()
        async with asyncio.timeout(FOREVER):
            while True:
                response = await opened(hosts, names[-1], authorization=bob)
                if response.status == 200:
                    got = response.headers["mcp-session-id"]
                    if got.rpartition(".")[0] != taken:
                        break
                await asyncio.sleep(0.1)
