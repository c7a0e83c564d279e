"""A host of a deployment: ``host.py JSON`` with its name, port and store. It writes "ready" when it
listens."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from itertools import count
from typing import Any

from wirespeed import Context, HttpOptions, HttpRequest, Server, User, run
from wirespeed.cluster import Cluster, SessionHosts

SECRET = b"s" * 16


def serve(
    name: str,
    port: int,
    store: str,
    *,
    workers: int = 1,
    tokens: dict[str, str] | None = None,
    url: str | None = None,
    without_store: float = 600.0,
    store_timeout: float = 20.0,  # a slow machine is no loss of the store
    shutdown_grace: float = 5.0,
    verdict_after: float = 0.0,  # seconds that it takes to let a client in
) -> None:
    logging.basicConfig()
    logging.getLogger("wirespeed.cluster").setLevel(logging.INFO)
    cluster = Cluster(store, store_timeout=store_timeout)
    server = Server("shop", cluster=cluster, state_secret=SECRET, shutdown_grace=shutdown_grace)

    @server.tool
    async def who(ctx: Context, steps: int = 0) -> str:
        for step in range(steps):
            await ctx.progress(step)
        return name if ctx.user is None else f"{name} for {ctx.user}"

    @server.tool
    async def wait(ctx: Context, seconds: float) -> str:
        await ctx.progress(1)
        await asyncio.sleep(seconds)
        return name

    @server.tool
    async def flood(ctx: Context) -> str:
        for step in count():
            await ctx.progress(step, message=100_000 * "x")
        return name

    @server.tool
    async def tell(ctx: Context, pause: float, sizes: list[int]) -> str:
        """Say something of each size, which has its number; over and over."""
        for step in count():
            await ctx.progress(step, message=sizes[step % len(sizes)] * "x")
            await asyncio.sleep(pause)
        return name

    @server.tool
    async def confirm(ctx: Context) -> str:
        answer = await ctx.elicit("Really?", bool)
        return f"{name}: {answer}"

    @server.tool
    async def log(ctx: Context) -> str:
        await ctx.debug("looked")
        return name

    @server.tool
    async def remember(ctx: Context, what: Any, seconds: float = 0.0) -> str:
        ctx.session_state["first"] = ctx.session_state.get("first", what)
        ctx.session_state["lock"] = asyncio.Lock()
        await asyncio.sleep(seconds)
        ctx.session_state["last"] = what
        await ctx.disable(names=["log"])
        return name

    @server.tool
    async def recall(ctx: Context) -> str:
        return json.dumps([name, ctx.session_id, ctx.session_state], default=str)

    @server.resource("stock://tea", name="stock")
    def stock() -> str:
        return "7"

    @server.tool
    def sell() -> str:
        server.resource_updated("stock://tea")
        return name

    def authenticate(request: HttpRequest) -> User | bool:
        return next((User(who) for who, t in tokens.items() if t == request.token), False)

    async def authenticate_late(request: HttpRequest) -> bool:
        await asyncio.sleep(verdict_after)
        return True

    directory = SessionHosts(
        cluster, "shop", url or f"http://127.0.0.1:{port}", secret=SECRET,
        without_store=without_store,
    )  # fmt: skip
    options = HttpOptions(name=name, directory=directory, sse_path="/sse")

    def listening(urls: tuple[str, ...]) -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    run(
        f"http://127.0.0.1:{port}/mcp", server, workers=workers, http=options,
        authenticate=authenticate if tokens else authenticate_late if verdict_after else None,
        on_listening=listening,
    )  # fmt: skip


if __name__ == "__main__":
    serve(**json.loads(sys.argv[1]))
