"""The server that the official conformance suite tests: every fixture that its scenarios ask for.

    python tests/conformance/server.py [URL]        by default http://127.0.0.1:3000/mcp
    python tests/conformance/server.py stdio

Each tool, resource and prompt has the name that the suite calls it by, so this is also an example
of nearly everything that a server can do. Questions to the client are in `server_questions`, the
extension for tasks in `server_tasks`, and the skills are the folder `skills`.
"""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import server_questions
import server_tasks

from wirespeed import Context, HeaderParam, HttpOptions, MemoryEventStore, Server
from wirespeed.errors import ToolError
from wirespeed.types import Audio, EmbeddedResource, Image, PromptMessage, ResourceContents, Text

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SILENCE = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")

SKILLS = Path(__file__).with_name("skills")

server = Server(
    "wirespeed-everything",
    version="1.0.0",
    title="Everything",
    instructions="Every feature that the conformance suite of MCP asks for.",
    list_ttl_ms=1000,
)


# -- tools: content --------------------------------------------------------------------------------


@server.tool
async def test_simple_text() -> str:
    """Answer with a text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> Image:
    """Answer with an image of one pixel."""
    return Image(data=PIXEL, mime_type="image/png")


@server.tool
async def test_audio_content() -> Audio:
    """Answer with a sound without samples."""
    return Audio(data=SILENCE, mime_type="audio/wav")


@server.tool
async def test_embedded_resource() -> EmbeddedResource:
    """Answer with a resource."""
    return EmbeddedResource(
        resource=ResourceContents(
            uri="test://embedded-resource",
            mime_type="text/plain",
            text="This is an embedded resource content.",
        )
    )


@server.tool
async def test_multiple_content_types() -> list[Text | Image | EmbeddedResource]:
    """Answer with a text, an image and a resource."""
    return [
        Text(text="Multiple content types test:"),
        Image(data=PIXEL, mime_type="image/png"),
        EmbeddedResource(
            resource=ResourceContents(
                uri="test://mixed-content-resource",
                mime_type="application/json",
                text=json.dumps({"test": "data", "value": 123}),
            )
        ),
    ]


@server.tool
async def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


# -- tools: what is sent while they work -----------------------------------------------------------


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three messages."""
    await ctx.info("Tool execution started")
    await asyncio.sleep(0.05)
    await ctx.info("Tool processing data")
    await asyncio.sleep(0.05)
    await ctx.info("Tool execution completed")
    return "Tool with logging executed successfully"


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log a message, which clients of 2026-07-28 get only if their request asks for it."""
    await ctx.info("Nobody hears this, unless the request has a log level.")
    return "logged"


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    await ctx.progress(0, 100, "Started")
    await asyncio.sleep(0.05)
    await ctx.progress(50, 100, "Half done")
    await asyncio.sleep(0.05)
    await ctx.progress(100, 100, "Done")
    return "Tool with progress executed successfully"


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the stream, so that the client comes back for the result (2025-11-25)."""
    ctx.close_stream()
    await asyncio.sleep(0.1)
    return "Reconnection test completed successfully."


# -- tools: schemas --------------------------------------------------------------------------------


def echo(arguments: Any) -> str:
    """Answer with the arguments."""
    return f"Arguments: {bytes(arguments).decode()}"


# A schema that is written by hand is listed as it is, keywords of JSON Schema 2020-12 included.
server.tool_raw(
    "json_schema_2020_12_tool",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
    echo,
    inline=True,
    description="A tool with keywords of JSON Schema 2020-12 in its input schema.",
)


@server.tool
async def test_x_mcp_header(region: Annotated[str, HeaderParam("Region")]) -> str:
    """Answer with an argument that HTTP clients of 2026-07-28 send as Mcp-Param-Region, too.

    Args:
        region: The region.
    """
    return f"Region: {region}"


# -- tools: lists that change ----------------------------------------------------------------------


@server.tool
async def test_trigger_tool_change() -> str:
    """Change the list of tools, for a moment."""

    async def passing() -> str:
        """Not here for long."""
        return "passing"

    server.add_tool(passing)
    server.remove_tool("passing")
    return "The list of tools changed."


@server.tool
async def test_trigger_prompt_change() -> str:
    """Change the list of prompts, for a moment."""

    async def passing() -> str:
        """Not here for long."""
        return "passing"

    server.add_prompt(passing)
    server.remove_prompt("passing")
    return "The list of prompts changed."


# -- resources -------------------------------------------------------------------------------------

server.add_resource(
    "test://static-text",
    "This is the content of the static text resource.",
    name="Static text",
    description="A text that never changes.",
    mime_type="text/plain",
)
server.add_resource(
    "test://static-binary",
    PIXEL,
    name="Static binary",
    description="An image of one pixel.",
    mime_type="image/png",
)
server.add_resource(
    "test://watched-resource",
    "Watched resource content",
    name="Watched resource",
    description="A resource to subscribe to.",
    mime_type="text/plain",
)


class Row(msgspec.Struct, rename="camel"):
    """What the template is filled with."""

    id: str
    data: str
    template_test: Literal[True] = True


@server.resource("test://template/{id}/data", name="Template", mime_type="application/json")
async def template(id: str) -> Row:
    """A row by its id."""
    return Row(id, f"Data for ID: {id}")


# -- prompts and completion ------------------------------------------------------------------------


@server.prompt
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments.

    Args:
        arg1: The first argument.
        arg2: The second argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("test_prompt_with_arguments", "arg1")
async def complete_arg1(value: str) -> list[str]:
    return [word for word in ("paris", "park", "test", "testing") if word.startswith(value)]


@server.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[EmbeddedResource | str]:
    """A prompt with a resource.

    Args:
        resourceUri: The URI of the resource.
    """
    return [
        EmbeddedResource(
            resource=ResourceContents(
                uri=resourceUri,
                mime_type="text/plain",
                text="Embedded resource content for testing.",
            )
        ),
        "Please process the embedded resource above.",
    ]


@server.prompt
async def test_prompt_with_image() -> list[PromptMessage]:
    """A prompt with an image."""
    return [
        PromptMessage("user", Image(data=PIXEL, mime_type="image/png")),
        PromptMessage("user", Text(text="Please analyze the image above.")),
    ]


server_questions.add_to(server)
server_tasks.add_to(server)
server.add_skills(SKILLS, ttl_ms=1000, cache_scope="public")


if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        server.run()
    else:
        server.run(
            sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:3000/mcp",
            http=HttpOptions(event_store=MemoryEventStore(), retry=0.5),
            on_listening=lambda urls: print(urls[0], flush=True),
        )
