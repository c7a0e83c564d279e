"""A shared server that may ask: its questions reach a client only where that is certain."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from proxy_lab import Lab, call, said

pytestmark = pytest.mark.off_schema

SAMPLING = "sampling/createMessage"


async def asked(client: Any, its: Any, method: str = SAMPLING) -> Any:
    """What the server got, where the client was not asked."""
    return said(await client.ask(call(1, "ask", its=its, method=method)))["got"]


@pytest.mark.parametrize("isolation", ["shared", "pool"])
async def test_a_client_that_is_alone_is_asked(tmp_path: Path, isolation: str) -> None:
    lab = Lab(tmp_path, isolation, config={"ask": True})
    async with lab.serving():
        one = await lab.connect()
        (hello,) = lab.read("initialize")
        assert set(hello["params"]["capabilities"]) == {"sampling", "elicitation", "roots"}
        await one.send(call(1, "ask", its="q", method=SAMPLING))
        question = await one.recv()
        assert question["method"] == SAMPLING
        # it has said that it can be asked for samples, and for nothing else
        await one.send({"jsonrpc": "2.0", "id": question["id"], "result": {"role": "user"}})
        got = said(await one.recv())["got"]
        assert got == {"jsonrpc": "2.0", "id": "q", "result": {"role": "user"}}
        assert (await asked(one, "r", "roots/list"))["error"] == {
            "code": -32601,
            "message": "the client does not support roots",
        }
        (legacy, *_) = lab.assignment.legacy
        assert legacy.dropped["not supported"] == 1


async def test_nobody_is_asked_where_it_is_not_certain(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared", config={"ask": True})
    refused = {"code": -32601, "message": "it is not certain which client this question is about"}
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        assert (await asked(one, 1))["error"] == refused
        await two.silent()
        # one that left had a request, which the server may still work on
        await two.send(call("left", "hold", 1, **{"as": "x"}))
        await two.recv()
        await two.close()
        await lab.until_read("notifications/cancelled", 1)
        assert (await asked(one, 2))["error"] == refused
        assert lab.assignment.legacy[0].dropped["not attributed"] == 2


@pytest.mark.parametrize("config", [{}, {"request_timeout": 0.3}])
async def test_a_client_gives_a_request_up_and_then_leaves(tmp_path: Path, config: Any) -> None:
    """The server may still work on it: what it asks and says is not for the client that stays."""
    lab = Lab(tmp_path, "shared", config={"ask": True, **config})
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        await two.send(call("given up", "hold", 1, **{"as": "x"}))
        await two.recv()
        if config:
            assert (await two.recv())["error"]["code"] == -31005
        else:
            gone = {"requestId": "given up"}
            method = "notifications/cancelled"
            await two.send({"jsonrpc": "2.0", "method": method, "params": gone})
        await lab.until_read("notifications/cancelled", 1)
        await two.close()
        while len(lab.fronts) > 1:
            await asyncio.sleep(0.01)
        assert (await asked(one, 1))["error"]["message"].startswith("it is not certain")
        line = {"level": "warning", "data": "secret of two"}
        assert (await one.ask(call(2, "note", method="message", params=line)))["id"] == 2
        assert lab.assignment.legacy[0].dropped["not attributed"] == 2


async def test_without_ask_it_is_not_told_that_it_may(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one = await lab.connect()
        assert lab.read("initialize")[0]["params"]["capabilities"] == {}
        assert (await asked(one, 1))["error"]["message"] == (
            "several clients share this server, so none of them can be asked"
        )


async def test_roots_that_changed(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared", config={"ask": True})
    async with lab.serving():
        one = await lab.connect()
        method = "notifications/roots/list_changed"
        await one.send({"jsonrpc": "2.0", "method": method})
        await lab.until_read(method, 1)
        two = await lab.connect()
        await two.send({"jsonrpc": "2.0", "method": method})
        await two.silent()
        await one.ask(call(1, "echo"))
        assert len(lab.read(method)) == 1
