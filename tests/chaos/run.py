"""Three hosts, a balancer that knows nothing of sessions, a store, and faults: what is promised of
several hosts, all at once.

    python tests/chaos/run.py                     a minute
    python tests/chaos/run.py --seconds 3600      an hour
    python tests/chaos/run.py --clients 300 --seed 7
    python tests/chaos/run.py --faults drain --every 10    one kind of fault alone
    python tests/chaos/run.py --no-links          without network namespaces

Every few seconds a host is killed, frozen, unplugged, cut off from the store or from the others, or
drained; or the store is frozen, or restarts with or without its data. Each request has one outcome
and runs once at most; no answer, question or event reaches another client; events of a stream come
once and in order; a session has one owner at a time, and outlives its host; at the end the hosts
and the store have no more than at the beginning. Exit status 1 if not; the last line counts.

It needs haproxy, redis-server and the right to make network namespaces. Where that is missing, the
hosts are processes at 127.0.0.1, whose links cannot be cut; a line says so.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).parent)]

from bare import BareClient  # noqa: E402
from clients import ANY, LibraryClient, Places, Probe  # noqa: E402
from lab import netns  # noqa: E402
from lab.hosts import Host  # noqa: E402
from lab.nginx import NGINX  # noqa: E402
from lab.process import free_port  # noqa: E402
from lab.store import StoreServer  # noqa: E402
from seen import EMPTIED, LIFETIME, Fault, Seen, runs_of  # noqa: E402

from wirespeed import Http, WebSocket  # noqa: E402

NAMES = ("a", "b", "c")
DRAINED_IN = 30.0
MAX_GROWTH = 32 * 1024  # KiB of memory of a host
PAGE = ROOT / "docs" / "how-to" / "several-hosts.md"
# Outcomes in a rolling update.
FINE = ("answered", "cancelled", "resumed", "runs", "owners")
Work = Coroutine[Any, Any, None]


class Deployment:
    """The hosts, their store and their balancer."""

    def __init__(self, folder: Path, links: bool, **options: Any) -> None:
        self.folder = folder
        self._options = options
        self.machines: dict[str, netns.Machine] = {}
        self.places = {name: ("127.0.0.1", free_port()) for name in (*NAMES, ANY)}
        self.hosts: dict[str, Host] = {}
        own = folder / "store"
        own.mkdir()
        if links:
            netns.lay_cables()
            self.machines = {
                name: netns.Machine(name, number)
                for number, name in enumerate((*NAMES, "store"), 1)
            }
            for name in NAMES:
                self.places[name] = self.machines[name].addresses["lan"], 8000
            address = self.machines["store"].addresses["depot"]
            options = ("--bind", address, "--protected-mode", "no")
            inside = self.machines["store"].inside
            self.store = StoreServer(own, *options, port=6379, inside=inside)
            self.store_url = f"redis://{address}:6379"
        else:
            self.store = StoreServer(own, port=free_port())
            self.store_url = self.store.url
        self.dump = own / "dump.rdb"

    async def start(self, *names: str) -> None:
        for name in names:
            address, port = self.places[name]
            inside = self.machines[name].inside if self.machines else ()
            self.hosts[name] = Host(
                self.folder,
                name,
                self.store_url,
                inside=inside,
                program="chaos_host.py",
                address=address,
                port=port,
                journal=str(self.folder / f"{name}.journal"),
                lifetime=LIFETIME,
                sse_keepalive=2.0,
                **self._options,
            )
        for name in names:
            await self.hosts[name].ready()

    def balance(self, program: str) -> subprocess.Popen[bytes]:
        """A balancer with the file of the page."""
        title = {"haproxy": "haproxy.cfg", "nginx": "any.conf"}[program]
        block = rf'^```\w+ title="{title}"\n(.*?)^```$'
        found = re.search(block, PAGE.read_text(), re.MULTILINE | re.DOTALL)
        assert found is not None
        text = found[1]
        for name, place in (("127.0.0.1:8080", ANY), *((f"{n}.example:8000", n) for n in NAMES)):
            text = text.replace(name, ":".join(map(str, self.places[place])))
        file = self.folder / title
        if program == "haproxy":
            command = ["haproxy", "-db", "-f", str(file)]
        else:
            text = NGINX.format(user="user root;", folder=self.folder, file=text)
            command = ["nginx", "-p", str(self.folder), "-c", str(file)]
        file.write_text(text)
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def keys_of_clients(self) -> list[str]:
        """The keys of the store, but those of the hosts themselves."""
        own = ("{sessions", "{changes")
        return [key for key in self.store.ask("KEYS", "*") if not any(one in key for one in own)]

    def memory(self) -> dict[str, int]:
        """KiB of each host."""
        return {
            name: int(
                re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{host.process.pid}/status").read_text())[
                    1
                ]  # type: ignore[index]
            )
            for name, host in self.hosts.items()
        }

    async def end(self) -> None:
        for host in self.hosts.values():
            host.signal(signal.SIGCONT)
            await host.kill()
        self.store.kill()
        for machine in self.machines.values():
            machine.end()


class Faults:
    """What is done to a deployment."""

    def __init__(self, deployed: Deployment, seen: Seen) -> None:
        self._deployed = deployed
        self._seen = seen
        self._random = seen.random
        self._work: set[asyncio.Task[None]] = set()
        self.of_hosts: dict[str, Callable[[str], Work]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "drain": self._drain,
        }
        if deployed.machines:
            self.of_hosts |= {
                "unplug": lambda name: self._cut(name, "lan", "depot"),
                "cut off from the store": lambda name: self._cut(name, "depot"),
                "cut off from the others": lambda name: self._cut(name, "lan"),
            }
        self.of_store: dict[str, Callable[[], Work]] = {
            EMPTIED: self._restart_empty,
            "the store restarts": self._restart,
            "the store freezes": self._freeze_store,
        }

    async def run(self, seconds: float, every: float, kinds: Sequence[str]) -> None:
        """Do one after another, also while earlier ones last, but one host is well."""
        until = time.monotonic() + seconds
        while time.monotonic() + every < until:
            await asyncio.sleep(every)
            kind = self._random.choice(kinds)
            well = [name for name in NAMES if name not in self._seen.open]
            if kind in self.of_store:
                if "" not in self._seen.open:
                    self._begin(kind, "", self.of_store[kind]())
            elif len(well) > 1:
                name = self._random.choice(well)
                self._begin(kind, name, self.of_hosts[kind](name))
        if self._work:
            await asyncio.wait(self._work)

    async def roll(self, seconds: float, pause: float) -> None:
        """Drain one host after the other, and start it again."""
        names = itertools.cycle(NAMES)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            name = next(names)
            self._begin("drain", name, self._drain(name))
            await asyncio.wait(self._work)
            await asyncio.sleep(pause)

    def _begin(self, kind: str, host: str, work: Work) -> None:
        self._seen.open[host] = kind, time.monotonic()
        print(f"{time.monotonic():.2f} {kind} {host}", flush=True)
        task = asyncio.create_task(self._last(host, work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _last(self, host: str, work: Work) -> None:
        try:
            await work
        except Exception as exc:
            self._seen.wrong.append(f"fault of {host}: {exc!r}")
        kind, since = self._seen.open.pop(host)
        self._seen.faults.append(Fault(kind, host, since, time.monotonic()))
        print(f"{time.monotonic():.2f} {kind} {host}: over", flush=True)

    async def _kill(self, name: str) -> None:
        await self._deployed.hosts[name].kill()
        await asyncio.sleep(self._random.choice((0.0, 1.0, 6.0)))
        await self._deployed.start(name)

    async def _freeze(self, name: str) -> None:
        host = self._deployed.hosts[name]
        host.signal(signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(2, 8))
        host.signal(signal.SIGCONT)

    async def _drain(self, name: str) -> None:
        host = self._deployed.hosts[name]
        host.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(DRAINED_IN):
                while host.process.poll() is None:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            self._seen.wrong.append(f"{name} does not end")
            await host.kill()
        if host.process.returncode:
            self._seen.wrong.append(f"{name} ended with {host.process.returncode}")
        await self._deployed.start(name)

    async def _cut(self, name: str, *links: netns.Link) -> None:
        machine = self._deployed.machines[name]
        for link in links:
            machine.plug(link, "down")
        await asyncio.sleep(self._random.uniform(2, 8))
        for link in links:
            machine.plug(link, "up")

    async def _restart_empty(self) -> None:
        self._deployed.dump.unlink(missing_ok=True)
        await self._start_store_again()

    async def _restart(self) -> None:
        self._deployed.store.ask("SAVE")
        await self._start_store_again()

    async def _start_store_again(self) -> None:
        self._deployed.store.kill()
        await asyncio.sleep(self._random.choice((0.0, 2.0)))
        await asyncio.to_thread(self._deployed.store.start)

    async def _freeze_store(self) -> None:
        self._deployed.store.freeze()
        await asyncio.sleep(self._random.uniform(1, 8))
        self._deployed.store.thaw()


async def client(n: int, seen: Seen, places: Places, args: argparse.Namespace) -> None:
    """Come and go, until the end."""
    host, port = places.at(ANY)
    pause = args.pause
    kind = n % 8 if args.kind is None else args.kind
    await asyncio.sleep(seen.random.uniform(0, 2 * pause))
    session = 0
    while not seen.is_over:
        session += 1
        who = f"{n}/{session}"
        if kind < 4:
            await BareClient(seen, places, who).live(pause)
        else:
            era = "legacy" if kind % 2 else "modern"
            target: Http | WebSocket = Http(f"http://{host}:{port}/mcp")
            if kind >= 6:
                target = WebSocket(f"ws://{host}:{port}/mcp", restart=True)
            await LibraryClient(seen, target, era, who).live(pause)


async def spell(args: argparse.Namespace, folder: Path, links: bool) -> Seen:
    print(f"seed {args.seed}")
    seen = Seen(args.seed)
    deployed = Deployment(folder, links, drain_delay=args.drain_delay)
    balancer = None
    try:
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
        faults = Faults(deployed, seen)
        kinds = args.faults.split(",") if args.faults else [*faults.of_hosts, *faults.of_store]
        tasks = [asyncio.create_task(client(n, seen, places, args)) for n in range(args.clients)]
        tasks += [
            asyncio.create_task(Probe(seen, places, name, [o for o in NAMES if o != name]).run())
            for name in NAMES
        ]
        if args.rolling:
            await faults.roll(args.seconds, args.every)
        else:
            await faults.run(args.seconds, args.every, kinds)
        seen.is_over = True
        done, late = await asyncio.wait(tasks, timeout=90)
        seen.wrong += [f"{task.exception()!r}" for task in done if task.exception()]
        if late:
            seen.wrong.append(f"{len(late)} clients do not end")
        await come_to_rest(deployed, seen, memory)
        for task in late:
            task.cancel()
    finally:
        if balancer is not None:
            balancer.kill()
            balancer.wait()
        await deployed.end()
    seen.judge(runs_of(folder.glob("*.journal")))
    if args.rolling:
        seen.wrong += [
            f"{n} {outcome}" for outcome, n in seen.outcomes.items() if outcome not in FINE
        ]
    return seen


async def come_to_rest(deployed: Deployment, seen: Seen, memory: dict[str, int]) -> None:
    """What is kept for clients ends soon after they left."""
    until = time.monotonic() + 3 * LIFETIME
    while (left := deployed.keys_of_clients()) and time.monotonic() < until:
        await asyncio.sleep(0.5)
    if left:
        seen.wrong.append(f"{len(left)} keys are left: {left[:20]}")
    for name, now in deployed.memory().items():
        print(f"{name}: {memory[name] // 1024} MiB at the beginning, {now // 1024} at the end")
        if now - memory[name] > MAX_GROWTH:
            seen.wrong.append(f"{name} has grown by {(now - memory[name]) // 1024} MiB")


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
    parser.add_argument("--faults", help="their kinds, with commas")
    parser.add_argument("--rolling", action="store_true", help="a rolling update: nothing fails")
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
        seen = asyncio.run(spell(args, folder, links))
        logs = {log.stem: log.read_text() for log in folder.glob("*.log")}
    for name, log in sorted(logs.items()):
        for line in sorted(
            set(re.findall(r"^.*Traceback.*$|^\w*Error.*$|^.* ERROR .*$", log, re.MULTILINE))
        ):
            print(f"log of {name}: {line}")
        if "Traceback" in log:
            seen.wrong.append(f"{name} has logged an exception")
    for outcome, n in seen.outcomes.most_common():
        print(f"{n:8} {outcome}")
    for kind, seconds in sorted(seen.adopted.items()):
        found = sorted(seconds)
        print(
            f"served again after {kind}: {len(found)}, median {found[len(found) // 2]:.2f} s, "
            f"at most {found[-1]:.2f} s"
        )
    for one in seen.wrong[:50]:
        print(f"WRONG: {one}")
    print(
        f"{len(seen.faults)} faults, {seen.outcomes['answered']} requests answered, "
        f"{len(seen.wrong)} wrong" + ("" if links else ", NO LINKS CUT: no network namespaces here")
    )
    return bool(seen.wrong)


if __name__ == "__main__":
    sys.exit(main())
