"""Tasks on wirespeed: what `test_tasks.py` describes.

python our_tasks_server.py
"""

import asyncio
from dataclasses import dataclass

from wirespeed import Context, Server

server = Server("tasks", shutdown_grace=2.0)
server.use_tasks(poll_interval=0.02)


@dataclass
class Person:
    name: str


@server.tool(task="required")
async def slow() -> str:
    await asyncio.sleep(0.05)
    return "done"


@server.tool(task="required")
async def endless() -> str:
    await asyncio.sleep(30)
    return "done"


@server.tool(task="required")
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Person)
    return f"{answer.action} {answer.content.name if answer.content else None}"


if __name__ == "__main__":
    server.run()
