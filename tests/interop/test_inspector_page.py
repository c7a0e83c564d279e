"""The page of ``wirespeed dev`` in a real browser: a person uses it, other pages cannot."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import browser
import pytest

PROGRAM = browser.find()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no chromium: install one, or name it in WIRESPEED_CHROMIUM"
)

SERVER = '''
import sys
import msgspec
from wirespeed import Context, Server

server = Server("shop")
calls = []

class Address(msgspec.Struct):
    street: str
    gift: bool = False

@server.tool
async def add(a: int, b: int = 2) -> int:
    """Add. <img src=x onerror="document.title='owned'"><script>document.title='owned'</script>"""
    print("called", file=sys.stderr, flush=True)
    return a + b

@server.tool
async def order(ctx: Context) -> str:
    answer = await ctx.elicit("Where to?", Address)
    return f"to {answer.content.street}, {answer.content.gift}" if answer else "nowhere"
'''

# A page of somebody else, who knows all addresses but neither the key nor the cookie.
HOSTILE = """<!doctype html><title>hostile</title><body><script>
const place = PLACE;
const body = new URLSearchParams({kind: "tool", name: "add", "a.a": "1"});
const known = {method: "POST", credentials: "include"};
const add = (kind, members) =>
  document.body.appendChild(Object.assign(document.createElement(kind), members));
const tries = {
  simple: () => fetch(place + "use", {...known, mode: "no-cors", body}),
  asked: () => fetch(place + "use", {...known, body, headers: {Accept: "application/json"}}),
  restart: () => fetch(place + "restart", {...known, mode: "no-cors"}),
  read: () => fetch(place, {credentials: "include"}).then(answer => answer.text()),
  form: () => new Promise(done => {
    add("iframe", {name: "into", onload: done});
    const form = add("form", {method: "post", action: place + "use", target: "into"});
    for (const [name, value] of body) form.append(add("input", {name, value}));
    form.submit();
    setTimeout(done, 2000);
  }),
  frame: () => new Promise(done => {
    add("iframe", {src: place, onload: done});
    setTimeout(done, 2000);
  }),
  script: () => new Promise(done => {
    add("script", {src: place, onload: done, onerror: done});
  }),
};
const finished = (async () => {
  const found = {};
  for (const [name, attempt] of Object.entries(tries)) {
    found[name] = await attempt().then(
      value => typeof value === "string" ? "read: " + value : "sent", () => "refused");
  }
  add("pre", {id: "found", textContent: JSON.stringify(found)});
})();
</script>"""
RESULTS = "document.querySelector('[data-part=uses]').innerText"


@asynccontextmanager
async def developing(folder: Path) -> AsyncIterator[tuple[str, list[str]]]:
    """``wirespeed dev`` at work: the URL of its page, and the lines that it writes."""
    file = folder / "shop.py"
    file.write_text(SERVER)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "wirespeed", "dev", str(file)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    lines: list[str] = []
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def read() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            lines.append(line.decode())
            found = re.search(r"http://\S+\?key=\S+", lines[-1])
            if found is not None and not url.done():
                url.set_result(found[0])

    reading = asyncio.ensure_future(read())
    try:
        async with asyncio.timeout(browser.SECONDS):
            yield await url, lines
    finally:
        process.terminate()
        async with asyncio.timeout(browser.SECONDS):
            await process.wait()
            await reading
    assert process.returncode == 0


async def test_a_person_uses_a_server(tmp_path: Path) -> None:
    assert PROGRAM is not None
    async with (
        developing(tmp_path) as (url, _),
        browser.opened(PROGRAM, tmp_path / "p") as window,
        window.page(url) as page,
    ):
        await page.ask("Runtime.enable")
        await page.until("document.querySelector('nav li')")
        assert "key" not in await page.evaluated("location.href")
        assert await page.evaluated("document.cookie") == ""
        await page.until("document.getElementById('live').textContent === 'Live'")
        await page.until("document.querySelector('#item')")
        # texts of the server are texts
        assert await page.evaluated("document.querySelectorAll('img').length") == 0
        assert await page.evaluated("document.title") == "shop.py: wirespeed inspector"
        assert "onerror" in await page.evaluated("document.body.innerText")
        grown = "document.body.appendChild(Object.assign(document.createElement('script'), "
        await page.evaluated(grown + "{textContent: 'document.title = `owned`'})) && 1")
        assert await page.evaluated("document.title") != "owned"
        # what is wrong with a form is said beside it
        await page.click("#item button.main")
        await page.until("document.querySelector('#item .error').textContent")
        await page.type("#f-1", "40")
        await page.click("#item button.main")
        await page.until(f"{RESULTS}.includes('42')")
        await page.until(
            "document.querySelector('[data-part=wire]').innerText.includes('tools/call')"
        )
        await page.until("document.querySelector('[data-part=log]').innerText.includes('called')")
        assert await page.evaluated("document.querySelector('#f-1').value") == "40"
        # a question
        order = "[...document.querySelectorAll('nav a')].find(a => a.innerText === 'order')"
        await page.evaluated(f"{order}.click()")
        await page.until("document.querySelector('#item')?.dataset.name === 'order'")
        await page.click("#item button.main")
        await page.until("document.querySelector('.question')")
        await page.type(".question textarea", "Main Street")
        await page.evaluated("document.querySelector('.question button.main').scrollIntoView()")
        await page.click(".question button.main")
        await page.until(f"{RESULTS}.includes('to Main Street, False')")
        # the file is saved: once with a fault, then with another tool
        file = tmp_path / "shop.py"
        file.write_text(SERVER + "\ndef broken(")
        await page.until("document.querySelector('.alert')")
        assert "SyntaxError" in await page.evaluated("document.querySelector('.alert').innerText")
        file.write_text(SERVER + "\n@server.tool\nasync def fresh() -> str:\n    return 'new'\n")
        await page.until("document.querySelector('nav').innerText.includes('fresh')")
        assert not await page.evaluated("document.querySelectorAll('.alert').length")
        assert "to Main Street" in await page.evaluated(RESULTS)
        assert await page.too_wide() == []
        # every field has a name for those who do not see it
        assert await page.evaluated(
            "[...document.querySelectorAll('input, textarea, select')].every(one => "
            "one.type === 'hidden' || one.ariaLabel || one.labels.length)"
        )


async def test_other_pages_cannot(tmp_path: Path) -> None:
    assert PROGRAM is not None
    found: dict[str, bytes] = {}
    async with (
        developing(tmp_path) as (url, lines),
        browser.opened(PROGRAM, tmp_path / "p") as window,
    ):
        origin = url.partition("/?")[0]
        port = origin.rpartition(":")[2]
        with browser.pages(found) as other:
            async with window.page(url) as page:
                await page.until("document.querySelector('#item')")
                base: str = await page.evaluated("location.pathname")
                found["/"] = HOSTILE.replace("PLACE", json.dumps(origin + base)).encode()
                # the cookie goes to no other port, as its path is not asked for there
                cookies: Any = await page.ask(
                    "Network.getCookies", urls=[f"{origin}/", f"http://127.0.0.1:{other}/"]
                )
                assert cookies["cookies"] == []
                for host in ("127.0.0.1", "evil.example", "localhost"):
                    text = await window.text(f"http://{host}:{other}/", "found")
                    tried = json.loads(text)
                    assert tried["asked"] == tried["read"] == "refused", tried
                # a name of somebody else that points to this machine
                for name in ("evil.example", "localhost"):
                    async with window.page(f"http://{name}:{port}{base}") as rebound:
                        body = await rebound.evaluated("document.body.innerText")
                        assert "is not known by the Host" in body
                # the page without its secret
                async with window.page(f"{origin}/") as closed:
                    assert "this page is closed" in await closed.evaluated(
                        "document.body.innerText"
                    )
                # nothing of all this has reached the server
                assert "None yet" in await page.evaluated(RESULTS)
                assert not [line for line in lines if "called" in line]
                await page.type("#f-1", "1")
                await page.click("#item button.main")
                await page.until(f"{RESULTS}.includes('3')")
