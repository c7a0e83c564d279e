"""A shared server that may ask: its questions reach a client only where that is certain."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import websockets
from lab.front import WebSocket
from lab.principals import TOKENS, principal
from lab.proxy import Lab, call, delayed, said
from websockets.typing import Subprotocol

from wirespeed.proxy import Proxy

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


LINE = {"level": "warning", "data": "about another client"}


@pytest.mark.parametrize("isolation", ["shared", "pool"])
async def test_after_a_client_has_left(tmp_path: Path, isolation: str) -> None:
    """Its calls were answered, and the server may still work on what they have begun. For a minute
    nobody gets what the server says."""
    lab = Lab(tmp_path, isolation, config={"ask": True}, size=1)
    async with lab.serving():
        one = await lab.connect()
        assert (await one.ask(call(1, "echo")))["id"] == 1
        await one.close()
        two = await lab.connect()
        assert (await two.ask(call(2, "note", method="message", params=LINE)))["id"] == 2
        assert (await asked(two, 3))["error"]["message"].startswith("it is not certain")
        legacy = lab.assignment.legacy[0]
        assert legacy.dropped["not attributed"] == 2
        while len(lab.fronts) > 1:
            await asyncio.sleep(0.01)
        legacy.config = delayed(legacy.config, linger=0.0)
        await two.close()
        three = await lab.connect()
        while len(lab.fronts) > 1:
            await asyncio.sleep(0.01)
        await three.send(call(4, "note", method="message", params=LINE))
        assert (await three.recv())["params"] == LINE


async def test_what_nobody_gets_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one, _ = await lab.connect(), await lab.connect()
        for n in range(5):
            await one.ask(call(n, "note", method="message", params=LINE))
    found = [record.message for record in caplog.records if "nobody gets" in record.message]
    assert found == [
        "b: nobody gets its notifications/message: several clients share the server, and the "
        "message does not say whose it is"
    ]


async def test_a_client_of_another_principal_was_there(tmp_path: Path) -> None:
    """Until the server is started again, nobody gets what it says unasked."""
    lab = Lab(tmp_path, "shared", delays={"linger": 0.0})
    lab.proxy = Proxy(
        replace(
            lab.proxy.config,
            principals=(principal("anne"), principal("bob")),
            listen=("ws://127.0.0.1:0/mcp",),
        )
    )

    async def session(name: str) -> WebSocket:
        client = WebSocket(
            await websockets.connect(
                lab.urls[0],
                subprotocols=[Subprotocol("mcp")],
                additional_headers={"authorization": f"Bearer {TOKENS[name]}"},
            ),
            "2025-11-25",
        )
        lab.clients.append(client)
        await client.initialize()
        return client

    async def alone(client: WebSocket) -> bool:
        while len(lab.fronts) > 1:
            await asyncio.sleep(0.01)
        await client.send(call("said", "note", method="message", params=LINE))
        got = await client.recv()
        return "method" in got and (await client.recv())["id"] == "said"

    async with lab.serving():
        anne = await session("anne")
        assert await alone(anne)
        await anne.close()
        anne = await session("anne")
        assert await alone(anne)
        await anne.close()
        bob = await session("bob")
        assert not await alone(bob)
        await bob.ask(call(1, "crash"))
        assert (await bob.ask(call(2, "echo")))["id"] == 2
        assert await alone(bob)


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
