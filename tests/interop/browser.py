"""A real browser, headless, driven by the DevTools protocol: opens a page and reads its text.

The browser is $WIRESPEED_CHROMIUM, which must then be there, or a ``chromium`` on the path.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import peers
from websockets.asyncio.client import ClientConnection, connect

SECONDS = 60
SIZES = ((1400, 900, False), (412, 915, True))  # a window on a desk, and that of a phone
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    # every name is this machine, so that a page can come from any origin
    "--host-resolver-rules=MAP * 127.0.0.1",
    "--remote-debugging-port=0",
)
_LOADED = (
    "new Promise(done => document.readyState === 'complete' ? done() "
    ": addEventListener('load', done))"
)
_READY = re.compile(r"DevTools listening on (ws://\S+)")


def find() -> str | None:
    """The browser's program; None when there is none."""
    named = os.environ.get("WIRESPEED_CHROMIUM")
    if named:
        return named
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def pages(found: dict[str, bytes]) -> Iterator[int]:
    """A web server with pages by their paths: its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = found.get(self.path.partition("?")[0], b"")
            self.send_response(200 if page else 404)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


class Page:
    """A page of the browser: a person's keys and mouse."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the DevTools protocol, for this page."""
        return await self._browser._ask(method, self._session, **params)

    async def evaluated(self, script: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        answer = await self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = await self.evaluated(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({box})")
        for kind in ("mousePressed", "mouseReleased"):
            await self.ask(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    async def type(self, selector: str, text: str) -> None:
        """Click a field, and type."""
        await self.click(selector)
        await self.ask("Input.insertText", text=text)

    async def too_wide(self) -> list[int]:
        """The widths of windows, of a desk and of a phone, that the page does not fit into."""
        found = []
        for width, height, mobile in SIZES:
            await self.ask(
                "Emulation.setDeviceMetricsOverride",
                width=width, height=height, deviceScaleFactor=1, mobile=mobile,
            )  # fmt: skip
            if await self.evaluated("document.documentElement.scrollWidth") > width:
                found.append(width)
        return found

    async def until(self, condition: str) -> None:
        """Wait until an expression is true, over the pages that follow."""
        async with asyncio.timeout(SECONDS):
            while True:
                with contextlib.suppress(AssertionError):  # a page that goes has no context
                    if await self.evaluated(f"Boolean({condition})"):
                        return
                await asyncio.sleep(0.05)


class Browser:
    """A browser that runs."""

    def __init__(self, devtools: ClientConnection) -> None:
        self._devtools = devtools
        self._numbers = itertools.count(1)

    async def _ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        await self._devtools.send(json.dumps(message))
        while True:  # events go by
            answer = json.loads(await self._devtools.recv())
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    async def text(self, url: str, element: str) -> str:
        """The text of an element of a page, when the page's promise ``finished`` is resolved."""
        async with self.page(url) as page:
            script = (
                f"finished.then(() => document.getElementById({json.dumps(element)}).textContent)"
            )
            found: str = await page.evaluated(script)
            return found

    @asynccontextmanager
    async def page(self, url: str) -> AsyncIterator[Page]:
        """A page, loaded."""
        target = (await self._ask("Target.createTarget", url="about:blank"))["targetId"]
        attached = await self._ask("Target.attachToTarget", targetId=target, flatten=True)
        page = Page(self, attached["sessionId"])
        went = await page.ask("Page.navigate", url=url)
        assert "errorText" not in went, went["errorText"]
        await page.evaluated(_LOADED)
        yield page
        await self._ask("Target.closeTarget", targetId=target)

    async def frame(self) -> Page:
        """The page in the one frame that has a process of its own, as sandboxed frames do."""
        async with asyncio.timeout(SECONDS):
            while True:
                found = (await self._ask("Target.getTargets"))["targetInfos"]
                frames = [one["targetId"] for one in found if one["type"] == "iframe"]
                if frames:
                    break
                await asyncio.sleep(0.05)
        (target,) = frames
        attached = await self._ask("Target.attachToTarget", targetId=target, flatten=True)
        return Page(self, attached["sessionId"])


@asynccontextmanager
async def opened(program: str, profile: Path) -> AsyncIterator[Browser]:
    """A browser with a fresh profile in a folder."""
    child = await asyncio.create_subprocess_exec(
        *(program, *FLAGS, f"--user-data-dir={profile}"),
        env=peers.environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stderr is not None
    said = ""
    try:
        async with asyncio.timeout(SECONDS):
            while (found := _READY.search(said)) is None:
                line = await child.stderr.readline()
                assert line, f"the browser ended:\n{said}"
                said += line.decode(errors="replace")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(child.stderr.read())
            async with connect(found[1], max_size=None) as devtools:
                browser = Browser(devtools)
                yield browser
                await browser._ask("Browser.close")
            async with asyncio.timeout(SECONDS):
                await child.wait()
    finally:
        if child.returncode is None:
            os.killpg(child.pid, 9)
            await child.communicate()
