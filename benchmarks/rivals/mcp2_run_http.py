"""Rival: an unchanged program of mcp 2.3.0 that serves Streamable HTTP by `run()`, in JSON.

A thread tells the port when clients can connect.
"""

import socket
import threading
import time

from _port import tell
from mcp2_server import server


def tell_soon(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return tell(port)


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    threading.Thread(target=tell_soon, args=(port,), daemon=True).start()
    server.run("streamable-http", port=port, json_response=True)
