"""HTTP over a UNIX socket: listening, clients, curl, the proxy on both sides."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from lab.raw import without_sanitizers
from lab.rows import every
from lab.wording import raises

from wirespeed import Client, Http, ListenOptions, Server, serve
from wirespeed.errors import TransportError
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig
from wirespeed.transport.address import parse

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}


def adder() -> Server:
    server = Server("adder")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


def url_of(file: Path, path: str = "/mcp") -> str:
    return f"http+unix://{quote(str(file), safe='')}{path}"


@contextlib.asynccontextmanager
async def serving(serves: Any) -> AsyncIterator[str]:
    """A server or proxy: the URL that it says it listens at."""
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serves(lambda urls: listening.set_result(urls[0])))
    await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield await listening
    finally:
        task.cancel()
        await asyncio.wait((task,))


def at(file: Path, **options: Any) -> Any:
    return serving(lambda on: serve(url_of(file), adder(), on_listening=on, **options))


def test_the_url() -> None:
    address = parse("http+unix://%2Frun%2Ft.sock/mcp?key=1")
    assert (address.file, address.path, address.query) == ("/run/t.sock", "/mcp", "key=1")
    assert address.is_http and not address.secure and address.authority == "localhost"
    assert str(address) == "http+unix://%2Frun%2Ft.sock/mcp"
    assert parse(str(address)) == parse("HTTP+UNIX://%2frun%2ft.sock/mcp")
    assert parse("http+unix://%2Frun%2Ft.sock").path == "/"
    assert parse("http+unix://t.sock/mcp").file == "t.sock"


@every(
    "url",
    ["http+unix:", "http+unix:///run/t.sock", "http+unix://%2Frun%2F/mcp", "http+unix://a:80/mcp",
     "http+unix://a@b/mcp", "http+unix://%00/mcp", "http+unix:%2Frun/mcp"],
)  # fmt: skip
def test_urls_that_name_no_file(url: str) -> None:
    with pytest.raises(ValueError, match=r"names no file|null character"):
        parse(url)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_clients_of_both_eras(tmp_path: Path, era: Any) -> None:
    file = tmp_path / "s"
    async with at(file) as url, Client(url, era=era) as client:
        assert url == url_of(file)
        assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.exists()


async def test_the_mode_of_the_file_and_one_that_was_left(tmp_path: Path) -> None:
    file = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(file))
    async with at(file, socket_mode=0o660) as url, Client(url) as client:
        assert stat.S_IMODE(file.stat().st_mode) == 0o660
        assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5
        with raises(TransportError):
            async with at(file):
                pass
    file.write_text("no socket")
    with raises(TransportError):
        async with at(file):
            pass


async def test_nobody_listens(tmp_path: Path) -> None:
    with raises(TransportError):
        async with Client(url_of(tmp_path / "none")):
            pass


async def curl(file: Path, *words: str) -> tuple[int, str]:
    program = shutil.which("curl")
    assert program is not None, "curl is one of the peers of this test"
    child = await asyncio.create_subprocess_exec(
        *(program, "-s", "--max-time", "60", "--unix-socket", str(file), "-w", "\n%{http_code}"),
        *words,
        stdout=asyncio.subprocess.PIPE,
        env=without_sanitizers(),
    )
    try:
        out, _ = await child.communicate()
    except asyncio.CancelledError:
        child.kill()  # the loop waits for it at its end
        raise
    body, _, status = out.decode().rpartition("\n")
    return int(status), body


@pytest.mark.parametrize("host", ["localhost", "tools", "any.example:8080"])
async def test_curl_calls_the_server_what_it_likes(tmp_path: Path, host: str) -> None:
    """No web page reaches a socket of a file, so its name proves nothing."""
    file = tmp_path / "s"
    fields = ["-H", "Content-Type: application/json", "-H", "Accept: */*"]
    async with at(file):
        status, body = await curl(file, f"http://{host}/mcp", *fields, "-d", json.dumps(HELLO))
        assert status == 200 and json.loads(body)["result"]["serverInfo"]["name"] == "adder"
        assert (await curl(file, f"http://{host}/healthz"))[0] == 200


async def test_names_and_tokens_are_checked_where_they_are_given(tmp_path: Path) -> None:
    file = tmp_path / "s"
    options = ListenOptions(hosts=["tools"], token="s3cret")
    async with at(file, options=options):
        bearer = ["-H", "Authorization: Bearer s3cret"]
        ask = ["-H", "Content-Type: application/json", "-d", json.dumps(HELLO)]
        assert (await curl(file, "http://other/mcp", *bearer, *ask))[0] == 403
        assert (await curl(file, "http://tools/mcp", *ask))[0] == 401
        assert (await curl(file, "http://tools/mcp", *bearer, *ask))[0] == 200


async def test_the_proxy_listens_there_and_connects_there(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    async with at(inner) as url:
        backend = BackendConfig(target=Http(url), name="adder", isolation="shared")
        proxy = Proxy(ProxyConfig(backends=(backend,), listen=(url_of(outer),)))
        async with serving(lambda on: proxy.serve(on_listening=on)) as listens:
            for era in ("legacy", "modern"):
                async with Client(listens, era=era) as client:  # type: ignore[arg-type]
                    assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5


async def test_the_commands(tmp_path: Path) -> None:
    file = tmp_path / "s"
    source = tmp_path / "server.py"
    source.write_text(
        "from wirespeed import Server\nserver = Server('a')\n"
        "@server.tool\nasync def add(a: int, b: int) -> int:\n    return a + b\n"
    )
    program = [sys.executable, "-m", "wirespeed"]
    child = await asyncio.create_subprocess_exec(
        *program, "serve", str(source), "--on", url_of(file), stderr=asyncio.subprocess.PIPE
    )
    try:
        assert child.stderr is not None
        assert f"on {url_of(file)}" in (await child.stderr.readline()).decode()
        call = await asyncio.create_subprocess_exec(
            *program,
            "call",
            url_of(file),
            "add",
            '{"a": 2, "b": 3}',
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await call.communicate()
        assert out.decode().strip() == "5"
    finally:
        child.terminate()
        await child.communicate()


def test_workers_cannot_share_it(tmp_path: Path) -> None:
    with raises(ValueError):
        adder().run(url_of(tmp_path / "s"), workers=2)
    assert os.listdir(tmp_path) == []
