"""Our server as an ASGI application: alone, and mounted in FastAPI."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from wirespeed import Context, Server


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[None]:
    print("started", file=sys.stderr, flush=True)
    yield
    print("ended", file=sys.stderr, flush=True)


server = Server("asgi", lifespan=lifespan)


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def count(n: int, ctx: Context) -> int:
    for i in range(n):
        await ctx.progress(i + 1, n)
    return n


@server.tool
async def wait(ctx: Context) -> None:
    await ctx.progress(1)
    try:
        await asyncio.Event().wait()
    finally:
        print("cancelled", file=sys.stderr, flush=True)


@server.tool
async def mark(name: str) -> str:
    print(f"marked {name}", file=sys.stderr, flush=True)
    return name


app = server.asgi()


def mounted() -> object:
    """The application of FastAPI; called by the servers (``--factory``)."""
    from fastapi import FastAPI

    @asynccontextmanager
    async def own(api: FastAPI) -> AsyncIterator[None]:
        print("own began", file=sys.stderr, flush=True)
        yield
        print("own has gone", file=sys.stderr, flush=True)

    @asynccontextmanager
    async def both(api: FastAPI) -> AsyncIterator[None]:
        async with app.lifespan(api), own(api):
            yield

    outer = FastAPI(lifespan=both)
    outer.mount("/tools", app)
    return outer


def in_starlette() -> object:
    """The application of Starlette, in the three ways to have an endpoint there."""
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    exact, below = server.asgi("/exact"), server.asgi("/")

    @asynccontextmanager
    async def both(api: Starlette) -> AsyncIterator[None]:
        async with exact.lifespan(api), below.lifespan(api), app.lifespan(api):
            yield

    routes = [Route("/exact", exact), Mount("/below", below), Mount("/tools", app)]
    return Starlette(routes=routes, lifespan=both)
