"""The commands for hosts: install, uninstall, discover."""

from __future__ import annotations

import inspect
from typing import Any

import click

from wirespeed.cli.failures import usage
from wirespeed.cli.grammar import (
    Command,
    TargetCommand,
    complete_host,
    debug_option,
    json_option,
    seconds,
)

_HOSTS_HELP = """
\b
HOST is one of
  claude-desktop, claude-code, cursor, vscode, codex, gemini, zed, opencode,
  copilot, windsurf, lm-studio
  FILE.json, FILE.toml   a file of another host, in its form
"""

_project_option = click.option(
    "--project",
    is_flag=True,
    help="The file of the project in this folder, not that of the user.",
)
_yes_option = click.option("-y", "--yes", is_flag=True, help="Write without a question.")
_dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show the difference, and write nothing."
)


@click.command(
    cls=TargetCommand,
    short_help="Add a server to Claude, Cursor, VS Code and others.",
    epilog="\b\nExamples:\n"
    "  wirespeed install claude-desktop server.py\n"
    "  wirespeed install claude-code server.py --project\n"
    "  wirespeed install cursor https://tools.example/mcp --key tools\n"
    "  wirespeed install codex --key time -- uvx mcp-server-time\n"
    "  wirespeed install vscode server.py --env NOTES_KEY --dry-run\n"
    "  wirespeed install --print server.py",
)
@click.argument("words", nargs=-1, metavar="HOST FILE.py[:NAME]|URL", shell_complete=complete_host)
@click.option("--key", metavar="KEY", help="The key of the server; by default the server's name.")
@_project_option
@click.option(
    "--env",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for the server; without VALUE that of this shell; may be repeated.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="A header for a server at a URL; may be repeated.",
)
@click.option("--print", "print_only", is_flag=True, help="Print the entry, and write nothing.")
@_dry_run_option
@_yes_option
@json_option
@debug_option
@click.pass_context
def install(
    ctx: click.Context, /, words: tuple[str, ...], print_only: bool, **settings: Any
) -> int:
    """Add the server of a file, a server at a URL, or a program behind -- to the file of a host.

    The difference is shown first; on a terminal you are asked. The file is replaced as a whole,
    its comments and its order stay, and a copy of it is kept beside it. A server that is there
    already changes nothing.

    Paths are absolute: those of this Python, which has the modules that the file imports, and of
    the file. The file is imported, so a file that cannot be served is an error here.
    """
    from wirespeed.cli.hosts import install as work

    command = ctx.meta["wirespeed.command"]
    needed = 1 if command is not None else 2
    if len(words) > needed:
        raise usage(f"HOST and one server are enough; there is {words[needed]!r} after them")
    choices = work.Choices(**settings)
    if print_only:
        if not words and command is None:
            raise usage("FILE.py or URL is missing")
        target = None if command is not None else words[-1]
        host = words[0] if len(words) == needed else None
        return work.show_entry(host, target, command, choices)
    if len(words) < needed:
        raise usage(_missing(words, command))
    return work.install(words[0], None if command is not None else words[1], command, choices)


def _missing(words: tuple[str, ...], command: list[str] | None) -> str:
    from wirespeed.cli.hosts.known import HOSTS

    if command is not None or (words and words[0] not in HOSTS):
        return f"HOST is missing: one of {', '.join(HOSTS)}"
    return "FILE.py or URL is missing" if words else "HOST and FILE.py are missing"


@click.command(
    cls=Command,
    short_help="Remove a server from a host.",
    epilog="\b\nExamples:\n"
    "  wirespeed uninstall claude-desktop notes\n"
    "  wirespeed uninstall cursor server.py --project",
)
@click.argument("host", shell_complete=complete_host)
@click.argument("name", metavar="KEY|FILE.py")
@_project_option
@_dry_run_option
@_yes_option
@json_option
@debug_option
def uninstall(host: str, name: str, **settings: Any) -> int:
    """Remove a server from the file of a host, by its key or by its file. The difference is shown
    first, and a copy of the file is kept."""
    from wirespeed.cli.hosts import install as work

    return work.uninstall(host, name, work.Choices(**settings))


@click.command(
    cls=Command,
    short_help="Show the servers that the hosts of this machine have.",
    epilog="\b\nExamples:\n"
    "  wirespeed discover\n"
    "  wirespeed discover --try\n"
    "  wirespeed discover --json | jq '.servers[].key'",
)
@click.option("--try", "tries", is_flag=True, help="Start or connect to each, and list its tools.")
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    callback=seconds,
    help="Time for each with --try; default 20, 0 for no limit.",
)
@json_option
@debug_option
def discover(tries: bool, as_json: bool, timeout: float | None) -> int:
    """Show the servers in the files of the hosts: of the user, and of the project in this folder.
    Nothing is started without --try."""
    from wirespeed.cli.hosts.discover import discover as work

    return work(tries=tries, as_json=as_json, timeout=timeout)


for _command in (install, uninstall):
    _command.help = f"{inspect.cleandoc(_command.help or '')}\n{_HOSTS_HELP}"

HOST_COMMANDS = (install, uninstall, discover)
