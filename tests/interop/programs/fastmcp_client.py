"""Calls a server with FastMCP's client and prints what it saw, as JSON.

python fastmcp_client.py MODE command args…
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from mcp import MCPError


async def main() -> dict[str, Any]:
    mode, command, *args = sys.argv[1:]
    steps: list[Any] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append([progress, total, message])

    transport = StdioTransport(command, args, keep_alive=False)
    async with Client(transport, mode=mode, timeout=20) as client:
        report: dict[str, Any] = {
            "version": client.protocol_version,
            "server": client.server_info.name if client.server_info else None,
            "tools": sorted(tool.name for tool in await client.list_tools()),
            "add": (await client.call_tool("add", {"a": 2, "b": 3})).structured_content,
        }
        person = await client.call_tool("person", {"name": "Ada", "tags": ["a"]})
        report["person"] = person.structured_content
        await client.call_tool("count", {"n": 3}, progress_handler=note)
        report["steps"] = steps
        blocks = (await client.call_tool("blocks")).content
        report["blocks"] = [block.type for block in blocks]
        try:
            await client.call_tool("fail")
        except ToolError as exc:
            report["fail"] = str(exc)
        try:
            await client.call_tool("no such tool")
        except MCPError as exc:
            report["unknown"] = exc.code
        calls = (client.call_tool("echo", {"text": f"{i}"}) for i in range(50))
        results = await asyncio.gather(*calls)
        report["many"] = sum(r.content[0].text == f"{i}" for i, r in enumerate(results))
    return report


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main())))
