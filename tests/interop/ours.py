"""Our client goes through the `steps`, as those of others do."""

from __future__ import annotations

from typing import Any

import msgspec
from programs import steps
from programs.steps import Json, Note

from wirespeed import Client, Server, Stdio, WebSocket
from wirespeed.client.answering.types import Accept, SampleResult
from wirespeed.client.results.features import PromptRef, ResourceRef
from wirespeed.client.subscriptions.subscription import ResourceUpdated
from wirespeed.client.tasks.calls import TASKS
from wirespeed.errors import RemoteError, WirespeedError
from wirespeed.protocol.asking import Root, ToolUseContent


def plain(value: Any) -> Json:
    """A struct as its members on the wire, without those that are not there."""
    found = msgspec.to_builtins(value)
    return {k: v for k, v in found.items() if v is not None}


class Ours(steps.Peer):
    """One connection of our client.

    Args:
        target: The server, where it listens, or a command that launches it.
        era: How the client finds its version.
        features: The features to go through; None goes through the calls.
        script: What to go through instead.
    """

    errors = RemoteError
    connect_errors = WirespeedError
    calls = [*steps.CALLS, "ask"]  # noqa: RUF012 (it is not changed)

    def __init__(
        self,
        target: list[str] | WebSocket | Server | str,
        era: str,
        features: list[str] | None = None,
        script: list[Any] | None = None,
    ) -> None:
        job = {"features": features, "script": script}
        super().__init__({key: one for key, one in job.items() if one is not None})
        more: Json = {
            "on_prompts_changed": lambda prompts: self._listed("prompts", prompts),
            "on_resources_changed": lambda resources: self._listed("resources", resources),
            "on_resource_updated": lambda uri: self.event(f"updated {uri}").set(),
            "on_elicit": self.on_elicit,
            "on_elicit_url": self.on_elicit,
            "on_sample": self.on_sample,
            "sampling_tools": True,
            "roots": [Root(uri="file:///work", name="work")],
            "extensions": [TASKS],
        }
        self.client = Client(
            Stdio(target[0], target[1:], stderr=self._on_stderr)
            if isinstance(target, list)
            else target,
            era=era,  # type: ignore[arg-type]
            name="peer",
            version="1",
            timeout=steps.STEP_SECONDS,
            log_level="warning",
            on_log=self.log,
            on_tools_changed=lambda tools: self._listed("tools", tools),
            **({} if features is None else more),
        )

    async def hold(self) -> Json:
        return await steps.hold(self)

    def connected(self) -> Client:
        return self.client

    def about(self) -> Json:
        return {
            "version": self.client.protocol_version,
            "server_info": self.client.server_info,
            "instructions": self.client.instructions,
            "capabilities": self.client.server_capabilities,
        }

    # -- what the server asks and tells ----------------------------------------------------------

    def _on_stderr(self, line: str) -> None:
        self.report.setdefault("spy_said", []).append(line)

    def _listed(self, kind: str, entries: list[Any]) -> None:
        if any(entry.name == "late" for entry in entries):
            self.event(f"notifications/{kind}/list_changed").set()

    async def on_elicit(self, request: Any) -> Any:
        asked = {"mode": request.mode, "message": request.message}
        if request.mode == "url":
            self.elicited(asked | {"url": request.url})
            return Accept()
        return self.elicited(asked | {"requestedSchema": request.schema})["content"]

    async def on_sample(self, request: Any) -> Any:
        content = request.messages[0].content
        block = content[0] if isinstance(content, list) else content
        asked = {"messages": [{"content": plain(block)}], "maxTokens": request.max_tokens}
        answer = self.sampled(asked | {"tools": request.tools})
        if request.tools:
            (use,) = answer["content"]
            content = [ToolUseContent(id=use["id"], name=use["name"], input=use["input"])]
            return SampleResult(content=content, model="m-1", stop_reason="toolUse")
        return SampleResult(content=answer["content"]["text"], model="m-1")

    # -- what the steps do -----------------------------------------------------------------------

    async def call(
        self, name: str, arguments: Json, note: Note | None = None, meta: Json | None = None
    ) -> Json:
        result = await self.client.call_tool(name, arguments, on_progress=note, meta=meta)
        found = plain(result)
        assert steps.text_of(found) == result.text
        return found

    async def first_page(self) -> tuple[str | None, list[Any]]:
        page = await self.client.list_tools_page()
        return page.next_cursor, page.tools

    async def tools(self) -> list[Json]:
        return [plain(tool) for tool in await self.client.list_tools()]

    async def prompts(self) -> list[Json]:
        return [plain(prompt) for prompt in await self.client.list_prompts()]

    async def resources(self) -> list[Json]:
        return [plain(resource) for resource in await self.client.list_resources()]

    async def templates(self) -> list[Json]:
        return [plain(template) for template in await self.client.list_resource_templates()]

    @staticmethod
    def _contents(result: Any) -> list[Json]:
        found = [plain(one) for one in result.contents]
        return [{k: v for k, v in one.items() if k != "_meta"} for one in found]

    async def read(self, uri: str) -> list[Json]:
        return self._contents(await self.client.read_resource(uri))

    async def read_template(self) -> list[Json]:
        return self._contents(await self.client.read_template("item://{id}", id=7))

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> Any:
        result = await self.client.get_prompt(name, arguments)
        return [[message.role, message.text] for message in result.messages]

    async def complete(self, of: str, name: str, value: str, known: Any) -> list[str]:
        ref = ResourceRef(of) if "://" in of else PromptRef(of)
        return (await self.client.complete(ref, name, value, context=known)).values

    async def ping(self) -> None:
        await self.client.ping()

    async def updated(self, uri: str) -> str | None:
        if self.modern:
            async with self.client.subscribe(uris=[uri]) as events:
                await self.call("touch", {"uri": uri})
                async for event in events:
                    assert event == ResourceUpdated(uri)
                    return event.uri
        await self.client.subscribe_resource(uri)
        await self.call("touch", {"uri": uri})
        await self.event(f"updated {uri}").wait()
        await self.client.unsubscribe_resource(uri)
        return uri

    # -- steps of our own ------------------------------------------------------------------------

    async def ask(self) -> Any:
        if self.modern:
            return None  # a modern server asks nothing
        return steps.text_of(await self.call("ask", {}))

    async def tasks(self) -> str:
        task = await self.client.start_tool("slow", {})
        assert task.id is not None
        return (await task.result(timeout=steps.STEP_SECONDS)).text
