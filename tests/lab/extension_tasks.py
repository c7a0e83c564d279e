"""Messages about tasks of the extension, in 2026-07-28."""

from __future__ import annotations

from typing import Any

from lab.raw import META, modern
from lab.server import Peer

TASKS = "io.modelcontextprotocol/tasks"


DECLARED = {META + "clientCapabilities": {"extensions": {TASKS: {}}}}


def ask(id: Any, method: str, params: Any = None, **meta: Any) -> Any:
    """A request of a client that has the extension."""
    return modern(id, method, params, **{**DECLARED, **meta})


def call(id: Any, tool: str, arguments: Any = None, **meta: Any) -> Any:
    return ask(id, "tools/call", {"name": tool, "arguments": arguments or {}}, **meta)


def get(id: Any, task: str, method: str = "tasks/get") -> Any:
    return ask(id, method, {"taskId": task})


def start(peer: Peer, tool: str, arguments: Any = None) -> str:
    result = peer.result(call("start", tool, arguments))
    assert result["resultType"] == "task"
    task_id: str = result["taskId"]
    return task_id


def finished(peer: Peer, task: str) -> Any:
    """The task once it is over, by asking for it again and again."""
    for _ in range(10_000):
        shown = peer.result(get("poll", task))
        if shown["status"] in ("completed", "failed", "cancelled"):
            return shown
    raise AssertionError(shown)
