"""The audit log: a line for each call of a tool, whatever becomes of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
from lab.audit import lines, until
from lab.principals import Requests, modern, serving
from lab.proxy import MODERN, Lab, Raw, call
from lab.translation import EraLab, tool
from lab.wording import raises

from wirespeed.errors import TransportError
from wirespeed.protocol.codes import CUT_OFF, INVALID_PARAMS, SERVER_LOST, SHUTTING_DOWN
from wirespeed.proxy import AuditConfig, FlowConfig, RetryConfig
from wirespeed.proxy.access import audit
from wirespeed.proxy.access.audit import AuditLog

pytestmark = pytest.mark.off_schema


def lab(folder: Path, isolation: str = "shared", **more: Any) -> Lab:
    return Lab(folder, isolation, audit=str(folder / "audit"), **more)


async def holds(client: Raw, id: Any) -> None:
    await client.send(call(id, "hold", token="t", **{"as": "x"}))
    await client.recv()  # its progress


@pytest.mark.parametrize("isolation", ["session", "shared"])
async def test_each_outcome(tmp_path: Path, isolation: str) -> None:
    path = tmp_path / "audit"
    one = lab(tmp_path, isolation)
    async with one.serving():
        client = await one.connect()
        await client.ask(call(1, "echo", nonce="secret argument"))
        text = '{"jsonrpc":"2.0","id":$id,"error":{"code":-32055,"message":"no"}}'
        await client.ask(call(2, "fail", text=text.replace("$id", '"$id"')))
        await holds(client, 3)
        await client.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}
        )
        await until(path, 3)
        other = await one.connect()
        await holds(other, 4)
        await other.close()  # a client that leaves cancels what it had asked
        await until(path, 4)
        await client.ask(call(5, "crash"))
        found = await until(path, 5)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one["outcome"] for one in found] == ["ok", "error", "cancelled", "cancelled", "lost"]
    assert [one.get("code") for one in found] == [None, -32055, None, None, SERVER_LOST]
    assert [one["tool"] for one in found] == ["echo", "fail", "hold", "hold", "crash"]
    assert {one["server"] for one in found} == {"b"}
    assert {line["proxy"] for line in found} == {one.proxy.name}
    assert all(one["ms"] >= 0 and one["bytes_in"] > 0 for one in found)
    assert found[0]["bytes_out"] > 0
    assert len({one["id"] for one in found}) == 5
    assert "secret argument" not in path.read_text()


@pytest.mark.parametrize("flow", [FlowConfig(), FlowConfig(max_in_flight=1)])
@pytest.mark.parametrize(("isolation", "versions"), [("shared", ""), ("pool", MODERN)])
async def test_a_call_that_is_sent_again_has_one_line(
    tmp_path: Path, isolation: str, versions: str, flow: FlowConfig
) -> None:
    path = tmp_path / "audit"
    retry = RetryConfig(tools=("*",))
    one = lab(tmp_path, isolation, versions=versions, size=2, config={"retry": retry, "flow": flow})
    async with one.serving():
        client = await one.connect(versions or "2025-11-25")
        await client.ask(call(1, "once", **{"as": "a"}))
        await client.ask(call(2, "crash"))
        await client.ask(call(3, "echo"))
        found = await until(path, 3)
    assert [(one["tool"], one["outcome"], one.get("attempts")) for one in found] == [
        ("once", "ok", 2),
        ("crash", "lost", 2),
        ("echo", "ok", None),
    ]
    assert found[0]["bytes_out"] > 0
    assert len(one.read("tools/call")) == 5


@pytest.mark.parametrize("outcome", ["cancelled", "lost"])
async def test_a_call_that_is_not_sent_again_in_the_end_has_one_line(
    tmp_path: Path, outcome: str
) -> None:
    path = tmp_path / "audit"
    one = lab(tmp_path, config={"retry": RetryConfig(tools=("*",))})
    async with one.serving():
        client = await one.connect()
        script = tmp_path / "backend.py"
        first = "raise SystemExit(4)" if outcome == "lost" else "import time; time.sleep(0.5)"
        script.write_text(f"{first}\n{script.read_text()}")
        await client.send(call(1, "once", **{"as": "a"}))
        if outcome == "lost":
            assert (await client.recv())["error"]["code"] == SERVER_LOST
        else:
            while one.assignment.legacy[0].upstream is not None:
                await asyncio.sleep(0.01)
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
            await client.send({**cancel, "params": {"requestId": 1}})
        await until(path, 1)
        if outcome == "cancelled":
            await client.ask(call(2, "echo"))
            await until(path, 2)
    found = [line["outcome"] for line in lines(path)]
    assert found == ([outcome, "ok"] if outcome == "cancelled" else [outcome])


async def test_a_call_that_waits_again_for_a_server_has_one_line(tmp_path: Path) -> None:
    """Its server was lost, and the next one, too, while the call waited at the limit."""
    path = tmp_path / "audit"
    config = {"retry": RetryConfig(tools=("*",)), "flow": FlowConfig(max_in_flight=1)}
    one = lab(tmp_path, "pool", versions=MODERN, size=2, config=config)
    async with one.serving():
        first, second = await one.connect(MODERN), await one.connect(MODERN)
        flow = one.proxy.services["b"].flow
        assert flow is not None
        await first.send(call(1, "hold", **{"as": "x"}))
        while not one.read("tools/call"):
            await asyncio.sleep(0.01)
        await second.send(call(2, "hold", **{"as": "y"}))  # starts the second server
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        await second.send({**cancel, "params": {"requestId": 2}})
        while any(modern.upstream is None for modern in one.assignment.modern):
            await asyncio.sleep(0.01)
        await second.send(call(3, "hold", **{"as": "z"}))
        while flow.n_queued != 1:
            await asyncio.sleep(0.01)
        script = tmp_path / "backend.py"
        script.write_text(f"raise SystemExit(4)\n{script.read_text()}")
        for modern in one.assignment.modern:
            pid = next(
                supervisor.status.pid
                for supervisor in one.assignment.supervisors
                if supervisor.owner is modern
            )
            os.kill(pid, signal.SIGKILL)
            if modern.tag == 0:  # the second one gets the call that has waited
                while len(one.read("tools/call")) != 2:
                    await asyncio.sleep(0.01)
                assert (flow.n_in_flight, flow.n_queued) == (1, 1)
        for client in (first, second):
            assert (await client.recv())["error"]["code"] == SERVER_LOST
        found = await outcomes(path, 2)
    assert sorted(found, key=str) == [("lost", None), ("lost", None)]


@pytest.mark.parametrize("where", ["queue", "server", "sent again"])
async def test_what_a_call_is_told_that_is_cut_off_while_it_waits(
    tmp_path: Path, where: str
) -> None:
    """No server has seen it: its client may repeat it. One that a server has seen, which is lost,
    may have taken effect."""
    path = tmp_path / "audit"
    config = {"flow": FlowConfig(max_in_flight=1), "retry": RetryConfig(tools=("once",))}
    versions = "" if where == "queue" else MODERN
    one = lab(tmp_path, versions=versions, config=config, shutdown_grace=0.1)
    async with one.serving():
        client = await one.connect(versions or "2025-11-25")
        if where == "queue":
            await holds(client, 1)
        else:
            script = tmp_path / "backend.py"
            script.write_text(f"import time; time.sleep(5)\n{script.read_text()}")
            if where == "server":
                await client.ask(call(1, "crash"))
        await client.send(call(2, "once", **{"as": "a"}))
        n_answers = 1 + (where == "queue")
        (front,) = one.fronts
        while front.session.inflight.live != n_answers or (
            where != "queue" and one.assignment.modern[0].upstream is not None
        ):
            await asyncio.sleep(0.01)
        front.drain()
        told = [await client.recv() for _ in range(n_answers)]
        n_others = where != "sent again"  # the call that holds, or the one before the crash
        found = await until(path, 1 + n_others)
    answers = {answer["id"]: answer["error"]["code"] for answer in told}
    expected = {"queue": SHUTTING_DOWN, "server": SHUTTING_DOWN, "sent again": CUT_OFF}[where]
    assert answers == ({1: CUT_OFF, 2: expected} if where == "queue" else {2: expected})
    outcome = "error" if expected == CUT_OFF else "refused"
    assert ("once", outcome, expected) in [
        (line["tool"], line["outcome"], line["code"]) for line in found
    ]
    assert len(found) == 1 + n_others


async def outcomes(path: Path, n: int) -> list[Any]:
    """The outcomes of calls and the attempts for them, as soon as there are n lines."""
    return [(line["outcome"], line.get("attempts")) for line in await until(path, n)]


@pytest.mark.parametrize("flow", [FlowConfig(), FlowConfig(max_in_flight=1)])
async def test_a_call_with_a_round_has_one_line(tmp_path: Path, flow: FlowConfig) -> None:
    """The client is asked by the proxy before its call is sent again."""
    path = tmp_path / "audit"
    options: dict[str, Any] = {"config": {"flow": flow}, "shutdown_grace": 0.1}
    one = EraLab(tmp_path, "shared", modern=True, audit=str(path), **options)
    async with one.serving():
        client, _ = await one.legacy(roots={})
        for i, said in enumerate(
            ({"result": {"roots": []}}, {"error": {"code": -1, "message": "no"}})
        ):
            await client.send(tool(i, "ask", method="roots/list"))
            question = await client.recv()
            await client.send({"jsonrpc": "2.0", "id": question["id"], **said})
            assert (await client.recv())["id"] == i
        await client.send(tool(2, "ask", method="roots/list"))
        await client.recv()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        await client.send({**cancel, "params": {"requestId": 2}})
        await until(path, 3)
        other, _ = await one.legacy(roots={})
        await other.send(tool(3, "ask", method="roots/list"))
        await other.recv()
        await other.close()
        await until(path, 4)
        await client.send(tool(5, "echo"))
        found = await outcomes(path, 5)
    assert [outcome for outcome, _ in found] == ["ok", "error", "cancelled", "cancelled", "ok"]
    assert not any(attempts for _, attempts in found)


async def test_principals_and_refusals(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    async with serving(tmp_path, "http", audit=str(path)) as url, Requests(url) as requests:
        for tool, name, given in (
            ("a_who", "anne", "from-a-proxy.1"),
            ("b_who", "anne", 'bad"id'),
            ("b_none", "root", "x" * 200),
            ("a\n{}", "bob", None),
        ):
            body, *fields = modern("tools/call", name=tool, arguments={})
            if "\n" in tool:
                fields[-1] = "Mcp-Name: =?base64?YQp7fQ==?="
            if given is not None:
                fields.append(f"X-Request-Id: {given}")
            status, _, _ = await requests.post(body, name, *fields)
            assert status in (200, 400)
        found = await until(path, 4)
    assert [(one["principal"], one["tool"], one["outcome"]) for one in found] == [
        ("anne", "a_who", "ok"),
        ("anne", "b_who", "refused"),
        ("root", "b_none", "error"),
        ("bob", "a\n{}", "refused"),
    ]
    assert [one.get("request_id") for one in found] == ["from-a-proxy.1", None, None, None]
    assert [one.get("code") for one in found[1:]] == [INVALID_PARAMS] * 3
    assert [one.get("server") for one in found] == ["a", "b", "b", None]
    assert all(one["peer"].startswith("127.0.0.1") for one in found)
    assert len(path.read_text().splitlines()) == 4


async def test_a_new_file_after_a_rotation(tmp_path: Path) -> None:
    one = lab(tmp_path)
    path = tmp_path / "audit"
    async with one.serving():
        client = await one.connect()
        await client.ask(call(1, "echo"))
        await until(path, 1)
        path.rename(tmp_path / "old")
        await client.ask(call(2, "echo"))
        await until(tmp_path / "old", 2)
        one.proxy.reopen_logs()
        await client.ask(call(3, "echo"))
        await until(path, 1)
    assert len(lines(tmp_path / "old")) == 2


async def test_a_new_file_that_cannot_be_opened_at_first(tmp_path: Path) -> None:
    one = lab(tmp_path)
    path = tmp_path / "audit"
    async with one.serving():
        client = await one.connect()
        await client.ask(call(1, "echo"))
        await until(path, 1)
        path.rename(tmp_path / "old")
        path.mkdir()
        one.proxy.reopen_logs()
        await client.ask(call(2, "echo"))
        await until(tmp_path / "old", 2)  # nothing is lost meanwhile
        path.rmdir()
        await client.ask(call(3, "echo"))
        await until(path, 1)
    assert len(lines(tmp_path / "old")) == 2


async def test_a_line_that_cannot_be_made(tmp_path: Path) -> None:
    one = lab(tmp_path)
    async with one.serving():
        client = await one.connect()
        audit = one.proxy._audit
        assert audit is not None
        audit.add(lambda: [][0])
        await client.ask(call(1, "echo"))
        found = await until(tmp_path / "audit", 2)
    assert {one.get("dropped", one.get("tool")) for one in found} == {"echo", 1}


async def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    one = lab(tmp_path)
    (tmp_path / "audit").mkdir()
    with raises(TransportError):
        async with one.serving():
            pass


async def test_a_pipe_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    one = lab(tmp_path)
    os.mkfifo(tmp_path / "audit")
    with raises(TransportError):
        async with one.serving():
            pass


async def test_a_pipe_that_is_read(tmp_path: Path) -> None:
    one = lab(tmp_path)
    os.mkfifo(tmp_path / "audit")
    reader = os.open(tmp_path / "audit", os.O_RDONLY | os.O_NONBLOCK)
    async with one.serving():
        client = await one.connect()
        await client.ask(call(1, "echo"))
    assert json.loads(os.read(reader, 65536))["tool"] == "echo"
    os.close(reader)


async def test_a_rotation_to_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    one = lab(tmp_path)
    path = tmp_path / "audit"
    async with one.serving():
        client = await one.connect()
        await client.ask(call(1, "echo"))
        await until(path, 1)
        path.rename(tmp_path / "old")
        os.mkfifo(path)
        one.proxy.reopen_logs()
        await client.ask(call(2, "echo"))
        await until(tmp_path / "old", 2)
    assert len(lines(tmp_path / "old")) == 2


async def test_calls_do_not_wait_for_a_log_that_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines above the limit are left out and counted; the log says how many."""
    monkeypatch.setattr(audit, "MAX_WAITING", 100)
    path = tmp_path / "audit"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    one = lab(tmp_path)
    async with one.serving():
        client = await one.connect()
        for i in range(600):  # a pipe has room for 64 KiB
            await client.ask(call(i, "echo"))
        log = one.proxy._audit
        assert log is not None
        assert log.dropped > 0
        text = b""
        while b"dropped" not in text:
            await asyncio.sleep(0.01)
            try:
                text += os.read(reader, 1 << 20)
            except BlockingIOError:
                await client.ask(call("more", "echo"))
        dropped = log.dropped
    while True:
        try:
            more = os.read(reader, 1 << 20)
        except BlockingIOError:  # pragma: no cover
            more = b""
        text += more
        if not more:
            break
    os.close(reader)
    found = [json.loads(line) for line in text.splitlines()]
    assert sum(line.get("dropped", 0) for line in found) == dropped


def test_it_is_open_as_long_as_somebody_needs_it(tmp_path: Path) -> None:
    log = AuditLog(AuditConfig(to=str(tmp_path / "audit")), "east")
    log.hold()
    log.hold()
    log.release()
    log.add(lambda: "{}")
    log.release()
    assert (tmp_path / "audit").read_text() == "{}\n"
