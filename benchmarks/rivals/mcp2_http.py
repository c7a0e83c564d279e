"""Rival: mcp 2.3.0's Streamable HTTP on uvicorn with uvloop and httptools; its least work.

mcp2_http.py json    # answers in JSON: its fastest setting
mcp2_http.py sse     # answers as events: what progress needs

With sessions in the legacy era: without them each request has a server of its own, which is slower.
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
    serve(server.streamable_http_app(json_response=sys.argv[1] == "json"))
