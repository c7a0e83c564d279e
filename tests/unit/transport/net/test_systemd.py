"""Sockets that a service manager passes, and what it is told."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.process import LAUNCH
from lab.raw import FOREVER, surroundings

from wirespeed import SyncClient

PROGRAM = """
import os, sys
from wirespeed import Server
from wirespeed.transport.net.serve import run, run_together

server = Server("activated")

@server.tool
async def pid() -> int:
    return os.getpid()

@server.tool
async def environment() -> list[str]:
    return [name for name in os.environ if name.startswith("LISTEN_")]

told = lambda urls: print(*urls, flush=True)
urls = sys.argv[2:]
if len(urls) == 1:
    run(urls[0], server, workers=int(sys.argv[1]), on_listening=told)
else:
    run_together([(url, server, told, {}) for url in urls])
"""


@contextlib.contextmanager
def started(
    *arguments: str, passed: Any = (), **env: str
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The program, and the first line that it prints."""
    fds = [str(sock.fileno()) for sock in passed]
    argv = ["-c", PROGRAM, *arguments]
    if fds:
        argv = ["-c", LAUNCH, str(len(fds)), *fds, *argv]
    with subprocess.Popen(
        [sys.executable, *argv],
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[sock.fileno() for sock in passed],
        env={**surroundings(), **env},
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()
        finally:
            process.terminate()
            process.wait(FOREVER)


def tcp() -> socket.socket:
    sock = socket.create_server(("127.0.0.1", 0))
    sock.settimeout(FOREVER)
    return sock


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """What the program tells."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(FOREVER)
        yield sock


@pytest.mark.parametrize("workers", ["1", "2"])
def test_clients_wait_while_the_server_is_started_again(workers: str) -> None:
    with tcp() as sock:
        url = f"tcp://127.0.0.1:{sock.getsockname()[1]}"
        pids = []
        for _ in range(2):
            # nobody accepts yet, and the connection is not refused
            with socket.create_connection(sock.getsockname()) as early:
                early.settimeout(FOREVER)
                with started(workers, url, passed=[sock]) as (process, urls):
                    assert urls == [url]
                    early.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
                    assert early.recv(100).startswith(b'{"jsonrpc":"2.0","id":1,"result"')
                    with SyncClient(url) as client:
                        pids.append(client.call_tool("pid").data)
                        assert client.call_tool("environment").data == []
                        assert (pids[-1] == process.pid) == (workers == "1")
        assert pids[0] != pids[1]


def test_the_file_of_a_socket_that_was_passed_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(path))
        sock.listen()
        with started("1", f"unix:{path}", passed=[sock]), SyncClient(f"unix:{path}") as client:
            client.call_tool("pid")
        assert path.is_socket()


def test_each_url_gets_its_socket() -> None:
    with tcp() as one, tcp() as two:
        ports = [sock.getsockname()[1] for sock in (one, two)]
        urls = [f"tcp://127.0.0.1:{port}" for port in ports]
        with (
            started("1", *urls, passed=[two, one]),
            SyncClient(urls[0]) as first,
            SyncClient(urls[1]) as second,
        ):
            assert first.call_tool("pid").data == second.call_tool("pid").data


def test_other_urls_listen_by_themselves() -> None:
    with tcp() as sock, started("1", "tcp://127.0.0.1:0", passed=[sock]) as (_, urls):
        assert urls != [f"tcp://127.0.0.1:{sock.getsockname()[1]}"]
        with SyncClient(urls[0]) as client:
            client.call_tool("pid")


def test_sockets_of_another_process_are_left_alone() -> None:
    with (
        started("1", "tcp://127.0.0.1:0", LISTEN_PID="1", LISTEN_FDS="1") as (_, urls),
        SyncClient(urls[0]) as client,
    ):
        assert client.call_tool("environment").data == ["LISTEN_PID", "LISTEN_FDS"]


@pytest.mark.parametrize(
    "arguments",
    [("1", "tcp://127.0.0.1:0"), ("2", "tcp://127.0.0.1:0"), ("1", *["tcp://127.0.0.1:0"] * 2)],
)
def test_readiness_is_told_once(manager: socket.socket, arguments: tuple[str, ...]) -> None:
    with started(*arguments, NOTIFY_SOCKET=manager.getsockname()):
        assert manager.recv(100) == b"READY=1"
        manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_a_name_of_linux(manager: socket.socket) -> None:
    name = f"wirespeed-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.settimeout(FOREVER)
        with started("1", "tcp://127.0.0.1:0", NOTIFY_SOCKET=f"@{name}"):
            assert sock.recv(100) == b"READY=1"


def test_a_manager_that_is_not_there_is_no_fault(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "none")
    with (
        started("1", "tcp://127.0.0.1:0", NOTIFY_SOCKET=nowhere) as (_, urls),
        SyncClient(urls[0]) as client,
    ):
        client.call_tool("pid")
