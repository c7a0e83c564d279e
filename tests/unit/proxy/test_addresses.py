"""A server at several addresses: how requests are spread, and what becomes of them when an address
fails."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import signal
from collections import Counter
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from lab.addresses import PROGRAM, Child, Place, all_up, backend, called, places, pool_in, pool_of
from lab.gateway import Gateway, gateway, inside
from lab.http import FOREVER
from lab.http_front import Front, asked, fields
from lab.operation import TOKEN, basic, fetch
from lab.principals import principal
from lab.proxy import until
from lab.rows import every
from lab.wording import raises
from rich.console import Console

from wirespeed import Client, Http, Server, Stdio
from wirespeed.cli.top import _screen
from wirespeed.config import ServerUrl
from wirespeed.errors import RemoteError
from wirespeed.proxy import (
    AdminConfig,
    BackendConfig,
    Changes,
    HealthConfig,
    IdentityConfig,
    RetryConfig,
)

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

LOST = -31004
NEVER = 3600.0


async def read(client: Client) -> str:
    return (await client.read_resource("lab://name")).text


# -- how requests are spread -----------------------------------------------------------------------


async def test_idle_addresses_take_turns() -> None:
    async with (
        places() as three,
        gateway(backend(three, asks=NEVER)) as gate,
        gate.client() as client,
    ):
        await all_up(gate)
        assert await called(client, 30) == {"a": 10, "b": 10, "c": 10}


async def test_the_address_with_the_fewest_requests_is_next() -> None:
    async with (
        places() as three,
        gateway(backend(three, asks=NEVER)) as gate,
        gate.client() as client,
    ):
        await all_up(gate)
        for one in three:
            one.go.clear()
        held = [asyncio.ensure_future(client.call_tool("who")) for _ in range(3)]
        await until(lambda: all(one.seen["who"] == 1 for one in three))
        three[0].go.set()
        three[2].go.set()
        await until(lambda: sum(one.done() for one in held) == 2)
        found = await called(client, 20)
        assert set(found) == {"a", "c"} and abs(found["a"] - 10) <= 1
        three[1].go.set()
        assert Counter([(await one).text for one in held]) == {"a": 1, "b": 1, "c": 1}
        assert set(await called(client, 6)) == {"a", "b", "c"}


async def test_weights() -> None:
    """Calls, and requests in flight, are shared by the weights of the addresses."""
    async with places() as three:
        urls = [ServerUrl(one.url, n) for one, n in zip(three, (1, 2, 3), strict=True)]
        async with gateway(backend(three, *urls, asks=NEVER)) as gate, gate.client() as client:
            await all_up(gate)
            assert await called(client, 60) == {"a": 10, "b": 20, "c": 30}
            for one in three:
                one.seen.clear()
                one.go.clear()
            held = [asyncio.ensure_future(client.call_tool("who")) for _ in range(60)]
            await until(lambda: sum(one.seen["who"] for one in three) == 60)
            assert [one.seen["who"] for one in three] == [10, 20, 30]
            for one in three:
                one.go.set()
            await asyncio.gather(*held)


async def test_an_address_that_has_come_gets_little_at_first() -> None:
    """Here it has just come for the whole test: it gets a tenth of its share."""
    async with places("ab") as two:
        config = backend(two, asks=NEVER)
        type(config).delays = config.delays._replace(slow_start=3600.0)
        async with gateway(config) as gate, gate.client() as client:
            pool = pool_of(gate)
            await until(lambda: all(one.takes_all for one in pool.modern))
            pool.modern[0].address.share.scale(1.0)
            assert await called(client, 22) == {"a": 20, "b": 2}


async def test_a_canary_gets_its_percentage() -> None:
    async with places("ab") as two:
        urls = ServerUrl(two[0].url), ServerUrl(two[1].url, percent=10)
        async with gateway(backend(two, *urls, asks=NEVER)) as gate, gate.client() as client:
            await all_up(gate, 2)
            found = await called(client, 200)
            assert 18 <= found["b"] <= 22
            # however busy it is, and however idle the other one
            for one in two:
                one.go.clear()
                one.seen.clear()
            held = [asyncio.ensure_future(client.call_tool("who")) for _ in range(100)]
            await until(lambda: sum(one.seen["who"] for one in two) == 100)
            assert 8 <= two[1].seen["who"] <= 12
            for one in two:
                one.go.set()
            await asyncio.gather(*held)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_principal_is_served_by_the_canary_always_or_never(era: Any) -> None:
    names = ("anne", "bob", "root")
    people = tuple(principal(name) for name in names)
    async with places("ab") as two:
        for percent in (0, 100):
            urls = ServerUrl(two[0].url), ServerUrl(two[1].url, percent=percent)
            async with gateway(backend(two, *urls, asks=NEVER), principals=people) as gate:
                await all_up(gate, 2)
                for name in names:
                    async with gate.client(name, era) as client:
                        assert set(await called(client, 5)) == {"b" if percent else "a"}
        urls = ServerUrl(two[0].url), ServerUrl(two[1].url, percent=50)
        async with gateway(backend(two, *urls, asks=NEVER), principals=people) as gate:
            await all_up(gate, 2)
            for name in names:
                found = set()
                for _ in range(2):
                    async with gate.client(name, era) as client:
                        found |= set(await called(client, 5))
                assert len(found) == 1


async def test_a_canary_that_is_not_there_costs_nothing() -> None:
    async with places("ab") as two:
        urls = ServerUrl(two[0].url), ServerUrl(two[1].url, percent=50)
        await two[1].close()
        async with gateway(backend(two, *urls, asks=NEVER)) as gate, gate.client() as client:
            assert await called(client, 10) == {"a": 10}
            await two[1].open()
            await all_up(gate, 2)
            assert 8 <= (await called(client, 20))["b"] <= 12


# -- addresses that fail ---------------------------------------------------------------------------


async def reads(client: Client, stop: asyncio.Event, found: Counter[str]) -> None:
    while not stop.is_set():
        found[await read(client)] += 1


@contextlib.asynccontextmanager
async def reading(client: Client, n: int = 8) -> Any:
    """Read all the time. Gives who has answered. A read that fails, fails the test."""
    stop, found = asyncio.Event(), Counter[str]()
    tasks = [asyncio.ensure_future(reads(client, stop, found)) for _ in range(n)]
    try:
        yield found
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def grows(found: Counter[str], n: int = 100) -> Counter[str]:
    """Wait for n more answers. Return the names of the servers that gave them."""
    before = found.copy()
    await until(lambda: found.total() >= before.total() + n)
    return found - before


FAULTS: dict[str, Any] = {
    "refuses": (Place.close, Place.open),
    "503": (lambda one: one.busy(), lambda one: one.busy(False)),
    "frozen": (lambda one: one.freeze(), lambda one: one.freeze(False)),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_no_read_fails_while_one_of_three_addresses_does(fault: str) -> None:
    breaks, heals = FAULTS[fault]
    async with places() as three, gateway(backend(three)) as gate, gate.client() as client:
        await all_up(gate)
        bad = pool_of(gate).modern[1]
        async with reading(client) as found:
            assert set(await grows(found)) == {"a", "b", "c"}
            if (work := breaks(three[1])) is not None:
                await work
            await until(lambda: not bad.takes_all)
            assert set(await grows(found)) == {"a", "c"}
            if (work := heals(three[1])) is not None:
                await work
            await until(lambda: bad.takes_all)
            while "b" not in await grows(found):
                pass
        assert bad.n_failures > 0
        assert found.total() > 300


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_address_that_fails_while_nobody_asks(fault: str) -> None:
    breaks, heals = FAULTS[fault]
    async with places() as three, gateway(backend(three)) as gate, gate.client() as client:
        await all_up(gate)
        bad = pool_of(gate).modern[2]
        if (work := breaks(three[2])) is not None:
            await work
        await until(lambda: not bad.takes_all)
        assert set(await called(client, 10)) == {"a", "b"}
        assert gate.proxy.services["s"].assignment.n_retries == 0
        if (work := heals(three[2])) is not None:
            await work
        await until(lambda: bad.takes_all)


@pytest.mark.parametrize("ends", [False, True])
async def test_a_call_at_an_address_that_is_frozen(ends: bool) -> None:
    """It may only be busy: the call waits on, unless the file has ``health``."""
    config = {"health": HealthConfig(interval=0.5, timeout=1.5)} if ends else {}
    async with places("ab") as two, gateway(backend(two, **config)) as gate:
        await all_up(gate, 2)
        async with gate.client() as client:
            two[0].go.clear()
            calls = [asyncio.ensure_future(client.call_tool("who")) for _ in range(2)]
            await until(lambda: two[0].seen["who"] == 1)
            two[0].freeze()
            slow = asyncio.ensure_future(read(client))
            other = asyncio.ensure_future(read(client))
            frozen = pool_of(gate).modern[0]
            await until(lambda: not frozen.takes_all)
            assert await asyncio.gather(slow, other) == ["b", "b"]
            assert await called(client, 4) == {"b": 4}
            if not ends:
                assert not all(one.done() for one in calls)  # whichever is there
                two[0].go.set()
                two[0].freeze(False, breaks=False)
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert {getattr(one, "text", LOST) for one in done} == {"b", LOST if ends else "a"}
            await until(lambda: ends or frozen.takes_all)


async def test_which_calls_are_sent_to_another_address() -> None:
    config: dict[str, Any] = {"retry": RetryConfig(trust_annotations=True), "asks": NEVER}
    async with places("ab") as two, gateway(backend(two, **config)) as gate:
        await all_up(gate, 2)
        async with gate.client() as client:
            for one in two:
                one.go.clear()
            changes = [asyncio.ensure_future(client.call_tool("who")) for _ in range(2)]
            await until(lambda: all(one.seen == {"who": 1} for one in two))
            looks = [asyncio.ensure_future(client.call_tool("look")) for _ in range(2)]
            await until(lambda: all(one.seen == {"who": 1, "look": 1} for one in two))
            await two[0].close()
            await until(lambda: two[1].seen == {"who": 1, "look": 2})
            two[1].go.set()
            done = await asyncio.gather(*changes, *looks, return_exceptions=True)
            failed = [one for one in done if isinstance(one, BaseException)]
            assert [getattr(one, "code", None) for one in failed] == [LOST]
            assert [one.text for one in done if one not in failed] == ["b", "b", "b"]


async def test_a_call_of_which_nothing_was_sent_goes_to_another_address() -> None:
    """It cannot run twice. Its progress is the client's."""
    async with places("ab") as two, gateway(backend(two)) as gate, gate.client() as client:
        await all_up(gate, 2)
        two[0].go.clear()
        held = [asyncio.ensure_future(client.call_tool("look")) for _ in range(2)]
        await until(lambda: two[0].seen["look"] == 1)  # so the connection to it stays
        await two[0].close()
        two[0].go.set()
        heard: list[float] = []

        async def work() -> str:
            called = client.call_tool("work", on_progress=lambda *done: heard.append(done[0]))
            return (await called).text

        assert set(await asyncio.gather(*(work() for _ in range(20)))) == {"b"}
        assert len(heard) == 20
        assert pool_of(gate).n_retries > 0
        await asyncio.gather(*held, return_exceptions=True)


async def test_all_addresses_fail_and_one_comes_back() -> None:
    async with places("ab") as two, gateway(backend(two)) as gate, gate.client() as client:
        await all_up(gate, 2)
        for one in two:
            await one.close()
        with raises(RemoteError, code=LOST):
            await client.call_tool("who")
        await two[1].open()
        await until(lambda: any(one.takes_all for one in pool_of(gate).modern))
        assert await called(client, 4) == {"b": 4}


async def test_the_first_address_is_not_there_at_the_start() -> None:
    async with places("ab") as two:
        await two[0].close()
        for era in ("modern", "legacy"):
            async with gateway(backend(two)) as gate, gate.client(era=era) as client:
                assert await called(client, 4) == {"b": 4}


async def test_an_address_of_another_era_gets_nothing() -> None:
    """It cannot be used beside the others, which do not notice."""
    async with places("a") as one, places("b", versions=("2025-11-25",)) as other:
        await other[0].close()
        async with gateway(backend(one + other)) as gate, gate.client() as client:
            await other[0].open()
            await until(lambda: len(pool_of(gate).supervisors) == 2)
            (left,) = [life for life in pool_of(gate).supervisors if life.upstream is None]
            await until(lambda: "other revisions" in left.status.error)
            assert await called(client, 4) == {"a": 4}
            async with gate.client(era="legacy") as legacy:
                assert await called(legacy, 4) == {"a": 4}


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_other_transports(scheme: str) -> None:
    async with places("ab", scheme) as two, gateway(backend(two)) as gate:
        await all_up(gate, 2)
        async with gate.client() as client, reading(client) as found:
            assert set(await grows(found)) == {"a", "b"}
            await two[0].close()
            assert set(await grows(found, 200)) >= {"b"}
            await two[0].open()
            await all_up(gate, 2)
            while "a" not in await grows(found):
                pass


# -- processes -------------------------------------------------------------------------------------


async def test_processes_that_are_killed_and_frozen(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(PROGRAM)
    children = [Child(str(script)) for _ in range(3)]
    await asyncio.gather(*(child.start() for child in children))
    try:
        async with gateway(backend(children)) as gate, gate.client() as client:
            await all_up(gate)
            pool = pool_of(gate)
            async with reading(client) as found:
                assert len(await grows(found)) == 3
                killed, frozen = children[:2]
                await killed.end()
                await until(lambda: not pool.modern[0].takes_all)
                assert len(await grows(found)) == 2
                frozen.signal(signal.SIGSTOP)
                await until(lambda: not pool.modern[1].takes_all)
                assert set(await grows(found)) == {str(children[2].pid)}
                frozen.signal(signal.SIGCONT)
                await killed.start()
                await until(lambda: all(one.takes_all for one in pool.modern))
                while len(await grows(found)) < 3:
                    pass
    finally:
        for child in children:
            await child.end()


# -- sessions of legacy eras -----------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["auto", "pool"])
async def test_a_legacy_session_stays_at_its_address(isolation: Any) -> None:
    """With ``auto`` each client has a session of its own there."""
    async with contextlib.AsyncExitStack() as stack:
        three = await stack.enter_async_context(places())
        config = backend(three, answers=FOREVER, isolation=isolation)
        gate = await stack.enter_async_context(gateway(config))
        pool = await pool_in(gate)

        async def joined() -> tuple[Client, str]:
            client = await stack.enter_async_context(gate.client(era="legacy"))
            (found,) = await called(client, 5, "session")
            return client, found

        await until(lambda: sum(one.takes_all for one in pool.modern) == 3)
        clients = [await joined() for _ in range(6)]
        sessions = [session for _, session in clients]
        assert Counter(one[0] for one in sessions) == {"a": 2, "b": 2, "c": 2}
        assert len(set(sessions)) == (6 if isolation == "auto" else 3)
        await three[1].close()
        await until(lambda: not pool.modern[1].takes_all)
        for _ in range(4):
            assert (await joined())[1][0] in "ac"
        for client, session in clients:
            if session[0] != "b":
                assert set(await called(client, 3, "session")) == {session}
        await three[1].open()
        await until(lambda: pool.modern[1].takes_all)
        await until(lambda: pool.modern[1].address.share.weight == 1)
        if isolation == "pool":
            await until(lambda: all(one.is_there for one in pool.legacy))
            for client, session in clients:
                assert {one[0] for one in await called(client, 3, "session")} == {session[0]}
        assert (await joined())[1][0] == "b"


async def test_a_legacy_server_with_isolation_auto() -> None:
    """Requests of 2026-07-28 over HTTP are translated, and share a session at an address."""
    old = {"versions": ("2025-11-25",)}
    async with places("ab", **old) as two, gateway(backend(two, isolation="auto")) as gate:
        pool = await pool_in(gate)
        await until(lambda: sum(one.is_there for one in pool.legacy) == 2)
        async with (
            gate.client() as one,
            gate.client(era="legacy") as two_,
            gate.client(era="legacy") as three,
        ):
            (modern,) = await called(one, 4, "session")
            own = {next(iter(await called(client, 4, "session"))) for client in (two_, three)}
            assert len({modern, *own}) == 3
            assert {session[0] for session in own} == {"a", "b"}
        await two[0].close()
        async with gate.client(era="legacy") as late:
            await until(lambda: sum(one.is_there for one in pool.legacy) == 1)
        async with gate.client(era="legacy") as late:
            assert set(await called(late, 3)) == {"b"}


# -- with other features of the proxy --------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["auto", "pool"])
async def test_each_principal_has_its_own_connections(isolation: Any) -> None:
    """They see the same addresses, and those of a later reload."""
    identity = IdentityConfig(type="header", header="X-User", credential="I am {}".format)
    own = {"isolation": isolation, "identity": identity}
    people = principal("anne"), principal("bob")
    async with (
        places() as three,
        gateway(backend(three[:2], **own), principals=people) as gate,
        gate.client("anne") as anne,
        gate.client("bob", "legacy") as bob,
    ):
        await called(anne, 10)  # the connections of a principal are made by its first request
        while set(await called(anne, 10)) != {"a", "b"}:
            pass
        assert len(await called(bob, 4)) == 1
        assert set(await called(anne, 4, "user")) == {"I am anne"}
        assert set(await called(bob, 4, "user")) == {"I am bob"}
        assert str(await reloaded(gate, backend(three[1:], **own))) == "addressed: s"
        while set(await called(anne, 10)) != {"b", "c"}:
            pass


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_among_several_servers(era: Any) -> None:
    other = Server("other")

    @other.tool
    async def here() -> str:
        return "other"

    async with (
        places() as three,
        gateway(backend(three), inside("other", other)) as gate,
        gate.client(era=era) as client,
        gate.client(era=era, path="/servers/s") as alone,
    ):
        assert set(await called(client, 6, "s_who")) <= {"a", "b", "c"}
        assert (await client.call_tool("other_here")).text == "other"
        assert set(await called(alone, 6)) <= {"a", "b", "c"}


# -- a reload --------------------------------------------------------------------------------------


async def reloaded(gate: Gateway, config: BackendConfig) -> Changes:
    return await gate.proxy.reload(dataclasses.replace(gate.proxy.config, backends=(config,)))


@pytest.mark.parametrize("isolation", ["auto", "pool"])
async def test_an_address_that_is_removed_is_drained(isolation: Any) -> None:
    own = {"isolation": isolation}
    async with places("abcd") as four, gateway(backend(four[:3], **own)) as gate:
        async with gate.client() as client, gate.client(era="legacy") as legacy:
            await all_up(gate)
            pool, services = pool_of(gate), gate.proxy.services
            connections = [one.upstream for one in pool.modern]
            (home,) = await called(legacy, 1)
            others = [one for one in four[:3] if one.name != home]
            gone = next(one for one in four if one.name == home)
            gone.go.clear()
            gone.seen.clear()
            held = [asyncio.ensure_future(client.call_tool("who")) for _ in range(3)]
            await until(lambda: gone.seen["who"] == 1)
            changes = await reloaded(gate, backend([four[3], *others], **own))
            assert (changes.addressed, changes.changed) == (("s",), ())
            assert gate.proxy.services == services
            await all_up(gate)
            assert set(await called(client, 12)) == {"d", *(one.name for one in others)}
            kept = [one.upstream for one in pool.modern]
            assert (
                len([one for one in kept if one in connections]) == 2
            )  # nothing is connected anew
            gone.go.set()
            assert home in {(await one).text for one in held}
            assert await called(legacy, 3) == {home: 3}  # its session goes on
            async with gate.client(era="legacy") as late:
                assert home not in await called(late, 1)
        await until(lambda: not pool._leaving)
        assert len(pool.supervisors) <= 6


async def test_weights_change_without_a_connection() -> None:
    async with places("ab") as two, gateway(backend(two)) as gate, gate.client() as client:
        await all_up(gate, 2)
        before = [one.upstream for one in pool_of(gate).modern]
        urls = ServerUrl(two[0].url), ServerUrl(two[1].url, percent=0)
        changes = await reloaded(gate, backend(two, *urls))
        assert str(changes) == "addressed: s"
        assert [one.upstream for one in pool_of(gate).modern] == before
        assert await called(client, 10) == {"a": 10}
        assert str(await reloaded(gate, backend(two, *urls))) == "nothing has changed"


async def test_the_only_address_that_is_left() -> None:
    async with places("ab") as two, gateway(backend(two)) as gate, gate.client() as client:
        await all_up(gate, 2)
        await reloaded(gate, backend(two[1:]))
        assert await called(client, 4) == {"b": 4}


async def test_what_an_address_gave_comes_back_to_it() -> None:
    """Its mark depends on the URL: other proxies with the same list have the same one."""
    async with places(page_size=1) as three, gateway(backend(three)) as gate:
        await all_up(gate)
        front = Front(None, gate.url)
        pool = pool_of(gate)
        for _ in range(3):
            before = {one.tag: one.n_answered for one in pool.modern}
            _, _, first = await front.post(asked("tools/list"), *fields("tools/list"))
            cursor = first["result"]["nextCursor"]
            tag = int(cursor.partition("~")[0])
            assert tag in {crc32(one.url.encode()) % 1_000_000_000 for one in three}
            for _ in range(4):
                body = asked("tools/list", cursor=cursor)
                _, _, second = await front.post(body, *fields("tools/list"))
                assert second["result"]["tools"]
            answered = {one.tag: one.n_answered - before[one.tag] for one in pool.modern}
            assert answered[tag] >= 4


# -- the configuration -----------------------------------------------------------------------------

A, B = "http://127.0.0.1:1/mcp", "http://127.0.0.1:2/mcp"
FAULTY: list[tuple[dict[str, Any], str]] = [
    ({"spares": 2}, "spares"),
    ({"isolation": "session"}, "pool"),
    ({"urls": (B,)}, "target"),
    ({"urls": (A, A)}, "twice"),
    ({"urls": (A, "ws://127.0.0.1:2/mcp")}, "ws"),
    ({"urls": (A, "nonsense")}, "nonsense"),
    ({"urls": (A, *(f"{A}/{n}" for n in range(100)))}, "at most"),
    ({"urls": (ServerUrl(A, percent=60), ServerUrl(B, percent=60), f"{A}/3")}, "more than"),
    ({"urls": (ServerUrl(A, percent=60), ServerUrl(B, percent=40))}, "without percent"),
    ({"target": Stdio("x")}, "URL"),
    ({"protocol": "litemcp"}, "MCP"),
]


@every(("change", "text"), FAULTY)
def test_faulty_urls(change: dict[str, Any], text: str) -> None:
    good: dict[str, Any] = {"target": Http(A), "urls": (A, B), "isolation": "pool"}
    BackendConfig(**good)
    with pytest.raises((TypeError, ValueError), match=text):
        BackendConfig(**{**good, **change})


def test_urls_are_values() -> None:
    several = BackendConfig(target=Http(A), urls=(A, ServerUrl(B, 2)), isolation="pool")
    assert several.urls == (ServerUrl(A), ServerUrl(B, 2))


@pytest.mark.parametrize(("weight", "percent"), [(0, None), (1001, None), (1, -1), (1, 101)])
def test_weights_that_cannot_be(weight: float, percent: float | None) -> None:
    with pytest.raises(ValueError, match=r"weight is 1 to 1000|percent is 0 to 100"):
        ServerUrl(A, weight, percent)


# -- what operators see ----------------------------------------------------------------------------


async def test_an_address_that_never_was_there_is_shown() -> None:
    admin = AdminConfig(listen="http://127.0.0.1:0", token=TOKEN)
    async with places("ab") as two:
        await two[1].close()
        async with gateway(backend(two), admin=admin) as gate:
            await until(lambda: pool_of(gate).modern[1].n_failures > 1)
            (found,) = (await fetch(gate.admin_port, "/status")).json["backends"]
            assert found["state"] == "degraded"
            states = {one["url"]: one["state"] for one in found["servers"]}
            assert states[two[0].url] == "up" and states[two[1].url] in ("starting", "crash-loop")
            (gone,) = [one for one in found["servers"] if one["url"] == two[1].url]
            assert gone["failures"] > 1 and "connection refused" in gone["error"]


async def test_each_address_is_shown() -> None:
    async with places("ab") as two:
        urls = (
            ServerUrl(two[0].url, 3, shown="http://${HOST}/mcp"),
            ServerUrl(two[1].url, percent=5),
        )
        admin = AdminConfig(listen="http://127.0.0.1:0", token=TOKEN)
        async with gateway(backend(two, *urls), admin=admin) as gate, gate.client() as client:
            await all_up(gate, 2)
            await called(client, 20)
            (found,) = (await fetch(gate.admin_port, "/status")).json["backends"]
            assert found["state"] == "up"
            shown = {one["url"]: one for one in found["servers"]}
            assert set(shown) == {"http://${HOST}/mcp", two[1].url}
            one = shown["http://${HOST}/mcp"]
            assert (one["weight"], one["percent"], one["failures"]) == (3, None, 0)
            assert (one["state"], one["era"], one["in_flight"]) == ("up", "modern", 0)
            assert one["answered"] >= 19
            assert shown[two[1].url]["percent"] == 5
            two[1].busy()
            await until(lambda: not pool_of(gate).modern[1].takes_all)
            (found,) = (await fetch(gate.admin_port, "/status")).json["backends"]
            assert found["state"] == "degraded"
            text = (await fetch(gate.admin_port, "/metrics")).text
            place = f'{{backend="s",url="{two[1].url}"}}'
            assert f"wirespeed_proxy_address_connections_up{place} 0" in text
            assert f"wirespeed_proxy_address_requests_in_flight{place} 0" in text
            assert f"wirespeed_proxy_address_requests_answered_total{place} " in text
            assert f"wirespeed_proxy_address_failures_total{place} " in text
            page = (await fetch(gate.admin_port, "/", basic())).text
            assert "Addresses of s" in page and two[1].url in page
            screen = io.StringIO()
            status = (await fetch(gate.admin_port, "/status")).json
            Console(file=screen, width=120).print(_screen(status, "u", 120))
            assert two[1].url in screen.getvalue()
