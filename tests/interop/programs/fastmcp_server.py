"""What `features.py` describes, on FastMCP.

python fastmcp_server.py [--tasks | --http]

With --http it listens for HTTP and prints the URL.
"""

import asyncio
import sys
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import tools
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message
from fastmcp.resources import TextResource
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_client import ABSENT, ABSENT_IN_LEGACY, NO_LISTEN
from fastmcp_tasks import TasksExtension
from mcp import MCPError
from pydantic import BaseModel

server = FastMCP("features", version="1.2.3", instructions="Try every feature.", list_page_size=5)
server.add_extension(TasksExtension())


class Person(BaseModel):
    name: str
    age: int


class Fastmcp(tools.Sdk):
    server, context, types, errors, message = server, Context, types, MCPError, Message
    failure = ToolError

    def plain(self, function: Any) -> Any:
        return server.tool(output_schema=None)(function)

    def session(self, ctx: Any) -> Any:
        return ctx.session

    async def log(self, ctx: Any, level: Any) -> None:
        await ctx.log("chatter", level=level, logger_name="chatter", extra={"said": level})

    def absent(self, ctx: Any) -> Any:
        return ABSENT | (NO_LISTEN if self.modern(ctx) else ABSENT_IN_LEGACY)

    async def form(self, ctx: Any, params: Any) -> Any:
        answer = await ctx.elicit(params.message, Person)
        return SimpleNamespace(action=answer.action, content=answer.data.model_dump())

    async def grow(self, ctx: Any, kind: str, name: str, late: Any) -> None:
        if kind == "tools":
            server.tool(late, name=name)
            await ctx.send_notification(types.ToolListChangedNotification())
        elif kind == "prompts":
            server.prompt(late, name=name)
            await ctx.send_notification(types.PromptListChangedNotification())
        else:
            server.add_resource(TextResource(uri="text://late", name=name, text="late"))
            await ctx.send_notification(types.ResourceListChangedNotification())


sdk = Fastmcp()
tools.features(sdk)


@sdk.plain
async def meta(ctx: Context) -> ToolResult:
    """Give back a member of the request's _meta, and one of its own."""
    assert ctx.request_context is not None
    sent = ctx.request_context.meta or {}
    return ToolResult(content=str(sent.get("example.com/trace")), meta={"example.com/answer": 42})


FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
AS_TASK = TaskConfig(mode="required", poll_interval=timedelta(milliseconds=20))


@server.tool(output_schema=None, task=AS_TASK if "--tasks" in sys.argv else True)
async def slow() -> str:
    """Work on as a task."""
    await asyncio.sleep(0.05)
    return "done"


def only_as_tasks() -> None:
    """Have what `test_tasks.py` describes besides `slow`."""

    @server.tool(output_schema=None, task=AS_TASK)
    async def endless() -> str:
        await asyncio.sleep(30)
        return "done"

    @server.tool(output_schema=None, task=AS_TASK)
    async def ask(ctx: Context) -> Any:
        answer = (ctx.input_responses or {}).get("name")
        if answer is None:
            params = types.ElicitRequestFormParams(message="Who are you?", requested_schema=FORM)
            return types.InputRequiredResult(
                input_requests={"name": types.ElicitRequest(params=params)}
            )
        return f"{answer.action} {(answer.content or {}).get('name')}"


if "--tasks" in sys.argv:
    only_as_tasks()


@server.completion
async def complete(ref: Any, argument: Any, context: Any) -> list[str] | None:
    return tools.completed(types, ref, argument, context)


if __name__ == "__main__":
    if "--http" in sys.argv:
        tools.listen(server.http_app())
    else:
        server.run(show_banner=False)
