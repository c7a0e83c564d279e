"""A client for one command."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from wirespeed.cli import credentials, targets
from wirespeed.cli.failures import Terminated, complain, printable, usage
from wirespeed.errors import WirespeedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wirespeed import Client
    from wirespeed.cli.features.answers import Answers
    from wirespeed.types import LogMessage

T = TypeVar("T")

_DEFAULT_TIMEOUT = 60.0
_PROBE = 10.0


@dataclass(frozen=True, repr=False)
class Options:
    """The options of all commands with a TARGET."""

    word: str | None
    command: Sequence[str] | None
    timeout: float | None = None
    token: str | None = None
    token_file: str | None = None
    headers: Sequence[str] = ()
    ca: str | None = None
    lite: bool = False
    era: str | None = None
    log_level: str | None = None
    quiet_server: bool = False
    trace: bool = False

    def target(self, on_stderr: Callable[[str], object] | None = None) -> targets.Target:
        """Return the target that the options name. Failure (2 or 3), ConfigError: it is wrong.

        on_stderr: Called with each line of the target's stderr, in place of `pass_through`.
        """
        access = targets.RemoteAccess(
            headers=credentials.headers(self.headers),
            secret=credentials.find(self.token, self.token_file),
            ca=self.ca,
            timeout=self.timeout,
        )
        shown = pass_through if on_stderr is None else on_stderr
        stderr = "discard" if self.quiet_server else shown
        return targets.find(self.word, self.command, stderr=stderr, access=access, lite=self.lite)

    def time_limit(self, target: targets.Target) -> float | None:
        """Seconds for the handshake and for each request; None for no limit."""
        if self.timeout is not None:
            return self.timeout or None
        return _DEFAULT_TIMEOUT if target.timeout is None else target.timeout


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run work on a new loop. SIGINT, SIGTERM and SIGHUP cancel the work, so that the server ends
    before this process."""
    from wirespeed.transport.loop import loop_factory

    try:
        factory = loop_factory()
    except ValueError as exc:
        main.close()
        raise usage(str(exc)) from None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_until_signal(main))


async def _until_signal(main: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
            loop.add_signal_handler(number, end, number)
    try:
        return await main
    except asyncio.CancelledError:
        if received:
            raise Terminated(received[0]) from None
        raise


@contextlib.asynccontextmanager
async def connected(options: Options, asked: Answers | None = None) -> AsyncIterator[Client]:
    """Open a client of the target.

    asked: Answers the questions of the server. Without it the client declares that it answers none.
    """
    show_warnings()
    if options.trace:
        from wirespeed.cli import trace

        trace.start()
    handlers = {} if asked is None else asked.options()
    async with client_of(options, options.target(), on_log=show_log, **handlers) as client:
        if options.log_level is not None:
            if "logging" in client.server_capabilities:
                await client.set_log_level(options.log_level)
            else:
                complain("the server has no logging, so --log-level does nothing", level="warning")
        try:
            yield client
        except WirespeedError as exc:
            if asked is None:
                raise
            explained = asked.explained(exc)
            if explained is exc:
                raise
            raise explained from exc


def client_of(options: Options, target: targets.Target, **more: Any) -> Client:
    """Return a client that is not open.

    more: Further arguments of `wirespeed.Client`.
    """
    from wirespeed import Client

    timeout = options.time_limit(target)
    settings: dict[str, Any] = {
        "era": options.era or target.era,
        "timeout": timeout,
        "handshake_timeout": timeout or float("inf"),
        "probe_timeout": min(_PROBE, timeout or _PROBE),
        "name": "wirespeed-cli",
    }
    return Client(target.endpoint, **{**settings, **more})


def show_warnings() -> None:
    """Write warnings of the library to stderr, in the form of this program's messages."""
    logging.getLogger("wirespeed").addHandler(_Warnings())


class _Warnings(logging.Handler):
    """Writes warnings of the library, such as lines of the server that are not messages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and any(
            isinstance(arg, WirespeedError) for arg in record.args[:1]
        ):
            return  # the reason of a lost link: the command fails with it
        complain(printable(record.getMessage()), level="warning")


def pass_through(line: str) -> None:
    """Write a line of the server's stderr to stderr."""
    sys.stderr.write(line + "\n")


def show_log(message: LogMessage) -> None:
    """Write a log message of the server to stderr."""
    data = message.data
    if not isinstance(data, str):
        import msgspec

        data = msgspec.json.encode(data).decode()
    source = f" {message.logger}:" if message.logger else ""
    sys.stderr.write(printable(f"[{message.level}]{source} {data}") + "\n")
