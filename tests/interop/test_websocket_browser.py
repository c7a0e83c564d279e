"""A page in a real browser calls a tool over WebSocket, and the Origin rule holds for it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import browser
import pairings
import peers
import pytest
import transcripts

from wirespeed.transport.loop import loop_factory

PROGRAM = browser.find()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no chromium: install one, or name it in WIRESPEED_CHROMIUM"
)
PAGE = (peers.PROGRAMS / "ws_page.html").read_bytes()
FOREIGN = "page.example"  # a name of this machine only for this browser
# host of the page, the server's options, whether it may connect
VISITS: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "own": ("127.0.0.1", (), True),
    "own-by-name": ("localhost", (), True),
    "compressed": ("127.0.0.1", ("--compression",), True),
    "foreign": (FOREIGN, (), False),
    "foreign-listed": (FOREIGN, ("--origin", f"http://{FOREIGN}:*"), True),
    "own-not-listed": ("127.0.0.1", ("--origin", f"http://{FOREIGN}:*"), False),
}


class Pages(BaseHTTPRequestHandler):
    """Serves the one page there is."""

    def do_GET(self) -> None:
        found = self.path.startswith("/page?")
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE) if found else 0))
        self.end_headers()
        if found:
            self.wfile.write(PAGE)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of the web server with the page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def visits(
    port: int, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[dict[str, Any], transcripts.Run]]:
    """All visits, by one browser: what the page showed, and the server's life."""
    folder = tmp_path_factory.mktemp("browser")
    shown: dict[str, dict[str, Any]] = {}

    async def main() -> None:
        assert PROGRAM is not None
        async with AsyncExitStack() as stack:
            urls = {}
            for name, (_, options, _) in VISITS.items():
                (folder / name).mkdir()
                server = pairings.listening(folder / name, pairings.OUR_SERVER, options)
                urls[name] = await stack.enter_async_context(server)
            window = await stack.enter_async_context(browser.opened(PROGRAM, folder / "profile"))
            for name, (host, _, _) in VISITS.items():
                page = f"http://{host}:{port}/page?url={quote(urls[name], safe='')}"
                async with asyncio.timeout(browser.SECONDS):
                    shown[name] = json.loads(await window.text(page, "report"))

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
    return {name: (shown[name], *transcripts.runs(folder / name)) for name in VISITS}


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
