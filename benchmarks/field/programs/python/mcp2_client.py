"""A client with the Python SDK 2.x: calls echo of the server that a command starts.

mcp2_client.py CALLS WARMUP IN_FLIGHT COMMAND [ARGUMENT…]
"""

import sys

import uvloop
from load import load
from mcp import Client, StdioServerParameters


async def main() -> None:
    server = StdioServerParameters(command=sys.argv[4], args=sys.argv[5:])
    async with Client(server, mode="legacy") as client:
        await load(client.call_tool)


uvloop.run(main())
