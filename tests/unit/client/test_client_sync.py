"""The blocking client: same methods, several threads, interrupts, callbacks, closing."""

from __future__ import annotations

import _thread
import asyncio
import gc
import inspect
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop
from lab.client import FOREVER, LEGACY, MODERN, Fake, alive, our_threads, text_result
from lab.feature import changed, peer, running, updated
from lab.wording import raises

from wirespeed import TASKS, Client, Server, SyncClient
from wirespeed.client import loop_thread
from wirespeed.client.loop_thread import walk
from wirespeed.errors import CallTimeout, ConnectionClosed, RemoteError, VersionMismatch
from wirespeed.types import PromptRef, ResourceUpdated, ToolsChanged

Make = Callable[..., Fake]

HANGS = LEGACY | {
    "tools/call:hang": [],
    "tools/call:x": [["error", {"code": 5, "message": "x"}]],
    "tools/call:later": [["later", [["result", text_result("late")]]]],
    "tools/call:release": [["release"], ["result", text_result("released")]],
}
ASYNC_ONLY = {"listens", "started", "notified"}  # what the lifecycle calls


def eventually(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + FOREVER
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Handover:
    """What happens as the next work is handed to the loop of a `SyncClient`, under its lock."""

    before: Callable[[], Any] | None = None
    after: Callable[[], Any] | None = None

    def happen(self, when: str) -> None:
        act = getattr(self, when)
        setattr(self, when, None)
        if act is not None:
            act()


@pytest.fixture(autouse=True)
def handover(any_loop: str, monkeypatch: pytest.MonkeyPatch) -> Handover:
    handover = Handover()
    base: Any = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.Loop}[any_loop]

    class Loop(base):
        def call_soon_threadsafe(self, *args: Any, **options: Any) -> Any:
            handover.happen("before")
            handle = super().call_soon_threadsafe(*args, **options)
            handover.happen("after")
            return handle

    monkeypatch.setattr(loop_thread, "loop_factory", lambda: Loop)
    return handover


def interrupt() -> None:
    raise KeyboardInterrupt


def test_the_same_methods_with_the_same_parameters() -> None:
    def public(cls: type) -> dict[str, Any]:
        return {n: getattr(cls, n) for n in dir(cls) if not n.startswith("_")}

    ours, theirs = public(SyncClient), public(Client)
    assert set(ours) == set(theirs) - ASYNC_ONLY
    for name in set(ours):
        assert callable(ours[name]) == callable(theirs[name]), name
        if callable(ours[name]):
            mine, other = inspect.signature(ours[name]), inspect.signature(theirs[name])
            assert list(mine.parameters.values()) == list(other.parameters.values()), name


def test_everything_once(fake: Make) -> None:
    pages = {
        "tools/list#1": [
            ["result", {"tools": [{"name": "a", "inputSchema": {}}], "nextCursor": ""}]
        ],
        "tools/list": LEGACY["tools/list"],
    }
    server = fake(HANGS | pages)
    steps: list[Any] = []
    with SyncClient(server.target) as client:
        assert client.call_tool("echo", {"a": 1}, timeout=FOREVER).text == "ok"
        client.call_tool("echo", on_progress=lambda *step: steps.append(step))
        assert [tool.name for tool in client.list_tools()] == ["a", "echo"]
        assert [tool.name for tool in client.iter_tools()] == ["echo"]
        assert client.list_tools_page().next_cursor is None
        assert client.request("ping") == {}
        assert client.request("ping", {"a": 1}, decode=bytes) == b"{}"
        client.ping()
        client.set_log_level("info")
        assert client.protocol_version == "2025-11-25"
        assert client.server_info == {"name": "fake", "version": "1"}
        assert "tools" in client.server_capabilities
        assert client.instructions is None
        assert client.counters["requests_outstanding"] == 0
        with pytest.raises(RemoteError):
            client.call_tool("x")
        with pytest.raises(CallTimeout):
            client.call_tool("hang", timeout=0.02)
        client.restart()
        client.ping()
    assert not any(map(alive, server.pids))
    assert server.sent("ping")[1]["params"] == {"a": 1}


def test_every_feature_once(tmp_path: Path, era: Any) -> None:
    told: list[Any] = []
    server = peer(
        tmp_path,
        era,
        {
            "prompts/get": {"messages": []},
            "completion/complete": {"completion": {"values": ["x"]}},
        },
    )
    with (
        running(server) as act,
        SyncClient(server.url, era=era, on_resource_updated=told.append) as client,
    ):
        assert [one.name for one in client.list_resources()] == ["r"]
        assert [one.name for one in client.iter_resources()] == ["r"]
        assert client.list_resources_page().next_cursor is None
        assert [one.name for one in client.list_resource_templates()] == ["x"]
        assert [one.name for one in client.iter_resource_templates()] == ["x"]
        assert client.list_resource_templates_page().next_cursor is None
        assert [one.name for one in client.list_prompts()] == ["p"]
        assert [one.name for one in client.iter_prompts()] == ["p"]
        assert client.list_prompts_page().next_cursor is None
        assert client.read_resource("x://r").text == "hello"
        assert client.read_template("x://{id}", id="r").text == "hello"
        assert client.get_prompt("p", {"a": "b"}).messages == []
        assert client.complete(PromptRef("p"), "a", "b").values == ["x"]
        client.clear_cache()
        client.subscribe_resource("x://r")
        act(lambda talk: updated(talk, "x://r"))
        eventually(lambda: told == ["x://r"])
        client.unsubscribe_resource("x://r")
        if era == "modern":
            assert client.discover().supported_versions == ["2026-07-28"]


def test_a_subscription_blocks(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    with running(server) as act, SyncClient(server.url, era=era) as client:
        with client.subscribe(tools=True, uris=["x://a"]) as events:
            assert events.honoured == events.wanted
            assert "open" in repr(events)
            with pytest.raises(CallTimeout):
                events.next_event(0.01)
            act(lambda talk: changed(talk, "tools"))
            act(lambda talk: updated(talk, "x://a"))
            got = []
            for event in events:
                got.append(event)
                if len(got) == 2:
                    break
            assert got == [ToolsChanged(), ResourceUpdated("x://a")]
            with ThreadPoolExecutor(1) as threads:
                waiting = threads.submit(list, events)
                events.close()
                assert waiting.result() == []
            assert events.next_event() is None
        with client.subscribe(tools=True) as events, ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(list, events)
            client.close()
            with pytest.raises(ConnectionClosed):
                waiting.result()
        with pytest.raises(ConnectionClosed):
            client.subscribe(tools=True).__enter__()


def test_an_interrupt_while_it_waits_for_an_event_loses_nothing(
    tmp_path: Path, handover: Handover
) -> None:
    server = peer(tmp_path, "modern")
    with (
        running(server) as act,
        SyncClient(server.url) as client,
        client.subscribe(tools=True) as events,
    ):
        handover.after = interrupt
        with pytest.raises(KeyboardInterrupt):
            next(events)
        act(lambda talk: changed(talk, "tools"))
        assert next(events) == ToolsChanged()


def test_threads_share_the_link(fake: Make) -> None:
    server = fake(HANGS)
    with SyncClient(server.target, era="legacy") as client, ThreadPoolExecutor(8) as threads:
        late = [threads.submit(client.call_tool, "later") for _ in range(4)]
        eventually(lambda: len(server.sent("tools/call")) == 4)
        echoes = list(threads.map(lambda i: client.call_tool("echo", {"i": i}).text, range(200)))
        assert echoes == ["ok"] * 200
        client.call_tool("release")
        assert [call.result().text for call in late] == ["late"] * 4


def test_an_interrupt_before_it_waits_cancels_the_call(fake: Make, handover: Handover) -> None:
    server = fake(HANGS)

    def asked() -> None:
        eventually(lambda: server.sent("tools/call"))
        raise KeyboardInterrupt

    with SyncClient(server.target, era="legacy") as client:
        handover.after = asked
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("hang")
        eventually(lambda: server.sent("notifications/cancelled"))
        assert client.call_tool("echo").text == "ok"
    [call, _] = server.sent("tools/call")
    assert [m["params"]["requestId"] for m in server.sent("notifications/cancelled")] == [
        call["id"]
    ]


def send_signal() -> None:
    os.kill(os.getpid(), signal.SIGINT)


# The second is what a signal does that arrives just before the main thread begins to wait.
@pytest.mark.parametrize("signalled", [send_signal, _thread.interrupt_main])
def test_a_signal_cancels_the_call(fake: Make, signalled: Callable[[], None]) -> None:
    server = fake(HANGS)

    def interrupt() -> None:
        eventually(lambda: server.sent("tools/call"))
        signalled()

    with SyncClient(server.target, era="legacy") as client:
        thread = threading.Thread(target=interrupt)
        thread.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("hang")
        assert time.monotonic() - began < FOREVER  # and not after the call's own limit
        thread.join()
        eventually(lambda: server.sent("notifications/cancelled"))
        assert client.call_tool("echo").text == "ok"


def test_use_from_its_own_callback(fake: Make) -> None:
    server = fake(
        LEGACY
        | {
            "tools/call": [
                [
                    "raw",
                    '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}',
                ],
                ["result", text_result()],
            ]
        }
    )
    errors: list[Any] = []

    def on_log(entry: Any) -> None:
        for use in (client.ping, client.list_tools, client.close, client.open, client.restart):
            try:
                use()
            except RuntimeError as exc:
                errors.append(str(exc))

    with SyncClient(server.target, era="legacy", on_log=on_log) as client:
        assert client.call_tool("echo").text == "ok"
        client.ping()
    assert len(errors) == 5
    assert set(errors) == {"a callback cannot block its own client: call from another thread"}


def test_a_callback_may_use_it_from_another_thread(fake: Make) -> None:
    tools: list[Any] = []
    server = Server("s")

    @server.tool
    def grow() -> None:
        server.add_tool(lambda: None, name="more")

    threads: list[threading.Thread] = []

    def changed(new: list[Any]) -> None:
        thread = threading.Thread(target=lambda: tools.extend(client.list_tools()))
        thread.start()
        threads.append(thread)

    with SyncClient(server, on_tools_changed=changed) as client:
        client.call_tool("grow")
        eventually(lambda: threads)
        for thread in threads:
            thread.join()
    assert {tool.name for tool in tools} == {"grow", "more"}


def test_close_is_idempotent_and_leaves_no_thread(fake: Make) -> None:
    server = fake(LEGACY)
    client = SyncClient(server.target)
    client.close()
    for _ in range(3):
        client.open()
        client.open()
        client.ping()
        client.close()
        client.close()
        eventually(lambda: not our_threads())
    assert len(server.pids) == 3


def test_use_while_it_is_not_open(fake: Make) -> None:
    client = SyncClient(fake(LEGACY).target)
    for _ in range(2):
        for use in (client.ping, client.list_tools, lambda: next(client.iter_tools())):
            with raises(ConnectionClosed):
                use()
        with pytest.raises(ConnectionClosed):
            _ = client.protocol_version
        with client:
            client.ping()


def test_closing_releases_other_threads(fake: Make) -> None:
    server = fake(HANGS)
    client = SyncClient(server.target, era="legacy")
    client.open()
    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(client.call_tool, "hang") for _ in range(4)]
        eventually(lambda: len(server.sent("tools/call")) == 4)
        closing = [threads.submit(client.close) for _ in range(3)]
        for call in calls:
            with pytest.raises(ConnectionClosed):
                call.result()
        for close in closing:
            close.result()
    assert not any(map(alive, server.pids))


def test_use_at_any_moment_of_the_closing(fake: Make) -> None:
    """Every call ends, in an answer or in ConnectionClosed; none hangs."""
    server = Server("s")

    @server.tool(inline=True)
    def echo() -> str:
        return "ok"

    ended: list[Any] = []

    def work() -> None:
        while True:
            try:
                ended.append(client.call_tool("echo").text)
            except ConnectionClosed:
                return

    for _ in range(10):
        client = SyncClient(server)
        client.open()
        threads = [threading.Thread(target=work) for _ in range(4)]
        n = len(ended)
        for thread in threads:
            thread.start()
        eventually(lambda n=n: len(ended) > n + 20)  # type: ignore[misc]
        client.close()
        for thread in threads:
            thread.join(FOREVER)
            assert not thread.is_alive()
    assert set(ended) == {"ok"}


def test_a_failed_opening_leaves_nothing(fake: Make) -> None:
    server = fake(MODERN)
    client = SyncClient(server.target, era="legacy")
    for _ in range(2):
        with pytest.raises(VersionMismatch):
            client.open()
        eventually(lambda: not our_threads())
    assert len(server.pids) == 2 and not any(map(alive, server.pids))


def test_close_while_another_thread_opens(fake: Make) -> None:
    server = fake({"*": []})
    client = SyncClient(server.target)
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(client.open)
        eventually(lambda: server.methods)
        client.close()
        with pytest.raises(ConnectionClosed):
            opening.result()
    assert not any(map(alive, server.pids))


def test_an_iteration_that_is_left(fake: Make) -> None:
    pages = {
        "tools/list": [
            ["result", {"tools": [{"name": "a", "inputSchema": {}}] * 2, "nextCursor": "1"}]
        ]
    }
    server = fake(LEGACY | pages)
    with SyncClient(server.target, era="legacy") as client:
        tools = client.iter_tools()
        assert next(tools).name == "a"
        tools.close()
        left = client.iter_tools()
        assert next(left).name == "a"
    left.close()  # after the client
    assert len(server.sent("tools/list")) == 2


class Cycle:
    """Something that only the garbage collector ends."""

    def __init__(self, held: Any) -> None:
        self.me, self.held = self, held


@pytest.mark.parametrize("where", ["under the lock", "in the loop's thread"])
def test_iterations_that_the_collector_ends(
    fake: Make, where: str, handover: Handover, caplog: pytest.LogCaptureFixture
) -> None:
    """It may run at any allocation: the generators are closed, and nobody waits for that."""
    closed: list[str] = []

    async def letters(which: str) -> Any:
        try:
            for letter in which:
                yield letter
        finally:
            closed.append(threading.current_thread().name)

    async def upper(lower: Any) -> Any:
        try:
            async for letter in lower:
                yield letter.upper()
        finally:
            closed.append("upper")

    async def collect() -> Any:
        yield gc.collect()

    with SyncClient(fake(LEGACY).target, era="legacy") as client:
        items = upper(letters("ab"))
        walked, left = weakref.ref(items), Cycle(walk(client, items))
        assert next(left.held) == "A"
        del left, items
        assert closed == []
        if where == "under the lock":
            handover.before = gc.collect
            client.ping()
        else:
            next(walk(client, collect()))
        eventually(lambda: len(closed) == 2)
        assert closed == ["upper", "wirespeed-client"]
        eventually(lambda: walked() is None)
        client.ping()
    assert not caplog.records


def test_a_task_that_is_no_longer_iterated_over(handover: Handover) -> None:
    server = Server("s")
    server.use_tasks(poll_interval=0.02)
    go = threading.Event()

    @server.tool(task="required")
    def slow() -> str:
        go.wait(FOREVER)
        return "done"

    with SyncClient(server, extensions=[TASKS]) as client:
        task = client.start_tool("slow")
        left = Cycle(iter(task))
        assert next(left.held).status == "working"
        del left
        handover.before = gc.collect
        client.ping()
        go.set()
        assert task.result(timeout=FOREVER).text == "done"


@pytest.mark.parametrize("act", ["ping", "list_tools", "close"])
def test_a_signal_handler_may_use_it(fake: Make, act: str, handover: Handover) -> None:
    """Also when the signal comes while its thread holds the client's lock."""
    client = SyncClient(fake(LEGACY).target, era="legacy")
    done: list[int] = []

    def handler(number: int, _: Any) -> None:
        done.append(number)
        getattr(client, act)()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with client:
            handover.before = lambda: signal.raise_signal(signal.SIGUSR1)
            if act == "close":
                with pytest.raises(ConnectionClosed):
                    client.ping()
            else:
                client.ping()
            assert done == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_errors_have_the_callers_line(fake: Make) -> None:
    with SyncClient(fake(HANGS).target) as client, pytest.raises(RemoteError) as caught:
        client.call_tool("x")
    assert any(entry.path.name == "test_client_sync.py" for entry in caught.traceback)  # type: ignore[union-attr]
