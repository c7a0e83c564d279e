"""``wirespeed discover``: the servers that the hosts of this machine have."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from wirespeed import config
from wirespeed.bench.command_line import command_shown
from wirespeed.cli import show
from wirespeed.cli.failures import Exit, complain, describe, print_json, printable
from wirespeed.cli.hosts.known import HOSTS, Host
from wirespeed.cli.session import run, show_warnings
from wirespeed.errors import ConfigError, WirespeedError
from wirespeed.transport.schemes import public

if TYPE_CHECKING:
    from wirespeed.config import ServerConfig

_AT_ONCE = 4  # servers that are tried
_TIME = 20.0  # seconds for one


class Found(NamedTuple):
    """A server of a host.

    Attributes:
        host: The host.
        scope: ``user``, ``project``, or ``local`` for what Claude Code keeps for this folder.
        file: The file.
        server: The server; its ``problem`` says why it cannot be used.
    """

    host: Host
    scope: str
    file: str
    server: ServerConfig

    @property
    def shown(self) -> str:
        """The command or the URL, as the file writes it, without secrets."""
        server = self.server
        if server.url is not None:
            return public(server.shown[0] if server.shown else server.url)
        words = server.shown or tuple(filter(None, (server.command, *server.args)))
        return command_shown(words)


def discover(*, tries: bool, as_json: bool, timeout: float | None) -> int:
    """Print the servers of all hosts of this machine, and of the project in the current directory.
    Nothing is started, unless ``tries``: then each server that is enabled is."""
    show_warnings()
    problems: list[str] = []
    found = list(_all(problems))
    results: list[dict[str, Any] | None] = [None] * len(found)
    if tries:
        limit = _TIME if timeout is None else timeout or None
        results = run(_try_all(found, limit))
    if as_json:
        print_json({"servers": [_as_json(*pair) for pair in zip(found, results, strict=True)]})
    elif found:
        show.put(show.console(), _table(found, results))
    else:
        complain(f"no host of this machine has a server ({', '.join(HOSTS)})", level="note")
    for problem in problems:
        complain(printable(problem), level="warning")
    return Exit.OK


def _all(problems: list[str]) -> Iterator[Found]:
    seen: set[str] = set()
    for host in HOSTS.values():
        for project in (False, True):
            if project and host.project is None:
                continue
            path = host.file(project)
            for file in (path, f"{path}c") if host.name == "opencode" else (path,):
                real = os.path.realpath(file)
                if real in seen or not os.path.isfile(file):
                    continue
                seen.add(real)
                try:
                    yield from _in_file(host, "project" if project else "user", file)
                except (ConfigError, OSError) as exc:
                    problems.append(f"{host.title}: {exc}")


def _in_file(host: Host, scope: str, file: str) -> Iterator[Found]:
    """The servers of a file, which may have none."""
    with open(file, "rb") as opened:
        data = opened.read()
    servers: Mapping[str, ServerConfig] = {}
    try:
        servers = config.loads(data, source=file, folder=os.path.dirname(file))
    except ConfigError as exc:
        if "expected a key" not in str(exc) and "is empty" not in str(exc):
            raise
    for server in servers.values():
        yield Found(host, scope, file, server)
    if host.name == "claude-code" and scope == "user":
        document = json.loads(data)
        projects = document.get("projects") if isinstance(document, dict) else None
        local = projects.get(os.getcwd()) if isinstance(projects, dict) else None
        entries = local.get("mcpServers") if isinstance(local, dict) else None
        if isinstance(entries, dict) and entries:
            text = json.dumps({"mcpServers": entries})
            for server in config.loads(text, source=file, folder=os.getcwd()).values():
                yield Found(host, "local", file, server)


# -- attempts -------------------------------------------------------------------------------------


async def _try_all(found: list[Found], limit: float | None) -> list[dict[str, Any] | None]:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(item: Found) -> dict[str, Any] | None:
        if item.server.problem or not item.server.enabled:
            return None
        async with gate:
            return await _try(item.server, limit)

    return list(await asyncio.gather(*map(one, found)))


async def _try(server: ServerConfig, limit: float | None) -> dict[str, Any]:
    """Start a server, or connect to it, and ask for its tools."""
    from wirespeed.cli.failures import Failure

    try:
        async with asyncio.timeout(limit):
            async with server.client(stderr="discard", name="wirespeed-cli") as client:
                tools = await client.list_tools() if "tools" in client.server_capabilities else []
                return {
                    "ok": True,
                    "server": client.server_info,
                    "revision": client.protocol_version,
                    "tools": len(tools),
                }
    except (TimeoutError, WirespeedError, Failure, ValueError, TypeError) as exc:
        known = isinstance(exc, WirespeedError)
        text = describe(exc)[0] if known else str(exc) or f"no answer within {limit:g} s"
        return {"ok": False, "error": text}


# -- output ---------------------------------------------------------------------------------------


def _as_json(found: Found, result: dict[str, Any] | None) -> dict[str, Any]:
    server = found.server
    members: dict[str, Any] = {
        "host": found.host.name,
        "scope": found.scope,
        "file": found.file,
        "key": server.name,
        "transport": server.transport,
        "starts" if server.url is None else "url": found.shown,
        "enabled": server.enabled,
    }
    if server.problem:
        members["problem"] = server.problem
    return members if result is None else members | {"tried": result}


def _state(found: Found, result: dict[str, Any] | None) -> str:
    if found.server.problem:
        return f"cannot be used: {found.server.problem}"
    if not found.server.enabled:
        return "switched off"
    if result is None:
        return ""
    if not result["ok"]:
        return f"failed: {result['error']}"
    info = cast("dict[str, Any]", result["server"] or {})
    name = f"{info.get('name', '')} {info.get('version', '')}".strip()
    return f"works: {name}, {result['revision']}, {show.plural(result['tools'], 'tool')}"


def _table(found: list[Found], results: list[dict[str, Any] | None]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    made.add_column("host", style="cyan", no_wrap=True)
    made.add_column("server", overflow="fold", max_width=24)
    made.add_column("starts, or connects to", overflow="fold", ratio=1)
    states = [_state(*pair) for pair in zip(found, results, strict=True)]
    if any(states):
        made.add_column("state", overflow="fold", ratio=1)
    for one, state in zip(found, states, strict=True):
        scope = "" if one.scope == "user" else f" ({one.scope})"
        cells = [f"{one.host.name}{scope}", one.server.name, one.shown]
        if any(states):
            cells.append(state)
        made.add_row(*(Text(printable(cell)) for cell in cells))
    return made
