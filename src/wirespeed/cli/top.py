"""``wirespeed top``: what a proxy does, in a terminal."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from wirespeed.cli import credentials, show
from wirespeed.cli.failures import Exit, cannot_start, print_json, printable, usage
from wirespeed.cli.session import run
from wirespeed.errors import TransportError
from wirespeed.proxy.operation.quantities import count, seconds, size, span
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
            show.put(show.console(), _screen(status, url))
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
    with Live(_screen(status, url), console=out, screen=True, auto_refresh=False) as live:
        while True:
            live.refresh()
            await asyncio.sleep(interval)
            note = ""
            try:
                status = await _ask(fetcher, url, fields)
            except TransportError as exc:
                note = printable(str(exc))
            live.update(_screen(status, url, note))


def _screen(status: dict[str, Any], url: str, note: str = "") -> Group:
    """All that is shown. ``note``: why it is old."""
    from rich.console import Group
    from rich.text import Text

    totals = status["totals"]
    head = Text.assemble(
        (f"wirespeed proxy {printable(status['name'])} ", "bold"),
        ("ready", "bold green") if status["ready"] else (_not_ready(status), "bold red"),
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
    parts += ["", _servers(status["backends"])]
    if status["clients"]:
        parts += ["", _clients(status["clients"])]
    events: list[Any] = [
        Text(f"{event['level']}: {printable(event['text'])}", overflow="ellipsis", no_wrap=True)
        for event in status["events"][:MAX_EVENTS]
    ]
    return Group(*parts, *(["", *events] if events else []))


def _not_ready(status: dict[str, Any]) -> str:
    return "shutting down" if status["draining"] else "not ready"


def _table(*columns: str) -> Table:
    """A table whose columns are numbers, but those with a star."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(
            name.lstrip("*"), justify="left" if name[0] == "*" else "right", no_wrap=True
        )
    return table


def _servers(backends: list[dict[str, Any]]) -> Table:
    from rich.text import Text

    table = _table(
        "*SERVER",
        "*STATE",
        "REQ/S",
        "ERR/S",
        "P50",
        "P99",
        "BUSY",
        "WAIT",
        "CLIENTS",
        "REFUSED",
        "RESTARTS",
    )
    for one in sorted(backends, key=lambda one: (-one["rate"], one["name"])):
        table.add_row(
            Text(printable(one["name"])),
            _state(one),
            count(one["rate"]),
            count(one["error_rate"]),
            seconds(one["p50"]),
            seconds(one["p99"]),
            str(one["in_flight"]),
            str(one["waiting"]),
            str(one["clients"]),
            count(sum(one["refused"].values())),
            str(one["restarts"]),
        )
    return table


def _state(backend: dict[str, Any]) -> Text:
    from rich.text import Text

    state = backend["state"]
    found = Text(printable(state), style=_STYLES.get(state, "yellow"))
    for name, n in backend["breakers"].items():
        if n:
            found.append(f", breaker {printable(name)}", style="red")
    return found


def _clients(clients: list[dict[str, Any]]) -> Table:
    from rich.text import Text

    table = _table("*CLIENT", "*ENDPOINT", "*REVISION", "BUSY", "RECEIVED", "SENT")
    for one in sorted(clients, key=lambda one: (-one["in_flight"], -one["bytes_in"]))[:10]:
        table.add_row(
            Text(printable(one["user"] or one["address"])),
            Text(printable(one["endpoint"])),
            one["version"] or "—",
            str(one["in_flight"]),
            size(one["bytes_in"]),
            size(one["bytes_out"]),
        )
    return table
