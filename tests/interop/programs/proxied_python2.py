"""mcp 2's client uses the servers behind one proxy, and prints what it saw.

python proxied_python2.py URL MODE FOLDER
"""

import asyncio
import json
import sys
from typing import Any

from mcp import Client


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


async def main(url: str, mode: str, folder: str) -> None:
    steps: list[float] = []

    async def noted(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    async with Client(url, mode=mode) as client:
        calls = {
            "time_get_current_time": {"timezone": "UTC"},
            "everything_echo": {"message": "hi"},
            "files_list_directory": {"path": folder},
        }
        answers = {
            name: text_of(await client.call_tool(name, given)) for name, given in calls.items()
        }
        work = "everything_trigger-long-running-operation"
        await client.call_tool(work, {"duration": 0.4, "steps": 2}, progress_callback=noted)
        resources = (await client.list_resources()).resources
        read = await client.read_resource(str(resources[0].uri))
        prompt = await client.get_prompt("everything_simple-prompt")
        report = {
            "version": client.protocol_version,
            "tools": [tool.name for tool in (await client.list_tools()).tools],
            "answers": answers,
            "steps": steps,
            "read": len(read.contents),
            "prompts": [one.name for one in (await client.list_prompts()).prompts],
            "prompt": len(prompt.messages),
        }
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
