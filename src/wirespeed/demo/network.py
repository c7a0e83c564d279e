"""The servers of ``wirespeed demo`` behind one port, started as a child.

``python -m wirespeed.demo.network`` listens at a free port of 127.0.0.1 with the calculator at
``/mcp`` and the LiteMCP tool at ``/lite``, writes their URLs as lines on stdout, and ends when its
stdin is closed, so that it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from wirespeed import Server, serve
from wirespeed.demo import calculator, convert
from wirespeed.litemcp import LiteServer
from wirespeed.transport.loop import run


async def main() -> None:
    """Serve until stdin ends."""
    services: dict[str, Server | LiteServer] = {"/mcp": calculator.server, "/lite": convert.server}
    serving = asyncio.ensure_future(serve("ws://127.0.0.1:0", services, on_listening=_tell))
    parent = asyncio.ensure_future(asyncio.to_thread(sys.stdin.buffer.read))
    await asyncio.wait((serving, parent), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()  # why it could not
    serving.cancel()
    await asyncio.wait((serving,))


def _tell(urls: Sequence[str]) -> None:
    print(*urls, sep="\n", flush=True)


if __name__ == "__main__":
    run(main())
