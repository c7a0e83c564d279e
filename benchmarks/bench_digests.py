"""The savings of digests of lists: 1,000 tools, listed again and again: `docs/how-to/drafts.md`.

A server over a UNIX socket in a process of its own; bytes that the client reads, and processor time
of both processes, for one `Client.list_tools` of a list that has not changed, and for one call of a
tool. Without digests nothing is kept: the server's lists have no time to live.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from wirespeed import Client, Server, Socket

TOOLS = 1000
ROUNDS = 10  # of which the best counts
LISTS = 10
CALLS = 1000


def serve(url: str, page_size: int | None, digests: bool) -> None:
    server = Server("many", page_size=page_size, digests=digests)
    for i in range(TOOLS):

        async def tool(title: str, amount: float = 1.0, tags: list[str] | None = None) -> str:
            """Book an amount under a title, for the account that the tags name."""
            return "ok"

        server.add_tool(tool, name=f"book_{i}")
    server.run(url)


def spent(pid: int) -> float:
    """The processor time of a process, in seconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def measured(client: Client, pid: int, n: int, work: Any) -> str:
    session = client._life.live.session  # type: ignore[union-attr]
    await work()
    first, found = session.bytes_in, []
    for _ in range(ROUNDS):
        before = spent(pid), time.process_time()
        for _ in range(n):
            await work()
        found.append(((spent(pid) - before[0]) / n, (time.process_time() - before[1]) / n))
    got = (session.bytes_in - first) / n / ROUNDS
    server, own = (min(times) for times in zip(*found, strict=True))
    return f"{got:11,.0f} bytes   server {server * 1e6:8,.0f} us   client {own * 1e6:8,.0f} us"


async def run(page_size: int | None, digests: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"unix:{folder}/s"
        argv = [sys.executable, __file__, url, str(page_size or 0), str(int(digests))]
        child = await asyncio.create_subprocess_exec(*argv)
        try:
            while not os.path.exists(f"{folder}/s"):
                await asyncio.sleep(0.01)
            async with Client(Socket(url), era="modern", digests=digests) as client:
                what = f"pages of {page_size or TOOLS:5,}, digests {'on ' if digests else 'off'}"
                listed = await measured(client, child.pid, LISTS, client.list_tools)
                print(f"{what}   list {listed}", flush=True)
                called = await measured(
                    client, child.pid, CALLS, lambda: client.call_tool("book_1", {"title": "tea"})
                )
                print(f"{what}   call {called}", flush=True)
        finally:
            child.terminate()
            await child.wait()


async def main() -> None:
    for page_size in (50, 250, None):
        for digests in (False, True):
            await run(page_size, digests)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1], int(sys.argv[2]) or None, sys.argv[3] == "1")
    else:
        asyncio.run(main())
