"""A published App behind the proxy, shown by a host in a real browser (SEP-1865): the server is one
of several at the endpoint, the host is a page on the official bridge."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import browser
import peers
import pytest

from wirespeed import Client, Server, Stdio
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig
from wirespeed.types import App

PROGRAM = browser.find()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no chromium: install one, or name it in WIRESPEED_CHROMIUM"
)
SHOWN = "document.getElementById('server-time').textContent"


def host() -> bytes:
    """The page of the host, one file."""
    folder = peers.npm("apps")
    options = ("--bundle", "--format=iife", "--log-level=error")
    bundled = subprocess.run(
        [folder / "node_modules/.bin/esbuild", peers.PROGRAMS / "apps_host.mjs", *options],
        env={**peers.environment(), "NODE_PATH": str(folder / "node_modules")},
        capture_output=True,
        check=True,
    ).stdout.replace(b"</script", b"<\\/script")
    return b'<!doctype html><meta charset="utf-8"><body><script>%b</script>' % bundled


@asynccontextmanager
async def endpoint(prefix: str | None) -> AsyncIterator[str]:
    """The URL of a proxy with the server and another one."""
    clock = peers.npm("apps") / "node_modules/.bin/mcp-server-basic-vanillajs"
    other = Server("other")

    @other.tool
    async def noon() -> str:
        return "noon"

    backends = (
        BackendConfig(target=other, name="other"),
        BackendConfig(target=Stdio(str(clock), ["--stdio"]), name="clock", prefix=prefix),
    )
    listens: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    proxy = Proxy(
        ProxyConfig(backends=backends, listen=("http://127.0.0.1:0/mcp",), ready_within=60)
    )
    task = asyncio.ensure_future(proxy.serve(on_listening=listens.set_result))
    await asyncio.wait((task, listens), return_when=asyncio.FIRST_COMPLETED)
    try:
        yield listens.result()[0]
    finally:
        task.cancel()
        await asyncio.wait((task,))


@pytest.mark.parametrize("prefix", [None, ""], ids=["prefix", "bare"])
async def test_a_published_app_behind_the_proxy(tmp_path: Path, prefix: str | None) -> None:
    assert PROGRAM is not None
    name = "get-time" if prefix == "" else "clock_get-time"
    async with endpoint(prefix) as url, Client(url) as client:
        (tool,) = [one for one in await client.list_tools() if one.name == name]
        assert tool.meta is not None
        app = App.of(await client.read_resource(tool.meta["ui"]["resourceUri"]))
        asked = {"url": url, "tool": name, "policy": app.policy, "allow": app.allow}
        with browser.pages({"/": host()}) as port:
            async with (
                asyncio.timeout(browser.SECONDS),
                browser.opened(PROGRAM, tmp_path) as window,
                window.page(f"http://127.0.0.1:{port}/?{urlencode(asked)}") as page,
            ):
                found = await page.evaluated("finished")
                assert found["mimeType"] == "text/html;profile=mcp-app"
                frame = await window.frame()
                await frame.until(f"{SHOWN} === {json.dumps(found['time'])}")
                # the page asks its server for the tool by the server's own name
                await frame.evaluated("document.getElementById('get-time-btn').click()")
                await frame.until(f"{SHOWN} !== {json.dumps(found['time'])}")
                shown = await frame.evaluated(SHOWN)
                assert shown > found["time"] if prefix == "" else shown == "[ERROR]"
                for button in ("send-message-btn", "send-log-btn"):
                    await frame.evaluated(f"document.getElementById('{button}').click()")
                await page.until("said.length === 2")
                assert await page.evaluated("said") == [
                    "This is message text.",
                    "This is log text.",
                ]
                # it declares no origins, so it reaches none
                reach = f"fetch('http://127.0.0.1:{port}/', {{mode: 'no-cors'}})"
                outcome = f"{reach}.then(() => 'reached', () => 'refused')"
                assert await frame.evaluated(outcome) == "refused"
                assert await page.evaluated(outcome) == "reached"
