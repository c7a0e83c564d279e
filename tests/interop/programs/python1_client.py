"""Does with mcp 1's client what `ours.py` does with ours; see there for the report.

python python1_client.py JOB    (a file of JSON: sessions to hold, and where to report)
"""

import json
import sys
import traceback
import warnings
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio
import mcp.types as types
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.websocket import websocket_client

UNICODE = 'Grüße \u2028\u2029\u0085 \r\n\t"\\/ 日本語 🎉 \0\x1f\x7f'
BIG = "x日🎉\n" * (1 << 17)
# Over WebSocket its library takes messages up to 1 MiB, and it cannot be told otherwise.
LESS = "xxxxx日🎉\n" * 70_000


def dump(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(b.text for b in result.content if isinstance(b, types.TextContent))


class Session:
    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.report: dict[str, Any] = {}
        self.logs: list[Any] = []
        self.changed = anyio.Event()

    async def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append([params.level, params.data, params.logger])

    async def on_message(self, message: Any) -> None:
        if isinstance(message, types.ServerNotification):
            if isinstance(message.root, types.ToolListChangedNotification):
                self.changed.set()
        elif isinstance(message, Exception):
            self.report.setdefault("stray", []).append(repr(message))

    async def hold(self) -> None:
        if "url" in self.job:
            streams = websocket_client(self.job["url"])
        else:
            command, *args = self.job["command"]
            streams = stdio_client(StdioServerParameters(command=command, args=args))
        try:
            async with (
                streams as (source, sink),
                ClientSession(
                    source,
                    sink,
                    timedelta(seconds=20),
                    logging_callback=self.on_log,
                    message_handler=self.on_message,
                    client_info=types.Implementation(name="peer", version="1"),
                ) as self.client,
            ):
                answer = await self.client.initialize()
                self.report["version"] = answer.protocolVersion
                self.report["server_info"] = dump(answer.serverInfo)
                self.report["instructions"] = answer.instructions
                self.report["capabilities"] = dump(answer.capabilities)
                for step in self.steps():
                    name = step.__name__
                    try:
                        with anyio.fail_after(20):
                            self.report[name] = await step()
                    except Exception:
                        self.report[name] = {"failed": traceback.format_exc()[-1500:]}
                self.report["closing"] = True
        except BaseExceptionGroup as group:
            failures, rest = group.split(McpError)
            if rest is not None or failures is None:
                raise
            while isinstance(failures, BaseExceptionGroup):
                failures = failures.exceptions[0]
            self.report["connect_error"] = str(failures)

    def steps(self) -> list[Callable[[], Awaitable[Any]]]:
        return [
            self.tools,
            self.add,
            self.person,
            self.blocks,
            self.fail,
            self.unknown,
            self.bad_arguments,
            self.whoami,
            self.unicode,
            self.big,
            self.many,
            self.progress,
            self.logging,
            self.cancel,
            self.list_changed,
            self.ping,
        ]

    async def call(self, name: str, /, **arguments: Any) -> types.CallToolResult:
        return await self.client.call_tool(name, arguments)

    async def outcome(self, name: str, arguments: dict[str, Any]) -> Any:
        try:
            result = await self.client.call_tool(name, arguments)
        except McpError as exc:
            return {"code": exc.error.code, "message": exc.error.message}
        return {"is_error": result.isError, "text": text_of(result)}

    async def all_tools(self) -> list[types.Tool]:
        found: list[types.Tool] = []
        cursor = None
        while True:
            page = await self.client.list_tools(
                params=types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
            )
            found += page.tools
            cursor = page.nextCursor
            if cursor is None:
                return found

    async def tools(self) -> Any:
        return [dump(tool) for tool in await self.all_tools()]

    async def add(self) -> Any:
        result = await self.call("add", a=2, b=3)
        return {"structured": result.structuredContent, "text": text_of(result)}

    async def person(self) -> Any:
        result = await self.call("person", name="Ada", colour="green", tags=["a", "b"])
        return {"structured": result.structuredContent, "text": json.loads(text_of(result))}

    async def blocks(self) -> Any:
        return [dump(block) for block in (await self.call("blocks")).content]

    async def fail(self) -> Any:
        return await self.outcome("fail", {})

    async def unknown(self) -> Any:
        return await self.outcome("no such tool", {})

    async def bad_arguments(self) -> Any:
        return await self.outcome("add", {"a": "two", "b": 3})

    async def whoami(self) -> Any:
        return json.loads(text_of(await self.call("whoami")))

    async def unicode(self) -> Any:
        return text_of(await self.call("echo", text=UNICODE)) == UNICODE

    async def big(self) -> Any:
        text = LESS if "url" in self.job else BIG
        return text_of(await self.call("echo", text=text)) == text

    async def many(self) -> Any:
        right = 0

        async def one(i: int) -> None:
            nonlocal right
            result = await self.call("echo", text=f"text {i}", ms=i * 7 % 20)
            right += text_of(result) == f"text {i}"

        async with anyio.create_task_group() as group:
            for i in range(100):
                group.start_soon(one, i)
        return right

    async def progress(self) -> Any:
        seen: dict[int, list[Any]] = {3: [], 5: []}

        async def one(n: int) -> None:
            async def note(progress: float, total: float | None, message: str | None) -> None:
                seen[n].append([progress, total, message])

            await self.client.call_tool("count", {"n": n}, progress_callback=note)

        async with anyio.create_task_group() as group:
            for n in seen:
                group.start_soon(one, n)
        return {str(n): values for n, values in seen.items()}

    async def logging(self) -> Any:
        await self.client.set_logging_level("warning")
        await self.call("chatter")
        return self.logs

    async def cancel(self) -> Any:
        scope = anyio.CancelScope()

        async def started(*args: Any) -> None:
            scope.cancel()

        number = self.client._request_id  # the next one's; there is no public way to cancel
        with scope:
            await self.client.call_tool("wait", {"tag": "mine"}, progress_callback=started)
        await self.client.send_notification(
            types.ClientNotification(
                types.CancelledNotification(
                    params=types.CancelledNotificationParams(requestId=number, reason="enough")
                )
            )
        )
        while "mine" not in (noticed := json.loads(text_of(await self.call("noticed")))):
            await anyio.sleep(0.01)
        return noticed

    async def list_changed(self) -> Any:
        await self.call("grow", name="late")
        await self.changed.wait()
        return sorted(tool.name for tool in await self.all_tools())

    async def ping(self) -> Any:
        await self.client.send_ping()
        return "pong"


async def main() -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # of the WebSocket transport
    with open(sys.argv[1]) as file:
        job = json.load(file)
    reports = {}
    for wanted in job["sessions"]:
        session = Session(wanted)
        try:
            await session.hold()
        except Exception:
            session.report["failed"] = traceback.format_exc()[-3000:]
        reports[wanted["name"]] = session.report
    with open(job["report"], "w") as file:
        json.dump(reports, file)


if __name__ == "__main__":
    anyio.run(main)
