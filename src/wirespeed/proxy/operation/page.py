"""The status page, from the members of ``/status``. Only this module makes HTML, and every text
passes `escape`."""

from __future__ import annotations

import base64
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Self

from wirespeed.proxy.operation.status import count, seconds, size, span

_FILES = files("wirespeed.proxy.operation")
_TEMPLATE = Template(_FILES.joinpath("page.template").read_text("utf-8"))
_STYLE = _FILES.joinpath("page.css").read_text("utf-8")
_SCRIPT = _FILES.joinpath("page.js").read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# Content-Security-Policy: this style and this script, and requests to this listener.
POLICY = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_HEIGHT = 100  # of a plot, in its own units


def page(status: dict[str, Any]) -> str:
    """Return the page."""
    state = "ready" if status["ready"] else "not ready"
    return _TEMPLATE.substitute(
        title=f"wirespeed proxy: {state}",
        style=_STYLE,
        script=_SCRIPT,
        body="\n".join((_header(status), "<main>", *_main(status), "</main>", _footer(status))),
    )


def _part(name: str, *parts: str) -> str:
    """What the script replaces at once."""
    return f'<div data-part="{name}">{"".join(parts)}</div>'


def _header(status: dict[str, Any]) -> str:
    if status["ready"]:
        state = '<span class="state ready">Ready</span>'
    else:
        state = f'<span class="state down">{_draining(status) or "Not ready"}</span>'
    n = len(status["workers"])
    facts = [f"version {escape(status['version'])}", f"up {span(status['uptime'])}"]
    facts += [f"{n} workers"] if n > 1 else []
    return (
        f"<header><h1>wirespeed proxy {escape(status['name'])}</h1>"
        f'<div data-part="ready" role="status">{state}</div>'
        '<span id="live" class="state soft">A new page every five seconds</span>'
        f'<div class="facts" data-part="facts">{" · ".join(facts)}</div></header>'
    )


def _draining(status: dict[str, Any]) -> str:
    return "Shutting down" if status["draining"] else ""


def _main(status: dict[str, Any]) -> Iterable[str]:
    yield _part("alerts", *_alerts(status))
    yield _part("tiles", _tiles(status["totals"]))
    yield _part("plots", _plots(status["totals"]["history"]))
    yield _part("backends", _backends(status["backends"]))
    found = "".join(map(_details, status["backends"]))
    heading = "<h2>Processes, methods and errors since the start</h2>"
    yield _part("details", f'<section class="card">{heading}{found}</section>')
    yield _part("endpoints", _endpoints(status["endpoints"]))
    yield _part("clients", _clients(status))
    yield _part("events", _events(status["events"]))


def _alerts(status: dict[str, Any]) -> Iterable[str]:
    if status["not_ready"]:
        names = escape(", ".join(status["not_ready"]))
        yield f'<p class="card alert">Requests cannot be served by: {names}</p>'
    if status["workers_missing"]:
        names = ", ".join(map(str, status["workers_missing"]))
        yield f'<p class="card alert">No answer of worker {names}: its numbers are missing</p>'
    for one in status["backends"]:
        if one["breakers"]["open"]:
            text = f"{escape(one['name'])} failed too often: it gets no requests for a while"
            yield f'<p class="card alert">{text}</p>'
    if status["config"]["error"]:
        text = escape(status["config"]["error"])
        yield f'<p class="card alert">The configuration was not loaded: {text}</p>'
    for name, error in status["config"]["starting"].items():
        if error:
            text = (
                f"the changed server {name} cannot be started, so the earlier one goes on: {error}"
            )
            yield f'<p class="card alert">A reload is at work: {escape(text)}</p>'
        else:
            yield f'<p class="card">A reload is at work: {escape(name)} is started</p>'


def _tiles(totals: dict[str, Any]) -> str:
    waiting = totals["waiting"]
    tiles = [
        ("Requests", f"{count(totals['rate'])}<small>/s</small>", "last 10 seconds"),
        (
            "Errors",
            f"{count(totals['error_rate'])}<small>/s</small>",
            _share(totals["error_rate"], totals["rate"]),
        ),
        ("Latency, median", seconds(totals["p50"]), "last minute"),
        ("Latency, 99 %", seconds(totals["p99"]), "last minute"),
        ("In flight", count(totals["in_flight"]), f"{count(waiting)} waiting"),
        ("Clients", count(totals["clients"]), f"{size(totals['byte_rate'])}/s"),
    ]
    found = []
    for name, value, note in tiles:
        bad = ' class="bad"' if name == "Errors" and totals["error_rate"] else ""
        found.append(f'<div><dt>{name}</dt><dd{bad}>{value}</dd><dd class="note">{note}</dd></div>')
    return f'<dl class="tiles">{"".join(found)}</dl>'


def _share(part: float, whole: float) -> str:
    return "none in 10 seconds" if not part else f"{100 * part / whole:.2g} % of requests"


# -- plots ----------------------------------------------------------------------------------------

Points = Sequence[float | None]


def _plots(history: dict[str, Points]) -> str:
    rate = _plot(
        "Requests a second",
        [("", "requests", history["rate"]), ("second", "errors", history["error_rate"])],
        Linear((*history["rate"], *history["error_rate"])),
        count,
        area=True,
    )
    latency = _plot(
        "Latency",
        [("", "median", history["p50"]), ("upper", "99 %", history["p99"])],
        Logarithmic((*history["p50"], *history["p99"])),
        seconds,
    )
    return f'<div class="plots">{rate}{latency}</div>'


class Linear:
    """A scale from 0 to a round number.

    Attributes:
        marks: Values with a line of the grid, the uppermost first, at equal distances.
    """

    def __init__(self, points: Points) -> None:
        top = _round_up(max((value for value in points if value is not None), default=0.0))
        self.marks = [top, top / 2, 0.0]

    def y(self, value: float) -> float:
        """The height of a value, from above."""
        return _HEIGHT * (1 - min(value / self.marks[0], 1.0))


class Logarithmic:
    """A scale of powers of ten. Attributes as of `Linear`."""

    def __init__(self, points: Points) -> None:
        found = [value for value in points if value] or [1e-4]
        low = min(math.floor(math.log10(min(found))), math.ceil(math.log10(max(found))) - 1)
        high = max(math.ceil(math.log10(max(found))), low + 1)
        self.marks = [10.0**power for power in range(high, low - 1, -1)]

    def y(self, value: float) -> float:
        """The height of a value, from above."""
        decades = math.log10(self.marks[0] / max(value, self.marks[-1]))
        return _HEIGHT * decades / (len(self.marks) - 1)


def _plot(
    title: str,
    lines: Sequence[tuple[str, str, Points]],
    scale: Linear | Logarithmic,
    text: Callable[[float], str],
    *,
    area: bool = False,
) -> str:
    n = len(lines[0][2])
    grid = "".join(f"M0 {scale.y(mark):.2f}H{n - 1}" for mark in scale.marks)
    drawn = [f'<path class="grid" d="{grid}"/>']
    if area:
        drawn.append(f'<path class="area" d="{_area(lines[0][2], scale)}"/>')
    drawn += [f'<path class="{kind}" d="{_line(points, scale)}"/>' for kind, _, points in lines]
    keys = "".join(f'<span class="key {kind}">{name}</span>' for kind, name, _ in lines)
    said = ", ".join(f"{name} {_last(points, text)}" for _, name, points in lines)
    marks = "".join(f"<span>{text(mark)}</span>" for mark in scale.marks)
    return (
        f'<figure class="card"><figcaption><h2>{title}</h2>{keys}</figcaption><div class="plot">'
        f'<svg viewBox="0 0 {n - 1} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{title} of the last three minutes, at last: {said}">{"".join(drawn)}</svg>'
        f'<div class="scale" aria-hidden="true">{marks}</div></div>'
        '<div class="times" aria-hidden="true"><span>3 minutes ago</span><span>now</span></div>'
        "</figure>"
    )


def _last(points: Points, text: Callable[[float], str]) -> str:
    found = [value for value in points if value is not None]
    return text(found[-1]) if found else "none"


def _round_up(value: float) -> float:
    """The next 1, 2 or 5 with zeros."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next((step * unit for step in (1, 2, 5) if value <= step * unit), 10 * unit)


def _runs(points: Points, scale: Linear | Logarithmic) -> Iterable[list[tuple[int, float]]]:
    """The parts of a line between gaps."""
    run: list[tuple[int, float]] = []
    for x, value in enumerate((*points, None)):
        if value is not None:
            run.append((x, scale.y(value)))
        elif run:
            yield run
            run = []


def _line(points: Points, scale: Linear | Logarithmic) -> str:
    found = []
    for run in _runs(points, scale):
        if len(run) == 1:  # else nothing is drawn
            run.append((run[0][0], run[0][1] - 0.01))
        found.append("M" + "L".join(f"{x} {y:.2f}" for x, y in run))
    return "".join(found)


def _area(points: Points, scale: Linear | Logarithmic) -> str:
    return "".join(
        f"M{run[0][0]} {_HEIGHT}L{'L'.join(f'{x} {y:.2f}' for x, y in run)}L{run[-1][0]} {_HEIGHT}Z"
        for run in _runs(points, scale)
    )


def _spark(points: Points) -> str:
    scale = Linear(points)
    return (
        f'<svg class="spark" viewBox="0 0 {len(points) - 1} {_HEIGHT}" preserveAspectRatio="none" '
        f'aria-hidden="true"><path class="area" d="{_area(points, scale)}"/>'
        f'<path d="{_line(points, scale)}"/></svg>'
    )


# -- tables ---------------------------------------------------------------------------------------


class Cell(str):
    """HTML of one cell.

    Attributes:
        kind: Its class.
    """

    kind: str

    def __new__(cls, html: str, kind: str = "") -> Self:
        cell = super().__new__(cls, html)
        cell.kind = kind
        return cell


def _table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table. The first cell of a row is its header."""
    rows = list(rows)
    kinds = [cell.kind.partition(" ")[0] for cell in rows[0]] if rows else [""] * len(columns)
    head = "".join(
        f'<th scope="col" class="{kind}">{name}</th>'
        for name, kind in zip(columns, kinds, strict=True)
    )
    body = []
    for first, *cells in rows:
        found = "".join(
            f'<td class="{cell.kind if cell else "none"}" data-label="{name}">{cell}</td>'
            for name, cell in zip(columns[1:], cells, strict=True)
        )
        body.append(f'<tr><th scope="row">{first}</th>{found}</tr>')
    return (
        f'<div class="scroll"><table aria-label="{caption}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _number(value: float | None) -> Cell:
    return Cell("—" if value is None else count(value), "number" if value else "number zero")


def _time(value: float | None) -> Cell:
    return Cell(seconds(value), "number")


def _state(state: str, note: str = "") -> Cell:
    known = ("up", "starting", "degraded", "down", "crash-loop", "idle", "leaving")
    kind = state if state in known else "degraded"
    more = f'<span class="bad note">{note}</span>' if note else ""
    return Cell(f'<span><span class="state {kind}">{escape(state)}</span>{more}</span>')


def _breaker(breakers: dict[str, int]) -> str:
    """What is said of breakers that are not closed."""
    return ", ".join(f"breaker {state}" for state, n in breakers.items() if n)


def _target(target: str) -> str:
    """A command without its folder, or a URL."""
    return escape(target.rpartition("/")[2] if target.startswith("/") else target)


def _backends(backends: list[dict[str, Any]]) -> str:
    columns = (
        "Server", "State", "Requests/s", "3 minutes", "Median", "99 %", "In flight", "Waiting",
        "Clients", "Errors", "Restarts",
    )  # fmt: skip
    rows = [
        (
            Cell(
                f"{escape(one['name'])} "
                f'<span class="soft">{escape(one["isolation"])} · {_target(one["target"])}</span>'
            ),
            _state(one["state"], _breaker(one["breakers"])),
            _number(one["rate"]),
            Cell(_spark(one["history"]["rate"]), "wide"),
            _time(one["p50"]),
            _time(one["p99"]),
            _number(one["in_flight"]),
            _number(one["waiting"]),
            _number(one["clients"]),
            _number(sum(n for code, n in one["errors"].items() if code != "cancelled")),
            _number(one["restarts"]),
        )
        for one in backends
    ]
    table = _table("Servers behind the proxy", columns, rows)
    return f'<section class="card"><h2>Servers</h2>{table}</section>'


# What happens to servers, by the name of its number.
_EVENTS = {
    "retries": "Sent again after the end of a server",
    "breaker_opened": "A breaker opened",
    "replacements": "Replaced by a new process",
}


def _details(one: dict[str, Any]) -> str:
    name = escape(one["name"])
    parts = []
    if one["servers"]:
        parts.append(_processes(one))
    if one["methods"]:
        columns = ("Method", "Requests", "Errors", "Mean", "Median", "95 %", "99 %")
        rows = [
            (
                Cell(escape(method["method"])),
                _number(method["requests"]),
                _number(method["errors"]),
                *(_time(method[key]) for key in ("mean", "p50", "p95", "p99")),
            )
            for method in one["methods"]
        ]
        parts.append(_table(f"Methods of {name} since the start", columns, rows))
    counts = [
        *(("Error " + code, n) for code, n in one["errors"].items()),
        *(("Dropped: " + reason, n) for reason, n in one["dropped"].items() if n),
        *(("Garbage: " + kind, n) for kind, n in one["garbage"].items() if n),
        *((text, one[name]) for name, text in _EVENTS.items() if one[name]),
    ]
    if counts:
        rows = [(Cell(escape(what)), _number(n)) for what, n in counts]
        parts.append(
            _table(f"Errors of {name} since the start", ("What went wrong", "Times"), rows)
        )
    shown = "".join(parts) or '<p class="soft">Nothing has happened yet.</p>'
    return f'<details id="of-{name}"><summary>{name}</summary>{shown}</details>'


def _processes(one: dict[str, Any]) -> str:
    columns = ("Process", "State", "For", "Era", "In flight", "Starts", "Last error")
    rows = [
        (
            Cell(str(server["pid"] or "none")),
            _state(server["state"]),
            Cell(span(server["seconds"]), "number"),
            Cell(escape(server["era"])),
            _number(server["in_flight"]),
            _number(server["starts"]),
            Cell(escape(server["error"] or ""), "text"),
        )
        for server in one["servers"]
    ]
    return _table(f"Processes of {escape(one['name'])}", columns, rows)


def _endpoints(endpoints: list[dict[str, Any]]) -> str:
    reasons = {
        "connection": "Busy or down",
        "queue": "Full queue",
        "rate": "Rate",
        "access": "Not allowed",
    }
    columns = ("Endpoint", "Clients", "So far", *reasons.values(), "Too slow")
    rows = [
        (
            Cell(escape(one["name"])),
            _number(one["clients"]),
            _number(one["clients_so_far"]),
            *(_number(one["refused"][reason]) for reason in reasons),
            _number(one["cut"]["slow reader"]),
        )
        for one in endpoints
    ]
    table = _table("Endpoints", columns, rows)
    note = '<span class="soft">requests refused by reason, and clients that read too slowly</span>'
    return f'<section class="card"><h2>Endpoints {note}</h2>{table}</section>'


def _clients(status: dict[str, Any]) -> str:
    total, shown = status["totals"]["clients"], status["clients"]
    of_all = "" if len(shown) == total else f' <span class="soft">{len(shown)} of {total}</span>'
    if not shown:
        return '<section class="card"><h2>Clients</h2><p class="soft">None now.</p></section>'
    columns = ("Client", "Endpoint", "Revision", "In flight", "Received", "Sent")
    rows = [
        (
            Cell(
                escape(one["user"] or one["address"])
                + (f' <span class="soft">{escape(one["address"])}</span>' if one["user"] else "")
            ),
            Cell(escape(one["endpoint"])),
            Cell(escape(one["version"] or "—")),
            _number(one["in_flight"]),
            Cell(size(one["bytes_in"]), "number"),
            Cell(size(one["bytes_out"]), "number"),
        )
        for one in shown
    ]
    table = _table("Clients that are connected", columns, rows)
    return f'<section class="card"><h2>Clients{of_all}</h2>{table}</section>'


def _events(events: list[dict[str, Any]]) -> str:
    rows = []
    for one in events:
        at = time.gmtime(one["at"])
        times = f" ({one['times']} times)" if one["times"] > 1 else ""
        rows.append(
            f'<li><time datetime="{time.strftime("%Y-%m-%dT%H:%M:%SZ", at)}" class="soft">'
            f"{time.strftime('%H:%M:%S', at)}</time>"
            f'<span class="level {escape(one["level"])}">{escape(one["level"])}</span>'
            f"<span>{escape(one['text'])}{times}</span></li>"
        )
    listed = f'<ol class="events">{"".join(rows)}</ol>' if rows else '<p class="soft">None yet.</p>'
    return (
        '<section class="card"><h2>Recent warnings and errors <span class="soft">UTC</span></h2>'
        f"{listed}</section>"
    )


def _footer(status: dict[str, Any]) -> str:
    config = status["config"]
    listens = escape(" · ".join(status["listen"]) or "stdio")
    lines = [f"Listens at {listens}"]
    for one in status["certificates"]:
        at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(one["expires"]))
        lines.append(f"The certificate of {escape(one['listen'])} expires at {at}")
    if config["file"]:
        reloads = f"reloads: {config['reloads']}, refused: {config['refused']}"
        if config["last"] is not None:
            reloads += time.strftime(", last at %Y-%m-%d %H:%M:%S UTC", time.gmtime(config["last"]))
        lines.append(f"Configuration: {escape(config['file'])} ({reloads})")
    if (audit := status["audit"]) is not None:
        lines.append(f"Audit log: {audit['written']} lines, {audit['dropped']} left out")
    memory = sum(one["resident_bytes"] for one in status["workers"])
    pids = ", ".join(str(one["pid"]) for one in status["workers"])
    lines.append(f"Process {pids} · {size(memory)} of memory")
    lines.append('<a href="/status">JSON</a> · <a href="/metrics">metrics</a>')
    return f'<footer data-part="footer">{"".join(f"<p>{line}</p>" for line in lines)}</footer>'
