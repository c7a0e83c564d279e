"""``wirespeed call``, ``read``, ``prompt`` and ``complete``: one request, and its result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from msgspec import UNSET

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, complain, print_json, printable, usage
from wirespeed.cli.features.answers import Answers
from wirespeed.cli.features.arguments import (
    Word,
    encode_words,
    read_arguments,
    read_json,
    read_words,
    strings_of,
)
from wirespeed.cli.features.media import Media, write_text
from wirespeed.cli.session import Options, connected, run
from wirespeed.errors import RemoteError
from wirespeed.protocol import codes

if TYPE_CHECKING:
    from wirespeed import Client
    from wirespeed.types import CallToolResult, GetPromptResult, ReadResourceResult


class Choices(NamedTuple):
    """The options of the commands that make one request.

    Attributes:
        answers, sample_command, roots: Those of `Answers`.
        folder: The folder of ``--save``.
        as_json: Whether to print the result as JSON.
    """

    answers: Sequence[str] = ()
    sample_command: str | None = None
    roots: Sequence[str] = ()
    folder: str | None = None
    as_json: bool = False

    def asked(self, progress: ProgressLine | None = None) -> Answers:
        """Return the answers to questions of the server, which a progress bar must not disturb."""
        return Answers(
            self.answers,
            self.sample_command,
            self.roots,
            before=None if progress is None else progress.clear,
        )


# -- call -----------------------------------------------------------------------------------------


def call(
    options: Options, tool: str, words: Sequence[str], choices: Choices, *, as_task: bool = False
) -> int:
    """Call a tool and print its result; exit code 1 if the tool failed.

    as_task: Start the tool as a task, and print the task's id.
    """
    typed = read_words(words)
    arguments = read_arguments(one_json(words)) if typed is None else None
    work = _start if as_task else _call
    return run(work(options, tool, arguments, typed or [], choices))


def one_json(words: Sequence[str]) -> str | None:
    """Return the word that is JSON; None if there is none. Failure (2): there are several words."""
    if len(words) > 1:
        raise usage(f"unexpected {words[1]!r} after JSON; quote JSON as one word, '{{\"a\": 1}}'")
    return words[0] if words else None


async def _call(
    options: Options, tool: str, arguments: bytes | None, words: list[Word], choices: Choices
) -> int:
    watched = sys.stderr.isatty()
    with ProgressLine(tool) as progress:
        asked = choices.asked(progress)
        async with connected(options, asked) as client:
            if arguments is None:
                arguments = encode_words(words, await _schema(client, tool))
            elif "tasks" in client.server_capabilities:
                await client.list_tools()  # shows which tools only run as tasks
            result = await client.call_tool(
                tool, arguments, on_progress=progress.update if watched else None
            )
            asked.check()
    return finish(tool, result, asked, choices)


async def _schema(client: Client, tool: str) -> Any:
    """The input schema of a tool; None if the server does not list it."""
    tools = await client.list_tools()
    return next((one.input_schema for one in tools if one.name == tool), None)


async def _start(
    options: Options, tool: str, arguments: bytes | None, words: list[Word], choices: Choices
) -> int:
    async with connected(options, choices.asked()) as client:
        if arguments is None:
            arguments = encode_words(words, await _schema(client, tool))
        task = await client.start_tool(tool, arguments)
        if task.id is None:
            complain("the server answered at once, without a task", level="note")
            return finish(tool, await task.result(), choices.asked(), choices)
        state = task.state
    if choices.as_json:
        print_json(show.wire(state))
    else:
        print(printable(task.id))
    return Exit.OK


def finish(tool: str | None, result: CallToolResult, asked: Answers, choices: Choices) -> int:
    """Print the result of a tool; return the exit code."""
    if choices.as_json:
        print_json(as_wire(result))
    elif result.is_error:
        text = "\n".join(map(show.block_text, result.content)).strip()
        what = f"tool {printable(tool)}" if tool else "the task"
        complain(f"{what} failed: {printable(text, lines=True) or 'no reason'}")
        if hint := asked.hint(text):
            complain(hint, level="note")
    else:
        _write(result, Media(tool or "task", choices.folder))
    return Exit.TOOL_FAILED if result.is_error else Exit.OK


def as_wire(result: CallToolResult) -> dict[str, Any]:
    """Return a result in its wire form."""
    members = show.wire(result)
    del members["resultType"]  # only marks a result
    # the blocks' own encoding has "type", and leaves absent members out
    members["content"] = [_as_it_came(block) for block in result.content]
    return members


def _as_it_came(block: Any) -> Any:
    from wirespeed.types import UnknownContent

    return block.data if isinstance(block, UnknownContent) else block


def _write(result: CallToolResult, media: Media) -> None:
    """Print the content on stdout."""
    if not result.content and result.structured_content is not UNSET:
        print_json(result.structured_content)
        return
    for block in result.content:
        write_text(media.text(block))


class ProgressLine:
    """A progress bar on stderr. It appears with the first progress notification."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove the bar. The next progress notification shows it again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

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


# -- read -----------------------------------------------------------------------------------------


def read(options: Options, uri: str, words: Sequence[str], choices: Choices) -> int:
    """Read a resource and print its contents. Words are the variables of a template."""
    return run(_read(options, uri, _strings(words, "id=3"), choices))


def _strings(words: Sequence[str], example: str) -> dict[str, str]:
    """Arguments that are strings: words, or one JSON object."""
    typed = read_words(words)
    if typed is not None:
        return strings_of(typed)
    text = one_json(words)
    if text is None:
        return {}
    _, value = read_json(text, (dict,), "an object", f"write arguments as in {example}")
    return {name: item if isinstance(item, str) else _text(item) for name, item in value.items()}


def _text(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


async def _read(options: Options, uri: str, variables: dict[str, str], choices: Choices) -> int:
    asked = choices.asked()
    async with connected(options, asked) as client:
        try:
            if variables:
                result = await client.read_template(uri, variables)
            else:
                result = await client.read_resource(uri)
        except (TypeError, ValueError) as exc:
            if not variables:
                raise
            raise usage(f"the template {printable(uri)}: {exc}") from None
        except RemoteError as exc:
            if exc.code in (codes.INVALID_PARAMS, codes.RESOURCE_NOT_FOUND):
                exc.add_note("wirespeed list TARGET shows the resources")
            raise
        asked.check()
    if choices.as_json:
        members = show.wire(result)
        del members["resultType"]
        print_json({**members, "contents": result.contents})
    else:
        _write_contents(result, choices.folder)
    return Exit.OK


def _write_contents(result: ReadResourceResult, folder: str | None) -> None:
    """Print contents: texts, and bytes as they are into a pipe, where they are alone."""
    from wirespeed.types import EmbeddedResource

    pipe = not sys.stdout.isatty() and folder is None
    if pipe and len(result.contents) == 1 and isinstance(result.contents[0].blob, bytes):
        sys.stdout.flush()
        sys.stdout.buffer.write(result.contents[0].blob)
        return
    for one in result.contents:
        if one.text is not None:
            write_text(one.text)
            continue
        name = one.uri.rstrip("/").rpartition("/")[2]
        write_text(Media(name, folder).text(EmbeddedResource(resource=one)))


# -- prompt ---------------------------------------------------------------------------------------


def prompt(options: Options, name: str, words: Sequence[str], choices: Choices) -> int:
    """Print the messages of a prompt."""
    return run(_prompt(options, name, _strings(words, "name=Ann"), choices))


async def _prompt(options: Options, name: str, arguments: dict[str, str], choices: Choices) -> int:
    asked = choices.asked()
    async with connected(options, asked) as client:
        result = await client.get_prompt(name, arguments)
        asked.check()
    if choices.as_json:
        members = show.wire(result)
        del members["resultType"]
        members["messages"] = [
            {"role": message.role, "content": _as_it_came(message.content)}
            for message in result.messages
        ]
        print_json(members)
    else:
        _write_messages(name, result, choices.folder)
    return Exit.OK


def _write_messages(name: str, result: GetPromptResult, folder: str | None) -> None:
    from wirespeed.cli.failures import coloured

    media, colours = Media(name, folder), coloured(sys.stdout)
    for number, message in enumerate(result.messages):
        if number:
            print()
        role = f"{message.role}:"
        print(f"\x1b[1;36m{role}\x1b[0m" if colours else role)
        write_text(media.text(message.content))


# -- complete -------------------------------------------------------------------------------------


def complete(
    options: Options, name: str, argument: str, words: Sequence[str], *, as_json: bool
) -> int:
    """Print suggestions for an argument of a prompt, or for a variable of a template."""
    value = ""
    rest = list(words)
    if rest and read_words(rest[:1]) is None:
        value = rest.pop(0)
    typed = read_words(rest)
    if rest and typed is None:
        raise usage(f"{rest[0]!r} is not name=value")
    return run(_complete(options, name, argument, value, strings_of(typed or []), as_json))


async def _complete(
    options: Options,
    name: str,
    argument: str,
    value: str,
    context: dict[str, str],
    as_json: bool,
) -> int:
    async with connected(options) as client:
        found = await client.complete(reference(name), argument, value, context=context or None)
    if as_json:
        print_json(show.wire(found))
        return Exit.OK
    for one in found.values:
        write_text(one)
    if found.has_more:
        total = "" if found.total is None else f" of {found.total:g}"
        complain(f"{len(found.values)}{total} suggestions are shown", level="note")
    return Exit.OK


def reference(name: str) -> Any:
    """Return what the protocol calls a name: a prompt, or a template of resources."""
    from wirespeed.types import PromptRef, ResourceRef

    return ResourceRef(name) if "://" in name or "{" in name else PromptRef(name)
