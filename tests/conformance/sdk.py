"""The official conformance suite against the official SDK's own server: stock, and the adapter.

    python tests/conformance/sdk.py
    python tests/conformance/sdk.py --place http-2026-07-28    a part of it

The server is the everything-server of the SDK's source distribution, unchanged. It runs on the
SDK's own transports and by `wirespeed.adapters.mcp`: over HTTP, and over stdio behind our proxy,
since the suite speaks HTTP alone. A check that passes on stock and not on the adapter is lost,
unless `OPTIONAL` says that nothing demands it; so is one that fails on the adapter alone. Each is a
fault. Exit status 1 if there are faults; the last line counts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import run

sys.path.insert(0, str(run.ROOT / "tests" / "interop"))

import peers

WAYS = ("stock", "adapter")
AT_ONCE = 2


class Place(NamedTuple):
    """A server that the suite runs against: the column of the suite, and how the proxy isolates
    what it has on stdio; None for a server over HTTP."""

    column: str
    isolation: str | None = None


PLACES = {
    "http-2025-11-25": Place("2025-11-25"),
    "http-2026-07-28": Place("2026-07-28"),
    "http-own": Place(run.OWN),
    "stdio-2025-11-25": Place("2025-11-25", "session"),
    "stdio-2026-07-28": Place("2026-07-28", "shared"),
}
Check = tuple[str, str, str]
"""Its scenario, its id and its name."""


# Checks that the suite itself calls optional where the adapter differs, and does not judge (INFO).
OPTIONAL = {
    # a stream of events for each of several calls at once: the adapter answers with JSON until a
    # handler says something before its result
    ("server-sse-multiple-streams", "ServerSSEStreamsFunctional"),
}


def counted(found: run.Run, *statuses: str) -> Counter[Check]:
    """How often each check has one of these statuses."""
    return Counter(
        (scenario, check["id"], check["name"])
        for scenario, checks in found.checks.items()
        for check in checks
        if check["status"] in statuses
    )


def lost(stock: run.Run, adapted: run.Run) -> list[Check]:
    """The checks that are better on stock."""
    passed = counted(stock, "SUCCESS") - counted(adapted, "SUCCESS")
    failed = counted(adapted, "FAILURE", "WARNING") - counted(stock, "FAILURE", "WARNING")
    return sorted(passed | failed)


def faults_of(name: str, pair: dict[str, run.Run]) -> Iterator[str]:
    """What is wrong at one place."""
    for way, found in pair.items():
        yield from (f"{name}, {way}: {fault}" for fault in found.faults)
        for scenario in found.wanted:
            if not found.checks.get(scenario):
                yield f"{name}, {way}: {scenario}: there are no results"
    informed = counted(pair["adapter"], "INFO")
    for scenario, check_id, title in lost(pair["stock"], pair["adapter"]):
        if (scenario, title) in OPTIONAL and informed[scenario, check_id, title]:
            continue
        said = [
            f"{check['status']}: {check.get('errorMessage') or check['description']}"
            for check in pair["adapter"].checks.get(scenario, [])
            if check["id"] == check_id
        ]
        yield f"{name}: {scenario}: {check_id} ({title}) is lost: {'; '.join(said) or 'not judged'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--place", choices=list(PLACES), action="append", help="one of all")
    parser.add_argument("--results", type=Path, help="keep what the suite writes, in this folder")
    options = parser.parse_args()
    names = options.place or list(PLACES)
    started = time.monotonic()
    run.suite()  # installed before threads ask for it
    python = peers.python("adapter2")
    (pin,) = (pin for pin in peers.PINS["python"]["adapter2"] if pin.startswith("mcp=="))
    sources = peers.sources(*pin.split("=="))
    pairs: dict[str, dict[str, run.Run]] = {name: {} for name in names}
    faults: list[str] = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = options.results or scratch
        program = [python, str(run.HERE / "sdk_server.py"), str(peers.ours(scratch)), str(sources)]
        urls: dict[tuple[str, str], str] = {}
        for way in WAYS:
            # how stock ends is the SDK's own affair
            taken = faults if way == "adapter" else None
            if any(PLACES[name].isolation is None for name in names):
                server = run.listening([*program, f"{way}-http"])
                at = stack.enter_context(server)
            for name in names:
                isolation = PLACES[name].isolation
                if isolation is not None:
                    behind = [isolation, *program, f"{way}-stdio"]
                    proxy = [sys.executable, str(run.HERE / "proxy.py"), *behind]
                    urls[name, way] = stack.enter_context(run.listening(proxy, taken))
                else:
                    urls[name, way] = at

        def hold(name: str, way: str) -> run.Run:
            place = folder / f"{name} {way}"
            made = run.Run("server", name)
            return run.server_run(urls[name, way], PLACES[name].column, place, made)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            going = {key: pool.submit(hold, *key) for key in urls}
            for (name, way), future in going.items():
                pairs[name][way] = future.result()
    for name, pair in pairs.items():
        faults += faults_of(name, pair)
        for way in WAYS:
            statuses = Counter(
                check["status"] for checks in pair[way].checks.values() for check in checks
            )
            told = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
            print(f"{name}, {way}: {told}")
    for fault in faults:
        print(f"FAULT {fault}")
    passed = {
        way: sum(counted(pair[way], "SUCCESS").total() for pair in pairs.values()) for way in WAYS
    }
    print(
        f"conformance of the SDK's own server: {passed['stock']} checks pass on stock, "
        f"{passed['adapter']} on the adapter; {len(faults)} faults; "
        f"{time.monotonic() - started:.0f} s"
    )
    return bool(faults)


if __name__ == "__main__":
    os.environ.pop("FORCE_COLOR", None)
    sys.exit(main())
