"""URLs: what each names, and what is refused without showing a secret."""

from __future__ import annotations

import pytest
from lab.rows import every
from lab.wording import raises

from wirespeed.transport.address import Address, is_loopback, parse


@every(
    ("url", "address", "text"),
    [
        ("ws://127.0.0.1:8765/mcp", Address("ws", "127.0.0.1", 8765, "/mcp"), None),
        ("ws://localhost", Address("ws", "localhost", 80, "/"), "ws://localhost/"),
        ("wss://Example.COM/", Address("wss", "example.com", 443, "/"), "wss://example.com/"),
        ("WS://h:0", Address("ws", "h", 0, "/"), "ws://h:0/"),
        ("wss://h:80/x", Address("wss", "h", 80, "/x"), "wss://h:80/x"),
        ("ws://[::1]:9/a/b", Address("ws", "::1", 9, "/a/b"), "ws://[::1]:9/a/b"),
        ("ws://[::1]", Address("ws", "::1", 80, "/"), "ws://[::1]/"),
        ("ws://h/p?token=s3cret", Address("ws", "h", 80, "/p", "token=s3cret"), "ws://h/p"),
        ("ws://h?a=b", Address("ws", "h", 80, "/", "a=b"), "ws://h/"),
        ("ws://h/ü?ö", Address("ws", "h", 80, "/%C3%BC", "%C3%B6"), "ws://h/%C3%BC"),
        ("ws://h/%20%2F", Address("ws", "h", 80, "/%20%2F"), "ws://h/%20%2F"),
        ("ws://bücher.example", Address("ws", "xn--bcher-kva.example", 80, "/"), None),
        ("http://h/mcp?a=b", Address("http", "h", 80, "/mcp", "a=b"), "http://h/mcp"),
        ("https://H:8443", Address("https", "h", 8443, "/"), "https://h:8443/"),
        ("HTTPS://[::1]/mcp", Address("https", "::1", 443, "/mcp"), "https://[::1]/mcp"),
        ("tcp://0.0.0.0:7000", Address("tcp", "0.0.0.0", 7000), "tcp://0.0.0.0:7000"),
        ("tcp://[::]:0/", Address("tcp", "::", 0), "tcp://[::]:0"),
        ("unix:/run/a b.sock", Address("unix", path="/run/a b.sock"), "unix:/run/a b.sock"),
        ("unix:rel/tools.sock", Address("unix", path="rel/tools.sock"), None),
        ("unix:///run/x", Address("unix", path="/run/x"), "unix:/run/x"),
    ],
)
def test_parse(url: str, address: Address, text: str | None) -> None:
    found = parse(url)
    assert found == address
    if text is not None:
        assert str(found) == text
        assert repr(found) == f"Address({text!r})"
    assert "s3cret" not in repr(found) + str(found)
    assert parse(str(found)) == Address(
        found.scheme, found.host, found.port, found.path
    )  # all but the query


def test_target_and_authority() -> None:
    assert parse("ws://h/p?a=b").target == "/p?a=b"
    assert parse("ws://h").target == "/"
    assert parse("ws://h:80").authority == "h"
    assert parse("wss://h:80").authority == "h:80"
    assert parse("ws://[::1]:1").authority == "[::1]:1"
    assert parse("wss://h").secure
    assert parse("http://h:80").authority == "h"
    assert parse("https://h:80").authority == "h:80"
    assert parse("https://h").secure
    assert not parse("http://h").secure
    assert parse("https://h").is_http
    assert not parse("wss://h").is_http
    assert not parse("https://h").is_websocket
    assert parse("ws://h").is_websocket
    assert not parse("tcp://h:1").is_websocket


@every(
    ("url", "words"),
    [
        ("", "use http[s]://"),
        ("mcp", "use http[s]://"),
        ("http:h", "no host"),
        ("https:///mcp", "no host"),
        ("https://user:s3cret@h/", "user or password"),
        ("ws:/h", "no host"),
        ("ws:h", "no host"),
        ("ws://", "0.0.0.0"),
        ("ws:///mcp", "0.0.0.0"),
        ("tcp://:90", "0.0.0.0"),
        ("tcp://h", "no port"),
        ("tcp://h:1/path", "neither path nor query"),
        ("tcp://h:1?q", "neither path nor query"),
        ("ws://h:x", "number from 0 to 65535"),
        ("ws://h:70000", "number from 0 to 65535"),
        ("ws://h:-1", "number from 0 to 65535"),
        ("ws://[::1", "host cannot be read"),
        ("ws://[::g]", "no"),
        ("ws://h/a#b", "fragment"),
        ("ws://h/a#", "fragment"),
        ("ws://h/a b", "space"),
        ("ws://h/\r\nX: y", "space"),
        ("ws://user:s3cret@h/", "user or password"),
        ("ws://s3cret@h:x/", ""),
        ("ws://h:x/p?s3cret", "number"),
        ("ws:h?s3cret", "no host"),
        ("ftp://u:s3cret@h/?s3cret", "use http[s]://"),
        ("ws://" + "ü" * 70 + ".example", "host name"),
        ("unix:", "no file"),
        ("unix:/", "no file"),
        ("unix:dir/", "no file"),
        ("unix://host/path", "host"),
        ("unix:/a\0b", "null"),
    ],
)
def test_refused(url: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(url)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_not_a_string() -> None:
    with raises(TypeError):
        parse(b"ws://h")  # type: ignore[arg-type]


@every(
    ("host", "local"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("a.b.localhost", True),
        ("127.0.0.1", True),
        ("127.255.0.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("0.0.0.0", False),
        ("localhost.example", False),
        ("notlocalhost", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_loopback(host: str, local: bool) -> None:
    assert is_loopback(host) == local
