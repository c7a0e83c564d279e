"""connect_to: connections go to an address, and TLS and HTTP name the host of the URL."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.wording import raises

from wirespeed import Client, Http, ListenOptions, Server, Socket, WebSocket, serve
from wirespeed.errors import TransportError
from wirespeed.server.context import Context

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]


@contextlib.asynccontextmanager
async def listening(url: str, **options: Any) -> AsyncIterator[str]:
    """A server that shows the Host field. Returns where it listens: its address and port."""
    server = Server("far")

    @server.tool
    async def host(ctx: Context) -> str:
        return ctx.headers.get("host", "")

    found: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    hosts = None if url.startswith("tcp:") else ["mill.test", "localhost"]
    given = ListenOptions(hosts=hosts, **options)
    task = asyncio.ensure_future(serve(url, server, options=given, on_listening=found.set_result))
    await asyncio.wait((task, found), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield found.result()[0].split("/")[2]
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_the_host_is_that_of_the_url() -> None:
    async with listening("http://127.0.0.1:0/mcp") as at:
        for target in (
            Http("http://mill.test/mcp", connect_to=at),
            WebSocket("ws://mill.test/mcp", connect_to=at),
        ):
            async with Client(target) as client:
                assert (await client.call_tool("host")).text == "mill.test"
    async with (
        listening("tcp://127.0.0.1:0") as at,
        Client(Socket("tcp://mill.test:1", connect_to=at)) as client,
    ):
        assert (await client.call_tool("host")).text == ""


async def test_no_proxy_stands_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with (
        listening("http://127.0.0.1:0/mcp") as at,
        Client(Http("http://mill.test/mcp", connect_to=at)) as client,
    ):
        assert (await client.call_tool("host")).text == "mill.test"


async def test_the_certificate_is_that_of_the_name(certificate: Path) -> None:
    """It is for localhost and 127.0.0.1, and the server listens at 127.0.0.2."""
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(certificate)
    asked: list[str | None] = []
    served.sni_callback = lambda sock, name, context: asked.append(name)
    trusting = ssl.create_default_context(cafile=certificate)
    async with listening("https://127.0.0.2:0/mcp", ssl=served) as at:
        async with Client(Http("https://localhost/mcp", ssl=trusting, connect_to=at)) as client:
            assert (await client.call_tool("host")).text == "localhost"
        assert set(asked) == {"localhost"}
        for name in ("mill.test", "127.0.0.2"):
            with raises(TransportError):
                await Client(Http(f"https://{name}/mcp", ssl=trusting, connect_to=at)).__aenter__()


async def test_an_error_names_both() -> None:
    for target in (
        Http("http://mill.test/mcp", connect_to="127.0.0.1:1"),
        WebSocket("ws://mill.test/mcp", connect_to="[::1]:1"),
    ):
        with raises(TransportError):
            await Client(target).__aenter__()
    assert "connect_to='127.0.0.1:1'" in repr(
        Http("http://mill.test/mcp", connect_to="127.0.0.1:1")
    )
