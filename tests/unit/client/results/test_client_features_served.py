"""Every feature with a real server in memory, in each revision: nothing here is scripted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from lab.client import HastyClient, until

from wirespeed import Client, Server, Socket, SyncClient
from wirespeed.errors import ConnectionLost, RemoteError
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.types import (
    PromptRef,
    PromptsChanged,
    ResourceRef,
    ResourcesChanged,
    ResourceUpdated,
    SubscriptionFilter,
    ToolsChanged,
)

pytestmark = [pytest.mark.smoke, pytest.mark.parametrize("version", list(REVISIONS))]


def everything(version: str, **options: Any) -> Server:
    server = Server("everything", versions=[version], **options)

    @server.tool
    def shout(text: str) -> str:
        return text.upper()

    @server.resource("config://app", mime_type="application/json")
    def config() -> dict[str, Any]:
        return {"a": 1}

    @server.resource("users://{id}/name")
    def user(id: int) -> str:
        return f"user {id}"

    @server.prompt
    def greet(name: str, style: str = "kind") -> str:
        return f"Greet {name} in a {style} way"

    @server.completion(greet, "style")
    def styles(value: str) -> list[str]:
        return [style for style in ("kind", "curt") if style.startswith(value)]

    @server.completion(user, "id")
    def ids(value: str) -> list[str]:
        return [value + digit for digit in "01"]

    server.add_resource("blob://x", b"\x00\xff")
    return server


async def test_requests(version: str) -> None:
    async with Client(everything(version)) as client:
        assert client.protocol_version == version
        assert (await client.call_tool("shout", {"text": "a"})).text == "A"
        assert {one.uri for one in await client.list_resources()} == {
            "config://app", "blob://x",
        }  # fmt: skip
        [template] = await client.list_resource_templates()
        assert template.uri_template == "users://{id}/name"
        [prompt] = await client.list_prompts()
        assert [(one.name, one.required) for one in prompt.arguments] == [
            ("name", True), ("style", False),
        ]  # fmt: skip
        read = await client.read_resource("config://app")
        assert (read.contents[0].mime_type, read.text) == ("application/json", '{"a":1}')
        assert (await client.read_resource("blob://x")).data == b"\x00\xff"
        assert (await client.read_template(template.uri_template, id=7)).text == "user 7"
        got = await client.get_prompt("greet", {"name": "Ann"})
        assert [one.text for one in got.messages] == ["Greet Ann in a kind way"]
        assert (await client.complete(PromptRef("greet"), "style", "k")).values == ["kind"]
        ref = ResourceRef(template.uri_template)
        assert (await client.complete(ref, "id", "4")).values == ["40", "41"]


async def test_a_missing_resource(version: str) -> None:
    async with Client(everything(version)) as client:
        with pytest.raises(RemoteError) as caught:
            await client.read_resource("config://none")
        assert caught.value.resource_missing
        assert caught.value.code == (-32602 if REVISIONS[version].modern else -32002)


async def test_pages(version: str) -> None:
    server = everything(version, page_size=3)
    for n in range(10):
        server.add_resource(f"n://{n}", str(n))
    async with Client(server) as client:
        listed = [one.uri for one in await client.list_resources()]
        assert listed == [one.uri async for one in client.iter_resources()]
        assert len(listed) == len(set(listed)) == 12
        assert (await client.list_resources_page()).next_cursor is not None


async def test_subscriptions(version: str) -> None:
    server = everything(version)
    async with (
        Client(server) as client,
        client.subscribe(tools=True, prompts=True) as lists,
        client.subscribe(resources=True, uris=["config://app"]) as resources,
    ):
        assert lists.honoured == SubscriptionFilter(tools=True, prompts=True)
        assert resources.honoured == SubscriptionFilter(resources=True, uris=("config://app",))
        server.resource_updated("config://app")
        assert await anext(resources) == ResourceUpdated("config://app")
        server.add_tool(lambda: None, name="more")
        assert await anext(lists) == ToolsChanged()
        server.add_resource("new://x", "x")
        assert await anext(resources) == ResourcesChanged()
        server.remove_prompt("greet")
        assert await anext(lists) == PromptsChanged()
        for events in (lists, resources):
            events.close()
            assert [event async for event in events] == []
        server.resource_updated("config://app")  # nobody is told


async def test_consumers(version: str) -> None:
    told: list[Any] = []

    def names(items: list[Any]) -> None:
        told.append([item.name for item in items])

    server = everything(version)
    async with Client(
        server,
        on_tools_changed=names,
        on_prompts_changed=names,
        on_resources_changed=names,
        on_resource_updated=told.append,
    ) as client:
        await client.subscribe_resource("config://app")
        server.resource_updated("config://app")
        await until(lambda: told == ["config://app"])
        server.remove_prompt("greet")
        await until(lambda: told[1:] == [[]])
        server.remove_tool("shout")
        await until(lambda: told[2:] == [[]])
        server.remove_resource("config://app")
        await until(lambda: len(told) == 4 and len(told[3]) == 1)
        await client.unsubscribe_resource("config://app")


async def test_the_cache(version: str) -> None:
    """What changes is seen at once by who listens, however long it was to be fresh."""
    modern = REVISIONS[version].modern
    server = everything(version, list_ttl_ms=3_600_000)
    async with Client(server) as client:

        async def sent() -> int:
            before = client.counters["messages_out"]
            await client.list_tools()
            return client.counters["messages_out"] - before

        assert [await sent(), await sent()] == [1, 0 if modern else 1]
        async with client.subscribe(tools=True) as events:
            server.add_tool(lambda: None, name="more")
            await anext(events)
            assert [await sent(), await sent()] == [1, 0 if modern else 1]
            assert "more" in [tool.name for tool in await client.list_tools()]


async def serving(server: Server, folder: Path) -> tuple[str, asyncio.Task[None]]:
    """Serve at a UNIX socket until the task is cancelled."""
    listening = asyncio.get_running_loop().create_future()
    url = f"unix:{folder}/s"
    task = asyncio.create_task(server.serve(url, on_listening=listening.set_result))
    await listening
    return url, task


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


async def test_a_server_that_shuts_down(tmp_path: Path, version: str) -> None:
    """In 2026-07-28 it ends subscriptions in order; before, the connection just ends."""
    url, task = await serving(everything(version), tmp_path)
    try:
        async with Client(Socket(url, restart=0)) as client, client.subscribe(tools=True) as events:
            await stop(task)
            if REVISIONS[version].modern:
                assert [event async for event in events] == []
            else:
                with pytest.raises(ConnectionLost):
                    await anext(events)
    finally:
        await stop(task)


async def test_a_server_that_is_started_again(tmp_path: Path, version: str) -> None:
    told: list[Any] = []
    server = everything(version)
    url, task = await serving(server, tmp_path)
    try:
        target = Socket(url, restart=1000)
        async with HastyClient(target, on_resource_updated=told.append) as client:
            await client.subscribe_resource("config://app")
            await stop(task)
            url, task = await serving(server, tmp_path)
            await until(lambda: told == ["config://app"])  # it may have changed meanwhile
            await client.ping()
            server.resource_updated("config://app")
            await until(lambda: told == ["config://app"] * 2)
    finally:
        await stop(task)


def test_blocking(version: str) -> None:
    server = everything(version)
    with SyncClient(server) as client:
        assert client.read_resource("config://app").text == '{"a":1}'
        assert client.get_prompt("greet", {"name": "Bo"}).messages[0].text.startswith("Greet Bo")
        with client.subscribe(uris=["config://app"]) as events:
            server.resource_updated("config://app")
            assert next(events) == ResourceUpdated("config://app")
