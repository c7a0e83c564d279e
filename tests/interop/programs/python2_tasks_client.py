"""The tasks extension of 2026-07-28, written on mcp 2's interface for extensions: what
`test_tasks.py` describes.

python python2_tasks_client.py command args…    (prints a report as JSON)
"""

import json
import sys
from typing import Any, Literal

import anyio
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import ClientExtension, ResultClaim
from mcp.client.stdio import stdio_client
from pydantic import ConfigDict


class Task(types.Result):
    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class TaskRequest(types.Request[dict[str, Any], str]):
    method: str
    params: dict[str, Any]


class Open(types.Result):
    model_config = ConfigDict(extra="allow")


async def send(session: Any, method: str, task_id: str, **more: Any) -> dict[str, Any]:
    request = TaskRequest(method=method, params={"taskId": task_id, **more})
    result: dict[str, Any] = (await session.send_request(request, Open)).model_dump(by_alias=True)
    return result


async def follow(task: Task, context: Any) -> types.CallToolResult:
    while True:
        state = await send(context.session, "tasks/get", task.task_id)
        if state["status"] == "completed":
            return types.CallToolResult.model_validate(state["result"])
        if state["status"] == "input_required":
            answers = {
                key: {"action": "accept", "content": {"name": "Ada"}}
                for key in state["inputRequests"]
            }
            await send(context.session, "tasks/update", task.task_id, inputResponses=answers)
        await anyio.sleep(0.02)


class Tasks(ClientExtension):
    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Task, resolve=follow)]


async def elicit(context: Any, params: Any) -> types.ElicitResult:
    raise NotImplementedError  # declares that it can be asked; `follow` answers


async def main() -> dict[str, Any]:
    command = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    report: dict[str, Any] = {}
    async with Client(
        stdio_client(command), elicitation_callback=elicit, extensions=[Tasks()]
    ) as client:
        for name in ("slow", "ask"):
            report[name] = (await client.call_tool(name, {})).content[0].text
        session = client.session
        endless = await session.call_tool("endless", {}, allow_claimed=True)
        task_id = endless.task_id
        report["working"] = (await send(session, "tasks/get", task_id))["status"]
        await send(session, "tasks/cancel", task_id)
        with anyio.fail_after(10):
            while (state := await send(session, "tasks/get", task_id))["status"] == "working":
                await anyio.sleep(0.02)
        report["cancelled"] = state["status"]
        try:
            await send(session, "tasks/get", "nobody's")
        except MCPError as exc:
            report["unknown"] = exc.error.code
    return report


if __name__ == "__main__":
    print(json.dumps(anyio.run(main)))
