"""What the proxy makes of a server that is silent to ``server/discover``, of answers whose id has
another type, and of members that are null."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import MODERN, Lab, call, said

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]


@pytest.mark.parametrize("isolation", ["auto", "shared", "session"])
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_server_that_is_silent_to_the_probe(
    tmp_path: Path, isolation: str, version: str
) -> None:
    """It is sent ``initialize`` as well: nobody waits for half of `start_timeout`."""
    lab = Lab(tmp_path, isolation, versions="silent", config={"start_timeout": 600.0})
    async with asyncio.timeout(60), lab.serving():
        one = await lab.connect(version)
        assert said(await one.ask(call(1, "x", nonce="n")))["nonce"] == "n"
    hellos = [one["params"] for one in lab.read("initialize")]
    assert 1 <= len(hellos) <= 2
    assert len(lab.read("notifications/initialized")) >= 1


@pytest.mark.parametrize("isolation", ["shared", "session"])
async def test_an_answer_whose_id_has_another_type(tmp_path: Path, isolation: str) -> None:
    lab = Lab(tmp_path, isolation)
    async with lab.serving():
        one = await lab.connect()
        # the server writes the number of the id in the place of "$id"
        text = '{"jsonrpc":"2.0","id":"$id".0,"result":{"content":[],"_meta":{"n":7}}}'
        got = await one.ask(call("mine", "fail", text=text))
        assert got["id"] == "mine"
        assert said(got) == {"n": 7}
        assert said(await one.ask(call(5, "x", nonce="n")))["nonce"] == "n"


@pytest.mark.parametrize("isolation", ["shared", "session"])
@pytest.mark.parametrize("nothing", [None, []])
async def test_params_and_arguments_that_are_null(
    tmp_path: Path, isolation: str, nothing: Any
) -> None:
    """Servers get an object: not each of them takes null."""
    lab = Lab(tmp_path, isolation)
    async with lab.serving():
        one = await lab.connect()
        text = json.dumps(nothing)
        got = await one.ask(f'{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{text}}}')
        assert "result" in got
        params = {"name": "x", "arguments": nothing, "_meta": {"progressToken": "t"}}
        await one.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})
        assert (await one.recv())["params"]["progressToken"] == "t"
        assert (await one.recv())["id"] == 2
    assert lab.read("tools/list")[-1]["params"] == {}
    assert lab.read("tools/call")[-1]["params"]["arguments"] == {}


async def test_null_params_of_a_translated_client(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared", versions=MODERN)
    async with lab.serving():
        one = await lab.connect()
        got = await one.ask('{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}')
        assert "result" in got
        got = await one.ask(
            '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","arguments":null}}'
        )
        assert "result" in got
    for method in ("tools/list", "tools/call"):
        meta = lab.read(method)[-1]["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == MODERN
    assert lab.read("tools/call")[-1]["params"]["arguments"] == {}
