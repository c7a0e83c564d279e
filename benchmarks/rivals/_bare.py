"""What the two bare loops share: the message types and the stdio pipes.

These are not servers to use: they check nothing (no version, no duplicate ids, no limits, no
cancellation), and exist to show what a careful pure-Python loop on uvloop and msgspec costs.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import uvloop


class Request(msgspec.Struct, gc=False):
    method: str
    id: int | str | None = None
    params: msgspec.Raw = msgspec.Raw(b"")


class EchoArguments(msgspec.Struct, gc=False):
    text: str


class CallParams(msgspec.Struct, gc=False):
    name: str
    arguments: EchoArguments


class Text(msgspec.Struct, tag="text", gc=False):
    text: str


class CallResult(msgspec.Struct, gc=False):
    content: list[Text]
    isError: bool = False


class Response(msgspec.Struct, gc=False):
    id: int | str | None
    result: Any
    jsonrpc: str = "2.0"


INITIALIZED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bare", "version": "1"},
}
DISCOVERED = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
}
TOOLS = {
    "tools": [
        {
            "name": "echo",
            "inputSchema": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            },
        }
    ]
}

encode = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(Request).decode
decode_params = msgspec.json.Decoder(CallParams).decode


def answer_other(request: Request) -> bytes | None:
    """Answers everything but tools/call; None for a notification."""
    if request.id is None:
        return None
    results: dict[str, Any] = {
        "initialize": INITIALIZED,
        "server/discover": DISCOVERED,
        "tools/list": TOOLS,
        "ping": {},
    }
    if request.method in results:
        return encode(Response(request.id, results[request.method]))
    error = {"code": -32601, "message": "method not found"}
    return encode({"jsonrpc": "2.0", "id": request.id, "error": error})


def serve(protocol: Callable[[asyncio.WriteTransport, asyncio.Future[None]], Any]) -> None:
    """Runs `protocol` on stdin and stdout until end of input."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        writer, _ = await loop.connect_write_pipe(asyncio.Protocol, sys.stdout)
        await loop.connect_read_pipe(lambda: protocol(writer, ended), sys.stdin)
        await ended
        writer.close()
        await asyncio.sleep(0)

    uvloop.run(main())
