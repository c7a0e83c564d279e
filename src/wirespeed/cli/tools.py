"""``wirespeed list`` and ``wirespeed call``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Self

from msgspec import UNSET

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, complain, print_json, printable, usage
from wirespeed.cli.session import Options, connected, run

if TYPE_CHECKING:
    from wirespeed.types import CallToolResult


# -- list -----------------------------------------------------------------------------------------


def list_tools(options: Options, *, as_json: bool) -> int:
    """Print a server's tools."""
    return run(_list(options, as_json))


async def _list(options: Options, as_json: bool) -> int:
    async with connected(options) as client:
        tools = await client.list_tools()
    if as_json:
        print_json({"tools": [show.wire(tool) for tool in tools]})
    elif tools:
        show.put(show.console(), show.tool_table(tools))
    else:
        complain("the server has no tools", level="warning")
    return Exit.OK


# -- call -----------------------------------------------------------------------------------------


def call(options: Options, tool: str, text: str | None, *, as_json: bool) -> int:
    """Call a tool and print its result; exit code 1 if the tool failed."""
    return run(_call(options, tool, read_arguments(text), as_json))


async def _call(options: Options, tool: str, arguments: bytes, as_json: bool) -> int:
    watched = sys.stderr.isatty()
    with ProgressLine(tool) as progress:
        async with connected(options) as client:
            if "tasks" in client.server_capabilities:
                await client.list_tools()  # shows which tools only run as tasks
            result = await client.call_tool(
                tool, arguments, on_progress=progress.update if watched else None
            )
    if as_json:
        print_json(as_wire(result))
    elif result.is_error:
        text = "\n".join(map(show.block_text, result.content)).strip()
        complain(f"tool {printable(tool)} failed: {printable(text, lines=True) or 'no reason'}")
    else:
        write(result)
    return Exit.TOOL_FAILED if result.is_error else Exit.OK


def as_wire(result: CallToolResult) -> dict[str, Any]:
    """Return a result in its wire form."""
    from wirespeed.types import UnknownContent

    members = show.wire(result)
    del members["resultType"]  # only marks a result
    # the blocks' own encoding has "type", and leaves absent members out
    members["content"] = [
        block.data if isinstance(block, UnknownContent) else block for block in result.content
    ]
    return members


def write(result: CallToolResult) -> None:
    """Print the content on stdout."""
    if not result.content and result.structured_content is not UNSET:
        print_json(result.structured_content)
        return
    for block in result.content:
        write_text(show.block_text(block))


def write_text(text: str) -> None:
    """Print a text of one or more lines on stdout: unchanged, or with escaped control characters on
    a terminal."""
    if sys.stdout.isatty():
        text = printable(text, lines=True)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def read_arguments(text: str | None) -> bytes:
    """Return the arguments of a call: the text of one JSON object."""
    return b"{}" if text is None else read_json(text, (dict,), "an object", _EXAMPLE)[0]


def read_json(text: str, kinds: tuple[type, ...], expected: str, example: str) -> tuple[bytes, Any]:
    """Read JSON from the command line, stdin (``-``) or a file (``@FILE``). Returns its text on one
    line, and its value.

    The text keeps the numbers as written. Failure (2): the JSON is not valid, or its value is not
    of one of the ``kinds``.
    """
    import msgspec

    source = "JSON"
    try:
        if text == "-":
            source = "the JSON on stdin"
            data = sys.stdin.buffer.read().decode("utf-8-sig")
        elif text.startswith("@"):
            source = text[1:]
            with open(text[1:], "rb") as file:
                data = file.read().decode("utf-8-sig")
        else:
            data = text
            data.encode()  # bytes of argv that are not UTF-8 are surrogates in the text
    except OSError as exc:
        raise usage(f"cannot read {source or 'the file after @'}: {exc.strerror}") from None
    except UnicodeError:
        raise usage(f"{source} is not UTF-8") from None
    try:
        value = json.loads(data, parse_constant=_refuse)
        if "\\u" in data:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise usage(f"{source} has half a surrogate pair, which is no character") from None
    except json.JSONDecodeError as exc:
        where = f"line {exc.lineno} column {exc.colno}"
        raise usage(f"{source} is not valid ({where}: {exc.msg}); {example}") from None
    except (ValueError, RecursionError) as exc:
        raise usage(f"{source} is not valid: {exc}") from None
    if not isinstance(value, kinds):
        raise usage(f"{source} must be {expected}, not {_KINDS[type(value)]}; {example}")
    # A message is one line; the text of strings and numbers is kept.
    return msgspec.json.format(data.encode(), indent=-1), value


_EXAMPLE = "write the tool's arguments as in '{\"a\": 1}'"
_KINDS = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


class ProgressLine:
    """A progress bar on stderr. It appears with the first progress notification."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, progress: float, total: float | None, message: str | None) -> None:
        """Show the values of a progress notification."""
        if self._bar is None:
            self._start()
        self._bar.update(
            0, completed=progress, total=total, words=printable(message or f"{progress:g}")
        )

    def _start(self) -> None:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}", style="cyan", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[words]}", markup=False),
            console=show.console(stderr=True),
            transient=True,
        )
        self._bar.add_task(printable(self._tool), total=None, words="")
        self._bar.start()
