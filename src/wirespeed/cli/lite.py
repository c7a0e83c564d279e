"""``list``, ``call`` and ``info`` with ``--lite``: the one tool of a LiteMCP server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, Failure, complain, print_json, printable, usage
from wirespeed.cli.features.arguments import read_json, read_words, strings_of
from wirespeed.cli.features.calls import one_json
from wirespeed.cli.features.media import write_text
from wirespeed.cli.session import Options, run, show_warnings
from wirespeed.cli.targets import FOREVER
from wirespeed.errors import CallTimeout, HttpStatusError

if TYPE_CHECKING:
    from wirespeed.litemcp import CallResult, LiteClient, Tool

_MCP = "for an MCP server leave out --lite"
_EXAMPLE = """write the arguments in order, as in '["a", 1]', or by name, as in '{"b": 1}'"""


@contextlib.asynccontextmanager
async def connected(options: Options) -> AsyncIterator[LiteClient]:
    """Open a client of the target. Failure (2): an option does not apply to LiteMCP."""
    from wirespeed.litemcp import LiteClient

    if options.era is not None:
        raise usage("--era is for MCP: LiteMCP has one era")
    if options.log_level is not None:
        raise usage("--log-level is for MCP: LiteMCP has no log messages")
    show_warnings()
    if options.trace:
        from wirespeed.cli import trace

        trace.start()
    target = options.target()
    async with LiteClient(target.endpoint, timeout=options.time_limit(target) or FOREVER) as client:
        yield client


async def ask(client: LiteClient) -> Tool:
    """Return the tool of a server. A server that does not speak LiteMCP does not answer, or refuses
    GET without the headers of MCP."""
    try:
        return await client.info()
    except CallTimeout as exc:
        raise CallTimeout(f"{exc}; {_MCP}") from None
    except HttpStatusError as exc:
        if exc.status not in (400, 405, 406):
            raise
        raise HttpStatusError(f"{exc}; {_MCP}", exc.status, exc.reason) from None


def list_tools(options: Options, *, as_json: bool) -> int:
    """Print a server's tool."""
    return run(_list(options, as_json))


async def _list(options: Options, as_json: bool) -> int:
    async with connected(options) as client:
        tool = await ask(client)
    if as_json:
        print_json({"tools": [show.wire(tool)]})
    else:
        show.put(show.console(), show.lite_table(tool))
    return Exit.OK


def info(options: Options) -> dict[str, Any]:
    """Return facts about a server."""
    return run(_info(options))


async def _info(options: Options) -> dict[str, Any]:
    began = time.perf_counter()
    async with connected(options) as client:
        tool = await ask(client)
    seconds = time.perf_counter() - began
    return {
        "tool": tool.name,
        "protocol": f"LiteMCP {tool.version}",
        "ready_seconds": round(seconds, 4),
        "prompt": tool.prompt(),
    }


def call(options: Options, tool: str, words: Sequence[str], *, as_json: bool) -> int:
    """Call the tool and print its result; exit code 1 if it failed."""
    typed = read_words(words)
    args, named = read_arguments(one_json(words)) if typed is None else ([], strings_of(typed))
    return run(_call(options, tool, args, named, as_json))


async def _call(
    options: Options, name: str, args: list[str], named: dict[str, str], as_json: bool
) -> int:
    async with connected(options) as client:
        tool = await ask(client)
        if tool.name != name:
            text = f"the server has no tool {printable(name)}; it has {printable(tool.name)}"
            raise Failure(text, Exit.REMOTE, "UnknownTool")
        try:
            result = await client.invoke(args, named)
        except TypeError as exc:  # the arguments do not match the parameters
            raise usage(printable(str(exc))) from None
    if as_json:
        print_json(show.wire(result))
    elif result.error:
        complain(f"tool {printable(name)} failed: {_text(result)}")
    else:
        for content in result.content:
            write_text(show.content_text(content))
    return Exit.TOOL_FAILED if result.error else Exit.OK


def _text(result: CallResult) -> str:
    text = "\n".join(content.data for content in result.content).strip()
    return printable(text, lines=True) or "no reason"


def read_arguments(text: str | None) -> tuple[list[str], dict[str, str]]:
    """Return arguments in order, or by name, as strings: JSON strings unchanged, all other values
    as their JSON text. Failure (2): the JSON is not an array or an object."""
    import msgspec

    if text is None:
        return [], {}
    data, value = read_json(text, (list, dict), "an array or an object", _EXAMPLE)
    if isinstance(value, dict):
        by_name = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        return [], {name: _as_string(raw) for name, raw in by_name.items()}
    return [_as_string(raw) for raw in msgspec.json.decode(data, type=list[msgspec.Raw])], {}


def _as_string(raw: Any) -> str:
    import msgspec

    data = bytes(raw)
    return msgspec.json.decode(data, type=str) if data[:1] == b'"' else data.decode()
