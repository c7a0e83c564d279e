"""Goes through the features with FastMCP's client; `features.py` says what each step is to see.

python fastmcp_features_client.py JOB    (a file of JSON: sessions to hold, and where to report)
"""

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import fastmcp_tasks  # noqa: F401 (every client has tasks from then on)
import mcp_types as types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from mcp import MCPError

STEP_SECONDS = 10
ABSENT = {"resource_updated": "no subscriptions of resources"}
ABSENT_IN_LEGACY = {"tasks": "fastmcp-tasks has those of 2026-07-28 only"}
NO_LISTEN = dict.fromkeys(
    ("tools_changed", "prompts_changed", "resources_changed"), "no subscriptions/listen"
)


def dump(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def text_of(result: Any) -> str:
    return "\n".join(b.text for b in result.content if isinstance(b, types.TextContent))


class RefusedError(Exception):
    """The tool could not ask what it wanted to."""


class Session:
    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.report: dict[str, Any] = {}
        self.logs: list[Any] = []
        self.asked: dict[str, Any] = {}
        self.told: dict[str, asyncio.Event] = {}

    async def on_log(self, message: Any) -> None:
        self.logs.append([message.level, message.data, message.logger])

    async def on_message(self, message: Any) -> None:
        if not isinstance(message, Exception) and hasattr(message, "method"):
            self.event(message.method).set()

    def event(self, name: str) -> asyncio.Event:
        return self.told.setdefault(name, asyncio.Event())

    async def on_elicit(self, message: str, kind: Any, params: Any, context: Any) -> Any:
        self.asked["elicitation"] = dump(params)
        if isinstance(params, types.ElicitRequestURLParams):
            return ElicitResult(action="accept")
        return {"name": "Ada", "age": 36}

    async def on_sample(self, messages: Any, params: Any, context: Any) -> Any:
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

    async def on_roots(self, context: Any) -> list[types.Root]:
        return [types.Root(uri="file:///work", name="work")]

    # -- the session -----------------------------------------------------------------------------

    async def hold(self) -> None:
        command = self.job["command"]
        self.client = Client(
            StdioTransport(command[0], command[1:], keep_alive=False),
            mode=self.job["mode"],
            log_handler=self.on_log,
            message_handler=self.on_message,
            elicitation_handler=self.on_elicit,
            sampling_handler=self.on_sample,
            sampling_capabilities=types.SamplingCapability(tools=types.SamplingToolsCapability()),
            roots=self.on_roots,
            client_info=types.Implementation(name="peer", version="1"),
            timeout=STEP_SECONDS,
        )
        async with self.client:
            self.report["version"] = self.client.protocol_version
            self.modern = self.client.protocol_version > "2026"
            absent = json.loads(text_of(await self.call("absent"))) | ABSENT
            absent |= NO_LISTEN if self.modern else ABSENT_IN_LEGACY
            for name in self.job["features"]:
                if name in absent:
                    self.report[name] = {"absent": absent[name]}
                    continue
                step: Callable[[], Awaitable[Any]] = getattr(self, name)
                try:
                    async with asyncio.timeout(STEP_SECONDS):
                        self.report[name] = await step()
                except RefusedError as exc:
                    self.report[name] = {"refused": str(exc)}
                except MCPError as exc:
                    self.report[name] = {"code": exc.code, "message": exc.message}
                except Exception:
                    self.report[name] = {"failed": traceback.format_exc()[-1500:]}
            self.report["closing"] = True

    async def call(self, name: str, /, **arguments: Any) -> Any:
        return await self.client.call_tool(name, arguments, raise_on_error=False)

    async def said(self, name: str, /, **arguments: Any) -> Any:
        result = await self.call(name, **arguments)
        if result.is_error:
            raise RefusedError(text_of(result))
        return json.loads(text_of(result))

    # -- steps -----------------------------------------------------------------------------------

    async def instructions(self) -> Any:
        return self.client.instructions

    async def ping(self) -> Any:
        return "pong" if await self.client.ping() else None

    async def adder(self) -> dict[str, Any]:
        return next(dump(tool) for tool in await self.client.list_tools() if tool.name == "add")

    async def tools(self) -> Any:
        tool = await self.adder()
        return [tool["name"], tool["description"], sorted(tool["inputSchema"]["properties"])]

    async def structured(self) -> Any:
        schema = (await self.adder())["outputSchema"]
        result = await self.call("add", a=2, b=3)
        return [schema["properties"]["result"]["type"], result.structured_content, text_of(result)]

    async def tool_error(self) -> Any:
        result = await self.call("fail")
        return [result.is_error, "boom" in text_of(result)]

    async def titles(self) -> Any:
        return [
            (await self.adder()).get("title"),
            next(p.title for p in await self.client.list_prompts() if p.name == "greet"),
            next(r.title for r in await self.client.list_resources() if r.name == "hello"),
        ]

    async def annotations(self) -> Any:
        return (await self.adder()).get("annotations")

    async def icons(self) -> Any:
        return (await self.adder()).get("icons")

    async def meta_of_things(self) -> Any:
        return ((await self.adder()).get("_meta") or {}).get("example.com/kind")

    async def meta_of_requests(self) -> Any:
        meta = {"example.com/trace": "t-1"}
        result = await self.client.call_tool_mcp("meta", {}, meta=meta)
        return [text_of(result), (result.meta or {}).get("example.com/answer")]

    async def resources(self) -> Any:
        found = await self.client.list_resources()
        return sorted([str(r.uri), r.name, r.mime_type] for r in found if r.name != "late")

    async def contents(self, uri: str) -> Any:
        found = [dump(content) for content in await self.client.read_resource(uri)]
        return [{k: v for k, v in content.items() if k != "_meta"} for content in found]

    async def read_text(self) -> Any:
        return await self.contents("text://hello")

    async def read_blob(self) -> Any:
        return await self.contents("blob://bytes")

    async def templates(self) -> Any:
        found = await self.client.list_resource_templates()
        return [[t.uri_template, t.name, t.mime_type] for t in found]

    async def read_template(self) -> Any:
        return await self.contents("item://7")

    async def missing_resource(self) -> Any:
        try:
            await self.client.read_resource("text://missing")
        except MCPError as exc:
            return exc.code
        return "found"

    async def prompts(self) -> Any:
        found = await self.client.list_prompts()
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
        return (await self.client.complete(ref, {"name": "name", "value": "A"})).values

    async def complete_template(self) -> Any:
        ref = types.ResourceTemplateReference(type="ref/resource", uri="item://{id}")
        return (await self.client.complete(ref, {"name": "id", "value": "1"})).values

    async def complete_context(self) -> Any:
        ref = types.PromptReference(type="ref/prompt", name="greet")
        argument = {"name": "tone", "value": "c"}
        return (await self.client.complete(ref, argument, {"name": "Ada"})).values

    async def logging(self) -> Any:
        if self.modern:
            meta = {"io.modelcontextprotocol/logLevel": "warning"}
            await self.client.call_tool_mcp("chatter", {}, meta=meta)
        else:
            await self.client.set_logging_level("warning")
            await self.call("chatter")
        return self.logs

    async def progress(self) -> Any:
        seen: list[Any] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            seen.append([progress, total, message])

        await self.client.call_tool("count", {"n": 3}, progress_handler=note)
        return seen

    async def cancellation(self) -> Any:
        call: asyncio.Task[Any]

        async def started(*args: Any) -> None:
            call.cancel()

        call = asyncio.create_task(self.client.call_tool("wait", progress_handler=started))
        await asyncio.wait([call])
        if not call.cancelled():
            return "answered"
        while "wait" not in (noticed := json.loads(text_of(await self.call("noticed")))):
            await asyncio.sleep(0.01)
        return noticed

    async def pagination(self) -> Any:
        first = await self.client.list_tools_mcp()
        names = [tool.name for tool in await self.client.list_tools()]
        return [first.next_cursor is not None, len(names) > len(first.tools), "add" in names]

    async def changed(self, kind: str, fetch: Any) -> Any:
        await self.call("grow", kind=kind)
        await self.event(f"notifications/{kind}/list_changed").wait()
        return "late" in [thing.name for thing in await fetch()]

    async def tools_changed(self) -> Any:
        return await self.changed("tools", self.client.list_tools)

    async def prompts_changed(self) -> Any:
        return await self.changed("prompts", self.client.list_prompts)

    async def resources_changed(self) -> Any:
        return await self.changed("resources", self.client.list_resources)

    async def elicitation_form(self) -> Any:
        answer = await self.said("ask_form")
        asked = self.asked["elicitation"]
        return [asked["message"], sorted(asked["requestedSchema"]["properties"]), answer]

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

    async def tasks(self) -> Any:
        return text_of(await self.call("slow"))  # fastmcp-tasks polls by itself


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
    asyncio.run(main())
