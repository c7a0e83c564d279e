"""`run` as programs call it: one process, and several at one port."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from lab.raw import FOREVER, call, initialize, modern, strict
from lab.serve import frame, upgrade

from wirespeed import Server
from wirespeed.transport.address import parse

PROGRAM = """
import asyncio, os, signal, sys
from wirespeed import Server

server = Server("crew", shutdown_grace=20)

@server.tool
async def pid() -> int:
    return os.getpid()

@server.tool
async def wait() -> str:
    print("waiting", flush=True)
    await asyncio.sleep(0.3)
    return "done"

@server.tool
async def hang() -> str:
    print("waiting", flush=True)
    await asyncio.sleep(100)
    return "never"

@server.tool
async def leave() -> str:
    sys.exit(7)

@server.tool
async def die() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"

fork, forks = os.fork, []

def fork_unless_told():
    forks.append(None)
    if str(len(forks)) in os.environ.get("FAILING_FORKS", ""):
        raise BlockingIOError("no more processes")
    return fork()

os.fork = fork_unless_told

try:
    server.run(
        sys.argv[1],
        workers=int(sys.argv[2]),
        on_listening=lambda urls: print(*urls, flush=True),
    )
except Exception as exc:
    print(f"failed: {type(exc).__name__}: {exc}", flush=True)
    raise SystemExit(9)
print("ended", flush=True)
"""


class Crew:
    """The program above, and clients of it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.url = ""

    def line(self) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], FOREVER)
        assert ready, "the program says nothing"
        return self.process.stdout.readline().decode().rstrip("\n")

    def workers(self) -> list[int]:
        """The pids of its children. A reading is wrong if one ends meanwhile (proc_pid_task(5)),
        so two must be the same, and one that it names twice counts once."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        before, found = None, path.read_text()
        while found != before:
            before, found = found, path.read_text()
        return [int(pid) for pid in dict.fromkeys(found.split())]

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + FOREVER
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(FOREVER)


@contextlib.contextmanager
def crew(n: int = 2, url: str = "ws://127.0.0.1:0/mcp", *, group: bool = False) -> Iterator[Crew]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, str(n)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=group,
    )
    made = Crew(process)
    try:
        made.url = made.line()
        yield made
    finally:
        process.kill()
        process.communicate()


class Client:
    """Blocking, of bare bytes, so that it cannot be what shares anything."""

    def __init__(self, url: str) -> None:
        address = parse(url)
        self.sock = socket.create_connection((address.host, address.port), FOREVER)
        self.file = self.sock.makefile("rb")
        self.sock.sendall(upgrade(port=address.port))
        while self.file.readline() != b"\r\n":
            pass
        self.send(initialize(0))
        self.recv()

    def send(self, message: Any) -> None:
        self.sock.sendall(frame(1, json.dumps(message).encode()))

    def recv(self) -> Any:
        head = self.file.read(2)
        if len(head) < 2:
            raise EOFError
        length = head[1]
        if length == 126:
            length = int.from_bytes(self.file.read(2), "big")
        payload = self.file.read(length)
        return strict(payload) if head[0] & 15 == 1 else payload

    def ask(self, tool: str) -> str:
        self.send(call(1, tool))
        text: str = self.recv()["result"]["content"][0]["text"]
        return text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()
        self.sock.close()


def served_by(url: str, n: int) -> set[int]:
    """Who answers so many clients."""
    found = set()
    for _ in range(n):
        with Client(url) as client:
            found.add(int(client.ask("pid")))
    return found


def test_all_of_them_serve_at_the_port_that_was_taken() -> None:
    with crew(3) as made:
        assert parse(made.url).port != 0
        workers = set(made.workers())
        assert len(workers) == 3
        made.until(lambda: served_by(made.url, 5) and True)
        assert served_by(made.url, 60) == workers
        assert made.end() == 0
        assert made.line() == "ended"


def test_a_worker_that_dies_is_replaced() -> None:
    with crew(2) as made:
        before = set(made.workers())
        with Client(made.url) as client, pytest.raises((EOFError, OSError)):
            client.ask("die")
        made.until(lambda: len(made.workers()) == 2 and set(made.workers()) != before)
        made.until(lambda: served_by(made.url, 10) == set(made.workers()))
        assert len(before & set(made.workers())) == 1
        assert made.end() == 0


def test_a_replacement_that_cannot_be_forked_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAILING_FORKS", "34")  # the first two that replace
    with crew() as made:
        dying, other = made.workers()
        os.kill(dying, signal.SIGKILL)
        made.until(lambda: len(made.workers()) == 2 and dying not in made.workers())
        assert other in made.workers()
        assert made.end() == 0
        assert made.process.stderr is not None
        assert b"no worker can be started now: no more processes" in made.process.stderr.read()


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_all(number: int, n: int) -> None:
    with crew(n) as made, Client(made.url) as client:
        client.send(call(1, "wait"))
        assert made.line() == "waiting"
        made.process.send_signal(number)
        assert client.recv()["result"]["content"][0]["text"] == "done"
        assert client.recv()[:2] == (1001).to_bytes(2, "big")
        client.close()
        assert made.process.wait(FOREVER) == 0
        assert made.line() == "ended"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_drains_once(number: int) -> None:
    """SIGINT comes so from a terminal, SIGTERM from what runs services."""
    with crew(2, group=True) as made, Client(made.url) as client:
        client.send(call(1, "wait"))
        assert made.line() == "waiting"
        os.killpg(made.process.pid, number)
        made.until(lambda: len(made.workers()) <= 1)  # the idle one has drained, by whichever word
        for pid in made.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        assert client.recv()["result"]["content"][0]["text"] == "done"
        client.close()
        assert made.process.wait(FOREVER) == 0


@pytest.mark.parametrize("n", [1, 2])
def test_the_second_signal_ends_at_once(n: int) -> None:
    def drains() -> bool:
        return refused(made.url) if n == 1 else len(made.workers()) == 1

    with crew(n) as made, Client(made.url) as client:
        client.send(call(1, "hang"))
        assert made.line() == "waiting"
        made.process.send_signal(signal.SIGTERM)
        made.until(drains)
        made.process.send_signal(signal.SIGTERM)
        with pytest.raises((EOFError, OSError)):
            while True:
                client.recv()
        assert made.process.wait(FOREVER) == 0


def refused(url: str) -> bool:
    try:
        socket.create_connection((parse(url).host, parse(url).port), FOREVER).close()
    except ConnectionError:  # refused, or reset when it waited to be accepted
        return True
    return False


def test_a_tool_that_ends_the_process_is_answered() -> None:
    with crew(1) as made, Client(made.url) as client:
        client.send(call(1, "leave"))
        assert client.recv()["result"]["isError"] is True
        client.close()
        assert made.process.wait(FOREVER) == 7


def test_workers_of_a_killed_parent_end() -> None:
    with crew(2) as made:
        workers = made.workers()
        made.process.kill()
        made.process.wait(FOREVER)

        def gone(pid: int) -> bool:
            try:
                with open(f"/proc/{pid}/stat") as file:
                    return file.read().rpartition(")")[2].split()[0] == "Z"
            except FileNotFoundError:
                return True

        made.until(lambda: all(map(gone, workers)))


def test_over_tcp() -> None:
    with crew(2, "tcp://127.0.0.1:0") as made:
        address = parse(made.url)
        with socket.create_connection((address.host, address.port), FOREVER) as sock:
            sock.sendall(json.dumps(modern(1, "server/discover")).encode() + b"\n")
            with sock.makefile("rb") as file:
                assert strict(file.readline().rstrip(b"\n"))["id"] == 1
        assert made.end() == 0


def test_a_port_that_is_taken_is_said_by_the_parent() -> None:
    with crew(2) as made:
        port = parse(made.url).port
        single = subprocess.run(
            [sys.executable, "-c", PROGRAM, made.url, "1"],
            capture_output=True,
            timeout=FOREVER,
            check=False,
        )
        assert single.returncode == 9
        assert b"address already in use" in single.stdout
        assert port
        assert made.end() == 0


def test_a_crew_that_cannot_start_is_not_started_again_and_again() -> None:
    broken = PROGRAM.replace(
        "try:", "import wirespeed.transport.net.listener as l\nl.Listener.start = 0\ntry:", 1
    )
    done = subprocess.run(
        [sys.executable, "-c", broken, "ws://127.0.0.1:0/mcp", "2"],
        capture_output=True,
        timeout=FOREVER,
        check=False,
    )
    assert done.returncode == 9
    assert b"a worker ended with status 1 before it listened" in done.stdout


@pytest.mark.parametrize(
    ("url", "workers", "words"),
    [("unix:/x", 2, "need a port"), ("ws://127.0.0.1:0", 0, "at least 1")],
)
def test_what_cannot_be_shared(url: str, workers: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Server("x").run(url, workers=workers)
