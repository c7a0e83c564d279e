"""``wirespeed record``: a tap between a client and a server, which writes messages down and makes
faults."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wirespeed.cli.failures import Exit, Failure, complain, printable, usage
from wirespeed.cli.session import run, show_warnings

if TYPE_CHECKING:
    from wirespeed.bench.faults import Faults
    from wirespeed.bench.tap import Tap
    from wirespeed.bench.tap_file import TapFile
    from wirespeed.transport.address import Address

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
    listen: str | None
    to: str | None


def record(command: Sequence[str] | None, choices: RecordChoices) -> int:
    """Tap the command's stdin and stdout, and return its exit status; or tap the connections to a
    URL, until the process is told to end."""
    if choices.output is None and choices.fault is None:
        raise usage("give -o FILE, --fault FAULTS or both")
    if choices.output is None and choices.redact:
        raise usage("--redact is for -o FILE")
    faults = _faults(choices)
    if command is None:
        if choices.listen is None or choices.to is None:
            raise usage("give -- COMMAND, or --listen URL and --to URL")
        return _at_url(choices, faults, _listening(choices.listen), _server(choices))
    if choices.listen is not None or choices.to is not None:
        raise usage("give -- COMMAND, or --listen URL and --to URL, not both")
    if not command:
        raise usage("there is no command after --")
    from wirespeed import Stdio
    from wirespeed.bench.command_line import command_shown, shown_without_secrets
    from wirespeed.bench.tap import Tap, tap_command

    target = shown_without_secrets(Stdio(command[0], command[1:], inherit_env=True))
    tap = Tap(_file(choices, printable(command_shown(command))), faults)
    try:
        return run(tap_command(tap, target))
    finally:
        _report(tap)


# -- URLs ------------------------------------------------------------------------------------------


def _address(option: str, url: str) -> Address:
    from wirespeed.transport.address import parse

    try:
        return parse(url)
    except ValueError as exc:
        raise usage(f"{option}: {exc}") from None


def _listening(url: str) -> Address:
    address = _address("--listen", url)
    if address.secure:
        raise usage(f"--listen {address}: the tap has no certificate; listen without TLS")
    return address


def _server(choices: RecordChoices) -> Address:
    listen, server = _address("--listen", choices.listen or ""), _address("--to", choices.to or "")
    if listen.row.speaks != server.row.speaks:
        raise usage(
            f"--to {server}: what {listen.scheme}: speaks does not pass to {server.scheme}:"
        )
    return server


def _at_url(
    choices: RecordChoices, faults: Faults | None, address: Address, server: Address
) -> int:
    from wirespeed.bench.tap import Tap
    from wirespeed.bench.tap_http import HttpTap
    from wirespeed.bench.tap_net import TappedServer, tap_lines, tap_sockets

    tap = Tap(_file(choices, str(server)), faults)
    tapped = TappedServer(server)
    handle = HttpTap(tap, address, tapped).handle if address.has_paths else tap_lines(tap, tapped)

    def announce(url: str) -> None:
        complain(f"passing what comes to {server} on {url}; Ctrl-C ends it", level="note")

    show_warnings()
    try:
        run(_until_told(tap_sockets(address, handle, announce)))
    finally:
        _report(tap)
    return 0


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    """Run work until SIGINT or SIGTERM."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


# -- the file, the faults --------------------------------------------------------------------------


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
