"""``WIRESPEED_TRACE=1``: a line on stderr for each message, without secrets; stdout stays as is."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.rows import every
from wire_recorder import Recorder

from wirespeed import Client, Http, Server, Socket, Stdio, WebSocket
from wirespeed._core.wire import set_tap
from wirespeed.auth.client import tokens
from wirespeed.litemcp import LiteClient, LiteServer
from wirespeed.transport import wire_trace
from wirespeed.transport.wire_trace import (
    KEPT_BYTES,
    SHOWN_CHARACTERS,
    WireTrace,
    is_secret,
    masked,
)

LINE = re.compile(r"trace \d\d:\d\d:\d\d\.\d{6} (\d+) (client|server|peer)#(\d+) (<-|->) (.+)\n")
SECRET = "Xk29-do-not-show"
TOKEN = "Xk29-do-not-show-this-token"
NESTED = r'{"a":"{\"b\":\"{\\\"token\\\":\\\"…\\\"}\"}"}'


@pytest.fixture
def lines(recorder: Recorder) -> Iterator[list[str]]:
    """The lines of all connections that a test makes."""
    written: list[str] = []
    set_tap(WireTrace(written.append))
    yield written
    set_tap(None)
    assert all(LINE.fullmatch(line) for line in written)
    assert not [line for line in written if SECRET in line]


def told(lines: list[str], side: str, arrow: str) -> list[str]:
    """Return the messages that the connections of a side have sent or received."""
    found = [LINE.fullmatch(line) for line in lines]
    return [line[5] for line in found if line is not None and (line[2], line[4]) == (side, arrow)]


def login() -> Server:
    server = Server("login")

    @server.tool
    async def log_in(user: str, password: str) -> dict[str, str]:
        return {"user": user, "access_token": password}

    return server


# -- secrets ---------------------------------------------------------------------------------------


@every(
    "name",
    [
        *tokens._SECRET, "access_token", "accessToken", "API-Key", "api_key", "apiKey",
        "Authorization", "client_secret", "Cookie", "credentials", "DPoP", "Mcp-Param-Token",
        "Mcp-Session-Id", "password", "Proxy-Authorization", "pwd", "refresh_token", "requestState",
        "sessionId", "Set-Cookie", "X-API-Key", "pass\\u0077ord", "pass", "DB_PASS", "passcode",
        "pin",
        "otp", "auth", "bearer", "key", "signature", "X-Hub-Signature-256", "device_code",
        "client_assertion", "user[password]", "p%61ssword", "password_endpoint",
        "tokens_supported", "secretExpiresIn",
    ],
)  # fmt: skip
def test_secrets_by_name(name: str) -> None:
    if name == "code":  # of a form: in JSON it is the code of an error
        return
    written = masked(json.dumps({"a": 1, "b": {"c": SECRET}}).replace('"c"', f'"{name}"'))
    assert json.loads(written) == {"a": 1, "b": {json.loads(f'"{name}"'): "…"}}


@every(
    "name",
    [
        "progressToken", "token_endpoint", "token_type", "cursor", "nextCursor", "code", "id",
        "Mcp-Method", "Mcp-Name", "WWW-Authenticate", "authorization_servers", "traceparent",
        "token_endpoint_auth_methods_supported", "client_secret_expires_at", "state", "keys",
        "monkey",
        "author", "compass", "spin",
    ],
)  # fmt: skip
def test_names_that_are_shown(name: str) -> None:
    assert not is_secret(name)
    text = json.dumps({name: "shown"})
    assert masked(text) == text


@every(
    ("text", "shown"),
    [
        ('{"token":null,"maxTokens":100,"secret":true}', None),
        ('{"token":["a","}"],"b":{"pwd":{"c":"]"}},"d":1}', '{"token":"…","b":{"pwd":"…"},"d":1}'),
        ('{"token" : 17, "b":2}', '{"token":"…","b":2}'),
        ('{"a":"a \\"token\\": \\"b\\" c"}', '{"a":"a \\"token\\": \\"…\\" c"}'),
        (json.dumps({"a": json.dumps({"b": json.dumps({"token": 1})})}), NESTED),
        ('{"a":1,"token":"cut he', '{"a":1,"token":"…"'),
        ('{"a":1,"token":{"b":"c\\', '{"a":1,"token":"…"'),
        ('{"a":"{\\"token\\":\\"cut\\', '{"a":"{\\"token\\":\\"…\\"'),
        ("https://u:pass@host/a?page=2&access_token=b#c", "https://u:…@host/a?page=2&access_token=…"),
        ("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer …"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln", "…"),
        ("grant_type=x&refresh_token=abc&b=c", "grant_type=x&refresh_token=…&b=c"),
        ('{"method":"a","params":[[["token",":"]]]}', '{"method":"a","params":[[["token","…"]]]}'),
        ('{"method":"a","params":[["token",":","a"], {"b":1.50}]}', None),
        # parameters
        ("grant_type=x&code=abc&code_verifier=abc", "grant_type=x&code=…&code_verifier=…"),
        ("code=abc&client_assertion=abc&assertion=a", "code=…&client_assertion=…&assertion=…"),
        ("GET /callback?code=abc&state=s HTTP/1.1", "GET /callback?code=…&state=s HTTP/1.1"),
        ('{"error":{"code":-3,"message":"code=a"}}', '{"error":{"code":-3,"message":"code=…"}}'),
        ('{"error":{"code":-32602,"message":"a code=5"}}', None),
        ("user[password]=hunter2&user%5Bpin%5D=1&a=b", "user[password]=…&user%5Bpin%5D=…&a=b"),
        # escapes
        (r'{"a":"Use\nBearer abcdefghijkl"}', r'{"a":"Use\nBearer …"}'),
        (r'{"a":"\npwd=hunter2\tjwt=hunter2"}', r'{"a":"\npwd=…\tjwt=…"}'),
        (r'{"a":"postgres:\/\/user:hunter2@db"}', '{"a":"postgres://user:…@db"}'),
        (r'{"a":"\u0042earer abcdefghijkl"}', '{"a":"Bearer …"}'),
        (r"a \npwd=hunter2 \tBearer abcdefghijkl", r"a \npwd=… \tBearer …"),
        # quoted values, and names of which the value is on the same line
        ('password="hunter2 and 3" a', 'password="…" a'),
        ("password = 'hunter2 \\' and 3' a", "password = '…' a"),
        ("export OPENAI_API_KEY=\"sk-a b\"; a", "export OPENAI_API_KEY=\"…\"; a"),
        ("{'password': 'hunter2', 'a': 1}", "{'password': '…', 'a': 1}"),
        ("if password == 'hunter2':", "if password == '…':"),
        ("a\n  Cookie: a=b; c=d\npassword: hunter2 3\nb", "a\n  Cookie: …\npassword: …\nb"),
        ("curl -H 'X-Api-Key: a b' c", "curl -H 'X-Api-Key: …"),
        ("my password: hunter2 a", "my password: … a"),
        ('tokens = ["a", "b c"]\nd', "tokens = …\nd"),
        ('log "token": {"a":\n1} b', 'log "token": "…"'),
        # a name and a value apart
        ('{"a":{"name":"password","value":"a"}}', '{"a":{"name":"password","value":"…"}}'),
        ('{"name":"OPENAI_API_KEY","value":["a"]}', '{"name":"OPENAI_API_KEY","value":"…"}'),
        ('{"Key":"PASSWORD","Value":"a"}', '{"Key":"PASSWORD","Value":"…"}'),
        ('{"key":"a","value":"b","name":"c"}', None),
        ('[["Cookie","sid=a"],["Accept","b"]]', '[["Cookie","…"],["Accept","b"]]'),
        ('["run","--token","abc","x"]', '["run","--token","…","x"]'),
        # quotation marks that are no string's
        (r'{"a":"5\" disk {\"password\": \"b\"}"}', r'{"a":"5\" disk {\"password\": \"…\"}"}'),
        (r'log " {\"password\": \"a\\\" b\", \"c\": 1}', r'log " {\"password\": \"…\", \"c\": 1}'),
        ('{"a":"Bearer abcdefghijkl","a":1}', '{"a":"Bearer …","a":1}'),
        ('{"eyJhbGciOiJI.eyJzdWI.c2ln":1}', '{"…":1}'),
        # URLs
        ("https://abcdef@host/a", "https://…@host/a"),
        ("postgres://user:a/b@c@db/d a@b", "postgres://user:…@db/d a@b"),
        ("https://host/@scope/a?b=c@d", None),
    ],
)  # fmt: skip
def test_secrets_in_texts(text: str, shown: str | None) -> None:
    assert masked(text) == (text if shown is None else shown)


def test_any_text_can_be_masked() -> None:
    for text in ("\\", '\\"', "//x:", "[", '{"a":', "[1,", "token=", 'token="', " ", "Bearer "):
        masked(text * ((1 << 16) // len(text)))  # in a moment: no search starts again and again
    for text in ('"', '"\\', '""token":', '{"token":', "]}", '{"token":]}', '"\\u12', '"token":"'):
        assert isinstance(masked(text), str)
    deep = '{"a":' * 500 + '{"token":' + "[" * 500
    assert masked(deep) == '{"a":' * 500 + '{"token":"…"'


# -- messages --------------------------------------------------------------------------------------

LONG = b'"' + b"x" * (SHOWN_CHARACTERS + 10) + b'"'
REQUESTS = (
    b"GET /a?token=b HTTP/1.1\r\nCookie: c\r\n\r\n"
    b'POST / HTTP/1.1\r\nAuthorization: x\r\nContent-Length: 14\r\n\r\n{"password":1}'
)
ODD_HEADS = (
    b"\r\nGET /a HTTP/1.1\r\nCookie: a\r\nX-Api-Key: a\r\n\r\n"
    b"get /callback?code=1&a=b HTTP/1.1\r\nCookie:\r\n sid=a\r\n\tb\r\n\r\n"
    b"M-SEARCH * HTTP/1.1\r\nMcp-Session-Id: a\r\na: b\nAuthorization : Basic a\r\nCookie a\r\n\r\n"
    b"HTTP/1.1 302 Found\r\nLocation: http://a/b?code=1&c=d\r\nContent-Length: 0\r\n\r\n"
)
RESPONSE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'1e\r\nid: 1\r\ndata: {"token":"b"}\r\n\r\n0\r\n\r\n'
    b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nSet-Cookie: a=b\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\n"  # of HEAD
    b"HTTP/1.1 404 Not Found\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\ndata: 2\n\n"
)
BROKEN_LINES = b': a\ndata: {"token":\r\ndata: "b"}\r\n\r\n{"token":\n"a"}\n\n{"token":\n\n'
STREAMS = [
    (wire_trace._Lines, b'{"a":1}\n\r\n' + LONG + b'\r\n\xff\x1b\n{"cut', [
        '{"a":1}', f'"{"x" * (SHOWN_CHARACTERS - 1)}… ({len(LONG) + 1} bytes)', "\\xff\\x1b",
    ]),
    (wire_trace._Events, b"a\nb\n\n\n\nc\n\nd", ["a b", "c"]),
    (wire_trace._Events, BROKEN_LINES, [
        ': a data: {"token":"…"}', '{"token":"…"}', "(9 bytes that are not JSON)",
    ]),
    (wire_trace._Blocks, b'\n{"token":\n\n"a"}\r\n\n\n\nb\nc\n\n\nd', ['{"token":"…"}', "b c"]),
    (wire_trace._Lines, b'{"password":"a",}\n[INFO] a\n{"a":"' + b"x" * KEPT_BYTES + b'"}\n', [
        "(17 bytes that are not JSON)", "[INFO] a",
        f"({KEPT_BYTES + 8} bytes, too many to be masked)",
    ]),
    (wire_trace._Lines, b'{"token":"' + b"x" * 9000 + b'"}\n', ['{"token":"…"}']),
    (wire_trace._Http, REQUESTS, [
        "GET /a?token=… HTTP/1.1 | Cookie: …",
        "POST / HTTP/1.1 | Authorization: … | Content-Length: 14",
        '{"password":"…"}',
    ]),
    (wire_trace._Http, ODD_HEADS, [
        "GET /a HTTP/1.1 | Cookie: … | X-Api-Key: …",
        "get /callback?code=…&a=b HTTP/1.1 | Cookie: …",
        "M-SEARCH * HTTP/1.1 | Mcp-Session-Id: … | a: b | Authorization: … | …",
        "HTTP/1.1 302 Found | Location: http://a/b?code=…&c=d | Content-Length: 0",
    ]),
    (wire_trace._Http, RESPONSE, [
        "HTTP/1.1 200 OK | Content-Type: text/event-stream | Transfer-Encoding: chunked",
        'id: 1 data: {"token":"…"}',
        "HTTP/1.1 202 Accepted | Content-Length: 0 | Set-Cookie: …",
        "HTTP/1.1 200 OK | Content-Length: 70",
        "HTTP/1.1 404 Not Found | Content-Encoding: gzip | Content-Length: 3", "(3 bytes, gzip)",
        "HTTP/1.1 200 OK | Content-Type: text/event-stream", "data: 1", "data: 2",
    ]),
    (wire_trace._WebSocket, b"\x01\x03abc\x80\x02de\x89\x00\x82\x81\1\2\3\4`\x88\x05\x03\xe8bye",
     ["abcde", "ping", "a", "close 1000 bye"]),
]  # fmt: skip


@every(("reader", "stream", "shown"), STREAMS)
def test_messages_of_streams(reader: Any, stream: bytes, shown: list[str]) -> None:
    assert list(reader().feed(stream)) == shown
    bytewise = reader()
    found = [text for byte in stream for text in bytewise.feed(bytes([byte]))]
    assert found == shown


@every(
    ("piece", "shown"),
    [
        (b'{"a":1,"token":"b"}\n', '{"a":1,"token":"…"}'),
        (b'id: 1\ndata: {"token":"b"}\n\ndata: 2\r\n\r\n', 'id: 1 data: {"token":"…"}|data: 2'),
        (b'{"a":1,"token":"b', "(17 bytes, a part of a message)"),
        (b'cd"}', "(4 bytes, a part of a message)"),
        (b'cd"}\n\n', "(6 bytes, a part of a message)"),
        (b'"cd"', "(4 bytes, a part of a message)"),
        (b"data: a", "(7 bytes, a part of a message)"),
        (b"GET / HTTP/1.1\r\na: " + b"x" * KEPT_BYTES, "(262163 bytes, a part of a message)"),
        (b"Cookie a\r\nCookie: b\r\n\r\n", "(23 bytes, a part of a message)"),
        (b"internal error\n", "(15 bytes, a part of a message)"),
    ],
)
def test_parts_of_messages(piece: bytes, shown: str) -> None:
    """A part may end or begin inside a secret. Below `asgi()` a body has no head before it."""
    assert "|".join(wire_trace._Http().feed(piece)) == shown
    assert "|".join(wire_trace._Pieces().feed(piece)) == shown


# -- connections -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "http, with a session", "ws", "ws, compressed", "unix"])
async def test_each_transport(lines: list[str], tmp_path: Path, scheme: str) -> None:
    compression = "compressed" in scheme
    scheme, _, way = scheme.partition(", ")
    url = f"unix:{tmp_path}/s" if scheme == "unix" else f"{scheme}://127.0.0.1:0/mcp"
    options: dict[str, Any] = {} if scheme == "unix" else {"token": TOKEN}
    if scheme == "ws":
        options["compression"] = compression
    listening: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(login().serve(url, on_listening=listening.set_result, **options))
    (place,) = await listening
    legacy: dict[str, Any] = {"era": "legacy"} if way == "with a session" else {}
    target: Any
    if scheme == "http":
        target = Http(place, token=TOKEN)
    elif scheme == "ws":
        target = WebSocket(place, token=TOKEN, compression=compression)
    else:
        target = Socket(place)
    async with Client(target, **legacy) as client:
        result = await client.call_tool("log_in", {"user": "Ann", "password": SECRET})
    assert result.data == {"user": "Ann", "access_token": SECRET}
    server.cancel()
    await asyncio.gather(server, return_exceptions=True)
    assert not [line for line in lines if "not traced" in line]
    for side, arrow in (("client", "->"), ("server", "<-")):
        (call,) = [text for text in told(lines, side, arrow) if '"tools/call"' in text]
        assert '"arguments":{"user":"Ann","password":"…"}' in call
    for side, arrow in (("server", "->"), ("client", "<-")):
        (answer,) = [text for text in told(lines, side, arrow) if "structuredContent" in text]
        assert '"structuredContent":{"user":"Ann","access_token":"…"}' in answer
    if scheme == "http":
        heads = [text for text in told(lines, "server", "<-") if text.startswith("POST /mcp ")]
        assert all(" | Authorization: … | " in head for head in heads) and len(heads) > 1


async def test_litemcp(lines: list[str], tmp_path: Path) -> None:
    lite = LiteServer()

    @lite.tool
    async def shout(text: str) -> str:
        return text.upper()

    listening: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(
        lite.serve(f"unix:{tmp_path}/s", on_listening=listening.set_result)
    )
    (place,) = await listening
    async with LiteClient(Socket(place)) as client:
        await client.call("hello")
    server.cancel()
    await asyncio.gather(server, return_exceptions=True)
    assert len(told(lines, "peer", "->")) == len(told(lines, "peer", "<-")) > 0


async def test_one_fault_of_the_trace_is_not_one_of_the_connection(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, data: bytes) -> Iterator[str]:
        raise KeyError("a")

    monkeypatch.setattr(wire_trace._Lines, "feed", fail)
    async with Client(login()) as client:
        await client.call_tool("log_in", {"user": "Ann", "password": SECRET})
    assert len(lines) == 2  # one for each side
    assert all("(not traced from here on: KeyError)" in line for line in lines)


PROGRAM = """
from wirespeed import Server

server = Server("login")


@server.tool
async def log_in(user: str, password: str) -> str:
    print("printed")
    return password


server.run()
"""


def run(*command: str, text: str = "", trace: str | None = "1") -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "WIRESPEED_TRACE"}
    if trace is not None:
        environ["WIRESPEED_TRACE"] = trace
    return subprocess.run(
        [sys.executable, *command],
        input=text,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_stdio_server(tmp_path: Path) -> None:
    """The trace is on stderr alone: stdout has the same bytes as without it."""
    (tmp_path / "server.py").write_text(PROGRAM)
    call = {"name": "log_in", "arguments": {"user": "Ann", "password": SECRET}}
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    asked = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in asked)
    traced = run(str(tmp_path / "server.py"), text=text)
    plain = run(str(tmp_path / "server.py"), text=text, trace=None)
    assert traced.stdout == plain.stdout
    assert [json.loads(line)["id"] for line in traced.stdout.splitlines()] == [1, 2]
    assert plain.stderr == "printed\n"
    lines = [line for line in traced.stderr.splitlines(keepends=True) if line != "printed\n"]
    assert len(told(lines, "server", "<-")) == len(asked)
    assert len(told(lines, "server", "->")) == 2
    assert '"password":"…"' in traced.stderr


@pytest.mark.own_environment
async def test_client_of_a_child(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(PROGRAM)
    command = Stdio(
        sys.executable, [str(tmp_path / "server.py")], stderr="discard", inherit_env=True
    )
    async with Client(command) as client:
        await client.call_tool("log_in", {"user": "Ann", "password": "Xk29"})
    assert any('"tools/call"' in text for text in told(lines, "client", "->"))


@pytest.mark.parametrize("trace", [None, "", "0"])
def test_off_by_default(trace: str | None) -> None:
    code = (
        "import sys, wirespeed.transport.link; print(any('wire_trace' in m for m in sys.modules))"
    )
    assert run("-c", code, trace=trace).stdout == "False\n"
    assert run("-c", code).stdout == "True\n"
