"""WebSocket and Socket as values: what they take, show, refuse and stand for."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.rows import every
from lab.wording import raises
from rich.pretty import pretty_repr

from wirespeed import Client, Http, Socket, Stdio, WebSocket
from wirespeed.client.targets import RECONNECTS

WS = "ws://h/mcp"
HTTP = "http://h/mcp"


@every(
    ("make", "kind", "expected"),
    [
        (lambda: WebSocket(5), TypeError, "url must be a string, not int"),
        (lambda: WebSocket(""), ValueError, "is not a URL"),
        (lambda: WebSocket("ws:///x"), ValueError, "has no host"),
        (lambda: WebSocket("ws://h:0"), ValueError, "has no port to connect to"),
        (lambda: WebSocket("ws://me:s3cret@h"), ValueError, "must not hold a user or password"),
        (lambda: WebSocket("ws://h/#s3cret"), ValueError, "a fragment has no meaning"),
        (lambda: WebSocket("ws://h/?a=s3cret b"), ValueError, "a space or a control character"),
        (lambda: WebSocket("tcp://h:1"), ValueError, "WebSocket takes ws: and wss: URLs; tcp: is"),
        (lambda: WebSocket(WS, headers=["a: b"]), TypeError, "headers must be a mapping"),
        (lambda: WebSocket(WS, headers={5: "b"}), TypeError, "a name that is not a string but int"),
        (lambda: WebSocket(WS, headers={"": "b"}), ValueError, "headers has a bad name ''"),
        (lambda: WebSocket(WS, headers={"a b": "b"}), ValueError, "a bad name 'a b'"),
        (lambda: WebSocket(WS, headers={"a\r\nb": "b"}), ValueError, "a bad name"),
        (lambda: WebSocket(WS, headers={"ä": "b"}), ValueError, "a bad name"),
        (lambda: WebSocket(WS, headers={"a": 5}), TypeError, r"headers\['a'\] must be a string"),
        (lambda: WebSocket(WS, headers={"a": "s3cret\r\nb: c"}), ValueError, "has a line break"),
        (lambda: WebSocket(WS, headers={"a": "s3cret\0"}), ValueError, "character that is not"),
        (lambda: WebSocket(WS, headers={"a": "s3crét"}), ValueError, "character that is not"),
        (lambda: WebSocket(WS, headers={"A": "1", "a": "2"}), ValueError, "has a twice"),
        *(
            (
                lambda name=name: WebSocket(WS, headers={name: "s3cret"}),
                ValueError,
                f"the handshake itself writes the header {name}",
            )
            for name in (
                "Host", "connection", "UPGRADE", "Sec-WebSocket-Key", "sec-websocket-protocol",
                "Sec-WebSocket-Extensions", "Content-Length", "Transfer-Encoding",
            )
        ),
        (lambda: WebSocket(WS, token=5), TypeError, "token must be a string, not int"),
        (lambda: WebSocket(WS, token=""), ValueError, "token is empty"),
        (lambda: WebSocket(WS, token="s3cret\n"), ValueError, "token has a space, a line break"),
        (lambda: WebSocket(WS, token="s3 cret"), ValueError, "token has a space, a line break"),
        (lambda: WebSocket(WS, token="s3crét"), ValueError, "token has a space, a line break"),
        (
            lambda: WebSocket(WS, token="s3cret", headers={"authorization": "s3cret"}),
            ValueError,
            "say the same; leave one out",
        ),
        (lambda: WebSocket("wss://h", ssl=False), TypeError, "ssl must be an ssl.SSLContext"),
        (lambda: WebSocket("wss://h", ssl="off"), TypeError, "ssl must be an ssl.SSLContext"),
        (lambda: WebSocket(WS, ssl=ssl.create_default_context()), ValueError, "for wss:// URLs"),
        (lambda: WebSocket(WS, compression=1), TypeError, "compression must be True or False"),
        (lambda: WebSocket(WS, restart=-1), ValueError, "restart must be True, False or a count"),
        (lambda: WebSocket(WS, restart="no"), ValueError, "restart must be"),
        (lambda: WebSocket(WS, open_timeout=0), ValueError, "open_timeout must be seconds > 0"),
        (lambda: WebSocket(WS, open_timeout=True), ValueError, "open_timeout must be"),
        (lambda: WebSocket(WS, ping_interval=0), ValueError, "ping_interval must be seconds > 0"),
        (lambda: WebSocket(WS, ping_timeout=None), ValueError, "ping_timeout must be seconds > 0"),
        (lambda: WebSocket(WS, ping_timeout=float("inf")), ValueError, "ping_timeout must be"),
        (lambda: WebSocket(WS, close_timeout=-1), ValueError, "close_timeout must be seconds >= 0"),
        *(
            (
                lambda text=text: Http(HTTP, connect_to=text),
                ValueError,
                "is not an IP address and a port, such as 10.0.0.5:8000",
            )
            for text in ("h:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:x",
                         "127.0.0.1:65536", "127.0.0.1:-1", "::1:80", "[127.0.0.1]:80", "[::1]")
        ),
        (
            lambda: Socket("unix:/x", connect_to="127.0.0.1:80"),
            ValueError,
            "connect_to means nothing to unix:",
        ),
        (lambda: Http(5), TypeError, "url must be a string, not int"),
        (lambda: Http("ws://h"), ValueError, "https: and http.unix: URLs; ws: is for WebS"),
        (lambda: Http("unix:/x"), ValueError, "https: and http.unix: URLs; unix: is for So"),
        (lambda: Http("http://me:s3cret@h"), ValueError, "must not hold a user or password"),
        *(
            (
                lambda name=name: Http(HTTP, headers={name: "s3cret"}),
                ValueError,
                f"itself writes the header {name}",
            )
            for name in (
                "Host", "Accept", "Content-Type", "CONTENT-LENGTH", "Last-Event-ID", "Mcp-Name",
                "Mcp-Session-Id", "mcp-protocol-version", "Mcp-Method", "Transfer-Encoding",
                "Mcp-Param-X",
            )
        ),
        (lambda: Http(HTTP, token="s3 cret"), ValueError, "token has a space, a line break"),
        (lambda: Http(HTTP, ssl=ssl.create_default_context()), ValueError, "for https:// URLs"),
        (lambda: Http(HTTP, sse="no"), TypeError, "sse must be True or False"),
        (lambda: Http(HTTP, restart=-1), ValueError, "restart must be True, False or a count"),
        (lambda: Http(HTTP, max_connections=1), ValueError, "a count of at least 2, not 1"),
        (lambda: Http(HTTP, open_timeout=0), ValueError, "open_timeout must be seconds > 0"),
        (lambda: Http(HTTP, close_timeout=-1), ValueError, "close_timeout must be seconds >= 0"),
        (lambda: Socket(None), TypeError, "url must be a string, not NoneType"),
        (lambda: Socket("ws://h"), ValueError, "Socket takes unix: and tcp: URLs; ws: is for Web"),
        (lambda: Socket("tcp://h"), ValueError, "has no port"),
        (lambda: Socket("tcp://h:0"), ValueError, "has no port to connect to"),
        (lambda: Socket("unix:"), ValueError, "names no file"),
        (lambda: Socket("unix:/x", restart=-1), ValueError, "restart must be"),
        (lambda: Socket("unix:/x", open_timeout="1"), ValueError, "open_timeout must be"),
    ],
)  # fmt: skip
def test_bad_targets(make: Callable[[], Any], kind: type[Exception], expected: str) -> None:
    with pytest.raises(kind, match=expected) as caught:
        make()
    assert "s3c" not in str(caught.value)


def test_a_websocket_is_a_value() -> None:
    context = ssl.create_default_context()
    a = WebSocket(
        "wss://h/mcp?key=s3cret",
        headers={"X-Key": " s3cret "},
        token="s3cret",
        ssl=context,
        restart=True,
        ping_interval=None,
    )
    b = WebSocket(
        "wss://h/mcp?key=s3cret",
        headers={"X-Key": "s3cret"},
        token="s3cret",
        ssl=context,
        restart=RECONNECTS,
        ping_interval=None,
    )
    assert a == b and hash(a) == hash(b)
    assert a != WebSocket("wss://h/mcp?key=s3cret", token="s3cret")
    assert repr(a) == (
        "WebSocket('wss://h/mcp?…', headers=<X-Key>, token=<…>, ssl=<…>, restart=8, "
        "ping_interval=None)"
    )
    assert pretty_repr(a, max_width=1000) == repr(a)
    assert (a.url, a.where) == ("wss://h/mcp?key=s3cret", "wss://h/mcp")
    assert a.request_headers() == {"X-Key": "s3cret", "Authorization": "Bearer s3cret"}
    with pytest.raises(AttributeError):
        a.token = "z"  # type: ignore[misc]
    plain = WebSocket(WS, headers={"Origin": "https://h"})
    assert repr(plain) == "WebSocket('ws://h/mcp', headers=<Origin>)"
    assert plain.request_headers() == {"Origin": "https://h"}
    assert (plain.restart, plain.ping_interval, plain.close_timeout) == (None, 20.0, 5.0)
    assert WebSocket(WS, restart=False).restart == 0


def test_a_server_of_http_is_a_value() -> None:
    a, b = (Http("https://h/mcp?key=s3cret", token="s3cret", restart=True) for _ in range(2))
    assert a == b and hash(a) == hash(b) and a != Http("https://h/mcp?key=s3cret")
    assert repr(a) == "Http('https://h/mcp?…', token=<…>)"
    assert pretty_repr(a, max_width=1000) == repr(a)
    assert (a.where, a.restart, Http(HTTP, restart=False).restart) == ("https://h/mcp", 8, 0)
    assert a.request_headers() == {"Authorization": "Bearer s3cret"}


def test_a_socket_is_a_value() -> None:
    a, b = Socket("tcp://[::1]:9", restart=3), Socket("tcp://[::1]:9", restart=3)
    assert a == b and hash(a) == hash(b) and a != Socket("tcp://[::1]:9")
    assert repr(a) == "Socket('tcp://[::1]:9', restart=3)" and a.where == "tcp://[::1]:9"
    assert repr(Socket("unix:run/x", open_timeout=1)) == "Socket('unix:run/x', open_timeout=1.0)"


@every(
    ("url", "more", "exposed"),
    [
        ("ws://example.com", {"token": "t"}, True),
        ("ws://192.0.2.1", {"headers": {"Cookie": "t"}}, True),
        ("ws://192.0.2.1", {"headers": {"Authentication": "t"}}, True),
        ("ws://192.0.2.1", {"headers": {"X-Trace": "t"}}, False),
        ("ws://192.0.2.1", {}, False),
        ("wss://example.com", {"token": "t"}, False),
        ("http://example.com", {"token": "t"}, True),
        ("http://example.com", {"headers": {"X-Trace": "t"}}, False),
        ("http://127.0.0.1:80", {"token": "t"}, False),
        ("https://example.com", {"token": "t"}, False),
        ("ws://127.0.0.1:80", {"token": "t"}, False),
        ("ws://[::1]:80", {"token": "t"}, False),
        ("ws://LOCALHOST.", {"token": "t"}, False),
        ("ws://localhost.example.com", {"token": "t"}, True),
    ],
)
def test_credentials_in_the_clear(url: str, more: dict[str, Any], exposed: bool) -> None:
    kind = Http if url.startswith("http") else WebSocket
    assert kind(url, **more).exposed is exposed


def test_a_client_takes_urls() -> None:
    assert Client("http://h/mcp").target == Http("http://h/mcp")
    assert Client("HTTPS://h/server.py").target == Http("HTTPS://h/server.py")
    assert Client("ws://h/mcp").target == WebSocket("ws://h/mcp")
    assert Client("WSS://h/mcp").target == WebSocket("WSS://h/mcp")
    assert Client("unix:/x").target == Socket("unix:/x")
    assert Client("tcp://h:1").target == Socket("tcp://h:1")
    target = WebSocket("ws://h/mcp", token="s3cret")
    assert Client(target).target is target
    assert repr(Client(target)) == "<Client of WebSocket('ws://h/mcp', token=<…>): closed>"
    assert Client(Stdio("x")).target == Stdio("x")


@pytest.mark.parametrize("kind", [Http, WebSocket])
def test_a_client_takes_credentials_for_a_url(kind: type[Http | WebSocket]) -> None:
    url = f"{kind.SCHEMES[1]}://h/mcp"
    more: dict[str, Any] = {"headers": {"X-Key": "s3cret"}, "token": "s3cret"}
    assert Client(url, **more).target == kind(url, **more)
    for name, value in more.items():
        for target in (kind(url), Stdio("x"), "server.py", "unix:/x"):
            with pytest.raises((TypeError, ValueError)) as caught:
                Client(target, **{name: value})
            assert "s3cret" not in str(caught.value)
        with raises(TypeError):
            Client(kind(url), **{name: value})


@every(
    ("url", "expected"),
    [
        ("ftp://me:s3cret@h", "cannot connect to ftp://…: a target is a URL"),
        ("server.py", "there is no file server.py"),
        ("unix:", "names no file"),
        ("", "cannot connect to '': a target is a URL"),
        ("https:h", "has no host"),
        ("ws:h", "has no host"),
        ("tcp://h", "has no port"),
    ],
)
def test_what_no_client_connects_to(url: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as caught:
        Client(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", ":second"])
def test_a_client_serves_a_python_file(tmp_path: Path, name: str) -> None:
    file = tmp_path / "tools.py"
    file.write_text(
        "from wirespeed import Server\nserver, second = Server('first'), Server('second')\n"
    )
    target = f"{file}{name}" if name else file

    async def served() -> Any:
        async with Client(target) as client:
            return client.server_info

    assert asyncio.run(served())["name"] == (name[1:] or "first")
    assert Client(f"unix:{file}").target == Socket(f"unix:{file}")
