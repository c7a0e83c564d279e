"""A server in raw JSON-RPC on a WebSocket library: for what no SDK does on the wire.

python ws_raw_server.py LIBRARY [--deflate]    (libraries: see ws_raw_links.py)

Both eras. It prints its URL and ends at SIGTERM. The tool ``do`` does on the wire what its argument
says before it answers with the same text:

    ping        pings, and waits for the pong
    fragments   answers in frames of 1,000 characters
    spaces      answers with white space around the JSON
    garbage     sends what is no JSON first
    binary      sends a binary message instead
    close       closes with 1001 instead
    vanish      ends the process instead
"""

import asyncio
import json
import os
import signal
import sys
from typing import Any

from ws_raw_links import Closed, serve

INFO = {"name": "raw", "version": "1.2.3"}
CAPABILITIES: dict[str, Any] = {"tools": {}}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [{"name": name, "inputSchema": TEXT} for name in ("echo", "do")]


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": CAPABILITIES,
            "serverInfo": INFO,
        }
    modern = "_meta" in params and "io.modelcontextprotocol/protocolVersion" in params["_meta"]
    more: dict[str, Any] = {"resultType": "complete"} if modern else {}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["arguments"]["text"]}], **more}
    if modern:
        more |= {"ttlMs": 0, "cacheScope": "private"}
    if method == "tools/list":
        return {"tools": TOOLS, **more}
    if method == "server/discover" and modern:
        return {
            "supportedVersions": ["2026-07-28"],
            "capabilities": CAPABILITIES,
            "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
            **more,
        }
    return {} if method == "ping" else None


async def talk(link: Any) -> None:
    try:
        while True:
            await answer(link, json.loads(await link.recv()))
    except Closed:
        pass


async def answer(link: Any, message: dict[str, Any]) -> None:
    if "id" not in message:
        return
    params = message.get("params", {})
    result = result_of(message["method"], params)
    answered: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        answered["error"] = {"code": -32601, "message": "no such method"}
    else:
        answered["result"] = result
    text = json.dumps(answered, ensure_ascii=False)
    parts = [text]
    if params.get("name") == "do":
        match params["arguments"]["text"].split()[0]:
            case "ping":
                await link.ping()
            case "fragments":
                parts = [text[i : i + 1000] for i in range(0, len(text), 1000)]
            case "spaces":
                parts = [f" \r\n\t{text}\n "]
            case "garbage":
                await link.send('{"jsonrpc": "2.0", oops}')
            case "binary":
                return await link.send_binary(text.encode())
            case "close":
                return await link.close(1001)
            case "vanish":
                os._exit(0)
    await link.send(*parts)


async def main() -> None:
    library, *options = sys.argv[1:]
    server, port = await serve(library, talk, deflate="--deflate" in options)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print(f"ws://127.0.0.1:{port}/any/path", flush=True)
    await ended.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
