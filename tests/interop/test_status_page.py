"""The status page of a proxy in a real browser: it goes on, and no text of others runs."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import browser
import pytest

from wirespeed import Client, Server
from wirespeed.proxy import AdminConfig, BackendConfig, Proxy, ProxyConfig

PROGRAM = browser.find()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no chromium: install one, or name it in WIRESPEED_CHROMIUM"
)
HOSTILE = (
    """<script>document.title = "owned"</script><img src=x onerror="document.title='owned'">"""
)
DETAILS = "document.querySelector('[data-part=details]').innerText"


async def test_page(tmp_path: Path) -> None:
    server = Server("behind")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    behind: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    serving = [
        asyncio.ensure_future(
            server.serve("tcp://127.0.0.1:0", on_listening=lambda urls: behind.set_result(urls[0]))
        )
    ]
    from wirespeed import Socket

    backend = BackendConfig(target=Socket(await behind), name="adder", isolation="shared")
    proxy = Proxy(
        ProxyConfig(
            backends=(backend,),
            listen=("ws://127.0.0.1:0/mcp",),
            admin=AdminConfig(listen="http://127.0.0.1:0", token="secret"),
        )
    )
    listening: dict[str, str] = {}
    both = asyncio.Event()

    def on_listening(urls: tuple[str, ...]) -> None:
        listening.update({url.partition(":")[0]: url for url in urls[:1]})
        if len(listening) == 2:
            both.set()

    serving.append(asyncio.ensure_future(proxy.serve(on_listening=on_listening)))
    await both.wait()
    assert PROGRAM is not None
    async with (
        asyncio.timeout(browser.SECONDS),
        Client(listening["ws"]) as client,
        browser.opened(PROGRAM, tmp_path) as window,
    ):
        await client.call_tool("add", {"a": 1, "b": 2})
        logging.getLogger("wirespeed.proxy").warning("%s", HOSTILE)
        place = listening["http"].removeprefix("http://")
        # a person types the token into the browser's own form
        async with window.page(f"http://operator:secret@{place}") as page:
            await page.ask("Runtime.enable")
            text = "document.body.innerText"
            assert await page.evaluated(f"{text}.includes('<script>document.title')")
            assert await page.evaluated("document.title") == "wirespeed proxy: ready"
            assert await page.evaluated("document.querySelectorAll('img').length") == 0
            # the style and the script of the page are allowed, those of others are not
            assert await page.evaluated("document.getElementById('live').textContent") == "Live"
            grown = "document.body.appendChild(Object.assign(document.createElement('script'), "
            await page.evaluated(grown + "{textContent: 'document.title = `owned`'})) && 1")
            assert await page.evaluated("document.title") == "wirespeed proxy: ready"
            # what was opened stays open when the page is replaced by a newer one
            await page.evaluated("document.querySelector('summary').scrollIntoView()")
            await page.click("summary")
            before = await page.evaluated(DETAILS)
            assert "tools/call" in before
            for _ in range(3):
                await client.call_tool("add", {"a": 1, "b": 2})
            await page.until(f"{DETAILS} !== {json.dumps(before)}")
            assert await page.evaluated("document.querySelector('details').open")
            assert await page.too_wide() == []
            # every header of a table is one, and every picture has words
            assert await page.evaluated(
                "[...document.querySelectorAll('table')].every(t => t.querySelector('th[scope]')"
                " && t.ariaLabel) && [...document.querySelectorAll('svg')].every(s => s.ariaLabel"
                " || s.ariaHidden === 'true')"
            )
            serving[1].cancel()
            await page.until(f"{text}.includes('these numbers are old')")
    for task in serving:
        task.cancel()
    await asyncio.wait(serving)
