"""Rival: mcp 2.3.0's Streamable HTTP on uvicorn with uvloop and httptools; its least work.

mcp2_http.py json    # without sessions, answers in JSON: its fastest setting
mcp2_http.py sse     # without sessions, answers as events: what progress needs
"""

import sys

from _uvicorn import serve
from mcp.server.mcpserver import Context
from mcp2_server import server


@server.tool(structured_output=False)
async def progress(text: str, count: int, ctx: Context) -> str:
    for number in range(1, count + 1):
        await ctx.report_progress(number, count)
    return text


if __name__ == "__main__":
    serve(server.streamable_http_app(stateless_http=True, json_response=sys.argv[1] == "json"))
