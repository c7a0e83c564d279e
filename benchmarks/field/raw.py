"""The protocol by hand, over stdio and HTTP: for what is measured once, and not by a load."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from processes import Fault, resident

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "field", "version": "1"},
}
SECONDS = 60.0


class Pipe:
    """A session with a server over stdio."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.began = time.perf_counter()
        self.child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            bufsize=0,
        )
        self._input = b""
        self._id = 0

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request. Fault: there is none."""
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("id") == self._id and "method" not in message:
                if "result" not in message:
                    raise Fault(f"{method}: {message.get('error')}")
                found: dict[str, Any] = message["result"]
                return found

    def open(self) -> None:
        """Shake hands."""
        self.ask("initialize", HELLO)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(json.dumps(message).encode() + b"\n")
        except OSError:
            raise Fault("it closed its input") from None

    def _receive(self) -> dict[str, Any]:
        assert self.child.stdout is not None
        until = time.monotonic() + SECONDS
        while b"\n" not in self._input:
            if not select.select([self.child.stdout], [], [], max(0, until - time.monotonic()))[0]:
                raise Fault("it does not answer")
            part = self.child.stdout.read(1 << 18)
            if not part:
                raise Fault("it ended")
            self._input += part
        line, _, self._input = self._input.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the server."""
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.close()
        try:
            self.child.wait(2.0)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()


@contextmanager
def _piped(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Pipe]:
    pipe = Pipe(command, environment)
    try:
        yield pipe
    finally:
        pipe.close()


def _echo(text: str) -> dict[str, Any]:
    return {"name": "echo", "arguments": {"text": text}}


def _check(result: dict[str, Any], text: str) -> None:
    if result.get("isError") or result["content"][0]["text"] != text:
        raise Fault(f"a wrong answer: {str(result)[:200]}")


def cold_start(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, float]:
    """Milliseconds from the start of a server to its first answer to a call, and bytes at rest."""
    with _piped(command, environment) as pipe:
        pipe.open()
        _check(pipe.ask("tools/call", _echo("first")), "first")
        taken = time.perf_counter() - pipe.began
        time.sleep(0.2)
        return {"start_ms": taken * 1e3, "rest_bytes": resident(pipe.child.pid)}


def listing(
    command: Sequence[str], environment: Mapping[str, str], tools: int, seconds: float
) -> dict[str, float]:
    """The median of milliseconds of a list of many tools, all pages."""
    with _piped(command, environment) as pipe:
        pipe.open()
        taken = []
        until = time.perf_counter() + seconds
        while len(taken) < 4 or time.perf_counter() < until:
            began = time.perf_counter()
            found, cursor = 0, None
            while True:
                result = pipe.ask("tools/list", {"cursor": cursor} if cursor else {})
                found += len(result["tools"])
                cursor = result.get("nextCursor")
                if not cursor:
                    break
            taken.append(time.perf_counter() - began)
            if found != tools + 1:
                raise Fault(f"it listed {found} tools of {tools + 1}")
        return {"list_ms": statistics.median(taken[1:]) * 1e3}


# -- HTTP ---------------------------------------------------------------------------------------


class Web:
    """A session with a server over HTTP, on a connection of its own."""

    def __init__(self, port: int, path: str = "/mcp") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        self._path = path
        self._session: str | None = None
        self._id = 0
        self.events = False

    def open(self) -> None:
        """Shake hands."""
        self.ask("initialize", HELLO)
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, text: str) -> None:
        """Call echo. Fault: the answer is not right."""
        _check(self.ask("tools/call", _echo(text)), text)

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request. Fault: there is none."""
        self._id += 1
        data = self._post({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        for line in data.splitlines() if self.events else [b"data:" + data]:
            if not line.startswith(b"data:") or not line[5:].strip():
                continue
            message = json.loads(line[5:])
            if message.get("id") == self._id and "result" in message:
                found: dict[str, Any] = message["result"]
                return found
        raise Fault(f"{method}: {data[:200]!r}")

    def _post(self, message: dict[str, Any]) -> bytes:
        fields = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        if message["method"] != "initialize":
            fields["MCP-Protocol-Version"] = "2025-06-18"
        if self._session is not None:
            fields["Mcp-Session-Id"] = self._session
        try:
            self._connection.request("POST", self._path, json.dumps(message), fields)
            response = self._connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as exc:
            raise Fault(f"{message['method']}: {type(exc).__name__} {exc}") from None
        if response.status not in (200, 202, 204):
            raise Fault(f"{message['method']}: status {response.status}: {data[:200]!r}")
        self._session = response.getheader("Mcp-Session-Id") or self._session
        kind = response.getheader("Content-Type") or ""
        self.events = kind.startswith("text/event-stream")
        return data

    def close(self) -> None:
        """End the session, and close the connection."""
        if self._session is not None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._connection.request(
                    "DELETE", self._path, headers={"Mcp-Session-Id": self._session}
                )
                self._connection.getresponse().read()
        self._connection.close()


def answers_in_events(port: int, path: str = "/mcp") -> bool:
    """Whether a server answers a call with a stream of events. Fault: not rightly."""
    web = Web(port, path)
    try:
        web.open()
        web.call("one")
        return web.events
    finally:
        web.close()


def memory_of_connections(
    port: int, pid: int, number: int, path: str = "/mcp", beside: str = ""
) -> dict[str, float]:
    """Bytes of each of many sessions that made a call and are at rest."""
    webs = [Web(port, path) for _ in range(number + 50)]
    try:
        for web in webs[:50]:  # what the first ones need once
            web.open()
            web.call("warm")
        time.sleep(0.3)
        before = resident(pid, beside)
        for n, web in enumerate(webs[50:]):
            web.open()
            web.call(f"call {n}")
        time.sleep(0.3)
        after = resident(pid, beside)
        return {"each_bytes": (after - before) / number, "at_rest_bytes": before}
    finally:
        for web in webs:
            web.close()
