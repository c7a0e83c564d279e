"""Metrics as text for Prometheus: its own format 0.0.4, and OpenMetrics 1.0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirespeed.proxy.operation.metrics import Family

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABELS = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def wants_open_metrics(accept: str) -> bool:
    """Whether a client asks for OpenMetrics, by its header field Accept."""
    for part in accept.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        if kind == "application/openmetrics-text":
            return all(word not in ("q=0", "q=0.0") for word in parameters)
    return False


def text_of(families: Iterable[Family], *, open_metrics: bool) -> str:
    """Write metrics. A family without a line is left out."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        # before OpenMetrics, a counter had its suffix in its name
        total = "" if open_metrics or family.kind != "counter" else "_total"
        help_text = family.help.translate(_IN_LABELS if open_metrics else _IN_HELP)
        lines.append(f"# HELP {family.name}{total} {help_text}")
        lines.append(f"# TYPE {family.name}{total} {family.kind}")
        for suffix, labels, value in family.samples:
            shown = ",".join(f'{name}="{text.translate(_IN_LABELS)}"' for name, text in labels)
            braces = f"{{{shown}}}" if shown else ""
            lines.append(f"{family.name}{suffix}{braces} {_number(value)}")
    if open_metrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
