"""Memory of a proxy after bursts of clients: it must come back.

    python benchmarks/bench_bursts.py [--rounds 3] [--seconds 15] [--clients 60] [--kill] [--reload]

A process of its own is the proxy, so that nothing of the clients counts. In each round clients come
and go over WebSocket, in both eras, ask for answers of up to 100 kB, cancel some and leave others
behind. With ``--kill`` a server is killed each half second, and with ``--reload`` the proxy reads
its file again every two seconds, in which one server has changed. Then all clients have left, and
the memory of the proxy is read after a pause. The last line tells how much the last round has added
to the first one. The exit status is 1 if that is more than 10 %.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from wirespeed import Client
from wirespeed.errors import WirespeedError

SERVER = """
import asyncio, os
from wirespeed import Context, Server

server = Server("burst")

@server.tool
async def echo(nonce: str, pause: float, size: int, ctx: Context) -> dict[str, object]:
    await ctx.progress(1, 2, nonce)
    if pause:
        await asyncio.sleep(pause)
    return {"nonce": nonce, "pid": os.getpid(), "fill": "x" * size}

server.run()
"""
MAX_ADDED = 10.0  # per cent
SETTLE = 8.0  # seconds after a round, before the memory is read
RELOADS = 2.0  # seconds between two reloads


def resident(pid: int) -> float:
    """The memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def servers_of(pid: int) -> list[int]:
    """The servers that the proxy runs: the children of its children, where these are guards."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{one}/task/{one}/children").read_text()
            found += map(int, text.split())
    return [one for one in found[1:] if b"server.py" in Path(f"/proc/{one}/cmdline").read_bytes()]


class Round:
    """What one round does."""

    def __init__(self, url: str, seconds: float, seed: int) -> None:
        self.url = url
        self.random = random.Random(seed)
        self.until = asyncio.get_running_loop().time() + seconds
        self.n_answered = 0

    @property
    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self.until

    async def client(self, n: int) -> None:
        era: Any = "legacy" if n % 3 == 0 else "modern"
        while not self.is_over:
            with contextlib.suppress(WirespeedError):
                async with Client(f"{self.url}/servers/{('one', 'two')[n % 2]}", era=era) as client:
                    for _ in range(self.random.randrange(1, 6)):
                        await asyncio.gather(*(self.ask(client, f"{n}/{k}") for k in range(8)))

    async def ask(self, client: Client, nonce: str) -> None:
        size = self.random.choice((0, 10, 1000, 100_000))
        pause = self.random.choice((0.0, 0.0, 0.01, 0.05))
        timeout = 0.005 if self.random.random() < 0.1 else 60
        with contextlib.suppress(WirespeedError):
            arguments = {"nonce": nonce, "pause": pause, "size": size}
            await client.call_tool("echo", arguments, timeout=timeout, on_progress=print_nothing)
            self.n_answered += 1

    async def killer(self, pid: int) -> None:
        while not self.is_over:
            await asyncio.sleep(0.5)
            alive = servers_of(pid)
            if alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.random.choice(alive), signal.SIGKILL)

    async def reloader(self, pid: int, folder: Path) -> None:
        while not self.is_over:
            await asyncio.sleep(RELOADS)
            write_configuration(folder, mark=str(self.random.random()))
            os.kill(pid, signal.SIGHUP)


def write_configuration(folder: Path, mark: str) -> Path:
    """Write the proxy's file. ``mark``: Another one makes another server of the second one."""
    one = {
        "command": sys.executable,
        "args": [str(folder / "server.py")],
        "proxy": {"isolation": "shared"},
    }
    two = {**one, "env": {"MARK": mark}}
    file = folder / "proxy.json"
    configuration = {
        "mcpServers": {"one": one, "two": two},
        "proxy": {"listen": ["ws://127.0.0.1:0/mcp"]},
    }
    file.write_text(json.dumps(configuration))
    return file


def print_nothing(*_: object) -> None:
    """Progress is asked for, and not looked at."""


async def run(options: argparse.Namespace, folder: Path, url: str, pid: int) -> float:
    """Return how much the last round has added to the first one, in per cent."""
    seen: list[float] = []
    print(f"at the start {resident(pid):.1f} MiB")
    for number in range(options.rounds):
        one = Round(url, options.seconds, number)
        tasks = [one.client(n) for n in range(options.clients)]
        if options.kill:
            tasks.append(one.killer(pid))
        if options.reload:
            tasks.append(one.reloader(pid, folder))
        await asyncio.gather(*tasks)
        at_once = resident(pid)
        await asyncio.sleep(SETTLE)
        seen.append(resident(pid))
        print(
            f"round {number + 1}: {one.n_answered} calls, {at_once:.1f} MiB,"
            f" {SETTLE:g} s later {seen[-1]:.1f} MiB",
            flush=True,
        )
    added = 100 * (seen[-1] / seen[0] - 1)
    print(f"the last round has added {added:.1f} %")
    return added


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--clients", type=int, default=60)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--reload", action="store_true")
    options = parser.parse_args()
    logging.getLogger("wirespeed").setLevel(logging.CRITICAL)  # of clients that reloads end
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "server.py").write_text(SERVER)
        file = write_configuration(folder, mark="")
        command = [sys.executable, "-m", "wirespeed", "proxy", "--config", str(file)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as proxy:
            assert proxy.stderr is not None
            url = ""
            for line in proxy.stderr:
                if "ws://" in line:
                    url = "ws://" + line.partition("ws://")[2].split()[0].rpartition("/mcp")[0]
                    break
            loop_end = threading_drain(proxy.stderr)
            try:
                added = asyncio.run(run(options, folder, url, proxy.pid))
            finally:
                proxy.terminate()
                proxy.wait(20)
                loop_end.join()
    return int(added > MAX_ADDED)


def threading_drain(pipe: Any) -> Any:
    """Read on, so that the proxy is not held up by its own log."""
    import threading

    thread = threading.Thread(target=lambda: [None for _ in pipe], daemon=True)
    thread.start()
    return thread


if __name__ == "__main__":
    sys.exit(main())
