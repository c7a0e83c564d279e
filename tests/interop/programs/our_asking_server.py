"""Questions that may be asked as tasks, on wirespeed: what `test_asked_tasks.py` describes.

python our_asking_server.py
"""

from dataclasses import dataclass

from wirespeed import Context, Server
from wirespeed.errors import CallTimeout

server = Server("asking", shutdown_grace=2.0)


@dataclass
class Person:
    name: str


@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Person, ttl=60)
    return f"{answer.action} {answer.content.name if answer.content else None}"


@server.tool
async def sample(ctx: Context) -> str:
    return (await ctx.sample("Capital of France?", max_tokens=50, ttl=60)).text


@server.tool
async def hurry(ctx: Context) -> str:
    try:
        return (await ctx.sample("endless", max_tokens=50, timeout=1, ttl=60)).text
    except CallTimeout:
        return "too late"


@server.tool
async def listed(ctx: Context) -> list[str]:
    return [task.status for task in await ctx.client_tasks()]


if __name__ == "__main__":
    server.run()
