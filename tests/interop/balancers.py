"""Load balancers in front of servers, with the files of the page "Behind a load balancer"."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pairings
import peers
from lab.nginx import NGINX

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "behind-a-proxy.md"
FILE = re.compile(
    r'^```\w+ title="(\w+\.conf|haproxy\.cfg|envoy\.yaml|Caddyfile)"\n(.*?)^```$',
    re.DOTALL | re.MULTILINE,
)
FILES = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))


def command(file: str, folder: Path, port: int, servers: Sequence[str]) -> list[str]:
    """What runs a load balancer with a file of the page, at a port, in front of servers at their
    places. A server may stand for both."""
    places = dict(zip(("8080", "8000", "8001"), (port, *(*servers, *servers)[:2]), strict=True))
    text = re.sub(r"(127\.0\.0\.1:)(80\d\d)", lambda m: f"{m[1]}{places[m[2]]}", FILES[file])
    text = re.sub(r"(port_value: )(80\d\d)", lambda m: f"{m[1]}{places[m[2]]}", text)
    if file.endswith(".conf"):
        user = "user root;" if os.getuid() == 0 else ""  # the folder is this user's
        text = NGINX.format(user=user, folder=folder, file=text)
    (folder / file).write_text(text)
    place = str(folder / file)
    if file.endswith(".conf"):
        return [str(peers.debian() / "usr/sbin/nginx"), "-p", str(folder), "-c", place]
    if file == "haproxy.cfg":
        return [str(peers.debian() / "usr/sbin/haproxy"), "-db", "-f", place]
    programs = Path(peers.python("balancers")).parent
    if file == "envoy.yaml":
        # Several of them on one machine would share memory by its number.
        quiet = ["--use-dynamic-base-id", "--log-level", "error", "--concurrency", "1"]
        return [str(programs / "envoy"), "-c", place, *quiet]
    return [str(programs / "caddy"), "run", "--adapter", "caddyfile", "--config", place]


@asynccontextmanager
async def behind(file: str, folder: Path, servers: Sequence[str]) -> AsyncIterator[int]:
    """The port of a load balancer in front of servers, whose ports are given."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    found = peers.environment() | {"HOME": str(folder)}
    if file.endswith((".conf", ".cfg")):
        libraries = (peers.debian() / "usr/lib").glob("*-linux-gnu")
        found["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
    child = await asyncio.create_subprocess_exec(
        *command(file, folder, port, servers), env=found, stdin=asyncio.subprocess.DEVNULL
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
