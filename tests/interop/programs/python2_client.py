"""mcp 2's client goes through the `steps`.

python python2_client.py JOB    (a file of JSON: sessions to hold, and where to report)
"""

from typing import Any, Literal

import anyio
import mcp_types as types
import steps
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import ClientExtension, ResultClaim
from mcp.client.sse import sse_client
from pydantic import ConfigDict
from steps import Json, Note, dump

TASKS = {
    True: "no tasks of its own; written on its interface for extensions, as a test does, they work",
    False: "no tasks of 2025-11-25",
}


def sampled(answer: Json) -> Any:
    """What the client is to return for sampling."""
    many = isinstance(answer["content"], list)
    kind = types.CreateMessageResultWithTools if many else types.CreateMessageResult
    return kind.model_validate(answer)


def reference(of: str) -> Any:
    """The reference that is completed: a resource template if it has a scheme, else a prompt."""
    if "://" in of:
        return types.ResourceTemplateReference(type="ref/resource", uri=of)
    return types.PromptReference(type="ref/prompt", name=of)


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


async def send(session: Any, method: str, task_id: str, **more: Any) -> Json:
    request = TaskRequest(method=method, params={"taskId": task_id, **more})
    result: Json = (await session.send_request(request, Open)).model_dump(by_alias=True)
    return result


class Tasks(ClientExtension):
    """The tasks of 2026-07-28, which mcp 2 has not."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, peer: steps.Peer) -> None:
        self.peer = peer

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Task, resolve=self.follow)]

    async def follow(self, task: Task, context: Any) -> types.CallToolResult:
        while True:
            state = await send(context.session, "tasks/get", task.task_id)
            if state["status"] == "completed":
                return types.CallToolResult.model_validate(state["result"])
            if state["status"] == "input_required":
                asked = state["inputRequests"].items()
                answers = {key: self.peer.elicited(one["params"]) for key, one in asked}
                await send(context.session, "tasks/update", task.task_id, inputResponses=answers)
            await anyio.sleep(0.02)


class Python2(steps.Peer):
    errors = MCPError

    async def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.log(params)

    async def on_message(self, message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self.event(f"updated {message.params.uri}").set()
        elif isinstance(message, Exception):
            self.stray(message)
        else:
            self.event(message.method).set()

    async def on_elicit(self, context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult.model_validate(self.elicited(dump(params)))

    async def on_sample(self, context: Any, params: Any) -> Any:
        return sampled(self.sampled(dump(params)))

    async def on_roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///work", name="work")])

    def connected(self) -> Client:
        tools = types.SamplingToolsCapability()
        extensions = [Tasks(self)] if "tasks" in self.job else []
        more: Json = {
            "elicitation_callback": self.on_elicit,
            "sampling_callback": self.on_sample,
            "sampling_capabilities": types.SamplingCapability(tools=tools),
            "list_roots_callback": self.on_roots,
        }
        self.client = Client(
            self.target(),
            mode=self.job["mode"],
            logging_callback=self.on_log,
            log_level="warning",
            message_handler=self.on_message,
            client_info=types.Implementation(name="peer", version="1"),
            read_timeout_seconds=steps.STEP_SECONDS,
            extensions=extensions,
            **(more if self.is_askable else {}),
        )
        return self.client

    def target(self) -> Any:
        if "url" in self.job:
            url = self.job["url"]
            return sse_client(url) if url.endswith("/sse") else url
        command, *args = self.job["command"]
        return StdioServerParameters(command=command, args=args)

    def about(self) -> Json:
        info = self.client.server_info
        return {
            "version": self.client.protocol_version,
            "server_info": None if info is None else dump(info),
            "instructions": self.client.instructions,
            "capabilities": dump(self.client.server_capabilities),
        }

    def absent(self) -> dict[str, str]:
        return {"tasks": TASKS[self.modern]}

    async def call(
        self, name: str, arguments: Json, note: Note | None = None, meta: Json | None = None
    ) -> Json:
        more = {} if meta is None else {"meta": meta}
        noted = steps.noting(note)
        result = await self.client.call_tool(name, arguments, progress_callback=noted, **more)
        found: Json = dump(result)
        return found

    async def every(self, fetch: Any, member: str) -> list[Json]:
        found: list[Json] = []
        cursor = None
        while True:
            page = await fetch(cursor=cursor, cache_mode="bypass")
            found += map(dump, getattr(page, member))
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def first_page(self) -> tuple[str | None, list[Any]]:
        page = await self.client.list_tools(cache_mode="bypass")
        return page.next_cursor, page.tools

    async def tools(self) -> list[Json]:
        return await self.every(self.client.list_tools, "tools")

    async def prompts(self) -> list[Json]:
        return await self.every(self.client.list_prompts, "prompts")

    async def resources(self) -> list[Json]:
        return await self.every(self.client.list_resources, "resources")

    async def templates(self) -> list[Json]:
        return await self.every(self.client.list_resource_templates, "resource_templates")

    async def read(self, uri: str) -> list[Json]:
        return [dump(content) for content in (await self.client.read_resource(uri)).contents]

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> Any:
        result = await self.client.get_prompt(name, arguments)
        return [[message.role, message.content.text] for message in result.messages]

    async def complete(self, of: str, name: str, value: str, known: Any) -> list[str]:
        argument = {"name": name, "value": value}
        result = await self.client.complete(reference(of), argument, known)
        return result.completion.values

    async def ping(self) -> None:
        await self.client.send_ping()

    async def set_level(self, level: Any) -> None:
        if not self.modern:
            await self.client.set_logging_level(level)

    async def changed(self, kind: str, arguments: Json) -> None:
        if not self.modern:
            return await super().changed(kind, arguments)
        async with self.client.listen(**{f"{kind}_list_changed": True}) as events:
            await self.call("grow", arguments)
            await anext(events)

    async def updated(self, uri: str) -> str:
        if self.modern:
            async with self.client.listen(resource_subscriptions=[uri]) as events:
                await self.call("touch", {"uri": uri})
                return (await anext(events)).uri
        told = self.event(f"updated {uri}")
        told.clear()
        await self.client.subscribe_resource(uri)
        await self.call("touch", {"uri": uri})
        await told.wait()
        await self.client.unsubscribe_resource(uri)
        return uri

    async def endless(self) -> Json:
        session = self.client.session
        task: Any = await session.call_tool("endless", {}, allow_claimed=True)
        working = (await send(session, "tasks/get", task.task_id))["status"]
        await send(session, "tasks/cancel", task.task_id)
        while (state := await send(session, "tasks/get", task.task_id))["status"] == "working":
            await anyio.sleep(0.02)
        return {"working": working, "cancelled": state["status"]}

    async def unknown_task(self) -> Any:
        return await send(self.client.session, "tasks/get", "nobody's")


if __name__ == "__main__":
    steps.run(Python2)
