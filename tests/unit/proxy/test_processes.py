"""Processes that wait for clients, that are replaced, that stop, and that end with the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import MODERN, Lab, Raw, call, said
from lab.raw import surroundings

from wirespeed.proxy import RecycleConfig
from wirespeed.proxy.supervision.checks import resident
from wirespeed.proxy.supervision.supervisor import MAX_BYTES, MAX_LINES, NamedLines

pytestmark = pytest.mark.off_schema

LOST = -31004
ERAS = [("2025-11-25", ""), (MODERN, MODERN)]


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def pid_of(client: Raw) -> int:
    pid: int = said(await client.ask(call("pid", "echo")))["pid"]
    return pid


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


# -- spares ----------------------------------------------------------------------------------------


async def test_spares_wait_for_clients(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "session", config={"spares": 2})
    async with lab.serving():
        await until(
            lambda: [one.status.state for one in lab.assignment.supervisors] == ["ready"] * 2
        )
        waiting = [one.status.pid for one in lab.assignment.supervisors]
        one = await lab.connect()
        assert await pid_of(one) == waiting[0]
        await until(lambda: len(lab.assignment.supervisors) == 3)  # another spare
        two = await lab.connect()
        assert await pid_of(two) == waiting[1]
        await one.close()
        await until(lambda: len(lab.assignment.supervisors) == 3)
        await until(lambda: not is_alive(waiting[0]))
    assert lab.assignment.supervisors == []


async def test_a_spare_that_ends_is_started_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "session", config={"spares": 1})
    async with lab.serving():
        (spare,) = lab.assignment.supervisors
        await until(lambda: spare.status.state == "ready")
        first = spare.status.pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: spare.status.restarts == 1 and spare.status.state == "ready")
        one = await lab.connect()
        assert await pid_of(one) == spare.status.pid != first


# -- recycling -------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["shared", "pool"])
@pytest.mark.parametrize(("version", "versions"), ERAS)
async def test_a_process_that_has_answered_enough(
    tmp_path: Path, version: str, versions: str, isolation: str
) -> None:
    """The new one starts first, the old one ends with its last request, and nothing fails."""
    config = {"recycle": RecycleConfig(max_requests=5)}
    lab = Lab(tmp_path, isolation, versions=versions, size=1, config=config)
    async with lab.serving():
        one, two = await lab.connect(version), await lab.connect(version)
        if version != MODERN:
            await one.ask(request("level", "logging/setLevel", level="info"))
        await two.send(call("long", "hold", "t", **{"as": "x"}))
        await two.recv()
        old = await pid_of(one)
        while (new := await pid_of(one)) == old:
            await asyncio.sleep(0.05)
        assert is_alive(old)  # it has a request
        assert await pid_of(two) == new
        if version != MODERN:
            assert [m["params"] for m in lab.read("logging/setLevel")] == [{"level": "info"}] * 2
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        await two.send({**cancel, "params": {"requestId": "long"}})
        await until(lambda: not is_alive(old))
        assert await pid_of(two) == new
        (supervisor,) = lab.assignment.supervisors
        assert (supervisor.status.state, supervisor.status.pid) == ("ready", new)


@pytest.mark.parametrize(("isolation", "size"), [("shared", 4), ("pool", 1), ("pool", 2)])
async def test_subscriptions_go_on_at_the_new_process(
    tmp_path: Path, isolation: str, size: int
) -> None:
    """The old one ends when the new one has taken them, and clients hear of each change once."""
    config = {"recycle": RecycleConfig(max_requests=3)}
    lab = Lab(tmp_path, isolation, versions=MODERN, size=size, config=config)
    async with lab.serving():
        listeners = [await lab.connect(MODERN) for _ in range(2)]
        for one in listeners:
            await one.send(request("s", "subscriptions/listen", notifications={}))
            assert (await one.recv())["method"] == "notifications/subscriptions/acknowledged"
        other = await lab.connect(MODERN)
        first = await pid_of(other)
        for old in (first, None):
            old = old or await pid_of(other)
            while await pid_of(other) == old:
                await asyncio.sleep(0.05)
            await until(lambda old=old: not is_alive(old))
        last = said(await other.ask(call("c", "change")))["pid"]
        for one in listeners:
            told = {m["method"]: m["params"] for m in [await one.recv() for _ in range(2)]}
            assert told.keys() == {"notifications/tools/list_changed", "notifications/tasks"}
            for params in told.values():
                assert params["_meta"]["io.modelcontextprotocol/subscriptionId"] == "s"
            assert told["notifications/tasks"]["taskId"].endswith(str(last))
            await one.silent()
        if size == 2:
            return
        await other.send(call("crash", "crash"))  # the end of the only process ends them
        for one in listeners:
            ended = await one.recv()
            assert (ended["id"], ended["error"]["code"]) == ("s", -31004)


@pytest.mark.parametrize(("version", "versions"), ERAS)
async def test_a_connection_that_is_lost_is_freed(
    tmp_path: Path, version: str, versions: str
) -> None:
    lab = Lab(tmp_path, "shared", versions=versions)
    async with lab.serving():
        one = await lab.connect(version)
        process = await pid_of(one)
        server = (lab.assignment.modern if versions else lab.assignment.legacy)[0]
        lost = weakref.ref(server.upstream)
        await one.close()
        await until(lambda: not lab.fronts)
        os.kill(process, signal.SIGKILL)
        await until(lambda: server.upstream not in (None, lost()))
        for _ in range(20):  # its channel closes meanwhile
            await asyncio.sleep(0.02)
            gc.collect()
        assert lost() is None


async def test_a_process_that_is_too_old_or_too_large(tmp_path: Path) -> None:
    large = RecycleConfig(max_memory=resident(os.getpid()) + (64 << 20))
    assert large.max_memory is not None and large.max_memory > 1 << 20
    for recycle, tool, arguments in (
        (RecycleConfig(max_age=0.5), "echo", {}),
        (large, "grow", {"bytes": large.max_memory}),
    ):
        lab = Lab(tmp_path, "shared", versions=MODERN, config={"recycle": recycle})
        async with lab.serving():
            one = await lab.connect(MODERN)
            old = await pid_of(one)
            await one.ask(call(1, tool, **arguments))
            while await pid_of(one) == old:
                await asyncio.sleep(0.05)
            await until(lambda old=old: not is_alive(old))


async def test_a_new_process_that_cannot_start(tmp_path: Path) -> None:
    """The old one goes on."""
    lab = Lab(tmp_path, "shared", config={"recycle": RecycleConfig(max_requests=1)})
    async with lab.serving():
        one = await lab.connect()
        (tmp_path / "backend.py").write_text("raise SystemExit(5)")
        old = await pid_of(one)
        await until(lambda: lab.assignment._replacing)
        await until(lambda: not lab.assignment._replacing)
        assert await pid_of(one) == old


# -- idleness --------------------------------------------------------------------------------------


async def test_an_idle_process_stops(tmp_path: Path) -> None:
    """The next request starts it."""
    lab = Lab(tmp_path, "shared", versions=MODERN, config={"idle_timeout": 0.3})
    async with lab.serving():
        one = await lab.connect(MODERN)
        first = await pid_of(one)
        await until(lambda: not is_alive(first))
        assert lab.assignment.supervisors == []
        second = await pid_of(one)
        assert second != first
        await one.send(request("s", "subscriptions/listen", notifications={}))
        await one.recv()
        await asyncio.sleep(1.5)
        assert is_alive(second)  # it has a subscription


async def test_a_process_with_clients_is_not_idle(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared", config={"idle_timeout": 0.3})
    async with lab.serving():
        one = await lab.connect()
        first = await pid_of(one)
        await asyncio.sleep(1.5)
        assert await pid_of(one) == first
        await one.close()
        await until(lambda: not is_alive(first))
        two = await lab.connect()
        assert await pid_of(two) != first


# -- stderr ----------------------------------------------------------------------------------------


async def test_stderr_has_the_name_of_its_server(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(tmp_path, "shared")
    script = tmp_path / "backend.py"
    script.write_text('import sys\nprint("I am here", file=sys.stderr)\n' + script.read_text())
    async with lab.serving():
        await lab.connect()
    assert "b: I am here\n" in capfd.readouterr().err


def test_stderr_is_bounded(capfd: pytest.CaptureFixture[str]) -> None:
    lines = NamedLines("b")
    for n in range(10 * MAX_LINES):
        lines(f"line {n}")
    assert lines.dropped >= 10 * MAX_LINES - 2 * MAX_LINES - 1  # a second may have ended
    lines._second = 0
    lines("the last")
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "b: line 0"
    assert said[-2].endswith("lines of stderr were dropped") and said[-1] == "b: the last"
    assert len(said) <= 2 * MAX_LINES + 3


def test_long_lines_of_stderr_are_bounded(capfd: pytest.CaptureFixture[str]) -> None:
    lines = NamedLines("b")
    for _ in range(100):
        lines("x" * 60_000)
    said = capfd.readouterr().err
    assert len(said) <= 2 * MAX_BYTES + 200  # a second may have ended
    assert lines.dropped >= 60


def test_stderr_does_not_speak_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    NamedLines("b")("\x1b]0;title\x07\x1b[2J\tred\x7f\x9b31m\r\u202eoh\u2028ä")
    shown = r"b: \x1b]0;title\x07\x1b[2J" + "\t" + r"red\x7f\x9b31m\x0d\u202eoh\u2028" + "ä\n"
    assert capfd.readouterr().err == shown


# -- the end of the proxy --------------------------------------------------------------------------


@pytest.mark.own_environment
@pytest.mark.parametrize("isolation", ["auto", "session", "shared", "pool"])
@pytest.mark.parametrize("versions", ["", MODERN])
async def test_servers_of_a_proxy_that_is_killed(
    tmp_path: Path, isolation: str, versions: str
) -> None:
    """The guard ends them, even one that hangs."""
    lab = Lab(tmp_path, isolation)  # for its script and its clients
    version = versions or "2025-11-25"
    proxy = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "wirespeed", "proxy", "--listen", f"unix:{lab.path}"),
        *("--isolation", isolation, "--", sys.executable),
        *(str(tmp_path / "backend.py"), str(lab.seen)),
        env={**surroundings(), "VERSIONS": versions},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        clients = [await first_client(lab, version), await lab.connect(version)]
        pids = {await pid_of(client) for client in clients}
        # legacy clients of a pool have the process with the fewest clients
        is_one = isolation == "shared" or (versions == MODERN and isolation != "session")
        assert len(pids) == (1 if is_one else 2)
        await clients[0].send(call(1, "hang"))
        await lab.until_read("tools/call", 3)
    finally:
        proxy.kill()
        await proxy.wait()
    await until(lambda: not any(map(is_alive, pids)))
    for client in clients:
        await client.close()


async def first_client(lab: Lab, version: str) -> Raw:
    while True:
        with contextlib.suppress(ConnectionError, FileNotFoundError):
            return await lab.connect(version)
        await asyncio.sleep(0.01)
