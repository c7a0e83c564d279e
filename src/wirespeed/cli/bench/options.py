"""The options of ``wirespeed bench``, ``bench-target`` and ``record``; how numbers are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.failures import usage
from wirespeed.cli.grammar import CallCommand, F

_NUMBER = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?(?:[eE][0-9]+)?)([kM]?)")
_HUGE = 1e18  # more than any option takes


if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:  # no generic class in older versions
    _Type = click.ParamType


def _value(text: str, thousand: int) -> float | None:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    return float(match[1]) * {"": 1, "k": thousand, "M": thousand**2}[match[2]]


def _whole(text: str, thousand: int) -> int | None:
    """Return a whole number, `_HUGE` for all above it; None: the text is not one."""
    found = _value(text, thousand)
    if found is None:
        return None
    found = max(-_HUGE, min(found, _HUGE))
    return int(found) if found == int(found) else None


class _Count(_Type):
    """A whole number, such as ``20000``, ``20k`` or ``1M``."""

    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = _whole(value, 1000)
        if found is None:
            self.fail(f"{value!r} is not a number: write 20000, 20k or 1M", param, ctx)
        return found


class _Counts(_Type):
    """Several whole numbers, such as ``1,10,1k``.

    Args:
        thousand: The value of ``k``.
    """

    name = "numbers"

    def __init__(self, thousand: int = 1000) -> None:
        self._thousand = thousand

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = [_whole(one, self._thousand) for one in value.split(",")]
        if None in found:
            self.fail(f"{value!r} is not a list of numbers: write 1,10,1k", param, ctx)
        return tuple(dict.fromkeys(found))


class _Rate(_Type):
    """A rate, such as ``5k``, or the ends of a ramp, such as ``1k..20k``."""

    name = "rate"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = [_value(one, 1000) for one in value.split("..")]
        if None in found or len(found) > 2:
            self.fail(f"{value!r} is not a rate: write 5000, 5k or 1k..20k", param, ctx)
        return tuple(found)


class _Speed(_Type):
    """A factor, such as ``10``, or ``max``."""

    name = "speed"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str) or value == "max":
            return value
        found = _value(value, 1000)
        if found is None or not 0 < found < inf:
            self.fail(f"{value!r} is not a speed: write 1, 10 or max", param, ctx)
        return found


class BenchCommand(CallCommand):
    """``bench``, whose first word may be the name of a command of its own."""

    def __init__(self, *args: Any, further: Sequence[click.Command], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._further = {command.name: command for command in further}

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args and args[0] in self._further:
            name, *rest = args
            return self._further[name].make_context(f"{info_name} {name}", rest, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def lasts(self, words: list[str]) -> bool:
        """With ``--users`` and ``--replay`` nothing needs to follow COMMAND."""
        return any(word.partition("=")[0] in ("--users", "--replay") for word in words)


bench_json_option = click.option(
    "--json",
    "json_file",
    metavar="FILE",
    help="Write the result to a file; - prints it instead of the summary.",
)


def bench_options(command: F) -> F:
    """Add the options of ``bench``."""
    for option in reversed(
        (
            click.option(
                "--calls", type=_Count(), metavar="N", help="Measure N calls; default 10,000."
            ),
            click.option(
                "--duration",
                type=float,
                metavar="SECONDS",
                help="Or begin calls for so long; default 5 for each step of a ramp.",
            ),
            click.option(
                "--connections",
                type=_Counts(),
                default=(1,),
                metavar="N[,N…]",
                help="Connections; of a command each has a process. Default 1. Several numbers: a "
                "run with each.",
            ),
            click.option(
                "--in-flight",
                type=_Count(),
                default=16,
                metavar="N",
                help="The most calls without an answer on each connection; default 16.",
            ),
            click.option(
                "--rate",
                type=_Rate(),
                metavar="R|FROM..TO",
                help="Begin R calls a second, of all connections together. FROM..TO: a run at each "
                "step of a ramp, and the last one that keeps up.",
            ),
            click.option(
                "--steps",
                type=_Count(),
                metavar="N",
                help="Of a ramp, each the same factor above the one before; default 10.",
            ),
            click.option(
                "--poisson", is_flag=True, help="With --rate: at random, as independent users do."
            ),
            click.option(
                "--bytes",
                "sizes",
                type=_Counts(1024),
                metavar="N[,N…]",
                help='The size of "$text" in JSON (1k is 1,024). Several: a run with each.',
            ),
            click.option(
                "--rounds", type=_Count(), default=1, metavar="N", help="Repeat all runs N times."
            ),
            click.option(
                "--versus",
                metavar="TARGET",
                help="A second TARGET, or a command line as one word: its runs are in turn with "
                "those of the first one.",
            ),
            click.option(
                "--processes",
                type=_Count(),
                default=1,
                metavar="N",
                help="Share the connections and the rate between N processes of this program, if "
                "one is busy all of the time; default 1.",
            ),
            click.option(
                "--warmup",
                type=_Count(),
                default=100,
                metavar="N",
                help="Make N calls before, unmeasured; default 100.",
            ),
            click.option(
                "--think",
                type=float,
                default=0.0,
                metavar="SECONDS",
                help="Without --rate: the pause between an answer and the next call.",
            ),
            click.option(
                "--expect",
                metavar="any|echo=NAME|path=$.PATH:VALUE|schema=FILE|bytes=N",
                help="The right answer: any result (the default), the text of the argument NAME, a "
                "value in the result, structured content of a schema, or texts of N bytes.",
            ),
            click.option(
                "--users",
                metavar="FILE",
                help="In place of TOOL and JSON: users with weights and steps (TOML).",
            ),
            click.option("--seed", type=int, metavar="N", help="Repeat the random values."),
            click.option(
                "--pid",
                "pids",
                type=int,
                multiple=True,
                metavar="PID",
                help="A process of the server, whose cost is measured with that of its children; "
                "may be repeated. Without it: of the commands.",
            ),
            click.option(
                "--fail-if",
                multiple=True,
                metavar="CONDITION",
                help="Exit with 1 if it holds in a run: 'p99>5ms', 'wrong>0', 'rate<1000'; may be "
                "repeated.",
            ),
            click.option(
                "--csv",
                "csv_file",
                metavar="FILE",
                help="Write a table to a file, with a row for each run; - prints it instead of the "
                "summary.",
            ),
            click.option(
                "--html",
                "html_file",
                metavar="FILE",
                help="Write a page with plots to a file.",
            ),
            click.option(
                "--i-own-this-target",
                "own",
                is_flag=True,
                help="The target is another machine, and yours.",
            ),
        )
    ):
        command = option(command)
    return command


def target_options(command: F) -> F:
    """Add the options of ``bench-target`` about its tools."""
    for option in reversed(
        (
            click.option(
                "--tools",
                type=click.IntRange(0, 100_000),
                default=0,
                metavar="N",
                help="List N further tools.",
            ),
            click.option(
                "--bytes",
                "size",
                type=click.IntRange(0, 64 * 1024 * 1024),
                default=0,
                metavar="N",
                help="Add a block of text of N bytes to each result of echo.",
            ),
            click.option(
                "--delay",
                metavar="TIME",
                help="The time that a call of echo takes: 5ms, 5ms±2ms (normal), exp:5ms or "
                "uniform:1ms..9ms.",
            ),
            click.option(
                "--progress",
                type=click.IntRange(0, 100_000),
                default=0,
                metavar="N",
                help="Report the progress of a call of echo N times, if its caller gave a token.",
            ),
        )
    ):
        command = option(command)
    return command


def record_options(command: F) -> F:
    """Add the options of ``record``."""
    for option in reversed(
        (
            click.option(
                "-o", "output", metavar="FILE", help="Write a line for each message to FILE."
            ),
            click.option(
                "--listen",
                metavar="URL",
                help="Listen on http://HOST:PORT/PATH, ws://…, unix:PATH or tcp://HOST:PORT, port "
                "0 for a free one.",
            ),
            click.option(
                "--to", metavar="URL", help="With --listen: the server, such as https://HOST/PATH."
            ),
            click.option(
                "--redact",
                is_flag=True,
                help="Write letters in place of arguments, results and errors; lengths stay.",
            ),
            click.option(
                "--fault",
                metavar="FAULTS",
                help="Let messages meet faults, such as "
                "drop=0.001,duplicate=0.001,cut=0.0001,delay=5ms±2.",
            ),
            click.option("--seed", type=int, metavar="N", help="Repeat the faults."),
        )
    ):
        command = option(command)
    return command


def replay_options(command: F) -> F:
    """Add the options of ``bench`` for a record."""
    for option in (
        click.option(
            "--speed",
            type=_Speed(),
            metavar="X|max",
            help="With --replay: X times as fast as in the record; max: each request as soon as "
            "the answers are there that it followed. Default 1.",
        ),
        click.option(
            "--replay",
            metavar="FILE",
            help='In place of TOOL and JSON: the requests of a record of "wirespeed record".',
        ),
    ):
        command = option(command)
    return command


# Options that say what a record says.
_OF_LOADS = (
    *("calls", "duration", "connections", "in_flight", "rate", "steps", "poisson", "sizes"),
    *("warmup", "think", "users", "seed"),
)


def check_replay(ctx: click.Context) -> None:
    """Check the options beside ``--replay``. Failure (2): one is not for it."""
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "")
        if param.name in _OF_LOADS and given is click.core.ParameterSource.COMMANDLINE:
            raise usage(f"{param.opts[0]} is not for --replay: the record says what is asked when")
