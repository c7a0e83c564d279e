"""Servers of one era each that make tasks, behind a proxy that clients of the other use.

Their ids of tasks are numbers, which anybody can guess.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from lab.translation import PROGRAM, EraLab, request, tool

TASKS = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"

SERVER = (
    PROGRAM
    + """
offers = os.environ.get("OFFERS", "list cancel requests").split()
MADE = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00.5Z"}
tasks, listens, asking = {}, {}, {}

def shown(task):
    hidden = {"kind"} | (set() if modern else {"result", "error", "inputRequests", "waiting"})
    return {k: v for k, v in task.items() if k not in hidden}

def changed(task):
    if modern:
        for i, ids in listens.items():
            if task["taskId"] in ids:
                send({"method": "notifications/tasks",
                      "params": {**shown(task), "_meta": {META + "subscriptionId": i}}})
    elif task.get("kind") == "told":
        send({"method": "notifications/tasks/status", "params": shown(task)})
    if not modern and task["status"] in ("completed", "failed", "cancelled"):
        for i in task.pop("waiting", []):
            ended(i, task)

def ended(i, task):
    if "error" in task:
        send({"id": i, "error": task["error"]})
    elif "result" in task:
        related = {META + "related-task": {"taskId": task["taskId"]}}
        result = dict(task["result"])
        answer(i, **{**result, "_meta": {**result.get("_meta", {}), **related}})
    else:
        fail(i, -32000, "it was cancelled")

def declares(p):
    caps = p.get("_meta", {}).get(META + "clientCapabilities", {})
    return "io.modelcontextprotocol/tasks" in caps.get("extensions", {})

def make(i, a, **more):
    n = str(len(tasks) + 1)
    poll, ttl = ("pollIntervalMs", "ttlMs") if modern else ("pollInterval", "ttl")
    task = {"taskId": n, "status": "working", **MADE, ttl: 60000, poll: a.get("poll", 20)}
    task |= {"statusMessage": str(os.getpid())} if a.get("pid") else a.get("state", {})
    tasks[n] = task
    if modern:
        answer(i, **{**shown(task), "resultType": "task", **more})
    else:
        answer(i, task=shown(task), **more)

def call(i, p):
    name, a = p["name"], p.get("arguments") or {}
    if name == "pid":
        text(i, str(os.getpid()))
    elif name == "set":
        task = tasks[a["of"]]
        task |= a["state"]
        changed(task)
        text(i, "set")
    elif name == "question":           # of a legacy server
        related = {META + "related-task": {"taskId": a["of"]}}
        asking[a["its"]] = str(a["of"])
        send({"id": a["its"], "method": a["method"],
              "params": {**a.get("params", {}), "_meta": related}})
        text(i, "asked")
    elif name == "raw":
        send({"id": i, "result": a["result"]})
    elif name == "fail":
        send({"id": i, "error": a["error"]})
    elif name == "plain":
        text(i, json.dumps([p.get("task"), declares(p)]), **a)
    elif name == "make" and modern:
        if not declares(p):
            needed = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
            fail(i, -32021, "tasks, please", requiredCapabilities=needed)
        elif a.get("ask") and "inputResponses" not in p:
            answer(i, resultType="input_required", requestState="s",
                   inputRequests={"k": {"method": "roots/list", "params": {}}})
        else:
            make(i, a, **({"_meta": {"got": p["inputResponses"]}} if a.get("ask") else {}))
    elif name in ("make", "late"):
        if "task" not in p:
            fail(i, -32601 if name == "make" else -32600, "only as a task")
        else:
            make(i, a)
    else:
        fail(i, -32602, "Unknown tool")

def of_task(i, method, p):
    if modern and not declares(p):
        return fail(i, -32021, "tasks, please")
    task = tasks.get(p["taskId"])
    if task is not None and task.get("kind") == "silent":
        return
    if task is not None and task.get("kind") == "busy":
        return fail(i, -31000, "too much to do")
    if task is None:
        return fail(i, -32602, "Failed to retrieve task: Task not found")
    over = task["status"] in ("completed", "failed", "cancelled")
    if method == "tasks/get":
        answer(i, **(shown(task)))
    elif method == "tasks/cancel":
        if over and not modern:
            return fail(i, -32602, "over")
        if not over and task.get("kind") != "stubborn":
            task["status"] = "cancelled"
            changed(task)
        answer(i, **({} if modern else shown(task)))
    elif method == "tasks/update" and modern:
        left = {k: v for k, v in task["inputRequests"].items() if k not in p["inputResponses"]}
        task |= {"inputRequests": left, "status": "input_required" if left else "working"}
        task.setdefault("_answers", {}).update(p["inputResponses"])
        answer(i)
    elif method == "tasks/result" and not modern:
        ended(i, task) if over else task.setdefault("waiting", []).append(i)
    else:
        fail(i, -32601, "Method not found")

for line in sys.stdin:
    log.write(line)
    m = json.loads(line)
    i, method, p = m.get("id"), m.get("method"), m.get("params") or {}
    if method == "server/discover" and modern:
        answer(i, **cached(supportedVersions=["2026-07-28"],
               capabilities={"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}))
    elif method == "initialize" and not modern:
        able = {"requests": {"tools": {"call": {}}}, "list": {}, "cancel": {}}
        answer(i, protocolVersion="2025-11-25", serverInfo=INFO,
               capabilities={"tools": {}, "tasks": {k: able[k] for k in offers}})
    elif method == "initialize":
        fail(i, -32022, "modern only", supported=["2026-07-28"], requested="x")
    elif method == "tools/call":
        call(i, p)
    elif method == "tools/list":
        tools = [{"name": n, "inputSchema": {"type": "object"}} for n in ("make", "plain", "late")]
        if not modern:
            tools[0]["execution"] = tools[2]["execution"] = {"taskSupport": "required"}
            tools[1]["execution"] = {"taskSupport": "optional"}
        answer(i, **cached(tools=tools))
    elif method == "tasks/list" and not modern:
        answer(i, tasks=[shown(task) for task in tasks.values()], _meta={"kept": True})
    elif method is not None and method.startswith("tasks/"):
        of_task(i, method, p)
    elif method == "subscriptions/listen" and modern:
        if "nolisten" in offers and "taskIds" in p["notifications"]:
            fail(i, -32602, "no tasks here")
            continue
        listens[i] = p["notifications"].get("taskIds", [])
        meta = {META + "subscriptionId": i}
        send({"method": "notifications/subscriptions/acknowledged",
              "params": {"notifications": p["notifications"], "_meta": meta}})
        for task in tasks.values():
            if task["taskId"] in listens[i]:
                send({"method": "notifications/tasks", "params": {**shown(task), "_meta": meta}})
    elif method == "notifications/cancelled":
        listens.pop(p["requestId"], None)
    elif method is None and i in asking:
        task = tasks.get(asking.pop(i), {"taskId": "", "status": ""})
        task["result"] = {"content": [], "structuredContent": m.get("result", m.get("error"))}
        task["status"] = "completed"
        changed(task)
    elif i is not None:
        fail(i, -32601, "Method not found")
"""
)


class TaskLab(EraLab):
    """A proxy before a scripted server that makes tasks. ``offers``: the members of a legacy
    server's capability."""

    def __init__(
        self, folder: Path, isolation: str, *, modern: bool, offers: str = "", **options: Any
    ) -> None:
        env = {"OFFERS": offers or "list cancel requests"}
        super().__init__(folder, isolation, modern=modern, env=env, **options)
        (folder / "backend.py").write_text(SERVER)


def as_task(id: Any, name: str, ttl: Any = None, **arguments: Any) -> dict[str, Any]:
    """A call of a tool of 2025-11-25 that asks for a task."""
    called = tool(id, name, **arguments)
    called["params"]["task"] = {} if ttl is None else {"ttl": ttl}
    return called


def about(id: Any, method: str, task_id: Any, **more: Any) -> dict[str, Any]:
    """A request about a task."""
    return request(id, f"tasks/{method}", taskId=task_id, **more)


async def answer_to(client: Any, id: Any) -> tuple[Any, list[Any]]:
    """The answer to a request, and what came before."""
    before: list[Any] = []
    answers = client.__dict__.setdefault("answers", {})
    while id not in answers:
        got = await asyncio.wait_for(client.recv(), 20)
        if "id" in got and "method" not in got:
            answers[got["id"]] = got
        else:
            before.append(got)
    return answers.pop(id), before
