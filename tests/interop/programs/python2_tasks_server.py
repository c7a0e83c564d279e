"""The tasks extension of 2026-07-28, written on mcp 2's interface for extensions: what
`test_tasks.py` describes.

python python2_tasks_server.py
"""

import asyncio
import itertools
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer

STAMP = "2026-07-28T00:00:00Z"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTION = {
    "method": "elicitation/create",
    "params": {"message": "Who are you?", "mode": "form", "requestedSchema": FORM},
}


class TaskParams(types.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


class Tasks(Extension):
    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.shown: dict[str, dict[str, Any]] = {}
        self.work: dict[str, asyncio.Future[None]] = {}
        self.numbers = itertools.count(1)

    def methods(self) -> list[MethodBinding]:
        modern = frozenset({"2026-07-28"})
        return [
            MethodBinding("tasks/get", TaskParams, self.get, modern),
            MethodBinding("tasks/update", UpdateParams, self.update, modern),
            MethodBinding("tasks/cancel", TaskParams, self.cancel, modern),
        ]

    async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
        task = {
            "taskId": f"task-{next(self.numbers)}",
            "status": "working",
            "createdAt": STAMP,
            "lastUpdatedAt": STAMP,
            "ttlMs": 60000,
            "pollIntervalMs": 20,
        }
        self.shown[task["taskId"]] = task
        if params.name == "ask":
            task |= {"status": "input_required", "inputRequests": {"name": QUESTION}}
            return {**task, "status": "working", "resultType": "task"}

        async def work() -> None:
            await asyncio.sleep(30 if params.name == "endless" else 0.05)
            self.end(task, "done")

        self.work[task["taskId"]] = asyncio.ensure_future(work())
        return {**task, "resultType": "task"}

    def end(self, task: dict[str, Any], text: str) -> None:
        task.pop("inputRequests", None)
        content = [{"type": "text", "text": text}]
        task |= {
            "status": "completed",
            "result": {"content": content, "resultType": "complete"},
        }

    def find(self, task_id: str) -> dict[str, Any]:
        if task_id not in self.shown:
            raise MCPError(-32602, "Unknown task")
        return self.shown[task_id]

    async def get(self, ctx: Any, params: TaskParams) -> dict[str, Any]:
        return {**self.find(params.task_id), "resultType": "complete"}

    async def update(self, ctx: Any, params: UpdateParams) -> dict[str, Any]:
        answer = params.input_responses["name"]
        text = f"{answer['action']} {(answer.get('content') or {}).get('name')}"
        self.end(self.find(params.task_id), text)
        return {"resultType": "complete"}

    async def cancel(self, ctx: Any, params: TaskParams) -> dict[str, Any]:
        self.find(params.task_id)["status"] = "cancelled"
        self.work[params.task_id].cancel()
        return {"resultType": "complete"}


server: MCPServer[Any] = MCPServer("tasks", log_level="WARNING", extensions=[Tasks()])
for name in ("slow", "endless", "ask"):
    server.add_tool(lambda: None, name=name, description="A task")


if __name__ == "__main__":
    anyio.run(server.run_stdio_async)
