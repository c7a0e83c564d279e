"""Messages about tasks of 2025-11-25."""

from __future__ import annotations

from typing import Any

from lab.raw import call, request
from lab.server import Peer


def as_task(id: Any, tool: str, arguments: Any = None, ttl: Any = None, **meta: Any) -> Any:
    message = call(id, tool, arguments, **meta)
    message["params"]["task"] = {} if ttl is None else {"ttl": ttl}
    return message


def get(id: Any, task: str, method: str = "tasks/get") -> Any:
    return request(id, method, {"taskId": task})


def start(peer: Peer, tool: str, arguments: Any = None, **options: Any) -> str:
    """Start a task; its id."""
    peer.send(as_task("start", tool, arguments, **options))
    task_id: str = peer.until("start")[-1]["result"]["task"]["taskId"]
    return task_id


def answer(peer: Peer, message: Any) -> Any:
    """The answer to a request, whatever is told before it."""
    peer.send(message)
    return peer.until(message["id"])[-1]
