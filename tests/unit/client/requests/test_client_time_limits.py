"""``timeout=`` of requests: what it may be, and what its error says."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from lab.asking import required
from lab.client import Run
from lab.peer import MODERN_PEER, LinePeer, Rules, nothing
from lab.wording import raises

from wirespeed import CLIENT_DEFAULT, TASKS, Client, Server, SyncClient
from wirespeed.errors import CallTimeout
from wirespeed.litemcp import LiteClient, LiteServer
from wirespeed.types import PromptRef

Call = Callable[[Client, Any], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "tool work": lambda client, timeout: client.call_tool("work", timeout=timeout),
    "tools/list": lambda client, timeout: client.list_tools(timeout=timeout),
    "resources/read": lambda client, timeout: client.read_resource("x:y", timeout=timeout),
    "x/y": lambda client, timeout: client.request("x/y", timeout=timeout),
    "ping": lambda client, timeout: client.ping(timeout=timeout),
}


async def first(items: AsyncIterator[Any]) -> Any:
    return await anext(items)


async def subscribe(client: Client, timeout: Any) -> None:
    async with client.subscribe(tools=True, timeout=timeout):
        pass


REF = PromptRef("p")
# Every other method, by what its errors name.
OTHERS: list[tuple[str, Call]] = [
    ("tools/list", lambda client, timeout: client.list_tools_page(timeout=timeout)),
    ("tools/list", lambda client, timeout: first(client.iter_tools(timeout=timeout))),
    ("tool work", lambda client, timeout: client.call_tool("work", type=int, timeout=timeout)),
    ("tool work", lambda client, timeout: client.start_tool("work", timeout=timeout)),
    ("resources/list", lambda client, timeout: client.list_resources(timeout=timeout)),
    (
        "resources/templates/list",
        lambda client, timeout: client.list_resource_templates(timeout=timeout),
    ),
    ("resources/read", lambda client, timeout: client.read_template("x:y", timeout=timeout)),
    ("prompts/list", lambda client, timeout: client.list_prompts(timeout=timeout)),
    ("prompts/get", lambda client, timeout: client.get_prompt("p", timeout=timeout)),
    ("completion/complete", lambda client, timeout: client.complete(REF, "a", "", timeout=timeout)),
    ("subscriptions/listen", subscribe),
    ("subscriptions/listen", lambda client, t: client.subscribe_resource("x:y", timeout=t)),
    ("logging/setLevel", lambda client, timeout: client.set_log_level("info", timeout=timeout)),
    ("server/discover", lambda client, timeout: client.discover(timeout=timeout)),
    ("tasks/get", lambda client, timeout: client.get_task("t", timeout=timeout)),
    ("tasks/list", lambda client, timeout: client.list_tasks(timeout=timeout)),
]

SILENT: Rules = {**MODERN_PEER, "tools/call": nothing, "tools/list": nothing}


@pytest.mark.parametrize("timeout", [0, 0.0, -0.001, -1.0, -5, -math.inf])
@pytest.mark.parametrize("what", CALLS)
async def test_a_limit_that_is_over_sends_nothing(tmp_path: Any, what: str, timeout: float) -> None:
    async with LinePeer(SILENT, tmp_path) as peer, Client(peer.url, timeout=None) as client:
        before = len(peer.talks[0].messages)
        with pytest.raises(CallTimeout, match=f"^{what}: the time limit was over before"):
            await CALLS[what](client, timeout)
        await asyncio.sleep(0)
        assert len(peer.talks[0].messages) == before


async def test_every_method_means_the_same(tmp_path: Any) -> None:
    async with LinePeer(SILENT, tmp_path) as peer, Client(peer.url, cache=False) as client:
        before = len(peer.talks[0].messages)
        for what, call in OTHERS:
            with pytest.raises(CallTimeout, match=f"^{what}: the time limit was over before"):
                await call(client, -1.0)
            with raises(TypeError):
                await call(client, "5")
        assert len(peer.talks[0].messages) == before


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_task_and_a_subscription_mean_the_same(era: Any) -> None:
    server = Server("tasks")
    go_on = asyncio.Event()

    @server.tool(task="required")
    async def work() -> int:
        await go_on.wait()
        return 1

    async with Client(server, era=era, extensions=[TASKS], timeout=0.05) as client:
        task = await client.start_tool("work", timeout=None)
        for over in (0, -5):
            with raises(CallTimeout):
                await task.result(timeout=over)
        with raises(CallTimeout):
            await task.result(timeout=CLIENT_DEFAULT)
        with raises(ValueError):
            await task.result(timeout=math.nan)
        go_on.set()
        assert (await task.result()).text == "1"
        assert (await task.result(timeout=-1)).text == "1"  # it is here
        async with client.subscribe(tools=True, timeout=None) as events:
            with raises(CallTimeout):
                await events.next_event(-1)
            with raises(TypeError):
                await events.next_event("5")  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", ["5", b"5", [5], object()])
@pytest.mark.parametrize("what", CALLS)
async def test_what_is_not_a_number_is_refused(
    once: Run, tmp_path: Any, what: str, timeout: Any
) -> None:
    async with Client(Server("s")) as client:
        kind = type(timeout).__name__
        with pytest.raises(TypeError, match=f"^timeout must be a number .*, not {kind}$"):
            await CALLS[what](client, timeout)
    with raises(TypeError):
        Client(Server("s"), timeout="5")  # type: ignore[arg-type]


async def test_not_a_number_is_refused(once: Run) -> None:
    async with Client(Server("s")) as client:
        with raises(ValueError):
            await client.call_tool("work", timeout=math.nan)


@pytest.mark.parametrize("timeout", [CLIENT_DEFAULT, 0.05])
async def test_errors_name_the_tool_and_the_seconds(tmp_path: Any, timeout: Any) -> None:
    async with LinePeer(SILENT, tmp_path) as peer, Client(peer.url, timeout=0.05) as client:
        with raises(CallTimeout):
            await client.call_tool("work", timeout=timeout)
        with raises(CallTimeout):
            await client.list_tools_page(timeout=timeout)


async def test_the_limit_of_a_call_is_that_of_all_its_rounds(once: Run, tmp_path: Any) -> None:
    rules = {**MODERN_PEER, "tools/call": required(state="again")}
    async with LinePeer(rules, tmp_path) as peer, Client(peer.url, max_rounds=1000) as client:
        with raises(CallTimeout):
            await client.call_tool("t", timeout=0.2)


async def test_litemcp_means_the_same(once: Run) -> None:
    server = LiteServer("echo")

    @server.tool
    def echo(text: str) -> str:
        return text

    async with LiteClient(server) as client:
        with raises(CallTimeout):
            await client.prompt(timeout=-1)
        assert client.n_outstanding == 0
        assert (await client.invoke(["a"], timeout=CLIENT_DEFAULT)).text == "a"
        assert (await client.invoke(["a"], timeout=None)).text == "a"
        for timeout in (0, -1.0, -5):
            with raises(CallTimeout):
                await client.invoke(["a"], timeout=timeout)
            with raises(CallTimeout):
                await client.info(timeout=timeout)


def test_without_an_event_loop() -> None:
    with SyncClient(Server("s")) as client:
        with raises(CallTimeout):
            client.call_tool("work", timeout=-1.0)
        client.ping(timeout=CLIENT_DEFAULT)
