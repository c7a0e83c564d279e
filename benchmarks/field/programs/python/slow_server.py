"""An HTTP server with wirespeed whose tool works 5 ms for a call: slow_server.py PORT"""

import sys
import time

from wirespeed import HttpOptions, Server

server = Server("slow", version="1")


@server.tool(inline=True)
def echo(text: str) -> str:
    """Return the text after 5 ms of work."""
    until = time.perf_counter() + 0.005
    while time.perf_counter() < until:
        pass
    return text


server.run(f"http://127.0.0.1:{sys.argv[1]}/mcp", http=HttpOptions(stateless=True, response="json"))
