"""A host of tests/chaos: ``chaos_host.py JSON`` with its name, address, port, store and journal. It
writes "ready" when it listens, and a line into the journal for each run of a handler."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from typing import Any

from wirespeed import Context, HttpOptions, Server, run
from wirespeed.cluster import Cluster, RedisEventStore
from wirespeed.errors import Unsupported


class Life:
    def __init__(self) -> None:
        self.name = secrets.token_hex(8)


def serve(
    name: str, port: int, store: str, *, address: str, journal: str, lifetime: float, **more: Any
) -> None:
    """
    Args:
        lifetime: Seconds that sessions and events are kept without use.
        more: Further options of HTTP.
    """
    cluster = Cluster(store)
    server = Server("shop", cluster=cluster, state_secret=b"s" * 16)
    lines = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(ctx: Context, nonce: str) -> None:
        """Write down that a handler runs, and in which life of its session: with each owner it has
        another one, for it is not JSON, which moves with the session."""
        try:
            life = ctx.session_state.setdefault("life", Life()).name
        except Unsupported:
            life = ""
        os.write(lines, f"{time.monotonic()} {name} {life} {nonce}\n".encode())

    @server.tool
    async def work(ctx: Context, nonce: str, steps: int = 0, pause: float = 0.0) -> str:
        note(ctx, nonce)
        for step in range(steps):
            await ctx.progress(step + 1, steps, nonce)
            await asyncio.sleep(pause / steps)
        return nonce

    @server.tool
    async def ask(ctx: Context, nonce: str) -> str:
        """Elicitation. In 2026-07-28 it runs twice: it is noted with its answer."""
        answer = await ctx.elicit(nonce, str)
        note(ctx, nonce)
        return f"{nonce} {answer.content}"

    @server.tool
    async def sample(ctx: Context, nonce: str) -> str:
        answer = await ctx.sample(nonce, max_tokens=20)
        note(ctx, nonce)
        return f"{nonce} {answer.text}"

    @server.resource("stock://{who}")
    def stock(who: str) -> str:
        return "7"

    @server.tool
    def sell(ctx: Context, who: str, nonce: str) -> str:
        note(ctx, nonce)
        server.resource_updated(f"stock://{who}")
        return nonce

    place = f"http://{address}:{port}"
    options = HttpOptions(
        name=name,
        host_url=place,
        session_ttl=lifetime,
        event_store=RedisEventStore(cluster, "shop", max_age=lifetime),
        **more,
    )

    def listening(urls: tuple[str, ...]) -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    run(f"{place}/mcp", server, http=options, on_listening=listening)


if __name__ == "__main__":
    serve(**json.loads(sys.argv[1]))
