"""FastMCP's proxy, on its fastest documented settings: one session with the server for all
requests, answers in JSON. Clients have sessions: without them each request has a server of its
own, which is slower.

fastmcp_proxy.py PORT URL
fastmcp_proxy.py PORT COMMAND [ARGUMENT…]
"""

import sys

import uvicorn
import uvloop
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


async def main(port: str, *target: str) -> None:
    away = "://" in target[0]
    async with Client(target[0] if away else StdioTransport(target[0], list(target[1:]))) as client:
        app = create_proxy(client).http_app(path="/mcp", json_response=True)
        config = uvicorn.Config(
            app, host="127.0.0.1", port=int(port), http="httptools", log_level="error",
            access_log=False,
        )  # fmt: skip
        await uvicorn.Server(config).serve()


uvloop.run(main(*sys.argv[1:]))
