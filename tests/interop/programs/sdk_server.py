"""An unchanged server of the official SDK: ``sdk_server.py [WAY PORT]``.

Without a way it is on stdio. Ways: ``streamable-http``; the same with ``routes`` of its own, with
``events`` that are kept, or ``verified`` tokens; ``mounted`` in an application.
"""

import logging
import os
import sys
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context
from mcp.server.streamable_http import EventMessage, EventStore
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse

WAY, PORT = sys.argv[1:] if __name__ == "__main__" and len(sys.argv) > 1 else ("stdio", "0")
PLACE = f"http://127.0.0.1:{PORT}/mcp"


class Tokens:
    """One token is right."""

    async def verify_token(self, token: str) -> AccessToken | None:
        if token != "right":
            return None
        return AccessToken(
            token=token, client_id="desk", scopes=["mcp"], subject="ada", resource=PLACE
        )


class Kept(EventStore):
    """The events of this process."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        n = int(last_event_id)
        stream = self.events[n - 1][0]
        for number, (name, message) in enumerate(self.events[n:], n + 1):
            if name == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def protection() -> dict[str, Any]:
    """The options of a server that verifies tokens."""
    auth = AuthSettings(
        issuer_url="https://issuer.example",
        resource_server_url=PLACE,
        validate_token_resource=True,
    )
    return {"token_verifier": Tokens(), "auth": auth}


if WAY != "stdio":  # before the SDK sets it up
    logging.basicConfig(level=logging.INFO)
server = MCPServer(
    "checks",
    version="1",
    instructions="Say something.",
    log_level="ERROR",
    **(protection() if WAY == "verified" else {}),
)


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


@server.tool()
async def pid() -> int:
    """The process that answers."""
    return os.getpid()


@server.tool()
async def ends() -> str:
    """End the process, in the middle of a call."""
    os._exit(9)


@server.tool()
async def caller() -> str:
    """Whose token it is."""
    token = get_access_token()
    return "nobody" if token is None else str(token.subject)


@server.resource("memo://{name}")
def memo(name: str) -> str:
    """A note."""
    return f"note {name}"


@server.prompt()
def greet(name: str) -> str:
    """A greeting."""
    return f"Hello, {name}!"


def serve_mounted(port: int) -> None:
    """Serve as a part of another application."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Mount

    part = server.streamable_http_app()
    app = Starlette(
        routes=[Mount("/part", part)], lifespan=lambda app: server.session_manager.run()
    )
    uvicorn.run(app, port=port, log_level="warning")


if __name__ == "__main__":
    if WAY == "stdio":
        server.run()
    elif WAY == "mounted":
        serve_mounted(int(PORT))
    else:
        if WAY == "routes":

            @server.custom_route("/hello", methods=["GET"])
            async def hello(request: Request) -> PlainTextResponse:
                return PlainTextResponse("hello")

        kept = {"event_store": Kept()} if WAY == "events" else {}
        server.run("streamable-http", port=int(PORT), **kept)
