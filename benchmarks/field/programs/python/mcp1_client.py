"""A client with the Python SDK 1.x: calls echo of the server that a command starts.

mcp1_client.py CALLS WARMUP IN_FLIGHT COMMAND [ARGUMENT…]
"""

import sys

import uvloop
from load import load
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    parameters = StdioServerParameters(command=sys.argv[4], args=sys.argv[5:])
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await load(session.call_tool)


uvloop.run(main())
