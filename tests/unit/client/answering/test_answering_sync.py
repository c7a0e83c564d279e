"""Answering servers with a client that blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.asking import DONE, ELICIT, SAMPLE, ask, elicit, legacy, modern, params_of, required
from lab.client import text_result
from lab.peer import LinePeer, Rules, Talk
from lab.wording import raises

from wirespeed import Context, Server, SyncClient
from wirespeed.errors import HandlerFailed, InputNeeded
from wirespeed.types import ElicitParams, SampleParams, SampleResult


class Aside:
    """A loop in a thread, for a server of a client that blocks."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def aside() -> Iterator[Aside]:
    made = Aside()
    yield made
    made.end()


def served(aside: Aside, folder: Path, rules: Rules) -> LinePeer:
    peer = LinePeer(rules, folder)
    aside.run(peer.start())
    return peer


def test_a_plain_handler_may_block_and_call_its_client(
    aside: Aside, tmp_path: Path, era: str
) -> None:
    clients: list[SyncClient] = []
    used: list[threading.Thread] = []

    def on_elicit(request: ElicitParams) -> Any:
        used.append(threading.current_thread())
        return {"name": clients[0].call_tool("echo").text}

    async def asking(talk: Talk, message: dict[str, Any]) -> None:
        async def work() -> None:
            got = await ask(talk, "elicitation/create", ELICIT)
            await talk.result(message, text_result(got["result"]["content"]["name"]))

        asyncio.get_running_loop().create_task(work())

    if era == "legacy":
        rules = legacy() | {"tools/call:book": asking}
    else:
        rules = modern([]) | {"tools/call": text_result() | {"resultType": "complete"}}
        book = modern([required({"a": elicit()}), DONE])["tools/call"]
        rules["tools/call:book"] = book
    peer = served(aside, tmp_path, rules)
    with SyncClient(peer.url, on_elicit=on_elicit) as client:
        clients.append(client)
        result = client.call_tool("book")
        if era == "legacy":
            assert result.text == "ok"
        else:
            answer = {"action": "accept", "content": {"name": "ok"}}
            assert params_of(peer)[-1]["inputResponses"] == {"a": answer}
    assert used[0].name.startswith("wirespeed-worker")
    aside.run(peer.stop())


def test_coroutine_handlers_run_on_the_loop(aside: Aside, tmp_path: Path) -> None:
    async def on_sample(request: SampleParams) -> Any:
        await asyncio.sleep(0)
        return SampleResult(content="x", model=threading.current_thread().name)

    requests = {"a": {"method": "sampling/createMessage", "params": SAMPLE}}
    peer = served(aside, tmp_path, modern([required(requests), DONE]))
    with SyncClient(peer.url, on_sample=on_sample) as client:
        client.call_tool("book")
    assert params_of(peer)[-1]["inputResponses"]["a"]["model"] == "wirespeed-client"
    aside.run(peer.stop())


def test_what_fails_is_raised(aside: Aside, tmp_path: Path) -> None:
    def on_elicit(request: ElicitParams) -> Any:
        raise ZeroDivisionError("mine")

    peer = served(aside, tmp_path, modern([required({"a": elicit()})]))
    with SyncClient(peer.url, on_elicit=on_elicit) as client:
        with pytest.raises(HandlerFailed, match="mine") as caught:
            client.call_tool("book")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    aside.run(peer.stop())


def test_rounds_by_hand_and_roots(aside: Aside, tmp_path: Path) -> None:
    requests = {"a": {"method": "roots/list"}}
    peer = served(aside, tmp_path, modern([required(requests), DONE]))
    with SyncClient(peer.url, roots=[], max_rounds=0) as client:
        assert client.add_root("file:///a")
        assert client.remove_root("file:///a")
        with pytest.raises(InputNeeded) as caught:
            client.call_tool("book")
        assert client.resume(caught.value, {"a": ["file:///b"]}).text == "done"
    roots = {"roots": [{"uri": "file:///b"}]}
    assert params_of(peer)[-1]["inputResponses"] == {"a": roots}
    aside.run(peer.stop())


def test_handlers_that_are_nested_too_deep() -> None:
    """As deep as the server likes: the innermost is refused, and all others end with that."""
    server = Server("deep")
    deepest = 0

    @server.tool
    async def dig(depth: int, ctx: Context) -> str:
        return (await ctx.sample(str(depth), max_tokens=5)).text

    def on_sample(request: SampleParams) -> Any:
        nonlocal deepest
        [message] = request.messages
        depth = int(message.content.text)  # type: ignore[union-attr]
        deepest = max(deepest, depth)
        text = "gold"
        if depth < wanted:
            text = client.call_tool("dig", {"depth": depth + 1}, timeout=None).text
        return SampleResult(content=text, model="m")

    with SyncClient(server, on_sample=on_sample) as client:
        wanted = 4
        assert client.call_tool("dig", {"depth": 1}, timeout=None).text == "gold"
        wanted, deepest = 100, 0
        with raises(HandlerFailed):
            client.call_tool("dig", {"depth": 1}, timeout=None)
        assert deepest == 32
        wanted = 2
        assert client.call_tool("dig", {"depth": 1}, timeout=None).text == "gold"
