"""A server on stdio that hears of changed roots."""

from __future__ import annotations

import asyncio

from wirespeed import Server
from wirespeed.types import RootsChange

server = Server("roots-server")
told: asyncio.Queue[list[str]] = asyncio.Queue()


@server.on_roots_changed
async def changed(change: RootsChange) -> None:
    told.put_nowait([root.uri for root in await change.roots()])


@server.tool
async def next_change() -> list[str]:
    """The roots after a change, once there was one."""
    return await told.get()


server.run()
