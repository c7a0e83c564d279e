"""Servers of both forms of tasks that do what a test wants, over a socket in the test's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from lab.client import text_result, until
from lab.peer import LEGACY_PEER, MODERN_PEER, LinePeer, Rule, Rules, Talk

from wirespeed import TASKS

STAMP = "2026-11-22T08:00:00Z"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
OK = {"resultType": "complete"}


def new(status: str = "working", **more: Any) -> dict[str, Any]:
    """A task of the extension, in a result; it wants to be looked at at once."""
    task = {"taskId": "t1", "status": status, "createdAt": STAMP, "lastUpdatedAt": STAMP}
    return task | {"ttlMs": 60000, "pollIntervalMs": 1} | OK | more


def old(status: str = "working", **more: Any) -> dict[str, Any]:
    """A task of 2025-11-25."""
    task = {"taskId": "t1", "status": status, "createdAt": STAMP, "lastUpdatedAt": STAMP}
    return task | {"ttl": 60000, "pollInterval": 1} | more


def asks(*keys: str, **more: Any) -> dict[str, Any]:
    """A task that asks a person; the message of each question is its key."""
    requests = {
        key: {
            "method": "elicitation/create",
            "params": {"message": key, "requestedSchema": FORM},
        }
        for key in keys
    }
    return new("input_required", inputRequests=requests, **more)


CREATED = new(resultType="task")
DONE = new("completed", result=text_result("done") | OK)


def looks(states: Iterable[dict[str, Any]]) -> Rule:
    """A rule for tasks/get: one state after another, the last of them for ever."""
    rest = iter(states)
    last: dict[str, Any] = {}

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        nonlocal last
        last = next(rest, last)
        await talk.result(message, last)

    return look


def modern(*states: dict[str, Any], **more: Rule) -> Rules:
    """Rules of a modern server whose calls become one task, that is seen in these states. In names
    of methods ``_`` stands for ``/``."""
    discovered = MODERN_PEER["server/discover"]
    assert isinstance(discovered, dict)
    rules: Rules = MODERN_PEER | {
        "server/discover": discovered | {"capabilities": {"tools": {}, "extensions": {TASKS: {}}}},
        "tools/call": CREATED,
        "tasks/get": looks(states),
        "tasks/update": OK,
        "tasks/cancel": OK,
        "subscriptions/listen": (-32601, "no"),
    }
    return rules | {name.replace("_", "/"): rule for name, rule in more.items()}


def legacy(**more: Rule) -> Rules:
    """Rules of a server of 2025-11-25 whose calls become tasks, "t1", "t2" and so on."""
    initialized = LEGACY_PEER["initialize"]
    assert isinstance(initialized, dict)
    capabilities = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
    made = 0

    async def call(talk: Talk, message: dict[str, Any]) -> None:
        nonlocal made
        made += 1
        await talk.result(message, {"task": old(taskId=f"t{made}")})

    rules: Rules = LEGACY_PEER | {
        "initialize": initialized | {"capabilities": capabilities},
        "tools/call": call,
        "tasks/get": old(),
        "tasks/result": text_result("done"),
    }
    return rules | {name.replace("_", "/"): rule for name, rule in more.items()}


class Person:
    """Answers each question when it is let to, and notes what became of it."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.may: dict[str, asyncio.Event] = {}

    async def __call__(self, request: Any) -> Any:
        self.begun.append(request.message)
        try:
            await self.may.setdefault(request.message, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.message)
            raise
        return {"name": request.message}

    def let(self, key: str) -> None:
        self.may.setdefault(key, asyncio.Event()).set()


async def cancelled(peer: LinePeer, task_id: str = "t1") -> None:
    """Wait until the client has cancelled its task."""
    await until(lambda: peer.sent("tasks/cancel"))
    [message] = peer.sent("tasks/cancel")
    assert message["params"]["taskId"] == task_id
