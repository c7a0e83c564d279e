"""The stores of the chaos: one server, a master with a replica that Sentinels name, and a Redis
Cluster. All servers of a store are on one machine. Each kind knows what can happen to it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from lab.netns import Machine
from lab.process import free_port
from lab.store import StoreServer

Work = Coroutine[Any, Any, None]

EMPTIED = "the store restarts empty"
# A replica takes the place of a master: what was written just before may be lost.
PROMOTED = ("a master is killed", "a master freezes", "a master hands over")
# The store has the data of a second before. A session may have two owners then, so this fault
# happens only where it is asked for.
OLDER = "the store loses its last second"
SLOTS = 16384
LOST_AFTER = 1000  # milliseconds without an answer, after which a master counts as lost
PROMOTED_IN = 30.0  # seconds


class Store:
    """Servers, on the store's machine or at 127.0.0.1.

    Attributes:
        url: For the hosts.
        faults: What can happen to it, by kind.
        servers: All of them, but Sentinels.
    """

    url: str
    faults: dict[str, Callable[[], Work]]

    def __init__(self, folder: Path, machine: Machine | None, chance: random.Random) -> None:
        self._folder = folder
        self._machine = machine
        self._random = chance
        self._ports = count(6379)
        self.address = "127.0.0.1" if machine is None else machine.addresses["depot"]
        self.servers: list[StoreServer] = []
        self._guards: list[StoreServer] = []

    def port(self) -> int:
        return free_port() if self._machine is None else next(self._ports)

    def serve(self, *options: str, port: int, config: Path | None = None) -> StoreServer:
        own = self._folder / str(port)
        own.mkdir(parents=True)
        server = StoreServer(
            own,
            *("--bind", self.address, "--protected-mode", "no", *options),
            port=port,
            config=config,
            inside=() if self._machine is None else self._machine.inside,
        )
        (self.servers if config is None else self._guards).append(server)
        return server

    async def ready(self) -> None:
        """Wait until hosts can use it."""

    def masters(self) -> Sequence[StoreServer]:
        """Those that are written to."""
        return self.servers

    def all_keys(self) -> list[str]:
        """The keys that it has."""
        return [key for server in self.masters() for key in server.ask("KEYS", "*")]

    def end(self) -> None:
        for server in (*self._guards, *self.servers):
            server.kill()

    async def restart(self, server: StoreServer) -> None:
        """Kill a server that has written down what it holds, and start it again."""
        server.ask("SAVE")
        server.kill()
        await asyncio.sleep(self._random.choice((0.0, 2.0)))
        await asyncio.to_thread(server.start)

    async def freeze(self, server: StoreServer) -> None:
        server.freeze()
        await asyncio.sleep(self._random.uniform(1, 8))
        server.thaw()


class OneServer(Store):
    """One server."""

    def __init__(self, folder: Path, machine: Machine | None, chance: random.Random) -> None:
        super().__init__(folder, machine, chance)
        self._server = self.serve(port=self.port())
        self.url = f"redis://{self.address}:{self._server.port}"
        self.faults = {
            EMPTIED: self._restart_empty,
            "the store restarts": lambda: self.restart(self._server),
            "the store freezes": lambda: self.freeze(self._server),
            OLDER: self._restart_older,
        }

    async def _restart_older(self) -> None:
        self._server.ask("SAVE")
        await asyncio.sleep(1.0)
        self._server.kill()
        await asyncio.to_thread(self._server.start)

    async def _restart_empty(self) -> None:
        self._server.forget()
        self._server.kill()
        await asyncio.sleep(self._random.choice((0.0, 2.0)))
        await asyncio.to_thread(self._server.start)


class Guarded(Store):
    """A master and a replica, and three Sentinels that say which one is the master."""

    def __init__(self, folder: Path, machine: Machine | None, chance: random.Random) -> None:
        super().__init__(folder, machine, chance)
        self._master = self.serve(port=self.port())
        self._replica = self.serve(
            *("--replicaof", self.address, str(self._master.port)), port=self.port()
        )
        for _ in range(3):
            port = self.port()
            file = folder / f"sentinel-{port}.conf"
            file.write_text(
                f"sentinel monitor main {self.address} {self._master.port} 2\n"
                f"sentinel down-after-milliseconds main {LOST_AFTER}\n"
                "sentinel failover-timeout main 4000\n"
            )
            self.serve(port=port, config=file)
        places = ",".join(f"{self.address}:{guard.port}" for guard in self._guards)
        self.url = f"redis+sentinel://{places}/main"
        self.faults = {
            PROMOTED[0]: self._kill,
            PROMOTED[1]: self._freeze,
            PROMOTED[2]: self._hand_over,
            "a Sentinel freezes": lambda: self.freeze(self._random.choice(self._guards)),
        }

    async def ready(self) -> None:
        for guard in self._guards:
            await until(lambda one=guard: self._knows_all(one))
        await self._replicates(self._replica)

    def _knows_all(self, guard: StoreServer) -> bool:
        found = guard.ask("INFO", "sentinel")["master0"]
        return bool((found["slaves"], found["sentinels"]) == (1, 3))

    async def _replicates(self, server: StoreServer) -> None:
        await until(lambda: server.ask("INFO", "replication").get("master_link_status") == "up")

    def masters(self) -> Sequence[StoreServer]:
        return [self._master]

    async def _kill(self) -> None:
        old = self._master
        old.kill()
        await self._promoted()
        old.forget()
        await asyncio.to_thread(old.start)
        await self._follows(old)

    async def _freeze(self) -> None:
        """For so short that nobody notices, or until the other one is the master."""
        old = self._master
        old.freeze()
        await asyncio.sleep(self._random.uniform(0.2, 8))
        old.thaw()
        await asyncio.sleep(3.0)  # a replica that was chosen meanwhile is promoted
        if self._named(self._guards[0]) != old.port:
            await self._promoted()
            await self._follows(old)

    async def _hand_over(self) -> None:
        old = self._master
        self._guards[0].ask("SENTINEL", "FAILOVER", "main")
        await self._promoted()
        await self._follows(old)

    def _named(self, guard: StoreServer) -> int:
        (port,) = guard.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")[1:]
        return int(port)

    async def _promoted(self) -> None:
        """Wait until all Sentinels name the replica."""
        await until(
            lambda: (
                all(self._named(guard) == self._replica.port for guard in self._guards)
                and self._replica.ask("ROLE")[0] == "master"
            )
        )
        self._master, self._replica = self._replica, self._master

    async def _follows(self, server: StoreServer) -> None:
        """A server that comes back is told sooner than Sentinels would tell it."""
        server.ask("REPLICAOF", self.address, self._master.port)
        await self._replicates(server)
        # A Sentinel fails over to a replica only if it has heard of it not long ago.
        await asyncio.sleep(1.5)


class Sharded(Store):
    """A Redis Cluster: three masters, each with a replica."""

    def __init__(self, folder: Path, machine: Machine | None, chance: random.Random) -> None:
        super().__init__(folder, machine, chance)
        self._buses: dict[int, int] = {}
        for _ in range(6):
            port = self.port()
            self._buses[port] = free_port() if machine is None else port + 10_000
            self.serve(
                *("--cluster-enabled", "yes", "--cluster-node-timeout", str(LOST_AFTER)),
                *("--cluster-port", str(self._buses[port]), "--cluster-allow-reads-when-down"),
                *("no", "--cluster-require-full-coverage", "no"),
                port=port,
            )
        places = ",".join(f"{self.address}:{server.port}" for server in self.servers)
        self.url = f"redis+cluster://{places}"
        self.faults = {
            "a master restarts": lambda: self.restart(self._one()),
            PROMOTED[0]: self._kill,
            PROMOTED[1]: self._freeze,
            PROMOTED[2]: self._hand_over,
        }

    async def ready(self) -> None:
        masters, replicas = self.servers[:3], self.servers[3:]
        bounds = [SLOTS * n // 3 for n in range(4)]
        for n, master in enumerate(masters):
            master.ask("CLUSTER", "ADDSLOTSRANGE", bounds[n], bounds[n + 1] - 1)
            master.ask("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for other in self.servers[1:]:
            port = other.port
            masters[0].ask("CLUSTER", "MEET", self.address, port, self._buses[port])
        for server in self.servers:
            await until(lambda one=server: "cluster_known_nodes:6" in one.ask("CLUSTER", "INFO"))
        for master, replica in zip(masters, replicas, strict=True):
            replica.ask("CLUSTER", "REPLICATE", master.ask("CLUSTER", "MYID"))
        for server in self.servers:
            await until(lambda one=server: "cluster_state:ok" in one.ask("CLUSTER", "INFO"))
        await self._whole()

    def masters(self) -> Sequence[StoreServer]:
        return [server for server in self.servers if server.ask("ROLE")[0] == "master"]

    def _one(self) -> StoreServer:
        return self._random.choice(self.masters())

    def _is_whole(self) -> bool:
        roles = [server.ask("ROLE") for server in self.servers]
        replicas = [role for role in roles if role[0] != "master"]
        return len(replicas) == 3 and all(role[3] == "connected" for role in replicas)

    async def _whole(self) -> None:
        """Wait until each master has its replica."""
        await until(self._is_whole)

    def _masters_but(self, old: StoreServer) -> int:
        """The number of the other masters."""
        return sum(one is not old and one.ask("ROLE")[0] == "master" for one in self.servers)

    async def _kill(self) -> None:
        old = self._one()
        old.kill()
        await until(lambda: self._masters_but(old) == 3)
        old.forget()
        await asyncio.to_thread(old.start)
        await self._whole()

    async def _freeze(self) -> None:
        await self.freeze(self._one())
        await self._whole()

    async def _hand_over(self) -> None:
        await self._whole()
        replica = self._random.choice(
            [server for server in self.servers if server.ask("ROLE")[0] != "master"]
        )
        replica.ask("CLUSTER", "FAILOVER")
        await until(lambda: replica.ask("ROLE")[0] == "master")
        await self._whole()


async def until(true: Callable[[], Any]) -> None:
    """Wait until something is so. TimeoutError: it is not within `PROMOTED_IN`."""
    async with asyncio.timeout(PROMOTED_IN):
        while not true():
            await asyncio.sleep(0.05)


KINDS: dict[str, type[Store]] = {"redis": OneServer, "sentinel": Guarded, "cluster": Sharded}
