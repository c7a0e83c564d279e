"""What `our_features_server.py` offers, at one of several hosts: lists and resources change at
another host, a stream is closed before its answer, and tools end the host.

our_server_of_hosts.py JSON    (its name, port and store, and the ports of the other hosts)

It writes "ready" when it listens.
"""

import asyncio
import itertools
import json
import os
import signal
import sys

from wirespeed import Client, Context, HttpOptions
from wirespeed.errors import WirespeedError

given = json.loads(sys.argv[1])
os.environ["FEATURES_STORE"] = given["store"]

from our_features_server import server  # noqa: E402 (it reads the store's URL)

grown = itertools.count()


async def at_another(tool: str, arguments: dict[str, str]) -> str:
    """Call a tool of another host that lives, or of this one if it is the last."""
    for port in (*given["others"], given["port"]):
        try:
            async with Client(f"http://127.0.0.1:{port}/mcp", era="modern", timeout=5) as client:
                return (await client.call_tool(tool, arguments)).text
        except (OSError, WirespeedError):
            continue
    raise AssertionError("no host answers")


for name in ("grow", "touch"):
    server.remove_tool(name)


@server.tool
async def grow(kind: str) -> str:
    """Add a tool, a prompt or a resource at another host."""
    return await at_another("grow_here", {"kind": kind})


@server.tool
async def grow_here(kind: str) -> str:
    """Add a tool, a prompt or a resource."""
    number = next(grown)

    async def late() -> str:
        return "late"

    if kind == "tools":
        server.add_tool(late, name=f"late-{number}")
    elif kind == "prompts":
        server.add_prompt(late, name=f"late-{number}")
    else:
        server.add_resource(f"text://late/{number}", "late", name="late")
    return kind


@server.tool
async def touch(uri: str) -> str:
    """Tell at another host that a resource was updated."""
    return await at_another("touch_here", {"uri": uri})


@server.tool
async def touch_here(uri: str) -> str:
    """Tell that a resource was updated."""
    server.resource_updated(uri)
    return uri


@server.tool
async def resumed(ctx: Context) -> str:
    """Close the stream, and answer later: a client of a session comes back for the answer."""
    await ctx.progress(1, 2)
    ctx.close_stream(retry=0.1)
    await asyncio.sleep(0.5)
    await ctx.progress(2, 2)
    await asyncio.sleep(0.5)
    return "resumed"


@server.tool
async def who() -> str:
    """Tell which host this is."""
    return str(os.getpid())


@server.tool
async def drain() -> str:
    """Have the host shut down."""
    os.kill(os.getpid(), signal.SIGTERM)
    return "drain"


@server.tool
async def die() -> str:
    """Kill the host, when what it has said of the call has left."""
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
    return "die"


if __name__ == "__main__":
    at = f"http://127.0.0.1:{given['port']}"
    http = HttpOptions(
        name=given["name"],
        host_url=at,
        sse_keepalive=0.2,  # HAProxy notices that a client left when it writes to it
        drain_delay=1.0,
        response="sse",  # a client resumes a stream, and may end where a balancer says 502
    )
    server.run(f"{at}/mcp", http=http, on_listening=lambda urls: print("ready", flush=True))
