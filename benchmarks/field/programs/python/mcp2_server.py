"""An echo server with the Python SDK 2.x.

mcp2_server.py stdio SETTING TOOLS
mcp2_server.py http SETTING TOOLS PORT
mcp2_server.py sse SETTING TOOLS PORT

SETTING is documented or fastest. TOOLS is the number of tools beside echo.
"""

import sys

from mcp.server import MCPServer

kind, setting, tools = sys.argv[1:4]
fastest = setting == "fastest"
server = MCPServer("echo", log_level="ERROR" if fastest else "INFO")
# Structured output would send the text twice.
options = {"structured_output": False} if fastest else {}


async def echo(text: str) -> str:
    """Return the text."""
    return text


server.add_tool(echo, **options)
for n in range(1, int(tools) + 1):
    described = f"Tool number {n}: returns the text that it is given."
    server.add_tool(echo, name=f"tool_{n}", description=described, **options)

if kind == "stdio":
    if fastest:
        import uvloop

        uvloop.run(server.run_stdio_async())
    else:
        server.run()
elif fastest:
    import uvicorn

    # With sessions: without them each request has a server of its own, which is slower.
    events = kind == "sse"
    app = server.sse_app() if events else server.streamable_http_app(json_response=True)
    uvicorn.run(
        app, host="127.0.0.1", port=int(sys.argv[4]), log_level="error", access_log=False,
        loop="uvloop", http="httptools",
    )  # fmt: skip
else:
    transport = "sse" if kind == "sse" else "streamable-http"
    server.run(transport, host="127.0.0.1", port=int(sys.argv[4]))
