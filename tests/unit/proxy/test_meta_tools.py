"""A search in place of a list of tools, in front of one server and of several."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from lab.audit import until
from lab.gateway import gateway, inside
from lab.merge import MergeLab
from lab.principals import PRINCIPALS, Requests, modern
from lab.wording import raises

from wirespeed import Client, HeaderParam, Server, Socket, ToolSearch
from wirespeed.errors import RemoteError
from wirespeed.proxy import FlowConfig, RateConfig, ToolsConfig

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

ERAS = ("legacy", "modern")
LISTENS = ("http://127.0.0.1:0/mcp", "ws://127.0.0.1:0/mcp")


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=LISTENS)
def listen(request: pytest.FixtureRequest) -> Any:
    return request.param


def server(name: str, **options: Any) -> Server:
    made = Server(name, **options)

    @made.tool
    async def who() -> str:
        """Say who this is: a unicorn."""
        return name

    @made.tool
    async def say(text: str) -> str:
        """Repeat a text."""
        return f"{name}: {text}"

    @made.tool
    async def secret() -> str:
        """The secret of the unicorn."""
        return "secret"

    return made


async def found(client: Client, query: str, **more: Any) -> list[str]:
    result = await client.call_tool("search_tools", {"query": query, **more})
    assert not result.is_error, result.text
    return [tool["name"] for tool in json.loads(result.text)["tools"]]


async def called(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool("call_tool", {"name": name, "arguments": arguments})
    return str(result.text)


async def test_several_servers(era: Any, listen: str) -> None:
    search = ToolSearch(visible=("b_who",), limit=3)
    async with gateway(
        inside("a", server("a")), inside("b", server("b")), listen=listen, tool_search=search
    ) as gate:
        async with gate.client(era=era) as client:
            names = [tool.name for tool in await client.list_tools()]
            assert names == ["search_tools", "call_tool", "b_who"]
            assert set(await found(client, "unicorn", limit=9)) == {
                f"{one}_{tool}" for one in "ab" for tool in ("who", "secret")
            }
            assert len(await found(client, "unicorn")) == 3
            assert await called(client, "a_say", text="x") == "a: x"
            assert (await client.call_tool("a_say", {"text": "y"})).text == "a: y"
            for name in ("none", "call_tool", "search_tools"):
                with raises(RemoteError, code=-32602):
                    await called(client, name)
            wrong = await client.call_tool("search_tools", {"limit": 1})
            assert wrong.is_error
        async with gate.client(era=era, path="/servers/a") as client:  # no search there
            assert {tool.name for tool in await client.list_tools()} == {"who", "say", "secret"}


async def test_one_server(era: Any, listen: str) -> None:
    """Its own search, at its own path; and the proxy's, where it is alone."""
    own = ToolSearch(search_name="find", call_name="use")
    async with gateway(
        inside("a", server("a"), tool_search=own), inside("b", server("b")), listen=listen
    ) as gate:
        async with gate.client(era=era, path="/servers/a") as client:
            assert [tool.name for tool in await client.list_tools()] == ["find", "use"]
            result = await client.call_tool("find", {"query": "repeat"})
            assert [one["name"] for one in json.loads(result.text)["tools"]] == ["say"]
            given = {"name": "say", "arguments": {"text": "x"}}
            assert (await client.call_tool("use", given)).text == "a: x"
        async with gate.client(era=era) as client:
            assert len(await client.list_tools()) == 6
    async with (
        gateway(inside("a", server("a")), listen=listen, tool_search=ToolSearch()) as gate,
        gate.client(era=era) as client,
    ):
        assert [tool.name for tool in await client.list_tools()] == [
            "search_tools",
            "call_tool",
        ]
        assert await called(client, "who") == "a"


@pytest.mark.parametrize("path", ["/mcp", "/servers/a"])
async def test_rights(era: Any, listen: str, path: str) -> None:
    """A search shows, and a call calls, what the principal may see; and nothing that is denied."""
    search = ToolSearch(visible=("*",))
    tools = ToolsConfig(deny=("hidden",))
    a = server("a")

    @a.tool
    async def hidden() -> str:
        """A hidden unicorn."""
        return "hidden"

    async with gateway(
        inside("a", a, tool_search=search, tools=tools),
        inside("b", server("b")),
        listen=listen,
        principals=PRINCIPALS,
        tool_search=search,
    ) as gate:
        prefix = "a_" if path == "/mcp" else ""
        async with gate.client("anne", era, path) as anne:
            names = {tool.name for tool in await anne.list_tools()}
            assert names == {"search_tools", "call_tool", f"{prefix}who", f"{prefix}say"}
            assert await found(anne, "secret unicorn hidden") == [f"{prefix}who"]
            for name in (f"{prefix}secret", f"{prefix}hidden", "b_who"):
                texts = set()
                for call in (anne.call_tool(name), called(anne, name)):
                    with pytest.raises(RemoteError) as refused:
                        await call
                    texts.add((refused.value.code, refused.value.message))
                assert texts == {(-32602, f"Unknown tool: {name}")}
            assert await called(anne, f"{prefix}say", text="x") == "a: x"
        async with gate.client("root", era, path) as root:
            assert f"{prefix}secret" in await found(root, "secret")
            assert f"{prefix}hidden" not in await found(root, "hidden unicorn")
            assert await called(root, f"{prefix}secret") == "secret"


async def test_the_audit_log(tmp_path: Path, era: Any) -> None:
    """A call by the meta tool has the line of the tool."""
    audit = tmp_path / "audit"
    async with (
        gateway(
            inside("a", server("a")),
            inside("b", server("b")),
            principals=PRINCIPALS,
            tool_search=ToolSearch(),
            audit=str(audit),
        ) as gate,
        gate.client("anne", era) as anne,
    ):
        await anne.call_tool("a_say", {"text": "x"})
        await called(anne, "a_say", text="x")
        with raises(RemoteError, code=-32602):
            await called(anne, "a_secret")
        await found(anne, "who")
        noted = await until(audit, 4)
    keys = ("principal", "server", "tool", "outcome", "code")
    direct, by_meta, refused, search = ([one.get(key) for key in keys] for one in noted)
    assert direct == by_meta == ["anne", "a", "a_say", "ok", None]
    assert refused == ["anne", "a", "a_secret", "refused", -32602]
    assert search == ["anne", None, "search_tools", "ok", None]


async def test_limits(era: Any) -> None:
    """The limits of a tool hold for a call by the meta tool, and a rate counts it once."""
    behind = Server("a")
    running: list[str] = []
    go = asyncio.Event()

    @behind.tool
    async def slow(me: str) -> str:
        running.append(me)
        await go.wait()
        return me

    flow = FlowConfig(tools={"slow": 1})
    async with (
        gateway(
            inside("a", behind, flow=flow), tool_search=ToolSearch(), listen=LISTENS[1]
        ) as gate,
        gate.client(era=era) as client,
    ):
        calls = [
            asyncio.ensure_future(called(client, "slow", me="1")),
            asyncio.ensure_future(client.call_tool("slow", {"me": "2"})),
            asyncio.ensure_future(called(client, "slow", me="3")),
        ]
        while gate.proxy.services["a"].flow.n_queued < 2:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
        assert len(running) == 1
        go.set()
        await asyncio.gather(*calls)
        assert sorted(running) == ["1", "2", "3"]
    counted = []
    for by_meta in (False, True):
        async with (
            gateway(
                inside("a", server("a")),
                tool_search=ToolSearch(),
                rate=RateConfig(requests=0.001, burst=10),
            ) as gate,
            gate.client(era=era) as client,
        ):
            n = 0
            with raises(RemoteError, code=-31000):
                while True:
                    await (called(client, "who") if by_meta else client.call_tool("who"))
                    n += 1
            counted.append(n)
    assert counted[0] == counted[1] > 2


async def test_pages(era: Any) -> None:
    """All pages of a server are searched, and each that is shown has its part."""
    behind = server("a", page_size=1)
    async with (
        gateway(inside("a", behind, isolation="pool", size=2), tool_search=ToolSearch()) as g,
        g.client(era=era) as client,
    ):
        assert sorted(await found(client, "unicorn")) == ["secret", "who"]
        assert [tool.name for tool in await client.list_tools()] == [
            "search_tools",
            "call_tool",
        ]
        assert g.proxy.services["a"].meta_tools.n_searches == 1  # type: ignore[union-attr]


async def test_arguments_in_header_fields() -> None:
    """A client has none of them for the tool that it calls by the meta tool."""
    behind = Server("a")

    @behind.tool
    async def query(region: Annotated[str, HeaderParam("Region")]) -> str:
        return region

    for others in ((), (inside("b", server("b")),)):
        async with gateway(inside("a", behind), *others, tool_search=ToolSearch()) as gate:
            name = "a_query" if others else "query"
            async with gate.client() as client:
                assert await called(client, name, region="eu") == "eu"
            async with Requests(gate.url) as raw:  # the direct call needs the field
                body, *fields = modern("tools/call", name=name, arguments={"region": "eu"})
                status, _, answer = await raw.post(body, None, *fields)
                assert (status, answer["error"]["code"]) == (400, -32020)
                escaped = body.replace('query"', 'qu\\u0065ry"')
                assert escaped != body
                status, _, answer = await raw.post(escaped, None, *fields)
                assert (status, answer["error"]["code"]) == (400, -32020)
                given = {"name": name, "arguments": {"region": "eu"}}
                body, *fields = modern("tools/call", name="call_tool", arguments=given)
                status, _, answer = await raw.post(body, None, *fields)
                assert (status, answer["result"]["content"][0]["text"]) == (200, "eu")
                fields[-1] = "Mcp-Name: search_tools"  # the fields of the call itself must fit
                status, _, answer = await raw.post(body, None, *fields)
                assert (status, answer["error"]["code"]) == (400, -32020)


async def test_a_reload(era: Any) -> None:
    async with gateway(
        inside("a", server("a")), inside("b", server("b")), listen=LISTENS[1]
    ) as gate:
        config = gate.proxy.config
        async with gate.client(era=era) as client:
            assert len(await client.list_tools()) == 6
            changes = await gate.proxy.reload(dataclasses.replace(config, tool_search=ToolSearch()))
            assert changes.settings == ("tool_search",)
            assert len(await client.list_tools()) == 2
            await gate.proxy.reload(config)
            assert len(await client.list_tools()) == 6
            with raises(RemoteError, code=-32602):
                await called(client, "a_who")


async def test_a_cancelled_call(era: Any) -> None:
    behind = Server("a")
    ended = asyncio.Event()
    began = asyncio.Event()

    @behind.tool
    async def hang() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with (
        gateway(inside("a", behind), tool_search=ToolSearch(), listen=LISTENS[1]) as gate,
        gate.client(era=era) as client,
    ):
        call = asyncio.ensure_future(called(client, "hang"))
        await began.wait()
        call.cancel()
        await ended.wait()


@pytest.mark.parametrize("kind", ["array", "text", "null", "surrogate"])
async def test_a_list_that_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """It is the server's fault, and the log says so."""
    entry = {"name": "a", "description": "half a pair: \ud800", "inputSchema": {"type": "object"}}
    kinds = {"array": [], "text": "x", "null": None, "surrogate": {"tools": [entry]}}
    lab = MergeLab(tmp_path, tool_search=ToolSearch())
    answers = {"tools/list": {"result": kinds[kind]}}
    lab.backends.append(lab.scripted("bad", answers, isolation="shared"))
    async with lab.serving() as (url, *_), Client(Socket(url), era="legacy") as client:
        with raises(RemoteError, code=-32603):
            await client.call_tool("search_tools", {"query": "a"})
    (line,) = [one for one in caplog.records if "is not valid" in one.message]
    assert line.levelname == "WARNING"
    assert "internal error" not in caplog.text
