"""Clients that do not read: they are paused, then cut, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import MODERN, Lab, Raw, call, until

from wirespeed import Limits
from wirespeed.proxy import Proxy, ProxyConfig

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

# Answers each call with a text as long as it asks for; a call of "hold" is never answered.
TALKING = """
import json, os, sys

log = open(sys.argv[1], "a", buffering=1)
modern = os.environ.get("VERSIONS") == "2026-07-28"
for line in sys.stdin:
    m = json.loads(line)
    method, result = m.get("method"), {}
    log.write(method + "\\n")
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "b", "version": "1"}}
    elif method == "server/discover":
        result = {"resultType": "complete", "supportedVersions": ["2026-07-28"],
                  "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}
    elif method == "tools/call":
        arguments = m["params"]["arguments"]
        if m["params"]["name"] == "hold":
            token = m["params"].get("_meta", {}).get("progressToken")
            for i in range(arguments.get("progress", 0)):
                progress = {"progressToken": token, "progress": i, "message": "x" * 60000}
                note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
                sys.stdout.write(json.dumps(note) + "\\n")
            sys.stdout.flush()
            continue
        result = {"content": [{"type": "text", "text": "x" * arguments["size"]}]}
    if "id" in m:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}) + "\\n")
        sys.stdout.flush()
"""

SIZE, HIGH = 65536, 1 << 20


class TalkingLab(Lab):
    def __init__(self, folder: Path, isolation: str = "shared", **options: Any) -> None:
        versions = options.get("versions", "")
        super().__init__(folder, isolation, era="modern" if versions else "legacy", **options)
        (folder / "backend.py").write_text(TALKING)

    @property
    def cut(self) -> int:
        return sum(service.cut["slow reader"] for service in self.proxy.services.values())


async def busy(lab: Lab) -> Any:
    """The end of the connection that has a request in flight."""

    def found() -> list[Any]:
        return [f for f in lab.fronts if f.session.counters["requests_in_flight"]]

    await until(found)
    return found()[0]


@pytest.mark.parametrize("isolation", ["shared", "session"])
async def test_a_client_that_does_not_read(tmp_path: Path, isolation: str) -> None:
    """A bounded number of bytes waits for it, its requests are cancelled in the end, and another
    client does not notice."""
    limits = Limits(max_in_flight=64)
    lab = TalkingLab(tmp_path, isolation, slow_client_timeout=0.5, limits=limits)
    async with lab.serving():
        slow, other = await lab.connect(), await lab.connect()
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await slow.send(call("held", "hold"))
        front = await busy(lab)
        for i in range(400):
            slow.writer.write(json.dumps(call(i, "talk", size=SIZE)).encode() + b"\n")
        most = 0
        while lab.cut == 0:
            most = max(most, front.session.counters["bytes_queued"])
            answer = await other.ask(call("o", "talk", size=10))
            assert answer["id"] == "o"
            await asyncio.sleep(0.01)
        assert HIGH <= most <= HIGH + 64 * (SIZE + 100)
        await until(lambda: front not in lab.fronts)
        assert lab.cut == 1 and len(lab.fronts) == 1
        if isolation == "shared":
            await until(lambda: "notifications/cancelled" in lab.seen.read_text())
        assert (await other.ask(call("o", "talk", size=10)))["id"] == "o"
        slow.writer.transport.abort()


async def test_a_client_that_reads_a_little_stays(tmp_path: Path) -> None:
    lab = TalkingLab(tmp_path, slow_client_timeout=0.5)
    async with lab.serving():
        client = await lab.connect()
        for i in range(60):
            client.writer.write(json.dumps(call(i, "talk", size=SIZE)).encode() + b"\n")
        for i in range(60):
            await asyncio.sleep(0.03)
            assert (await client.recv())["id"] == i
        assert lab.cut == 0


async def test_progress_that_nobody_reads(tmp_path: Path) -> None:
    """It is dropped at twice the output, and counted."""
    lab = TalkingLab(tmp_path, slow_client_timeout=30.0)
    async with lab.serving():
        client, other = await lab.connect(), await lab.connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(call(1, "hold", token="t", progress=120))
        assert (await other.ask(call("o", "talk", size=10)))["id"] == "o"
        front = await busy(lab)
        await until(lambda: front.n_dropped > 50)
        assert front.session.counters["bytes_queued"] <= 2 * HIGH + 60_200
        client.writer.transport.abort()


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_client_over_http_that_does_not_read(tmp_path: Path, version: str) -> None:
    """Its connection ends. A request of 2026-07-28 is cancelled, a session lives on."""
    versions = MODERN if version == MODERN else ""
    lab = TalkingLab(tmp_path, versions=versions)
    lab.proxy = Proxy(
        ProxyConfig(
            backends=lab.proxy.config.backends,
            listen=("http://127.0.0.1:0/mcp",),
            slow_client_timeout=0.4,
        )
    )
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        lab.proxy.serve(on_listening=lambda urls: listening.set_result(urls[0]))
    )
    port = int((await listening).split(":")[2].split("/")[0])

    async def post(body: dict[str, Any], *fields: str) -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", port))
        text = Raw.text_of(Raw(None, None, version), body).encode()  # type: ignore[arg-type]
        head = [
            "POST /mcp HTTP/1.1",
            "Host: 127.0.0.1",
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            f"Content-Length: {len(text)}",
            *fields,
        ]
        await loop.sock_sendall(sock, "\r\n".join(head).encode() + b"\r\n\r\n" + text)
        return sock

    try:
        fields = [f"MCP-Protocol-Version: {version}"]
        if version == MODERN:
            fields += ["Mcp-Method: tools/call", "Mcp-Name: hold"]
        else:
            params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {}}
            hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            with await post(hello) as sock:
                answer = await asyncio.get_running_loop().sock_recv(sock, 4096)
            session = answer.decode().split("Mcp-Session-Id: ")[1].split("\r\n")[0]
            fields.append(f"Mcp-Session-Id: {session}")
        body = call(1, "hold", token="t", progress=80)
        sock = await post(body, *fields)
        await until(lambda: lab.cut == 1)
        if version == MODERN:
            await until(lambda: "notifications/cancelled" in lab.seen.read_text())
        else:
            with await post(call(2, "talk", size=10), *fields) as second:
                answer = await asyncio.get_running_loop().sock_recv(second, 4096)
            assert answer.startswith(b"HTTP/1.1 200 ")
        sock.close()
    finally:
        serving.cancel()
        await asyncio.wait((serving,))
