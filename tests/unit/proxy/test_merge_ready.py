"""The endpoint of several servers answers with those that are ready, and joins what it needs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lab.gateway import gateway, inside
from lab.merge import MergeLab
from lab.proxy import call
from lab.raw import modern
from lab.wording import raises

from wirespeed import Client, Server, Stdio
from wirespeed.errors import RemoteError
from wirespeed.proxy import BackendConfig

TOOLS = {"tools/list": {"result": {"tools": [{"name": "x", "inputSchema": {"type": "object"}}]}}}


@pytest.fixture(params=["auto", "legacy"])
def era(request: pytest.FixtureRequest) -> Any:
    """Each era."""
    return request.param


def mute(**more: Any) -> BackendConfig:
    """A server that says nothing."""
    return BackendConfig(target=Stdio("sleep", ["1000"], shutdown_grace=0.1), name="mute", **more)


async def until_ready(lab: MergeLab, name: str) -> None:
    """Wait until the server of a name can answer."""
    supervisors = lab.proxy.services[name].assignment.supervisors
    while not any(one.status.state == "ready" for one in supervisors):
        await asyncio.sleep(0.01)


async def test_a_server_that_never_starts_costs_the_first_client_the_wait(
    tmp_path: Path, era: Any
) -> None:
    """The others, one after another, wait for nothing."""
    lab = MergeLab(tmp_path, ready_within=1.5)
    lab.backends = [
        lab.scripted("good", TOOLS, isolation="shared"),
        mute(),
        BackendConfig(target=Stdio("/nowhere/at/all"), name="missing"),
    ]
    loop = asyncio.get_running_loop()
    async with lab.serving():
        await until_ready(lab, "good")
        waits = []
        for _ in range(5):
            began = loop.time()
            async with Client(lab.url, era=era) as client:
                assert [one.name for one in await client.list_tools()] == ["good_x"]
                assert not (await client.call_tool("good_x")).is_error
                with raises(RemoteError, code=-31004):
                    await client.call_tool("missing_x")
            waits.append(loop.time() - began)
        assert sum(waits) < 25.0  # a start may take 30 seconds


SLOW = """
import os, sys, time
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
"""


def slow(lab: MergeLab, **more: Any) -> BackendConfig:
    """A server that starts when the file "go" is there."""
    config = lab.backend("slow", **more)
    assert isinstance(config.target, Stdio)
    script = lab.script.with_name("slow.py")
    script.write_text(SLOW + "del sys.argv[2]\n" + lab.script.read_text())
    arguments = [str(script), "slow", str(lab.script.with_name("go")), str(lab.log)]
    return replace(config, target=msgspec.structs.replace(config.target, args=arguments))


@pytest.mark.parametrize("isolation", ["auto", "shared"])
async def test_the_rest_comes_later(tmp_path: Path, isolation: Any) -> None:
    """Clients of a legacy era get notifications."""
    lab = MergeLab(tmp_path, ready_within=0.2)
    lab.backends = [lab.scripted("good", TOOLS, isolation="shared"), slow(lab, isolation=isolation)]
    async with lab.serving():
        await until_ready(lab, "good")
        client = await lab.connect(None)
        hello = (await client.initialize())["result"]
        assert hello["capabilities"]["prompts"] == {"listChanged": True}  # it may have some
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        tools = (await client.ask(ask))["result"]["tools"]
        assert [one["name"] for one in tools] == ["good_x"]
        (tmp_path / "go").touch()
        told = {(await client.recv())["method"] for _ in range(3)}
        assert told == {
            f"notifications/{x}/list_changed" for x in ("tools", "prompts", "resources")
        }
        found: set[str] = set()
        while "slow_who" not in found:  # its list may be late as well
            answer = await client.ask(ask)
            if "result" in answer:
                found = {one["name"] for one in answer["result"]["tools"]}


@pytest.mark.parametrize("listen", ["http", "ws"])
async def test_the_rest_comes_later_by_subscription(tmp_path: Path, listen: str) -> None:
    """Clients of 2026-07-28 hear of it where they listen."""
    lab = MergeLab(tmp_path, ready_within=0.2)
    lab.backends = [lab.scripted("good", TOOLS, isolation="shared"), slow(lab)]
    async with lab.serving(f"{listen}://127.0.0.1:0/mcp") as (url, *_):
        await until_ready(lab, "good")
        async with Client(url, era="modern") as client, client.subscribe(tools=True) as changes:
            assert [one.name for one in await client.list_tools()] == ["good_x"]
            (tmp_path / "go").touch()
            await anext(aiter(changes))
            while "slow_who" not in {one.name for one in await client.list_tools()}:
                await asyncio.sleep(0.01)


async def test_a_change_is_heard_by_subscription(tmp_path: Path) -> None:
    """Of a server of either era."""
    lab = MergeLab(tmp_path, "red")
    lab.backends.append(lab.backend("blue", era="legacy", isolation="shared"))
    async with (
        lab.serving(),
        Client(lab.url, era="modern") as client,
        client.subscribe(tools=True) as changes,
    ):
        stream = aiter(changes)
        for name in ("red", "blue"):
            await client.list_tools()
            assert (await client.call_tool(f"{name}_grow")).data == "grown"
            await anext(stream)
            while f"{name}_more" not in {one.name for one in await client.list_tools()}:
                await asyncio.sleep(0.01)


async def test_a_client_is_joined_to_what_it_uses(tmp_path: Path) -> None:
    """The first client asks all servers. The others get what these have said."""
    lab = MergeLab(tmp_path)
    lab.backends = [lab.scripted(name, TOOLS, isolation="session") for name in ("a", "b", "c")]
    async with lab.serving():
        services = lab.proxy.services
        clients = [await lab.connect() for _ in range(5)]
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for client in clients:
            names = [one["name"] for one in (await client.ask(ask))["result"]["tools"]]
            assert names == ["a_x", "b_x", "c_x"]
        assert [len(services[name].downstreams) for name in "abc"] == [1, 1, 1]
        assert "result" in await clients[3].ask(call(2, "b_x"))
        assert [len(services[name].downstreams) for name in "abc"] == [1, 2, 1]


async def test_what_a_client_did_to_its_server_stays_with_it(tmp_path: Path) -> None:
    """The list of a server that a client has used is not that of others."""
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving():
        one = await lab.connect()
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        before = {tool["name"] for tool in (await one.ask(ask))["result"]["tools"]}
        await one.send(call(2, "red_grow"))
        for _ in range(2):
            await one.recv()  # the result, and the change
        after = {tool["name"] for tool in (await one.ask(ask))["result"]["tools"]}
        assert after - before == {"red_more"}
        two = await lab.connect()
        assert {tool["name"] for tool in (await two.ask(ask))["result"]["tools"]} == before


async def test_a_change_reaches_clients_that_are_not_joined(tmp_path: Path) -> None:
    """Of a server that all share."""
    lab = MergeLab(tmp_path, "red")
    lab.backends.append(lab.backend("blue", isolation="shared"))
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for client in (one, two):
            await client.ask(ask)
        assert len(lab.proxy.services["blue"].downstreams) == 1
        await one.ask(call(2, "blue_grow"))
        assert (await two.recv())["method"] == "notifications/tools/list_changed"
        tools = (await two.ask(ask))["result"]["tools"]
        assert "blue_more" in {tool["name"] for tool in tools}


async def test_lists_at_once_are_one_list(tmp_path: Path) -> None:
    """A server is asked once for clients of 2026-07-28 that ask at the same time, and all of them
    get the same text."""
    lab = MergeLab(tmp_path)
    lab.backends = [lab.scripted(name, TOOLS, isolation="shared") for name in ("a", "b")]
    async with lab.serving():
        clients = [await lab.connect(None) for _ in range(20)]
        await clients[0].ask(modern(0, "tools/list"))
        n = len(lab.seen("tools/list"))
        for client in clients:  # nothing runs between: the proxy reads all of them in one turn
            await client.send(modern(1, "tools/list"))
        answers = [await client.recv() for client in clients]
        assert all(answer == answers[0] for answer in answers)
        assert len(lab.seen("tools/list")) - n == 2  # of each server


async def test_who_leaves_takes_no_server_along() -> None:
    """A server is asked once, on behalf of one client, what it is. That client may leave."""
    server = Server("a")
    server.add_tool(lambda: "done", name="work")
    asked, ready = asyncio.Event(), asyncio.Event()

    @server.add_middleware
    async def hold(request: Any, call_next: Any) -> Any:
        if request.method == "server/discover" and holds:
            asked.set()
            await ready.wait()
        return await call_next(request)

    holds = False
    backends = inside("a", server), inside("b", Server("b"))
    async with gateway(*backends, listen="ws://127.0.0.1:0/mcp", ready_within=60) as lab:
        async with lab.client(path="/servers/a") as warm:  # its era is known now
            await warm.list_tools()
        holds = True

        async def tools() -> list[str]:
            async with lab.client() as client:
                return [one.name for one in await client.list_tools()]

        first = asyncio.create_task(tools())
        await asyncio.wait_for(asked.wait(), 20)
        second = asyncio.create_task(tools())
        await asyncio.sleep(0.1)
        first.cancel()
        await asyncio.wait((first,))
        await asyncio.sleep(0.1)
        ready.set()
        assert await second == ["a_work"]


@pytest.mark.off_schema
async def test_extensions_whose_methods_are_served(tmp_path: Path) -> None:
    """Those of a single server are not declared if nobody passes their methods on."""
    extensions = {"io.modelcontextprotocol/ui": {}, "com.example/skills": {}}
    capabilities = {"tools": {}, "extensions": extensions, "experimental": {"x": {}}}
    lab = MergeLab(tmp_path, "red")
    lab.backends.append(lab.scripted("s", {"initialize": {"capabilities": capabilities}}))
    async with lab.serving():
        client = await lab.connect(None)
        hello = (await client.initialize())["result"]["capabilities"]
        assert hello["extensions"] == {"io.modelcontextprotocol/ui": {}}
        assert "experimental" not in hello
        error = (await client.ask({"jsonrpc": "2.0", "id": 1, "method": "skills/list"}))["error"]
        assert error["code"] == -32601


async def test_what_the_endpoint_refuses_is_counted(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving():
        lab.proxy.observe()
        client = await lab.connect()
        await client.ask(call(1, "nope"))
        await client.ask({"jsonrpc": "2.0", "id": 2, "method": "skills/list"})
        observer = lab.proxy.endpoints[-1].meter.observer
        assert observer is not None
        assert {key[0]: one.codes for key, one in observer.series.items()} == {
            "tools/call": {-32602: 1}, "other": {-32601: 1},
        }  # fmt: skip


APP = """
import sys
from wirespeed import Server
server = Server(sys.argv[1])

@server.resource("ui://" + sys.argv[1] + "/view.html", mime_type="text/html;profile=mcp-app")
def view() -> str:
    return "<p>" + sys.argv[1]

@server.tool(meta={"ui": {"resourceUri": "ui://" + sys.argv[1] + "/view.html"}})
async def show() -> str:
    return "shown"

server.run()
"""


async def test_apps(tmp_path: Path, era: Any) -> None:
    """The view that a tool names is read from the server of the tool."""
    lab = MergeLab(tmp_path)
    lab.backends = [lab.backend("red"), lab.backend("blue")]
    lab.script.write_text(APP)
    async with lab.serving(), Client(lab.url, era=era) as client:
        for tool in await client.list_tools():
            name = tool.name.split("_")[0]
            uri = (tool.meta or {})["ui"]["resourceUri"]
            (view,) = (await client.read_resource(uri)).contents
            assert view.text == f"<p>{name}"  # type: ignore[union-attr]
            assert view.mime_type == "text/html;profile=mcp-app"


async def test_many_servers(tmp_path: Path) -> None:
    """They are started in turn. None of them is late because of the others."""
    lab = MergeLab(tmp_path)
    lab.backends = [
        lab.scripted(f"s{n}", TOOLS, isolation=("shared", "session")[n % 2]) for n in range(30)
    ]
    async with lab.serving():
        client = await lab.connect()
        answer = await client.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        names = [one["name"] for one in answer["result"]["tools"]]
        assert names == [f"s{n}_x" for n in range(30)]
        assert "result" in await client.ask(call(2, "s29_x"))


async def test_clients_of_many_kinds(tmp_path: Path) -> None:
    """Lists of a few of them are kept."""
    lab = MergeLab(tmp_path)
    lab.backends = [lab.scripted(name, TOOLS, isolation="shared") for name in ("a", "b")]
    async with lab.serving():
        client = await lab.connect(None)
        endpoint: Any = lab.proxy.endpoints[-1].assignment
        endpoint.max_catalogs = 3
        for n in range(10):
            request = modern(n, "tools/list")
            meta = request["params"]["_meta"]
            meta["io.modelcontextprotocol/clientCapabilities"] = {"extensions": {f"x{n}": {}}}
            answer = await client.ask(request)
            assert [one["name"] for one in answer["result"]["tools"]] == ["a_x", "b_x"]
            (one,) = endpoint._clients.values()
            assert len(endpoint._catalogs) == len(one._catalogs) == min(n + 1, 3)


@pytest.mark.parametrize("wrong", [{}, {"io.modelcontextprotocol/protocolVersion": "2027-01-01"}])
async def test_an_envelope_that_is_wrong(tmp_path: Path, wrong: Any) -> None:
    """It is refused, and no server is asked. Other clients get what they ask for."""
    lab = MergeLab(tmp_path)
    lab.backends = [lab.scripted(name, TOOLS, isolation="shared") for name in ("a", "b")]
    async with lab.serving():
        client = await lab.connect(None)
        request = modern(1, "tools/list")
        if wrong:
            request["params"]["_meta"] |= wrong
        else:
            del request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        error = (await client.ask(request))["error"]
        assert error["code"] == (-32022 if wrong else -32602)
        assert lab.seen("tools/list") == []
        answer = await client.ask(modern(2, "tools/list"))
        assert [one["name"] for one in answer["result"]["tools"]] == ["a_x", "b_x"]
