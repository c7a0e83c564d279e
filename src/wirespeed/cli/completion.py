"""Words for the shell: servers of a file, names of a server, and names of arguments.

To know the names the server is started, or connected to, as the command itself would. A failure
gives no words, and no message.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

if TYPE_CHECKING:
    from wirespeed import Client
    from wirespeed.cli.features.lists import Features

_TIME = 5.0  # seconds for a server to answer
_SETTINGS = ("token", "token_file", "headers", "ca", "era")
# What the words after TARGET are, by command.
_NAMES = {"call": "tools", "bench": "tools", "read": "uris", "subscribe": "uris",
          "prompt": "prompts", "complete": "references", "inspect": "all"}  # fmt: skip


class OpenItem(CompletionItem[str]):
    """A word that goes on behind it: the shell adds no blank."""

    def __init__(self, value: str, help: str | None = None) -> None:
        super().__init__(value, type="open", help=help)


def words(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """Return what may be typed next in a command with a TARGET."""
    before = list(ctx.params.get("words") or ())
    command = ctx.meta.get("wirespeed.command")
    if command is None and not before:
        return targets(incomplete)
    kind = _NAMES.get(ctx.info_name or "")
    if kind is None or ctx.params.get("lite"):
        return []
    word = None if command is not None else before.pop(0)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(BaseException):
        return asyncio.run(_ask(ctx, kind, word, command, before, incomplete))
    return []


def targets(incomplete: str) -> list[CompletionItem[str]]:
    """Return the servers of a configuration behind ``#``; else let the shell complete files."""
    path, sharp, _ = incomplete.partition("#")
    if not sharp:
        return [CompletionItem(incomplete, type="file")]
    from wirespeed import config

    with contextlib.suppress(Exception):
        names = (f"{path}#{name}" for name in config.load(os.path.expanduser(path)))
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return []


def hosts(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """Return the names of hosts; behind one let the shell complete files."""
    from wirespeed.cli.hosts.known import HOSTS

    if ctx.params.get("words") or ctx.params.get("host"):
        return [CompletionItem(incomplete, type="file")]
    found = [CompletionItem(name, help=host.title) for name, host in HOSTS.items()]
    return list(_matching(found, incomplete)) or [CompletionItem(incomplete, type="file")]


async def _ask(
    ctx: click.Context,
    kind: str,
    word: str | None,
    command: list[str] | None,
    before: list[str],
    incomplete: str,
) -> list[CompletionItem[str]]:
    from wirespeed.cli.features.lists import features_of
    from wirespeed.cli.session import Options, connected

    # a server that is started by this command line would complete, too, and start a server
    os.environ.pop("_WIRESPEED_COMPLETE", None)
    settings = {name: ctx.params[name] for name in _SETTINGS if ctx.params.get(name) is not None}
    options = Options(word, command, timeout=_TIME, quiet_server=True, **settings)
    async with asyncio.timeout(_TIME), connected(options) as client:
        found = await features_of(client)
        if not before or kind == "uris":
            return list(_matching(_names(kind, found), incomplete))
        if kind == "tools":
            return list(_matching(_of_tool(found, before[0]), incomplete))
        if kind == "prompts":
            return list(
                _matching(await _of_prompt(client, found, before[0], incomplete), incomplete)
            )
        if kind == "references" and len(before) == 1:
            return list(_matching(_arguments(found, before[0]), incomplete))
    return []


def _matching(
    items: Iterable[CompletionItem[str]], incomplete: str
) -> Iterable[CompletionItem[str]]:
    return (item for item in items if item.value.startswith(incomplete))


def _first_line(text: str | None) -> str | None:
    return text.strip().partition("\n")[0][:80] if text and text.strip() else None


def _names(kind: str, found: Features) -> Iterable[CompletionItem[str]]:
    """The words that name something of a server."""
    if kind in ("tools", "all"):
        for tool in found.tools or ():
            yield CompletionItem(tool.name, help=_first_line(tool.description))
    if kind in ("prompts", "all", "references"):
        for prompt in found.prompts or ():
            yield CompletionItem(prompt.name, help=_first_line(prompt.description))
    if kind in ("uris", "all"):
        for resource in found.resources or ():
            yield CompletionItem(resource.uri, help=resource.display_name)
    if kind != "tools" and kind != "prompts":
        for template in found.templates or ():
            yield CompletionItem(template.uri_template, help=template.display_name)


def _of_tool(found: Features, name: str) -> Iterable[CompletionItem[str]]:
    """``name=`` for each parameter of a tool, and ``name=value`` for each choice."""
    from wirespeed.cli.features.arguments import choices_of, resolved

    tool = next((tool for tool in found.tools or () if tool.name == name), None)
    schema = None if tool is None else tool.input_schema
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for key, part in (properties if isinstance(properties, dict) else {}).items():
        whole = resolved(part, schema)
        help_text = whole.get("description") if isinstance(whole, dict) else None
        yield OpenItem(f"{key}=", _first_line(help_text if isinstance(help_text, str) else None))
        for value in choices_of(part, schema):
            yield CompletionItem(f"{key}={value}")


async def _of_prompt(
    client: Client, found: Features, name: str, incomplete: str
) -> list[CompletionItem[str]]:
    """``name=`` for each argument of a prompt; the server's suggestions behind it."""
    key, equals, value = incomplete.partition("=")
    if equals and "completions" in client.server_capabilities:
        from wirespeed.types import PromptRef

        offered = await client.complete(PromptRef(name), key, value)
        return [CompletionItem(f"{key}={one}") for one in offered.values]
    prompt = next((one for one in found.prompts or () if one.name == name), None)
    return [
        OpenItem(f"{argument.name}=", _first_line(argument.description))
        for argument in (prompt.arguments if prompt is not None else ())
    ]


def _arguments(found: Features, name: str) -> Iterable[CompletionItem[str]]:
    """The arguments of a prompt, or the variables of a template, by name."""
    from wirespeed.protocol.uri_template import UriTemplate

    for prompt in found.prompts or ():
        if prompt.name == name:
            for argument in prompt.arguments:
                yield CompletionItem(argument.name, help=_first_line(argument.description))
    if "{" in name:
        for variable in UriTemplate(name).names:
            yield CompletionItem(variable)


# -- shells ---------------------------------------------------------------------------------------

# Readline breaks words at ":" and "=", too: only what is behind the last of them is replaced.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local response type value
    response=$(env COMP_LINE="$COMP_LINE" COMP_POINT=$COMP_POINT \\
COMP_CURRENT="${COMP_WORDS[COMP_CWORD]}" %(complete_var)s=bash_complete $1)
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        else
            [[ $type == 'open' ]] && compopt -o nospace
            COMPREPLY+=("$value")
        fi
    done
    return 0
}

%(complete_func)s_setup() {
    complete -o nosort -F %(complete_func)s %(prog_name)s
}

%(complete_func)s_setup;
"""


class Bash(BashComplete):
    """bash, with words that contain ``=`` and ``:``."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """As of click, from the line as it was typed."""
        if "COMP_LINE" not in os.environ:
            return super().get_completion_args()
        line = os.environ["COMP_LINE"].encode()[: int(os.environ["COMP_POINT"])].decode()
        typed = split_arg_string(line)
        if line[-1:].isspace() or not typed:
            typed.append("")
        return typed[1:-1], typed[-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        """As of click, without what stands before the word of readline."""
        whole = self.get_completion_args()[1] if "COMP_LINE" in os.environ else ""
        current = os.environ.get("COMP_CURRENT", whole)
        if current and all(char in "=:" for char in current):
            current = ""
        before = len(whole) - len(current) if whole.endswith(current) else 0
        value = item.value if item.type in ("file", "dir") else item.value[before:]
        return f"{item.type},{value}"


class Zsh(ZshComplete):
    """zsh, without a blank behind words that go on."""

    source_template = ZshComplete.source_template.replace(
        '        elif [[ "$type" == "dir" ]]; then',
        '        elif [[ "$type" == "open" ]]; then\n'
        '            compadd -S "" -U -V unsorted -- "$key"\n'
        '        elif [[ "$type" == "dir" ]]; then',
    )

    def format_completion(self, item: CompletionItem[str]) -> str:
        """As of click; a word that goes on has no description."""
        if item.type == "open":
            return f"open\n{item.value}\n_"
        return super().format_completion(item)


class Fish(FishComplete):
    """fish, which adds no blank behind ``=`` by itself."""

    def format_completion(self, item: CompletionItem[str]) -> str:
        """As of click."""
        if item.type == "open":
            item = CompletionItem(item.value, help=item.help)
        return super().format_completion(item)


def register() -> None:
    """Let click use these shells."""
    for shell in (Bash, Zsh, Fish):
        add_completion_class(shell)
