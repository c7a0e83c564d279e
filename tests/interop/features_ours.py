"""Goes through the features with our client; `features.py` says what each step is to see.

The *_features_client programs do the same with other clients.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from wirespeed import Client, Server, Stdio
from wirespeed.client.answering.types import Accept, SampleResult
from wirespeed.client.results.features import PromptRef, ResourceRef
from wirespeed.client.results.tools import LogMessage
from wirespeed.client.subscriptions.events import ResourceUpdated
from wirespeed.client.tasks.calls import TASKS
from wirespeed.errors import RemoteError
from wirespeed.protocol.asking import Root, ToolUseContent
from wirespeed.protocol.results import CallToolResult

STEP_SECONDS = 10.0


def plain(value: Any) -> Any:
    """A struct as its members on the wire, without those that are not there."""
    found = msgspec.to_builtins(value)
    return {k: v for k, v in found.items() if v is not None}


class Refused(Exception):
    """The tool could not ask what it wanted to."""


class Session:
    """One connection of our client to a server: a command that launches it, or the server."""

    def __init__(self, target: list[str] | Server, era: str) -> None:
        self.report: dict[str, Any] = {}
        self.logs: list[Any] = []
        self.asked: dict[str, Any] = {}
        self.told: dict[str, asyncio.Event] = {}
        self.modern = False
        self.client = Client(
            target
            if isinstance(target, Server)
            else Stdio(target[0], target[1:], stderr=self._on_stderr),
            era=era,  # type: ignore[arg-type]
            name="peer",
            version="1",
            timeout=STEP_SECONDS,
            log_level="warning",
            on_log=self._on_log,
            on_tools_changed=lambda tools: self._changed("tools", tools),
            on_prompts_changed=lambda prompts: self._changed("prompts", prompts),
            on_resources_changed=lambda resources: self._changed("resources", resources),
            on_resource_updated=lambda uri: self.event(f"updated {uri}").set(),
            on_elicit=self._on_elicit,
            on_elicit_url=self._on_elicit,
            on_sample=self._on_sample,
            sampling_tools=True,
            roots=[Root(uri="file:///work", name="work")],
            extensions=[TASKS],
        )

    # -- what the server asks and tells ----------------------------------------------------------

    def _on_stderr(self, line: str) -> None:
        self.report.setdefault("spy_said", []).append(line)

    def _on_log(self, entry: LogMessage) -> None:
        self.logs.append([entry.level, entry.data, entry.logger])

    def event(self, name: str) -> asyncio.Event:
        return self.told.setdefault(name, asyncio.Event())

    def _changed(self, kind: str, entries: list[Any]) -> None:
        if any(entry.name == "late" for entry in entries):
            self.event(kind).set()

    async def _on_elicit(self, request: Any) -> Any:
        self.asked["elicitation"] = request
        return Accept() if request.mode == "url" else {"name": "Ada", "age": 36}

    async def _on_sample(self, request: Any) -> Any:
        self.asked["sampling"] = request
        if request.tools:
            use = ToolUseContent(id="u-1", name="look_up", input={"q": 1})
            return SampleResult(content=[use], model="m-1", stop_reason="toolUse")
        return SampleResult(content="Paris", model="m-1")

    # -- the session -----------------------------------------------------------------------------

    async def hold(self, features: list[str]) -> dict[str, Any]:
        report = self.report
        async with self.client:
            report["version"] = self.client.protocol_version
            self.modern = self.client.protocol_version > "2026"
            absent = json.loads((await self.call("absent")).text)
            for name in features:
                if name in absent:
                    report[name] = {"absent": absent[name]}
                    continue
                step: Callable[[], Awaitable[Any]] = getattr(self, name)
                try:
                    async with asyncio.timeout(STEP_SECONDS):
                        report[name] = await step()
                except Refused as exc:
                    report[name] = {"refused": str(exc)}
                except RemoteError as exc:
                    report[name] = {"code": exc.code, "message": exc.message}
                except Exception:
                    report[name] = {"failed": traceback.format_exc()[-1500:]}
            report["closing"] = True
        return report

    async def call(self, name: str, /, **arguments: Any) -> CallToolResult:
        return await self.client.call_tool(name, arguments)

    async def said(self, name: str, /, **arguments: Any) -> Any:
        result = await self.call(name, **arguments)
        if result.is_error:
            raise Refused(result.text)
        return json.loads(result.text)

    # -- steps -----------------------------------------------------------------------------------

    async def instructions(self) -> Any:
        return self.client.instructions

    async def ping(self) -> Any:
        await self.client.ping()
        return "pong"

    async def adder(self) -> Any:
        return next(tool for tool in await self.client.list_tools() if tool.name == "add")

    async def tools(self) -> Any:
        tool = await self.adder()
        return [tool.name, tool.description, sorted(tool.input_schema["properties"])]

    async def structured(self) -> Any:
        schema = (await self.adder()).output_schema
        kind = None if schema is None else schema["properties"]["result"]["type"]
        result = await self.call("add", a=2, b=3)
        return [kind, result.structured_content, result.text]

    async def tool_error(self) -> Any:
        result = await self.call("fail")
        return [result.is_error, "boom" in result.text]

    async def titles(self) -> Any:
        return [
            (await self.adder()).title,
            next(p.title for p in await self.client.list_prompts() if p.name == "greet"),
            next(r.title for r in await self.client.list_resources() if r.name == "hello"),
        ]

    async def annotations(self) -> Any:
        return (await self.adder()).annotations

    async def icons(self) -> Any:
        return (await self.adder()).icons

    async def meta_of_things(self) -> Any:
        return ((await self.adder()).meta or {}).get("example.com/kind")

    async def meta_of_requests(self) -> Any:
        result = await self.client.call_tool("meta", {}, meta={"example.com/trace": "t-1"})
        return [result.text, (result.meta or {}).get("example.com/answer")]

    async def resources(self) -> Any:
        found = await self.client.list_resources()
        return sorted([r.uri, r.name, r.mime_type] for r in found if r.name != "late")

    async def contents(self, uri: str) -> Any:
        found = [plain(one) for one in (await self.client.read_resource(uri)).contents]
        return [{k: v for k, v in one.items() if k != "_meta"} for one in found]

    async def read_text(self) -> Any:
        return await self.contents("text://hello")

    async def read_blob(self) -> Any:
        return await self.contents("blob://bytes")

    async def templates(self) -> Any:
        found = await self.client.list_resource_templates()
        return [[t.uri_template, t.name, t.mime_type] for t in found]

    async def read_template(self) -> Any:
        result = await self.client.read_template("item://{id}", id=7)
        found = [plain(one) for one in result.contents]
        return [{k: v for k, v in one.items() if k != "_meta"} for one in found]

    async def missing_resource(self) -> Any:
        try:
            await self.client.read_resource("text://missing")
        except RemoteError as exc:
            return exc.code
        return "found"

    async def prompts(self) -> Any:
        prompt = next(p for p in await self.client.list_prompts() if p.name == "greet")
        arguments = [[a.name, a.required] for a in prompt.arguments]
        return [prompt.name, prompt.description, arguments]

    async def get_prompt(self) -> Any:
        result = await self.client.get_prompt("greet", {"name": "Ada", "tone": "cold"})
        return [[m.role, m.text] for m in result.messages]

    async def complete_prompt(self) -> Any:
        return (await self.client.complete(PromptRef("greet"), "name", "A")).values

    async def complete_template(self) -> Any:
        return (await self.client.complete(ResourceRef("item://{id}"), "id", "1")).values

    async def complete_context(self) -> Any:
        ref = PromptRef("greet")
        return (await self.client.complete(ref, "tone", "c", context={"name": "Ada"})).values

    async def logging(self) -> Any:
        await self.call("chatter")  # the level was given to the client
        return self.logs

    async def progress(self) -> Any:
        seen: list[Any] = []
        await self.client.call_tool(
            "count", {"n": 3}, on_progress=lambda *values: seen.append(list(values))
        )
        return seen

    async def cancellation(self) -> Any:
        call: asyncio.Task[Any]

        async def wait() -> None:
            await self.client.call_tool("wait", {}, on_progress=lambda *values: call.cancel())

        call = asyncio.create_task(wait())
        await asyncio.wait([call])
        if not call.cancelled():
            return "answered"
        while "wait" not in (noticed := json.loads((await self.call("noticed")).text)):
            await asyncio.sleep(0.01)
        return noticed

    async def pagination(self) -> Any:
        first = await self.client.list_tools_page()
        names = [tool.name for tool in await self.client.list_tools()]
        return [first.next_cursor is not None, len(names) > len(first.tools), "add" in names]

    async def changed(self, kind: str) -> Any:
        await self.call("grow", kind=kind)
        await self.event(kind).wait()
        return True

    async def tools_changed(self) -> Any:
        return await self.changed("tools")

    async def prompts_changed(self) -> Any:
        return await self.changed("prompts")

    async def resources_changed(self) -> Any:
        return await self.changed("resources")

    async def resource_updated(self) -> Any:
        uri = "text://hello"
        if self.modern:
            async with self.client.subscribe(uris=[uri]) as events:
                await self.call("touch", uri=uri)
                async for event in events:
                    assert event == ResourceUpdated(uri)
                    return event.uri
        await self.client.subscribe_resource(uri)
        await self.call("touch", uri=uri)
        await self.event(f"updated {uri}").wait()
        await self.client.unsubscribe_resource(uri)
        return uri

    async def elicitation_form(self) -> Any:
        answer = await self.said("ask_form")
        asked = self.asked["elicitation"]
        return [asked.message, sorted(asked.schema["properties"]), answer]

    async def elicitation_url(self) -> Any:
        answer = await self.said("ask_url")
        asked = self.asked["elicitation"]
        return [asked.message, asked.url, answer]

    async def sampling(self) -> Any:
        answer = await self.said("ask_sample")
        asked = self.asked["sampling"]
        content = asked.messages[0].content
        block = content[0] if isinstance(content, list) else content
        return [block.text, asked.max_tokens, answer]

    async def sampling_tools(self) -> Any:
        answer = await self.said("ask_sample_tools")
        return [[tool["name"] for tool in self.asked["sampling"].tools], answer]

    async def roots(self) -> Any:
        return await self.said("ask_roots")

    async def tasks(self) -> Any:
        task = await self.client.start_tool("slow", {})
        assert task.id is not None
        return (await task.result(timeout=STEP_SECONDS)).text
