"""Rival: mcp 2.3.0's Client over stdio, or over Streamable HTTP for a URL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from _client_load import Call, calling, main
from mcp import Client, StdioServerParameters


@asynccontextmanager
async def open_client(command: list[str]) -> AsyncIterator[Call]:
    target: Any = command[0]
    if "://" not in target:
        target = StdioServerParameters(command=target, args=command[1:])
    async with Client(target, mode="legacy") as client:
        yield calling(client.call_tool)


if __name__ == "__main__":
    main(open_client)
