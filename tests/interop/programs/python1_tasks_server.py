"""Tasks of 2025-11-25 on mcp 1: what `test_tasks.py` describes.

python python1_tasks_server.py
"""

from typing import Any

import anyio
import mcp.types as types
from mcp.server.experimental.task_context import ServerTaskContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

server: Server[Any] = Server("tasks")
server.experimental.enable_tasks()
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def text(value: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)])


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    return [
        types.Tool(
            name=name,
            inputSchema={"type": "object"},
            execution=types.ToolExecution(taskSupport=types.TASK_REQUIRED),
        )
        for name in ("slow", "endless", "ask")
    ]


@server.call_tool()
async def call_tool(name: str, arguments: dict[str, Any]) -> types.CreateTaskResult:
    async def work(task: ServerTaskContext) -> types.CallToolResult:
        if name == "endless":
            await anyio.sleep(30)
        if name == "ask":
            answer = await task.elicit(message="Who are you?", requestedSchema=FORM)
            return text(f"{answer.action} {(answer.content or {}).get('name')}")
        await anyio.sleep(0.05)
        return text("done")

    return await server.request_context.experimental.run_task(work)


async def main() -> None:
    async with stdio_server() as (source, sink):
        await server.run(source, sink, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
