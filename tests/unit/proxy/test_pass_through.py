"""What is passed on is not decoded, and copied once at most."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import ENVELOPE, MODERN, Lab, call
from websockets.asyncio.client import connect

from wirespeed._core.wire import Wire, set_tap
from wirespeed.proxy import Proxy

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

SHORT, LONG = 1000, 40_000  # bytes of a payload; from 4 KiB on they are not copied
CALLS = 10

Ask = Callable[[bytes], Awaitable[bytes]]


class Counts:
    """What the connections of this process have moved and copied."""

    def __init__(self) -> None:
        self.wires: list[Wire] = []

    def tap(self, wire: Wire, event: str, data: bytes) -> None:
        """See `set_tap`."""
        if wire not in self.wires:
            self.wires.append(wire)

    @property
    def copied(self) -> int:
        """Bytes of messages that were copied on their way out."""
        return sum(wire.outbox.bytes_copied for wire in self.wires)

    @property
    def moved(self) -> int:
        """Bytes of messages that had not arrived in one piece."""
        return sum(wire.framer.bytes_moved for wire in self.wires)


@contextlib.asynccontextmanager
async def asking(scheme: str, port: int, version: str) -> AsyncIterator[Ask]:
    """A client that speaks MCP's revision: what sends a message and returns the answer's text."""
    if scheme == "ws":
        async with connect(
            f"ws://127.0.0.1:{port}/mcp",
            subprotocols=["mcp"],  # type: ignore[list-item]
            compression=None,
        ) as socket:

            async def ask(text: bytes) -> bytes:
                await socket.send(text, text=True)
                return await socket.recv(decode=False) if b'"id"' in text else b""

            await shake_hands(ask, version)
            yield ask
        return
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    fields = [b"Host: 127.0.0.1", b"Accept: application/json, text/event-stream"]
    fields.append(b"Content-Type: application/json")

    async def post(text: bytes) -> bytes:
        head = [b"POST /mcp HTTP/1.1", *fields, b"Content-Length: %d" % len(text)]
        writer.write(b"\r\n".join(head) + b"\r\n\r\n" + text)
        top = await reader.readuntil(b"\r\n\r\n")
        pairs = [line.split(b": ", 1) for line in top.splitlines()[1:-1]]
        found = {name.lower(): value for name, value in pairs}
        if b"mcp-session-id" in found:
            fields.append(b"Mcp-Session-Id: " + found[b"mcp-session-id"])
        return await reader.readexactly(int(found.get(b"content-length", 0)))

    try:
        await shake_hands(post, version)
        fields.append(b"MCP-Protocol-Version: " + version.encode())
        if version == MODERN:
            fields += [b"Mcp-Method: tools/call", b"Mcp-Name: echo"]
        yield post
    finally:
        writer.close()
        await writer.wait_closed()


async def shake_hands(ask: Ask, version: str) -> None:
    if version == MODERN:
        return
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw"}}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    assert b"result" in await ask(json.dumps(hello).encode())
    await ask(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize("scheme", ["ws", "http"])
@pytest.mark.parametrize("size", [SHORT, LONG])
async def test_pass_through(tmp_path: Path, scheme: str, version: str, size: int) -> None:
    era: Any = {"era": "modern"} if version == MODERN else {"era": "legacy"}
    lab = Lab(tmp_path, "shared", versions=MODERN if version == MODERN else "", **era)
    listen = (f"{scheme}://127.0.0.1:0/mcp",)
    lab.proxy = Proxy(dataclasses.replace(lab.proxy.config, listen=listen))
    counts = Counts()
    set_tap(counts.tap)
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_listening(urls: tuple[str, ...]) -> None:
        port.set_result(int(urls[0].split(":")[2].split("/")[0]))

    task = asyncio.ensure_future(lab.proxy.serve(on_listening=on_listening))
    try:
        async with asking(scheme, await port, version) as ask:
            nonce = "n" * size

            async def round_trip(id: int) -> int:
                """Call, and return the bytes of the request and the answer."""
                message: dict[str, Any] = call(id, "echo", nonce=nonce)
                if version == MODERN:
                    message["params"]["_meta"] = ENVELOPE
                text = json.dumps(message).encode()
                answer = await ask(text)
                assert json.loads(answer)["result"]["_meta"]["nonce"] == nonce
                return len(text) + len(answer)

            await round_trip(1)
            (service,) = lab.proxy.services.values()
            session = next(iter(service.downstreams)).session
            shown, copied, moved = session.counters["values_shown"], counts.copied, counts.moved
            passed = sum([await round_trip(id) for id in range(2, 2 + CALLS)])
            assert session.counters["values_shown"] == shown
            assert counts.moved - moved <= passed  # of messages that came in pieces
            if size == SHORT:
                # once each way; an id has other digits behind the proxy than before it
                assert abs(counts.copied - copied - passed) < 40 * CALLS
            else:
                assert counts.copied - copied < 1000 * CALLS  # the parts beside the payloads
    finally:
        set_tap(None)
        task.cancel()
        await asyncio.wait((task,))
