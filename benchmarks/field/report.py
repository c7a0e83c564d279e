"""The page docs/performance.md: page.md with tables of benchmarks/results/field.json.

python benchmarks/field/report.py    # also draws the plots, by plots.py
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import builder  # noqa: E402
from figures import (  # noqa: E402
    NONE,
    OURS,
    REFERENCE,
    RESULTS,
    ROOT,
    TIMES,
    Field,
    digits,
    kib,
    mib,
    micro,
    plain,
    ranged,
    table,
)
from gateway import gateway, gateway_run  # noqa: E402

PAGE = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"
# The table between them is made by this program.
MARKS = ("<!-- made by benchmarks/field -->", "<!-- up to here -->")
# The generators agree if their rates differ by less.
AGREE = 0.10
LISTED = 25  # cells in which they do not
# The machine did other work if its load was higher, …
IDLE = 0.7
# … before the run, and after it by more than what the run itself makes then. The load of a minute
# has work that ended before the run; work that goes on is in both.
OWN = 1.0
MISSED, MET = "**missed**", "met"
SDK = "mcp2"  # the official SDK for Python
SHOWN = 160  # characters of a fault


def machine(field: Field) -> str:
    """When and where it was measured."""
    about, found = field.about, field.about["machine"]
    return (
        f"Measured {about['date']} on {found['cpu']}, {found['cpus']} processors, "
        f"{found['system']} {found['kernel']}, CPython {found['python']}."
    )


def warning(field: Field) -> str:
    """The warning about doubtful figures; empty for a full run on an idle machine."""
    about = field.about
    load = min(about["machine"]["load_before"], about["load_after"] - OWN)
    why = ["one short round"] if about["quick"] else []
    why += [f"a machine that did other work (load {load:.1f})"] if load > IDLE else []
    if not why:
        return ""
    return (
        '!!! warning "A first run"\n\n'
        f"    These figures are of {' on '.join(why)}. They show that all of it runs.\n"
        "    Rates and latencies are no comparison; processor time is within a factor of two."
    )


# -- targets ------------------------------------------------------------------------------------


def targets(field: Field) -> str:
    """The targets, and whether they are met."""
    rows = [*_ratios(field), *_firsts(field), *_least(field)]
    return table(["target", "limit", "measured", ""], rows)


def _others(field: Field) -> list[str]:
    return [key for key, _ in field.servers() if not key.startswith((f"{OURS}/", f"{REFERENCE}/"))]


def _ours(field: Field) -> list[str]:
    return [key for key, _ in field.servers() if key.startswith(f"{OURS}/")]


def _ratios(field: Field) -> list[list[str]]:
    rows: list[list[str]] = []

    def judge(
        what: str,
        limit: float,
        cell: str,
        ours: list[str],
        theirs: list[str],
        by: str | None = None,
    ) -> None:
        mine, other = (field.best(keys, cell, "cpu_us", by) for keys in (ours, theirs))
        if mine is None or other is None or not other[0]:
            rows.append([what, f"≤ {limit:g}", "not measured", NONE])
            return
        ratio = mine[0] / other[0]
        told = f"{ratio:.3f} of {field.name(other[1])}"
        rows.append([what, f"≤ {limit:g}", told, MET if ratio <= limit else MISSED])

    ours, others, reference = _ours(field), _others(field), [f"{REFERENCE}/fastest"]
    stdio, http = "processor time, stdio, 64 in flight", "processor time, HTTP, 16 connections"
    judge(f"{stdio}: of the next", 0.05, "stdio_64", ours, others)
    judge(f"{http}: of the next", 0.25, "http_16", ours, others)
    clients = [key for key in field.about["clients"] if key != OURS]
    words = "processor time, client over stdio, 64 in flight: of the next"
    judge(words, 0.27, "client_64", [OURS], clients)
    for behind, shown in (("stdio", "stdio"), ("http", "HTTP")):
        proxies = [key for key, one in field.about["proxies"].items() if one[1] == behind]
        mine = [key for key in proxies if key.startswith(f"{OURS}/")]
        words = f"processor time, proxy, HTTP to {shown}: of the next"
        judge(words, 0.25, "proxy_16", mine, [key for key in proxies if key not in mine])
    for words, cell in ((stdio, "stdio_64"), (http, "http_16")):
        for by, driver in (("c", "the generator in C"), ("bench", "`wirespeed bench`")):
            what = f"{words}, driven by {driver}: of the echo in C"
            judge(what, 1.25, cell, ours, reference, by)
    return rows


def _firsts(field: Field) -> list[list[str]]:
    """Whether wirespeed is first in each cell of rate, latency and processor time."""
    rows = []
    cells = {cell for _, cell, by in field.rows if by in ("bench", "c")}
    cells = {cell for cell in cells if not cell.startswith(("proxy", "open"))}
    for figure, words in (("rate", "calls a second"), ("p50", "p50"), ("cpu_us", "processor time")):
        seen, behind = 0, []
        for cell in sorted(cells):
            mine = field.best(_ours(field), cell, figure)
            theirs = field.best(_others(field), cell, figure)
            if mine is None or theirs is None:
                continue
            seen += 1
            if not (mine[0] > theirs[0] if figure == "rate" else mine[0] < theirs[0]):
                behind.append(f"{cell} ({field.name(theirs[1])})")
        told = f"{seen - len(behind)} of {seen}"
        if behind:
            told += f"; not {', '.join(behind)}"
        rows.append([f"first of all SDKs in {words}", "all cells", told, MISSED if behind else MET])
    return rows


def _least(field: Field) -> list[list[str]]:
    """Whether wirespeed starts first and is smallest of Python and Node.js."""
    rows = []
    others = _others(field)
    scripts = [key for key in others if field.about["servers"][key][1] in ("Python", "Node.js")]
    for cell, figure, words, told in (
        ("start", "start_ms", "start to first answer", lambda value: micro(value * 1000)),
        ("start", "rest_bytes", "memory at rest", mib),
        ("connections", "each_bytes", "memory of a connection", kib),
    ):
        ours, next_, least = (
            field.best(keys, cell, figure) for keys in (_ours(field), scripts, others)
        )
        if ours is None or next_ is None or least is None:
            continue
        found = (
            f"{told(ours[0])}; next of these {told(next_[0])}, {field.name(next_[1])}; "
            f"least of all {told(least[0])}, {field.name(least[1])}"
        )
        what = f"{words}: first of Python and Node.js"
        rows.append([what, NONE, found, MET if ours[0] < next_[0] else MISSED])
    return rows


# -- servers ------------------------------------------------------------------------------------


def processor_time(field: Field) -> str:
    """Processor time of a call by server."""
    rows = [
        [
            name,
            *(
                ranged(field.all_values(key, cell, "cpu_us"))
                for cell in ("stdio_1", "stdio_64", "http_1", "http_16", "http_256")
            ),
        ]
        for key, name in field.servers("fastest")
    ]
    return table(["server", "stdio, 1", "stdio, 64", "HTTP, 1", "HTTP, 16", "HTTP, 256"], rows)


def rates(field: Field) -> str:
    """Calls a second by server."""
    cells = ("stdio_1", "stdio_64", "http_1", "http_16", "http_256")
    rows = [
        [name, *(plain(field.get(key, cell, "rate")) for cell in cells)]
        for key, name in field.servers("fastest")
    ]
    return table(["server", "stdio, 1", "stdio, 64", "HTTP, 1", "HTTP, 16", "HTTP, 256"], rows)


def websocket(field: Field) -> str:
    """WebSocket, where a server has it."""
    cells = ("ws_64", "ws_256")
    rows = [
        [name, *(plain(field.get(key, cell, one)) for cell in cells for one in ("cpu_us", "rate"))]
        for key, name in field.servers("fastest")
    ]
    head = ["server", "64 in flight: µs", "calls/s", "256 connections: µs", "calls/s"]
    return table(head, rows)


def modern(field: Field) -> str:
    """Revision 2026-07-28, where a server has it."""
    cells = ("stdio_1", "stdio_64", "http_1", "http_16", "http_256")
    rows = []
    for key, name in field.servers("fastest"):
        times = [ranged(field.all_values(key, f"{cell}_modern", "cpu_us")) for cell in cells]
        shown = ("stdio_64", "http_16")
        rates_ = [plain(field.get(key, f"{cell}_modern", "rate")) for cell in shown]
        rows.append([name, *times, *rates_])
    head = ["server", "stdio, 1", "stdio, 64", "HTTP, 1", "HTTP, 16", "HTTP, 256"]
    return table([*head, "calls/s, stdio, 64", "calls/s, HTTP, 16"], rows)


def http_sse(field: Field) -> str:
    """HTTP+SSE, where a server has it."""
    cells = ("sse_1", "sse_16")
    rows = [
        [name, *(plain(field.get(key, cell, one)) for cell in cells for one in ("cpu_us", "rate"))]
        for key, name in field.servers("fastest")
    ]
    head = ["server", "1 connection: µs", "calls/s", "16 connections: µs", "calls/s"]
    return table(head, rows)


def latencies(field: Field) -> str:
    """Latencies by server."""
    cells = ("stdio_1", "http_1", "http_16")
    rows = [
        [name, *(micro(field.get(key, cell, one)) for cell in cells for one in ("p50", "p99"))]
        for key, name in field.servers("fastest")
    ]
    head = ["server", "stdio, 1: p50", "p99", "HTTP, 1: p50", "p99", "HTTP, 16: p50", "p99"]
    return table(head, rows)


def settings(field: Field) -> str:
    """All settings of all servers."""
    rows = []
    for key, name in field.servers():
        if key.startswith(f"{REFERENCE}/"):
            continue
        answers = field.values(key, "answers", "raw", "events")
        row = [name, field.about["servers"][key][2]]
        row.append(NONE if not answers else "events" if answers[0] else "JSON")
        row += [plain(field.get(key, cell, "cpu_us")) for cell in ("stdio_64", "http_16")]
        row += [plain(field.get(key, cell, "rate")) for cell in ("stdio_64", "http_16")]
        rows.append(row)
    head = ["server", "settings", "HTTP answers", "µs, stdio, 64", "µs, HTTP, 16"]
    return table([*head, "calls/s, stdio, 64", "calls/s, HTTP, 16"], rows)


def payloads(field: Field) -> str:
    """Large texts by server."""
    sizes = {"stdio_64k": 2**16, "stdio_1m": 2**20, "http_64k": 2**16, "http_1m": 2**20}
    rows = []
    for key, name in field.servers("fastest"):
        row = [name]
        for cell, size in sizes.items():
            rate = field.get(key, cell, "rate")
            row.append(NONE if rate is None else digits(rate * size / 1e6))
        row += [micro(field.get(key, cell, "cpu_us")) for cell in ("stdio_1m", "http_1m")]
        rows.append(row)
    head = ["server", "stdio, 64 KiB", "stdio, 1 MiB", "HTTP, 64 KiB", "HTTP, 1 MiB"]
    return table([*head, "time, stdio, 1 MiB", "time, HTTP, 1 MiB"], rows)


def starts(field: Field) -> str:
    """Start, memory and lists by server."""
    rows = []
    for key, name in field.servers("fastest"):
        sdk = key.partition("/")[0]  # on its fastest settings it may have no sessions
        with_session = key if sdk == REFERENCE else f"{sdk}/documented"
        each = field.get(with_session, "connections", "each_bytes")
        rows.append(
            [
                name,
                plain(field.get(key, "start", "start_ms"), " ms"),
                mib(field.get(key, "start", "rest_bytes")),
                kib(each),
                plain(field.get(key, "list", "list_ms"), " ms"),
            ]
        )
    head = ["server", "start to first answer", "memory at rest", "memory of a connection"]
    return table([*head, "list of 1,000 tools"], rows)


# -- clients and proxies ------------------------------------------------------------------------


def clients(field: Field) -> str:
    """Clients over stdio."""
    rows = []
    for key, (name, language) in field.about["clients"].items():
        row = [name, language]
        for cell in ("client_1", "client_64"):
            row.append(ranged(field.all_values(key, cell, "cpu_us")))
            row.append(plain(field.get(key, cell, "rate")))
        rows.append(row)
    head = ["client", "language", "1 in flight: µs", "calls/s", "64 in flight: µs", "calls/s"]
    return table(head, [row for row in rows if any(cell != NONE for cell in row[2:])])


def proxies(field: Field) -> str:
    """Proxies over HTTP."""
    direct = {"stdio": field.get("c/fastest", "stdio_1", "p50")}
    direct["http"] = field.get("c/fastest", "http_1", "p50")
    rows = []
    for key, (name, behind, sharing) in field.about["proxies"].items():
        p50, base = field.get(key, "proxy_1", "p50"), direct[behind]
        figures = [
            micro(None if p50 is None or base is None else p50 - base),
            micro(field.get(key, "proxy_16", "cpu_us")),
            plain(field.get(key, "proxy_16", "rate")),
            micro(field.get(key, "proxy_1000", "p99")),
            mib(field.get(key, "proxy_1000", "resident_bytes")),
        ]
        if any(one != NONE for one in figures):
            rows.append([name, f"{behind}, {sharing}", *figures])
    head = ["proxy", "behind it", "added latency", "processor time", "calls/s"]
    return table([*head, "1,000 clients: p99", "memory with them"], rows)


# -- where the time goes ------------------------------------------------------------------------


def layers(_field: Field) -> str:
    """Instructions of one call by layer."""
    counted = json.loads((RESULTS / "layers.json").read_text())
    names = list(dict.fromkeys(name for one in counted.values() for name in one))
    rows = []
    for name in names:
        counts = [one.get(name, 0) for one in counted.values()]
        if max(counts) >= 50:
            rows.append([name, *(f"{count:,}" for count in counts)])
    rows.append(["**all**", *(f"**{sum(one.values()):,}**" for one in counted.values())])
    return table(["layer", *counted], rows)


def limits(field: Field) -> str:
    """wirespeed beside the echo in C, with the kernel's share."""
    rows = []
    cells = {"stdio_64": "stdio, 64 in flight", "http_16": "HTTP, 16 connections"}
    for cell, words in (cells | {"ws_64": "WebSocket, 64 in flight"}).items():
        row, times = [words], []
        for key in (f"{OURS}/fastest", f"{REFERENCE}/fastest"):
            times.append(field.get(key, cell, "cpu_us"))
            kernel = field.get(key, f"kernel_{cell}", "kernel")
            row += [micro(times[-1]), NONE if kernel is None else f"{kernel:.0%}"]
        ours, theirs = times
        row.append(NONE if not ours or not theirs else f"{ours / theirs:.2f}{TIMES}")
        rows.append(row)
    return table(["", "wirespeed", "kernel", "echo in C", "kernel", "ratio"], rows)


def copy(field: Field) -> str:
    """The cost of copying in memory."""
    rate = field.get("machine", "copy", "bytes_per_s")
    if rate is None:
        return ""
    return (
        f"One processor copies {rate / 1e9:.1f} GB a second in memory. The kernel copies a text\n"
        "four times on its way to the server and back: with 1 MiB that takes at least "
        f"{4 * 2**20 / rate * 1e6:,.0f} µs."
    )


# -- the measuring itself -----------------------------------------------------------------------


def open_loop(field: Field) -> str:
    """`wirespeed bench` beside oha."""
    rows = []
    generators = (("bench", "wirespeed bench"), ("oha", f"oha {builder.PINS['oha']['oha']}"))
    for cell, server in (("open_loop", "echo"), ("open_loop_slow", "5 ms a call")):
        for by, name in generators:
            names = ("wanted", "rate", "p50", "p99")
            found = [field.values(OURS, cell, by, figure) for figure in names]
            if not found[1]:
                continue
            wanted, rate, p50, p99 = (statistics.median(one) for one in found)
            told = [digits(wanted), digits(rate), micro(p50), micro(p99), str(len(found[1]))]
            rows.append([server, name, *told])
    if not rows:
        return "Not measured."
    return table(["server", "", "wanted, calls/s", "calls/s", "p50", "p99", "rounds"], rows)


def agreement(field: Field) -> str:
    """The cells in which the generators disagree."""
    seen, rows = 0, []
    for contender, cell, by in field.rows:
        if by != "bench":
            continue
        ours, theirs = (field.values(contender, cell, one, "rate") for one in ("bench", "c"))
        if not ours or not theirs:
            continue
        seen += 1
        bench, c = statistics.median(ours), statistics.median(theirs)
        if abs(bench / c - 1) > AGREE:
            share = (
                bench
                / 1e6
                * statistics.median(field.values(contender, cell, "bench", "load_cpu_us"))
            )
            names = [field.name(contender), contender.partition("/")[2], cell]
            rows.append([*names, digits(bench), digits(c), f"{bench / c:.2f}", f"{share:.0%}"])
    told = f"In {seen - len(rows)} of {seen} cells their rates differ by less than {AGREE:.0%}."
    if not rows:
        return told
    rows.sort(key=lambda row: min(float(row[5]), 1 / max(float(row[5]), 0.01)))
    more = f"\n\nAnd {len(rows) - LISTED} more." if len(rows) > LISTED else ""
    head = ["", "settings", "cell", "bench, calls/s", "C, calls/s", "ratio", "bench busy"]
    return f"{told} The others, those that differ most first:\n\n{table(head, rows[:LISTED])}{more}"


def faults(field: Field) -> str:
    """Those without a number, and why."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for (contender, cell, by), row in field.rows.items():
        if row["fault"]:
            grouped.setdefault((contender, row["fault"]), []).append(f"{cell} ({by})")
    rows = []
    for (contender, fault), cells in grouped.items():
        who = f"{field.name(contender)} {contender.partition('/')[2]}".strip()
        rows.append([who, ", ".join(dict.fromkeys(cells)), _quoted(fault)])
    rows += [[name, "all", _quoted(why)] for name, why in field.about["not_built"].items()]
    return table(["", "cells", "why"], rows) if rows else "None."


def _quoted(text: str) -> str:
    plain_text = re.sub(r"[`|\s]+", " ", text)[:SHOWN]
    return f"`{plain_text}`"


def idle(field: Field) -> str:
    """The treatment of processors without work."""
    wakes = "an idle virtual processor halts, and waking it takes up to 90 µs"
    if field.about.get("awake"):
        return (
            "* While it measures, no processor halts (`/dev/cpu_dma_latency` of 0 µs, which needs\n"
            f"  the superuser). Else {wakes}:\n  more than most of the calls that are measured."
        )
    return f"* Figures with one call in flight vary by factors: {wakes}."


def load(field: Field) -> str:
    """The amount of what was measured."""
    about = field.about
    loads = ("stdio_", "http_", "ws_")
    rounds = max(len(row["rounds"]) for row in about["rows"] if row["cell"].startswith(loads))
    return (
        f"In this run a load lasted {about['seconds']:g} s, in {rounds} rounds at most; "
        f"it took {about['minutes']:.0f} minutes."
    )


# -- the page -----------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Field], str]] = {
    one.__name__: one
    for one in (
        machine,
        warning,
        targets,
        processor_time,
        rates,
        websocket,
        modern,
        http_sse,
        latencies,
        settings,
        payloads,
        starts,
        clients,
        proxies,
        gateway,
        gateway_run,
        layers,
        limits,
        copy,
        open_loop,
        agreement,
        faults,
        idle,
        load,
    )
}


def page(field: Field) -> str:
    """The whole page."""

    def part(match: re.Match[str]) -> str:
        name, _, words = match[1].partition(": ")
        if not name.startswith("plot "):
            return PARTS[name](field)
        file = f"images/field-{name.removeprefix('plot ')}"
        kinds = ("light", "dark")
        return "\n".join(f"![{words}]({file}-{kind}.svg#only-{kind})" for kind in kinds)

    text = re.sub(r"\{\{(.*?)\}\}", part, (HERE / "page.md").read_text(encoding="utf-8"))
    return re.sub(r"\n{3,}", "\n\n", text)


def readme_table(field: Field) -> str:
    """The table of README.md: processor time of a call, beside the next one."""
    rows = []
    proxies = field.about["proxies"]
    for words, cell, ours, theirs in (
        ("stdio server, 64 in flight", "stdio_64", _ours(field), _others(field)),
        ("HTTP server, 16 connections", "http_16", _ours(field), _others(field)),
        ("WebSocket server, 64 in flight", "ws_64", _ours(field), _others(field)),
        ("stdio client, 64 in flight", "client_64", [OURS], list(field.about["clients"])[1:]),
        *(
            (
                f"proxy, 16 clients over HTTP, a server on {behind}",
                "proxy_16",
                [key for key in proxies if key.startswith(f"{OURS}/{behind}/")],
                [key for key in proxies if f"/{behind}/" in key and not key.startswith(OURS)],
            )
            for behind in ("stdio", "http")
        ),
    ):
        mine, next_ = (field.best(keys, cell, "cpu_us") for keys in (ours, theirs))
        if mine is not None and next_ is not None:
            told = f"{field.name(next_[1])}: {micro(next_[0])}"
            row = [words, micro(mine[0]), told, f"{digits(next_[0] / mine[0])}{TIMES}"]
            sdk = field.best([key for key in theirs if key.startswith(SDK)], cell, "cpu_us")
            row += [NONE] if sdk is None else [f"{digits(sdk[0] / mine[0])}{TIMES}"]
            rows.append(row)
    return table(["processor time of a call", "wirespeed", "the next", "", field.name(SDK)], rows)


def write() -> None:
    """Write the page and its plots; after a full run the table of README.md, too."""
    field = Field()
    PAGE.write_text(page(field), encoding="utf-8")
    print(PAGE)
    if not field.about["quick"]:
        text, readme = README.read_text(), readme_table(field)
        begin, end = MARKS
        between = re.compile(f"({re.escape(begin)}\n).*?({re.escape(end)})", re.DOTALL)
        README.write_text(between.sub(lambda match: f"{match[1]}{readme}\n{match[2]}", text))
        print(README)
    try:
        python = builder.find("python-plots") / "venv" / "bin" / "python"
    except builder.NotBuilt as exc:
        print(f"no plots: {exc}", file=sys.stderr)
        return
    subprocess.run([str(python), str(HERE / "plots.py")], check=True, env=builder.environment())


if __name__ == "__main__":
    write()
