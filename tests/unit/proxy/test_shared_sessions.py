"""Sessions of the proxy's clients that any host serves: passed on while their host lives, adopted
when it is gone. The hosts are processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.hosts import Visitor
from lab.http import LEGACY, Peer, Response, call, message
from lab.principals import TOKENS
from lab.proxy_hosts import ProxyHosts, proxies
from lab.raw import FOREVER
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


def server(folder: Path, isolation: str, **options: Any) -> dict[str, Any]:
    target = {"command": sys.executable, "args": [str(folder / "tea.py")]}
    return {**target, "proxy": {"isolation": isolation, **options}}


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
    cluster = {"url": store_server.url}
    servers = {"tea": server(tmp_path, isolation)}
    async with proxies(tmp_path, "a", "b", servers=servers, cluster=cluster) as hosts:
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
    cluster = {"url": store_server.url}
    servers = {"tea": {**server(tmp_path, isolation), "era": era}}
    rate = {"requests": 1e-5, "burst": 30}
    async with proxies(tmp_path, "a", "b", servers=servers, cluster=cluster, rate=rate) as hosts:
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
    tea = {**server(tmp_path, "shared"), "era": "modern" if where == "modern" else "legacy"}
    servers = {"tea": tea, "other": {**tea}} if where == "all" else {"tea": tea}
    cluster = {"url": store.url, "storeTimeout": 3}
    uri = {"uri": "stock://tea"}
    async with proxies(tmp_path, "a", servers=servers, cluster=cluster) as hosts:
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
    cluster = {"url": store.url, "storeTimeout": 1.0}
    async with proxies(tmp_path, "a", "b", cluster=cluster) as hosts:
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
    cluster = {"url": store_server.url}
    servers = {"own": server(tmp_path, "session"), "tea": server(tmp_path, "shared")}
    async with proxies(tmp_path, "a", "b", servers=servers, cluster=cluster) as hosts:
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
    cluster = {"url": store_server.url}
    async with proxies(tmp_path, "a", "b", principals=principals, cluster=cluster) as hosts:
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
    cluster = {"url": store_server.url}
    broken = tmp_path / "broken"
    script = tmp_path / "maybe.py"
    script.write_text(
        f"import os, sys\nif os.path.exists({str(broken)!r}): sys.exit('broken')\n"
        f"exec(open({str(tmp_path / 'tea.py')!r}).read())\n"
    )
    tea = {**server(tmp_path, "shared"), "args": [str(script)], "era": "legacy"}
    servers = {"tea": tea, "other": server(tmp_path, "shared")}
    async with proxies(tmp_path, "a", servers=servers, cluster=cluster) as hosts:
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
    cluster = {"url": store_server.url}
    async with proxies(tmp_path, "a", "b", cluster=cluster, drainDelay=0.5) as hosts:
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
    cluster = {"url": store_server.url}
    tea = server(tmp_path, "shared")
    servers = {"tea": tea} if where == "one" else {"tea": tea, "other": tea}
    prefix = "" if where == "one" else "tea_"
    async with proxies(tmp_path, "a", "b", servers=servers, cluster=cluster) as hosts:
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
    cluster = {"url": store_server.url}
    async with proxies(tmp_path, "a", "b", cluster=cluster, words=("--workers", "2")) as hosts:
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


def processes(folder: Path) -> int:
    """How many servers of a folder run."""
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


@pytest.mark.parametrize("where", ["workers", "hosts"])
async def test_clients_with_servers_of_their_own(
    tmp_path: Path, store_server: StoreServer, where: str
) -> None:
    """`maxClients` bounds those of all workers and hosts together."""
    options: dict[str, Any] = {"servers": {"tea": server(tmp_path, "session", maxClients=4)}}
    names = "a"
    if where == "workers":
        options["words"] = ("--workers", "2")
    else:
        options["cluster"] = {"url": store_server.url, "hosts": 2}
        names = "ab"
    async with proxies(tmp_path, *names, **options) as hosts:
        refused = 0
        for _ in range(8):
            for name in names:
                peer = await hosts.connect(name)
                response = await peer.ask(body=message("initialize", HELLO, 0))
                peer.close()
                refused += response.json.get("error", {}).get("code") == -31000
                await until_few(tmp_path, 4)
        assert refused or processes(tmp_path) == 4


async def opened(hosts: ProxyHosts, name: str, **fields: Any) -> Response:
    """The answer to `initialize` on a connection of its own."""
    peer = await hosts.connect(name)
    try:
        return await peer.ask(body=message("initialize", HELLO, 0), **fields)
    finally:
        peer.close()


async def listening(hosts: ProxyHosts, name: str, **fields: Any) -> Response:
    """The answer to `initialize`. The session has an open stream then: it does not make room,
    however long the others take."""
    peer = await hosts.connect(name)
    response = await peer.ask(body=message("initialize", HELLO, 0), **fields)
    if response.status == 200:
        fields["mcp_session_id"] = response.headers["mcp-session-id"]
        peer.send("GET", accept="text/event-stream", mcp_protocol_version=LEGACY, **fields)
        assert (await peer.head()).status == 200
    return response


@pytest.mark.parametrize("where", ["workers", "hosts"])
async def test_no_process_refuses_while_another_has_room(
    tmp_path: Path, store_server: StoreServer, where: str
) -> None:
    """One host may have all `maxClients`. Those of a host that is killed are free soon."""
    options: dict[str, Any] = {"servers": {"tea": server(tmp_path, "session", maxClients=4)}}
    four = {name: name.ljust(32, "x") for name in ("anne", "bob", "carol", "dave")}
    options["principals"] = [{"name": name, "token": token} for name, token in four.items()]
    tokens = [f"Bearer {token}" for token in four.values()]
    names = "a"
    if where == "workers":
        options["words"] = ("--workers", "2")
    else:
        options["cluster"] = {"url": store_server.url, "hosts": 2}
        names = "ab"
    async with proxies(tmp_path, *names, **options) as hosts:
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


@pytest.mark.parametrize("on_store_loss", ["local", "refuse"])
async def test_nobody_makes_room_in_vain(
    tmp_path: Path, new_store_server: MakeServer, on_store_loss: str
) -> None:
    """While the store is away, a host with more than its part of `maxClients` takes no client. So
    none of its clients loses its place to one."""
    store = new_store_server()
    cluster = {"url": store.url, "hosts": 4, "onStoreLoss": on_store_loss}
    servers = {"tea": server(tmp_path, "session", maxClients=8)}
    principals = [{"name": name, "token": TOKENS[name]} for name in ("anne", "bob")]
    options: dict[str, Any] = {"servers": servers, "cluster": cluster, "principals": principals}
    async with proxies(tmp_path, "a", **options) as hosts:
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


@pytest.mark.parametrize("where", ["workers", "hosts"])
async def test_one_client_does_not_take_all_places(
    tmp_path: Path, store_server: StoreServer, where: str
) -> None:
    """Its sessions make room for those of others at every worker and host."""
    options: dict[str, Any] = {"servers": {"tea": server(tmp_path, "session", maxClients=4)}}
    options["principals"] = [{"name": name, "token": TOKENS[name]} for name in ("anne", "bob")]
    names = "a"
    if where == "workers":
        options["words"] = ("--workers", "2")
    else:
        options["cluster"] = {"url": store_server.url, "hosts": 2}
        names = "ab"
    anne, bob = (f"Bearer {TOKENS[name]}" for name in ("anne", "bob"))
    async with proxies(tmp_path, *names, **options) as hosts:
        peer = await hosts.connect("a")
        taken = ""
        for n in range(4):  # on one connection: they are at one worker
            response = await peer.ask(body=message("initialize", HELLO, n), authorization=anne)
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
