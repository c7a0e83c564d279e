"""Three hosts, a balancer that knows nothing of sessions, a store, and faults: what is promised of
several hosts, all at once.

    python tests/chaos/run.py                     a minute
    python tests/chaos/run.py --seconds 3600      an hour
    python tests/chaos/run.py --clients 300 --seed 7
    python tests/chaos/run.py --store sentinel    a store that fails over; or: cluster
    python tests/chaos/run.py --program proxy     hosts of the proxy
    python tests/chaos/run.py --faults drain --every 10    one kind of fault alone
    python tests/chaos/run.py --no-links          without network namespaces

Every few seconds a host is killed, frozen, unplugged, cut off from the store or from the others, or
drained; or the store is frozen, restarts with or without its data, or fails over. Each request has
one outcome and runs once at most; no answer, question or event reaches another client; events of a
stream come once and in order; a session has one owner at a time, and outlives its host; at the end
the hosts and the store have no more than at the beginning. Exit status 1 if not; the last line
counts. Times are printed; with `--strict` a late adoption is wrong, too.

It needs haproxy, redis-server and the right to make network namespaces. Where that is missing, the
hosts are processes at 127.0.0.1, whose links cannot be cut; a line says so. With WIRESPEED_REDIS
another program is the store, as a valkey-server.

The files: `deployment` (hosts, balancer), `stores`, `faults`; `bare` and `clients` (of HTTP by
hand, and those of the package), `adoption` (how soon a session is served again); `seen` (what is
right and wrong), `report`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).parent)]

from adoption import Adoption, Probe, adoptions  # noqa: E402
from bare import BareClient  # noqa: E402
from clients import ANY, LibraryClient, Places  # noqa: E402
from deployment import NAMES, Deployment  # noqa: E402
from faults import Faults  # noqa: E402
from lab import netns  # noqa: E402
from report import logged, table, too_late  # noqa: E402
from seen import LIFETIME, Journals, Run, Seen  # noqa: E402
from stores import KINDS, OLDER  # noqa: E402

from wirespeed import Http, WebSocket  # noqa: E402

MAX_GROWTH = 32 * 1024  # KiB of memory of a host
SETTLED = 90.0  # seconds after a client has left; nothing of it runs any more
# Outcomes in a rolling update.
FINE = ("answered", "cancelled", "resumed", "runs", "owners")


async def client(n: int, seen: Seen, places: Places, args: argparse.Namespace) -> None:
    """Come and go, until the end."""
    host, port = places.at(ANY)
    pause = args.pause
    asks = args.program == "server" or args.isolation == "shared"
    kind = n % 8 if args.kind is None else args.kind
    await asyncio.sleep(seen.random.uniform(0, 2 * pause))
    session = 0
    while not seen.is_over:
        session += 1
        who = f"{n}/{session}"
        if kind < 4:
            await BareClient(seen, places, who, asks=asks).live(pause)
        else:
            era = "legacy" if kind % 2 else "modern"
            target: Http | WebSocket = Http(f"http://{host}:{port}/mcp")
            if kind >= 6:
                target = WebSocket(f"ws://{host}:{port}/mcp", restart=True)
            await LibraryClient(seen, target, era, who, asks=asks).live(pause)


async def watch(seen: Seen, journals: Journals, of_probes: dict[str, Run]) -> None:
    """Judge what runs, all of the time, so that little of it is kept."""
    while True:
        take(seen, journals, of_probes)
        seen.judge(SETTLED)
        await asyncio.sleep(5)


def take(seen: Seen, journals: Journals, of_probes: dict[str, Run]) -> None:
    for run in journals.read():
        seen.ran(run)
        if run.nonce.startswith("probe-"):
            of_probes[run.nonce] = run


async def spell(args: argparse.Namespace, folder: Path, links: bool) -> tuple[Seen, list[Adoption]]:
    print(f"seed {args.seed}")
    seen = Seen(args.seed, lives_return=args.program == "proxy")
    journals = Journals(folder)
    of_probes: dict[str, Run] = {}
    chance = random.Random(args.seed)  # of its own: the same faults, whatever the clients do
    deployed = Deployment(
        *(folder, links, chance),
        store=args.store,
        program=args.program,
        isolation=args.isolation,
        drain_delay=args.drain_delay,
    )
    balancer = None
    watching = None
    try:
        await deployed.store.ready()
        await deployed.start(*NAMES)
        balancer = deployed.balance(args.balancer)
        places = Places(deployed.places)
        while True:
            with contextlib.suppress(OSError):
                (await places.connect(ANY)).close()
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.5)  # the hosts know each other
        memory = deployed.memory()
        faults = Faults(deployed, seen, chance)
        kinds = [kind for kind in (*faults.of_hosts, *faults.of_store) if kind != OLDER]
        if args.faults:
            kinds = args.faults.split(",")
        watching = asyncio.create_task(watch(seen, journals, of_probes))
        tasks = [asyncio.create_task(client(n, seen, places, args)) for n in range(args.clients)]
        probes = [Probe(seen, places, name, [o for o in NAMES if o != name]) for name in NAMES]
        tasks += [asyncio.create_task(probe.run()) for probe in probes]
        if args.rolling:
            await faults.roll(args.seconds, args.every)
        else:
            await faults.run(args.seconds, args.every, kinds)
        seen.is_over = True
        done, late = await asyncio.wait(tasks, timeout=90)
        for task in done:
            if (exc := task.exception()) is not None:
                seen.note(f"{exc!r}")
        if late:
            seen.note(f"{len(late)} clients do not end")
        await come_to_rest(deployed, seen, memory)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)  # they say what they wait for
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        if balancer is not None:
            balancer.kill()
            balancer.wait()
        await deployed.end()
    if not watching.cancelled() and (failure := watching.exception()) is not None:
        raise failure
    take(seen, journals, of_probes)
    seen.judge_all()
    if args.rolling:
        for outcome, n in seen.outcomes.items():
            if outcome not in FINE:
                seen.note(f"{n} {outcome}")
    return seen, adoptions(probes, of_probes, folder.glob("*.log"))


async def come_to_rest(deployed: Deployment, seen: Seen, memory: dict[str, int]) -> None:
    """What is kept for clients ends soon after they left."""
    until = time.monotonic() + 3 * LIFETIME
    while (left := deployed.keys_of_clients()) and time.monotonic() < until:
        await asyncio.sleep(0.5)
    print(f"keys of clients in the store: 0 at the beginning, {len(left)} at the end")
    if left:
        seen.note(f"{len(left)} keys are left: {left[:20]}")
    for name, now in deployed.memory().items():
        print(f"{name}: {memory[name] // 1024} MiB at the beginning, {now // 1024} at the end")
        if now - memory[name] > MAX_GROWTH:
            seen.note(f"{name} has grown by {(now - memory[name]) // 1024} MiB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=60)
    parser.add_argument(
        "--every",
        type=float,
        default=5.0,
        help="seconds from fault to fault, or from an update to the next",
    )
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two requests")
    parser.add_argument("--kind", type=int, choices=range(8), help="of all clients")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--store", choices=KINDS, default="redis")
    parser.add_argument("--program", choices=("server", "proxy"), default="server")
    parser.add_argument(
        "--isolation",
        choices=("shared", "pool"),
        default="shared",
        help="of the server behind the proxy: one over HTTP, or processes, which ask nothing",
    )
    parser.add_argument("--faults", help="their kinds, with commas")
    parser.add_argument("--rolling", action="store_true", help="a rolling update: nothing fails")
    parser.add_argument("--strict", action="store_true", help="a late adoption is wrong")
    parser.add_argument("--balancer", choices=("haproxy", "nginx"), default="haproxy")
    parser.add_argument("--drain-delay", type=float, default=0.0)
    parser.add_argument("--no-links", action="store_true")
    parser.add_argument("--keep", type=Path, help="a folder for logs and journals")
    args = parser.parse_args()
    assert shutil.which("haproxy"), "no haproxy"
    links = not args.no_links and netns.enter()
    if not links:
        print("NO NETWORK NAMESPACES: hosts at 127.0.0.1; no links are cut")
    with tempfile.TemporaryDirectory(prefix="ws-") as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(exist_ok=True, parents=True)
        logging.basicConfig(filename=folder / "clients.log", level=logging.WARNING)
        try:
            seen, adopted = asyncio.run(spell(args, folder, links))
        except KeyboardInterrupt:
            return 130
        lines, faulty = logged(folder.glob("*.log"))
    for line in lines:
        print(line)
    for name in faulty:
        seen.note(f"{name} has logged an exception")
    for outcome, n in seen.outcomes.most_common():
        print(f"{n:8} {outcome}")
    for row in table(seen, adopted):
        print(row)
    for late in too_late(adopted):
        print(late)
        if args.strict:
            seen.note(late)
    print(
        f"{len(seen.faults)} faults, {seen.outcomes['answered']} requests answered, "
        f"{seen.n_wrong} wrong" + ("" if links else ", NO LINKS CUT: no network namespaces here")
    )
    return bool(seen.n_wrong)


if __name__ == "__main__":
    sys.exit(main())
