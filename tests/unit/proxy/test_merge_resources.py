"""Resources behind one endpoint: each goes to its owner; completions, log levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab.merge import MergeLab
from lab.proxy import call, delayed

from wirespeed import Client, Limits
from wirespeed.errors import RemoteError
from wirespeed.types import PromptRef


@pytest.fixture(params=["auto", "legacy"])
def era(request: pytest.FixtureRequest) -> Any:
    """Each era."""
    return request.param


async def read(client: Client, uri: str) -> Any:
    return (await client.read_resource(uri)).contents[0].text  # type: ignore[union-attr]


async def test_owners(tmp_path: Path, era: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A URI that two servers list is the first one's."""
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving(), Client(lab.url, era=era) as client:
        assert await read(client, "data://blue") == "own of blue"
        assert await read(client, "data://common") == "common of red"
        assert await read(client, "data://blue/x") == "x of blue"
        assert await read(client, "data://red/x") == "x of red"
        assert sorted(one.uri for one in await client.list_resources()) == [
            "data://blue", "data://common", "data://red",
        ]  # fmt: skip
        templates = [one.uri_template for one in await client.list_resource_templates()]
        assert templates == ["data://red/{key}", "data://blue/{key}"]
    assert "red and blue both have 'data://common' in resources: that of red is used" in caplog.text


async def test_a_resource_that_no_server_has(tmp_path: Path, era: Any) -> None:
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving(), Client(lab.url, era=era) as client:
        with pytest.raises(RemoteError) as caught:
            await read(client, "data://nothing")
        assert caught.value.code == (-32602 if era == "auto" else -32002)


async def test_completions(tmp_path: Path, era: Any) -> None:
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving(), Client(lab.url, era=era) as client:
        got = await client.complete(PromptRef("blue_greet"), "whom", "A")
        assert got.values == ["A of blue"]


async def test_log_levels(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path)
    lab.backends = [lab.inside("red"), lab.inside("blue", isolation="shared")]
    async with lab.serving():
        client = await lab.connect()
        ask = {"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel"}
        assert (await client.ask({**ask, "params": {"level": "warning"}}))["result"] == {}
        for name in ("red", "blue"):
            answer = await client.ask(call(2, f"{name}_say", level="info"))
            assert answer["id"] == 2
            await client.send(call(3, f"{name}_say", level="error"))
            said = [await client.recv() for _ in range(2)]
            (logged,) = [one["params"] for one in said if "method" in one]
            assert (logged["level"], logged["data"]) == ("error", f"{name} says")
        error = (await client.ask({**ask, "params": {"level": "loud"}}))["error"]
        assert error["code"] == -32602


async def test_subscriptions(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path)
    lab.backends = [lab.inside("red"), lab.inside("blue", isolation="shared")]
    async with lab.serving():
        client = await lab.connect()
        for name in ("red", "blue"):
            ask = {"jsonrpc": "2.0", "id": name, "params": {"uri": f"data://{name}"}}
            assert (await client.ask({**ask, "method": "resources/subscribe"}))["result"] == {}
            touch = {"name": f"{name}_touch", "arguments": {}}
            await client.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": touch})
            said = [await client.recv() for _ in range(2)]
            (updated,) = [one["params"] for one in said if "method" in one]
            assert updated["uri"] == f"data://{name}"
            assert (await client.ask({**ask, "method": "resources/unsubscribe"}))["result"] == {}


TWO = {
    "resources/list": {
        "result": {"resources": [{"name": x, "uri": f"data://{x}"} for x in ("a", "b")]}
    },
    "resources/templates/list": {"result": {"resourceTemplates": []}},
}


def ask(id: Any, method: str, uri: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": f"resources/{method}", "params": {"uri": uri}}


def cancel(id: Any) -> dict[str, Any]:
    params = {"requestId": id}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


async def test_a_read_of_what_nobody_lists_is_cancelled(tmp_path: Path) -> None:
    """The server is told, and the request does not count against `max_in_flight` any more."""
    lab = MergeLab(tmp_path, "red", limits=Limits(max_in_flight=2))
    lab.backends.insert(0, lab.scripted("s", {**TWO, "resources/read": None}))
    async with lab.serving():
        client = await lab.connect()
        for n in range(1, 5):
            await client.send(ask(n, "read", f"none://{n}"))
            (*_, read) = await lab.until_seen("resources/read", n)
            await client.send(cancel(n))
            (*_, cancelled) = await lab.until_seen("notifications/cancelled", n)
            assert cancelled["params"]["requestId"] == read["id"]
        for n in range(5, 9):  # at once: no server hears of it
            await client.send(ask(n, "read", f"none://{n}"), cancel(n))
        await client.silent()
        assert len(lab.seen("resources/read")) == 4


async def test_a_read_that_takes_too_long_is_cancelled(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path, "red")
    lab.backends.insert(0, lab.scripted("s", {**TWO, "resources/read": None}, start_timeout=4.0))
    async with lab.serving():
        client = await lab.connect()
        answer = await client.ask(ask(1, "read", "none://1"))
        assert "did not answer resources/read in time" in answer["error"]["message"]
        assert "result" in await client.ask(call(2, "s_x"))
        (read,) = lab.seen("resources/read")
        (cancelled,) = lab.seen("notifications/cancelled")
        assert cancelled["params"]["requestId"] == read["id"]


async def test_a_server_knows_after_a_loss_what_it_had_accepted(tmp_path: Path) -> None:
    refusal = {"error": {"code": -32002, "message": "Resource not found"}}
    answers = {
        **TWO,
        "resources/subscribe data://b": refusal,
        "resources/unsubscribe data://a": refusal,
        "tools/call leave": "exit",
    }
    lab = MergeLab(tmp_path, "red")
    lab.backends.append(delayed(lab.scripted("s", answers), retry=0.0))
    async with lab.serving():
        client = await lab.connect()
        for method, uri, code in (
            ("subscribe", "data://b", -32002),
            ("subscribe", "data://a", None),
            ("unsubscribe", "data://a", -32002),
        ):
            answer = await client.ask(ask(1, method, uri))
            assert answer.get("error", {}).get("code") == code
        await client.send(call(2, "s_leave"))
        while "id" not in await client.recv():  # its lists have changed, too
            pass
        await client.send(call(3, "s_stay"))
        while (await client.recv()).get("id") != 3:
            pass
        (*_, restored) = await lab.until_seen("resources/subscribe", 3)
        assert restored["params"]["uri"] == "data://a"
        assert len(lab.seen("resources/subscribe")) == 3
