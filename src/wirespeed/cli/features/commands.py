"""The commands that use a server: list, inspect, call, read, prompt, complete, subscribe, tasks,
skill."""

from __future__ import annotations

import inspect as _inspect
from typing import Any

import click

from wirespeed.cli.failures import usage
from wirespeed.cli.grammar import (
    CallCommand,
    InspectCommand,
    TargetCommand,
    WatchCommand,
    asking_options,
    further_in,
    named_in,
    options_of,
    port_option,
    takes,
    target_only,
    trace_option,
)

TARGET_HELP = """
\b
TARGET is one of
  http://HOST[:PORT][/PATH], https://…, ws://…, wss://…
  unix:PATH, tcp://HOST:PORT
  server.py[:NAME]   a file with a Server: started by "wirespeed serve"
  file.json[#NAME]   a server of an mcpServers configuration
  -- COMMAND ARGS…   a program; it gets this shell's environment
"""


def _choices(settings: dict[str, Any], as_json: bool) -> Any:
    """Take the options of `asking_options` out of the settings."""
    from wirespeed.cli.features.calls import Choices

    names = ("answers", "sample_command", "roots", "folder")
    return Choices(**{name: settings.pop(name) for name in names}, as_json=as_json)


def _mcp_only(settings: dict[str, Any], name: str) -> None:
    if settings["lite"]:
        raise usage(f"wirespeed {name} is for MCP: a LiteMCP server has one tool, and nothing else")


@click.command(
    "list",
    cls=TargetCommand,
    short_help="List what a server has: tools, resources, prompts.",
    options_metavar="[OPTIONS]",
    epilog="\b\nExamples:\n"
    "  wirespeed list server.py\n"
    "  wirespeed list server.py --long\n"
    "  wirespeed list mcp.json#time --tools\n"
    "  wirespeed list wss://tools.example/mcp --token-file ~/.tools-token\n"
    "  wirespeed list --json -- npx -y some-server --its-option",
)
@takes("TARGET")
@click.option("-l", "--long", is_flag=True, help="Show descriptions, rules, fields and hints.")
@click.option("--tools", is_flag=True, help="List tools only; with others of these, those.")
@click.option("--resources", is_flag=True, help="List resources.")
@click.option("--templates", is_flag=True, help="List templates of resources.")
@click.option("--prompts", is_flag=True, help="List prompts.")
@click.option("--skills", is_flag=True, help="List skills.")
@trace_option
def list_(
    words: tuple[str, ...],
    command: list[str] | None,
    as_json: bool,
    long: bool,
    **settings: Any,
) -> int:
    """List what a server has: tools with their parameters, resources, templates of resources,
    prompts, and skills."""
    names = ("tools", "resources", "templates", "prompts", "skills")
    wanted = {name: settings.pop(name) for name in names}
    kinds = tuple(name for name, asked in wanted.items() if asked)
    word = target_only(words, command, "list")
    if settings["lite"]:
        from wirespeed.cli.lite import list_tools

        return list_tools(options_of(command, word, settings), as_json=as_json)
    from wirespeed.cli.features.lists import list_features

    options = options_of(command, word, settings)
    return list_features(options, kinds, long=long, as_json=as_json)


@click.command(
    cls=InspectCommand,
    short_help="Show all of one tool, resource or prompt, or a page.",
    epilog="\b\nExamples:\n"
    "  wirespeed inspect server.py search\n"
    "  wirespeed inspect mcp.json#notes 'note://{id}'\n"
    "  wirespeed inspect --json -- python server.py -- search\n"
    "  wirespeed inspect --web https://tools.example/mcp\n"
    "  wirespeed inspect --web -- npx -y some-server",
)
@takes("TARGET [NAME]")
@click.option("--web", is_flag=True, help="Serve a page on this machine that uses the server.")
@port_option
@trace_option
def inspect(
    words: tuple[str, ...],
    command: list[str] | None,
    as_json: bool,
    web: bool,
    port: int,
    **settings: Any,
) -> int:
    """Show all of one tool, resource, template or prompt of a server: descriptions, parameters with
    their rules and nested fields, the result, and hints.

    With --web there is no NAME: a page on this machine shows all, and calls tools, reads resources
    and answers questions. Its URL is printed, and has a secret that is new at each start.
    """
    if web:
        word = target_only(words, command, "inspect --web")
        _mcp_only(settings, "inspect --web")
        if as_json or settings["trace"]:
            raise usage(f"--web has a page, so {'--json' if as_json else '--trace'} does nothing")
        from wirespeed.cli.inspector.run import inspect_on_page

        return inspect_on_page(options_of(command, word, settings), port)
    if port:
        raise usage("--port is for the page of --web")
    word, name, rest = named_in(words, command, "inspect", "NAME")
    if rest:
        raise usage(f"one NAME is enough; there is {rest[0]!r} after it")
    _mcp_only(settings, "inspect")
    from wirespeed.cli.features.lists import inspect as work

    return work(options_of(command, word, settings), name, as_json=as_json)


@click.command(
    cls=CallCommand,
    short_help="Call a tool of a server.",
    epilog="\b\nExamples:\n"
    "  wirespeed call server.py add a=1 b=2\n"
    '  wirespeed call server.py add \'{"a": 1, "b": 2}\'\n'
    "  wirespeed call mcp.json#time get_current_time @arguments.json\n"
    '  wirespeed call server.py order item=tea --answer \'{"size": "large"}\'\n'
    "  wirespeed call server.py summarize --sample-command 'llm -m small'\n"
    '  wirespeed call -- python server.py -- add \'{"a": 1, "b": 2}\'\n'
    "  wirespeed call --lite ws://127.0.0.1:8765/add add '[1, 2]'",
)
@takes("TARGET TOOL [JSON|NAME=VALUE…]")
@asking_options
@click.option("--task", "as_task", is_flag=True, help="Start a task, and print its ID.")
def call(
    words: tuple[str, ...],
    command: list[str] | None,
    as_json: bool,
    as_task: bool,
    **settings: Any,
) -> int:
    """Call a tool and print the content of its result.

    Arguments are words: NAME=VALUE for a text, or for what the tool takes there; NAME:=JSON for
    any JSON, NAME:=@FILE from a file. Or they are one JSON object: a text, - for stdin, or @FILE
    for a file; without JSON, {}. With --lite it may be an array with the arguments in the order of
    the parameters.
    A command begins after the first -- and ends at the last --; TOOL and its arguments follow.
    Options go before the first -- or after the last.
    """
    word, tool, rest = named_in(words, command, "call", "TOOL JSON")
    choices = _choices(settings, as_json)
    if settings["lite"]:
        from wirespeed.cli.lite import call as lite_work

        if as_task or choices.answers or choices.sample_command or choices.roots:
            raise usage("LiteMCP has no tasks and no questions: leave these options out")
        return lite_work(options_of(command, word, settings), tool, rest, as_json=as_json)
    from wirespeed.cli.features.calls import call as work

    return work(options_of(command, word, settings), tool, rest, choices, as_task=as_task)


@click.command(
    cls=CallCommand,
    short_help="Read a resource of a server.",
    epilog="\b\nExamples:\n"
    "  wirespeed read server.py note://1\n"
    "  wirespeed read server.py 'note://{id}' id=1\n"
    "  wirespeed read mcp.json#photos photo://latest > latest.png",
)
@takes("TARGET URI [NAME=VALUE…]")
@asking_options
def read(words: tuple[str, ...], command: list[str] | None, as_json: bool, **settings: Any) -> int:
    """Read a resource and print its contents: texts, or bytes as they are into a pipe.

    With NAME=VALUE, URI is a template of resources (RFC 6570), and these are its variables.
    """
    word, uri, rest = named_in(words, command, "read", "URI")
    _mcp_only(settings, "read")
    choices = _choices(settings, as_json)
    from wirespeed.cli.features.calls import read as work

    return work(options_of(command, word, settings), uri, rest, choices)


@click.command(
    cls=CallCommand,
    short_help="Show the messages of a prompt.",
    epilog="\b\nExamples:\n"
    "  wirespeed prompt server.py greet name=Ann\n"
    '  wirespeed prompt server.py greet \'{"name": "Ann"}\' --json',
)
@takes("TARGET NAME [JSON|NAME=VALUE…]")
@asking_options
def prompt(
    words: tuple[str, ...], command: list[str] | None, as_json: bool, **settings: Any
) -> int:
    """Print the messages of a prompt. The arguments of prompts are texts."""
    word, name, rest = named_in(words, command, "prompt", "NAME")
    _mcp_only(settings, "prompt")
    choices = _choices(settings, as_json)
    from wirespeed.cli.features.calls import prompt as work

    return work(options_of(command, word, settings), name, rest, choices)


@click.command(
    cls=CallCommand,
    short_help="Ask for suggestions for an argument.",
    epilog="\b\nExamples:\n"
    "  wirespeed complete server.py greet name An\n"
    "  wirespeed complete server.py 'repo://{owner}/{name}' name wire owner=me",
)
@takes("TARGET NAME ARGUMENT [VALUE] [NAME=VALUE…]")
@trace_option
def complete(
    words: tuple[str, ...], command: list[str] | None, as_json: bool, **settings: Any
) -> int:
    """Print the server's suggestions for an argument of a prompt, or for a variable of a template.

    NAME is the prompt or the template, VALUE what is typed so far. NAME=VALUE are arguments that
    have their values already.
    """
    word, name, rest = named_in(words, command, "complete", "NAME ARGUMENT")
    if not rest:
        raise usage("ARGUMENT is missing: the argument of the prompt, or the variable of the URI")
    _mcp_only(settings, "complete")
    from wirespeed.cli.features.calls import complete as work

    options = options_of(command, word, settings)
    return work(options, name, rest[0], rest[1:], as_json=as_json)


@click.command(
    cls=WatchCommand,
    short_help="Watch the changes of a server.",
    epilog="\b\nExamples:\n"
    "  wirespeed subscribe server.py\n"
    "  wirespeed subscribe https://tools.example/mcp note://1 --read\n"
    "  wirespeed subscribe --tools --count 1 https://tools.example/mcp",
)
@takes("TARGET [URI…]")
@click.option("--tools", is_flag=True, help="Watch the list of tools.")
@click.option("--prompts", is_flag=True, help="Watch the list of prompts.")
@click.option("--resources", is_flag=True, help="Watch the list of resources.")
@click.option("--read", is_flag=True, help="Print a resource when it changed.")
@click.option(
    "--count", type=click.IntRange(1), metavar="N", help="End after this number of changes."
)
@trace_option
def subscribe(
    words: tuple[str, ...],
    command: list[str] | None,
    as_json: bool,
    read: bool,
    count: int | None,
    **settings: Any,
) -> int:
    """Print a line for each change: of the resources with these URIs, or of the lists; without
    either, of all lists whose changes the server reports. Ctrl-C ends the command."""
    lists = [name for name in ("tools", "prompts", "resources") if settings.pop(name)]
    word, uris = further_in(words, command, "subscribe")
    _mcp_only(settings, "subscribe")
    from wirespeed.cli.features.changes import subscribe as work

    options = options_of(command, word, settings)
    return work(options, uris, lists, count=count, read=read, as_json=as_json)


@click.command(
    cls=WatchCommand,
    short_help="Show the tasks of a server.",
    epilog="\b\nExamples:\n"
    "  wirespeed call --task https://tools.example/mcp crawl url=https://example.org\n"
    "  wirespeed tasks https://tools.example/mcp 8d1c --wait",
)
@takes("TARGET [ID]")
@asking_options
@click.option("--wait", is_flag=True, help="Wait for the result of the task, and print it.")
@click.option("--cancel", is_flag=True, help="Cancel the task.")
def tasks(
    words: tuple[str, ...],
    command: list[str] | None,
    as_json: bool,
    wait: bool,
    cancel: bool,
    **settings: Any,
) -> int:
    """List the tasks of a server (2025-11-25), or show, await or cancel the one with this ID."""
    word, rest = further_in(words, command, "tasks")
    if len(rest) > 1:
        raise usage(f"one ID is enough; there is {rest[1]!r} after it")
    _mcp_only(settings, "tasks")
    choices = _choices(settings, as_json)
    from wirespeed.cli.features.tasks import tasks as work

    options = options_of(command, word, settings)
    return work(options, rest[0] if rest else None, choices, wait=wait, cancel=cancel)


_SKILL_ACTIONS = ("get", "verify", "list", "diff", "approve", "revoke")


@click.command(
    cls=WatchCommand,
    short_help="Get, verify or approve the skills of a server.",
    epilog="\b\nExamples:\n"
    "  wirespeed list --skills server.py\n"
    "  wirespeed skill get server.py skill://refunds/SKILL.md\n"
    "  wirespeed skill get https://tools.example/mcp skill://refunds/SKILL.md --to ./refunds\n"
    "  wirespeed skill verify https://tools.example/mcp\n"
    "  wirespeed skill list proxy.json#shop\n"
    "  wirespeed skill approve proxy.json#shop skill://refunds/SKILL.md --reviewed ./refunds",
)
@takes("get TARGET URI | verify TARGET | list TARGET | diff|approve|revoke TARGET URI")
@click.option("--to", "folder", metavar="FOLDER", help="Write the skill into this new folder.")
@click.option(
    "--reviewed", metavar="FOLDER", help="Approve the skill if its files are those of this folder."
)
@click.option("--approvals", metavar="FILE", help="The approvals; by default those of the proxy.")
@click.option("--server", metavar="NAME", help="What the proxy calls the server.")
@trace_option
def skill(
    words: tuple[str, ...],
    command: list[str] | None,
    as_json: bool,
    folder: str | None,
    reviewed: str | None,
    approvals: str | None,
    server: str | None,
    **settings: Any,
) -> int:
    """Get a skill: print its SKILL.md, or write all its files into a new folder. Verify: read every
    file of every listed skill.

    Each file is compared with the size and the digest in the skill's entry, and the front matter of
    SKILL.md with the entry, before anything is printed or written. That shows that a server is
    consistent, not that its skills can be trusted.

    List, diff, approve, revoke: what a proxy whose servers have skills = "approved" shows of them.
    TARGET is a proxy's FILE#NAME, or another one with --approvals and --server.
    """
    action = words[0] if words else ""
    if action not in _SKILL_ACTIONS:
        raise usage(f"say what to do: skill {', '.join(_SKILL_ACTIONS)}; not {action!r}")
    name = f"skill {action}"
    _mcp_only(settings, "skill")
    if folder is not None and action != "get":
        raise usage("--to is for skill get")
    if reviewed is not None and action != "approve":
        raise usage("--reviewed is for skill approve")
    if action in ("get", "verify"):
        if approvals is not None or server is not None:
            raise usage("--approvals and --server are for skill list, diff, approve and revoke")
        from wirespeed.cli.features.skills import get, verify

        if action == "verify":
            word = target_only(words[1:], command, name)
            return verify(options_of(command, word, settings), as_json=as_json)
        word, uri, rest = named_in(words[1:], command, name, "URI")
        _only_one(rest)
        return get(options_of(command, word, settings), uri, folder, as_json=as_json)

    from wirespeed.cli.features import approvals as of_proxy

    if action == "list":
        word = target_only(words[1:], command, name)
        kept = of_proxy.Approvals.of(word, approvals, server)
        return of_proxy.list_skills(options_of(command, word, settings), kept, as_json=as_json)
    word, uri, rest = named_in(words[1:], command, name, "URI")
    kept = of_proxy.Approvals.of(word, approvals, server)
    if action == "revoke":
        return of_proxy.revoke(kept, [uri, *rest], as_json=as_json)
    options = options_of(command, word, settings)
    if action == "approve":
        if reviewed is not None:
            _only_one(rest)
        return of_proxy.approve(options, kept, [uri, *rest], reviewed, as_json=as_json)
    _only_one(rest)
    return of_proxy.diff(options, kept, uri, as_json=as_json)


def _only_one(rest: list[str]) -> None:
    """Failure (2): there is more than one URI."""
    if rest:
        raise usage(f"one URI is enough; {rest[0]!r} follows it")


COMMANDS = (list_, inspect, call, read, prompt, complete, subscribe, tasks, skill)

for _command in COMMANDS:
    _command.help = f"{_inspect.cleandoc(_command.help or '')}\n{TARGET_HELP}"
