"""Opening and closing: twice, at once, in other tasks, cancelled, forgotten."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from lab.client import (
    FOREVER,
    LEGACY,
    MODERN,
    Fake,
    Run,
    alive,
    open_fds,
    our_threads,
    turns,
    until,
)
from lab.wording import raises

from wirespeed import Client, Server, Stdio, config
from wirespeed.errors import ConnectionClosed, LaunchError, RemoteError

Make = Callable[..., Fake]

HANGS = LEGACY | {"tools/call:hang": []}
SILENT: dict[str, Any] = {"*": []}


async def test_open_and_close_in_different_tasks(fake: Make) -> None:
    server = fake(LEGACY)
    client = Client(server.target)
    await asyncio.create_task(client.open())
    result = await asyncio.create_task(client.call_tool("echo"))
    assert result.text == "ok"
    await asyncio.create_task(client.close())
    assert not alive(server.pids[0])


async def test_close_twice_and_at_once(fake: Make) -> None:
    server = fake(LEGACY)
    client = Client(server.target)
    await client.close()  # before it was ever open
    await client.open()
    await asyncio.gather(client.close(), client.close())
    assert not alive(server.pids[0])
    await client.close()


async def test_closing_ends_calls(fake: Make) -> None:
    server = fake(HANGS)
    client = Client(server.target, era="legacy")
    await client.open()
    waiting = [asyncio.create_task(client.call_tool("hang")) for _ in range(10)]
    await server.got("tools/call", 10)
    await client.close()
    for task in waiting:
        with raises(ConnectionClosed):
            await task


@pytest.mark.parametrize(
    "use",
    [
        lambda c: c.call_tool("echo"),
        lambda c: c.list_tools(),
        lambda c: c.request("ping"),
        lambda c: c.ping(),
        lambda c: c.set_log_level("info"),
    ],
    ids=["call_tool", "list_tools", "request", "ping", "set_log_level"],
)
async def test_use_before_open_and_after_close(once: Run, fake: Make, use: Any) -> None:
    server = fake(LEGACY)
    client = Client(server.target)
    for _ in range(2):
        with raises(ConnectionClosed):
            await use(client)
        for what in ("protocol_version", "server_info", "server_capabilities", "instructions"):
            with pytest.raises(ConnectionClosed):
                getattr(client, what)
        assert client.counters == {}
        assert repr(client).endswith(": closed>")
        async with client:
            await use(client)
            assert repr(client).endswith(": 2025-11-25>")


async def test_open_is_idempotent_and_shared(fake: Make) -> None:
    server = fake(LEGACY)
    client = Client(server.target)
    await asyncio.gather(*(client.open() for _ in range(5)))
    await client.open()
    async with client:
        assert (await client.call_tool("echo")).text == "ok"
    assert len(server.pids) == 1


async def test_open_again_after_close(fake: Make) -> None:
    server = fake(LEGACY)
    client = Client(server.target)
    for _ in range(3):
        async with client:
            assert (await client.call_tool("echo")).text == "ok"
    assert len(server.pids) == 3 and not any(map(alive, server.pids))


def test_a_client_on_one_loop_after_another(fake: Make) -> None:
    server = fake(LEGACY)
    client = Client(server.target)

    async def main() -> None:
        async def use() -> None:
            async with client:
                assert (await client.call_tool("echo")).text == "ok"

        # at once, so that locks are fought over and belong to this loop
        await asyncio.gather(client.open(), client.open(), use())
        await client.close()

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop, asyncio.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())
    assert not any(map(alive, server.pids))


async def test_the_body_may_raise(fake: Make) -> None:
    server = fake(HANGS)
    with pytest.raises(ZeroDivisionError):
        async with Client(server.target, era="legacy") as client:
            hanging = asyncio.create_task(client.call_tool("hang"))
            await turns(1)
            raise ZeroDivisionError
    with pytest.raises(ConnectionClosed):
        await hanging
    assert not alive(server.pids[0])


# -- while it opens --------------------------------------------------------------------------------


async def test_close_while_the_handshake_is_under_way(fake: Make) -> None:
    server = fake(SILENT)
    client = Client(server.target)
    opening = asyncio.create_task(client.open())
    await server.got("server/discover")
    await client.close()
    with raises(ConnectionClosed):
        await opening
    assert not alive(server.pids[0])
    await client.close()


@pytest.mark.parametrize("n", range(6))
async def test_close_at_any_moment_of_the_launch(fake: Make, n: int) -> None:
    server = fake(SILENT)
    client = Client(server.target)
    opening = asyncio.create_task(client.open())
    await turns(n)
    await client.close()
    if n == 0:  # it had not begun, so it is another opening
        opening.cancel()
    with pytest.raises((ConnectionClosed, asyncio.CancelledError)):
        await opening
    await until(lambda: not any(map(alive, server.pids)))


async def test_two_wait_for_an_opening_that_is_closed(fake: Make) -> None:
    server = fake(SILENT, LEGACY)
    client = Client(server.target, era="legacy")
    first = asyncio.create_task(client.open())
    second = asyncio.create_task(client.open())
    await server.got("initialize")
    await client.close()
    with pytest.raises(ConnectionClosed):
        await first
    await second  # an opening of its own, asked for by somebody else
    assert (await client.call_tool("echo")).text == "ok"
    await client.close()
    assert not any(map(alive, server.pids))


async def test_a_cancelled_opening_leaves_no_child(fake: Make) -> None:
    server = fake(SILENT)
    for seconds in (0, 0.001, 0.01, 0.05):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Client(server.target).open(), seconds)
    opening = asyncio.create_task(Client(server.target).open())
    n = len(server.sent("server/discover"))
    await server.got("server/discover", n + 1)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not alive(server.pids[-1])
    wait = [pid for pid in server.pids if alive(pid)]
    assert not wait


async def test_an_opening_cancelled_twice_ends_the_child_beside(fake: Make) -> None:
    server = fake(SILENT | {"eof": [["stop"]]}, shutdown_grace=0.05)
    client = Client(server.target)
    opening = asyncio.create_task(client.open())
    await server.got("server/discover")
    opening.cancel()
    await turns(3)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await client.close()  # waits for the end that goes on
    assert not alive(server.pids[0])


async def test_a_handler_of_cancellation_at_the_very_end() -> None:
    """Cancelled in the tick in which the opening succeeds: open or not, nothing is left."""
    server = Server("s")
    for n in range(1, 30):
        client = Client(server)
        opening = asyncio.create_task(client.open())
        await turns(n)
        opening.cancel()
        await asyncio.wait([opening])
        if opening.cancelled():
            with pytest.raises(ConnectionClosed):
                await client.ping()
        await client.close()
        assert not server.service.connections


async def test_a_failed_opening_can_be_tried_again(once: Run, fake: Make, tmp_path: Path) -> None:
    program = tmp_path / "program"
    server = fake(LEGACY)
    client = Client(Stdio(program, server.target.args, stderr="discard"))
    for _ in range(2):
        with raises(LaunchError):
            await client.open()
    program.symlink_to(sys.executable)
    async with client:
        assert (await client.call_tool("echo")).text == "ok"


# -- what is left ----------------------------------------------------------------------------------


def known_tasks() -> int:
    """The tasks that anything refers to, ended or not."""
    gc.collect()
    return sum(isinstance(one, asyncio.Task) for one in gc.get_objects())


@pytest.mark.parametrize("base", [LEGACY, MODERN], ids=["legacy", "modern"])
async def test_nothing_leaks_over_many_openings(fake: Make, base: Any) -> None:
    server = fake(base, stderr=lambda line: None)
    client = Client(server.target, on_tools_changed=print)

    async def cycle() -> None:
        async with client:
            assert (await client.call_tool("echo")).text == "ok"

    await cycle()
    await until(lambda: not our_threads())
    fds, tasks = open_fds(), known_tasks()
    for _ in range(10):
        await cycle()
    await until(lambda: not our_threads())
    assert open_fds() == fds
    await until(lambda: known_tasks() == tasks)
    assert len(asyncio.all_tasks()) == 1
    assert len(server.pids) == 11 and not any(map(alive, server.pids))


@pytest.mark.parametrize("base", [LEGACY, MODERN], ids=["legacy", "modern"])
@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_forgotten_client_leaves_no_child(
    fake: Make, base: Any, factory: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop is closed and nobody closed the client: a warning, no noise, no child."""
    server = fake(base)

    async def main() -> Client:
        client = Client(server.target, on_tools_changed=print)
        await client.open()
        await client.call_tool("echo")
        return client

    loop = factory()
    client = loop.run_until_complete(asyncio.wait_for(main(), FOREVER))
    loop.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del client, loop
        gc.collect()
    assert [w.category for w in caught] == [ResourceWarning]
    assert "was never shut down" in str(caught[0].message)
    assert "Task was destroyed" not in caplog.text

    async def gone() -> None:
        await until(lambda: not alive(server.pids[0]))

    asyncio.run(gone())


def test_asyncio_run_ends_a_forgotten_client(fake: Make) -> None:
    server = fake(LEGACY)

    async def main() -> None:
        client = Client(server.target)
        await client.open()
        asyncio.get_running_loop().create_task(client.call_tool("echo"))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert {w.category for w in caught} == {ResourceWarning}


# -- targets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [None, 5, ["server"], object()])
def test_what_is_no_target(target: Any) -> None:
    with raises(TypeError):
        Client(target)


async def test_a_configuration_file_becomes_clients(fake: Make, tmp_path: Path) -> None:
    server = fake(LEGACY)
    other = fake(MODERN)
    file = tmp_path / "mcp.json"
    entries = {
        name: {
            "command": sys.executable,
            "args": list(one.target.args),
            "env": {"A": "1"},
            "era": era,
            "timeout": 7,
        }
        for name, one, era in (("old", server, "legacy"), ("new", other, "auto"))
    }
    file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    servers = config.load(file)
    assert list(servers) == ["old", "new"]
    for name, version in (("old", "2025-11-25"), ("new", "2026-07-28")):
        async with servers[name].client(stderr="discard") as client:
            assert client.protocol_version == version
            assert client.timeout == 7
            assert (await client.call_tool("echo")).text == "ok"
        assert servers[name].client(timeout=3, era="modern").timeout == 3
    assert "server/discover" not in server.methods


async def test_auto_start_false_starts_the_server_at_its_first_use(
    fake: Make, tmp_path: Path
) -> None:
    server = fake(LEGACY)
    file = tmp_path / "mcp.json"
    entry = {
        "command": sys.executable,
        "args": list(server.target.args),
        "autoStart": False,
        "era": "legacy",
    }
    file.write_text(json.dumps({"mcpServers": {"lazy": entry}}), encoding="utf-8")
    async with config.load(file)["lazy"].client(stderr="discard") as client:
        await asyncio.sleep(0.05)
        assert server.methods == []
        with raises(ConnectionClosed):
            _ = client.protocol_version
        both = await asyncio.gather(client.call_tool("echo"), client.call_tool("echo"))
        assert [result.text for result in both] == ["ok", "ok"]
        assert server.methods.count("initialize") == 1
    with raises(ConnectionClosed):
        await client.call_tool("echo")
    async with config.load(file)["lazy"].client(stderr="discard"):
        pass  # never used, never started
    assert server.methods.count("initialize") == 1


async def test_calls_of_other_clients_are_not_touched(fake: Make) -> None:
    one, other = (
        fake(HANGS),
        fake(LEGACY | {"tools/call:x": [["error", {"code": 5, "message": "x"}]]}),
    )
    async with Client(one.target, era="legacy") as a, Client(other.target) as b:
        hanging = asyncio.create_task(a.call_tool("hang"))
        await one.got("tools/call")
        with pytest.raises(RemoteError):
            await b.call_tool("x")
        await b.close()
        assert not hanging.done()
        hanging.cancel()
        assert (await a.call_tool("echo")).text == "ok"
