"""``--trace``: the messages of a connection on stderr, in colours on a terminal."""

from __future__ import annotations

import contextlib
import re
import sys

from wirespeed.cli.failures import coloured

# time, process, connection, direction, message
LINE = re.compile(r"trace (\S+) (\d+) (\S+) (->|<-) (.*)\n\Z", re.DOTALL)
_METHOD = re.compile(r'"method":("[^"\\]*")')
_ERROR = re.compile(r'"error":|"isError":true')
_COLOURS = {"->": "36", "<-": "32"}


def start() -> None:
    """Write each message of this process to stderr from now on, as ``WIRESPEED_TRACE=1`` does."""
    from wirespeed.transport import link, wire_trace  # noqa: F401  # link starts a trace, too

    wire_trace.start(_write)


def _write(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(painted(line) if coloured(sys.stderr) else line)
        sys.stderr.flush()


def painted(line: str) -> str:
    """Return a line of the trace in colours: sent, received, methods and errors."""
    found = LINE.match(line)
    if found is None:
        return line
    time, _, connection, arrow, text = found.groups()
    colour = _COLOURS[arrow]
    if _ERROR.search(text):
        colour = "31"
    bold, usual = f"\x1b[1;{colour}m", f"\x1b[0;{colour}m"
    text = _METHOD.sub(lambda method: f'"method":{bold}{method[1]}{usual}', text, count=1)
    grey = f"\x1b[2m{time[:-3]} {connection}\x1b[0m"
    return f"{grey} \x1b[1;{colour}m{arrow}\x1b[0m \x1b[{colour}m{text}\x1b[0m\n"
