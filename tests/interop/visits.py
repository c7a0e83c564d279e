"""Pages of several hosts, in one real browser, each of which calls a server of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import browser
import pairings
import transcripts

from wirespeed.transport.loop import loop_factory

FOREIGN = "page.example"  # a name of this machine only for this browser
Visit = tuple[str, tuple[str, ...], bool]
"""The host of the page, the server's options, whether the page may connect."""
Seen = tuple[dict[str, Any], transcripts.Run]
"""What a page showed, and the server's life."""


def made(
    program: str, visits: Mapping[str, Visit], port: int, folder: Path, transport: str
) -> dict[str, Seen]:
    """Make all visits to the pages at a port, by one browser."""
    shown: dict[str, dict[str, Any]] = {}

    async def main() -> None:
        async with AsyncExitStack() as stack:
            urls = {}
            for name, (_, options, _) in visits.items():
                (folder / name).mkdir()
                server = pairings.listening(folder / name, pairings.OUR_SERVER, options, transport)
                urls[name] = await stack.enter_async_context(server)
            window = await stack.enter_async_context(browser.opened(program, folder / "profile"))
            for name, (host, _, _) in visits.items():
                page = f"http://{host}:{port}/page?url={quote(urls[name], safe='')}"
                async with asyncio.timeout(browser.SECONDS):
                    shown[name] = json.loads(await window.text(page, "report"))

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
    return {name: (shown[name], *transcripts.runs(folder / name)) for name in visits}
