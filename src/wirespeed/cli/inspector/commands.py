"""The command ``dev``."""

from __future__ import annotations

from typing import Any

import click

from wirespeed.cli.failures import usage
from wirespeed.cli.grammar import (
    LOG_LEVELS,
    Command,
    complete_target,
    debug_option,
    port_option,
    seconds,
)


@click.command(
    cls=Command,
    short_help="Use a file's server on a page, and start it again on save.",
    epilog="\b\nExamples:\n"
    "  wirespeed dev server.py\n"
    "  wirespeed dev server.py:mcp --port 6280 --watch prompts/\n"
    "  wirespeed dev server.py --on http://127.0.0.1:8000/mcp",
)
@click.argument("file", metavar="FILE.py[:NAME]", type=str, shell_complete=complete_target)
@port_option
@click.option(
    "--watch",
    "watched",
    multiple=True,
    metavar="PATH",
    help="Also start the server again when this file, or a Python file of this folder, was "
    "saved; may be repeated.",
)
@click.option(
    "--on",
    "urls",
    multiple=True,
    metavar="URL",
    help="Also serve other clients of this machine: http://127.0.0.1:PORT/PATH, ws://…, tcp:// or "
    "unix:PATH; may be repeated.",
)
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    callback=seconds,
    help="Time for the start of the server and for its lists; default 60, 0 for no limit.",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    metavar="LEVEL",
    help=f"Ask for the server's log messages: {', '.join(LOG_LEVELS)}; default info.",
)
@debug_option
def dev(
    file: str, port: int, watched: tuple[str, ...], urls: tuple[str, ...], **settings: Any
) -> int:
    """Start the server of a Python file, and serve a page on this machine that uses it: tools with
    forms, resources, prompts, questions of the server, its messages, log and times.

    The URL of the page is printed. It has a secret that is new at each start. The server is started
    again when a Python file below its folder was saved. It takes the place of the one before it
    when it is ready; what the server kept in memory is gone then, and the page says so.
    """
    if not file:
        raise usage("FILE.py is empty")
    from wirespeed.cli.inspector.run import dev as work
    from wirespeed.cli.session import Options

    return work(Options(file, None, **settings), port, watched, urls)
