"""A new process takes the place of the proxy, and no client is refused."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.process import BOTH, HELLO, ProcessLab, ask, call, free_port, new_process, pid, unix
from lab.raw import FOREVER
from websockets.sync.client import connect

pytestmark = [pytest.mark.own_environment]


class Load:
    """Clients that connect, ask and leave, one after another, in threads.

    Attributes:
        pids: The servers that have answered, in their order.
        failures: What went wrong.
    """

    def __init__(self, *asks: Callable[[], int]) -> None:
        self.pids: list[int] = []
        self.failures: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(one,)) for one in asks]

    def _run(self, one: Callable[[], int]) -> None:
        while not self._over.is_set():
            try:
                self.pids.append(one())
            except Exception as exc:
                self.failures.append(f"{one.__name__}: {exc!r}")

    def end(self) -> None:
        """Let the clients finish."""
        self._over.set()
        for thread in self._threads:
            thread.join(FOREVER)

    def until(self, n: int) -> None:
        """Wait until ``n`` more answers have come."""
        until = time.monotonic() + FOREVER
        n += len(self.pids)
        while len(self.pids) < n:
            assert time.monotonic() < until, self.failures[:5]
            time.sleep(0.01)

    @contextlib.contextmanager
    def running(self) -> Iterator[Load]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self.end()


def post(port: int, message: Any, fields: dict[str, str]) -> tuple[int, Any, bytes]:
    """Send a message on a connection of its own: the status, the fields and the body."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=FOREVER)) as one:
        one.request("POST", "/mcp", json.dumps(message), {**BOTH, **fields})
        with one.getresponse() as response:
            return response.status, response.headers, response.read()


def of_http(port: int) -> int:
    """The server that answers in a session over HTTP. A session ends with its process, which
    clients learn by 404."""
    status = 404
    while status == 404:
        status, fields, text = post(port, HELLO, {})
        assert status == 200, text
        session = {"Mcp-Session-Id": fields["Mcp-Session-Id"]}
        status, _, text = post(port, call(1, "echo"), session)
    assert status == 200, (status, text)
    found = json.loads(text)["result"]["_meta"]["pid"]
    assert isinstance(found, int)
    return found


def of_modern_http(port: int) -> int:
    """The server that answers a request without a session."""
    version = "2026-07-28"
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = call(1, "echo")
    message["params"]["_meta"] = meta
    fields = {
        "MCP-Protocol-Version": version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "echo",
    }
    status, _, text = post(port, message, fields)
    assert status == 200, (status, text)
    found = json.loads(text)["result"]["_meta"]["pid"]
    assert isinstance(found, int)
    return found


def of_websocket(port: int) -> int:
    """The server that answers over WebSocket."""
    with connect(f"ws://127.0.0.1:{port}/mcp", compression=None) as ws:
        ws.send(json.dumps(HELLO))
        ws.recv(FOREVER)
        ws.send(json.dumps(call(1, "echo")))
        found = json.loads(ws.recv(FOREVER))["result"]["_meta"]["pid"]
    assert isinstance(found, int)
    return found


@contextlib.contextmanager
def tcp(port: int) -> Iterator[socket.socket]:
    """A client at a port, after its handshake."""
    with socket.create_connection(("127.0.0.1", port), FOREVER) as sock:
        ask(sock, HELLO)
        yield sock


def children(process: int) -> set[int]:
    """The children of a process."""
    return {
        int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    }


def descends(process: int, ancestor: int) -> bool:
    """Whether a process is one that another has started, or that its children have."""
    while process not in (0, ancestor):
        stat = Path(f"/proc/{process}/stat").read_text()
        process = int(stat.rpartition(")")[2].split()[1])
    return process == ancestor


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("versions", ["", "2026-07-28"])
def test_no_client_is_refused(tmp_path: Path, versions: str, workers: int) -> None:
    lab = ProcessLab(tmp_path)
    path = tmp_path / "s"
    ports = free_port(), free_port()
    listen = [f"ws://127.0.0.1:{ports[0]}/mcp", f"http://127.0.0.1:{ports[1]}/mcp"]
    if workers == 1:
        listen.append(f"unix:{path}")
    lab.write("a", versions=versions, listen=listen, watch=False)

    def over_unix() -> int:
        with unix(path) as sock:
            return pid(sock)

    def over_http() -> int:
        return of_http(ports[1])

    def over_modern_http() -> int:
        return of_modern_http(ports[1])

    def over_websocket() -> int:
        return of_websocket(ports[0])

    asks = [over_modern_http] if versions else [over_http, over_websocket]
    if workers == 1 and not versions:
        asks.append(over_unix)
    options = ("--workers", str(workers))
    with lab.running(*options) as process, Load(*asks).running() as load:
        successors = []
        try:
            load.until(1)
            process.send_signal(signal.SIGUSR2)
            successors.append(new_process(lab.until("takes the place of this one")))
            assert process.wait(FOREVER) == 0
            load.until(50)
            # once more, by a process that was passed the sockets itself
            os.kill(successors[0], signal.SIGUSR2)
            successors.append(new_process(lab.until("takes the place of this one", 2)))
            while not gone(successors[0]):
                time.sleep(0.02)
            load.until(50)
        finally:
            load.end()
            for one in successors:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGTERM)
    assert not load.failures, load.failures[:5]
    # each worker has a server, and in a short time some answer no client
    assert 3 <= len({*load.pids}) <= 3 * workers
    assert load.pids[0] not in load.pids[-50:]
    until = time.monotonic() + FOREVER
    while not all(map(gone, successors)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not path.exists()  # the last one removes it


def test_requests_in_flight_are_answered(tmp_path: Path) -> None:
    """By the process that has them. Who connects when another has its place is that one's."""
    lab = ProcessLab(tmp_path)
    path, seen = tmp_path / "s", tmp_path / "seen-a"
    lab.write("a", listen=[f"unix:{path}"], watch=False, shutdownGrace=1000)
    with lab.running() as process, unix(path) as client:
        before = pid(client)
        client.sendall(json.dumps(call("slow", "sleep", seconds=2)).encode() + b"\n")
        while '"sleep"' not in seen.read_text():
            time.sleep(0.01)
        process.send_signal(signal.SIGUSR2)
        successor = new_process(lab.until("takes the place of this one"))
        try:
            for _ in range(10):
                with unix(path) as other:
                    assert pid(other) != before
            answer = json.loads(client.recv(65536))
            assert answer["id"] == "slow" and answer["result"]["_meta"]["pid"] == before
            assert client.recv(1) == b""
            assert process.wait(FOREVER) == 0
            assert path.exists()
        finally:
            os.kill(successor, signal.SIGTERM)


def test_a_new_process_that_fails(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    path = tmp_path / "s"
    lab.write("a", listen=[f"unix:{path}"], watch=False)
    with lab.running() as process, unix(path) as client:
        before = pid(client)
        lab.file.write_text("{")
        process.send_signal(signal.SIGUSR2)
        log = lab.until("this one goes on")
        assert "ended before it was ready (status 3)" in log
        assert "proxy.json" in log
        assert pid(client) == before
        lab.write("a", listen=[f"unix:{path}"], watch=False)
        process.send_signal(signal.SIGUSR2)
        successor = new_process(lab.until("takes the place of this one"))
        os.kill(successor, signal.SIGTERM)
        assert process.wait(FOREVER) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_service_manager_is_told(tmp_path: Path, workers: str) -> None:
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[f"tcp://127.0.0.1:{free_port()}"], watch=False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(FOREVER)
        with lab.running("--workers", workers, NOTIFY_SOCKET=str(tmp_path / "notify")) as process:
            assert manager.recv(100) == b"READY=1"
            process.send_signal(signal.SIGUSR2)
            told = manager.recv(100).decode()
            successor = new_process(lab.until("takes the place of this one"))
            assert told == f"MAINPID={successor}\nREADY=1"
            assert process.wait(FOREVER) == 0
            os.kill(successor, signal.SIGTERM)


def test_workers_answer_requests_in_flight(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    port = free_port()
    lab.write("a", isolation="session", listen=[f"tcp://127.0.0.1:{port}"], watch=False)
    with lab.running("--workers", "2") as process, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(tcp(port)) for _ in range(8)]
        for client in clients:
            client.sendall(json.dumps(call("slow", "sleep", seconds=2)).encode() + b"\n")
        process.send_signal(signal.SIGUSR2)
        successor = new_process(lab.until("takes the place of this one"))
        try:
            for _ in range(6):  # no worker of the old process accepts any more
                with tcp(port) as client:
                    assert descends(pid(client), successor)
            for client in clients:
                assert json.loads(client.recv(65536))["id"] == "slow"
                assert client.recv(1) == b""
            assert process.wait(FOREVER) == 0
            with tcp(port) as client:
                pid(client)
        finally:
            os.kill(successor, signal.SIGTERM)


def test_workers_have_a_deadline(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    port = free_port()
    listen = [f"tcp://127.0.0.1:{port}"]
    lab.write("a", isolation="session", listen=listen, watch=False, shutdownGrace=0.5)
    with lab.running("--workers", "2") as process, tcp(port) as client:
        client.sendall(json.dumps(call("slow", "hold", **{"as": "x"})).encode() + b"\n")
        process.send_signal(signal.SIGUSR2)
        successor = new_process(lab.until("takes the place of this one"))
        os.kill(successor, signal.SIGTERM)
        assert json.loads(client.recv(65536))["error"]["code"] == -31006
        assert client.recv(1) == b""
        assert process.wait(FOREVER) == 0


def test_a_successor_of_workers_that_fails(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    port = free_port()
    listen = [f"tcp://127.0.0.1:{port}"]
    lab.write("a", listen=listen, watch=False)
    with lab.running("--workers", "2") as process, tcp(port) as client:
        before = pid(client)
        workers = children(process.pid)
        lab.file.write_text("{")
        process.send_signal(signal.SIGUSR2)
        log = lab.until("this one goes on")
        assert "ended before it was ready (status 3)" in log
        assert "proxy.json" in log
        assert pid(client) == before
        assert children(process.pid) == workers
        lab.write("a", listen=listen, watch=False)
        # a worker has the only descriptor of its socket again: when it dies, others take its place
        with contextlib.suppress(ProcessLookupError):
            os.kill(min(workers), signal.SIGKILL)
        for _ in range(10):
            with contextlib.suppress(ConnectionResetError), tcp(port) as other:
                pid(other)
        process.send_signal(signal.SIGUSR2)
        successor = new_process(lab.until("takes the place of this one"))
        os.kill(successor, signal.SIGTERM)
        assert process.wait(FOREVER) == 0


def test_a_worker_that_dies_while_the_new_process_starts(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    port = free_port()
    lab.write("a", listen=[f"tcp://127.0.0.1:{port}"], watch=False)
    with lab.running("--workers", "2") as process:
        workers = children(process.pid)
        process.send_signal(signal.SIGUSR2)
        log = lab.until("is to take the place of this one")
        (successor,) = map(int, re.findall(r"process (\d+) is to take", log))
        try:
            os.kill(successor, signal.SIGSTOP)
            dying = min(workers)
            os.kill(dying, signal.SIGKILL)
            # all are answered: the clients of the worker's socket wait for the next worker
            for _ in range(20):
                with tcp(port) as client:
                    pid(client)
            workers = children(process.pid) - {successor}
            assert len(workers) == 2 and dying not in workers
            os.kill(min(workers), signal.SIGKILL)  # the next process serves what waits there
            os.kill(successor, signal.SIGCONT)
            for _ in range(20):
                with tcp(port) as client:
                    pid(client)
            lab.until("takes the place of this one")
            assert process.wait(FOREVER) == 0
            # the socket of a worker that dies now is closed, so that the others get its clients
            os.kill(min(children(successor)), signal.SIGKILL)
            lab.until("another follows in", 3)
            for _ in range(20):
                with tcp(port) as client:
                    pid(client)
        finally:
            os.kill(successor, signal.SIGTERM)


def test_workers_at_the_socket_of_a_service_manager(tmp_path: Path) -> None:
    """They share it, also those of a successor, and none of them closes it."""
    lab = ProcessLab(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as passed:
        port = passed.getsockname()[1]
        lab.write("a", listen=[f"tcp://127.0.0.1:{port}"], watch=False)
        with lab.running("--workers", "2", passed=passed) as process:
            successor, n_sockets = process.pid, set()
            for n in (1, 2):
                os.kill(successor, signal.SIGUSR2)
                successor = new_process(lab.until("takes the place of this one", n))
                try:
                    files = map(os.path.realpath, Path(f"/proc/{successor}/fd").iterdir())
                    n_sockets.add(sum("/socket:" in file for file in files))
                    os.kill(min(children(successor)), signal.SIGKILL)
                    for _ in range(8):
                        with tcp(port) as client:
                            pid(client)
                    lab.until("another follows in", n)
                except BaseException:
                    os.kill(successor, signal.SIGTERM)
                    raise
            assert process.wait(FOREVER) == 0
            assert len(n_sockets) == 1 and n_sockets != {0}
            os.kill(successor, signal.SIGTERM)
            while not gone(successor):
                time.sleep(0.02)
        with socket.create_connection(passed.getsockname(), FOREVER):
            passed.accept()[0].close()


def test_sigterm_while_the_new_process_starts(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[f"tcp://127.0.0.1:{free_port()}"], watch=False)
    with lab.running("--workers", "2") as process:
        process.send_signal(signal.SIGUSR2)
        log = lab.until("is to take the place of this one")
        (successor,) = map(int, re.findall(r"process (\d+) is to take", log))
        process.send_signal(signal.SIGTERM)
        assert process.wait(FOREVER) == 0
        assert gone(successor)


@pytest.mark.parametrize("isolation", ["session", "shared"])
def test_sigterm_waits_for_requests_in_flight(tmp_path: Path, isolation: str) -> None:
    lab = ProcessLab(tmp_path)
    path = tmp_path / "s"
    lab.write("a", isolation=isolation, listen=[f"unix:{path}"], watch=False)
    with lab.running() as process, unix(path) as client:
        client.sendall(json.dumps(call("slow", "sleep", seconds=1)).encode() + b"\n")
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert json.loads(client.recv(65536))["id"] == "slow"
        assert client.recv(1) == b""
        assert process.wait(FOREVER) == 0
        assert "shutting down: 1 connections are open" in lab.log.read_text()


def test_sigterm_has_a_deadline(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    path = tmp_path / "s"
    lab.write("a", listen=[f"unix:{path}"], watch=False, shutdownGrace=0.5)
    with lab.running() as process, unix(path) as client:
        client.sendall(json.dumps(call("slow", "hold", **{"as": "x"})).encode() + b"\n")
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert json.loads(client.recv(65536))["error"]["code"] == -31006
        assert client.recv(1) == b""
        assert process.wait(FOREVER) == 0


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    path = tmp_path / "s"
    lab.write("a", listen=[f"unix:{path}"], watch=False, shutdownGrace=1000)
    with lab.running() as process, unix(path) as client:
        client.sendall(json.dumps(call("slow", "hold", **{"as": "x"})).encode() + b"\n")
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        lab.until("shutting down")
        process.send_signal(signal.SIGTERM)
        assert client.recv(1) == b""
        assert process.wait(FOREVER) == 0


def test_idle_streams_do_not_hold_the_process(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    port = free_port()
    lab.write("a", listen=[f"http://127.0.0.1:{port}/mcp"], watch=False, shutdownGrace=1000)
    with lab.running() as process:
        _, fields, _ = post(port, HELLO, {})
        accepts = {**BOTH, "Mcp-Session-Id": fields["Mcp-Session-Id"]}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("GET", "/mcp", headers=accepts)
            with connection.getresponse() as stream:
                assert stream.status == 200
                process.send_signal(signal.SIGTERM)
                stream.read()
        assert process.wait(FOREVER) == 0


def test_a_socket_of_the_service_manager_that_nobody_listens_at(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[f"http://127.0.0.1:{free_port()}/mcp"])
    with socket.create_server(("127.0.0.1", 0)) as passed:
        with lab.running(passed=passed):
            log = lab.until("is no address to listen at")
        host, port = passed.getsockname()
    assert f"the service manager has passed a socket at {host}:{port}, which is no" in log


def test_kept_connections_are_told_before_they_are_closed(tmp_path: Path) -> None:
    """A client that asks on one connection all the time loses no request at a hand-over."""
    lab = ProcessLab(tmp_path)
    port = free_port()
    lab.write("a", versions="2026-07-28", listen=[f"http://127.0.0.1:{port}/mcp"], watch=False)
    with lab.running() as process:
        kept = http.client.HTTPConnection("127.0.0.1", port, timeout=FOREVER)
        kept.connect()
        successor = 0
        try:
            until = time.monotonic() + FOREVER
            n = 0
            while time.monotonic() < until:
                assert kept.sock is not None
                kept.request("GET", "/healthz")
                response = kept.getresponse()
                response.read()
                assert response.status == 200
                n += 1
                if n == 1:
                    process.send_signal(signal.SIGUSR2)
                if response.getheader("Connection") == "close":
                    break
                time.sleep(0.01)
            else:
                raise AssertionError("the connection was not told")
            successor = new_process(lab.until("takes the place of this one"))
            assert process.wait(FOREVER) == 0
            again = http.client.HTTPConnection("127.0.0.1", port, timeout=FOREVER)
            again.request("GET", "/healthz")
            assert again.getresponse().status == 200
            again.close()
        finally:
            kept.close()
            if not successor:
                with contextlib.suppress(IndexError):
                    successor = new_process(lab.log.read_text())
            if successor:
                os.kill(successor, signal.SIGTERM)
