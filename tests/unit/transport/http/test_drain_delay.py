"""A server that is told to end, and serves on until load balancers know."""

from __future__ import annotations

import http.client
import json
import select
import signal
import subprocess
import sys
import time
from typing import Self

import pytest
from lab import raw

PROGRAM = """
import sys
from wirespeed import HttpOptions, Server

server = Server("leaves")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

server.run(
    "http://127.0.0.1:0/mcp",
    workers=int(sys.argv[1]),
    http=HttpOptions(drain_delay=float(sys.argv[2])),
    on_listening=lambda urls: print(*urls, flush=True),
)
print("ended", flush=True)
"""


class Program:
    """The program above."""

    def __init__(self, workers: int, delay: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(workers), str(delay)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], raw.FOREVER)
        assert ready, "the program says nothing"
        place = self.process.stdout.readline().decode().strip()
        self.host = place.removeprefix("http://").partition("/")[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.communicate()

    def ask(
        self, method: str = "GET", path: str = "/healthz", body: object = None
    ) -> tuple[int, str | None, bytes]:
        """The status, Connection and body of a response."""
        connection = http.client.HTTPConnection(self.host, timeout=raw.FOREVER)
        fields = {"Content-Type": "application/json"} if body is not None else {}
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, fields)
        response = connection.getresponse()
        found = response.status, response.getheader("Connection"), response.read()
        connection.close()
        return found

    def health(self) -> int:
        """The status of the server; 0: the port is closed."""
        try:
            return self.ask()[0]
        except ConnectionError:
            return 0

    def until(self, status: int) -> None:
        deadline = time.monotonic() + raw.FOREVER
        while self.health() != status:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_probe_hears_of_the_end_before_the_port_is_closed(workers: int) -> None:
    with Program(workers, 3) as program:
        assert program.ask() == (200, None, b"ok\n")
        told = time.monotonic()
        program.process.send_signal(signal.SIGTERM)
        n = 0
        while n < 8:  # until every worker has heard the signal
            n = n + 1 if program.health() == 503 else 0
        assert program.ask() == (503, "close", b"the server is shutting down\n")
        assert program.ask("HEAD")[:2] == (503, "close")
        status, connection, body = program.ask("POST", "/mcp", raw.initialize(1))
        assert (status, connection) == (200, "close")
        assert json.loads(body)["result"]["serverInfo"]["name"] == "leaves"
        assert program.process.wait(raw.FOREVER) == 0
        assert 2.9 <= time.monotonic() - told < 20
        assert program.health() == 0


def test_a_request_of_a_client_that_has_just_connected_is_answered() -> None:
    """Its connection was accepted before the port was closed, or waited to be accepted."""
    with Program(1, 0.3) as program:
        connection = http.client.HTTPConnection(program.host, timeout=raw.FOREVER)
        program.process.send_signal(signal.SIGTERM)
        program.until(503)
        connection.connect()
        while program.health():
            pass
        fields = {"Content-Type": "application/json"}
        connection.request("POST", "/mcp", json.dumps(raw.initialize(1)), fields)
        response = connection.getresponse()
        assert (response.status, response.getheader("Connection")) == (200, "close")
        connection.close()
        assert program.process.wait(raw.FOREVER) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_the_second_signal_does_not_wait(workers: int) -> None:
    with Program(workers, 1000) as program:
        program.process.send_signal(signal.SIGTERM)
        program.until(503)
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(raw.FOREVER) == 0


def test_without_a_delay_the_port_is_closed_at_once() -> None:
    with Program(1, 0) as program:
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(raw.FOREVER) == 0
        assert program.health() == 0
