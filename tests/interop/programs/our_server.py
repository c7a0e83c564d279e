"""The server of the interoperation tests, in wirespeed: what every *_server program offers.

python our_server.py [--versions 2025-11-25,…] [--compression] [--origin ORIGIN] [--tls FILE]
    [--ws | --http] [--keepalive SECONDS]

With --ws it listens for WebSockets, with --http for HTTP, and prints the URL; with --tls for secure
ones. --keepalive: how often silent streams of events get a comment.
"""

import asyncio
import json
import ssl
import sys
from dataclasses import dataclass, field
from typing import Literal

from wirespeed import Context, HttpOptions, Server
from wirespeed.types import Audio, EmbeddedResource, Image, ResourceContents, ResourceLink, Text

options = sys.argv[1:]
versions = None
if options[:1] == ["--versions"]:
    versions = options[1].split(",")

server = Server(
    "interop",
    version="1.2.3",
    instructions="Call the tools.",
    page_size=2,
    versions=versions,
    shutdown_grace=2.0,
)
cancelled: list[str] = []
going: dict[int, asyncio.Event] = {}


@dataclass
class Person:
    name: str
    age: int
    colour: Literal["red", "green"]
    tags: list[str] = field(default_factory=list)


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def echo(text: str, ms: int = 0) -> str:
    """Give the text back, after some milliseconds."""
    if ms:
        await asyncio.sleep(ms / 1000)
    return text


@server.tool
async def person(
    name: str, age: int = 30, colour: Literal["red", "green"] = "red", tags: list[str] | None = None
) -> Person:
    """Make a person."""
    return Person(name, age, colour, tags or [])


@server.tool
async def blocks() -> list[Text | Image | Audio | ResourceLink | EmbeddedResource]:
    """Give one block of each kind."""
    return [
        Text(text="text"),
        Image(data=b"\x89PNG\r\n", mime_type="image/png"),
        Audio(data=b"RIFF", mime_type="audio/wav"),
        ResourceLink(uri="file:///link.txt", name="link", mime_type="text/plain"),
        EmbeddedResource(
            resource=ResourceContents(uri="file:///a.txt", mime_type="text/plain", text="inside")
        ),
        EmbeddedResource(resource=ResourceContents(uri="file:///b.bin", blob=b"\0\1\2\3")),
    ]


@server.tool
async def fail() -> str:
    """Fail."""
    raise ValueError("boom")


@server.tool
async def count(n: int, ctx: Context, hold: bool = False) -> str:
    """Report progress n times; with hold, end only after go."""
    let_go = going.setdefault(n, asyncio.Event())
    for i in range(1, n + 1):
        await ctx.progress(i, n, f"step {i}")
    if hold:
        await let_go.wait()
    return str(n)


@server.tool
async def go(n: int) -> None:
    """Let a held count end."""
    going[n].set()


@server.tool
async def chatter(ctx: Context) -> str:
    """Log at four levels."""
    for level in ("debug", "info", "warning", "error"):
        await ctx.log(level, {"said": level}, "chatter")
    return "said"


@server.tool
async def wait(tag: str, ctx: Context) -> str:
    """Report progress once, then wait to be cancelled."""
    await ctx.progress(1)
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        cancelled.append(tag)
        raise
    return "waited"


@server.tool
async def noticed() -> str:
    """Tell which waits were cancelled."""
    return json.dumps(cancelled)


@server.tool
async def grow(name: str) -> str:
    """Add a tool."""

    async def late() -> str:
        return "late"

    server.add_tool(late, name=name)
    return name


@server.tool
async def whoami(ctx: Context) -> str:
    """Tell what the client said of itself."""
    info = ctx.client_info or {}
    return json.dumps({"client": info.get("name"), "version": ctx.protocol_version})


if __name__ == "__main__":
    scheme = next((name for name in ("ws", "http") if f"--{name}" in options), None)
    if scheme is not None:
        context = None
        if options[0] == "--tls":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(options[1])
        server.run(
            f"{scheme if context is None else scheme + 's'}://127.0.0.1:0/mcp",
            ssl=context,
            compression="--compression" in options,
            origins=[options[1]] if options[0] == "--origin" else None,
            http=HttpOptions(sse_keepalive=float(options[1]))
            if options[0] == "--keepalive"
            else HttpOptions(),
            on_listening=lambda urls: print(urls[0], flush=True),
        )
    else:
        server.run()
