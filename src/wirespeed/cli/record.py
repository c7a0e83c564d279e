"""``wirespeed record``: a tap between a client and a server, which writes messages down and makes
faults."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wirespeed.cli.failures import Exit, Failure, complain, printable, usage
from wirespeed.cli.session import run

if TYPE_CHECKING:
    from wirespeed.bench.faults import Faults
    from wirespeed.bench.tap import Tap
    from wirespeed.bench.tap_file import TapFile

# What the command says of the faults at its end.
_DONE = {
    "pass": "passed",
    "drop": "dropped",
    "duplicate": "passed twice",
    "cut": "cut",
    "delay": "delayed",
}


@dataclass(frozen=True)
class RecordChoices:
    """The options of the command."""

    output: str | None
    redact: bool
    fault: str | None
    seed: int | None


def record(command: Sequence[str] | None, choices: RecordChoices) -> int:
    """Tap the command's stdin and stdout. Returns its exit status."""
    if choices.output is None and choices.fault is None:
        raise usage("give -o FILE, --fault FAULTS or both")
    if choices.output is None and choices.redact:
        raise usage("--redact is for -o FILE")
    faults = _faults(choices)
    if command is None:
        raise usage("give -- COMMAND")
    if not command:
        raise usage("there is no command after --")
    from wirespeed import Stdio

    target = Stdio(command[0], command[1:], inherit_env=True)
    file = _file(choices, command_shown(command))
    from wirespeed.bench.tap import Tap, tap_command

    tap = Tap(file, faults)
    try:
        return run(tap_command(tap, target))
    finally:
        _report(tap)


def _faults(choices: RecordChoices) -> Faults | None:
    from wirespeed.bench.faults import Faults

    if choices.fault is None:
        if choices.seed is not None:
            raise usage("--seed is for --fault")
        return None
    try:
        return Faults(choices.fault, choices.seed)
    except ValueError as exc:
        raise usage(f"--fault: {exc}") from None


def _file(choices: RecordChoices, target: str) -> TapFile | None:
    from wirespeed.bench.tap_file import TapFile

    if choices.output is None:
        return None
    try:
        return TapFile(choices.output, target, redact=choices.redact)
    except OSError as exc:
        raise Failure(
            f"cannot write {choices.output}: {exc.strerror}", Exit.OUTPUT, "OutputError"
        ) from None


def _report(tap: Tap) -> None:
    if tap.faults is not None:
        words = [f"{count:,} {_DONE[name]}" for name, count in tap.faults.counts.items() if count]
        complain(f"messages: {', '.join(words) or 'none'}", level="note")
    if tap.file is not None:
        tap.file.close()
        if tap.file.failure is not None:
            complain(
                f"{tap.file.path} is not complete: {tap.file.failure.strerror}", level="warning"
            )


_OPTION = re.compile(r"--?[\w-]+")


def command_shown(command: Sequence[str]) -> str:
    """Return a command line in which ``…`` stands for secrets."""
    import shlex

    from wirespeed.transport.wire_trace import is_secret, masked

    words: list[str] = []
    hides = False
    for word in command:
        words.append("…" if hides else masked(word))
        hides = _OPTION.fullmatch(word) is not None and is_secret(word)
    return printable(shlex.join(words))
