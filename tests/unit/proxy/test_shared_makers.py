"""Tasks of 2025-11-25 of a server that the hosts of a proxy use at its URL: their makers find them
at each host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from lab.hosts import ADOPTED_IN, Visitor
from lab.http import message
from lab.principals import TOKENS
from lab.proxy_hosts import ProxyHosts, elsewhere, proxies
from lab.store import MakeServer, StoreServer
from lab.web import Exchange, HttpPeer, legacy

pytestmark = pytest.mark.own_environment

MILL = """
import asyncio, sys
from wirespeed import Context, Server

server = Server("mill")

@server.tool(task="optional")
async def grind(seconds: float = 0) -> str:
    await asyncio.sleep(seconds)
    return "flour"

@server.tool(task="optional")
async def choose(ctx: Context) -> str:
    return (await ctx.elicit("wheat or rye?", str)).content

server.run(sys.argv[1], **({"token": "x" * 20} if "http" in sys.argv[1] else {}))
"""
UNKNOWN = {"code": -32602, "message": "Failed to retrieve task: Task not found"}
LATER = -31007


@contextlib.asynccontextmanager
async def mills(
    folder: Path, *names: str, isolation: str = "shared", several: bool = False, **options: Any
) -> AsyncIterator[ProxyHosts]:
    """Hosts of a proxy whose server is elsewhere. ``several``: There is one without tasks, too."""
    script = folder / "mill.py"
    script.write_text(MILL)
    async with elsewhere(script) as url:
        where = {"urls": [url]} if isolation == "pool" else {"url": url}
        fields = {"Authorization": f"Bearer {'x' * 20}"}
        mill = {
            **where,
            "headers": fields,
            "era": "legacy",
            "proxy": {"isolation": isolation, "ask": True},
        }
        servers = {"mill": mill}
        if several:
            plain = folder / "plain.py"
            plain.write_text(MILL.replace('task="optional"', ""))
            servers["other"] = {"command": sys.executable, "args": [str(plain), "stdio:"]}
        async with proxies(folder, *names, servers=servers, **options) as hosts:
            yield hosts


async def asked(one: Visitor, host: str, method: str, **params: Any) -> Any:
    """The result of a request, or its error. A host may take some time to adopt the session."""
    until = time.monotonic() + ADOPTED_IN
    while True:
        response = await one.request(host, method, **params)
        last = (response.messages if response.is_stream else [response.json])[-1]
        found = last.get("result", last.get("error"))
        if response.status == 200 or found["code"] == LATER:
            return found
        assert response.status in (502, 503) and time.monotonic() < until, found
        await asyncio.sleep(0.05)


async def made(one: Visitor, host: str, tool: str = "grind", **arguments: Any) -> str:
    call = {"name": tool, "arguments": arguments, "task": {"ttl": 600_000}}
    return str((await asked(one, host, "tools/call", **call))["task"]["taskId"])


async def session(hosts: ProxyHosts, host: str, name: str | None = None) -> Visitor:
    one = Visitor(hosts, None if name is None else TOKENS[name])
    await one.initialize(host)
    return one


async def listed(one: Visitor, host: str) -> list[str]:
    return [task["taskId"] for task in (await asked(one, host, "tasks/list"))["tasks"]]


async def owns(one: Visitor, host: str, task: str) -> None:
    """A session may do with a task all that there is."""
    assert task in await listed(one, host)
    assert (await asked(one, host, "tasks/get", taskId=task))["taskId"] == task
    result = await asked(one, host, "tasks/result", taskId=task)
    assert result["content"][0]["text"] == "flour"


async def knows_nothing(one: Visitor, host: str, task: str) -> None:
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        assert await asked(one, host, method, taskId=task) == UNKNOWN
    assert await listed(one, host) == []


async def is_asked(one: Visitor, host: str, task: str) -> None:
    """A session that waits for the result of a task gets its question."""
    peer = await one.send(host, body=message("tasks/result", {"taskId": task}, 77))
    head = await peer.head()
    while not head.messages or head.messages[-1]["method"] == "notifications/tasks/status":
        assert await peer.more(head)
    question = head.messages[-1]
    assert question["method"] == "elicitation/create"
    answer = {"action": "accept", "content": {"value": "rye"}}
    said = {"jsonrpc": "2.0", "id": question["id"], "result": answer}
    assert (await one.ask(host, body=json.dumps(said).encode())).status == 202
    while await peer.more(head):  # changes of the task may come before
        pass
    assert head.messages[-1]["result"]["content"][0]["text"] == "rye"


PRINCIPALS = [{"name": name, "token": TOKENS[name]} for name in ("anne", "bob")]


@pytest.mark.parametrize("isolation", ["shared", "pool"])
@pytest.mark.parametrize("several", [False, True])
async def test_a_task_of_a_principal_is_known_to_all_hosts(
    tmp_path: Path, store_server: StoreServer, isolation: str, several: bool
) -> None:
    options = {"store": store_server, "principals": PRINCIPALS, "several": several}
    options["isolation"] = isolation
    tool = "mill_grind" if several else "grind"
    async with mills(tmp_path, "a", "b", **options) as hosts:
        task = await made(await session(hosts, "a", "anne"), "a", tool)
        slow = await made(await session(hosts, "a", "anne"), "a", tool, seconds=60)
        for host in "ba":
            await owns(await session(hosts, host, "anne"), host, task)
            await knows_nothing(await session(hosts, host, "bob"), host, task)
        there = await session(hosts, "b", "anne")
        assert (await asked(there, "b", "tasks/cancel", taskId=slow))["status"] == "cancelled"
        mine = await made(await session(hosts, "b", "bob"), "b", tool)
        assert await listed(await session(hosts, "a", "bob"), "a") == [mine]


async def test_a_task_of_a_principal_is_known_to_all_workers(
    tmp_path: Path, store_server: StoreServer
) -> None:
    options = {"store": store_server, "principals": PRINCIPALS, "words": ("--workers", "2")}
    async with mills(tmp_path, "a", **options) as hosts:
        task = await made(await session(hosts, "a", "anne"), "a")
        workers = set()
        while len(workers) < 2:
            one = await session(hosts, "a", "anne")
            workers.add(one.fields["mcp_session_id"].split(".")[1])
            await owns(one, "a", task)


async def test_a_task_goes_on_with_its_session(tmp_path: Path, store_server: StoreServer) -> None:
    async with mills(tmp_path, "a", "b", store=store_server) as hosts:
        one, other = await session(hosts, "a"), await session(hosts, "b")
        task = await made(one, "a")
        await owns(one, "b", task)  # it is passed on
        await knows_nothing(other, "b", task)
        await hosts.kill("a")
        await owns(one, "b", task)
        await knows_nothing(other, "b", task)


async def test_a_task_asks_its_client_at_another_host(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with mills(tmp_path, "a", "b", store=store_server) as hosts:
        one = await session(hosts, "a")
        await session(hosts, "b")  # so the client is not the only one that may be asked
        task = await made(one, "a", "choose")
        await hosts.kill("a")
        assert await one.answer("b", "grind") == "flour"
        await is_asked(one, "b", task)


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_task_asks_the_session_that_waits_for_it(
    tmp_path: Path, store_server: StoreServer, leaves: bool
) -> None:
    """Another session of the same principal has made the task, and does not listen."""
    async with mills(tmp_path, "a", store=store_server, principals=PRINCIPALS) as hosts:
        one, other = [await session(hosts, "a", "anne") for _ in range(2)]
        task = await made(one, "a", "choose")
        if leaves:
            assert (await one.ask("a", "DELETE")).status == 204
        await is_asked(other, "a", task)


async def test_the_store_is_away(tmp_path: Path, new_store_server: MakeServer) -> None:
    """The process in which a task was made knows the task. Other questions may be repeated."""
    store = new_store_server()
    options = {"principals": PRINCIPALS, "cluster": {"storeTimeout": 0.25}}
    async with mills(tmp_path, "a", "b", store=store, **options) as hosts:
        one, other = await session(hosts, "a", "anne"), await session(hosts, "a", "bob")
        there = await made(await session(hosts, "b", "anne"), "b")
        before = await made(one, "a")
        store.freeze()
        during = await made(one, "a")
        for task in (before, during):
            assert (await asked(one, "a", "tasks/get", taskId=task))["taskId"] == task
            assert (await asked(other, "a", "tasks/get", taskId=task))["code"] == LATER
        assert (await asked(one, "a", "tasks/result", taskId=there))["code"] == LATER
        assert (await asked(one, "a", "tasks/list"))["code"] == LATER
        store.thaw()
        while "tasks" not in (found := await asked(one, "a", "tasks/list")):
            assert found["code"] == LATER
            await asyncio.sleep(0.05)
        for task in (there, before, during):
            await owns(one, "a", task)
            await knows_nothing(other, "a", task)


def scripted(
    call: Callable[[Exchange, Any], Awaitable[None]],
    get: Callable[[Exchange, Any], Awaitable[None]],
) -> Any:
    """A server that makes tasks as a test says."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "tasks": {}}}
    hello["serverInfo"] = {"name": "mill", "version": "1"}
    return legacy(**{"initialize": hello, "tools/call": call, "tasks/get": get})


def at(peer: HttpPeer) -> dict[str, Any]:
    return {"mill": {"url": peer.url, "era": "legacy", "proxy": {"isolation": "shared"}}}


async def test_a_task_that_the_store_was_not_told_of(
    tmp_path: Path, new_store_server: MakeServer
) -> None:
    """All hosts know its maker when this has asked where the task was made."""
    store = new_store_server()

    async def call(exchange: Exchange, _: Any) -> None:
        exchange.result({"task": {"taskId": "1", "status": "working", "ttl": None}})

    async def get(exchange: Exchange, _: Any) -> None:
        exchange.result({"taskId": "1", "status": "working"})

    async with (
        scripted(call, get) as peer,
        proxies(tmp_path, "a", "b", servers=at(peer), store=store, principals=PRINCIPALS) as hosts,
    ):
        anne = {host: await session(hosts, host, "anne") for host in "ab"}
        bob = {host: await session(hosts, host, "bob") for host in "ab"}
        store.ask("ACL", "SETUSER", "default", "-eval", "-evalsha")
        assert await made(anne["a"], "a") == "1"
        store.ask("ACL", "SETUSER", "default", "+eval", "+evalsha")
        assert await asked(anne["b"], "b", "tasks/get", taskId="1") == UNKNOWN
        for host in "ab":
            assert (await asked(anne[host], host, "tasks/get", taskId="1"))["taskId"] == "1"
            assert await asked(bob[host], host, "tasks/get", taskId="1") == UNKNOWN
        assert await made(bob["b"], "b") == "1"
        for host in "ab":
            assert await asked(anne[host], host, "tasks/get", taskId="1") == UNKNOWN


async def test_a_life_of_a_task_that_is_none(tmp_path: Path, store_server: StoreServer) -> None:
    """The task is its maker's, whatever the server says of its life."""
    lives = [10**400, -1, True, "long"]

    def task(id: str) -> dict[str, Any]:
        return {"taskId": id, "status": "working", "ttl": lives[int(id)]}

    async def call(exchange: Exchange, message: Any) -> None:
        exchange.result({"task": task(message["params"]["arguments"]["id"])})

    async def get(exchange: Exchange, message: Any) -> None:
        exchange.result(task(message["params"]["taskId"]))

    async with (
        scripted(call, get) as peer,
        proxies(tmp_path, "a", servers=at(peer), store=store_server) as hosts,
    ):
        one = await session(hosts, "a")
        for id in map(str, range(len(lives))):
            assert await made(one, "a", id=id) == id
            assert await asked(one, "a", "tasks/get", taskId=id) == task(id)
