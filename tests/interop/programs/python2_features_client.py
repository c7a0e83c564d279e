"""Goes through the features with mcp 2's client; `features.py` says what each step is to see.

python python2_features_client.py JOB    (a file of JSON: sessions to hold, and where to report)
"""

import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters

STEP_SECONDS = 10
TASKS = {
    True: "no tasks of its own; written on its interface for extensions, as a test does, they work",
    False: "no tasks of 2025-11-25",
}


def dump(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(b.text for b in result.content if isinstance(b, types.TextContent))


class RefusedError(Exception):
    """The tool could not ask what it wanted to."""


class Session:
    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.report: dict[str, Any] = {}
        self.logs: list[Any] = []
        self.asked: dict[str, Any] = {}
        self.told: dict[str, anyio.Event] = {}

    # -- what the server asks and tells ----------------------------------------------------------

    async def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append([params.level, params.data, params.logger])

    async def on_message(self, message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self.event(f"updated {message.params.uri}").set()
        elif isinstance(message, Exception):
            self.report.setdefault("stray", []).append(repr(message))
        else:
            self.event(message.method).set()

    def event(self, name: str) -> anyio.Event:
        return self.told.setdefault(name, anyio.Event())

    async def on_elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked["elicitation"] = dump(params)
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={"name": "Ada", "age": 36})

    async def on_sample(self, context: Any, params: Any) -> Any:
        self.asked["sampling"] = dump(params)
        if params.tools:
            use = types.ToolUseContent(type="tool_use", id="u-1", name="look_up", input={"q": 1})
            return types.CreateMessageResultWithTools(
                role="assistant", content=[use], model="m-1", stop_reason="toolUse"
            )
        content = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(
            role="assistant", content=content, model="m-1", stop_reason="endTurn"
        )

    async def on_roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///work", name="work")])

    # -- the session -----------------------------------------------------------------------------

    async def hold(self) -> None:
        command = self.job["command"]
        self.client = Client(
            StdioServerParameters(command=command[0], args=command[1:]),
            mode=self.job["mode"],
            logging_callback=self.on_log,
            log_level="warning",
            message_handler=self.on_message,
            elicitation_callback=self.on_elicit,
            sampling_callback=self.on_sample,
            sampling_capabilities=types.SamplingCapability(tools=types.SamplingToolsCapability()),
            list_roots_callback=self.on_roots,
            client_info=types.Implementation(name="peer", version="1"),
            read_timeout_seconds=STEP_SECONDS,
        )
        async with self.client:
            self.modern = self.client.protocol_version > "2026"
            self.report["version"] = self.client.protocol_version
            absent = json.loads(text_of(await self.call("absent")))
            absent["tasks"] = TASKS[self.modern]
            for name in self.job["features"]:
                if name in absent:
                    self.report[name] = {"absent": absent[name]}
                    continue
                step: Callable[[], Awaitable[Any]] = getattr(self, name)
                try:
                    with anyio.fail_after(STEP_SECONDS):
                        self.report[name] = await step()
                except RefusedError as exc:
                    self.report[name] = {"refused": str(exc)}
                except MCPError as exc:
                    self.report[name] = {"code": exc.code, "message": exc.message}
                except Exception:
                    self.report[name] = {"failed": traceback.format_exc()[-1500:]}
            self.report["closing"] = True

    async def call(self, name: str, /, **arguments: Any) -> types.CallToolResult:
        return await self.client.call_tool(name, arguments)

    async def said(self, name: str, /, **arguments: Any) -> Any:
        result = await self.call(name, **arguments)
        if result.is_error:
            raise RefusedError(text_of(result))
        return json.loads(text_of(result))

    async def every(self, fetch: Any, member: str) -> list[Any]:
        found: list[Any] = []
        cursor = None
        while True:
            page = await fetch(cursor=cursor, cache_mode="bypass")
            found += getattr(page, member)
            cursor = page.next_cursor
            if cursor is None:
                return found

    # -- steps -----------------------------------------------------------------------------------

    async def instructions(self) -> Any:
        return self.client.instructions

    async def ping(self) -> Any:
        await self.client.send_ping()
        return "pong"

    async def adder(self) -> dict[str, Any]:
        tools = await self.every(self.client.list_tools, "tools")
        return next(dump(tool) for tool in tools if tool.name == "add")

    async def tools(self) -> Any:
        tool = await self.adder()
        return [tool["name"], tool["description"], sorted(tool["inputSchema"]["properties"])]

    async def structured(self) -> Any:
        schema = (await self.adder()).get("outputSchema")
        kind = None if schema is None else schema["properties"]["result"]["type"]
        result = await self.call("add", a=2, b=3)
        return [kind, result.structured_content, text_of(result)]

    async def tool_error(self) -> Any:
        result = await self.call("fail")
        return [result.is_error, "boom" in text_of(result)]

    async def titles(self) -> Any:
        prompts = await self.every(self.client.list_prompts, "prompts")
        resources = await self.every(self.client.list_resources, "resources")
        return [
            (await self.adder()).get("title"),
            next(p.title for p in prompts if p.name == "greet"),
            next(r.title for r in resources if r.name == "hello"),
        ]

    async def annotations(self) -> Any:
        return (await self.adder()).get("annotations")

    async def icons(self) -> Any:
        return (await self.adder()).get("icons")

    async def meta_of_things(self) -> Any:
        return ((await self.adder()).get("_meta") or {}).get("example.com/kind")

    async def meta_of_requests(self) -> Any:
        result = await self.client.call_tool("meta", {}, meta={"example.com/trace": "t-1"})
        return [text_of(result), (result.meta or {}).get("example.com/answer")]

    async def resources(self) -> Any:
        found = await self.every(self.client.list_resources, "resources")
        return sorted([str(r.uri), r.name, r.mime_type] for r in found if r.name != "late")

    async def read_text(self) -> Any:
        return [dump(c) for c in (await self.client.read_resource("text://hello")).contents]

    async def read_blob(self) -> Any:
        return [dump(c) for c in (await self.client.read_resource("blob://bytes")).contents]

    async def templates(self) -> Any:
        found = await self.every(self.client.list_resource_templates, "resource_templates")
        return [[t.uri_template, t.name, t.mime_type] for t in found]

    async def read_template(self) -> Any:
        return [dump(c) for c in (await self.client.read_resource("item://7")).contents]

    async def missing_resource(self) -> Any:
        try:
            await self.client.read_resource("text://missing")
        except MCPError as exc:
            return exc.code
        return "found"

    async def prompts(self) -> Any:
        found = await self.every(self.client.list_prompts, "prompts")
        prompt = next(dump(p) for p in found if p.name == "greet")
        return [
            prompt["name"],
            prompt["description"],
            [[a["name"], a.get("required", False)] for a in prompt["arguments"]],
        ]

    async def get_prompt(self) -> Any:
        result = await self.client.get_prompt("greet", {"name": "Ada", "tone": "cold"})
        return [[m.role, m.content.text] for m in result.messages]

    async def complete_prompt(self) -> Any:
        ref = types.PromptReference(type="ref/prompt", name="greet")
        return (await self.client.complete(ref, {"name": "name", "value": "A"})).completion.values

    async def complete_template(self) -> Any:
        ref = types.ResourceTemplateReference(type="ref/resource", uri="item://{id}")
        return (await self.client.complete(ref, {"name": "id", "value": "1"})).completion.values

    async def complete_context(self) -> Any:
        ref = types.PromptReference(type="ref/prompt", name="greet")
        argument = {"name": "tone", "value": "c"}
        result = await self.client.complete(ref, argument, {"name": "Ada"})
        return result.completion.values

    async def logging(self) -> Any:
        if not self.modern:
            await self.client.set_logging_level("warning")
        await self.call("chatter")
        return self.logs

    async def progress(self) -> Any:
        seen: list[Any] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            seen.append([progress, total, message])

        await self.client.call_tool("count", {"n": 3}, progress_callback=note)
        return seen

    async def cancellation(self) -> Any:
        scope = anyio.CancelScope()

        async def started(*args: Any) -> None:
            scope.cancel()

        with scope:
            await self.client.call_tool("wait", {}, progress_callback=started)
        while "wait" not in (noticed := json.loads(text_of(await self.call("noticed")))):
            await anyio.sleep(0.01)
        return noticed

    async def pagination(self) -> Any:
        first = await self.client.list_tools(cache_mode="bypass")
        names = [tool.name for tool in await self.every(self.client.list_tools, "tools")]
        return [first.next_cursor is not None, len(names) > len(first.tools), "add" in names]

    async def changed(self, kind: str, fetch: Any) -> Any:
        if self.modern:
            async with self.client.listen(**{f"{kind}_list_changed": True}) as events:
                await self.call("grow", kind=kind)
                await anext(events)
        else:
            await self.call("grow", kind=kind)
            await self.event(f"notifications/{kind}/list_changed").wait()
        return "late" in [thing.name for thing in await self.every(fetch, kind)]

    async def tools_changed(self) -> Any:
        return await self.changed("tools", self.client.list_tools)

    async def prompts_changed(self) -> Any:
        return await self.changed("prompts", self.client.list_prompts)

    async def resources_changed(self) -> Any:
        return await self.changed("resources", self.client.list_resources)

    async def resource_updated(self) -> Any:
        if self.modern:
            async with self.client.listen(resource_subscriptions=["text://hello"]) as events:
                await self.call("touch", uri="text://hello")
                return (await anext(events)).uri
        await self.client.subscribe_resource("text://hello")
        await self.call("touch", uri="text://hello")
        await self.event("updated text://hello").wait()
        await self.client.unsubscribe_resource("text://hello")
        return "text://hello"

    async def elicitation_form(self) -> Any:
        answer = await self.said("ask_form")
        asked = self.asked.get("elicitation", {})
        return [asked.get("message"), sorted(asked["requestedSchema"]["properties"]), answer]

    async def elicitation_url(self) -> Any:
        answer = await self.said("ask_url")
        asked = self.asked.get("elicitation", {})
        return [asked.get("message"), asked.get("url"), answer]

    async def sampling(self) -> Any:
        answer = await self.said("ask_sample")
        asked = self.asked["sampling"]
        return [asked["messages"][0]["content"]["text"], asked["maxTokens"], answer]

    async def sampling_tools(self) -> Any:
        answer = await self.said("ask_sample_tools")
        return [[tool["name"] for tool in self.asked["sampling"]["tools"]], answer]

    async def roots(self) -> Any:
        return await self.said("ask_roots")


async def main() -> None:
    with open(sys.argv[1]) as file:
        job = json.load(file)
    reports = {}
    for wanted in job["sessions"]:
        session = Session(wanted)
        try:
            await session.hold()
        except BaseException:
            session.report["failed"] = traceback.format_exc()[-3000:]
        reports[wanted["name"]] = session.report
    with open(job["report"], "w") as file:
        json.dump(reports, file)


if __name__ == "__main__":
    anyio.run(main)
