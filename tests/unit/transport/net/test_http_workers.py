"""Sessions over HTTP with several workers: each request gets to the worker of its session."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import raw

from wirespeed import Server

PROGRAM = """
import os, signal, sys
from wirespeed import Context, HttpOptions, Server

server = Server("crew", shutdown_grace=20)

@server.tool
async def count(text: str, ctx: Context) -> str:
    ctx.session_state["n"] = ctx.session_state.get("n", 0) + 1
    return f"{os.getpid()} {ctx.session_state['n']} {len(text)}"

@server.tool
async def pid() -> str:
    return str(os.getpid())

@server.tool
async def die() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"

server.run(
    sys.argv[1],
    workers=int(sys.argv[2]),
    http=HttpOptions(sse_path="/sse", max_sessions_per_principal=5000),
    on_listening=lambda urls: print(*urls, flush=True),
)
print("ended", flush=True)
"""


@contextlib.contextmanager
def crew(n: int = 4, url: str = "http://127.0.0.1:0/mcp") -> Iterator[tuple[str, Any]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, str(n)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], raw.FOREVER)
        assert ready, "the program says nothing"
        place = process.stdout.readline().decode().strip()
        yield place.removeprefix("http://").partition("/")[0], process
    finally:
        process.kill()
        process.communicate()


class Session:
    """A session, each of whose requests has a connection of its own by default."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.fields = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        status, fields, _ = self.post(raw.initialize(0, "2025-11-25"))
        assert status == 200
        self.fields["Mcp-Session-Id"] = fields["mcp-session-id"]
        assert self.post(raw.notification("notifications/initialized"))[0] == 202

    def post(
        self, message: Any, over: http.client.HTTPConnection | None = None, chunked: bool = False
    ) -> tuple[int, Any, Any]:
        connection = over or http.client.HTTPConnection(self.host, timeout=raw.FOREVER)
        body = json.dumps(message).encode()
        parts: Any = iter([body[:10], body[10:]]) if chunked else body
        connection.request("POST", "/mcp", parts, self.fields, encode_chunked=chunked)
        response = connection.getresponse()
        text = response.read()
        if over is None:
            connection.close()
        return response.status, response.headers, json.loads(text) if text else None

    def count(self, text: str = "", **how: Any) -> tuple[str, int, int]:
        """The pid of the session's worker, the number of its calls, and the length of the text."""
        status, _, answer = self.post(raw.call(1, "count", {"text": text}), **how)
        assert status == 200, answer
        pid, n, length = answer["result"]["content"][0]["text"].split()
        return pid, int(n), int(length)


def test_a_thousand_sessions_of_four_workers() -> None:
    with crew() as (host, process):

        def hold(number: int) -> tuple[str, list[int]]:
            session = Session(host)
            found = [session.count() for _ in range(4)]
            assert len({pid for pid, _, _ in found}) == 1
            return found[0][0], [n for _, n, _ in found]

        with ThreadPoolExecutor(16) as pool:
            held = list(pool.map(hold, range(1000)))
        assert all(numbers == [1, 2, 3, 4] for _, numbers in held)
        assert len({pid for pid, _ in held}) == 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(raw.FOREVER) == 0


def test_one_connection_visits_all_workers() -> None:
    with crew() as (host, _):
        sessions = [Session(host) for _ in range(16)]
        over = http.client.HTTPConnection(host, timeout=raw.FOREVER)
        for turn in range(1, 4):
            pids = set()
            for session in sessions:
                pid, n, _ = session.count(over=over)
                assert n == turn
                pids.add(pid)
            assert len(pids) > 1
        over.close()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_is_passed_on_whole(chunked: bool) -> None:
    text = "x" * 5_000_000
    with crew() as (host, _):
        for session in [Session(host) for _ in range(6)]:
            for n in range(1, 4):
                assert session.count(text, chunked=chunked)[1:] == (n, len(text))


def test_requests_behind_one_that_is_passed_on() -> None:
    with crew() as (host, _):
        name, _, port = host.partition(":")
        for session in [Session(host) for _ in range(8)]:
            body = json.dumps(raw.call(1, "count", {"text": ""})).encode()
            lines = [f"{key}: {value}" for key, value in session.fields.items()]
            head = "\r\n".join(
                ["POST /mcp HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", *lines]
            )
            request = head.encode() + b"\r\n\r\n" + body
            with socket.create_connection((name, int(port)), raw.FOREVER) as sock:
                sock.sendall(3 * request)
                data = b""
                while data.count(b'"id":1') < 3:
                    more = sock.recv(65536)
                    assert more, data
                    data += more
            assert data.count(b"HTTP/1.1 200") == 3
            assert [f" {n} 0".encode() in data for n in (1, 2, 3)] == [True] * 3


def test_the_sessions_of_a_worker_end_with_it() -> None:
    with crew(2) as (host, _):
        sessions = [Session(host) for _ in range(8)]
        pids = [session.count()[0] for session in sessions]
        doomed = sessions[0]
        with contextlib.suppress(OSError, http.client.HTTPException):
            doomed.post(raw.call(1, "die", {}))
        for session, pid in zip(sessions, pids, strict=True):
            status = 0
            while status not in (200, 404):  # until another worker has replaced the dead one
                with contextlib.suppress(OSError, http.client.HTTPException):
                    status = session.post(raw.request(1, "ping"))[0]
            assert status == (404 if pid == pids[0] else 200)


def test_http_and_sse_with_workers() -> None:
    with crew() as (host, _):
        for _ in range(6):
            stream = http.client.HTTPConnection(host, timeout=raw.FOREVER)
            stream.request("GET", "/sse", headers={"Accept": "text/event-stream"})
            events = stream.getresponse()
            lines = [events.readline().decode().strip() for _ in range(3)]
            place = next(line for line in lines if line.startswith("data:")).partition(": ")[2]
            for message in (raw.initialize(0, "2024-11-05"), raw.call(1, "pid", {})):
                posts = http.client.HTTPConnection(host, timeout=raw.FOREVER)
                body = json.dumps(message)
                posts.request("POST", place, body, {"Content-Type": "application/json"})
                assert posts.getresponse().status == 202
                posts.close()
                while not (line := events.readline().decode()).startswith("data:"):
                    assert line
                assert json.loads(line.partition(": ")[2])["id"] == message["id"]
            stream.close()


def test_sessions_need_connections_that_can_be_passed_on() -> None:
    with pytest.raises(ValueError, match=r"https:// need HttpOptions\(stateless=True\)"):
        Server("x").run("https://127.0.0.1:0/mcp", workers=2, ssl=context())


def context() -> Any:
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
