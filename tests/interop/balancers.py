"""Load balancers in front of servers, with the files of the pages "Behind a load balancer" and
"Several hosts"."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import pairings
import peers
from lab.nginx import NGINX

PAGES = Path(__file__).resolve().parents[2] / "docs" / "how-to"
FILE = re.compile(
    r'^```\w+ title="(\w+\.conf|\w+\.cfg|envoy\.yaml|Caddyfile)"\n(.*?)^```$',
    re.DOTALL | re.MULTILINE,
)
FILES = {
    title: text
    for page in ("behind-a-proxy.md", "several-hosts.md")
    for title, text in FILE.findall((PAGES / page).read_text(encoding="utf-8"))
}
NONE: Mapping[str, str] = MappingProxyType({})


def command(
    file: str, folder: Path, port: int, servers: Sequence[str], changes: Mapping[str, str]
) -> list[str]:
    """The command that runs a load balancer with a file of the pages, at a port, in front of
    servers. One server may stand for two."""
    places = dict(zip(("8080", "8000", "8001"), (port, *(*servers, *servers)[:2]), strict=True))
    text = re.sub(r"(127\.0\.0\.1:)(80\d\d)", lambda m: f"{m[1]}{places[m[2]]}", FILES[file])
    for name, server in zip("abc", servers, strict=False):
        text = text.replace(f"{name}.example:8000", f"127.0.0.1:{server}")
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    text = re.sub(r"(port_value: )(80\d\d)", lambda m: f"{m[1]}{places[m[2]]}", text)
    if file.endswith(".conf"):
        user = "user root;" if os.getuid() == 0 else ""  # the folder is this user's
        text = NGINX.format(user=user, folder=folder, file=text)
    (folder / file).write_text(text)
    place = str(folder / file)
    if file.endswith(".conf"):
        return [str(peers.debian() / "usr/sbin/nginx"), "-p", str(folder), "-c", place]
    if file.endswith(".cfg"):
        return [str(peers.debian() / "usr/sbin/haproxy"), "-db", "-f", place]
    programs = Path(peers.python("balancers")).parent
    if file == "envoy.yaml":
        # Several of them on one machine would share memory by its number.
        quiet = ["--use-dynamic-base-id", "--log-level", "error", "--concurrency", "1"]
        return [str(programs / "envoy"), "-c", place, *quiet]
    return [str(programs / "caddy"), "run", "--adapter", "caddyfile", "--config", place]


@asynccontextmanager
async def behind(
    file: str, folder: Path, servers: Sequence[str], changes: Mapping[str, str] = NONE
) -> AsyncIterator[int]:
    """The port of a load balancer in front of servers, whose ports are given. ``changes``: What is
    replaced in the file."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    found = peers.environment() | {"HOME": str(folder)}
    if file.endswith((".conf", ".cfg")):
        libraries = (peers.debian() / "usr/lib").glob("*-linux-gnu")
        found["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
    child = await asyncio.create_subprocess_exec(
        *command(file, folder, port, servers, changes), env=found, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(pairings.START_SECONDS):
            while not await reachable(port):
                assert child.returncode is None, f"{file}: ended with {child.returncode}"
                await asyncio.sleep(0.02)
        yield port
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def reachable(port: int) -> bool:
    """Whether a port takes connections."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return True
