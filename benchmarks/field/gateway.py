"""The costs of the proxy's features: hooks, tool search, kept lists, identities of users.

python benchmarks/field/gateway.py    # writes benchmarks/results/gateway.json: three minutes

`wirespeed bench` drives proxies that differ in one feature, in turn, over HTTP with 16 connections.
Their servers are processes apart, so the processor time is that of the proxy alone.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from figures import NONE, Field, micro, ranged, table  # noqa: E402
from processes import Fault, awake, free_port, started  # noqa: E402

PROGRAMS = HERE / "programs" / "python"
RESULTS = HERE.parent / "results" / "gateway.json"
TOOLS = 1000
USER = "user-0123456789abcdef0123456789abcdef"
ADMIN = "admin-0123456789abcdef0123456789abcdef"
PLAIN_TOOL = "search_deployments_4"  # of those of `wirespeed bench-target`

ECHO = '{"text": "$text:64"}'
OTHER = '{"workspace": "$text:12"}'
META = json.dumps({"name": "echo", "arguments": {"text": "$text:64"}})
QUERY = json.dumps({"query": "$choice:delete an old invoice|labels of issues|deploy a service"})


class Case(NamedTuple):
    """A load on a proxy.

    Attributes:
        proxy: The key of the proxy.
        calls: The calls of a round.
        request: The tool and its arguments; None: lists of tools.
        legacy: Whether the client speaks 2025-11-25.
        token: The token of the client.
    """

    proxy: str
    calls: int
    request: tuple[str, str] | None
    legacy: bool = False
    token: str | None = None


CASES = {
    "call": Case("plain", 20_000, ("echo", ECHO)),
    "other tool": Case("plain", 20_000, (PLAIN_TOOL, OTHER)),
    "other tool, hooks": Case("both", 20_000, (PLAIN_TOOL, OTHER)),
    "hook before": Case("before", 10_000, ("echo", ECHO)),
    "hook before and after": Case("both", 10_000, ("echo", ECHO)),
    "service before": Case("service", 4_000, ("echo", ECHO)),
    "service before and after": Case("service both", 4_000, ("echo", ECHO)),
    "call, tool search": Case("search", 20_000, ("echo", ECHO)),
    "call by call_tool": Case("search", 20_000, ("call_tool", META)),
    "search, list kept": Case("search", 2_000, ("search_tools", QUERY), legacy=True),
    "search, list asked for": Case("search unkept", 300, ("search_tools", QUERY), legacy=True),
    "list, kept": Case("plain", 2_000, None, legacy=True),
    "list, asked for": Case("unkept", 600, None, legacy=True),
    "call of a user": Case("users", 20_000, ("echo", ECHO), token=USER),
    "value of a vault": Case("vault", 20_000, ("echo", ECHO), token=USER),
    "token by exchange": Case("exchange", 20_000, ("echo", ECHO), token=USER),
}


def proxies(target: str, side: str) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """The keys of each proxy's server, and its own."""
    shared: dict[str, Any] = {"isolation": "shared"}

    def hooked(phases: list[str], **by: str) -> dict[str, Any]:
        return {**shared, "hooks": [{"tools": ["echo"], "phases": phases, **by}]}

    def at(**keys: Any) -> dict[str, Any]:
        return {"url": target, "proxy": {**shared, **keys}}

    search = {"toolSearch": {"visible": ["echo"]}}
    both = ["before", "after"]
    users = {
        "auth": {
            "resource": "http://127.0.0.1/proxy",
            "issuers": [side],
            "introspection": {"url": f"{side}/introspect", "clientId": "p", "clientSecret": "s"},
        }
    }
    exchange = {"type": "exchange", "clientId": "p", "clientSecret": "s", "issuer": side}
    vault = {"type": "header", "credential": "gateway_hooks:key_of"}
    here = f"{side}/mcp"
    fixed = {"Authorization": "Bearer server-all"}
    return {
        "plain": (at(), {}),
        "unkept": (at(cacheLists=False), {}),
        "before": (at(**hooked(["before"], call="gateway_hooks:before")), {}),
        "both": (at(**hooked(both, call="gateway_hooks:both")), {}),
        "service": (at(**hooked(["before"], url=f"{side}/hook")), {}),
        "service both": (at(**hooked(both, url=f"{side}/hook")), {}),
        "search": (at(), search),
        "search unkept": (at(cacheLists=False), search),
        "users": ({"url": here, "headers": fixed, "proxy": shared}, users),
        "vault": ({"url": here, "proxy": {**shared, "identity": vault}}, users),
        "exchange": ({"url": here, "proxy": {**shared, "identity": exchange}}, users),
    }


class Gateways:
    """The proxies that are measured, and what stands around them."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(PROGRAMS), os.environ.get("PYTHONPATH", "")]),
            "WIRESPEED_ADMIN_TOKEN": ADMIN,
        }
        self.ports: dict[str, int] = {}
        self.admins: dict[str, int] = {}
        self.pids: dict[str, int] = {}
        port = free_port()
        target = f"tcp://127.0.0.1:{port}"
        words = ["bench-target", "--tools", str(TOOLS - 1), "--on", target]
        self._start(stack, [*self.command, *words], port)
        side = free_port()
        self._start(stack, [sys.executable, str(PROGRAMS / "gateway_side.py"), str(side)], side)
        for key, (server, own) in proxies(target, f"http://127.0.0.1:{side}").items():
            self.ports[key], self.admins[key] = free_port(), free_port()
            listen = {"listen": [f"http://127.0.0.1:{self.ports[key]}/mcp"], "watch": False}
            file = folder / f"{key.replace(' ', '-')}.json"
            file.write_text(json.dumps({"mcpServers": {"one": server}, "proxy": {**listen, **own}}))
            admin = f"http://127.0.0.1:{self.admins[key]}"
            words = ["proxy", "--config", str(file), "--admin", admin]
            self.pids[key] = self._start(stack, [*self.command, *words], self.ports[key])

    command = (sys.executable, "-m", "wirespeed")

    def _start(self, stack: ExitStack, command: list[str], port: int) -> int:
        return stack.enter_context(started(command, port, self.environment)).pid

    def url(self, key: str) -> str:
        return f"http://127.0.0.1:{self.ports[key]}/mcp"

    def hooks(self, key: str) -> dict[str, int]:
        """The counts of a proxy's hooks, as its /status has them."""
        place = f"http://127.0.0.1:{self.admins[key]}/status"
        asking = urllib.request.Request(place, headers={"Authorization": f"Bearer {ADMIN}"})
        with urllib.request.urlopen(asking) as found:
            [server] = json.load(found)["backends"]
        counts: dict[str, int] = server["hooks"]
        return counts

    def measure(self, case: Case, users: Path, scale: float) -> float:
        """Microseconds of the proxy for one request. Fault: an answer was wrong."""
        words = ["bench", "--calls", str(max(100, int(case.calls * scale))), "--connections", "16"]
        words += ["--in-flight", "1", "--pid", str(self.pids[case.proxy]), "--json", "-"]
        words += ["--era", "legacy" if case.legacy else "modern", self.url(case.proxy)]
        words += ["--users", str(users)] if case.request is None else [*case.request]
        environment = {
            **self.environment,
            **({"WIRESPEED_TOKEN": case.token} if case.token else {}),
        }
        run = subprocess.run(
            [*self.command, *words], capture_output=True, text=True, env=environment, timeout=300
        )
        if run.returncode:
            raise Fault(run.stderr.strip()[-300:])
        found = json.loads(run.stdout)
        if found["counts"]["ok"] != found["calls"]:
            raise Fault(f"{case}: {found['counts']}")
        return float(found["server"]["cpu_seconds"] / found["calls"] * 1e6)

    async def first_calls(self, key: str, names: list[str]) -> tuple[list[float], list[float]]:
        """Microseconds from opening a client to its first answer: of users who are new to the
        proxy, and of the same users again."""
        from wirespeed import Client, Http

        spans: tuple[list[float], list[float]] = [], []
        for name in names:
            for span in spans:
                began = time.perf_counter()
                async with Client(Http(self.url(key), token=f"user-{name}")) as client:
                    result = await client.call_tool("echo", {"text": name})
                    span.append((time.perf_counter() - began) * 1e6)
                    if result.text != name:
                        raise Fault(f"{key}: {result}")
        return spans


def measured(rounds: int, scale: float) -> dict[str, Any]:
    """All cases in turn, in rounds."""
    found: dict[str, list[float]] = {name: [] for name in CASES}
    firsts: dict[str, list[float]] = {}
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        stack.enter_context(awake())
        users = Path(folder) / "users.toml"
        users.write_text('[[user]]\nname = "lists"\nsteps = [{ list = "tools" }]\n')
        gateways = Gateways(stack, Path(folder))
        before = os.getloadavg()[0]
        for number in range(rounds):
            for name, case in CASES.items():
                held = gateways.hooks("both") if name == "other tool, hooks" else None
                found[name].append(gateways.measure(case, users, scale))
                print(f"{name:26} {found[name][-1]:10.2f} µs", file=sys.stderr)
                if held is not None and gateways.hooks("both") != held:
                    raise Fault("a call of another tool was held")
            for key in ("users", "vault", "exchange"):
                names = [f"u{number}-{n:04}-{'x' * 32}" for n in range(max(3, int(10 * scale)))]
                new, again = asyncio.run(gateways.first_calls(key, names))
                for what, values in (("new", new), ("again", again)):
                    firsts.setdefault(f"{key}, {what}", []).append(statistics.median(values))
        counts = {key: gateways.hooks(key) for key in ("before", "both", "service", "service both")}
    return {
        "date": datetime.date.today().isoformat(),
        "machine": machine(before),
        "rounds": rounds,
        "cpu_us": found,
        "first_us": firsts,
        "hooks": counts,
    }


def machine(load: float) -> Mapping[str, Any]:
    """The machine, and its load before and after the run."""
    name = ""
    with open("/proc/cpuinfo") as file:
        name = next((line.partition(": ")[2].strip() for line in file if "model name" in line), "")
    about = {"cpu": name or platform.machine(), "cpus": os.cpu_count()}
    about |= {"python": platform.python_version(), "system": platform.platform()}
    return about | {"load_before": load, "load_after": os.getloadavg()[0]}


# -- the page -----------------------------------------------------------------------------------

# The rows of the page: what is asked, its case, and the case without the feature.
ROWS = [
    ("call, a function as hook before it", "hook before", "call"),
    ("call, a function as hook before and after it", "hook before and after", "call"),
    ("call, a service as hook before it", "service before", "call"),
    ("call, a service as hook before and after it", "service before and after", "call"),
    ("call of another tool of a server with hooks", "other tool, hooks", "other tool"),
    ("call by the tool's own name, with a tool search", "call, tool search", "call"),
    ("call by `call_tool`", "call by call_tool", "call"),
    ("search in 1,000 tools, whose list is kept", "search, list kept", None),
    ("search in 1,000 tools, whose list is asked for", "search, list asked for", None),
    ("list of 1,000 tools that is kept", "list, kept", "list, asked for"),
    ("call of a user with a value of a vault", "value of a vault", "call of a user"),
    ("call of a user with a token by exchange", "token by exchange", "call of a user"),
]


def gateway(_field: Field) -> str:
    """The costs of the proxy's features."""
    found = json.loads(RESULTS.read_text())
    times = found["cpu_us"]
    rows = [
        [what, ranged(times[case]), NONE if base is None else ranged(times[base])]
        for what, case, base in ROWS
    ]
    return table(["request", "µs", "without the feature: µs"], rows)


def gateway_run(_field: Field) -> str:
    """First answers, and when and where features of the proxy were measured."""
    found = json.loads(RESULTS.read_text())
    about = found["machine"]
    first = {key: micro(statistics.median(values)) for key, values in found["first_us"].items()}
    return (
        "From opening a client to its first answer, a user who is new to the proxy waits "
        f"{first['users, new']} where all users have\none token at the server, "
        f"{first['vault, new']} with a value of a vault, and {first['exchange, new']} with an "
        f"exchange; the next client\nof the same user {first['users, again']}, "
        f"{first['vault, again']} and {first['exchange, again']}.\n\n"
        f"`python benchmarks/field/gateway.py` measured this on {found['date']}, in "
        f"{found['rounds']} rounds, on {about['cpu']} with {about['cpus']} processors, "
        f"beside other\nprograms: the load of a minute was {about['load_before']:.1f} before the "
        f"run and {about['load_after']:.1f} after it."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    asked.out.write_text(json.dumps(measured(asked.rounds, asked.scale), indent=1) + "\n")
    print(asked.out)
