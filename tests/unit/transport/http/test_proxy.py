"""Proxies of the environment, tunnels through them, TLS, and hosts with several addresses."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lab.origin import Origin, Request, ok, pool_for, post
from lab.rows import every
from lab.wording import raises

from wirespeed.errors import TransportError
from wirespeed.transport.address import parse
from wirespeed.transport.net.connect import HttpProxy, parse_proxy, proxy_of


async def echo(request: Request) -> None:
    await request.write(ok(request.body))


@every(
    ("url", "text", "pair"),
    [
        ("http://proxy.example:8080", "http://proxy.example:8080", None),
        ("http://proxy.example:8080/", "http://proxy.example:8080", None),
        ("proxy.example", "http://proxy.example:1080", None),
        ("proxy.example:80", "http://proxy.example:80", None),
        ("HTTP://[::1]:8", "http://[::1]:8", None),
        ("http://anne:s3cret@h:1", "http://h:1", "anne:s3cret"),
        ("anne:s3%40cret@h:1", "http://h:1", "anne:s3@cret"),
        ("http://anne@h:1", "http://h:1", "anne:"),
    ],
)
def test_urls_of_proxies(url: str, text: str, pair: str | None) -> None:
    proxy = parse_proxy(url)
    assert str(proxy) == text
    assert repr(proxy) == f"HttpProxy({text!r})"
    expected = "" if pair is None else f"Basic {base64.b64encode(pair.encode()).decode()}"
    assert proxy.fields.decode() == (f"Proxy-Authorization: {expected}\r\n" if expected else "")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://u:s3cret@h:1", "only proxies at http:// URLs"),
        ("socks5://h", "only proxies at http:// URLs"),
        ("http://", "is not the URL of a proxy"),
        ("http://u:s3cret@h:x", "is not the URL of a proxy"),
        ("http://[::1", "is not the URL of a proxy"),
    ],
)
def test_urls_of_no_proxies(url: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_proxy(url)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)
    with raises(ValueError) as caught:
        proxy_of(parse("http://h/"), {"all_proxy": url})
    assert "s3cret" not in str(caught.value)


@every(
    ("url", "environ", "host"),
    [
        ("http://h/", {}, None),
        ("http://h/", {"http_proxy": "a"}, "a"),
        ("http://h/", {"HTTP_PROXY": "a"}, None),
        ("http://h/", {"https_proxy": "a"}, None),
        ("https://h/", {"https_proxy": "a", "HTTPS_PROXY": "b"}, "a"),
        ("https://h/", {"HTTPS_PROXY": "b", "all_proxy": "c"}, "b"),
        ("https://h/", {"https_proxy": "", "ALL_PROXY": "c"}, "c"),
        ("http://h/", {"all_proxy": "c", "ALL_PROXY": "d"}, "c"),
        ("http://h/", {"http_proxy": "a", "no_proxy": "*"}, None),
        ("http://h.example/", {"http_proxy": "a", "no_proxy": "x, h.example"}, None),
        ("http://h.example/", {"http_proxy": "a", "NO_PROXY": "x,.EXAMPLE"}, None),
        ("http://h.example/", {"http_proxy": "a", "no_proxy": "ample"}, "a"),
        ("http://h.example/", {"http_proxy": "a", "no_proxy": "x.h.example"}, "a"),
        ("http://h.example/", {"http_proxy": "a", "no_proxy": "y", "NO_PROXY": "*"}, "a"),
        ("http://h.example/", {"http_proxy": "a", "no_proxy": ". ,,"}, "a"),
        ("http://localhost/", {"http_proxy": "a"}, None),
        ("https://127.0.0.1:1/", {"https_proxy": "a"}, None),
        ("http://[::1]/", {"http_proxy": "a"}, None),
        ("http://10.1.2.3/", {"http_proxy": "a", "no_proxy": "10.0.0.0/8"}, None),
        ("http://10.1.2.3/", {"http_proxy": "a", "no_proxy": "10.1.2.3"}, None),
        ("http://10.1.2.3/", {"http_proxy": "a", "no_proxy": "10.1.2.4/32 2.3"}, "a"),
        ("http://[fd00::1]/", {"http_proxy": "a", "no_proxy": "[fd00::1]"}, None),
        ("http://[fd00::1]/", {"http_proxy": "a", "no_proxy": "fd00::2"}, "a"),
        ("http://[fe80::1]/", {"http_proxy": "a", "no_proxy": "fe80::/10"}, None),
    ],
)
def test_the_environment(url: str, environ: dict[str, str], host: str | None) -> None:
    proxy = proxy_of(parse(url), environ)
    assert (None if proxy is None else proxy.host) == host


class Tunnels:
    """A proxy that opens tunnels. ``answer``: what it says to CONNECT."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connected\r\n\r\n") -> None:
        self.answer = answer
        self.heads: list[bytes] = []
        self.tasks: set[asyncio.Task[None] | None] = set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            writer.write(self.answer)
            await writer.drain()
            if b" 200 " in self.answer:
                host, _, port = head.split()[1].decode().rpartition(":")
                ours, theirs = await asyncio.open_connection(host.strip("[]"), int(port))
                await asyncio.gather(copy(reader, theirs), copy(ours, writer))
        await close(writer)
        self.tasks.discard(asyncio.current_task())


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    await close(writer)


@contextlib.asynccontextmanager
async def proxy_at(tunnels: Tunnels, pair: str = "") -> AsyncIterator[HttpProxy]:
    server = await asyncio.start_server(tunnels, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield parse_proxy(f"http://{pair}127.0.0.1:{port}")
        while tunnels.tasks:
            await asyncio.sleep(0.001)


async def test_a_plain_request_is_forwarded() -> None:
    """The proxy is asked for a whole URL, and gets its credentials with each request."""
    async with Origin(echo) as origin:
        proxy = parse_proxy(f"http://anne:s3cret@127.0.0.1:{origin.port}")
        async with pool_for(parse("http://far.example:81/mcp"), proxy=proxy) as pool:
            assert (await post(pool, b"x").end()).body == b"x"
        [request] = origin.requests
        assert request.target == "http://far.example:81/mcp"
        assert request.headers["host"] == "far.example:81"
        assert request.headers["proxy-authorization"] == "Basic YW5uZTpzM2NyZXQ="


async def test_a_tunnel_to_a_server_with_tls(
    server_ssl: ssl.SSLContext, client_ssl: ssl.SSLContext
) -> None:
    """Only the proxy gets its credentials; the certificate is the server's."""
    tunnels = Tunnels()
    async with (
        proxy_at(tunnels, "anne:s3cret@") as proxy,
        Origin(echo, ssl=server_ssl) as origin,
        pool_for(origin, proxy=proxy, ssl=client_ssl) as pool,
    ):
        for body in (b"x", b"y" * 100_000):
            assert (await post(pool, body).end()).body == body
        [head] = tunnels.heads
        assert head.startswith(f"CONNECT 127.0.0.1:{origin.port} HTTP/1.1\r\n".encode())
        assert b"\r\nProxy-Authorization: Basic YW5uZTpzM2NyZXQ=\r\n" in head
        assert origin.requests[0].target == "/mcp"
        assert "proxy-authorization" not in origin.requests[0].headers


@every(
    ("answer", "words"),
    [
        (ok(b"x", b"", b"407 x"), "refused the tunnel: 407; its URL takes user:password@"),
        (b"HTTP/1.1 503 x\r\n\r\n", "refused the tunnel: 503"),
        (b"HTTP/1.1 204 x\r\n\r\nbytes", "sent bytes of its own"),
        (b"SSH-2.0\r\n\r\n", "failed: the first line is not an HTTP version"),
        (b"HTTP/1.1 100 x\r\n\r\n", "failed: it closed the connection"),
    ],
)
async def test_a_proxy_that_refuses(answer: bytes, words: str) -> None:
    async with (
        proxy_at(Tunnels(answer), "anne:s3cret@") as proxy,
        pool_for(parse("https://far.example/mcp"), proxy=proxy) as pool,
    ):
        told = await post(pool).end()
        assert isinstance(told.exc, TransportError)
        assert str(told.exc).startswith(
            f"cannot connect to https://far.example/mcp: the proxy {proxy}"
        )
        assert words in str(told.exc)
        assert "s3cret" not in str(told.exc)
        assert not told.sent


async def test_a_proxy_that_is_not_there() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        proxy = HttpProxy("127.0.0.1", sock.getsockname()[1])
        async with pool_for(parse("https://far.example/"), proxy=proxy) as pool:
            told = await post(pool).end()
    assert f"https://far.example/ by the proxy {proxy}: connection refused" in str(told.exc)


# -- TLS -------------------------------------------------------------------------------------------


async def test_requests_over_tls(server_ssl: ssl.SSLContext, client_ssl: ssl.SSLContext) -> None:
    async with (
        Origin(echo, ssl=server_ssl) as origin,
        pool_for(origin, ssl=client_ssl, idle_timeout=0.5) as pool,
    ):
        for body in (b"", b"x", b"y" * 1_000_000):
            assert (await post(pool, body).end()).body == body
        told = [post(pool, b"%d" % i) for i in range(5)]
        assert [(await one.end()).body for one in told] == [b"%d" % i for i in range(5)]


async def test_a_certificate_that_is_not_trusted(server_ssl: ssl.SSLContext) -> None:
    async with Origin(echo, ssl=server_ssl) as origin, pool_for(origin) as pool:
        told = await post(pool).end()
        assert isinstance(told.exc, TransportError)
        assert "its certificate is not accepted: self-signed certificate; ssl=" in str(told.exc)
        assert origin.requests == []


async def test_a_certificate_of_the_client(
    server_ssl: ssl.SSLContext, client_ssl: ssl.SSLContext, certificate: Any
) -> None:
    asks = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate[0]))
    asks.load_cert_chain(*certificate)
    asks.verify_mode = ssl.CERT_REQUIRED
    shows = ssl.create_default_context(cafile=str(certificate[0]))
    shows.load_cert_chain(*certificate)
    async with Origin(echo, ssl=asks) as origin:
        async with pool_for(origin, ssl=shows) as pool:
            assert (await post(pool, b"x").end()).body == b"x"
        async with pool_for(origin, ssl=client_ssl) as pool:
            assert isinstance((await post(pool, b"x").end()).exc, TransportError)


async def test_tls_where_there_is_none(client_ssl: ssl.SSLContext) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = parse(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        async with pool_for(address, ssl=client_ssl) as pool:
            told = await post(pool).end()
            assert "a server without TLS is reached at http://" in str(told.exc)


async def test_no_tls_where_it_is_spoken(server_ssl: ssl.SSLContext) -> None:
    async with Origin(echo, ssl=server_ssl) as origin:
        address = parse(f"http://127.0.0.1:{origin.port}/")
        async with pool_for(address) as pool:
            assert isinstance((await post(pool).end()).exc, TransportError)


# -- hosts -----------------------------------------------------------------------------------------


async def test_an_ipv6_address() -> None:
    async with Origin(echo, host="::1") as origin, pool_for(origin) as pool:
        assert (await post(pool, b"x").end()).body == b"x"
        assert origin.requests[0].headers["host"] == f"[::1]:{origin.port}"


def resolve(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Give names under .example these addresses on the loop that runs."""
    loop = asyncio.get_running_loop()
    real = loop.getaddrinfo

    async def look_up(host: Any, port: Any, **more: Any) -> Any:
        names = hosts if str(host).endswith(".example") else (host,)
        return [found for name in names for found in await real(name, port, **more)]

    monkeypatch.setattr(loop, "getaddrinfo", look_up)


async def test_the_first_address_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, "127.0.0.2", "127.0.0.3", "127.0.0.1")
    async with Origin(echo) as origin:
        address = parse(f"http://several.example:{origin.port}/")
        async with pool_for(address) as pool:
            assert (await post(pool, b"x").end()).body == b"x"


async def test_no_address_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, "127.0.0.2", "127.0.0.3")
    async with Origin(echo) as origin:
        address = parse(f"http://several.example:{origin.port}/")
        async with pool_for(address) as pool:
            told = await post(pool, b"x").end()
            assert "connection refused" in str(told.exc)
    resolve(monkeypatch)
    async with pool_for(parse("http://several.example/")) as pool:
        assert "the host has no address" in str((await post(pool).end()).exc)


@pytest.mark.parametrize("timeout", [10.0, 0.1])
async def test_an_address_that_does_not_answer(
    timeout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is tried meanwhile, if there is time left for it."""
    async with Origin(echo) as origin:
        resolve(monkeypatch, "127.0.0.2", "127.0.0.1")
        with socket.socket() as deaf, socket.socket() as first:
            deaf.bind(("127.0.0.2", origin.port))
            deaf.listen(0)
            first.connect(("127.0.0.2", origin.port))  # its queue is full: it answers no other
            address = parse(f"http://several.example:{origin.port}/")
            async with pool_for(address, connect_timeout=timeout) as pool:
                told = await post(pool, b"x").end()
        if timeout > 1:
            assert told.body == b"x"
        else:
            assert str(told.exc) == f"cannot connect to {address}: no answer within 0.1 s"
