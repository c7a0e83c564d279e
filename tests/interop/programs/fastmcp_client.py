"""FastMCP's client goes through the `steps`.

python fastmcp_client.py JOB    (a file of JSON: sessions to hold, and where to report)
"""

from typing import Any

import mcp_types as types
import steps
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import ToolTask, call_tool_task  # every client has tasks from then on
from mcp import MCPError
from python2_client import reference, sampled
from steps import Json, Note, dump, text_of

ABSENT = {"resource_updated": "no subscriptions of resources"}
ABSENT_IN_LEGACY = {"tasks": "fastmcp-tasks has those of 2026-07-28 only"}
NO_LISTEN = dict.fromkeys(
    ("tools_changed", "prompts_changed", "resources_changed"), "no subscriptions/listen"
)


class Fastmcp(steps.Peer):
    errors = MCPError
    meta: Json | None = None

    async def on_log(self, message: Any) -> None:
        self.log(message)

    async def on_message(self, message: Any) -> None:
        if not isinstance(message, Exception) and hasattr(message, "method"):
            self.event(message.method).set()

    async def on_elicit(self, message: str, kind: Any, params: Any, context: Any) -> Any:
        answer = self.elicited(dump(params))
        return answer.get("content") or ElicitResult(**answer)

    async def on_sample(self, messages: Any, params: Any, context: Any) -> Any:
        return sampled(self.sampled(dump(params)))

    async def on_roots(self, context: Any) -> list[types.Root]:
        return [types.Root(uri="file:///work", name="work")]

    def connected(self) -> Client[Any]:
        tools = types.SamplingToolsCapability()
        more: Json = {
            "elicitation_handler": self.on_elicit,
            "sampling_handler": self.on_sample,
            "sampling_capabilities": types.SamplingCapability(tools=tools),
            "roots": self.on_roots,
        }
        self.client = Client(
            self.target(),
            mode=self.job["mode"],
            log_handler=self.on_log,
            message_handler=self.on_message,
            client_info=types.Implementation(name="peer", version="1"),
            timeout=steps.STEP_SECONDS,
            **(more if self.is_askable else {}),
        )
        return self.client

    def target(self) -> Any:
        if "url" in self.job:
            return self.job["url"]
        command, *args = self.job["command"]
        return StdioTransport(command, args, keep_alive=False)

    def about(self) -> Json:
        info = self.client.server_info
        return {
            "version": self.client.protocol_version,
            "server_info": None if info is None else dump(info),
            "instructions": self.client.instructions,
            "capabilities": dump(self.client.server_capabilities),
        }

    def absent(self) -> dict[str, str]:
        return ABSENT | (NO_LISTEN if self.modern else ABSENT_IN_LEGACY)

    async def call(
        self, name: str, arguments: Json, note: Note | None = None, meta: Json | None = None
    ) -> Json:
        noted, meta = steps.noting(note), meta or self.meta
        if meta is None:
            result: Any = await self.client.call_tool(
                name, arguments, progress_handler=noted, raise_on_error=False
            )
            found: Json = {"content": [dump(block) for block in result.content]}
            found |= {"structuredContent": result.structured_content, "isError": result.is_error}
            return found
        found = dump(await self.client.call_tool_mcp(name, arguments, noted, meta=meta))
        return found

    async def first_page(self) -> tuple[str | None, list[Any]]:
        page = await self.client.list_tools_mcp()
        return page.next_cursor, page.tools

    async def tools(self) -> list[Json]:
        return [dump(tool) for tool in await self.client.list_tools()]

    async def prompts(self) -> list[Json]:
        return [dump(prompt) for prompt in await self.client.list_prompts()]

    async def resources(self) -> list[Json]:
        return [dump(resource) for resource in await self.client.list_resources()]

    async def templates(self) -> list[Json]:
        return [dump(template) for template in await self.client.list_resource_templates()]

    async def read(self, uri: str) -> list[Json]:
        return [dump(content) for content in await self.client.read_resource(uri)]

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> Any:
        result = await self.client.get_prompt(name, arguments)
        return [[message.role, message.content.text] for message in result.messages]

    async def complete(self, of: str, name: str, value: str, known: Any) -> list[str]:
        argument = {"name": name, "value": value}
        return (await self.client.complete(reference(of), argument, known)).values

    async def ping(self) -> None:
        assert await self.client.ping()

    async def set_level(self, level: Any) -> None:
        if self.modern:
            self.meta = {"io.modelcontextprotocol/logLevel": level}
        else:
            await self.client.set_logging_level(level)

    async def changed(self, kind: str, arguments: Json) -> None:
        if not self.modern:
            return await super().changed(kind, arguments)
        await self.call("grow", arguments)  # nothing is told without subscriptions/listen

    async def tasks(self) -> str:
        return text_of(await self.call("slow", {}))  # fastmcp-tasks polls by itself

    async def task(self, name: str) -> str:
        result: Any = await (await call_tool_task(self.client, name)).result()
        return str(result.content[0].text)

    async def endless(self) -> Json:
        self.started = await call_tool_task(self.client, "endless")
        working = (await self.started.status()).status
        await self.started.cancel()
        return {"working": working, "cancelled": (await self.started.wait(timeout=10)).status}

    async def unknown_task(self) -> Any:
        lost = self.started.create_result.model_copy(update={"task_id": "nobody's"})
        return await ToolTask(self.client, "endless", lost).status()


if __name__ == "__main__":
    steps.run(Fastmcp)
