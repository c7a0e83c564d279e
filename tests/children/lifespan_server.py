"""A server with a lifespan. argv[1]: how it goes ("well", "badly", "exits"); argv[2]: a URL, or
nothing for stdio; argv[3]: workers. What happens is told on stderr."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import anyio

from wirespeed import Context, Server

how = sys.argv[1]
url = sys.argv[2] if len(sys.argv) > 2 else None
workers = int(sys.argv[3]) if len(sys.argv) > 3 else 1


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class State:
    """What the lifespan yields."""

    def __init__(self) -> None:
        self.pid = os.getpid()


async def lifespan(server: Server) -> AsyncIterator[State]:
    say(f"begins {server.name}")
    print("printed by the lifespan")
    await asyncio.sleep(0)
    if how == "badly":
        raise OSError("no database")
    if how == "exits":
        sys.exit(7)
    async with anyio.create_task_group():
        yield State()
    await asyncio.sleep(0)
    say(f"ends {server.name}")


server = Server("lively", lifespan=lifespan)


@server.tool
async def pid(state: State, ctx: Context) -> str:
    assert ctx.lifespan_state is state
    return str(state.pid)


if url is None:
    server.run()
else:
    server.run(url, workers=workers, on_listening=lambda urls: print(urls[0], flush=True))
