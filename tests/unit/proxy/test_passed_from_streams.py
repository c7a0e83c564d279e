"""Requests over WebSocket that name a process of another worker or host of the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lab.hosts import join
from lab.http import MODERN
from lab.member import ANSWER, CUT, END, PART, REQUEST, End, answer_of, answering
from lab.process import free_port
from lab.proxy_hosts import SECRET, ProxyHosts, proxies, tea, two_of
from lab.raw import FOREVER, META
from lab.store import StoreServer
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

pytestmark = pytest.mark.own_environment

SERVER = """
import asyncio, os, pathlib, sys
from typing import Annotated
from wirespeed import Context, HeaderParam, Server

server = Server("shop", page_size=1)

@server.tool
async def confirm(
    ctx: Context, steps: int = 0, region: Annotated[str, HeaderParam("Region")] = ""
) -> str:
    await ctx.elicit("really?", bool)
    for step in range(steps):
        await ctx.progress(step, message=step * "x")
    return str(os.getpid())

@server.tool
async def refuse(ctx: Context) -> str:
    await ctx.elicit("really?", bool)
    raise ValueError("no")

@server.tool
async def wait(ctx: Context, file: str, seconds: float = 60.0) -> str:
    await ctx.elicit("really?", bool)
    await ctx.progress(0)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        pathlib.Path(file).write_text("cancelled")
        raise
    return "waited"

async def other() -> None: ...

server.add_tool(other, description=f"runs in {os.getpid()}")

@server.tool(task="optional", task_after=0)
async def brew(ctx: Context) -> str:
    await asyncio.sleep(0.1)
    return "tea"

server.run(*sys.argv[1:])
"""
ABOUT = {
    META + "protocolVersion": MODERN,
    META + "clientInfo": {"name": "c", "version": "1"},
    META + "clientCapabilities": {
        "elicitation": {"form": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}


class Stream:
    """A client over WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._ids = itertools.count(1)
        self.told: list[Any] = []  # notifications that have come

    async def send(self, method: str, params: dict[str, Any]) -> str:
        """Send a request; returns its id."""
        id = f"id-{next(self._ids)}"
        await self.say(method, {**params, "_meta": {**ABOUT, "progressToken": id}}, id=id)
        return id

    async def say(self, method: str, params: dict[str, Any], **more: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        await self.socket.send(json.dumps({**message, **more}))

    async def next(self) -> Any:
        async with asyncio.timeout(FOREVER):
            return json.loads(await self.socket.recv())

    async def answer(self, id: str) -> Any:
        """The answer to a request."""
        while (found := await self.next()).get("id") != id:
            self.told.append(found)
        return found

    async def ask(self, method: str, **params: Any) -> Any:
        return await self.answer(await self.send(method, params))

    async def place(self) -> str:
        """The process that it is connected to."""
        state: str = (await self.asked("confirm"))["requestState"]
        return state.partition("~")[0]

    async def asked(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The params of the call that answers the question of a tool."""
        call = {"name": tool, "arguments": arguments}
        found = (await self.ask("tools/call", **call))["result"]
        (key,) = found["inputRequests"]
        answers = {key: {"action": "accept", "content": {"value": True}}}
        return {**call, "requestState": found["requestState"], "inputResponses": answers}


@contextlib.asynccontextmanager
async def connected(
    hosts: ProxyHosts, name: str, principal: str | None = None, path: str = "/mcp"
) -> AsyncIterator[Stream]:
    """A client of a host."""
    url = f"ws://127.0.0.1:{hosts.ports[name]}{path}"
    fields = {} if principal is None else {"Authorization": f"Bearer {TOKENS[principal]}"}
    async with connect(
        url, subprotocols=[Subprotocol("mcp")], additional_headers=fields, proxy=None
    ) as socket:
        yield Stream(socket)


@contextlib.asynccontextmanager
async def elsewhere(hosts: ProxyHosts, one: Stream, name: str) -> AsyncIterator[Stream]:
    """A client of a process that is not that of another client."""
    while True:
        async with connected(hosts, name) as two:
            if await two.place() != await one.place():
                yield two
                return


def shop(folder: Path) -> dict[str, Any]:
    (folder / "shop.py").write_text(SERVER)
    entry = tea(folder)
    return {"shop": {**entry, "command": sys.executable, "args": [str(folder / "shop.py")]}}


async def until(path: Path) -> None:
    async with asyncio.timeout(FOREVER):
        while not path.exists():
            await asyncio.sleep(0.02)


async def walk(one: Stream, two: Stream) -> None:
    """Bring what one process has given to another one."""
    again = await one.asked("confirm", steps=3, region="eu")
    done = await two.ask("tools/call", **again)
    assert done["result"]["content"][0]["text"].isdigit(), done
    steps = [told["params"] for told in two.told]
    two.told.clear()
    assert [told["progress"] for told in steps] == [0, 1, 2]
    assert {told["progressToken"] for told in steps} == {done["id"]}

    refused = await two.ask("tools/call", **await one.asked("refuse"))
    assert refused["result"]["isError"] is True

    page = (await one.ask("tools/list"))["result"]
    for stream in (two, one, two):
        page = (await stream.ask("tools/list", cursor=page["nextCursor"]))["result"]
        assert page["tools"]

    task = (await one.ask("tools/call", name="brew", arguments={}))["result"]
    assert task["resultType"] == "task"
    for method in ("get", "cancel", "get"):
        found = await two.ask(f"tasks/{method}", taskId=task["taskId"])
        assert "result" in found, (method, found)

    wrong = task["taskId"][:-1]
    assert (await two.ask("tasks/get", taskId=wrong))["error"]["code"] == -32602


@pytest.mark.parametrize("kind", ["workers", "hosts"])
async def test_values_lead_to_their_process(
    tmp_path: Path, store_server: StoreServer, kind: str
) -> None:
    names, options = two_of(kind, store_server)
    async with (
        proxies(tmp_path, *names, servers=shop(tmp_path), **options) as hosts,
        connected(hosts, names[0]) as one,
        elsewhere(hosts, one, names[-1]) as two,
    ):
        await walk(one, two)
        await walk(two, one)


async def test_values_lead_to_a_worker_of_another_host(
    tmp_path: Path, store_server: StoreServer
) -> None:
    names, options = two_of("hosts", store_server)
    options |= {"words": ("--workers", "2"), "servers": shop(tmp_path)}
    async with proxies(tmp_path, *names, **options) as hosts:
        for _ in range(4):
            async with connected(hosts, "a") as one, connected(hosts, "b") as two:
                await walk(one, two)


async def test_a_port_of_websocket_alone(tmp_path: Path, store_server: StoreServer) -> None:
    """Its requests are passed on by the proxy's port of HTTP, whatever that answers its own."""
    names, options = two_of("workers", store_server)
    port = free_port()
    http = {"url": f"http://127.0.0.1:{free_port()}/mcp", "response": "json"}
    listen = [http, f"ws://127.0.0.1:{port}/mcp"]
    servers = shop(tmp_path)
    async with proxies(tmp_path, *names, servers=servers, listen=listen, **options) as hosts:
        hosts.ports["a"] = port
        async with connected(hosts, "a") as one, elsewhere(hosts, one, "a") as two:
            await walk(one, two)


@pytest.mark.parametrize("path", ["/mcp", "/servers/shop"])
async def test_one_of_several_servers(tmp_path: Path, store_server: StoreServer, path: str) -> None:
    names, options = two_of("hosts", store_server)
    servers = {**shop(tmp_path), "tea": tea(tmp_path)}
    async with (
        proxies(tmp_path, *names, servers=servers, **options) as hosts,
        connected(hosts, "a", path=path) as one,
        connected(hosts, "b", path=path) as two,
    ):
        tool = "confirm" if path == "/servers/shop" else "shop_confirm"
        done = await two.ask("tools/call", **await one.asked(tool, steps=1))
        assert done["result"]["content"][0]["text"].isdigit(), done


async def test_a_host_that_does_not_have_the_server(
    tmp_path: Path, store_server: StoreServer
) -> None:
    _, options = two_of("hosts", store_server)
    servers = shop(tmp_path)
    async with proxies(tmp_path, "a", servers=servers, **options) as hosts:
        hosts.servers = {"other": servers["shop"], "tea": tea(tmp_path)}
        await hosts.start("b")
        async with (
            connected(hosts, "a") as one,
            connected(hosts, "b", path="/servers/other") as two,
        ):
            task = (await one.ask("tools/call", name="brew", arguments={}))["result"]["taskId"]
            error = (await two.ask("tasks/get", taskId=task))["error"]
            assert error["code"] == -32603 and "404" in error["message"]


@pytest.mark.parametrize("kind", ["workers", "hosts"])
@pytest.mark.parametrize("end", ["cancels", "leaves"])
async def test_a_client_that_gives_a_request_up(
    tmp_path: Path, store_server: StoreServer, kind: str, end: str
) -> None:
    names, options = two_of(kind, store_server)
    done = tmp_path / "done"
    async with (
        proxies(tmp_path, *names, servers=shop(tmp_path), **options) as hosts,
        connected(hosts, names[0]) as one,
        elsewhere(hosts, one, names[-1]) as two,
    ):
        id = await two.send("tools/call", await one.asked("wait", file=str(done)))
        assert (await two.next())["method"] == "notifications/progress"
        assert not done.exists()
        if end == "cancels":
            await two.say("notifications/cancelled", {"requestId": id})
            await until(done)
            assert "result" in await two.ask("tools/list")
        else:
            await two.socket.close()
            await until(done)


async def test_the_host_of_a_request_is_killed(tmp_path: Path, store_server: StoreServer) -> None:
    """The request may have taken effect. Later ones are for a process here."""
    names, options = two_of("hosts", store_server)
    async with (
        proxies(tmp_path, *names, servers=shop(tmp_path), **options) as hosts,
        connected(hosts, "a") as one,
        connected(hosts, "b") as two,
    ):
        again = await one.asked("confirm")
        task = (await one.ask("tools/call", name="brew", arguments={}))["result"]["taskId"]
        id = await two.send("tools/call", await one.asked("wait", file=str(tmp_path / "done")))
        assert (await two.next())["method"] == "notifications/progress"
        await hosts.kill("a")
        lost = (await two.answer(id))["error"]
        assert lost["code"] == -31006 and "may have taken effect" in lost["message"]
        async with asyncio.timeout(FOREVER):
            while (await two.ask("tasks/get", taskId=task))["error"]["code"] != -32602:
                await asyncio.sleep(0.1)
        assert (await two.ask("tools/call", **again))["error"]["code"] == -32602
        assert "result" in await two.ask("tools/list")


@pytest.mark.parametrize("seconds", [0.5, 60])
async def test_the_host_of_the_client_shuts_down(
    tmp_path: Path, store_server: StoreServer, seconds: float
) -> None:
    """A request that was passed on has the grace time."""
    names, options = two_of("hosts", store_server)
    options |= {"shutdownGrace": 2, "servers": shop(tmp_path)}
    done = tmp_path / "done"
    async with (
        proxies(tmp_path, *names, **options) as hosts,
        connected(hosts, "a") as one,
        connected(hosts, "b") as two,
    ):
        call = await one.asked("wait", file=str(done), seconds=seconds)
        id = await two.send("tools/call", call)
        assert (await two.next())["method"] == "notifications/progress"
        hosts.hosts["b"].signal(signal.SIGTERM)
        answer = await two.answer(id)
        if seconds < 1:
            assert answer["result"]["content"][0]["text"] == "waited"
        else:
            assert answer["error"]["code"] == -31006
            await until(done)
        assert await hosts.hosts["b"].ended() == 0
        assert "result" in await one.ask("tools/list")


async def test_the_host_of_a_request_shuts_down(tmp_path: Path, store_server: StoreServer) -> None:
    names, options = two_of("hosts", store_server)
    async with (
        proxies(tmp_path, *names, servers=shop(tmp_path), **options) as hosts,
        connected(hosts, "a") as one,
        connected(hosts, "b") as two,
    ):
        call = await one.asked("wait", file=str(tmp_path / "done"), seconds=0.5)
        id = await two.send("tools/call", call)
        assert (await two.next())["method"] == "notifications/progress"
        hosts.hosts["a"].signal(signal.SIGTERM)
        assert (await two.answer(id))["result"]["content"][0]["text"] == "waited"


@pytest.mark.parametrize("end", ["cancelled", "drained"])
async def test_a_subscription_to_tasks(tmp_path: Path, store_server: StoreServer, end: str) -> None:
    names, options = two_of("hosts", store_server)
    options |= {"shutdownGrace": 600, "servers": shop(tmp_path)}
    async with (
        proxies(tmp_path, *names, **options) as hosts,
        connected(hosts, "a") as one,
        connected(hosts, "b") as two,
    ):
        task = (await one.ask("tools/call", name="brew", arguments={}))["result"]["taskId"]
        id = await two.send("subscriptions/listen", {"notifications": {"taskIds": [task]}})
        told = (await two.next())["params"]
        assert told["notifications"] == {"taskIds": [task]}
        assert told["_meta"] == {META + "subscriptionId": id}
        if end == "cancelled":
            await two.say("notifications/cancelled", {"requestId": id})
            assert "result" in await two.ask("tools/list")
        else:
            hosts.hosts["b"].signal(signal.SIGTERM)
            answer = await two.answer(id)
            assert answer["result"]["resultType"] == "complete"
            assert await hosts.hosts["b"].ended() == 0


async def test_a_client_that_reads_late(tmp_path: Path, store_server: StoreServer) -> None:
    """It gets the answer, and of the progress what there was room for. The request of another
    client goes on meanwhile."""
    names, options = two_of("hosts", store_server)
    async with (
        proxies(tmp_path, *names, servers=shop(tmp_path), **options) as hosts,
        connected(hosts, "a") as one,
        connected(hosts, "b") as two,
        connected(hosts, "b") as other,
    ):
        id = await two.send("tools/call", await one.asked("confirm", steps=5_000))
        await two.next()
        again = await one.asked("confirm", steps=1)
        assert "result" in await other.ask("tools/call", **again)
        assert "result" in await two.answer(id)
        steps = [told["params"]["progress"] for told in two.told]
        assert steps == sorted(set(steps)) and len(steps) > 100


TOKENS = {name: name * 12 for name in ("anne", "rob")}


async def test_who_a_client_is_is_passed_on(tmp_path: Path, store_server: StoreServer) -> None:
    names, options = two_of("hosts", store_server)
    options["principals"] = [{"name": name, "token": token} for name, token in TOKENS.items()]
    async with (
        proxies(tmp_path, *names, servers=shop(tmp_path), **options) as hosts,
        connected(hosts, "a", "anne") as one,
        connected(hosts, "b", "anne") as two,
        connected(hosts, "b", "rob") as other,
    ):
        task = (await one.ask("tools/call", name="brew", arguments={}))["result"]["taskId"]
        assert (await other.ask("tasks/get", taskId=task))["error"]["code"] == -32602
        assert (await two.ask("tasks/get", taskId=task))["result"]["taskId"] == task


# -- what another host says, which a test plays ----------------------------------------------------

KEY = hmac.digest(SECRET.encode(), b"wirespeed session hosts 1\0proxy", "sha256")
EVENTS = b"Content-Type: text/event-stream\r\n"


def message(id: str, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, **more}).encode()


async def test_answers_of_a_host(tmp_path: Path, store_server: StoreServer) -> None:
    """The client gets each message as the host sent it. If the host sends another message than the
    answer, or breaks off, the client gets an error that says so."""
    error = {"code": 7, "message": "no", "data": [1.0], "more": None}
    told = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": 1.0}}

    async def serve(end: End) -> None:
        while True:
            kind, number, data = await end.frame()
            if kind != REQUEST:
                continue
            request = json.loads(data.partition(b"\r\n\r\n")[2])
            id, way = request["id"], request["params"]["taskId"].removeprefix("x.0~")
            assert msgspec.msgpack.decode(data[4:].partition(b"POST")[0])[5:] == [0, True, True]
            if way == "error":
                end.send(ANSWER, number, answer_of(200, -1, EVENTS))
                end.send(PART, number, b"data: %b\n\n: still\n\n" % json.dumps(told).encode())
                text = b"data: %b\n\n" % message(id, error=error)
                end.send(PART, number, text[:9])
                end.send(PART, number, text[9:])
                end.send(END, number)
            elif way == "other":
                body = message("other", result={})
                end.send(ANSWER, number, answer_of(200, len(body)))
                end.send(PART, number, body)
                await asyncio.sleep(0.05)  # the end comes by itself
                end.send(END, number)
            elif way == "broken":
                end.send(ANSWER, number, answer_of(200, -1, EVENTS))
                end.send(PART, number, b"data: {")
                end.send(CUT, number)
            elif way == "short":
                end.send(ANSWER, number, answer_of(200, 9))
                end.send(PART, number, b"{}")
                end.send(END, number)
            elif way == "cut":
                end.send(CUT, number)
            else:
                end.send(ANSWER, number, answer_of(int(way), 0))
                end.send(END, number)

    _, options = two_of("hosts", store_server)
    async with (
        proxies(tmp_path, "b", servers=shop(tmp_path), **options) as hosts,
        answering(serve, key=KEY) as url,
    ):
        await join(store_server, hosts, url)
        async with connected(hosts, "b") as one:

            async def ask(way: str) -> Any:
                return (await one.ask("tasks/get", taskId=f"x.0~{way}"))["error"]

            assert await ask("error") == error
            assert one.told == [told]
            for way in ("other", "broken", "short", "cut"):
                assert (await ask(way))["code"] == -31006, way
            assert (await ask("503"))["code"] == -31000
            assert (await ask("404"))["code"] == -32603
            found = await ask("421")  # it does not have it, so a process here is asked
            assert found["code"] == -32602 and "worker 0 of the host x" in found["message"]
            assert "result" in await one.ask("tools/list")
