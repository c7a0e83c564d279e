"""Clients of mcp 1 and 2 whose streams break: what they get nevertheless, as JSON.

python streams_client.py URL http|sse
"""

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

URL, KIND = sys.argv[1:]


async def main() -> None:
    logs: list[Any] = []
    changed = asyncio.Event()

    async def on_log(params: Any) -> None:
        logs.append(params.data)

    async def on_message(message: Any) -> None:
        if getattr(getattr(message, "root", message), "method", "").endswith("list_changed"):
            changed.set()

    async def call(name: str) -> Any:
        return (await session.call_tool(name, {})).content[0].text

    streams = sse_client(URL) if KIND == "sse" else streamable_http_client(URL)
    async with (
        streams as (source, sink, *_),
        ClientSession(source, sink, logging_callback=on_log, message_handler=on_message) as session,
    ):
        await session.initialize()
        found = {"plain": await call("plain")}
        if KIND == "http":
            found |= {"poll": await call("poll"), "cut": await call("cut")}
        await call("change")
        await asyncio.wait_for(changed.wait(), 20)
        print(json.dumps(found | {"logs": logs}))


asyncio.run(main())
