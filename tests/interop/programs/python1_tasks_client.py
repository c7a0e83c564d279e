"""Tasks of 2025-11-25 with mcp 1: what `test_tasks.py` describes.

python python1_tasks_client.py command args…    (prints a report as JSON)
"""

import json
import sys
from typing import Any

import anyio
import mcp.types as types
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def main() -> dict[str, Any]:
    command = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    report: dict[str, Any] = {}
    async with (
        stdio_client(command) as (source, sink),
        ClientSession(source, sink, elicitation_callback=elicit) as session,
    ):
        await session.initialize()
        tools = (await session.list_tools()).tools
        report["support"] = {
            tool.name: tool.execution.taskSupport for tool in tools if tool.execution
        }
        tasks = session.experimental

        async def run(name: str) -> str:
            made = await tasks.call_tool_as_task(name, {}, ttl=60000)
            async for status in tasks.poll_task(made.task.taskId):
                if status.status == "input_required":
                    break  # the result brings the question
            result = await tasks.get_task_result(made.task.taskId, types.CallToolResult)
            return result.content[0].text

        report["slow"] = await run("slow")
        report["ask"] = await run("ask")
        endless = (await tasks.call_tool_as_task("endless", {})).task
        report["working"] = (await tasks.get_task(endless.taskId)).status
        report["listed"] = endless.taskId in [t.taskId for t in (await tasks.list_tasks()).tasks]
        report["cancelled"] = (await tasks.cancel_task(endless.taskId)).status
    return report


if __name__ == "__main__":
    print(json.dumps(anyio.run(main)))
