"""One server for all clients: what each of them may see of it, and its restart."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import Lab, call, said
from lab.raw import modern
from lab.wording import raises

from wirespeed import Limits
from wirespeed.errors import WirespeedError
from wirespeed.proxy import FlowConfig, Proxy

# off_schema: the proxy passes on what its test servers say, which is not always in the schema.
pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


@pytest.mark.parametrize(
    ("asked", "agreed", "capabilities"),
    [
        ("2024-11-05", "2024-11-05", {"tools", "logging", "resources"}),
        ("2025-06-18", "2025-06-18", {"tools", "logging", "resources", "completions"}),
        ("2025-11-25", "2025-11-25", {"tools", "logging", "resources", "completions", "tasks"}),
        ("1999-01-01", "2025-11-25", {"tools", "logging", "resources", "completions", "tasks"}),
    ],
)
async def test_initialize_is_answered_for_each_client(
    tmp_path: Path, asked: str, agreed: str, capabilities: set[str]
) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one = await lab.connect(None)
        early = await one.ask(call(1, "echo"))
        assert early["error"]["code"] == -32602
        hello = (await one.initialize(asked))["result"]
        assert hello["protocolVersion"] == agreed
        assert set(hello["capabilities"]) == capabilities
        assert hello["serverInfo"] == {"name": "b", "version": "1"}
        again = await one.initialize(asked)
        assert again["error"]["code"] == -32600
        for method in ("tools/list", "ping", "initialize", "logging/setLevel"):
            assert (await one.ask(modern(2, method)))["error"] == {
                "code": -32022,
                "message": "the server speaks 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25",
                "data": {
                    "supported": ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"],
                    "requested": "2026-07-28",
                },
            }
    (hello,) = lab.read("initialize")
    assert hello["params"]["capabilities"] == {}
    assert len(lab.read("notifications/initialized")) == 1


async def test_a_log_line_is_for_the_only_client(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    line = {"level": "warning", "data": "secret of one"}
    async with lab.serving():
        one = await lab.connect()
        await one.send(call(1, "note", method="message", params=line))
        assert (await one.recv())["params"] == line
        assert (await one.recv())["id"] == 1
        two = await lab.connect()
        assert (await one.ask(call(1, "note", method="message", params=line)))["id"] == 1
        await two.send(call(5, "hold", 1, **{"as": "x"}))
        await two.recv()
        await two.close()
        await lab.until_read("notifications/cancelled", 1)
        # the server may still work for the client that left
        assert (await one.ask(call(1, "note", method="message", params=line)))["id"] == 1


async def test_the_log_level_is_the_most_verbose(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared", delays={"linger": 0.0})
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        assert (await one.ask(request(1, "logging/setLevel", level="error")))["result"] == {}
        assert (await two.ask(request(1, "logging/setLevel", level="debug")))["result"] == {}
        await lab.until_read("logging/setLevel", 2)
        assert (await one.ask(request(1, "logging/setLevel", level="alert")))["result"] == {}
        await two.close()
        levels = await lab.until_read("logging/setLevel", 3)
        assert [m["params"]["level"] for m in levels] == ["error", "debug", "alert"]
        for level in ("info", "emergency"):
            text = {"level": level, "data": level}
            await one.send(call(level, "note", method="message", params=text))
        assert (await one.recv())["id"] == "info"
        assert (await one.recv())["params"]["data"] == "emergency"
        assert (await one.recv())["id"] == "emergency"


async def test_subscriptions_are_counted(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one, two, three = await lab.connect(), await lab.connect(), await lab.connect()
        for client in (one, two):
            await client.ask(request(1, "resources/subscribe", uri="file:///a"))
        updated = {"uri": "file:///a/b"}
        await three.send(call(1, "note", method="resources/updated", params=updated))
        for client in (one, two):
            assert (await client.recv())["params"] == updated
        assert (await three.recv())["id"] == 1
        await three.ask(call(1, "note", method="resources/updated", params={"uri": "file:///ab"}))
        for client in (one, two, three):
            await client.silent()
        assert (await one.ask(request(2, "resources/unsubscribe", uri="file:///a")))["result"] == {}
        assert lab.read("resources/unsubscribe") == []
        await two.close()
        (ended,) = await lab.until_read("resources/unsubscribe", 1)
        assert ended["params"] == {"uri": "file:///a"}


async def test_a_subscription_that_the_server_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is none: it shows nothing, takes no place, and is not restored."""
    monkeypatch.setattr("wirespeed.proxy.isolation.legacy.MAX_SUBSCRIPTIONS", 1)
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        refused = await one.ask(request(1, "resources/subscribe", uri="none:"))
        assert refused["error"]["code"] == -32002
        assert "result" in await two.ask(request(1, "resources/subscribe", uri="none:/secret"))
        updated = {"uri": "none:/secret"}
        await one.ask(call(2, "note", method="resources/updated", params=updated))
        assert (await two.recv())["params"] == updated
        assert "result" in await one.ask(request(3, "resources/subscribe", uri="u:1"))
        await two.ask(call(2, "crash"))
        await two.ask(call(3, "echo"))
        await one.silent()
    uris = [m["params"]["uri"] for m in lab.read("resources/subscribe")]
    assert uris[:3] == ["none:", "none:/secret", "u:1"]
    assert sorted(uris[3:]) == ["none:/secret", "u:1"]


async def test_a_client_has_a_limited_number_of_subscriptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wirespeed.proxy.isolation.legacy.MAX_SUBSCRIPTIONS", 2)
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        # those that the server has not answered yet count as well
        await one.send(*(request(n, "resources/subscribe", uri=f"u:{n}") for n in (1, 2, 3)))
        answers = {answer["id"]: answer for answer in [await one.recv() for _ in range(3)]}
        assert answers[3]["error"]["code"] == -31000
        assert answers[1]["result"] == answers[2]["result"] == {}
        assert "result" in await one.ask(request(4, "resources/subscribe", uri="u:1"))
        assert "result" in await one.ask(request(5, "resources/unsubscribe", uri="u:2"))
        assert "result" in await one.ask(request(6, "resources/subscribe", uri="u:3"))
        for uri in ("u:1", "u:2", "u:3"):
            await two.ask(call(7, "note", method="resources/updated", params={"uri": uri}))
        assert [(await one.recv())["params"]["uri"] for _ in range(2)] == ["u:1", "u:3"]
        await one.silent()


async def test_a_client_ends_a_subscription_as_another_begins_it(tmp_path: Path) -> None:
    """The end has waited in a queue, so that it reaches the server last."""
    lab = Lab(tmp_path, "shared", config={"flow": FlowConfig(max_in_flight_per_client=1)})
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        assert "result" in await one.ask(request(1, "resources/subscribe", uri="u:1"))
        await one.send(call(2, "hold", 1, **{"as": "x"}))
        await one.recv()
        await one.send(request(3, "resources/unsubscribe", uri="u:1"))
        await one.silent()
        assert "result" in await two.ask(request(1, "resources/subscribe", uri="u:1"))
        await two.ask(call(2, "free", **{"as": "x"}))
        assert (await one.recv())["params"]["progress"] == 2
        assert [(await one.recv())["id"] for _ in range(2)] == [2, 3]
        assert said(await two.ask(call(3, "uris")))["uris"] == ["u:1"]


async def test_subscriptions_do_not_keep_a_server_from_coming_back(tmp_path: Path) -> None:
    """It is not waited for their answers."""
    lab = Lab(tmp_path, "shared", config={"start_timeout": 1.0})
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        assert "result" in await one.ask(request(1, "resources/subscribe", uri="once:"))
        await two.ask(call(1, "crash"))
        assert "result" in await two.ask(call(2, "echo"))
        assert lab.assignment.supervisors[0].status.restarts == 1
    assert len(lab.read("resources/subscribe")) == 2


async def test_lists_change_for_all(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one, two, raw = await lab.connect(), await lab.connect(), await lab.connect(None)
        await one.send(call(1, "note", method="tools/list_changed", params={}))
        for client in (one, two):
            assert (await client.recv())["method"] == "notifications/tools/list_changed"
        assert (await one.recv())["id"] == 1
        await raw.silent()


async def test_no_client_is_asked(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one = await lab.connect()
        got = said(await one.ask(call(1, "ask", its="q", method="sampling/createMessage")))["got"]
        assert got["id"] == "q"
        assert got["error"]["code"] == -32601
        got = said(await one.ask(call(1, "ask", its=9, method="ping")))["got"]
        assert got == {"jsonrpc": "2.0", "id": 9, "result": {}}


async def test_a_server_that_crashes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Requests fail once. The next server gets what the clients had told the last one."""
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        await one.ask(request(1, "logging/setLevel", level="info"))
        await two.ask(request(1, "resources/subscribe", uri="u:1"))
        pid = said(await one.ask(call(2, "echo")))["pid"]
        await two.send(call("waits", "hold", "t", **{"as": "x"}))
        await two.recv()
        await one.send(call(3, "crash"), call(4, "echo"))
        error = {"code": -31004, "message": "the server b ended before it answered"}
        assert await two.recv() == {"jsonrpc": "2.0", "id": "waits", "error": error}
        for id in (3, 4):
            assert await one.recv() == {"jsonrpc": "2.0", "id": id, "error": error}
        assert said(await one.ask(call(4, "echo")))["pid"] != pid
        assert [m["params"] for m in lab.read("logging/setLevel")] == [{"level": "info"}] * 2
        assert [m["params"] for m in lab.read("resources/subscribe")] == [{"uri": "u:1"}] * 2
    assert "b: it ended: command" in caplog.text
    assert "exited with status 3" in caplog.text


async def test_a_server_that_cannot_start(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared", "4")
    with raises(WirespeedError):
        async with lab.serving():
            pass


async def test_a_server_that_crashes_again_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one = await lab.connect()
        (tmp_path / "backend.py").write_text("raise SystemExit(5)")
        await one.ask(call(0, "crash"))
        answer = await one.ask(call(1, "echo"))  # waits until the proxy gives up for now
        assert answer["error"]["code"] == -31004
        assert answer["error"]["message"].startswith("the server b is down; ")
        assert "status 5" in caplog.text
        refused = await one.ask(call(2, "echo"))
        assert refused["error"] == answer["error"]


async def test_bad_output(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(tmp_path, "shared")
    bad = (
        "no JSON",
        '{"jsonrpc":"2.0","id":1048577,"result":{"secret":1}}',
        '{"jsonrpc":"2.0","id":"1","result":{}}',
        '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}',
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        '{"jsonrpc":"2.0","method":"notifications/unknown"}',
        "[]",
    )
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        for text in bad:
            assert (await one.ask(call(1, "raw", text=text)))["id"] == 1
            await one.silent()
            await two.silent()
    assert "b: bad message: " in caplog.text


async def test_a_server_that_does_not_read(tmp_path: Path) -> None:
    """Requests wait in their clients' sessions, the proxy's memory is bounded, nothing is lost."""
    lab = Lab(tmp_path, "shared", limits=Limits(output_high=1 << 16, output_low=1 << 14))
    text = "x" * 10_000
    async with lab.serving():
        clients = [await lab.connect() for _ in range(4)]

        async def many(client: Any) -> None:
            sending = asyncio.ensure_future(
                client.send(*(call(n, "echo", nonce=f"{n}{text}") for n in range(200)))
            )
            for n in range(200):
                assert said(await client.recv())["nonce"] == f"{n}{text}"
            await sending

        await asyncio.gather(*map(many, clients))


async def test_a_drain_lets_requests_end(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one = await lab.connect()
        await one.send(call(1, "hold", 1, **{"as": "x"}))
        await one.recv()
        for front in lab.fronts:
            front.drain()
        refused = await one.ask(call(2, "echo"))
        assert refused["error"]["code"] == -31001
        two = await lab.connect()
        await two.ask(call(1, "free", **{"as": "x"}))
        assert (await one.recv())["params"]["progress"] == 2
        assert said(await one.recv()) == {"said": "x"}
        assert await one.reader.read() == b""


async def test_several_listeners_share_one_server(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    other = tmp_path / "other"
    lab.proxy = Proxy(replace(lab.proxy.config, listen=(f"unix:{lab.path}", f"unix:{other}")))
    async with lab.serving():
        one = await lab.connect()
        lab.path = other
        two = await lab.connect()
        pids = [said(await client.ask(call(1, "echo")))["pid"] for client in (one, two)]
        assert pids[0] == pids[1]
    assert len(lab.read("initialize")) == 1
