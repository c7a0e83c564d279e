"""The commands that measure: ``bench``, ``record`` and ``bench-target``."""

from __future__ import annotations

from typing import Any

import click

from wirespeed.cli.bench.options import (
    BenchCommand,
    bench_json_option,
    bench_options,
    check_replay,
    record_options,
    replay_options,
    target_options,
)
from wirespeed.cli.grammar import (
    Command,
    TargetCommand,
    complete_target,
    debug_option,
    http_options,
    json_option,
    listening_options,
    options_of,
    takes,
    target_only,
    tool_of,
)


@click.command(
    cls=Command,
    name="compare",
    epilog="\b\nExamples:\n"
    "  wirespeed bench compare before.json after.json\n"
    "  wirespeed bench compare versus.json",
)
@click.argument("reports", nargs=-1, metavar="A.json [B.json]", shell_complete=complete_target)
@json_option
@debug_option
def bench_compare(reports: tuple[str, ...], as_json: bool) -> int:
    """Compare two reports of bench --json, or the two targets of one with --versus.

    Shows the ratio of each figure, and the interval in which chance alone would leave it: runs
    that differ by less than their noise have no difference. Several rounds (--rounds) make the
    intervals narrower, and runs in turn (--versus) do so most.
    """
    from wirespeed.cli.bench.compare import compare as work

    return work(reports, as_json=as_json)


@click.command(
    cls=BenchCommand,
    further=[bench_compare],
    short_help="Measure a server under load.",
    epilog="\b\nExamples:\n"
    '  wirespeed bench server.py echo \'{"text": "$text:64"}\' --expect echo=text\n'
    "  wirespeed bench --calls 20000 --in-flight 16 -- python server.py -- \\\n"
    '      echo \'{"text": "$text:64"}\'\n'
    "  wirespeed bench --rate 5000 --duration 30 --connections 16 --json run.json \\\n"
    "      http://127.0.0.1:8000/mcp echo '{\"text\": \"hello\"}' --fail-if 'p99>5ms'\n"
    '  wirespeed bench --rate 1k..20k http://127.0.0.1:8000/mcp echo \'{"text": "hello"}\'\n'
    "  wirespeed bench --bytes 64,1k,64k --rounds 5 --versus 'python other.py' server.py \\\n"
    '      echo \'{"text": "$text"}\'\n'
    "  wirespeed bench --users users.toml --rate 100 -- python server.py\n"
    "  wirespeed bench --replay record.jsonl --speed 10 -- python server.py",
)
@takes("TARGET {TOOL [JSON]|--users FILE|--replay FILE}", json=bench_json_option)
@bench_options
@replay_options
def bench(words: tuple[str, ...], command: list[str] | None, **settings: Any) -> int:
    """Call a tool many times, and measure how long the answers take. Every answer is checked. With
    --users several kinds of users go through steps of their own. With --replay the requests of
    "wirespeed record" are asked again, and the answers compared with those of the record.

    Without --rate the loop is closed: each answer sends the next call, so that a slow server is
    asked less often. With --rate calls begin at their own times, and a latency is from that time
    on: a server that stalls shows it.

    In JSON, "$n" is the number of the call, "$text:64" a text of 64 random letters, "$text" one of
    each size of --bytes, "$choice:a|b" one of these, "$file:PATH" the text of a file; "$$" begins a
    string that begins with "$".

    Ctrl-C ends the run, and shows what was measured. "wirespeed bench compare A.json B.json"
    compares two reports.
    """
    from wirespeed.cli.bench.runs import Choices
    from wirespeed.cli.bench.runs import bench as work

    tool: str | None = None
    text: str | None = None
    if settings["users"] is None and settings["replay"] is None:
        word, tool, text = tool_of(words, command, "bench")
    else:
        word = target_only(words, command, "bench")
    if settings["replay"] is not None:
        check_replay(click.get_current_context())
    chosen = {name: settings.pop(name) for name in Choices.__dataclass_fields__}
    return work(options_of(command, word, settings), tool, text, Choices(**chosen))


@click.command(
    cls=TargetCommand,
    short_help="Write down what a client and a server say.",
    options_metavar="[OPTIONS] {--listen URL --to URL|-- COMMAND…}",
    epilog="\b\nExamples:\n"
    "  wirespeed record -o time.jsonl -- uvx mcp-server-time\n"
    "  wirespeed record -o r.jsonl --listen http://127.0.0.1:9000/mcp \\\n"
    "      --to https://tools.example/mcp\n"
    "  wirespeed record --fault drop=0.01,delay=5ms±2 -- uvx mcp-server-time",
)
@record_options
@debug_option
@click.pass_context
def record(ctx: click.Context, /, **settings: Any) -> int:
    """Stand between a client and the server that -- COMMAND starts, or that is at a URL, and write
    each message to a file. A host starts this command in place of the server's.

    "wirespeed bench --replay FILE" asks a server the same again. With --fault, messages meet faults
    on their way.
    """
    from wirespeed.cli.record import RecordChoices
    from wirespeed.cli.record import record as work

    return work(ctx.meta["wirespeed.command"], RecordChoices(**settings))


@click.command(
    "bench-target",
    cls=Command,
    short_help="Serve a tool to measure against.",
    epilog="\b\nExamples:\n"
    "  wirespeed bench-target --on http://127.0.0.1:8000/mcp --delay exp:5ms\n"
    "  wirespeed bench -- wirespeed bench-target --bytes 65536 -- \\\n"
    '      echo \'{"text": "$text:64"}\'',
)
@click.option(
    "--on",
    "urls",
    multiple=True,
    metavar="URL",
    help="Listen there, as serve does; may be repeated; without --on: stdio.",
)
@target_options
@listening_options
@http_options
@debug_option
def bench_target(
    urls: tuple[str, ...],
    tools: int,
    size: int,
    delay: str | None,
    progress: int,
    log_level: str | None,
    log_format: str | None,
    **settings: Any,
) -> int:
    """Serve a tool echo, which returns its argument text, on stdin and stdout or at the URLs of
    --on."""
    from wirespeed.cli.bench.target import bench_target as work
    from wirespeed.cli.serve import Settings

    return work(
        urls,
        tools=tools,
        size=size,
        delay=delay,
        progress=progress,
        settings=Settings(**settings),
        log_level=log_level,
        log_format=log_format,
    )
