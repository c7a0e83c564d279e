"""A call that outlives the grace time gets an answer, and the process ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from lab.process import BOTH, HELLO, ProcessLab, ask, free_port, new_process
from lab.proxy import ENVELOPE, MODERN
from lab.raw import FOREVER
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

pytestmark = [pytest.mark.own_environment]

CUT_OFF = -31006


def hold(name: str, modern: bool, tool: str) -> dict[str, Any]:
    """A call that does not end."""
    params: dict[str, Any] = {"name": tool, "arguments": {"as": name}}
    if modern:
        params["_meta"] = ENVELOPE
    return {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params}


def fields_of(modern: bool, tool: str) -> dict[str, str]:
    if not modern:
        return BOTH
    named = {"Mcp-Method": "tools/call", "Mcp-Name": tool, "MCP-Protocol-Version": MODERN}
    return {**BOTH, **named}


class Asker:
    """Clients that each have one call in flight.

    Attributes:
        names: What tells the calls apart.
    """

    def __init__(self, folder: Path, ports: dict[str, int], tool: str = "hold") -> None:
        self.folder = folder
        self.tool = tool
        self.ports = ports
        self.names: list[str] = []
        self._stack = contextlib.ExitStack()
        self._ends: list[tuple[str, Callable[[], Any]]] = []

    def close(self) -> None:
        self._stack.close()

    def ask(self, front: str, modern: bool) -> None:
        """Send a call. Its end is looked at later."""
        name = f"{front}-{'modern' if modern else 'legacy'}"
        self.names.append(name)
        begin = {"http": self._http, "sse": self._sse, "ws": self._ws}.get(front, self._stream)
        self._ends.append((name, begin(front, name, modern)))

    def answers(self) -> dict[str, Any]:
        """The answer of each client, behind which its connection has ended in order."""
        found = {name: end() for name, end in self._ends}
        self.close()  # else the process waits for that
        return found

    def _http(self, front: str, name: str, modern: bool) -> Callable[[], Any]:
        one = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=FOREVER)
        self._stack.callback(one.close)
        fields = fields_of(modern, self.tool)
        if not modern:
            one.request("POST", "/mcp", json.dumps(HELLO), fields)
            with one.getresponse() as response:
                fields = {**fields, "Mcp-Session-Id": response.headers["Mcp-Session-Id"]}
                response.read()
        one.request("POST", "/mcp", json.dumps(hold(name, modern, self.tool)), fields)

        def end() -> Any:
            with one.getresponse() as response:
                # 404 would mean: initialize again, and repeat the call
                assert response.status == 200, (response.status, response.read())
                if response.headers["Content-Type"] == "application/json":
                    assert response.headers["Connection"] == "close"  # else the head has left
                text = response.read()
            return json.loads(text.removeprefix(b"data: "))

        return end

    def _sse(self, front: str, name: str, modern: bool) -> Callable[[], Any]:
        one = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=FOREVER)
        self._stack.callback(one.close)
        one.request("GET", "/sse", headers={"Accept": "text/event-stream"})
        stream = self._stack.enter_context(one.getresponse())

        def event() -> str:
            while line := stream.readline():  # the stream begins with a comment
                if line.startswith(b"data: "):
                    stream.readline()
                    return line[6:].strip().decode()
            return ""

        def post(message: Any) -> None:
            with contextlib.closing(
                http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=FOREVER)
            ) as other:
                other.request("POST", path, json.dumps(message), BOTH)
                assert other.getresponse().status == 202

        path = urljoin("/sse", event())
        post(HELLO)
        assert json.loads(event())["id"] == "hello"
        post(hold(name, modern, self.tool))

        def end() -> Any:
            answer = json.loads(event())
            assert stream.read() == b""
            return answer

        return end

    def _ws(self, front: str, name: str, modern: bool) -> Callable[[], Any]:
        url = f"ws://127.0.0.1:{self.ports['ws']}/mcp"
        ws = self._stack.enter_context(connect(url, compression=None))
        if not modern:
            ws.send(json.dumps(HELLO))
            ws.recv(FOREVER)
        ws.send(json.dumps(hold(name, modern, self.tool)))

        def end() -> Any:
            answer = json.loads(ws.recv(FOREVER))
            with pytest.raises(ConnectionClosed) as closed:
                ws.recv(FOREVER)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
            return answer

        return end

    def _stream(self, front: str, name: str, modern: bool) -> Callable[[], Any]:
        family = socket.AF_UNIX if front == "unix" else socket.AF_INET
        sock = self._stack.enter_context(socket.socket(family))
        sock.settimeout(FOREVER)
        tcp = "127.0.0.1", self.ports["tcp"]
        sock.connect(str(self.folder / "s") if front == "unix" else tcp)
        if not modern:
            ask(sock, HELLO)
        sock.sendall(json.dumps(hold(name, modern, self.tool)).encode() + b"\n")

        def end() -> Any:
            data = b""
            while more := sock.recv(65536):
                data += more
            return json.loads(data)

        return end


@contextlib.contextmanager
def asker(lab: ProcessLab, *servers: str, **fields: Any) -> Iterator[Asker]:
    """A configuration that listens at every kind of URL, and clients of it."""
    ports = {name: free_port() for name in ("http", "ws", "tcp")}
    http: Any = f"http://127.0.0.1:{ports['http']}/mcp"
    if len(servers) == 1:
        http = {"url": http, "ssePath": "/sse"}
    listen = [
        http,
        f"ws://127.0.0.1:{ports['ws']}/mcp",
        f"tcp://127.0.0.1:{ports['tcp']}",
        f"unix:{lab.folder / 's'}",
    ]
    lab.write(*servers, listen=listen, watch=False, shutdownGrace=0.5, **fields)
    found = Asker(lab.folder, ports)
    try:
        yield found
    finally:
        found.close()


def end_all(
    lab: ProcessLab, clients: Asker, process: Any, number: signal.Signals, *servers: str
) -> None:
    """End the process while all calls are at their servers."""
    until = time.monotonic() + FOREVER

    def seen() -> str:
        files = (lab.folder / f"seen-{name}" for name in servers)
        return "".join(one.read_text() for one in files if one.exists())

    while not all(f'"{name}"' in seen() for name in clients.names):
        assert time.monotonic() < until, (seen(), clients.names, lab.log.read_text())
        time.sleep(0.02)
    process.send_signal(number)
    successor = None
    if number == signal.SIGUSR2:
        successor = new_process(lab.until("takes the place of this one"))
    try:
        answers = clients.answers()
        assert {name: one.get("error", {}).get("code") for name, one in answers.items()} == (
            dict.fromkeys(clients.names, CUT_OFF)
        ), answers
        assert all(answer["id"] == name for name, answer in answers.items())
        assert process.wait(FOREVER) == 0
    finally:
        if successor is not None:
            os.kill(successor, signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2], ids=lambda one: one.name)
@pytest.mark.parametrize("versions", ["", MODERN], ids=["legacy", "modern"])
@pytest.mark.parametrize("isolation", ["shared", "session", "pool", "auto"])
def test_calls_are_cut_off_with_an_answer(
    tmp_path: Path, isolation: str, versions: str, number: signal.Signals
) -> None:
    lab = ProcessLab(tmp_path)
    with (
        asker(lab, "a", versions=versions, isolation=isolation) as clients,
        lab.running() as process,
    ):
        for front in ("http", "sse", "ws", "tcp", "unix"):
            clients.ask(front, False)
        for front in ("http", "ws", "tcp", "unix"):
            # requests without sessions over HTTP need a server that clients share
            lanes = isolation in ("shared", "pool") or (isolation, versions) == ("auto", MODERN)
            if front != "http" or lanes:
                clients.ask(front, True)
        end_all(lab, clients, process, number, "a")


@pytest.mark.parametrize(
    ("workers", "number"),
    [("1", signal.SIGUSR2), ("2", signal.SIGTERM)],
    ids=["one-SIGUSR2", "two-SIGTERM"],
)
def test_calls_of_all_servers_are_cut_off(
    tmp_path: Path, workers: str, number: signal.Signals
) -> None:
    lab = ProcessLab(tmp_path)
    ports = {name: free_port() for name in ("http", "ws")}
    listen = [f"http://127.0.0.1:{ports['http']}/mcp", f"ws://127.0.0.1:{ports['ws']}/mcp"]
    lab.write("a", "b", listen=listen, watch=False, shutdownGrace=0.5)
    clients = Asker(tmp_path, ports, "a_hold")
    with lab.running("--workers", workers) as process, contextlib.closing(clients):
        for front in ("http", "ws"):
            clients.ask(front, False)
            clients.ask(front, True)
        end_all(lab, clients, process, number, "a", "b")
