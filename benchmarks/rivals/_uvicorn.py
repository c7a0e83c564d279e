"""How the ASGI applications are served: uvicorn, uvloop, httptools, nothing else done."""

import socket
from typing import Any

import uvicorn
import uvloop
from _port import tell


async def serve_async(app: Any) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(
        app, http="httptools", log_level="critical", access_log=False, ws="none",
        proxy_headers=False, server_header=False,
    )  # fmt: skip
    tell(listener.getsockname()[1])
    await uvicorn.Server(config).serve([listener])


def serve(app: Any) -> None:
    uvloop.run(serve_async(app))
