"""A page in a real browser calls a tool over WebSocket, and the Origin rule holds for it. A page
that sends HTTP to a tcp:// server runs nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import browser
import peers
import pytest
from visits import FOREIGN, Seen, Visit, made

from wirespeed import Client, Server
from wirespeed.litemcp import LiteClient, LiteServer
from wirespeed.transport.loop import loop_factory

PROGRAM = browser.find()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no chromium: install one, or name it in WIRESPEED_CHROMIUM"
)
PAGE = (peers.PROGRAMS / "ws_page.html").read_bytes()
# Posts ?body=… to ?url=… as any page may without asking the server.
POSTING_PAGE = b"""<!doctype html><meta charset="utf-8" /><pre id="report"></pre><script>
const asked = new URL(location).searchParams;
globalThis.finished = fetch(asked.get("url"),
    {method: "POST", mode: "no-cors", body: asked.get("body")})
  .then(() => "answered", () => "failed")
  .then((text) => { document.getElementById("report").textContent = text; });
</script>"""
VISITS: dict[str, Visit] = {
    "own": ("127.0.0.1", (), True),
    "own-by-name": ("localhost", (), True),
    "compressed": ("127.0.0.1", ("--compression",), True),
    "foreign": (FOREIGN, (), False),
    "foreign-listed": (FOREIGN, ("--origin", f"http://{FOREIGN}:*"), True),
    "own-not-listed": ("127.0.0.1", ("--origin", f"http://{FOREIGN}:*"), False),
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of the web server with the pages."""
    with browser.pages({"/page": PAGE, "/post": POSTING_PAGE}) as found:
        yield found


@pytest.fixture(scope="module")
def visits(port: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    assert PROGRAM is not None
    return made(PROGRAM, VISITS, port, tmp_path_factory.mktemp("browser"), "ws")


@pytest.mark.parametrize("name", [name for name, visit in VISITS.items() if visit[2]])
def test_page_calls_a_tool(visits: Any, port: int, name: str) -> None:
    host, options, _ = VISITS[name]
    shown, life = visits[name]
    legacy, modern = shown["legacy"], shown["modern"]
    assert legacy.pop("extensions").startswith("permessage-deflate") == ("--compression" in options)
    assert legacy == {
        "protocol": "mcp",
        "version": "2025-11-25",
        "server": "interop",
        "add": {"result": 5},
        "unicode": True,
        "big": True,
        "many": 100,
        "fail": True,
        "unknown": -32602,
        "closed": [1000, True],
    }
    assert modern["versions"][0] == "2026-07-28"
    assert modern["add"] == {"result": 5}
    assert modern["closed"] == [1000, True]
    assert life.exit == 0
    for side, lines in life.heads:
        if side == ">":
            assert f"Origin: http://{host}:{port}" in lines
        else:
            assert lines[0].startswith("HTTP/1.1 101 ")


@pytest.mark.parametrize("name", [name for name, visit in VISITS.items() if not visit[2]])
def test_page_of_another_origin_is_refused(visits: Any, port: int, name: str) -> None:
    shown, life = visits[name]
    assert shown == {step: {"failed": "Error: closed 1006"} for step in ("legacy", "modern")}
    assert [side for side, _ in life.heads] == [">", "<"] * 2
    for side, lines in life.heads:
        if side == ">":
            assert f"Origin: http://{VISITS[name][0]}:{port}" in lines
        else:
            assert lines[0].startswith("HTTP/1.1 403 ")
    assert life.wire == []
    assert life.exit == 0


@pytest.mark.parametrize("kind", ["mcp", "lite"])
def test_page_cannot_call_a_tool_over_tcp(
    port: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    ran: list[str] = []

    async def act(who: str) -> str:
        ran.append(who)
        return who

    lite, server = LiteServer("act"), Server("page", "1")
    lite.tool(act)
    server.add_tool(act)
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "page", "version": "1"},
    }
    bodies = {
        "mcp": {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "act", "arguments": {"who": "page"}, "_meta": meta},
        },
        "lite": {
            "version": [1, 0, 0],
            "id": 1,
            "type": "call",
            "data": {"version": [1, 0, 0], "tool": "act", "arguments": ["page"]},
        },
    }
    body = f"\n\n\n{json.dumps(bodies[kind])}\n\n\n"

    async def main() -> None:
        assert PROGRAM is not None
        listens: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        served = lite if kind == "lite" else server
        async with asyncio.TaskGroup() as group, AsyncExitStack() as stack:
            serving = group.create_task(
                served.serve("tcp://127.0.0.1:0", on_listening=listens.set_result)
            )
            stack.callback(serving.cancel)
            (url,) = await listens
            window = await stack.enter_async_context(browser.opened(PROGRAM, tmp_path))
            target = quote(url.replace("tcp:", "http:"), safe="")
            page = f"http://{FOREIGN}:{port}/post?url={target}&body={quote(body, safe='')}"
            async with asyncio.timeout(browser.SECONDS):
                assert await window.text(page, "report") == "failed"
            # the request came, and a program may still call the tool
            assert "its first bytes are not JSON" in caplog.text
            if kind == "lite":
                async with LiteClient(url) as caller:
                    await caller.call("program")
            else:
                async with Client(url) as client:
                    await client.call_tool("act", {"who": "program"})

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
    assert ran == ["program"]
