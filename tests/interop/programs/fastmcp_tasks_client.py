"""The tasks extension of 2026-07-28 with FastMCP's client and fastmcp-tasks: what `test_tasks.py`
describes.

python fastmcp_tasks_client.py command args…    (prints a report as JSON)
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import ToolTask, call_tool_task
from mcp import MCPError


async def elicit(message: str, kind: Any, params: Any, context: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Ada"})


async def main() -> dict[str, Any]:
    report: dict[str, Any] = {}
    transport = StdioTransport(sys.argv[1], sys.argv[2:], keep_alive=False)
    async with Client(transport, elicitation_handler=elicit) as client:
        report["slow"] = (await client.call_tool("slow")).content[0].text
        report["ask"] = (await (await call_tool_task(client, "ask")).result()).content[0].text
        endless = await call_tool_task(client, "endless")
        report["working"] = (await endless.status()).status
        await endless.cancel()
        report["cancelled"] = (await endless.wait(timeout=10)).status
        lost = endless.create_result.model_copy(update={"task_id": "nobody's"})
        try:
            await ToolTask(client, "endless", lost).status()
        except MCPError as exc:
            report["unknown"] = exc.error.code
    return report


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main())))
