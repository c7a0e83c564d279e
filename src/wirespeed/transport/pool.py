"""The end of a server's handlers."""

from __future__ import annotations

import asyncio
import logging

from wirespeed.transport.taskpool import TaskPool

logger = logging.getLogger("wirespeed.server")

LAST_WAIT = 0.25  # seconds that handlers get after their cancellation


async def close_pool(pool: TaskPool) -> None:
    """End the handlers; those that ignore it are left behind."""
    closing = asyncio.ensure_future(pool.aclose())
    await asyncio.wait([closing], timeout=LAST_WAIT)
    if not closing.done():
        closing.cancel()
        await asyncio.wait([closing])
        logger.warning("%d tools ignore their cancellation and are left behind", pool.abandon())
