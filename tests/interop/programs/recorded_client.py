"""mcp 2's client asks the everything server some things, and prints what it was told.

python recorded_client.py (URL | COMMAND ARGS…)
"""

import json
import sys
from typing import Any

import anyio
from mcp import Client, StdioServerParameters


async def main() -> None:
    words = sys.argv[1:]
    target: Any = words[0]
    if len(words) > 1:
        target = StdioServerParameters(command=words[0], args=words[1:])
    told: list[Any] = []
    async with Client(target) as client:
        told.append(sorted(tool.name for tool in (await client.list_tools()).tools))
        for number in range(5):
            result = await client.call_tool("echo", {"message": f"{number} ☂"})
            told.append(result.content[0].text)

        async def noted(progress: float, total: float | None, message: str | None) -> None:
            told.append([progress, total])

        await client.call_tool(
            "trigger-long-running-operation", {"duration": 0.2, "steps": 2}, progress_callback=noted
        )
        told.append((await client.call_tool("echo", {})).is_error)
        told.append((await client.get_prompt("simple-prompt")).messages[0].content.text)
        told.append(len((await client.list_resources()).resources))
    print(json.dumps(told))


anyio.run(main)
