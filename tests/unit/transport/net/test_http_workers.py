"""Sessions over HTTP with several workers: each request gets to the worker of its session.

A plain connection is passed on to that worker. The bytes of a connection of TLS are relayed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from lab import raw

from wirespeed.protocol import codes

Crew: TypeAlias = Callable[..., Any]

PROGRAM = """
import asyncio, os, signal, ssl, sys
from wirespeed import Context, HttpOptions, Server

server = Server("crew", shutdown_grace=float(sys.argv[3]))

@server.tool
async def count(text: str, ctx: Context) -> str:
    ctx.session_state["n"] = ctx.session_state.get("n", 0) + 1
    return f"{os.getpid()} {ctx.session_state['n']} {len(text)}"

@server.tool
async def pid() -> str:
    return str(os.getpid())

@server.tool
async def peer(ctx: Context) -> str:
    return ctx.peer

@server.tool
async def text(n: int) -> str:
    return n * "x"

@server.tool
async def nap() -> str:
    os.write(1, b"napping\\n")
    await asyncio.sleep(0.5)
    return "rested"

@server.tool
async def die() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"

context = None
if sys.argv[4:]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*sys.argv[4:])
    context.load_verify_locations(sys.argv[4])
    context.verify_mode = ssl.CERT_OPTIONAL

def know(request):
    return "one with a certificate" if request.certificate else True

server.run(
    sys.argv[1],
    workers=int(sys.argv[2]),
    ssl=context,
    authenticate=know,
    close_timeout=1,
    http=HttpOptions(sse_path="/sse", max_sessions_per_principal=5000),
    on_listening=lambda urls: print(*urls, flush=True),
)
print("ended", flush=True)
"""


class Program:
    """The program above."""

    def __init__(self, process: subprocess.Popen[bytes], trust: ssl.SSLContext | None) -> None:
        self.process = process
        self.trust = trust
        self.host = self.line().partition("://")[2].partition("/")[0]

    def line(self) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], raw.FOREVER)
        assert ready, "the program says nothing"
        return self.process.stdout.readline().decode().strip()

    def connect(self) -> http.client.HTTPConnection:
        if self.trust is None:
            return http.client.HTTPConnection(self.host, timeout=raw.FOREVER)
        return http.client.HTTPSConnection(self.host, timeout=raw.FOREVER, context=self.trust)

    def open_socket(self) -> socket.socket:
        name, _, port = self.host.partition(":")
        sock = socket.create_connection((name, int(port)), raw.FOREVER)
        return sock if self.trust is None else self.trust.wrap_socket(sock, server_hostname=name)

    def descriptors(self) -> dict[str, int]:
        """The number of descriptors of each worker, by its pid."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {child: len(list(Path(f"/proc/{child}/fd").iterdir())) for child in children}

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + raw.FOREVER
        while not condition():
            assert time.monotonic() < deadline, self.descriptors()
            time.sleep(0.05)

    def settled(self) -> dict[str, int]:
        """The descriptors once connections that were closed are gone."""
        before, found = None, self.descriptors()
        while found != before:
            time.sleep(0.3)
            before, found = found, self.descriptors()
        return found


@pytest.fixture(params=["http", "https"])
def crew(request: pytest.FixtureRequest, certificate: Any, client_ssl: Any) -> Crew:
    @contextlib.contextmanager
    def start(n: int = 4, grace: float = 20) -> Iterator[Program]:
        files = certificate if request.param == "https" else ()
        url = f"{request.param}://127.0.0.1:0/mcp"
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, str(n), str(grace), *files],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        try:
            yield Program(process, client_ssl if files else None)
        finally:
            process.kill()
            process.communicate()

    return start


def is_lost(answer: Any) -> bool:
    """Whether a request may have run at a worker that has ended meanwhile."""
    return answer is not None and answer.get("error", {}).get("code") == codes.CUT_OFF


class Session:
    """A session, each of whose requests has a connection of its own by default."""

    def __init__(self, program: Program) -> None:
        self.program = program
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
        connection = over or self.program.connect()
        body = json.dumps(message).encode()
        parts: Any = iter([body[:10], body[10:]]) if chunked else body
        connection.request("POST", "/mcp", parts, self.fields, encode_chunked=chunked)
        response = connection.getresponse()
        text = response.read()
        if over is None:
            connection.close()
        return response.status, response.headers, json.loads(text) if text else None

    def ask(self, tool: str, arguments: Any = None, **how: Any) -> str:
        status, _, answer = self.post(raw.call(1, tool, arguments or {}), **how)
        assert status == 200, answer
        text: str = answer["result"]["content"][0]["text"]
        return text

    def count(self, text: str = "", **how: Any) -> tuple[str, int, int]:
        """The pid of the session's worker, the number of its calls, and the length of the text."""
        pid, n, length = self.ask("count", {"text": text}, **how).split()
        return pid, int(n), int(length)

    def request(self, tool: str, arguments: Any = None) -> bytes:
        """The bytes of a call."""
        body = json.dumps(raw.call(1, tool, arguments or {})).encode()
        return self.head("POST", f"Content-Length: {len(body)}") + body

    def listen(self) -> bytes:
        """The bytes of the request for the stream of the server's own."""
        return self.head("GET")

    def head(self, method: str, *more: str) -> bytes:
        fields = [f"{key}: {value}" for key, value in self.fields.items()]
        lines = [f"{method} /mcp HTTP/1.1", f"Host: {self.program.host}", *more, *fields]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"


def test_a_thousand_sessions_of_four_workers(crew: Crew, request: pytest.FixtureRequest) -> None:
    with crew() as program:
        # a thousand handshakes take ten times as long as the calls
        wanted = 100 if program.trust and not request.config.getoption("--full") else 1000

        def hold(number: int) -> tuple[str, list[int]]:
            session = Session(program)
            found = [session.count() for _ in range(2)]
            assert len({pid for pid, _, _ in found}) == 1
            return found[0][0], [n for _, n, _ in found]

        with ThreadPoolExecutor(16) as pool:
            held = list(pool.map(hold, range(wanted)))
        assert all(numbers == [1, 2] for _, numbers in held)
        assert len({pid for pid, _ in held}) == 4
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(raw.FOREVER) == 0


def test_one_connection_visits_all_workers(crew: Crew) -> None:
    with crew() as program:
        sessions = [Session(program) for _ in range(16)]
        over = program.connect()
        for turn in range(1, 4):
            pids = set()
            for session in sessions:
                pid, n, _ = session.count(over=over)
                assert n == turn
                pids.add(pid)
            assert len(pids) > 1
        over.close()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_is_passed_on_whole(chunked: bool, crew: Crew) -> None:
    text = "x" * 5_000_000
    with crew() as program:
        for session in [Session(program) for _ in range(6)]:
            for n in range(1, 4):
                assert session.count(text, chunked=chunked)[1:] == (n, len(text))


def test_requests_behind_one_that_is_passed_on(crew: Crew) -> None:
    with crew() as program:
        for session in [Session(program) for _ in range(8)]:
            with program.open_socket() as sock:
                sock.sendall(3 * session.request("count", {"text": ""}))
                data = b""
                while data.count(b'"id":1') < 3:
                    more = sock.recv(65536)
                    assert more, data
                    data += more
            assert data.count(b"HTTP/1.1 200") == 3
            assert [f" {n} 0".encode() in data for n in (1, 2, 3)] == [True] * 3


def test_the_sessions_of_a_worker_end_with_it(crew: Crew) -> None:
    with crew(2) as program:
        sessions = [Session(program) for _ in range(8)]
        pids = [session.count()[0] for session in sessions]
        doomed = sessions[0]
        with contextlib.suppress(OSError, http.client.HTTPException):
            doomed.post(raw.call(1, "die", {}))
        for session, pid in zip(sessions, pids, strict=True):
            status, answer = 0, None
            # until another worker has replaced the dead one, which may end while it has a request
            while status not in (200, 404) or is_lost(answer):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    status, _, answer = session.post(raw.request(1, "ping"))
            assert status == (404 if pid == pids[0] else 200), answer


def test_http_and_sse_with_workers(crew: Crew) -> None:
    with crew() as program:
        for _ in range(6):
            stream = program.connect()
            stream.request("GET", "/sse", headers={"Accept": "text/event-stream"})
            events = stream.getresponse()
            place = ""
            while not place.startswith("data:"):
                place = events.readline().decode().strip()
            place = f"/{place.partition(': ')[2]}"  # relative to the path of the stream
            for message in (raw.initialize(0, "2024-11-05"), raw.call(1, "pid", {})):
                posts = program.connect()
                body = json.dumps(message)
                posts.request("POST", place, body, {"Content-Type": "application/json"})
                assert posts.getresponse().status == 202
                posts.close()
                while not (line := events.readline().decode()).startswith("data:"):
                    assert line
                assert json.loads(line.partition(": ")[2])["id"] == message["id"]
            stream.close()


def test_the_client_of_a_connection_that_was_passed_on(crew: Crew) -> None:
    with crew() as program:
        sessions = [Session(program) for _ in range(8)]
        with contextlib.closing(program.connect()) as over:
            for session in sessions:
                found = session.ask("peer", over=over)
                name, port = over.sock.getsockname()
                assert found == f"{name}:{port}"


def test_the_certificate_of_a_client(crew: Crew, certificate: Any) -> None:
    with crew() as program:
        if program.trust is None:
            return
        bare = program.trust
        program.trust = ssl.create_default_context(cafile=str(certificate[0]))
        program.trust.load_cert_chain(*certificate)
        sessions = [Session(program) for _ in range(8)]
        with contextlib.closing(program.connect()) as over:
            for session in sessions:
                assert session.count()[1] == 1
                assert session.count(over=over)[1] == 2
        program.trust = bare
        assert [session.post(raw.request(1, "ping"))[0] for session in sessions] == [404] * 8


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_slow_readers(connection: str, crew: Crew) -> None:
    n = 8_000_000
    with crew() as program:
        slow = []
        for session in [Session(program) for _ in range(8)]:
            session.fields["Connection"] = connection
            sock = program.open_socket()
            sock.sendall(session.request("text", {"n": n}))
            slow.append((sock, session))
        for sock, session in slow:
            assert select.select([sock], [], [], raw.FOREVER)[0]
            assert session.count()[1] == 1  # no other client waits for it
        for sock, _ in slow:
            data = bytearray(sock.recv(1000))
            length = int(data.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
            wanted = data.index(b"\r\n\r\n") + 4 + length
            while len(data) < wanted:
                more = sock.recv(1 << 20)
                assert more
                data += more
            assert data.count(b"x" * n) == 1
            sock.close()


def test_nothing_is_left_of_clients_that_leave(crew: Crew) -> None:
    with crew() as program:
        sessions = [Session(program) for _ in range(16)]
        for session in sessions:
            for n in range(1, 21):
                assert session.count()[1] == n  # the workers have their connections to each other
        before = program.settled()
        held = []
        for session in sessions:
            for request in (session.request("nap"), session.request("pid"), session.listen()):
                sock = program.open_socket()
                sock.sendall(request)
                held.append(sock)
            assert program.line() == "napping"
            assert b"200 OK" in held[-1].recv(1000)
        assert sum(program.settled().values()) >= sum(before.values()) + len(held)
        for n, sock in enumerate(held):
            if n % 2:  # reset
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        program.until(lambda: program.descriptors() == before)


def test_requests_in_progress_are_answered_at_the_end(crew: Crew) -> None:
    with crew() as program:
        sessions = [Session(program) for _ in range(6)]
        with ThreadPoolExecutor(6) as pool:
            answers = [pool.submit(session.ask, "nap") for session in sessions]
            for _ in answers:
                assert program.line() == "napping"
            program.process.send_signal(signal.SIGTERM)
            assert [answer.result() for answer in answers] == ["rested"] * 6
        assert program.process.wait(raw.FOREVER) == 0


def test_one_worker_is_told_to_end(crew: Crew) -> None:
    with crew(2, grace=1) as program:
        sessions = [Session(program) for _ in range(12)]
        kept = [program.connect() for _ in sessions]
        pids = [session.count(over=over)[0] for session, over in zip(sessions, kept, strict=True)]
        ended, other = program.descriptors()
        os.kill(int(ended), signal.SIGTERM)
        program.until(lambda: len(program.descriptors().keys() - {ended, other}) == 1)
        for session, pid in zip(sessions, pids, strict=True):
            assert session.post(raw.request(1, "ping"))[0] == (404 if pid == ended else 200)
        for over in kept:
            over.close()
