"""mcp 1's client goes through the `steps`.

python python1_client.py JOB    (a file of JSON: sessions to hold, and where to report)
"""

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import mcp.types as types
import steps
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.websocket import websocket_client
from steps import Json, Note, dump, text_of

# Over WebSocket its library takes messages up to 1 MiB, and it cannot be told otherwise.
LESS = "xxxxx日🎉\n" * 70_000


class Python1(steps.Peer):
    errors = McpError

    async def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.log(params)

    async def on_message(self, message: Any) -> None:
        if isinstance(message, types.ServerNotification):
            self.event(message.root.method).set()
        elif isinstance(message, Exception):
            self.stray(message)

    async def on_elicit(self, context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult.model_validate(self.elicited(dump(params)))

    def streams(self) -> Any:
        url = self.job.get("url", "")
        if url.startswith("ws"):
            self.big = LESS
            return websocket_client(url)
        if url.endswith("/sse"):
            return sse_client(url)
        if url:
            return streamable_http_client(url)
        command, *args = self.job["command"]
        return stdio_client(StdioServerParameters(command=command, args=args))

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        async with (
            self.streams() as (source, sink, *_),
            ClientSession(
                source,
                sink,
                timedelta(seconds=steps.STEP_SECONDS),
                elicitation_callback=self.on_elicit if self.is_askable else None,
                logging_callback=self.on_log,
                message_handler=self.on_message,
                client_info=types.Implementation(name="peer", version="1"),
            ) as self.client,
        ):
            self.answer = await self.client.initialize()
            yield

    def about(self) -> Json:
        return {
            "version": self.answer.protocolVersion,
            "server_info": dump(self.answer.serverInfo),
            "instructions": self.answer.instructions,
            "capabilities": dump(self.answer.capabilities),
        }

    def refusal(self, error: Any) -> Json:
        return super().refusal(error.error)

    async def call(self, name: str, arguments: Json, note: Note | None = None) -> Json:
        noted = steps.noting(note)
        found: Json = dump(await self.client.call_tool(name, arguments, progress_callback=noted))
        return found

    async def tools(self) -> list[Json]:
        found: list[Json] = []
        params = None
        while True:
            page = await self.client.list_tools(params=params)
            found += map(dump, page.tools)
            if page.nextCursor is None:
                return found
            params = types.PaginatedRequestParams(cursor=page.nextCursor)

    async def ping(self) -> None:
        await self.client.send_ping()

    async def set_level(self, level: Any) -> None:
        await self.client.set_logging_level(level)

    async def cancelled(self, arguments: Json) -> bool:
        number = self.client._request_id  # the next one's; there is no public way to cancel
        given_up = await super().cancelled(arguments)
        params = types.CancelledNotificationParams(requestId=number, reason="enough")
        notification = types.CancelledNotification(params=params)
        await self.client.send_notification(types.ClientNotification(notification))
        return given_up

    async def task(self, name: str) -> str:
        tasks = self.client.experimental
        made = await tasks.call_tool_as_task(name, {}, ttl=60000)
        async for status in tasks.poll_task(made.task.taskId):
            if status.status == "input_required":
                break  # the result brings the question
        return text_of(dump(await tasks.get_task_result(made.task.taskId, types.CallToolResult)))

    async def endless(self) -> Json:
        tasks = self.client.experimental
        its = (await tasks.call_tool_as_task("endless", {})).task.taskId
        return {
            "working": (await tasks.get_task(its)).status,
            "listed": its in [one.taskId for one in (await tasks.list_tasks()).tasks],
            "cancelled": (await tasks.cancel_task(its)).status,
        }


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # of the WebSocket transport
    steps.run(Python1)
