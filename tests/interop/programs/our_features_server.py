"""What `features.py` describes, on wirespeed.

python our_features_server.py [--versions 2025-06-18,…] [--http]

With --http it listens for HTTP and prints the URL. FEATURES_STORE is the URL of the store that
several hosts share.
"""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

from wirespeed import Context, Server
from wirespeed.cluster import Cluster
from wirespeed.types import Icon, ToolResult

ICON = Icon(src="https://example.com/add.png", mime_type="image/png", sizes=["48x48"])

store = os.environ.get("FEATURES_STORE")
server = Server(
    "features",
    version="1.2.3",
    instructions="Try every feature.",
    page_size=4,
    versions=sys.argv[2].split(",") if sys.argv[1:2] == ["--versions"] else None,
    shutdown_grace=2.0,
    # a slow machine is no loss of the store
    cluster=Cluster(store, store_timeout=20.0) if store else None,
    state_secret=b"only for tests: 16 bytes or more",
)
server.use_tasks(poll_interval=0.02)
cancelled: list[str] = []


@dataclass
class Person:
    name: str
    age: int


# -- tools -----------------------------------------------------------------------------------------


@server.tool
async def absent() -> str:
    """Tell which features this server does not have."""
    return json.dumps({})


@server.tool(
    title="Adder",
    annotations={"title": "Add up", "readOnlyHint": True, "destructiveHint": False},
    icons=[ICON],
    meta={"example.com/kind": "sum"},
)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def fail() -> str:
    """Fail."""
    raise ValueError("boom")


@server.tool
async def count(n: int, ctx: Context) -> str:
    """Report progress n times."""
    for i in range(1, n + 1):
        await ctx.progress(i, n, f"step {i}")
    # the TypeScript SDK loses progress that it reads together with the answer
    # (typescript-sdk#2580); what leaves in another turn of the loop is seldom read so
    await asyncio.sleep(0.5)
    return str(n)


@server.tool
async def chatter(ctx: Context) -> str:
    """Log at four levels."""
    for level in ("debug", "info", "warning", "error"):
        await ctx.log(level, {"said": level}, "chatter")
    return "said"


@server.tool
async def wait(ctx: Context) -> str:
    """Report progress once, then wait to be cancelled."""
    await ctx.progress(1)
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        cancelled.append("wait")
        raise
    return "waited"


@server.tool
async def noticed() -> str:
    """Tell what was cancelled."""
    return json.dumps(cancelled)


@server.tool
async def grow(kind: str) -> str:
    """Add a tool, a prompt or a resource."""

    async def late() -> str:
        return "late"

    if kind == "tools":
        server.add_tool(late)
    elif kind == "prompts":
        server.add_prompt(late)
    else:
        server.add_resource("text://late", "late", name="late")
    return kind


@server.tool
async def touch(uri: str) -> str:
    """Tell that a resource was updated."""
    server.resource_updated(uri)
    return uri


@server.tool
async def meta(ctx: Context) -> ToolResult:
    """Give back a member of the request's _meta, and one of its own."""
    sent = ctx.meta.get("example.com/trace")
    return ToolResult(content=str(sent), meta={"example.com/answer": 42})


@server.tool(task="optional", task_after=0)
async def slow() -> str:
    """Work on as a task."""
    await asyncio.sleep(0.5)
    return "done"


@server.tool
async def ask_form(ctx: Context) -> str:
    """Ask for a name and an age."""
    answer = await ctx.elicit("Who are you?", Person)
    person = answer.content
    content = None if person is None else {"name": person.name, "age": person.age}
    return json.dumps({"action": answer.action, "content": content})


@server.tool
async def ask_url(ctx: Context) -> str:
    """Have a page opened."""
    answer = await ctx.elicit_url("Sign in.", "https://example.com/sign-in")
    return json.dumps({"action": answer.action})


@server.tool
async def ask_sample(ctx: Context) -> str:
    """Ask the model."""
    answer = await ctx.sample("Capital of France?", max_tokens=50)
    return json.dumps({"model": answer.model, "text": answer.text})


@server.tool
async def ask_sample_tools(ctx: Context) -> str:
    """Ask the model, which may use a tool."""
    tool = {"name": "look_up", "inputSchema": {"type": "object"}}
    answer = await ctx.sample("Capital of France?", max_tokens=50, tools=[tool])
    blocks: list[Any] = answer.blocks
    return json.dumps([["tool_use", block.name, block.input] for block in blocks])


@server.tool
async def ask_roots(ctx: Context) -> str:
    """Ask for the roots."""
    return json.dumps([[root.uri, root.name] for root in await ctx.roots()])


# -- resources -------------------------------------------------------------------------------------


@server.resource("text://hello", name="hello", title="Hello", mime_type="text/plain")
async def hello() -> str:
    """A greeting."""
    return "Hello."


server.add_resource(
    "blob://bytes",
    b"\0\1\2\3",
    name="bytes",
    description="Four bytes.",
    mime_type="application/octet-stream",
)


@server.resource("item://{id}", name="item", mime_type="text/plain")
async def item(id: int) -> str:
    """An item."""
    return f"item {id}"


# -- prompts and completion ------------------------------------------------------------------------


@server.prompt(title="Greeting")
async def greet(name: str, tone: str = "warm") -> str:
    """Greet somebody."""
    return f"Greet {name}, tone {tone}."


@server.completion("greet", "name")
async def names(value: str) -> list[str]:
    return [name for name in ("Ada", "Alan", "Bob") if name.startswith(value)]


@server.completion("greet", "tone")
async def tones(value: str, known: dict[str, str]) -> list[str]:
    return [f"{value} for {known.get('name')}"]


@server.completion("item://{id}", "id")
async def ids(value: str) -> list[str]:
    return [value + "0", value + "1"]


if __name__ == "__main__":
    if "--http" in sys.argv:
        server.run("http://127.0.0.1:0/mcp", on_listening=lambda urls: print(urls[0], flush=True))
    else:
        server.run()
