"""The log of a command that serves: lines of text or of JSON on stderr."""

from __future__ import annotations

import logging
import sys
from datetime import datetime

from wirespeed.cli import failures

_OWN = logging.getLogger("wirespeed.cli")


def set_up_log(level: str | None, form: str | None) -> None:
    """Write log records to stderr.

    Without options, records from WARNING on are written as text, unless the served file configures
    `logging` itself. An option takes precedence over `logging.basicConfig` in the file. With
    ``json``, messages of this program are records, too.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    if level is None and form is None:
        handler.setLevel(logging.WARNING)
        logging.lastResort = handler
        return
    logging.basicConfig(handlers=[handler], level=(level or "warning").upper())
    if form == "json":
        _OWN.setLevel(logging.INFO)  # "serving …", whatever the level of the rest
        failures.complain_to(_complained)


def show_access_log(form: str) -> None:
    """Write the access log to stderr, whatever the level of the rest."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextLines() if form == "text" else logging.Formatter("%(message)s"))
    log = logging.getLogger("wirespeed.access")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    log.propagate = False


def _complained(text: str, level: str) -> None:
    _OWN.log(logging.INFO if level == "note" else getattr(logging, level.upper()), "%s", text)


def _time(record: logging.LogRecord) -> str:
    """Return the local time with its distance from UTC (RFC 3339)."""
    moment = datetime.fromtimestamp(record.created).astimezone()
    return moment.isoformat(timespec="milliseconds")


class TextLines(logging.Formatter):
    """``TIME LEVEL LOGGER: MESSAGE``, with a traceback on the lines below. Control characters are
    escaped."""

    def format(self, record: logging.LogRecord) -> str:
        message = failures.printable(record.getMessage())
        line = f"{_time(record)} {record.levelname} {record.name}: {message}"
        if trace := _traceback(self, record):
            line += f"\n{failures.printable(trace, lines=True)}"
        return line


class JsonLines(logging.Formatter):
    """One JSON object a line, with the members ``time``, ``level``, ``logger``, ``message``,
    ``process`` (a number) and, after a failure, ``traceback``."""

    def format(self, record: logging.LogRecord) -> str:
        import json

        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if trace := _traceback(self, record):
            line["traceback"] = trace
        return json.dumps(line)  # ASCII, for every locale


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)
