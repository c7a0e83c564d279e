"""wirespeed's own server on Streamable HTTP for the benchmark: the tools of ws_server.py, one that
reports progress, and one that tells what the process holds.

    http_server.py [SECONDS]

Legacy sessions end after SECONDS without a request (1800).
"""

import asyncio
import sys

from _held import held
from _port import tell
from ws_server import server

from wirespeed import Context, HttpOptions


@server.tool
async def progress(text: str, count: int, ctx: Context, pause: float = 0) -> str:
    for number in range(1, count + 1):
        await ctx.progress(number, count)
        if pause:
            await asyncio.sleep(pause)
    return text


server.tool(held)

if __name__ == "__main__":
    server.run(
        "http://127.0.0.1:0/mcp",
        on_listening=lambda urls: tell(int(urls[0].rpartition(":")[2].partition("/")[0])),
        max_connections=20_000,
        backlog=1024,
        http=HttpOptions(session_ttl=float(sys.argv[1]) if len(sys.argv) > 1 else 1800),
    )
