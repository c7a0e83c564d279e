"""The commands of the command line.

The other modules do the work of a command. A command loads its module when it runs, so that
``--help`` is quick.
"""

from __future__ import annotations

import inspect
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from wirespeed import __version__
from wirespeed.cli import failures
from wirespeed.cli.bench.commands import bench, bench_target, record
from wirespeed.cli.failures import Exit, usage
from wirespeed.cli.features.commands import COMMANDS, TARGET_HELP
from wirespeed.cli.grammar import (
    HTTP_TARGET,
    Command,
    CommandGroup,
    TargetCommand,
    ca_option,
    complete_target,
    debug_option,
    hint,
    http_options,
    json_option,
    listening_options,
    options_of,
    seconds,
    takes,
    target_only,
    token_file_option,
    token_option,
    trace_option,
    tracing_option,
)
from wirespeed.cli.hosts.commands import HOST_COMMANDS
from wirespeed.cli.inspector.commands import dev

_EPILOG = """
\b
Exit codes:
    0  done
    1  the tool failed (isError), or the demo got a wrong answer
    2  the command line is wrong
    3  the server cannot be started or reached, or ended too early
    4  the server answered with an error, or its answer is not valid
    5  timed out
   70  a fault of wirespeed itself; --debug shows where
   74  the output cannot be written
  130  interrupted (Ctrl-C); 128 + N for another signal N
       ("serve" then shuts down in order: 0)

\b
With --json, stdout has the result or {"error": {"type", "message", …}}.

\b
Shell completion:
  bash   eval "$(_WIRESPEED_COMPLETE=bash_source wirespeed)"
  zsh    eval "$(_WIRESPEED_COMPLETE=zsh_source wirespeed)"
  fish   _WIRESPEED_COMPLETE=fish_source wirespeed | source
"""


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a character that the locale lacks is not a failure
            stream.reconfigure(errors="backslashreplace")
    if "_WIRESPEED_COMPLETE" in os.environ:
        from wirespeed.cli import completion

        completion.register()
    try:
        status = cli.main(list(argv), prog_name="wirespeed", standalone_mode=False)
        return int(status or 0)
    except click.ClickException as exc:
        ctx = exc.ctx if isinstance(exc, click.UsageError) else None
        failure = usage(exc.format_message().rstrip("."))
        if ctx is not None:
            hint(failure, ctx)
        return failures.report(failure, json=_wants_json(argv), debug=False)
    except click.Abort:
        return failures.report(KeyboardInterrupt(), json=False, debug=False)


def _wants_json(argv: Sequence[str]) -> bool:
    """Whether a command line that could not be parsed has ``--json``, outside of COMMAND."""
    words = list(argv)
    if "--" in words:
        first, last = words.index("--"), len(words) - 1 - words[::-1].index("--")
        words = words[:first] + (words[last + 1 :] if last > first else [])
    return "--json" in words


# -- commands --------------------------------------------------------------------------------------


@click.group(
    cls=CommandGroup,
    epilog=_EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="wirespeed", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """MCP tools at wire speed: serve them, list them, call them."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(Exit.USAGE)


@cli.command(
    cls=Command,
    short_help="Serve a file's tools, or skills, on stdio, HTTP, WebSocket or a socket.",
    epilog="\b\nExamples:\n"
    "  wirespeed serve server.py\n"
    "  wirespeed serve server.py --on http://127.0.0.1:8000/mcp\n"
    "  wirespeed serve server.py --on ws://127.0.0.1:8765/mcp\n"
    "  wirespeed serve server.py --on unix:/run/tools.sock\n"
    "  wirespeed serve server.py --on wss://0.0.0.0:443/mcp --workers 4 \\\n"
    "      --certfile cert.pem --keyfile key.pem --host-name tools.example\n"
    "  wirespeed serve --skills ./skills --on http://127.0.0.1:8000/mcp",
)
@click.argument(
    "file", metavar="[FILE.py[:NAME]]", type=str, required=False, shell_complete=complete_target
)
@click.option(
    "--on",
    "urls",
    multiple=True,
    metavar="URL",
    help="Listen on http://HOST:PORT/PATH, https://…, ws://…, wss://…, unix:PATH or "
    "tcp://HOST:PORT, port 0 for a free one; may be repeated; without --on: stdio.",
)
@click.option(
    "--skills",
    multiple=True,
    metavar="FOLDER",
    help="Serve the skills of this folder, alone or besides what the file serves; may be repeated.",
)
@click.option("--lite", is_flag=True, help="Serve the LiteMCP servers of the file.")
@click.option(
    "--cluster",
    metavar="URL",
    help="The Valkey or Redis that several hosts share, as redis://HOST, rediss://HOST, "
    "redis+sentinel://HOST,HOST/NAME or redis+cluster://HOST,HOST; with a password rather in "
    "WIRESPEED_CLUSTER.",
)
@click.option(
    "--host-url",
    metavar="URL",
    help="HTTP, with --cluster: http://HOST:PORT or https://HOST:PORT at which other hosts reach "
    "this one; any host answers requests of any session then.",
)
@click.option(
    "--drain-delay",
    type=click.FloatRange(0, 86_400),
    default=0.0,
    metavar="SECONDS",
    help="HTTP: how long to serve on after SIGTERM, with 503 at /healthz, so that load balancers "
    "look elsewhere.",
)
@click.option(
    "--metrics",
    metavar="URL",
    help="Also serve metrics for Prometheus at http://HOST:PORT/PATH.",
)
@click.option(
    "--metrics-token-file",
    metavar="FILE",
    help="The token for --metrics; or in WIRESPEED_METRICS_TOKEN. On loopback none is needed.",
)
@tracing_option
@listening_options
@http_options
@debug_option
def serve(
    file: str | None,
    urls: tuple[str, ...],
    skills: tuple[str, ...],
    lite: bool,
    cluster: str | None,
    metrics: str | None,
    metrics_token_file: str | None,
    tracing: bool,
    log_level: str | None,
    log_format: str | None,
    **settings: Any,
) -> int:
    """Serve the tools of a Python file on stdin and stdout, or at the URLs of --on.

    The file is imported, not run as __main__. NAME is the variable of the Server or LiteServer.
    Without NAME, it is the only server that is not mounted on another server, or the one in a
    variable called server, mcp, app or main. On HTTP and WebSocket, the variable may be a dict of
    several servers, {"/path": server}.

    Log lines go to stderr. --log-level and --log-format take precedence over logging.basicConfig in
    the file.
    """
    from wirespeed.cli.serve import Settings, Watching
    from wirespeed.cli.serve import serve as work

    return work(
        file,
        urls,
        skills=skills,
        lite=lite,
        cluster=cluster,
        settings=Settings(**settings),
        log_level=log_level,
        log_format=log_format,
        watching=Watching(metrics, metrics_token_file, tracing),
    )


cli.add_command(dev)


@cli.command(
    cls=TargetCommand,
    short_help="Put many clients in front of servers.",
    epilog="\b\nExamples:\n"
    "  wirespeed proxy --listen ws://127.0.0.1:8765/mcp -- uvx mcp-server-time\n"
    "  wirespeed proxy --listen unix:/run/tools.sock --isolation shared -- my-server --fast\n"
    "  wirespeed proxy --config proxy.toml",
)
@click.option(
    "--listen",
    "urls",
    multiple=True,
    metavar="URL",
    help="Listen on ws://HOST:PORT/PATH, http://…, their secure forms, unix:PATH or "
    "tcp://HOST:PORT, port 0 for a free one; may be repeated; without --listen: the URLs of "
    "--config, or stdio.",
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="The servers, and how to use them: JSON with mcpServers, or the same in TOML.",
)
@click.option("--check", is_flag=True, help="Check FILE, and do not serve.")
@click.option(
    "--catalog",
    is_flag=True,
    help="With --check: start the servers, and say how many tokens their lists of tools take.",
)
@click.option(
    "--isolation",
    type=click.Choice(("auto", "session", "shared", "pool")),
    help="auto (default): session for clients of revisions up to 2025-11-25, pool for requests of "
    "2026-07-28. session: a server for each client. shared: one for all clients. "
    "pool: up to four for all clients.",
)
@click.option(
    "--admin",
    metavar="URL",
    help="Also listen on http://HOST:PORT for /healthz, /readyz, /metrics, /status and a page.",
)
@click.option(
    "--admin-token-file",
    metavar="FILE",
    help="The token for --admin; or in WIRESPEED_ADMIN_TOKEN; otherwise one is made and shown.",
)
@tracing_option
@listening_options
@debug_option
@click.pass_context
def proxy(
    ctx: click.Context,
    /,
    urls: tuple[str, ...],
    file: str | None,
    check: bool,
    catalog: bool,
    isolation: Any,
    admin: str | None,
    admin_token_file: str | None,
    tracing: bool,
    log_level: str | None,
    log_format: str | None,
    **settings: Any,
) -> int:
    """Pass the requests of many clients to the server that -- COMMAND starts, or to those of FILE.

    Clients may use the same ids and progress tokens. A server that crashes is started again where
    all clients share it; otherwise its client is disconnected.
    """
    from wirespeed.cli.proxy import run_proxy as work
    from wirespeed.cli.serve import Settings

    return work(
        ctx.meta["wirespeed.command"],
        urls,
        file=file,
        check=check,
        catalog=catalog,
        isolation=isolation,
        admin=admin,
        admin_token_file=admin_token_file,
        tracing=tracing,
        settings=Settings(**settings),
        log_level=log_level,
        log_format=log_format,
    )


@cli.command(
    cls=Command,
    short_help="Watch a proxy.",
    epilog="\b\nExamples:\n"
    "  wirespeed top http://127.0.0.1:9464\n"
    "  wirespeed top http://127.0.0.1:9464 --json | jq .totals",
)
@click.argument("url")
@token_option
@token_file_option
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="Print once, as in a pipe.")
@json_option
@debug_option
def top(
    url: str, token: str | None, token_file: str | None, interval: float, once: bool, as_json: bool
) -> int:
    """Show what the proxy with an admin listener at URL does, the busiest server first; q ends
    it, and Ctrl-C."""
    from wirespeed.cli.top import top as work

    return work(
        url, token=token, token_file=token_file, interval=interval, once=once, as_json=as_json
    )


for _using in COMMANDS:
    cli.add_command(_using)

for _measuring in (bench, record, bench_target):
    cli.add_command(_measuring)


@cli.command(
    cls=Command,
    short_help="Log in to a server over HTTP.",
    epilog="\b\nExamples:\n"
    "  wirespeed login https://tools.example/mcp\n"
    "  wirespeed login https://tools.example/mcp --no-browser\n"
    "  wirespeed login https://tools.example/mcp --client-id 4f2a --scope tools:read\n"
    "  wirespeed login mcp.json#tools",
)
@click.argument("target", metavar=HTTP_TARGET, shell_complete=complete_target)
@click.option(
    "--client-id",
    metavar="ID",
    help="The id of a client that the authorization server knows; without it the client registers "
    "itself.",
)
@click.option(
    "--client-secret-file",
    metavar="FILE",
    help="Read the secret of that client from a file; another source is the variable "
    "WIRESPEED_CLIENT_SECRET.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="Ask for this scope, besides those that the server names; may be repeated.",
)
@click.option(
    "--redirect-uri",
    metavar="URI",
    help="Where the browser returns, if the authorization server knows one for the client; "
    "default http://127.0.0.1/callback, at a free port.",
)
@click.option(
    "--dpop",
    is_flag=True,
    help="Bind the tokens to a key that is stored with them (RFC 9449), if the authorization "
    "server can.",
)
@click.option(
    "--no-browser",
    is_flag=True,
    help="Print the address of the page instead of opening a browser. The address to which the "
    "page leads can be pasted.",
)
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    callback=seconds,
    help="Time for the person; default 300, 0 for no limit.",
)
@ca_option
@json_option
@debug_option
def login(target: str, as_json: bool, **settings: Any) -> int:
    """Log in to a server in the browser (OAuth 2.1), and store the tokens.

    Later commands with the same URL use the tokens, and renew them. The tokens are in a file that
    only this user can read. Without a browser, the address of the page is printed.
    """
    from wirespeed.cli.login import Choices
    from wirespeed.cli.login import login as work

    return work(target, Choices(**settings), as_json=as_json)


@cli.command(cls=Command, short_help="Forget the tokens of a server.")
@click.argument("target", metavar=HTTP_TARGET, shell_complete=complete_target)
@ca_option
@json_option
@debug_option
def logout(target: str, ca: str | None, as_json: bool) -> int:
    """Delete the tokens of "wirespeed login", and revoke them if the authorization server can."""
    from wirespeed.cli.login import logout as work

    return work(target, ca, as_json=as_json)


for _hosting in HOST_COMMANDS:
    cli.add_command(_hosting)


@cli.command(cls=TargetCommand, short_help="Show versions and limits, or facts about a server.")
@takes("[TARGET]")
@trace_option
def info(words: tuple[str, ...], command: list[str] | None, as_json: bool, **settings: Any) -> int:
    """Show facts about this installation; with TARGET, facts about the server."""
    from wirespeed.cli.info import info as work

    if command is None and not words:
        return work(None, as_json=as_json)
    word = target_only(words, command, "info")
    return work(options_of(command, word, settings), as_json=as_json)


@cli.command(cls=Command, short_help="Call a bundled server 20,000 times, and measure.")
@click.option(
    "--calls", type=click.IntRange(1, 10_000_000), default=20_000, show_default=True, metavar="N",
    help="How many calls.",
)  # fmt: skip
@click.option(
    "--in-flight", type=click.IntRange(1, 10_000), default=64, show_default=True, metavar="W",
    help="How many of them at once.",
)  # fmt: skip
@json_option
@debug_option
def demo(calls: int, in_flight: int, as_json: bool) -> int:
    """Start the bundled calculator server as a child, list its tools, call one, then measure many
    calls as "wirespeed bench" does, every answer checked. Then make at most 20,000 calls over a
    WebSocket, and one call in LiteMCP."""
    from wirespeed.cli.demo import demo as work

    return work(calls, in_flight, as_json=as_json)


info.help = f"{inspect.cleandoc(info.help or '')}\n{TARGET_HELP}"
