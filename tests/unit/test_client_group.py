"""Many servers as one client: names, lists, changes, failures, and whose each request is."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.wording import raises

from wirespeed import Client, ClientGroup, Context, Server, Stdio, SyncClient, config
from wirespeed.config import Servers
from wirespeed.errors import (
    ConfigError,
    ConnectionClosed,
    InputNeeded,
    RemoteError,
    TransportError,
    Unsupported,
)
from wirespeed.types import Accept, PromptRef, ResourceRef, ToolInfo

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
NOT_THERE = Stdio("/nonexistent/wirespeed-server")


def calculator() -> Server:
    server = Server("calculator", instructions="Only integers.")

    @server.tool
    async def add(a: int, b: int, ctx: Context) -> int:
        await ctx.progress(1, total=1)
        return a + b

    @server.prompt
    async def explain(what: str) -> str:
        return f"Explain {what}"

    @server.completion("explain", "what")
    def whats(value: str) -> list[str]:
        return ["adding"]

    server.add_resource("calc://about", "a calculator", name="about")
    return server


def notes() -> Server:
    server = Server("notes")
    kept: dict[str, str] = {}

    @server.tool
    async def add(text: str, ctx: Context) -> str:
        if not await ctx.elicit(f"Keep {text}?"):
            return "not kept"
        kept[str(len(kept))] = text
        ctx.server.resource_updated("notes://0")
        return f"{len(kept)} kept"

    @server.resource("notes://{number}")
    def note(number: str) -> str:
        return kept[number]

    @server.completion("notes://{number}", "number")
    def numbers(value: str) -> list[str]:
        return list(kept)

    return server


@ERAS
async def test_each_request_goes_to_its_server(era: Any) -> None:
    updated, seen = asyncio.Event(), []
    targets = {"calc": calculator(), "notes": notes()}
    async with ClientGroup(
        targets,
        era=era,
        on_elicit=lambda request: Accept({}),
        on_resource_updated=lambda uri: updated.set(),
    ) as many:
        assert repr(many) == "<ClientGroup of calc, notes>"
        assert [tool.name for tool in await many.list_tools()] == ["calc_add", "notes_add"]
        assert [tool.name async for tool in many.iter_tools()] == ["calc_add", "notes_add"]
        assert len((await many.list_tools_page()).tools) == 2
        value = await many.call_tool(
            "calc_add", {"a": 1, "b": 2}, type=int, on_progress=lambda *args: seen.append(args)
        )
        assert (value, seen) == (3, [(1, 1, None)])
        await many.subscribe_resource("notes://0")
        assert (await many.call_tool("notes_add", {"text": "milk"})).text == "1 kept"
        await asyncio.wait_for(updated.wait(), 20)
        await many.unsubscribe_resource("notes://0")
        assert (await many.read_resource("notes://0")).text == "milk"
        assert (await many.read_resource("calc://about")).text == "a calculator"
        assert (await many.read_template("notes://{number}", number="0")).text == "milk"
        [prompt] = await many.list_prompts()
        assert prompt.name == "calc_explain"
        assert (await many.get_prompt(prompt.name, {"what": "it"})).messages[0].text == "Explain it"
        for ref in (prompt, PromptRef("calc_explain")):
            assert (await many.complete(ref, "what", "")).values == ["adding"]
        assert (await many.complete(ResourceRef("notes://{number}"), "number", "")).values == ["0"]
        assert [one.uri for one in await many.list_resources()] == ["calc://about"]
        [template] = (await many.list_resource_templates_page()).resource_templates
        assert template.uri_template == "notes://{number}"
        assert many.instructions == "# calc\n\nOnly integers."
        assert {"tools", "prompts", "resources"} <= many.server_capabilities.keys()
        assert many.counters["messages_in"] == sum(
            one.counters["messages_in"] for one in many.clients.values()
        )
        await many.ping()
        assert many.timeout == 60
        with raises(KeyError):
            many["other"]


async def test_a_question_is_answered_at_its_server() -> None:
    servers = {"calc": calculator(), "notes": notes()}
    capabilities = {"elicitation": {"form": {}}}
    async with ClientGroup(servers, capabilities=capabilities) as many:
        with pytest.raises(InputNeeded) as asked:
            await many.call_tool("notes_add", {"text": "milk"})
        [key] = asked.value.requests
        assert (await many.resume(asked.value, {key: Accept({})})).text == "1 kept"
        other = InputNeeded("not ours", {}, None)
        with raises(ValueError):
            await many.resume(other, {})


@ERAS
async def test_one_failure_is_not_all(era: Any, caplog: Any) -> None:
    async with ClientGroup({"gone": NOT_THERE, "calc": calculator()}, era=era) as many:
        assert list(many.failures) == ["gone"]
        assert [tool.name for tool in await many.list_tools()] == ["calc_add"]
        assert (await many.call_tool("calc_add", {"a": 1, "b": 2})).text == "3"
        with raises(TransportError):
            await many.call_tool("gone_add")
        with raises(RemoteError, code=-32602):
            await many.call_tool("add")
        with raises(RemoteError, code=-32002):
            await many.read_resource("other://x")
    assert "the server gone is left out: " in caplog.text


async def test_what_failed_is_tried_again_by_the_next_request(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    command = Stdio(sys.executable, [str(file)])
    changes: list[list[str]] = []

    def changed(tools: list[ToolInfo]) -> None:
        changes.append([tool.name for tool in tools])

    async with ClientGroup(
        {"calc": calculator(), "late": command}, on_tools_changed=changed
    ) as many:
        assert list(many.failures) == ["late"]
        file.write_text(
            "from wirespeed import Server\n"
            "server = Server('late')\n"
            "server.add_tool(lambda: 'here', name='ping')\n"
            "server.run()\n"
        )
        assert (await many.call_tool("late_ping")).text == "here"
        assert many.failures == {}
        assert changes == [["calc_add", "late_ping"]]


LATE = """
from wirespeed import Server
server = Server('late')
server.add_tool(lambda: 'here', name='ping')
server.run()
"""


async def test_a_callback_may_use_another_server_that_comes_late(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.py" for name in "ab"]
    servers: dict[str, Any] = {
        name: Stdio(sys.executable, [str(file)]) for name, file in zip("ab", files, strict=True)
    }
    changes = []

    async def changed(tools: list[ToolInfo]) -> None:
        changes.append([tool.name for tool in tools])
        if len(changes) == 1:
            assert (await many.call_tool("b_ping")).text == "here"
            raise ValueError("of no concern to the call")

    async with ClientGroup({"calc": calculator(), **servers}, on_tools_changed=changed) as many:
        for file in files:
            file.write_text(LATE)
        called = await asyncio.wait_for(many.call_tool("a_ping"), 30)
        assert called.text == "here"
        assert changes == [["calc_add", "a_ping"], ["calc_add", "a_ping", "b_ping"]]


async def test_a_client_of_no_server_cannot_be_opened() -> None:
    with raises(TransportError):
        await ClientGroup({"a": NOT_THERE, "b": NOT_THERE}).open()
    alone = ClientGroup({"a": NOT_THERE})
    with raises(TransportError):
        await alone.open()
    closed = ClientGroup({"a": calculator(), "b": notes()})
    for use in (closed.list_tools, lambda: closed.call_tool("a_add", {"a": 1, "b": 1})):
        with pytest.raises(ConnectionClosed):
            await use()
    with raises(ValueError):
        ClientGroup({})
    with raises(ValueError):
        ClientGroup({"a": NOT_THERE}, at_once=0)
    with raises(ValueError):
        ClientGroup({"a": NOT_THERE}, prefixes={"b": ""})
    with raises(TypeError):
        ClientGroup({"a": NOT_THERE}, token="t")


@ERAS
async def test_callbacks_get_the_merged_list(era: Any) -> None:
    calc, other = calculator(), notes()
    changes: asyncio.Queue[list[str]] = asyncio.Queue()

    async def changed(tools: list[ToolInfo]) -> None:
        changes.put_nowait([tool.name for tool in tools])

    targets = {"calc": calc, "notes": other}
    async with ClientGroup(targets, era=era, on_tools_changed=changed) as many:
        other.add_tool(lambda: "", name="clear")
        got = await asyncio.wait_for(changes.get(), 20)
        assert got == ["calc_add", "notes_add", "notes_clear"]
        calc.remove_tool("add")
        while got != ["notes_add", "notes_clear"]:
            got = await asyncio.wait_for(changes.get(), 20)
        assert [tool.name for tool in await many.list_tools()] == got


async def test_no_more_than_at_once_are_opened_together() -> None:
    opening = most = 0

    def slow() -> Server:
        async def lifespan(_: Server) -> Any:
            nonlocal opening, most
            opening += 1
            most = max(most, opening)
            for _turn in range(20):
                await asyncio.sleep(0)
            opening -= 1
            yield

        return Server("slow", lifespan=lifespan)

    async with ClientGroup({str(n): slow() for n in range(7)}, at_once=3):
        assert most == 3


async def test_the_first_of_two_with_one_name_is_used(caplog: Any) -> None:
    first, second = calculator(), calculator()
    second.add_tool(lambda: "", name="only")
    prefixes = {"a": "", "b": ""}
    async with ClientGroup({"a": first, "b": second}, prefixes=prefixes) as many:
        assert [tool.name for tool in await many.list_tools()] == ["add", "only"]
        assert "a and b both have 'add' in tools: that of a is used" in caplog.text
        assert (await many.call_tool("only")).text == ""
        assert (await many.call_tool("add", {"a": 1, "b": 1})).text == "2"


async def test_the_longest_prefix_has_a_name_that_is_not_listed() -> None:
    inner = Server("inner")
    inner.add_tool(lambda: "inner", name="tool")
    outer = Server("outer")
    outer.add_tool(lambda: "outer", name="b_tool")
    async with ClientGroup({"a": outer, "a_b": inner}) as many:
        assert (await many.call_tool("a_b_tool")).text == "outer"  # listed first
        with raises(RemoteError, code=-32602):
            await many.call_tool("a_b_other")


async def test_a_server_alone_has_no_prefix() -> None:
    async with ClientGroup({"calc": calculator()}) as many:
        assert [tool.name for tool in await many.list_tools()] == ["add"]
        assert (await many.read_resource("calc://about")).text == "a calculator"


async def test_what_is_of_one_connection_is_asked_of_its_client() -> None:
    async with ClientGroup({"calc": calculator(), "notes": notes()}) as many:
        with raises(Unsupported):
            assert many.protocol_version
        with raises(Unsupported):
            assert many.server_info
        with raises(Unsupported):
            await many.request("tools/list")
        with raises(Unsupported):
            await many.discover()
        with raises(Unsupported):
            many.subscribe(tools=True)
        assert many["calc"].server_info is not None
        many.clear_cache()
        await many.set_log_level("error")
        assert await many.list_tasks() == []


PROGRAM = """
from wirespeed import Server
server = Server("{0}")
server.add_tool(lambda: "{0}", name="who")
server.run()
"""


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(PROGRAM.format(name))
        entries[name] = {"command": sys.executable, "args": [str(tmp_path / f"{name}.py")]}
    entries["off"] = {"command": "x", "enabled": False}
    entries["faulty"] = {"command": 5}
    return {"mcpServers": entries, "inputs": []}


async def test_a_configuration_is_a_target(document: dict[str, Any]) -> None:
    async with Client(document) as client:
        assert isinstance(client, ClientGroup)
        assert list(client.clients) == ["one", "two"]
        assert isinstance(client.failures["faulty"], ConfigError)
        assert [tool.name for tool in await client.list_tools()] == ["one_who", "two_who"]
        assert (await client.call_tool("two_who")).text == "two"
        with raises(ConfigError):
            await client.call_tool("faulty_who")


async def test_a_file_is_one_client(document: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(document))
    servers = config.load(file)
    assert isinstance(servers, Servers)
    async with servers.clients(at_once=1, prefixes={"one": "first."}) as many:
        assert (await many.call_tool("first.who")).text == "one"
        assert (await many.call_tool("two_who")).text == "two"


def test_entries_and_targets_may_be_mixed_and_blocking(document: dict[str, Any]) -> None:
    entry = document["mcpServers"]["one"]
    with SyncClient({"calc": calculator(), "one": entry}) as client:
        assert client.call_tool("one_who").text == "one"
        assert client.call_tool("calc_add", {"a": 1, "b": 1}).text == "2"
        assert [tool.name for tool in client.iter_tools()] == ["calc_add", "one_who"]
