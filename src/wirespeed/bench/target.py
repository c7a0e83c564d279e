"""The server of ``wirespeed bench-target``: something to measure clients, proxies and networks
with."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from wirespeed import Context, Server, __version__
from wirespeed.types import Text

if TYPE_CHECKING:
    from wirespeed.bench.faults import Delay
    from wirespeed.core import Lease

# The listed tools: a verb and a noun each, in the manner of servers of code, files and tickets.
_VERBS = ("search", "list", "get", "create", "update", "archive")
_NOUNS = ("issues", "documents", "customers", "invoices", "deployments", "calendar_events")


def make_server(
    *, tools: int = 0, size: int = 0, delay: Delay | None = None, progress: int = 0
) -> Server:
    """Return a server whose tool ``echo`` returns its argument ``text``.

    Args:
        tools: Further tools, which are listed with schemas of several parameters and return their
            arguments as text.
        size: The bytes of a second block of text in each result of ``echo``; 0 for no such block.
        delay: The time that each call of ``echo`` takes.
        progress: The notifications about the progress of each call of ``echo`` whose caller gave a
            token. They are spread over its delay.
    """
    server = Server("wirespeed-bench-target", __version__, title="A server to measure against")
    more = [Text("x" * size)] if size else []
    source = random.Random()

    def result(text: str) -> Any:
        return [text, *more] if more else text

    if delay is None and not progress:

        @server.tool
        async def echo(text: str) -> Any:
            """Return the text."""
            return result(text)
    else:

        @server.tool("echo")
        async def slow_echo(text: str, ctx: Context) -> Any:
            """Return the text."""
            seconds = delay.draw(source) if delay is not None else 0.0
            for done in range(1, progress + 1):
                await asyncio.sleep(seconds / progress)
                ctx.progress(done, total=progress)
            if not progress:
                await asyncio.sleep(seconds)
            return result(text)

    for n in range(tools):
        _add_tool(server, n)
    return server


def _add_tool(server: Server, n: int) -> None:
    noun = _NOUNS[n % len(_NOUNS)]
    verb = _VERBS[n // len(_NOUNS) % len(_VERBS)]
    server.tool_raw(
        f"{verb}_{noun}_{n}",
        _schema(noun),
        _arguments,
        title=f"{verb.capitalize()} {noun.replace('_', ' ')}",
        description=(
            f"{verb.capitalize()} {noun.replace('_', ' ')} of a workspace. Results are sorted by "
            "the time of their last change. Use a cursor to read further pages."
        ),
        annotations={"readOnlyHint": verb in ("search", "list", "get")},
    )


async def _arguments(arguments: Lease) -> str:
    return bytes(arguments).decode()


def _schema(noun: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "workspace": {"type": "string", "description": "The id or the name of the workspace."},
            "query": {
                "type": "string",
                "description": f"Words that the {noun.replace('_', ' ')} have in their text.",
            },
            "state": {
                "type": "string",
                "enum": ["open", "closed", "all"],
                "default": "open",
                "description": "Which of them.",
            },
            "labels": {
                "type": "array",
                "items": {"type": "string", "maxLength": 64},
                "maxItems": 20,
                "description": "Labels that each of them has.",
            },
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
            "filter": {
                "type": "object",
                "properties": {
                    "author": {"type": "string"},
                    "changed_after": {"type": "string", "format": "date-time"},
                },
                "additionalProperties": False,
            },
        },
        "required": ["workspace"],
        "additionalProperties": False,
    }
