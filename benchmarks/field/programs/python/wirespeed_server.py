"""An echo server with wirespeed.

wirespeed_server.py stdio SETTING TOOLS
wirespeed_server.py http SETTING TOOLS PORT
wirespeed_server.py websocket SETTING TOOLS PORT
wirespeed_server.py sse SETTING TOOLS PORT

SETTING is documented, fastest, or events: HTTP answers with streams of events.
TOOLS is the number of tools beside echo.
"""

import sys

from wirespeed import HttpOptions, Server

kind, setting, tools = sys.argv[1:4]
server = Server("echo", version="1")


def answer(text: str) -> str:
    """Return the text."""
    return text


async def answer_async(text: str) -> str:
    """Return the text."""
    return text


# An async tool may wait; a short plain one runs on the event loop when it says so.
inline = setting != "documented"
echo = answer if inline else answer_async
server.tool(name="echo", inline=inline)(echo)
for n in range(1, int(tools) + 1):
    described = f"Tool number {n}: returns the text that it is given."
    server.tool(name=f"tool_{n}", description=described, inline=inline)(echo)

if kind == "stdio":
    server.run()
else:
    scheme = "ws" if kind == "websocket" else "http"
    http = None
    if kind == "sse":
        http = HttpOptions(sse_path="/sse")
    elif kind == "http" and setting == "fastest":
        http = HttpOptions(stateless=True, response="json")
    elif kind == "http" and setting == "events":
        http = HttpOptions(response="sse")
    options = {} if http is None else {"http": http}
    server.run(f"{scheme}://127.0.0.1:{sys.argv[4]}/mcp", **options)
