"""LiteMCP servers under test, over stdio or where the second argument says."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from wirespeed.litemcp import LiteServer
from wirespeed.types import Image

which = sys.argv[1]
server = LiteServer("Calculator" if which == "calculator" else None, shutdown_grace=2)

if which == "calculator":

    @server.tool
    async def add(a: float, b: float) -> float:
        """A simple calculator."""
        return a + b

elif which == "noisy":
    print("a banner before the server runs")

    @server.tool
    async def noisy(text: str) -> str:
        print("printed:", text)
        os.write(1, b"written: " + text.encode() + b"\n")
        await asyncio.create_subprocess_exec("echo", "a child:", text)
        return "quiet"

elif which == "slow":

    @server.tool
    async def slow(seconds: float) -> str:
        print("began", file=sys.stderr, flush=True)
        await asyncio.sleep(seconds)
        return "slept"

elif which == "blocking":

    @server.tool
    def blocking(seconds: float) -> str:
        time.sleep(seconds)
        return "slept"

elif which == "exits":

    @server.tool
    async def exits(status: int) -> None:
        print("the last words", file=sys.stderr, flush=True)
        os._exit(status)

elif which == "leaves":

    @server.tool
    async def leaves(status: int) -> None:
        sys.exit(status)

elif which == "picture":

    @server.tool
    async def picture(text: str, times: int = 1) -> list[object]:
        """A picture of a text."""
        if times < 0:
            raise ValueError("no such picture")
        return [text * times, Image(data=text.encode() * times, mime_type="image/png")]


server.run(*sys.argv[2:])
