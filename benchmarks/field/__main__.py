"""The field: builds what is not built, measures servers, clients and proxies of all languages, and
writes benchmarks/results/field.json, the page docs/performance.md and its plots.

    python benchmarks/field [--quick] [--rounds N] [--seconds S] [--minutes M] [--only NAME,…]
                            [--parts servers,lists,memory,clients,proxies,rate,limits]
                            [--cells stdio_64,http_16_modern,…] [--agentgateway PATH]
                            [--no-build] [--json FILE]

Rounds are interleaved: each has all contenders once. No round begins that would not end within
--minutes. One that answers wrongly gets no number; the result says why. --parts and --cells, which
is part "servers" with some of its loads, leave what else is in the results as it was.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))  # before it: both have a report

import builder  # noqa: E402
import cells  # noqa: E402
import limits  # noqa: E402
import oha  # noqa: E402
import raw  # noqa: E402
import report  # noqa: E402
from cells import CELLS, UNKNOWN, URLS, Cell, Figures  # noqa: E402
from contenders import (  # noqa: E402
    DOCUMENTED,
    EVENTS,
    FASTEST,
    LEGACY,
    MODERN,
    OURS,
    REFERENCE,
    Client,
    Server,
    clients,
    servers,
)
from harness import compile_modules, machine  # noqa: E402
from processes import Fault, awake, free_port, resident, started  # noqa: E402
from proxies import Proxy, proxies  # noqa: E402

RESULTS = HERE.parent / "results" / "field.json"
PARTS = ("servers", "lists", "memory", "clients", "proxies", "rate", "limits")
TOOLS = 1000
CONNECTIONS = 1000
# Cells of a quick run; it has no proxies with many clients either.
QUICK = frozenset(
    (
        *("stdio_1", "stdio_64", "stdio_64k", "http_1", "http_16", "ws_64"),
        *("stdio_64_modern", "http_16_modern", "sse_16"),
    )
)
# Seconds that are kept for what comes after the servers.
AFTER_SERVERS = 600.0
AFTER_SERVERS_QUICK = 150.0
# Calls before those that are measured, as a share of their time: for compilers that compile while
# the program runs.
WARM = 0.5


@dataclass
class Scale:
    """The amount of what is measured.

    cells: The keys of the loads on servers; None: all.
    """

    rounds: int
    seconds: float
    connections: int
    starts: int
    deadline: float
    quick: bool = False
    cells: frozenset[str] | None = None

    def time_for(self, began: float) -> bool:
        """Whether a further round as long as the last one ends in time."""
        taken = time.monotonic() - began
        return time.monotonic() + taken < self.deadline


class Results:
    """The measurements: for each contender, cell and generator the figures of all rounds."""

    def __init__(self, deadline: float = float("inf")) -> None:
        self.rows: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._deadline = deadline

    @property
    def over(self) -> bool:
        """Whether the time is up: nothing more is measured."""
        return time.monotonic() > self._deadline

    def row(self, contender: str, cell: str, by: str) -> dict[str, Any]:
        """Return the entry of a contender, a cell and a generator."""
        key = contender, cell, by
        empty = {"contender": contender, "cell": cell, "by": by, "rounds": [], "fault": None}
        return self.rows.setdefault(key, empty)

    def take(
        self, contender: str, cell: str, by: str, measure: Callable[[], Figures]
    ) -> Figures | None:
        """Measure once. Returns None if it has failed, now or before, or if the time is up."""
        row = self.row(contender, cell, by)
        if row["fault"] is not None or self.over:
            return None
        try:
            figures = measure()
        except (Fault, builder.NotBuilt) as exc:
            self.fault(contender, cell, by, str(exc))
            return None
        row["rounds"].append(figures)
        return figures

    def fault(self, contender: str, cell: str, by: str, why: str) -> None:
        """Say why a contender gets no number."""
        row = self.row(contender, cell, by)
        if row["fault"] is None:
            row["fault"], row["rounds"] = why, []
            say(f"  {contender} {cell} {by}: no number: {why}")

    def rate(self, contender: str, cell: str) -> float:
        """Return the last known rate of a contender in a cell; 0 if nothing is known."""
        rounds = self.row(contender, cell, "bench")["rounds"]
        return float(rounds[-1]["rate"]) if rounds else 0.0


def say(text: str) -> None:
    """Say on stderr what goes on."""
    print(text, file=sys.stderr, flush=True)


def environment_of(key: str) -> dict[str, str]:
    """The environment of a contender's programs."""
    return cells.own_environment() if key == OURS else builder.environment()


# -- servers ------------------------------------------------------------------------------------


def measure_servers(found: Results, chosen: list[Server], scale: Scale) -> None:
    """Measure all cells of servers: rounds in which each is measured once. `wirespeed bench` alone
    drives those that are not on their fastest settings."""
    for server in chosen:
        try:
            server.stdio()
        except builder.NotBuilt as exc:
            for cell in _cells_of(server, scale):
                found.fault(server.id, cell.key, "bench", f"not built: {exc}")
    for number in range(scale.rounds):
        began = time.monotonic()
        for server in chosen:
            for cell in _cells_of(server, scale, "stdio"):
                _stdio(found, server, cell, scale)
        for transport in URLS:
            for server in chosen:
                for era in (LEGACY, MODERN):
                    if _cells_of(server, scale, transport, era):
                        _listening(found, server, transport, era, scale)
        say(f"servers: round {number + 1} of {scale.rounds}, {time.monotonic() - began:.0f} s")
        if not scale.time_for(began):
            break


def _cells_of(
    server: Server, scale: Scale, transport: str | None = None, era: str | None = None
) -> list[Cell]:
    return [
        cell
        for cell in CELLS
        if cell.transport in server.transports
        and transport in (None, cell.transport)
        and era in (None, cell.era)
        and (cell.era == LEGACY or server.modern is not None)
        and (cell.all_settings or server.setting not in (DOCUMENTED, EVENTS))
        and (scale.cells is None or cell.key in scale.cells)
    ]


def _counts(found: Results, server: str, cell: Cell, seconds: float) -> tuple[int, int]:
    """Calls to be measured, and those before them."""
    rate = found.rate(server, cell.key)
    if not rate:
        return (20, 8) if cell.size > cells.KIB else (UNKNOWN, UNKNOWN // 3)
    return max(int(rate * seconds), 2 * cell.connections), max(int(rate * seconds * WARM), 20)


def _stdio(found: Results, server: Server, cell: Cell, scale: Scale) -> None:
    seconds, environment = scale.seconds * cell.share, environment_of(server.key)
    _, warm = _counts(found, server.id, cell, seconds)
    ours = cells.own_environment()
    found.take(
        server.id,
        cell.key,
        "bench",
        lambda: cells.by_bench(cell, server.stdio(era=cell.era), seconds, warm, ours),
    )
    if server.setting != FASTEST:
        return
    calls, warm = _counts(found, server.id, cell, seconds)
    found.take(
        server.id,
        cell.key,
        "c",
        lambda: cells.by_generator(cell, server.stdio(era=cell.era), calls, warm, environment),
    )


def _listening(found: Results, server: Server, transport: str, era: str, scale: Scale) -> None:
    if found.over:
        return
    port = None if server.announces else free_port()
    try:
        command = server.listening(transport, port or 0, era)
        with started(command, port, environment_of(server.key)) as live:
            if transport == "http" and era == LEGACY:
                row = found.row(server.id, "answers", "raw")
                events = raw.answers_in_events(live.port)
                row["rounds"] = [{"events": float(events)}]
            url = URLS[transport].format(live.port)
            for cell in _cells_of(server, scale, transport, era):
                both = server.setting == FASTEST and cell.generator is not None
                _loaded(found, server.id, cell, url, live.port, live.pid, scale, both)
    except (Fault, builder.NotBuilt) as exc:
        for cell in _cells_of(server, scale, transport, era):
            found.fault(server.id, cell.key, "bench", str(exc))


def _loaded(
    found: Results,
    name: str,
    cell: Cell,
    url: str,
    port: int,
    pid: int,
    scale: Scale,
    both: bool = True,
) -> None:
    seconds = scale.seconds * cell.share
    _, warm = _counts(found, name, cell, seconds)
    ours = cells.own_environment()
    found.take(name, cell.key, "bench", lambda: cells.by_bench(cell, url, seconds, warm, ours, pid))
    if not both:
        return
    calls, warm = _counts(found, name, cell, seconds)
    found.take(name, cell.key, "c", lambda: cells.by_generator(cell, port, calls, warm, ours, pid))


# -- what is measured by hand -------------------------------------------------------------------


def measure_lists(found: Results, chosen: list[Server], scale: Scale) -> None:
    """Measure cold starts, memory at rest, and a list of a thousand tools, over stdio."""
    stdio = [one for one in chosen if "stdio" in one.transports]
    for number in range(scale.starts):
        began = time.monotonic()
        for server in stdio:
            environment = environment_of(server.key)
            found.take(
                server.id,
                "start",
                "raw",
                lambda s=server, e=environment: raw.cold_start(s.stdio(), e),
            )
        say(f"starts: round {number + 1} of {scale.starts}, {time.monotonic() - began:.0f} s")
    for _ in range(min(scale.rounds, 3)):
        began = time.monotonic()
        for server in stdio:
            if server.key == REFERENCE or server.setting == DOCUMENTED:
                continue
            environment = environment_of(server.key)
            found.take(
                server.id,
                "list",
                "raw",
                lambda s=server, e=environment: raw.listing(
                    s.stdio(TOOLS), e, TOOLS, scale.seconds * 0.5
                ),
            )
        say(f"lists: {time.monotonic() - began:.0f} s")
        if not scale.time_for(began):
            break


def measure_memory(found: Results, chosen: list[Server], scale: Scale) -> None:
    """Measure the memory of many HTTP connections with a session each, once: it hardly varies.
    Servers are as documented, as not all have sessions on their fastest settings."""
    for server in chosen:
        if server.setting != DOCUMENTED and server.key != REFERENCE:
            continue

        def measure(server: Server = server) -> Figures:
            port = None if server.announces else free_port()
            command = server.listening("http", port or 0)
            with started(command, port, environment_of(server.key)) as live:
                return raw.memory_of_connections(live.port, live.pid, scale.connections)

        found.take(server.id, "connections", "raw", measure)
    say("memory of connections: done")


def measure_clients(found: Results, keys: Callable[[str], bool], scale: Scale) -> None:
    """Measure the clients against the echo server in C over stdio."""
    chosen = [client for client in clients() if keys(client.key)]
    for number in range(scale.rounds):
        began = time.monotonic()
        for in_flight in (1, 64):
            cell = f"client_{in_flight}"
            for client in chosen:
                row = found.row(client.key, cell, "client")
                last = row["rounds"][-1]["rate"] if row["rounds"] else 0.0
                environment = environment_of(client.key)

                run = functools.partial(_client, client, environment, in_flight, last, scale)
                found.take(client.key, cell, "client", run)
        say(f"clients: round {number + 1} of {scale.rounds}, {time.monotonic() - began:.0f} s")
        if not scale.time_for(began):
            break


def _client(
    client: Client, environment: dict[str, str], in_flight: int, rate: float, scale: Scale
) -> Figures:
    if not rate:  # a short run to learn how many calls fit into the time
        short = cells.by_client(client.command(), 200, 100, in_flight, environment)
        rate = short["rate"]
    calls = max(int(rate * scale.seconds), 200)
    return cells.by_client(client.command(), calls, calls, in_flight, environment)


# -- proxies ------------------------------------------------------------------------------------

PROXIED = [
    Cell("proxy_1", "1 client", "http", 1, 1),
    Cell("proxy_16", "16 clients", "http", 16, 1),
    Cell("proxy_1000", "1,000 clients", "http", 1000, 1),
]
# Of a load with many clients: a proxy that would take longer is not measured with it.
MOST_SECONDS = 30.0
DIRECT = {"stdio": "stdio_1", "http": "http_1"}


def measure_proxies(found: Results, chosen: list[Proxy], scale: Scale) -> None:
    """Measure the proxies before the echo server in C, and the way without one."""
    rounds = min(scale.rounds, 2)  # the starts of some take long
    for number in range(rounds):
        began = time.monotonic()
        _direct(found, scale)
        for proxy in chosen:
            _proxied(found, proxy, scale)
        say(f"proxies: round {number + 1} of {rounds}, {time.monotonic() - began:.0f} s")
        if not scale.time_for(began):
            break


def _direct(found: Results, scale: Scale) -> None:
    """The echo server in C without a proxy: what one call takes."""
    reference = next(one for one in servers() if one.key == REFERENCE)
    for cell in CELLS:
        if cell.key == DIRECT["stdio"]:
            _stdio(found, reference, cell, scale)
        elif cell.key == DIRECT["http"]:
            with started(reference.listening("http", 0), None, builder.environment()) as live:
                url = f"http://127.0.0.1:{live.port}/mcp"
                _loaded(found, reference.id, cell, url, live.port, live.pid, scale)


def _proxied(found: Results, proxy: Proxy, scale: Scale) -> None:
    if found.over:
        return
    try:
        program = builder.find("c")
        if proxy.behind == "stdio":
            _through(found, proxy, [str(program / "echo_child")], scale)
        else:
            with started([str(program / "echo_http")], None, builder.environment()) as behind:
                _through(found, proxy, f"http://127.0.0.1:{behind.port}/mcp", scale)
    except (Fault, builder.NotBuilt) as exc:
        for cell in PROXIED:
            found.fault(proxy.id, cell.key, "c", str(exc))


def _through(found: Results, proxy: Proxy, behind: list[str] | str, scale: Scale) -> None:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        environment = environment_of(proxy.key) | proxy.variables(Path(folder))
        command = proxy.command(port, behind, Path(folder))
        with (
            started(command, port, environment, folder) as live,
            proxy.ready(port, behind),
        ):
            _await_tool(proxy, port)
            url = f"http://127.0.0.1:{port}{proxy.path}"
            for cell in PROXIED[:2] if scale.quick else PROXIED:
                _one_proxied(found, proxy, cell, url, live.pid, port, scale)
            row = found.row(proxy.id, "proxy_1000", "bench")
            if row["rounds"]:
                held = resident(live.pid, beside="echo_child")
                row["rounds"][-1]["resident_bytes"] = held


def _await_tool(proxy: Proxy, port: int) -> None:
    """Some listen before they know the server behind them."""
    until = time.monotonic() + 20.0
    while True:
        web = raw.Web(port, proxy.path)
        try:
            web.open()
            names = [tool["name"] for tool in web.ask("tools/list", {})["tools"]]
            if proxy.tool in names:
                return
            why = f"its tools are {names}"
        except Fault as exc:
            why = str(exc)
        finally:
            web.close()
        if time.monotonic() > until:
            raise Fault(why)
        time.sleep(0.3)


def _one_proxied(
    found: Results, proxy: Proxy, cell: Cell, url: str, pid: int, port: int, scale: Scale
) -> None:
    ours = cells.own_environment()
    many = cell.connections > 100
    rate = found.rate(proxy.id, "proxy_16" if many else cell.key)
    if many and rate * MOST_SECONDS < 2 * cell.connections:
        why = f"too slow: {rate:.0f} calls a second with 16 clients"
        for by in ("bench", "c"):
            found.fault(proxy.id, cell.key, by, why)
        return
    warm = cell.connections if many else max(int(rate * scale.seconds * WARM), 20)
    found.take(
        proxy.id,
        cell.key,
        "bench",
        lambda: cells.by_bench(cell, url, scale.seconds, warm, ours, pid, proxy.tool),
    )
    rate = rate or found.rate(proxy.id, cell.key)
    calls = max(int(rate * scale.seconds), 2 * cell.connections)
    found.take(
        proxy.id,
        cell.key,
        "c",
        lambda: cells.by_generator(
            cell, port, calls, warm, ours, pid, path=proxy.path, tool=proxy.tool
        ),
    )


# -- all ----------------------------------------------------------------------------------------


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round: does all run?")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of each load")
    parser.add_argument("--minutes", type=float, help="no round begins that would end later")
    parser.add_argument("--only", help="SDKs and proxies by their keys, with commas between them")
    parser.add_argument("--parts", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--cells", help="loads on servers by their keys, such as http_16_modern")
    parser.add_argument("--agentgateway", help="the path of agentgateway's program")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.whole = not (options.parts or options.cells or options.only)
    if options.cells and options.parts not in (None, "servers"):
        parser.error("--cells is for the part servers")
    options.parts = (options.parts or ("servers" if options.cells else ",".join(PARTS))).split(",")
    options.cells = frozenset(options.cells.split(",")) if options.cells else None
    keys = [cell.key for cell in CELLS]
    for wanted, there, kind in ((options.parts, PARTS, "part"), (options.cells, keys, "cell")):
        for unknown in set(wanted or ()) - set(there):
            parser.error(f"there is no {kind} {unknown}; there are {', '.join(there)}")
    return options


def main() -> int:
    """Build, measure and write. Returns 1 if a contender has no number."""
    options = _options()
    # what was started is ended, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    not_built = (builder.missing if options.no_build else builder.make_all)(builder.TARGETS)
    compile_modules()
    minutes = options.minutes or (11.0 if options.quick else 75.0)
    began = time.monotonic()
    scale = Scale(
        rounds=options.rounds or (1 if options.quick else 3),
        seconds=options.seconds or (0.3 if options.quick else 1.0),
        connections=200 if options.quick else CONNECTIONS,
        starts=3 if options.quick else 5,
        deadline=began + minutes * 60,
        quick=options.quick,
        cells=options.cells or (QUICK if options.quick else None),
    )
    wanted = set(options.only.split(",")) if options.only else None

    def chosen(key: str) -> bool:
        return wanted is None or key in wanted

    about = {
        "date": time.strftime("%Y-%m-%d"),
        "quick": options.quick,
        "seconds": scale.seconds,
        "machine": machine(),
        "pins": builder.PINS,
        "not_built": not_built,
    }
    found = Results(scale.deadline)
    with awake() as about["awake"]:
        _measure(options.parts, found, chosen, scale, options.agentgateway)
    about["load_after"] = os.getloadavg()[0]
    about["minutes"] = (time.monotonic() - began) / 60
    named = {one.id: [one.name, one.language, one.setting] for one in servers()}
    about["servers"] = named
    about["clients"] = {one.key: [one.name, one.language] for one in clients()}
    about["proxies"] = {
        one.id: [one.name, one.behind, one.sharing] for one in proxies(options.agentgateway)
    }
    write(options.json, about, found, whole=options.whole)
    if options.json == RESULTS:
        report.write()
    return 1 if any(row["fault"] for row in found.rows.values()) else 0


def _measure(
    parts: Iterable[str],
    found: Results,
    chosen: Callable[[str], bool],
    scale: Scale,
    agentgateway: str | None,
) -> None:
    all_servers = [server for server in servers() if chosen(server.key)]
    all_proxies = [proxy for proxy in proxies(agentgateway) if chosen(proxy.key)]
    if "limits" in parts and chosen(OURS):
        limits.measure(found, scale)
    if "lists" in parts:
        measure_lists(found, all_servers, scale)
    if "memory" in parts:
        measure_memory(found, all_servers, scale)
    if "clients" in parts:
        measure_clients(found, chosen, scale)
    if "servers" in parts:
        kept = AFTER_SERVERS_QUICK if scale.quick else AFTER_SERVERS
        kept = kept if {"proxies", "rate"} & set(parts) else 0.0
        sooner = scale.deadline - kept
        measure_servers(found, all_servers, replace(scale, deadline=sooner))
    if "proxies" in parts:
        measure_proxies(found, all_proxies, scale)
    if "rate" in parts and chosen(OURS):
        oha.compare(found, scale)


def write(path: Path, about: dict[str, Any], found: Results, *, whole: bool) -> None:
    """Write the results. What an earlier run of the same kind measured, and this one did not, stays
    as it was.

    whole: Whether this run was to measure everything.
    """
    path.parent.mkdir(exist_ok=True)
    rows = {}
    if path.exists():
        before = json.loads(path.read_text())
        if before["quick"] == about["quick"]:
            rows = {(one["contender"], one["cell"], one["by"]): one for one in before["rows"]}
            for names in ("servers", "clients", "proxies"):
                about[names] = before[names] | about[names]
            if not whole:
                about["minutes"] += before["minutes"]
                loads = (one["machine"]["load_before"] for one in (before, about))
                about["machine"]["load_before"] = max(loads)
                about["load_after"] = max(before["load_after"], about["load_after"])
    rows |= {key: one for key, one in found.rows.items() if one["rounds"] or one["fault"]}
    path.write_text(json.dumps(about | {"rows": list(rows.values())}, indent=1) + "\n")
    say(f"written: {path}")


if __name__ == "__main__":
    sys.exit(main())
