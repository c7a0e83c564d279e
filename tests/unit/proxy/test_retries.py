"""What is sent again when a server that clients share ends before it has answered."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import MODERN, Lab, call, said

from wirespeed import Client
from wirespeed.proxy import Proxy, RetryConfig

pytestmark = pytest.mark.off_schema

LOST = -31004
ERAS = [("2025-11-25", ""), (MODERN, MODERN)]
READS = (
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/get",
    "completion/complete",
)


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


@pytest.mark.parametrize("isolation", ["shared", "pool"])
@pytest.mark.parametrize(("version", "versions"), ERAS)
async def test_lists_and_reads(tmp_path: Path, version: str, versions: str, isolation: str) -> None:
    """Each has one answer, of the next process, under another id there."""
    lab = Lab(tmp_path, isolation, versions=versions)
    async with lab.serving():
        one = await lab.connect(version)
        for method in READS:
            answer = await one.ask(request(7, method, _meta={"once": method.replace("/", ".")}))
            assert answer["id"] == 7 and "result" in answer, answer
            first, second = lab.read(method)
            assert first["params"] == second["params"]
        await one.silent()


async def test_a_read_is_sent_again_once(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    script = tmp_path / "backend.py"
    script.write_text(script.read_text().replace("and once(p", "and (p"))
    async with lab.serving():
        one = await lab.connect()
        answer = await one.ask(request(1, "resources/read", _meta={"once": "x"}))
        assert answer["error"] == {
            "code": LOST,
            "message": "the server b ended before it answered",
        }
        assert len(lab.read("resources/read")) == 2


@pytest.mark.parametrize(("version", "versions"), ERAS)
async def test_calls_of_tools_only_where_the_operator_says(
    tmp_path: Path, version: str, versions: str
) -> None:
    lab = Lab(tmp_path, "shared", versions=versions, config={"retry": RetryConfig(tools=("on*",))})
    async with lab.serving():
        one = await lab.connect(version)
        assert said(await one.ask(call(1, "once", nonce="x", **{"as": "a"})))["nonce"] == "x"
        assert (await one.ask(call(2, "crash")))["error"]["code"] == LOST
        assert len([m for m in lab.read("tools/call") if m["params"]["name"] == "crash"]) == 1
    lab = Lab(tmp_path, "shared", versions=versions)
    async with lab.serving():
        one = await lab.connect(version)
        answer = await one.ask(call(1, "once", **{"as": "b"}))
        assert answer["error"]["code"] == LOST


@pytest.mark.parametrize(("version", "versions"), ERAS)
async def test_annotations_where_they_are_trusted(
    tmp_path: Path, version: str, versions: str
) -> None:
    tools = [
        {"name": "once", "inputSchema": {}, "annotations": {"readOnlyHint": True}},
        {"name": "crash", "inputSchema": {}, "annotations": {"readOnlyHint": False}},
    ]
    lab = Lab(
        tmp_path,
        "shared",
        versions=versions,
        env={"TOOLS": json.dumps(tools)},
        config={"retry": RetryConfig(trust_annotations=True)},
    )
    async with lab.serving():
        one = await lab.connect(version)
        assert len(lab.read("tools/list")) == 1
        assert said(await one.ask(call(1, "once", nonce="x", **{"as": "a"})))["nonce"] == "x"
        assert (await one.ask(call(2, "crash")))["error"]["code"] == LOST


async def test_progress_does_not_begin_anew(tmp_path: Path) -> None:
    """A request whose progress was shown is not sent again."""
    lab = Lab(tmp_path, "shared", config={"retry": RetryConfig(tools=("*",))})
    async with lab.serving():
        one = await lab.connect()
        await one.send(call(1, "once", "t", **{"as": "a"}))
        assert (await one.recv())["params"] == {
            "progressToken": "t",
            "progress": 1,
            "message": "first",
        }
        assert (await one.recv())["error"]["code"] == LOST


async def test_what_nobody_waits_for_is_not_sent_again(tmp_path: Path) -> None:
    """A request that was cancelled, and one whose client has left, while no process runs."""
    lab = Lab(tmp_path, "shared", config={"retry": RetryConfig(tools=("*",))})
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        await one.send(call(1, "hold", 1, **{"as": "x"}))
        await one.recv()
        script = tmp_path / "backend.py"
        text = script.read_text()
        script.write_text("import time\ntime.sleep(0.5)\n" + text)
        await two.send(call(2, "once", **{"as": "a"}))
        assert (await one.recv())["error"]["code"] == LOST  # progress was shown
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        await two.send({**cancel, "params": {"requestId": 2}})
        await two.silent()
        assert len([m for m in lab.read("tools/call") if m["params"]["name"] == "once"]) == 1


async def test_a_cursor_is_for_one_process(tmp_path: Path) -> None:
    """A request with what a process of a pool gave is not sent to another."""
    lab = Lab(tmp_path, "pool", versions=MODERN)
    async with lab.serving():
        one = await lab.connect(MODERN)
        page = (await one.ask(request(1, "tools/list")))["result"]
        answer = await one.ask(
            request(2, "tools/list", cursor=page["nextCursor"], _meta={"once": "x"})
        )
        assert answer["error"]["code"] == LOST


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_over_http(tmp_path: Path, era: Any) -> None:
    """What came as a body is kept as well, and a client that leaves meanwhile loses only itself."""
    versions = MODERN if era == "modern" else ""
    lab = Lab(tmp_path, "shared", versions=versions, config={"retry": RetryConfig(tools=("on*",))})
    lab.proxy = Proxy(replace(lab.proxy.config, listen=("http://127.0.0.1:0/mcp",)))
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        lab.proxy.serve(on_listening=lambda urls: listening.set_result(urls[0]))
    )
    try:
        async with Client(await listening, era=era) as one, Client(listening.result()) as two:
            for n in range(3):
                calls = [
                    asyncio.ensure_future(
                        client.call_tool("once", {"as": f"{n}", "nonce": f"{n}/{k}"})
                    )
                    for k, client in enumerate((one, two, one))
                ]
                calls.append(asyncio.ensure_future(two.call_tool("once", {"as": f"{n}"})))
                await asyncio.sleep(0.01)
                calls.pop().cancel()
                answers = await asyncio.gather(*calls)
                assert [(answer.meta or {})["nonce"] for answer in answers] == [
                    f"{n}/{k}" for k in range(3)
                ]
    finally:
        serving.cancel()
        await asyncio.wait((serving,))
