"""Our own servers of one era each, behind a proxy that clients of the other use."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from lab.raw import surroundings

from wirespeed import Stdio
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

VERSIONS = {"legacy": "2024-11-05,2025-03-26,2025-06-18,2025-11-25", "modern": "2026-07-28"}
OTHER: Any = {"legacy": "modern", "modern": "legacy"}


@contextlib.asynccontextmanager
async def serving(
    folder: Path,
    program: str,
    isolation: Any,
    era: str,
    listen: str,
    *,
    size: int = 1,
    target: Any = None,
    others: tuple[BackendConfig, ...] = (),
    **options: Any,
) -> AsyncIterator[str]:
    """A proxy before a server of one era. Yields its URL.

    ``program``: Gets the server's versions, and the path of a file for what it tells.
    ``target``: Of another server. ``others``: Further servers of the proxy.
    """
    if target is None:
        path = folder / "server.py"
        path.write_text(program)
        command = [str(path), VERSIONS[era], str(folder / "seen")]
        target = Stdio(sys.executable, command, env=surroundings())
    backend = BackendConfig(target=target, name="b", isolation=isolation, size=size)
    listens = (f"{listen}://127.0.0.1:0/mcp",)
    options = {"ready_within": 60.0, **options}  # starts take long where much else runs
    config = ProxyConfig(backends=(backend, *others), listen=listens, **options)
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(
        Proxy(config).serve(on_listening=lambda urls: listening.set_result(urls[0]))
    )
    await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield listening.result()
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def elicited(request: Any) -> dict[str, int]:
    """The answer of a client to an elicitation."""
    return {"value": 12}
