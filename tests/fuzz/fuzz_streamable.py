"""Mutated HTTP requests against a server of both eras; every outcome must be on a closed list.

Run by hand, bounded and repeatable in its inputs::

    python tests/fuzz/fuzz_streamable.py --seed 1 --count 20000

A failure prints the seed and the input, and ends with status 1. What is checked: the server logs no
internal error; every response begins with a status that we know; a connection whose client has said
all that it says ends; other clients are served.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import sys
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from driver import main
from lab.http import META, serving

from wirespeed import Context, HeaderParam, HttpOptions, Server

FOREVER = 20.0
STATUSES = {200, 202, 204, 400, 403, 404, 405, 406, 413, 414, 415, 417, 421, 431, 501, 503, 505}
PARTS = [
    b"\r\n", b"\n", b" ", b":", b",", b'"', b"\0", b"\x80", b"{", b"}", b"[", b"]", b"\\", b"0",
    b"POST", b"GET", b"DELETE", b"OPTIONS", b"HEAD", b"/mcp", b"Connection: close\r\n",
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n",
    b"Mcp-Name: add\r\n", b"=?base64?YWRk?=", b"=?base64?", b"?=", b"Mcp-Param-Region: us\r\n",
    b"MCP-Protocol-Version: 2025-06-18\r\n", b"Mcp-Session-Id: 1\r\n", b"Last-Event-ID: 1-1\r\n",
    b"Origin: http://a\r\n", b"text/event-stream", b"tools/call", b"initialize", b'"id":1,',
    b'"region":"us",', b"2026-07-28", b"null", b"1.0", b"x" * 40,
]  # fmt: skip


def post(message: Any, **fields: str) -> bytes:
    body = json.dumps(message).encode()
    head = {
        "Host": "127.0.0.1",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def modern(method: str, params: dict[str, Any], **fields: str) -> bytes:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        "params": {**params, "_meta": META | params.get("_meta", {})},
    }
    return post(message, MCP_Protocol_Version="2026-07-28", Mcp_Method=method, **fields)


def legacy(method: str, params: dict[str, Any], **fields: str) -> bytes:
    return post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, **fields)


HANDSHAKE = legacy(
    "initialize",
    {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "fuzz", "version": "1"},
    },
)
ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}
QUERY = {"name": "query", "arguments": {"region": "us", "limit": 4}}
FIELDS = {"Mcp_Param_Region": "us", "Mcp_Param_Limit": "4"}
COUNT = {"name": "count", "arguments": {"n": 3}}


def make() -> Server:
    server = Server("fuzz", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def query(
        region: Annotated[str, HeaderParam("Region")],
        limit: Annotated[int, HeaderParam("Limit")] = 1,
    ) -> str:
        return region * min(limit, 100)

    @server.tool
    async def count(n: int, ctx: Context) -> str:
        for i in range(min(n, 20)):
            await ctx.progress(i)
            await asyncio.sleep(0)
        return "done"

    return server


class Place:
    """The server, and what its log says of it."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.runner = asyncio.Runner()
        loop = self.runner.get_loop()
        loop.set_exception_handler(lambda loop, context: self.errors.append(str(context)))
        handler = logging.Handler(logging.ERROR)
        handler.emit = lambda record: self.errors.append(record.getMessage())  # type: ignore[method-assign]
        logger = logging.getLogger("wirespeed")
        logger.addHandler(handler)
        logger.propagate = False
        options = HttpOptions(max_sessions=1000, session_ttl=5.0)
        self.served = serving(make(), http=options)
        self.port = self.runner.run(self.served.__aenter__()).port
        self.fixed = [
            HANDSHAKE,
            legacy("tools/call", ADD),
            modern("tools/call", ADD, Mcp_Name="add"),
            modern("tools/call", ADD, Mcp_Name="=?base64?YWRk?="),
            modern("tools/call", QUERY, Mcp_Name="query", **FIELDS),
            modern("tools/call", QUERY, Mcp_Name="query", **FIELDS, Connection="close"),
            modern("tools/call", {**COUNT, "_meta": {"progressToken": 1}}, Mcp_Name="count"),
            modern("tools/list", {}),
            modern("server/discover", {}),
            modern("resources/read", {"uri": "a://b"}, Mcp_Name="a://b"),
            modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
            post(
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            ),
            modern("tools/list", {}).replace(b"POST", b"OPTIONS", 1),
        ]
        self.open_session()

    def open_session(self) -> None:
        """Inputs may have ended the session of the legacy client."""
        response = self.exchange([HANDSHAKE])
        found = re.search(rb"(?i)mcp-session-id: (\S+)", response)
        assert found is not None, response
        own = {"Mcp_Session_Id": found[1].decode(), "MCP_Protocol_Version": "2025-11-25"}
        self.seeds = [
            *self.fixed,
            legacy("tools/call", ADD, **own),
            legacy("tools/call", {**COUNT, "_meta": {"progressToken": 1}}, **own),
            legacy("ping", {}, **own),
            legacy("ping", {}, **own).replace(b"POST", b"GET", 1),
        ]

    def close(self) -> None:
        self.runner.run(self.served.__aexit__(None, None, None))
        self.runner.close()

    def exchange(self, chunks: list[bytes], *, leave: bool = False) -> bytes:
        """Send, and read to the end; `leave`: go without reading."""
        return self.runner.run(self._exchange(chunks, leave))

    async def _exchange(self, chunks: list[bytes], leave: bool) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for chunk in chunks:
                writer.write(chunk)
                await asyncio.sleep(0)
            if leave:
                return b""
            writer.write_eof()
            async with asyncio.timeout(FOREVER):
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


def mutate(rng: random.Random, seeds: list[bytes]) -> bytes:
    stream = bytearray(b"".join(rng.choice(seeds) for _ in range(rng.choice((1, 1, 2, 3)))))
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randint(0, len(stream))
        match rng.randint(0, 4):
            case 0 | 1:
                stream[at:at] = rng.choice(PARTS)
            case 2:
                del stream[at : at + rng.randint(1, 6)]
            case 3 if at < len(stream):
                stream[at] = rng.randrange(256)
            case _:
                stream[at:at] = stream[at : at + rng.randint(1, 40)]
    return bytes(stream)


def cut(rng: random.Random, stream: bytes) -> list[bytes]:
    if rng.random() < 0.5:
        return [stream]
    longest = rng.choice((7, 50, 1000))
    return [stream[i : i + longest] for i in range(0, len(stream), longest)]


def one(rng: random.Random) -> list[str]:
    data = mutate(rng, PLACE.seeds)
    leave = rng.random() < 0.2
    try:
        response = PLACE.exchange(cut(rng, data), leave=leave)
        healthy = PLACE.exchange([modern("tools/call", ADD, Mcp_Name="add", Connection="close")])
        assert healthy.startswith(b"HTTP/1.1 200 "), healthy
        assert b'"structuredContent":{"result":3}' in healthy
        assert not PLACE.errors, PLACE.errors
        if not response:
            return ["left" if leave else "nothing"]
        response = response.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not response:
            return ["100"]  # the body never came
        status = re.match(rb"HTTP/1\.1 ([0-9]{3}) [^\r\n]*\r\n", response)
        assert status is not None, response[:200]
        assert int(status[1]) in STATUSES, status
        if status[1] == b"404":
            PLACE.open_session()
        return [status[1].decode()]
    except BaseException:
        print(f"input: {data!r}", file=sys.stderr)
        raise


if __name__ == "__main__":
    PLACE = Place()
    sys.exit(main(__doc__.splitlines()[0], one, PLACE.close))
