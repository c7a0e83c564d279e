"""``wirespeed top``: what a proxy does, in a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from wirespeed.cli import credentials, show
from wirespeed.cli.failures import Exit, cannot_start, print_json, printable, usage
from wirespeed.cli.session import run
from wirespeed.errors import TransportError
from wirespeed.proxy.operation.status import count, seconds, size, span
from wirespeed.transport.address import parse

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from wirespeed.auth.fetch import Fetcher

MAX_BYTES = 1 << 24  # of an answer
MAX_EVENTS = 8  # that are shown

_STYLES = {
    "up": "green",
    "idle": "dim",
    "starting": "yellow",
    "degraded": "yellow",
    "down": "red",
    "crash-loop": "red",
    "ejected": "red",
}


def top(
    url: str,
    *,
    token: str | None,
    token_file: str | None,
    interval: float,
    once: bool,
    as_json: bool,
) -> int:
    """Show the status of the proxy with an admin listener at ``url``, again and again.

    Failure (2 or 3): the URL or the token is wrong, or nobody answers.
    """
    try:
        address = parse(url)
    except ValueError as exc:
        raise usage(str(exc)) from None
    if not address.is_http:
        raise usage(f"{url} is not the http:// URL of an admin listener")
    secret = credentials.find(token, token_file)
    fields = []
    if secret is not None and secret.is_for(address.host):
        fields = [("Authorization", f"Bearer {secret.only}")]
    once = once or as_json or not sys.stdout.isatty()
    return run(_top(url.rstrip("/"), fields, interval, once, as_json))


async def _top(
    url: str, fields: list[tuple[str, str]], interval: float, once: bool, as_json: bool
) -> int:
    from wirespeed.auth.fetch import Fetcher

    fetcher = Fetcher(url, max_bytes=MAX_BYTES)
    try:
        status = await _ask(fetcher, url, fields)
        if as_json:
            print_json(status)
        elif once:
            out = show.console()
            show.put(out, _screen(status, url, out.width))
        else:
            await _watch(fetcher, url, fields, interval, status)
    finally:
        await fetcher.close()
    return Exit.OK


async def _ask(fetcher: Fetcher, url: str, fields: list[tuple[str, str]]) -> dict[str, Any]:
    """Ask for the status. TransportError, Failure: there is none."""
    answer = await fetcher.get(f"{url}/status", headers=fields)
    if answer.status == 401:
        raise cannot_start(
            f"{url} needs its token: give --token-file FILE, or set {credentials.ENVIRONMENT}"
        )
    status = answer.json() if answer.status == 200 else None
    if not isinstance(status, dict) or "backends" not in status:
        raise cannot_start(f"{url} is not the admin listener of a proxy")
    return status


async def _watch(
    fetcher: Fetcher,
    url: str,
    fields: list[tuple[str, str]],
    interval: float,
    status: dict[str, Any],
) -> None:
    from rich.live import Live

    out = show.console()
    first = _screen(status, url, out.width)
    ended = asyncio.Event()
    with _keys(ended), Live(first, console=out, screen=True, auto_refresh=False) as live:
        while True:
            live.refresh()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), interval)
                return
            note = ""
            try:
                status = await _ask(fetcher, url, fields)
            except TransportError as exc:
                note = printable(str(exc))
            live.update(_screen(status, url, out.width, note))


@contextlib.contextmanager
def _keys(ended: asyncio.Event) -> Iterator[None]:
    """Set an event at the key q, if stdin is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import os
    import termios
    import tty

    fd, loop = sys.stdin.fileno(), asyncio.get_running_loop()

    def read() -> None:
        if b"q" in os.read(fd, 64):
            ended.set()

    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    loop.add_reader(fd, read)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _screen(status: dict[str, Any], url: str, width: int, note: str = "") -> Group:
    """All that is shown, in lines of so many characters. ``note``: why it is old."""
    from rich.console import Group
    from rich.text import Text

    totals = status["totals"]
    if status["ready"]:
        state = ("ready", "bold green")
    else:
        state = ("shutting down" if status["draining"] else "not ready", "bold red")
    head = Text.assemble(
        (f"wirespeed proxy {printable(status['name'])} ", "bold"),
        state,
        f"  {url}  up {span(status['uptime'])}",
        (f"  {len(status['workers'])} workers" if len(status["workers"]) > 1 else ""),
    )
    facts = Text(
        f"{count(totals['rate'])} requests/s, {count(totals['error_rate'])} errors/s, "
        f"median {seconds(totals['p50'])}, 99 % {seconds(totals['p99'])}, "
        f"{totals['in_flight']} in flight, {totals['waiting']} waiting, "
        f"{totals['clients']} clients, {count(totals['refused'])} requests refused so far"
    )
    parts: list[Any] = [head, facts]
    missing = ", ".join(map(str, status["workers_missing"]))
    if missing:
        parts.append(Text(f"no answer of worker {missing}", style="red"))
    if note:
        parts.append(Text(f"these numbers are old: {note}", style="red"))
    parts += ["", _servers(status, width)]
    if status["clients"]:
        parts += ["", _clients(status["clients"], width)]
    events: list[Any] = [
        Text(f"{event['level']}: {printable(event['text'])}", overflow="ellipsis", no_wrap=True)
        for event in status["events"][:MAX_EVENTS]
    ]
    return Group(*parts, *(["", *events] if events else []))


def _table(rows: list[dict[str, Any]], width: int, *columns: str) -> Table:
    """A table of rows, whose members are named like the columns. Columns of numbers are on the
    right, those with a star on the left. Where the lines are too short, the columns with a question
    mark are left out, the last one first."""
    from rich.table import Table

    shown = [name.strip("*?") for name in columns]
    spare = [name.strip("*?") for name in columns if name.endswith("?")]
    while spare and _width_of(rows, shown) > width:
        shown.remove(spare.pop())
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in shown:
        table.add_column(
            name,
            justify="left" if {f"*{name}", f"*{name}?"} & {*columns} else "right",
            no_wrap=True,
        )
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    return table


def _width_of(rows: list[dict[str, Any]], columns: list[str]) -> int:
    return sum(max(len(name), *(len(row[name]) for row in rows)) + 2 for name in columns) - 2


def _servers(status: dict[str, Any], width: int) -> Table:
    from rich.text import Text

    rows: list[dict[str, Any]] = []
    for one in sorted(status["backends"], key=lambda one: (-one["rate"], one["name"])):
        row = {
            "SERVER": Text(printable(one["name"])),
            "STATE": _state(one),
            "REQ/S": count(one["rate"]),
            "ERR/S": count(one["error_rate"]),
            "P50": seconds(one["p50"]),
            "P99": seconds(one["p99"]),
            "BUSY": str(one["in_flight"]),
            "WAIT": str(one["waiting"]),
            "CLIENTS": str(one["clients"]),
            "REFUSED": count(sum(one["refused"].values())),
            "RESTARTS": str(one["restarts"]),
        }
        rows.append(row)
        rows += [
            {
                **dict.fromkeys(row, ""),
                "SERVER": Text(f"  {printable(server['url'])}", style="dim"),
                "STATE": Text(printable(server["state"]), style=_STYLES.get(server["state"], "")),
                "BUSY": str(server["in_flight"]),
                "RESTARTS": str(server["starts"] - 1),
            }
            for server in one["servers"]
            if server["url"]
        ]
    names = {one["name"] for one in status["backends"]}
    rows += [
        {
            **dict.fromkeys(rows[0], ""),
            "SERVER": Text("all servers", style="dim"),
            "CLIENTS": str(one["clients"]),
            "REFUSED": count(sum(one["refused"].values())),
        }
        for one in status["endpoints"]
        if one["name"] not in names
    ]
    return _table(
        rows, width,
        "*SERVER", "*STATE", "REQ/S", "ERR/S?", "P50?", "P99?", "BUSY?", "WAIT?", "CLIENTS?",
        "REFUSED", "RESTARTS?",
    )  # fmt: skip


def _state(backend: dict[str, Any]) -> Text:
    from rich.text import Text

    state = backend["state"]
    found = Text(printable(state), style=_STYLES.get(state, "yellow"))
    for name, n in backend["breakers"].items():
        if n:
            found.append(f", breaker {printable(name)}", style="red")
    return found


def _clients(clients: list[dict[str, Any]], width: int) -> Table:
    from rich.text import Text

    rows = [
        {
            "CLIENT": Text(printable(one["user"] or one["address"])),
            "ENDPOINT": Text(printable(one["endpoint"])),
            "REVISION": one["version"] or "—",
            "BUSY": str(one["in_flight"]),
            "RECEIVED": size(one["bytes_in"]),
            "SENT": size(one["bytes_out"]),
        }
        for one in sorted(clients, key=lambda one: (-one["in_flight"], -one["bytes_in"]))[:10]
    ]
    columns = "*CLIENT", "*ENDPOINT", "*REVISION?", "BUSY", "RECEIVED?", "SENT?"
    return _table(rows, width, *columns)
