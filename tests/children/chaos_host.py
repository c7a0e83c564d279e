"""A host of tests/chaos, or the server behind a host that is a proxy: ``chaos_host.py JSON``, with
the arguments of `serve`. A host writes "ready" when it listens. Each run of a handler is a line of
the journal."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import sys
import time
from typing import Any

from wirespeed import Context, HttpOptions, Server, run
from wirespeed.cli.log_lines import set_up_log
from wirespeed.cluster import Cluster, RedisEventStore
from wirespeed.errors import Unsupported


class Life:
    def __init__(self) -> None:
        self.name = secrets.token_hex(8)


def shop(name: str, journal: str, cluster: Cluster | None) -> Server:
    server = Server("shop", cluster=cluster, state_secret=b"s" * 16)
    lines = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(ctx: Context, nonce: str) -> None:
        """Write down that a handler runs, and in which life of its session: each owner gives it
        another one, because a value that is not JSON does not move with the session. A server
        behind a proxy has one life."""
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

    return server


def serve(
    name: str,
    journal: str,
    lifetime: float,
    *,
    store: str = "",
    address: str = "",
    port: int = 0,
    **more: Any,
) -> None:
    """
    Args:
        lifetime: Seconds that sessions and events are kept without use.
        store: Of the hosts; without one it is a server behind a proxy.
        address, port: Where it listens; without them it has stdio.
        more: Further options of HTTP.
    """
    set_up_log("warning", "text")
    logging.getLogger("wirespeed.cluster").setLevel(logging.INFO)
    cluster = Cluster(store) if store else None
    server = shop(name, journal, cluster)
    if not address:
        server.run()
        return

    def listening(urls: tuple[str, ...]) -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    place = f"http://{address}:{port}"
    if cluster is None:
        run(f"{place}/mcp", server, on_listening=listening)
        return
    options = HttpOptions(
        name=name,
        host_url=place,
        session_ttl=lifetime,
        event_store=RedisEventStore(cluster, "shop", max_age=lifetime),
        **more,
    )
    run(f"{place}/mcp", server, http=options, on_listening=listening)


if __name__ == "__main__":
    serve(**json.loads(sys.argv[1]))
