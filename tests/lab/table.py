"""Which revision of MCP has which message, as data, and a server and a client that have them all.

Written by comparing the unions of the five ``schema.ts``: apart from the tables of the package, so
that two tables must agree.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from wirespeed import TASKS, Client, Context, Server, report_progress
from wirespeed.errors import CallTimeout, LocalError
from wirespeed.types import (
    Accept,
    Annotations,
    Audio,
    Icon,
    PromptRef,
    ResourceLink,
    ResourceRef,
    ResourceUpdated,
    SampleResult,
    ToolsChanged,
)

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
MODERN = VERSIONS[-1]

# Who sends it in each revision: C client, S server, B both, - nobody; e: the server, inside of a
# result alone; x: the client, of the extension for tasks.
Senders = tuple[str, ...]


def senders(words: str) -> Senders:
    found = tuple(words.split())
    assert len(found) == len(VERSIONS) and set(found) <= set("CSB-ex"), words
    return found


REQUESTS: dict[str, Senders] = {
    "initialize": senders("C C C C -"),
    "ping": senders("B B B B -"),
    "server/discover": senders("- - - - C"),
    "tools/list": senders("C C C C C"),
    "tools/call": senders("C C C C C"),
    "prompts/list": senders("C C C C C"),
    "prompts/get": senders("C C C C C"),
    "resources/list": senders("C C C C C"),
    "resources/templates/list": senders("C C C C C"),
    "resources/read": senders("C C C C C"),
    "resources/subscribe": senders("C C C C -"),
    "resources/unsubscribe": senders("C C C C -"),
    "subscriptions/listen": senders("- - - - C"),
    "completion/complete": senders("C C C C C"),
    "logging/setLevel": senders("C C C C -"),
    "sampling/createMessage": senders("S S S S e"),
    "roots/list": senders("S S S S e"),
    "elicitation/create": senders("- - S S e"),
    "tasks/get": senders("- - - B x"),
    "tasks/result": senders("- - - B -"),
    "tasks/list": senders("- - - B -"),
    "tasks/cancel": senders("- - - B x"),
    "tasks/update": senders("- - - - x"),
}

NOTIFICATIONS: dict[str, Senders] = {
    "notifications/initialized": senders("C C C C -"),
    "notifications/cancelled": senders("B B B B B"),
    "notifications/progress": senders("B B B B S"),
    "notifications/message": senders("S S S S S"),
    "notifications/tools/list_changed": senders("S S S S S"),
    "notifications/prompts/list_changed": senders("S S S S S"),
    "notifications/resources/list_changed": senders("S S S S S"),
    "notifications/resources/updated": senders("S S S S S"),
    "notifications/roots/list_changed": senders("C C C C -"),
    "notifications/elicitation/complete": senders("- - - S -"),
    "notifications/tasks/status": senders("- - - B -"),
    "notifications/tasks": senders("- - - - x"),  # here the server
    "notifications/subscriptions/acknowledged": senders("- - - - S"),
}

Side = Literal["client", "server"]


def sends(side: Side, row: Senders, version: str, *, extension: bool = True) -> bool:
    """Whether a side says it in a revision, as a message of its own."""
    mark = row[VERSIONS.index(version)]
    own = "C" if side == "client" else "S"
    return mark in (own, "B") or (extension and mark == "x")


# -- a server that has everything -----------------------------------------------------------------


class Person(msgspec.Struct):
    name: str
    age: int


ICON = Icon(src="https://example.com/i.png", mime_type="image/png")


class House:
    """A server of one revision."""

    def __init__(self, version: str, **options: Any) -> None:
        self.version = version
        self.server = server = Server(
            "house",
            "1.0",
            versions=[version],
            title="House",
            description="All of it.",
            website_url="https://example.com/",
            icons=[ICON],
            instructions="Try everything.",
            experimental={"example.com/x": {"y": 1}},
            shutdown_grace=2.0,
            **options,
        )
        server.use_tasks(poll_interval=0.02)
        self.gate = asyncio.Event()
        self.began = asyncio.Event()
        self.ended = asyncio.Event()
        self.progress: list[Any] = []

        self.roots: list[str] = []
        self.moved = asyncio.Event()

        @server.on_roots_changed
        async def moved(change: Any) -> None:
            self.roots = [root.uri for root in await change.roots()]
            self.moved.set()

        @server.tool(title="Adder", annotations={"readOnlyHint": True}, icons=[ICON], meta={"a": 1})
        async def add(a: int, b: int) -> int:
            """Add up."""
            return a + b

        @server.tool
        async def wait(ctx: Context) -> str:
            self.began.set()
            try:
                await self.gate.wait()
            finally:
                self.ended.set()
            return "waited"

        @server.tool
        async def tell(ctx: Context) -> str:
            await ctx.progress(1, 2, "half")
            await ctx.log("error", "oh")
            ctx.elicitation_complete("e-1")
            return "told"

        @server.tool
        async def change(kind: str) -> str:
            name = f"late_{kind}"

            async def late() -> str:
                return "late"

            if kind == "tools":
                server.add_tool(late, name=name)
            elif kind == "prompts":
                server.add_prompt(late, name=name)
            elif kind == "resources":
                server.add_resource(f"text://{name}", "late", name=name)
            else:
                server.resource_updated("text://hello")
            return kind

        @server.tool
        async def ask(what: str, ctx: Context) -> str:
            if what == "roots":
                return (await ctx.roots())[0].uri
            if what == "sample":
                answer = await ctx.sample(
                    "Hi",
                    max_tokens=9,
                    on_progress=lambda *how: self.progress.append(how),
                )
                return answer.text
            if what == "late":
                try:
                    await ctx.sample("Slowly.", max_tokens=5, timeout=0.02)
                except CallTimeout:
                    return "late"
            if what == "ping":
                await ctx.ping()
                return "there"
            if what == "url":
                return (await ctx.elicit_url("Go", "https://example.com/pay")).action
            return (await ctx.elicit("Who?", Person)).action

        @server.tool
        async def blocks() -> list[Audio | ResourceLink]:
            hints = Annotations(last_modified="2025-11-25T10:30:00Z")
            link = ResourceLink("text://hello", name="hello", icons=[ICON], annotations=hints)
            return [Audio(data=b"la", mime_type="audio/wav"), link]

        @server.tool
        async def declared(ctx: Context) -> str:
            return json.dumps(ctx.client_capabilities)

        @server.tool(task="optional", task_after=0)
        async def slow(ctx: Context) -> str:
            self.began.set()
            await self.gate.wait()
            return "slow"

        @server.tool(task="optional", task_after=0)
        async def slow_ask(ctx: Context) -> str:
            return (await ctx.sample("Hi", max_tokens=9)).text

        @server.resource("text://hello", name="hello", title="Hello", icons=[ICON])
        async def hello() -> str:
            return "Hello."

        @server.resource("item://{id}", name="item", title="Item")
        async def item(id: int) -> str:
            return f"item {id}"

        @server.prompt(title="Greeting", icons=[ICON])
        async def greet(name: str) -> str:
            """Greet somebody."""
            return f"Greet {name}."

        @server.completion("greet", "name")
        async def names(value: str, known: dict[str, str]) -> list[str]:
            return [f"{value}-{known.get('other')}"]

        @server.completion("item://{id}", "id")
        async def ids(value: str) -> list[str]:
            return [value + "0"]


# -- a client that has everything, and what it does -----------------------------------------------


class Guest:
    """A client, and what the server told it."""

    def __init__(self, house: House, **options: Any) -> None:
        self.house = house
        self.modern = house.version == MODERN
        self.told: dict[str, asyncio.Event] = {}
        self.cancelled = asyncio.Event()

        def event(name: str) -> Callable[[Any], None]:
            return lambda _: self.event(name).set()

        settings: dict[str, Any] = {
            "log_level": "debug",
            "on_log": event("log"),
            "on_tools_changed": event("tools"),
            "on_prompts_changed": event("prompts"),
            "on_resources_changed": event("resources"),
            "on_resource_updated": event("updated"),
            "on_elicit": lambda _: {"name": "Ann", "age": 9},
            "on_elicit_url": lambda _: Accept(),
            "on_sample": self._on_sample,
            "sampling_tools": True,
            "roots": ["file:///work"],
            "extensions": [TASKS],
            "capabilities": {"experimental": {"example.com/z": {}}},
            "cache": False,
        }
        self.client = Client(house.server, **settings | options)

    async def _on_sample(self, request: Any) -> Any:
        report_progress(1, 2)
        if request.max_tokens == 5:
            try:
                await asyncio.sleep(30)
            finally:
                self.cancelled.set()
        return SampleResult(content="hello", model="m")

    def event(self, name: str) -> asyncio.Event:
        return self.told.setdefault(name, asyncio.Event())

    async def text(self, tool: str, **arguments: Any) -> str:
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.text
        return result.text


Step = Callable[[Guest], Awaitable[object]]
STEPS: dict[tuple[Side, str], Step] = {}


def step(side: Side, *methods: str) -> Callable[[Step], Step]:
    """What has a side say these, where the revision has them, and checks what comes of it."""

    def decorate(function: Step) -> Step:
        for method in methods:
            assert (side, method) not in STEPS
            STEPS[side, method] = function
        return function

    return decorate


@step("client", "initialize", "notifications/initialized")
async def handshake(guest: Guest) -> None:
    assert guest.client.protocol_version == guest.house.version
    assert guest.client.server_info is not None
    assert guest.client.server_info["name"] == "house"


@step("client", "ping")
async def ping(guest: Guest) -> None:
    await guest.client.ping()


@step("client", "server/discover")
async def discover(guest: Guest) -> None:
    if guest.modern:
        assert (await guest.client.discover()).supported_versions == [MODERN]


@step("client", "tools/list")
async def tools(guest: Guest) -> None:
    assert "add" in [tool.name for tool in await guest.client.list_tools()]


@step("client", "tools/call")
async def call(guest: Guest) -> None:
    assert await guest.text("add", a=1, b=2) == "3"


@step("client", "prompts/list")
async def prompts(guest: Guest) -> None:
    (prompt,) = await guest.client.list_prompts()
    assert prompt.name == "greet"


@step("client", "prompts/get")
async def prompt(guest: Guest) -> None:
    got = await guest.client.get_prompt("greet", {"name": "Ann"})
    assert got.messages[0].text == "Greet Ann."


@step("client", "resources/list")
async def resources(guest: Guest) -> None:
    (resource,) = await guest.client.list_resources()
    assert resource.uri == "text://hello"


@step("client", "resources/templates/list")
async def templates(guest: Guest) -> None:
    (template,) = await guest.client.list_resource_templates()
    assert template.uri_template == "item://{id}"


@step("client", "resources/read")
async def read(guest: Guest) -> None:
    assert (await guest.client.read_resource("item://7")).text == "item 7"


@step("client", "resources/subscribe", "resources/unsubscribe")
@step("server", "notifications/resources/updated")
async def updates(guest: Guest) -> None:
    await guest.client.subscribe_resource("text://hello")
    await guest.text("change", kind="updated")
    await guest.event("updated").wait()
    await guest.client.unsubscribe_resource("text://hello")


@step("client", "subscriptions/listen")
@step("server", "notifications/subscriptions/acknowledged")
async def listen(guest: Guest) -> None:
    async with guest.client.subscribe(tools=True, uris=["text://hello"]) as events:
        await guest.text("change", kind="tools")
        assert await events.next_event() == ToolsChanged()
        await guest.text("change", kind="updated")
        assert await events.next_event() == ResourceUpdated("text://hello")


@step("client", "completion/complete")
async def complete(guest: Guest) -> None:
    ref = PromptRef("greet")
    got = await guest.client.complete(ref, "name", "A", context={"other": "B"})
    assert got.values == ["A-B" if guest.house.version >= "2025-06-18" else "A-None"]
    assert (await guest.client.complete(ResourceRef("item://{id}"), "id", "1")).values == ["10"]


@step("client", "logging/setLevel")
@step("server", "notifications/message")
async def logs(guest: Guest) -> None:
    await guest.client.set_log_level("emergency")
    await guest.text("tell")
    assert not guest.event("log").is_set()
    await guest.client.set_log_level("error")
    await guest.text("tell")
    await guest.event("log").wait()


@step("client", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel")
@step("server", "notifications/tasks/status")
async def tasks(guest: Guest) -> None:
    client, house = guest.client, guest.house
    if house.version < "2025-11-25":  # the call is a plain one
        house.gate.set()
        task = await client.start_tool("slow")
        assert task.id is None and (await task.result()).text == "slow"
        return
    task = await client.start_tool("slow")
    assert (await task.status()).status == "working"
    house.gate.set()
    assert (await task.result()).text == "slow"
    house.gate.clear()
    task = await client.start_tool("slow")
    try:
        assert len(await client.list_tasks()) == 2
    except LocalError:
        assert guest.modern
    await task.cancel()
    async for state in task:
        assert state.status in ("working", "cancelled")


@step("client", "tasks/update")
async def task_that_asks(guest: Guest) -> None:
    assert await guest.text("slow_ask") == "hello"


@step("server", "notifications/tasks")
async def task_news(guest: Guest) -> None:
    if guest.house.version < "2025-11-25":
        guest.house.gate.set()
    task = await guest.client.start_tool("slow")

    async def follow() -> list[str]:
        return [state.status async for state in task]

    following = asyncio.ensure_future(follow())
    server = guest.house.server
    while guest.modern and not any(c.listens for c in server.service.connections):
        await asyncio.sleep(0.001)
    guest.house.gate.set()
    assert (await following)[-1] == "completed"


@step("client", "notifications/cancelled")
async def cancel_call(guest: Guest) -> None:
    work = asyncio.ensure_future(guest.text("wait"))
    await guest.house.began.wait()
    work.cancel()
    await guest.house.ended.wait()


@step("server", "notifications/cancelled")
async def cancel_question(guest: Guest) -> None:
    if guest.modern:  # when the server ends, it says so to who listens
        async with guest.client.subscribe(tools=True) as events:
            for connection in list(guest.house.server.service.connections):
                connection.drain()
            assert [event async for event in events] == []
        return
    assert await guest.text("ask", what="late") == "late"
    await guest.cancelled.wait()


@step("client", "notifications/progress")
@step("server", "sampling/createMessage")
async def sample(guest: Guest) -> None:
    assert await guest.text("ask", what="sample") == "hello"
    assert guest.house.progress == ([] if guest.modern else [(1, 2, None)])


@step("server", "notifications/progress")
async def progress(guest: Guest) -> None:
    seen: list[Any] = []
    await guest.client.call_tool("tell", on_progress=lambda *how: seen.append(how))
    assert seen == [(1, 2, None if guest.house.version < "2025-03-26" else "half")]


@step("server", "roots/list")
async def roots(guest: Guest) -> None:
    assert await guest.text("ask", what="roots") == "file:///work"


@step("server", "elicitation/create")
async def elicit(guest: Guest) -> None:
    result = await guest.client.call_tool("ask", {"what": "form"})
    if guest.house.version < "2025-06-18":
        assert result.is_error and "elicitation" in result.text
    else:
        assert result.text == "accept"
    result = await guest.client.call_tool("ask", {"what": "url"})
    if guest.house.version < "2025-11-25":
        assert result.is_error
    else:
        assert result.text == "accept"


@step("server", "ping")
async def server_pings(guest: Guest) -> None:
    assert await guest.text("ask", what="ping") == "there"


@step("server", "notifications/tools/list_changed")
async def tools_changed(guest: Guest) -> None:
    await changed(guest, "tools")


@step("server", "notifications/prompts/list_changed")
async def prompts_changed(guest: Guest) -> None:
    await changed(guest, "prompts")


@step("server", "notifications/resources/list_changed")
async def resources_changed(guest: Guest) -> None:
    await changed(guest, "resources")


async def changed(guest: Guest, kind: str) -> None:
    await guest.text("change", kind=kind)
    await guest.event(kind).wait()


@step("client", "notifications/roots/list_changed")
async def roots_changed(guest: Guest) -> None:
    await guest.client.add_root("file:///more")
    if not guest.modern:
        await guest.house.moved.wait()
        assert guest.house.roots == ["file:///work", "file:///more"]


@step("server", "notifications/elicitation/complete")
async def link_done(guest: Guest) -> None:
    await guest.text("tell")
