"""Rival: FastMCP's proxy, Streamable HTTP in front of one child on stdio, its least work: one
session with the child for all requests, answers in JSON. Clients have sessions: without them each
request has a server of its own, which is slower.

fastmcp_proxy.py COMMAND …
"""

import sys

import uvloop
from _uvicorn import serve_async
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


async def main(command: str, *arguments: str) -> None:
    async with Client(StdioTransport(command, list(arguments))) as client:
        proxy = create_proxy(client)
        await serve_async(proxy.http_app(path="/mcp", json_response=True))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
