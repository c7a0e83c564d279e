"""Several servers behind one endpoint, and clients of both eras."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

from lab.proxy import Raw
from lab.raw import surroundings

from wirespeed import Server, Socket, Stdio, serve
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

# A server. It is given its name and where it writes what it does.
TOOLS = """
import asyncio, os
from wirespeed import Context, Server

server = Server(me, instructions=f"Ask {me}.")

def note(text):
    with open(log, "a") as file:
        print(me, text, file=file)

@server.tool
async def who(ctx: Context, nonce: str = "") -> str:
    await ctx.progress(1, 2, nonce)
    return f"{me}:{nonce}"

@server.tool(description="Its own words.")
async def hang() -> str:
    note("hangs")
    try:
        await asyncio.Event().wait()
    finally:
        note("cancelled")

@server.tool
async def secret() -> str:
    return "secret"

@server.tool
async def leave() -> str:
    os._exit(3)

@server.tool
async def name(ctx: Context) -> str:
    return (await ctx.elicit(f"{me} asks", str)).content

@server.tool
async def grow() -> str:
    async def more() -> str:
        return "more"
    server.add_tool(more)
    return "grown"

@server.prompt
def greet(whom: str) -> str:
    return f"{me} greets {whom}"

@server.completion(greet, "whom")
async def whom(value: str) -> list[str]:
    return [f"{value} of {me}"]

@server.tool
async def touch() -> str:
    server.resource_updated(f"data://{me}")
    return "touched"

@server.tool
async def say(level: str, ctx: Context) -> str:
    await ctx.log(level, f"{me} says")
    return "said"

@server.resource("data://common")
def common() -> str:
    return f"common of {me}"

@server.resource(f"data://{me}")
def own() -> str:
    return f"own of {me}"

@server.resource("data://" + me + "/{key}")
def keyed(key: str) -> str:
    return f"{key} of {me}"
"""
SERVER = f"import sys\nme, log = sys.argv[1:]\n{TOOLS}\nserver.run()\n"

SCRIPTED = """
import json, os, sys

log = open(sys.argv[1], "a", buffering=1)
answers = json.loads(sys.argv[2])
hello = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "s", "version": "1"},
         "capabilities": {"tools": {}, "resources": {"subscribe": True}, "logging": {}}}
for line in sys.stdin:
    log.write(line)
    m = json.loads(line)
    key = m["method"] if "method" in m else ""
    params = m.get("params") or {}
    for name in ("cursor", "uri", "name"):
        if f"{key} {params.get(name)}" in answers:
            key = f"{key} {params[name]}"
    if answers.get(key, 0) is None or "id" not in m:
        continue
    if answers.get(key) == "exit":
        os._exit(3)
    default = {"result": {"initialize": hello, "tools/call": {"content": []}}.get(key, {})}
    if key == "server/discover":
        default = {"error": {"code": -32601, "message": "no"}}
    answer = answers.get(key, default)
    if key == "initialize" and "capabilities" in answer:
        answer = {"result": hello | answer}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], **answer}), flush=True)
"""


@contextlib.asynccontextmanager
async def _running(serve: Callable[..., Any]) -> AsyncIterator[tuple[str, ...]]:
    """Something that listens. Gives its URLs."""
    listening: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serve(on_listening=listening.set_result))
    await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield listening.result()
    finally:
        task.cancel()
        await asyncio.wait((task,))


class MergeLab:
    """A proxy with several servers at a UNIX socket. ``names``: of servers in this process."""

    def __init__(self, folder: Path, *names: str, **options: Any) -> None:
        self.path = folder / "s"
        self.url = f"unix:{self.path}"
        self.log = folder / "log"
        self.log.touch()
        self.script = folder / "server.py"
        self.script.write_text(SERVER)
        self.options = {"ready_within": 60.0, **options}  # starts take long where much else runs
        self.clients: list[Raw] = []
        self.servers: dict[str, Server] = {}
        self.backends = [self.inside(name) for name in names]

    def backend(self, name: str, **more: Any) -> BackendConfig:
        """The configuration of one more server, a process."""
        arguments = [str(self.script), name, str(self.log)]
        target = Stdio(sys.executable, arguments, env=surroundings())
        return BackendConfig(target=target, name=name, **more)

    def inside(self, name: str, **more: Any) -> BackendConfig:
        """One more server, in this process behind a UNIX socket: a process takes long to start. It
        must not be told to leave."""
        names = {"me": name, "log": str(self.log)}
        exec(TOOLS, names)
        url = f"unix:{self.path}-{name}"
        self.servers[url] = names["server"]
        return BackendConfig(target=Socket(url), name=name, **more)

    def scripted(self, name: str, answers: dict[str, Any], **more: Any) -> BackendConfig:
        """One more server, of a legacy era. It answers a method as it is told: ``{"result": …}``,
        ``{"error": …}``, None (not at all), "exit". A key may have the cursor, URI or name of the
        request behind the method. What it reads is in `seen`."""
        script = self.script.with_name("scripted.py")
        script.write_text(SCRIPTED)
        arguments = [str(script), str(self.log), json.dumps(answers)]
        target = Stdio(sys.executable, arguments, env=surroundings())
        return BackendConfig(target=target, name=name, era="legacy", **more)

    def seen(self, method: str) -> list[Any]:
        """The messages of a method that scripted servers have read."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [m for m in lines if m.get("method") == method]

    async def until_seen(self, method: str, n: int) -> list[Any]:
        """Wait until scripted servers have read ``n`` messages of a method."""
        while len(found := self.seen(method)) < n:
            await asyncio.sleep(0.01)
        return found

    @contextlib.asynccontextmanager
    async def serving(self, *listen: str) -> AsyncIterator[tuple[str, ...]]:
        """Serve at the UNIX socket, or at one URL. Gives the URLs of the listener."""
        config = ProxyConfig(
            backends=tuple(self.backends), listen=listen or (self.url,), **self.options
        )
        self.proxy = Proxy(config)
        async with contextlib.AsyncExitStack() as stack:
            for url, server in self.servers.items():
                await stack.enter_async_context(_running(partial(serve, url, server)))
            urls = await stack.enter_async_context(_running(self.proxy.serve))
            try:
                yield urls
            finally:
                for client in self.clients:
                    await client.close()

    async def connect(self, version: str | None = "2025-11-25") -> Raw:
        """A client that sends and reads text."""
        streams = await asyncio.open_unix_connection(str(self.path), limit=1 << 24)
        client = Raw(*streams, version)
        self.clients.append(client)
        if version is not None:
            await client.initialize(version)
        return client

    async def until_logged(self, *lines: str) -> None:
        """Wait until the servers have noted exactly this, in any order."""
        while len(found := self.log.read_text().splitlines()) < len(lines):
            await asyncio.sleep(0.01)
        assert sorted(found) == sorted(lines)
