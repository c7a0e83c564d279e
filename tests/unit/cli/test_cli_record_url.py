"""``wirespeed record`` at a URL: HTTP, WebSocket, sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab.cli import Serving, one_line, serving, wirespeed, wirespeed_each

from wirespeed import Client, Context, Server, serve
from wirespeed.bench.tap_file import RecordedMessage, read_record

HOST = "127.0.0.1"


@asynccontextmanager
async def served(url: str, server: Server) -> AsyncIterator[str]:
    """The URL at which a server listens."""
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(
        serve(url, server, on_listening=lambda urls: listening.set_result(urls[0]))
    )
    await asyncio.wait((listening, task), return_when=asyncio.FIRST_COMPLETED)
    try:
        yield listening.result()
    finally:
        task.cancel()
        await asyncio.wait((task,))


@contextmanager
def tapped(to: str, listen: str, *options: str) -> Iterator[tuple[Serving, str]]:
    """A tap before a server, and its URL."""
    args = ("--listen", listen, "--to", to, *options)
    with serving(*args, command="record") as running:
        yield running, running.line(r" on (\S+?);")[1]


def messages(path: Path) -> list[RecordedMessage]:
    return read_record(str(path))[1]


KINDS = {
    "http": (f"http://{HOST}:0/mcp", f"http://{HOST}:0/other"),
    "websocket": (f"ws://{HOST}:0/mcp", f"ws://{HOST}:0/mcp"),
    "sockets": (f"tcp://{HOST}:0", "unix:tap.sock"),
}


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_passes_is_written(
    kind: str, era: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "r"
    on, listen = KINDS[kind]
    server = Server("s")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def counts(n: int, ctx: Context) -> int:
        for number in range(n):
            ctx.progress(number + 1, total=n)
            await asyncio.sleep(0)
        return n

    async with served(on, server) as to:
        with tapped(to, listen, "-o", str(path)) as (running, url):
            seen: list[float] = []
            async with Client(url, era=era) as client:
                texts = [f"{n} ä" for n in range(20)]
                each = (client.call_tool("echo", {"text": text}) for text in texts)
                assert [result.text for result in await asyncio.gather(*each)] == texts
                await client.call_tool(
                    "counts", {"n": 3}, on_progress=lambda done, *_: seen.append(done)
                )
            assert seen == [1, 2, 3]
            assert await asyncio.to_thread(running.end) == 0
    found = messages(path)
    asked = [json.loads(m.data) for m in found if m.sender == "client"]
    said = [json.loads(m.data) for m in found if m.sender == "server"]
    calls = [m["params"]["arguments"] for m in asked if m.get("method") == "tools/call"]
    assert calls[-1] == {"n": 3}
    # over HTTP requests that are sent together come in any order
    assert sorted(calls[:-1], key=repr) == sorted(({"text": text} for text in texts), key=repr)
    progress = [m for m in said if m.get("method") == "notifications/progress"]
    assert [m["params"]["progress"] for m in progress] == [1, 2, 3]
    assert {m["id"] for m in asked if "id" in m} == {m["id"] for m in said if "id" in m}
    if era == "legacy":
        assert {m.connection for m in found} == {1}


async def test_a_response_that_is_closed_cancels_behind_the_tap(tmp_path: Path) -> None:
    server = Server("s")
    started, cancelled = asyncio.Event(), asyncio.Event()

    @server.tool
    async def waits() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    async with served(f"http://{HOST}:0/mcp", server) as to:
        with tapped(to, f"http://{HOST}:0/mcp", "-o", str(tmp_path / "r")) as (_, url):
            async with Client(url, era="modern") as client:
                call = asyncio.ensure_future(client.call_tool("waits"))
                await started.wait()
                call.cancel()
                await cancelled.wait()


# -- bytes -----------------------------------------------------------------------------------------


class Scripted:
    """A server of HTTP that answers each connection with the next script, and keeps what came."""

    def __init__(self, *scripts: list[bytes]) -> None:
        self._socket = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}/mcp"
        self.came: list[bytes] = []
        self.closed = threading.Event()
        self._scripts = list(scripts)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        for script in self._scripts:
            connection, _ = self._socket.accept()
            with connection, contextlib.suppress(ConnectionError):
                for answer in script:
                    data = b""
                    while b"\r\n\r\n" not in data or not data.endswith((b"}", b"\n")):
                        if not (more := connection.recv(65536)):
                            break
                        data += more
                    self.came.append(data)
                    connection.sendall(answer)
                if not connection.recv(1):
                    self.closed.set()

    def close(self) -> None:
        self._socket.close()


def exchange(url: str, *requests: bytes, until: bytes) -> bytes:
    """What a connection says, up to some bytes."""
    port = int(url.rpartition(":")[2].partition("/")[0])
    found = b""
    with socket.create_connection((HOST, port)) as connection:
        connection.settimeout(30)
        for request in requests:
            connection.sendall(request)
        while until not in found and (more := connection.recv(65536)):
            found += more
    return found


CALL = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a"} }'
POST = (
    b"POST /mcp?key=q1 HTTP/1.1\r\nHost: tap.example\r\nAuthorization: Bearer s1\r\n"
    b"Cookie: s2\r\nMcp-Session-Id: s3\r\nDPoP: s4\r\nX-Odd: \xe4\r\nAccept-Encoding: gzip\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(CALL), CALL)
)
RESULT = b'{"jsonrpc":"2.0","id":1,\n "result":{}}'


def test_bytes_of_bodies_and_heads_pass_and_no_secret_is_written(tmp_path: Path) -> None:
    events = b': hi\r\n\r\nid: 7\r\nevent: message\r\ndata: {"jsonrpc":"2.0",\r\n'
    events += b'data: "method":"n"}\r\n\r\n'
    token = b'{"access_token":"s5","token_type":"Bearer"}'
    responses = [
        b"HTTP/1.1 200 Fine\r\nContent-Type: application/json\r\nSet-Cookie: s6\r\n"
        b"Mcp-Session-Id: s3\r\nContent-Length: %d\r\n\r\n%b" % (len(RESULT), RESULT),
        b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(events), events),
        b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(token), token),
        b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST\r\nConnection: close\r\n\r\nuntil the end",
    ]  # fmt: skip
    server, path = Scripted(responses), tmp_path / "r"
    requests = [
        POST, POST, POST.replace(b"/mcp?key=q1", b"/mcp"), POST,
        b"POST /token HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\ncode=}",
        b"DELETE /mcp HTTP/1.1\r\nHost: h\r\nMcp-Session-Id: s3\r\n\r\n",
    ]  # fmt: skip
    to = f"{server.url}?token=q2"
    with tapped(to, f"http://{HOST}:0/mcp", "-o", str(path)) as (_, url):
        assert exchange(url, *requests, until=b"until the end") == b"".join(responses)
    server.close()
    first = server.came[0]
    assert first.startswith(b"POST /mcp?token=q2&key=q1 HTTP/1.1\r\n") and first.endswith(CALL)
    assert b"Authorization: Bearer s1\r\n" in first and b"X-Odd: \xe4\r\n" in first
    assert b"Host: " + server.url[7:-4].encode() in first and b"gzip" not in first
    assert server.came[-1].startswith(b"DELETE /mcp?token=q2 HTTP/1.1\r\n")
    text = path.read_text()
    for secret in ("s1", "s2", "s3", "s4", "s5", "s6", "q1", "q2", "code="):
        assert secret not in text.replace(str(tmp_path), "")
    assert [m.data for m in messages(path)] == [
        *(CALL, RESULT, CALL, CALL, b'{"jsonrpc":"2.0",\n"method":"n"}', CALL),
    ]  # fmt: skip


def test_a_stream_is_not_delayed() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    server = Scripted([head + b"data: 1\n\ndata: half"])
    with tapped(server.url, f"http://{HOST}:0/mcp", "--fault", "drop=0") as (_, url):
        assert exchange(url, POST, until=b"data: 1\n\n").endswith(b"data: 1\n\n")
        assert server.closed.wait(30)  # the client has left
    server.close()


@pytest.mark.parametrize("fault", [(), ("--fault", "delay=1ms")])
def test_a_client_that_does_not_read_stops_the_server(
    fault: tuple[str, ...], tmp_path: Path
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    event = b'data: {"jsonrpc":"2.0","method":"%b"}\n\n' % (b"m" * 65536)
    with socket.create_server((HOST, 0)) as listener:
        to = f"http://{HOST}:{listener.getsockname()[1]}/mcp"
        options = ("-o", str(tmp_path / "r"), *fault)
        with tapped(to, f"http://{HOST}:0/mcp", *options) as (_, url):
            port = int(url.rpartition(":")[2].partition("/")[0])
            with socket.create_connection((HOST, port)) as client:
                client.sendall(POST)
                server, _ = listener.accept()
                with server:
                    server.settimeout(1)
                    sent = server.send(head)
                    with contextlib.suppress(TimeoutError):
                        while sent < 64 * 2**20:
                            sent += server.send(event)
    assert sent < 32 * 2**20


def one_response() -> Scripted:
    return Scripted([b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(RESULT), RESULT)])


def test_a_response_that_is_dropped_never_comes() -> None:
    server = one_response()
    with tapped(server.url, f"http://{HOST}:0/mcp", "--fault", "drop=1") as (running, url):
        port = int(url.rpartition(":")[2].partition("/")[0])
        with socket.create_connection((HOST, port)) as connection:
            connection.sendall(POST)
            connection.settimeout(0.5)
            with pytest.raises(TimeoutError):
                connection.recv(1)
        running.end()
        assert running.lines[-1] == "wirespeed: messages: 1 dropped"
    server.close()


def test_a_request_that_is_cut_arrives_in_part() -> None:
    server = one_response()
    with tapped(server.url, f"http://{HOST}:0/mcp", "--fault", "cut=1") as (running, url):
        assert exchange(url, POST, until=b"nothing") == b""
        server.thread.join(30)
        assert b"\r\n\r\n" in server.came[0] and not server.came[0].endswith(CALL)
        running.end()
        assert running.lines[-1] == "wirespeed: messages: 1 cut"
    server.close()


def test_a_request_is_sent_twice_and_answered_once() -> None:
    response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(RESULT), RESULT)
    server = Scripted([response], [response])
    with tapped(server.url, f"http://{HOST}:0/mcp", "--fault", "duplicate=1") as (running, url):
        assert exchange(url, POST, until=RESULT) == response
        running.end()
        assert running.lines[-1] == "wirespeed: messages: 1 passed, 1 passed twice"
    server.thread.join(30)
    server.close()
    assert len(server.came) == 2 and all(one.endswith(CALL) for one in server.came)


def test_a_server_that_is_not_there() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    with tapped(f"http://{HOST}:{port}/mcp", f"http://{HOST}:0/mcp", "--fault", "drop=0") as (
        running, url,
    ):  # fmt: skip
        assert exchange(url, POST, until=b"\r\n\r\n").startswith(b"HTTP/1.1 502 ")
        running.line(rf"cannot connect to http://{HOST}:{port}/mcp: connection refused")


def test_wrong_lines(tmp_path: Path) -> None:
    record = ("record", "-o", str(tmp_path / "r"))
    http, ws = "http://127.0.0.1:1/mcp", "ws://127.0.0.1:1/mcp"
    lines = {
        (*record, "--listen", http): "give -- COMMAND, or --listen URL and --to URL",
        (*record, "--to", http): "give -- COMMAND, or --listen URL and --to URL",
        (*record, "--to", http, "--", "x"): "give -- COMMAND, or --listen URL and --to URL, not b",
        (*record, "--listen", "x", "--to", http): "--listen: 'x' is not a URL",
        (*record, "--listen", http, "--to", "x"): "--to: 'x' is not a URL",
        (*record, "--listen", http, "--to", ws): "--to ws://127.0.0.1:1/mcp: what http: speaks",
        (*record, "--listen", "https://h/", "--to", http): "--listen https://h/: the tap has no",
    }
    for line, done in wirespeed_each(lines, tmp_path).items():
        assert done.returncode == 2, line
        assert one_line(done).startswith(lines[line])
    done = wirespeed(*record, "--listen", "unix:/no/such/dir/s", "--to", "tcp://h:1")
    assert done.returncode == 3
    assert one_line(done).startswith("cannot listen at unix:/no/such/dir/s: ")
