"""What tests of the client share: servers that follow a script, and what they were sent."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from wirespeed import Client
from wirespeed.client.timeouts import Delays
from wirespeed.transport.backoff import Backoff
from wirespeed.transport.child.command import Stdio

CHILDREN = Path(__file__).resolve().parents[1] / "children"
# For waits that end at once unless something is broken.
FOREVER = 20.0

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Rules = dict[str, list[list[Any]]]

META = "io.modelcontextprotocol/"
UNKNOWN: list[list[Any]] = [["error", {"code": -32601, "message": "Method not found"}]]
TOOLS = {"tools": {"listChanged": True}, "logging": {}}
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}


def fill(template: str, *values: str) -> str:
    """A text with each ``%s`` replaced: JSON has too many braces for the others."""
    for value in values:
        template = template.replace("%s", value, 1)
    return template


def text_result(text: str = "ok") -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def initialized(version: str = "2025-11-25", **more: Any) -> list[list[Any]]:
    info = {"name": "fake", "version": "1"}
    result = {"protocolVersion": version, "capabilities": TOOLS, "serverInfo": info, **more}
    return [["result", result]]


def discovered(*versions: str, **more: Any) -> list[list[Any]]:
    meta = {META + "serverInfo": {"name": "fake", "version": "2"}}
    result = {
        "resultType": "complete",
        "supportedVersions": list(versions or ["2026-07-28"]),
        "capabilities": TOOLS,
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": meta,
        **more,
    }
    return [["result", result]]


def failed(code: int, message: str = "no", data: Any = None) -> list[list[Any]]:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return [["error", error]]


LEGACY: Rules = {
    "server/discover": UNKNOWN,
    "initialize": initialized(),
    "tools/call": [["result", text_result()]],
    "tools/list": [["result", {"tools": [TOOL]}]],
    "ping": [["result", {}]],
    "logging/setLevel": [["result", {}]],
}
MODERN: Rules = {
    "server/discover": discovered(),
    "initialize": failed(-32022, "no", {"supported": ["2026-07-28"], "requested": "2025-11-25"}),
    "tools/call": [["result", text_result() | {"resultType": "complete"}]],
    "tools/list": [["result", {"tools": [TOOL], "resultType": "complete"}]],
}


_HASTY = Delays(
    first_reconnect=0.001,
    reconnects=Backoff(0.002, 30.0, jitter=True),
    restarts=Backoff(0.001, 30.0),
    rounds=Backoff(0.001, 0.002, jitter=True),
    listens=Backoff(0.001, 0.002, jitter=True),
    fetches=Backoff(0.001, 30.0),
)


def hasty_client(**others: Any) -> type[Client]:
    """Return the class of clients that try again almost at once. ``others``: other delays."""

    class HastyClient(Client):
        _delays = _HASTY._replace(**others)

    return HastyClient


HastyClient = hasty_client()


class Fake:
    """A scripted server and its log. Each start follows the rules of one life."""

    def __init__(self, folder: Path, *lives: Rules, **options: Any) -> None:
        number = len(list(folder.glob("script*.json")))
        script = folder / f"script{number}.json"
        self.log = folder / f"log{number}.jsonl"
        script.write_text(json.dumps({"lives": lives}), encoding="utf-8")
        options.setdefault("stderr", "discard")
        args = ["-I", "-S", str(CHILDREN / "scripted.py"), str(script), str(self.log)]
        self.target = Stdio(sys.executable, args, **options)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Everything that was logged, whole lines only, batches taken apart."""
        if not self.log.exists():
            return []
        text = self.log.read_bytes()
        lines = [json.loads(line) for line in text[: text.rfind(b"\n") + 1].split(b"\n")[:-1]]
        return [one for line in lines for one in (line if isinstance(line, list) else [line])]

    @property
    def pids(self) -> list[int]:
        """Of each start so far."""
        return [line["start"] for line in self.lines if "start" in line]

    @property
    def methods(self) -> list[str]:
        """What it was sent, in order; "" for responses."""
        return [line.get("method", "") for line in self.lines if "start" not in line]

    def sent(self, method: str) -> list[dict[str, Any]]:
        """The messages of one method."""
        return [line for line in self.lines if line.get("method") == method]

    async def got(self, method: str, n: int = 1) -> list[dict[str, Any]]:
        """Wait until it was sent n messages of a method."""
        await until(lambda: len(self.sent(method)) >= n)
        return self.sent(method)


async def until(condition: Callable[[], Any]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(FOREVER):
        while not condition():
            await asyncio.sleep(0.005)


async def turns(n: int = 5) -> None:
    """Let the loop go round."""
    for _ in range(n):
        await asyncio.sleep(0)


def alive(pid: int) -> bool:
    """Whether there is such a process; a zombie is one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def our_threads() -> list[str]:
    """Those that must not outlive a client; servers' workers stay for the next."""
    names = [thread.name for thread in threading.enumerate()]
    return [n for n in names if n.startswith("wirespeed") and "worker" not in n]


def open_fds() -> int:
    return len(os.listdir("/dev/fd"))
