"""Sessions of the proxy's clients that any host serves: passed on while their host lives, adopted
when it is gone. The hosts are processes."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from lab.hosts import Visitor
from lab.http import LEGACY, Peer, call, message
from lab.principals import TOKENS
from lab.proxy_hosts import proxies, tea
from lab.store import MakeServer, StoreServer

from wirespeed._core.envelope import parse
from wirespeed.proxy.hosts.client_state import ClientState

pytestmark = [pytest.mark.own_environment, pytest.mark.compiled]


def records(store: StoreServer) -> list[str]:
    found: list[str] = store.ask("KEYS", "*{session*:*record")
    return found


async def saved(store: StoreServer) -> str:
    """The key of the only record of a session, when it is there."""
    while True:
        if keys := records(store):
            return keys[0]
        await asyncio.sleep(0.05)


HELLO = {
    "protocolVersion": LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "visitor", "version": "1"},
}


async def pid(one: Visitor, host: str, tool: str = "who") -> str:
    """The process that answers."""
    return await one.answer(host, tool)


async def heard(stream: Peer, opened: Any, n: int) -> list[Any]:
    messages: list[Any] = await stream.until(opened, n)
    return messages


def test_the_state_of_a_session_is_json() -> None:
    state = ClientState()
    for method, params in (
        ("initialize", HELLO),
        ("logging/setLevel", {"level": "debug", "_meta": {"note": "x" * 2000}}),
        ("logging/setLevel", {"level": "x" * 2000}),  # no server takes it
        ("resources/subscribe", {"uri": "stock://tea"}),
    ):
        state.heard(parse(message(method, params, 1)))
    hello, initialized, level, subscription = map(json.loads, state.messages() or ())
    assert hello["params"] == HELLO and "id" not in initialized
    assert level["params"] == {"level": "debug"}
    assert subscription["params"] == {"uri": "stock://tea"}


@pytest.mark.parametrize("isolation", ["shared", "pool", "session"])
async def test_any_host_answers(tmp_path: Path, store_server: StoreServer, isolation: str) -> None:
    servers = {"tea": tea(tmp_path, isolation)}
    async with proxies(tmp_path, "a", "b", servers=servers, store=store_server) as hosts:
        one = Visitor(hosts)
        assert (await one.initialize("a")).startswith("a.0.")
        there = await pid(one, "a")
        for host in "bab":
            assert await pid(one, host) == there
        streamed = await one.call("b", "who", steps=2)
        assert streamed.is_stream and len(streamed.messages) == 3
        get = await one.send("b", "GET", accept="text/event-stream")
        opened = await get.head()
        assert (await one.request("b", "resources/subscribe", uri="stock://tea")).status == 200
        assert await one.answer("b", "sell") == "sold"
        (found,) = await heard(get, opened, 1)
        assert found["params"] == {"uri": "stock://tea"}
        get.close()
        assert (await one.ask("b", "DELETE")).status == 204
        for host in "ab":
            assert (await one.call(host, "who")).status == 404


@pytest.mark.parametrize("isolation", ["shared", "pool"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_session_whose_host_is_gone(
    tmp_path: Path, store_server: StoreServer, isolation: str, era: str
) -> None:
    """It goes on at another host, with its subscriptions, and at a server of that host."""
    servers = {"tea": {**tea(tmp_path, isolation), "era": era}}
    rate = {"requests": 1e-5, "burst": 30}
    async with proxies(tmp_path, "a", "b", servers=servers, store=store_server, rate=rate) as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        there = await pid(one, "a")
        assert (await one.request("a", "logging/setLevel", level="debug")).status == 200
        assert (await one.request("a", "resources/subscribe", uri="stock://tea")).status == 200
        await hosts.kill("a")  # at once: the answers came after the record
        assert await pid(one, "b") != there
        get = await one.send("b", "GET", accept="text/event-stream")
        opened = await get.head()
        assert await one.answer("b", "sell") == "sold"
        (found,) = await heard(get, opened, 1)
        assert found["params"] == {"uri": "stock://tea"}
        get.close()
        assert (await one.ask("b", "DELETE")).status == 204


@pytest.mark.parametrize("where", ["legacy", "modern", "all"])
async def test_the_state_is_stored_before_the_answer(
    tmp_path: Path, new_store_server: MakeServer, where: str
) -> None:
    store = new_store_server()
    one = {**tea(tmp_path), "era": "modern" if where == "modern" else "legacy"}
    servers = {"tea": one, "other": one} if where == "all" else {"tea": one}
    cluster = {"storeTimeout": 3}
    uri = {"uri": "stock://tea"}
    async with proxies(tmp_path, "a", servers=servers, store=store, cluster=cluster) as hosts:
        one = Visitor(hosts)
        opens = asyncio.ensure_future(one.request("a", "initialize", **HELLO))
        store.freeze()
        answer = opens
        for method, params in (
            ("logging/setLevel", {"level": "debug"}),
            ("resources/subscribe", uri),
            ("resources/unsubscribe", uri),
        ):
            await asyncio.wait([answer], timeout=0.3)
            assert not answer.done()
            store.thaw()
            response = await answer
            assert response.status == 200 and b'"result"' in response.body
            one.fields.setdefault("mcp_session_id", response.headers.get("mcp-session-id"))
            assert await one.ask("a", body=message("notifications/initialized"))
            before = store.ask("HSTRLEN", records(store)[0], "record")
            store.freeze()
            answer = asyncio.ensure_future(one.request("a", method, **params))
        await asyncio.wait([answer], timeout=0.3)
        assert not answer.done()
        store.thaw()
        assert (await answer).status == 200
        assert before != store.ask("HSTRLEN", records(store)[0], "record")


async def test_a_session_is_neither_opened_nor_changed_without_the_store(
    tmp_path: Path, new_store_server: MakeServer
) -> None:
    """Another host may reach the store, and would not know the session, its log level or its
    subscription, also where the client asks for that once more."""
    store = new_store_server()
    cluster = {"storeTimeout": 1.0}
    async with proxies(tmp_path, "a", "b", store=store, cluster=cluster) as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        store.freeze()
        assert (await one.request("a", "logging/setLevel", level="debug")).status == 503
        for _ in range(2):
            response = await one.request("a", "resources/subscribe", uri="stock://tea")
            assert response.status == 503, response.body
        refused = await Visitor(hosts).request("a", "initialize", **HELLO)
        assert refused.status == 503 and refused.json["error"]["code"] == -31007
        assert "mcp-session-id" not in refused.headers
        store.thaw()


async def test_a_server_of_the_client_ends_with_its_host(
    tmp_path: Path, store_server: StoreServer
) -> None:
    servers = {"own": tea(tmp_path, "session"), "tea": tea(tmp_path)}
    async with proxies(tmp_path, "a", "b", servers=servers, store=store_server) as hosts:
        one, two = Visitor(hosts), Visitor(hosts)
        await one.initialize("a")
        await two.initialize("a")
        assert await pid(one, "a", "tea_who")
        assert await pid(two, "a", "tea_who")
        assert len(records(store_server)) == 2
        assert await pid(two, "a", "own_who")
        while len(records(store_server)) != 1:
            await asyncio.sleep(0.05)
        await hosts.kill("a")
        assert await pid(one, "b", "tea_who")
        assert (await two.call("b", "tea_who")).status == 404
        del two.fields["mcp_session_id"]
        await two.initialize("b")
        assert await pid(two, "b", "own_who")


async def test_a_session_is_of_its_principal(tmp_path: Path, store_server: StoreServer) -> None:
    principals = [{"name": name, "token": TOKENS[name]} for name in ("anne", "bob")]
    async with proxies(tmp_path, "a", "b", principals=principals, store=store_server) as hosts:
        anne, bob = (Visitor(hosts, TOKENS[name]) for name in ("anne", "bob"))
        bob.fields["mcp_session_id"] = await anne.initialize("a")
        assert await anne.answer("b", "who")
        assert (await bob.call("b", "who")).status == 404
        assert (await Visitor(hosts).call("b", "who")).status == 401
        await saved(store_server)
        await hosts.kill("a")
        assert await anne.answer("b", "who")
        assert (await bob.call("b", "who")).status == 404
        for key in store_server.ask("KEYS", "*"):
            assert "anne" not in key
        key = await saved(store_server)
        assert store_server.ask("HSTRLEN", key, "record") < 1000
        assert "anne" not in key


async def test_a_server_that_is_down_where_its_session_goes_on(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """The session waits for the server: it is not lost."""
    broken = tmp_path / "broken"
    script = tmp_path / "maybe.py"
    script.write_text(
        f"import os, sys\nif os.path.exists({str(broken)!r}): sys.exit('broken')\n"
        f"exec(open({str(tmp_path / 'tea.py')!r}).read())\n"
    )
    maybe = {**tea(tmp_path), "args": [str(script)], "era": "legacy"}
    servers = {"tea": maybe, "other": tea(tmp_path)}
    async with proxies(tmp_path, "a", servers=servers, store=store_server) as hosts:
        one = Visitor(hosts)
        one.fields["path"] = "/servers/tea"
        await one.initialize("a")
        assert await one.answer("a", "who")
        await saved(store_server)
        broken.touch()
        await hosts.start("b")
        await hosts.kill("a")
        while (await one.call("b", "who")).status != 503:
            await asyncio.sleep(0.1)
        broken.unlink()
        assert await one.answer("b", "who")


async def test_a_drain_hands_sessions_over(tmp_path: Path, store_server: StoreServer) -> None:
    async with proxies(tmp_path, "a", "b", store=store_server, drainDelay=0.5) as hosts:
        visitors = [Visitor(hosts) for _ in range(10)]
        for one in visitors:
            await one.initialize("a")
            assert await one.answer("a", "who")
        hosts.hosts["a"].signal(signal.SIGTERM)
        while hosts.hosts["a"].process.poll() is None:
            for one in visitors:
                response = await one.call("b", "who")
                assert response.status in (200, 503), response.body
            await asyncio.sleep(0.05)
        for one in visitors:
            assert await one.answer("b", "who")


@pytest.mark.parametrize("where", ["one", "all"])
async def test_a_session_with_a_request_at_work_while_its_host_drains(
    tmp_path: Path, store_server: StoreServer, where: str
) -> None:
    """It goes on there until the request has ended, and then elsewhere: nothing is refused."""
    servers = {name: tea(tmp_path) for name in (["tea"] if where == "one" else ["tea", "other"])}
    prefix = "" if where == "one" else "tea_"
    async with proxies(tmp_path, "a", "b", servers=servers, store=store_server) as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        a, b = await one.answer("a", prefix + "who"), ""
        long = await one.send("a", body=call(prefix + "wait", {"seconds": 2}, 999))
        await asyncio.sleep(0.2)
        hosts.hosts["a"].signal(signal.SIGTERM)
        heard: list[str] = []
        while b == "":
            response = await one.call("b", prefix + "who")
            assert response.status == 200, response.body
            messages = response.messages if response.is_stream else [response.json]
            heard.append(messages[-1]["result"]["content"][0]["text"])
            b = "" if heard[-1] == a else heard[-1]
            await asyncio.sleep(0.02)
        assert a in heard
        assert b'"text":"waited"' in (await long.response()).body
        assert await one.answer("b", prefix + "who") == b


async def test_workers_of_a_host(tmp_path: Path, store_server: StoreServer) -> None:
    async with proxies(tmp_path, "a", "b", store=store_server, words=("--workers", "2")) as hosts:
        visitors: list[Visitor] = []
        workers: set[str] = set()
        while workers != {"0", "1"}:
            visitors.append(Visitor(hosts))
            workers.add((await visitors[-1].initialize("a")).split(".")[1])
        for one in visitors:
            for host in "abba":
                assert await one.answer(host, "who")
        while len(records(store_server)) != len(visitors):
            await asyncio.sleep(0.05)
        await hosts.kill("a")
        for one in visitors:
            assert await one.answer("b", "who")


def test_the_state_of_a_session() -> None:
    """It is bounded, and what is kept is JSON whatever a client sends."""
    state = ClientState()

    def hear(method: str, params: Any) -> bool:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return state.heard(parse(json.dumps(body).encode()))

    def kept() -> list[Any]:
        return [json.loads(one) for one in state.messages() or ()]

    assert not hear("tools/list", {}) and state.messages() is None
    assert hear("initialize", {"a": "ü"}) and not hear("initialize", {"a": 2})
    assert [one["method"] for one in kept()] == ["initialize", "notifications/initialized"]
    assert kept()[0]["params"] == {"a": "ü"}
    assert hear("logging/setLevel", {"level": "debug"})
    assert not hear("logging/setLevel", {"level": "y" * 2000})
    for _ in range(2):  # the store may not have the first one
        assert hear("resources/subscribe", {"uri": "a://b"})
    assert not hear("resources/subscribe", {"uri": 5})
    assert [one["params"] for one in kept()[2:]] == [{"level": "debug"}, {"uri": "a://b"}]
    assert hear("resources/unsubscribe", {"uri": "a://b"})
    assert len(kept()) == 3
    for n in range(100):
        hear("resources/subscribe", {"uri": f"{n}" * 1000})
    assert state.messages() is None  # it stays at its host
    for n in range(100):
        hear("resources/unsubscribe", {"uri": f"{n}" * 1000})
    assert len(kept()) == 3
    hear("resources/subscribe", {"uri": "茶" * 30_000})  # 90,000 bytes
    assert state.messages() is None
