"""Goes through every feature with our client and reports what it saw.

The *_client programs do the same with other clients, so one set of checks (`checks.py`) reads all
reports. A report is a dictionary:

    version, server_info, instructions, capabilities    what the handshake gave
    connect_error                                       instead of all else, when it failed
    tools, add, person, blocks, fail, unknown, …        what each step saw, or {"failed": why}
    closing                                             all steps were gone through
    stray                                               errors that belong to no call

A step that hangs is ended after 20 s and has failed.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from wirespeed import Client, Stdio, WebSocket
from wirespeed.client import CallToolResult, LogMessage, ToolInfo
from wirespeed.errors import RemoteError, WirespeedError

UNICODE = 'Grüße \u2028\u2029\u0085 \r\n\t"\\/ 日本語 🎉 \0\x1f\x7f'
BIG = "x日🎉\n" * (1 << 17)
STEP_SECONDS = 20.0


class Session:
    """One connection of our client to a server: a command that launches it, or where it is."""

    def __init__(self, target: list[str] | WebSocket, era: str) -> None:
        self.report: dict[str, Any] = {}
        self.logs: list[Any] = []
        self.changed = asyncio.Event()
        self.names: list[str] = []
        self.client = Client(
            Stdio(target[0], target[1:], stderr=self._on_stderr)
            if isinstance(target, list)
            else target,
            era=era,  # type: ignore[arg-type]
            name="peer",
            version="1",
            timeout=STEP_SECONDS,
            log_level="warning",
            on_log=self._on_log,
            on_tools_changed=self._on_tools,
        )

    def _on_stderr(self, line: str) -> None:
        self.report.setdefault("spy_said", []).append(line)

    def _on_log(self, entry: LogMessage) -> None:
        self.logs.append([entry.level, entry.data, entry.logger])

    def _on_tools(self, tools: list[ToolInfo]) -> None:
        self.names = sorted(tool.name for tool in tools)
        self.changed.set()

    async def hold(self) -> dict[str, Any]:
        report = self.report
        try:
            await self.client.open()
        except WirespeedError as exc:
            report["connect_error"] = f"{type(exc).__name__}: {exc}"
            return report
        try:
            report["version"] = self.client.protocol_version
            report["server_info"] = self.client.server_info
            report["instructions"] = self.client.instructions
            report["capabilities"] = self.client.server_capabilities
            for step in self.steps():
                try:
                    async with asyncio.timeout(STEP_SECONDS):
                        report[step.__name__] = await step()
                except Exception:
                    report[step.__name__] = {"failed": traceback.format_exc()[-1500:]}
            report["closing"] = True
        finally:
            await self.client.close()
        return report

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
            self.asked,
        ]

    async def call(self, name: str, /, **arguments: Any) -> CallToolResult:
        return await self.client.call_tool(name, arguments)

    async def outcome(self, name: str, arguments: dict[str, Any]) -> Any:
        try:
            result = await self.client.call_tool(name, arguments)
        except RemoteError as exc:
            return {"code": exc.code, "message": exc.message}
        return {"is_error": result.is_error, "text": result.text}

    async def tools(self) -> Any:
        tools = [msgspec.to_builtins(tool) for tool in await self.client.list_tools()]
        return [{k: v for k, v in tool.items() if v is not None} for tool in tools]

    async def add(self) -> Any:
        result = await self.call("add", a=2, b=3)
        return {"structured": result.structured_content, "text": result.text}

    async def person(self) -> Any:
        result = await self.call("person", name="Ada", colour="green", tags=["a", "b"])
        return {"structured": result.structured_content, "text": json.loads(result.text)}

    async def blocks(self) -> Any:
        return [msgspec.to_builtins(block) for block in (await self.call("blocks")).content]

    async def fail(self) -> Any:
        return await self.outcome("fail", {})

    async def unknown(self) -> Any:
        return await self.outcome("no such tool", {})

    async def bad_arguments(self) -> Any:
        return await self.outcome("add", {"a": "two", "b": 3})

    async def whoami(self) -> Any:
        return json.loads((await self.call("whoami")).text)

    async def unicode(self) -> Any:
        return (await self.call("echo", text=UNICODE)).text == UNICODE

    async def big(self) -> Any:
        return (await self.call("echo", text=BIG)).text == BIG

    async def many(self) -> Any:
        calls = (self.call("echo", text=f"text {i}", ms=i * 7 % 20) for i in range(100))
        results = await asyncio.gather(*calls)
        return sum(result.text == f"text {i}" for i, result in enumerate(results))

    async def progress(self) -> Any:
        seen: dict[int, list[Any]] = {3: [], 5: []}

        async def one(n: int) -> None:
            await self.client.call_tool(
                "count", {"n": n}, on_progress=lambda *values: seen[n].append(list(values))
            )

        await asyncio.gather(*map(one, seen))
        return {str(n): values for n, values in seen.items()}

    async def logging(self) -> Any:
        await self.call("chatter")  # the level was given to the client
        return self.logs

    async def cancel(self) -> Any:
        call: asyncio.Task[Any]

        async def wait() -> None:
            await self.client.call_tool(
                "wait", {"tag": "mine"}, on_progress=lambda *values: call.cancel()
            )

        call = asyncio.create_task(wait())
        await asyncio.wait([call])
        if not call.cancelled():
            return "answered"
        while "mine" not in (noticed := json.loads((await self.call("noticed")).text)):
            await asyncio.sleep(0.01)
        return noticed

    async def list_changed(self) -> Any:
        await self.call("grow", name="late")
        await self.changed.wait()
        return self.names

    async def ping(self) -> Any:
        if self.client.protocol_version > "2026":
            return None
        await self.client.ping()
        return "pong"

    async def asked(self) -> Any:
        if self.client.protocol_version > "2026":
            return None  # a modern server asks nothing
        return (await self.call("ask")).text
