"""wirespeed's own server on WebSocket for the benchmark: the tools of ws_server.py, and one that
tells how many tasks and descriptors there are and how much memory is in use.
"""

from _held import held
from _port import tell
from ws_server import server

server.tool(held)

if __name__ == "__main__":
    server.run(
        "ws://127.0.0.1:0/",
        on_listening=lambda urls: tell(int(urls[0].rpartition(":")[2].strip("/"))),
        max_connections=20_000,
        backlog=1024,
    )
