"""An unchanged server of the official SDK: ``sdk_server.py [(streamable-http | routes) PORT]``."""

import sys

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse

server = MCPServer("checks", version="1", instructions="Say something.", log_level="ERROR")


class Answer(BaseModel):
    name: str


@server.tool()
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
def blocking(number: int) -> int:
    """A tool that is a plain function."""
    return number + 1


@server.tool()
async def fails(why: str) -> str:
    """Raise an error."""
    raise ValueError(why)


@server.tool()
async def reports(ctx: Context) -> str:
    """Report progress."""
    await ctx.report_progress(1, 2, "half")
    return "reported"


@server.tool()
async def asks(ctx: Context) -> str:
    """Ask the user."""
    answer = await ctx.elicit("Who are you?", Answer)
    return answer.data.name if answer.action == "accept" else answer.action


@server.tool()
async def slow(seconds: float) -> str:
    """Wait."""
    await anyio.sleep(seconds)
    return "slept"


@server.tool()
async def header(name: str, ctx: Context) -> str:
    """A header field of the request."""
    request = ctx.request_context.request
    return "none" if request is None else request.headers.get(name, "absent")


@server.resource("memo://{name}")
def memo(name: str) -> str:
    """A note."""
    return f"note {name}"


@server.prompt()
def greet(name: str) -> str:
    """A greeting."""
    return f"Hello, {name}!"


if __name__ == "__main__":
    if len(sys.argv) == 1:
        server.run()
    else:
        if sys.argv[1] == "routes":

            @server.custom_route("/hello", methods=["GET"])
            async def hello(request: Request) -> PlainTextResponse:
                return PlainTextResponse("hello")

        server.run("streamable-http", port=int(sys.argv[2]))
