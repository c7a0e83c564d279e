"""A client with FastMCP: calls echo of the server that a command starts.

fastmcp_client.py CALLS WARMUP IN_FLIGHT COMMAND [ARGUMENT…]
"""

import sys

import uvloop
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from load import load


async def main() -> None:
    transport = StdioTransport(sys.argv[4], sys.argv[5:], keep_alive=False)
    async with Client(transport) as client:
        await load(client.call_tool)


uvloop.run(main())
