"""The tasks extension of 2026-07-28 on FastMCP with fastmcp-tasks: what `test_tasks.py` describes.

python fastmcp_tasks_server.py
"""

import asyncio
from datetime import timedelta
from typing import Any

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension

server = FastMCP("tasks")
server.add_extension(TasksExtension())
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
config = TaskConfig(mode="required", poll_interval=timedelta(milliseconds=20))


@server.tool(output_schema=None, task=config)
async def slow() -> str:
    await asyncio.sleep(0.05)
    return "done"


@server.tool(output_schema=None, task=config)
async def endless() -> str:
    await asyncio.sleep(30)
    return "done"


@server.tool(output_schema=None, task=config)
async def ask(ctx: Context) -> Any:
    answer = (ctx.input_responses or {}).get("name")
    if answer is None:
        params = types.ElicitRequestFormParams(message="Who are you?", requested_schema=FORM)
        return types.InputRequiredResult(
            input_requests={"name": types.ElicitRequest(params=params)}
        )
    return f"{answer.action} {(answer.content or {}).get('name')}"


if __name__ == "__main__":
    server.run(show_banner=False)
