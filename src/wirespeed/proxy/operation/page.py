"""The status page, from the members of ``/status``. Its template is ``page.jinja``: jinja2 fills it
in, and escapes every text. Here are its plots and its policy."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from wirespeed.proxy.operation.status import count, seconds, size, span

_FILES = files("wirespeed.proxy.operation")
_STYLE = _FILES.joinpath("page.css").read_text("utf-8")
_SCRIPT = _FILES.joinpath("page.js").read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# Content-Security-Policy: this style and this script, and requests to this listener.
POLICY = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

NEAR = 14 * 86400  # seconds before the end of a certificate at which the page warns
# Events of a server that are shown as faults, by the names of their numbers.
_EVENTS = {
    "retries": "Sent again after the end of a server",
    "breaker_opened": "A breaker opened",
    "replacements": "Replaced by a new process",
}


def page(status: dict[str, Any]) -> str:
    """Return the page."""
    return _TEMPLATE.render(status=status)


def utc(at: float, form: str) -> str:
    """Write a time in Unix seconds."""
    return time.strftime(form, time.gmtime(at))


def soon() -> float:
    """Return the time, in Unix seconds, up to which the end of a certificate is near."""
    return time.time() + NEAR


def pretty(value: Any) -> str:
    """Write JSON for people."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def breakers(backend: dict[str, Any]) -> str:
    """Write which breakers of a server are not closed."""
    return ", ".join(f"breaker {state}" for state, n in backend["breakers"].items() if n)


def faults_of(backend: dict[str, Any]) -> dict[str, int]:
    """Return what went wrong at a server, and how often."""
    return {
        **{f"Error {code}": n for code, n in backend["errors"].items()},
        **{f"Dropped: {reason}": n for reason, n in backend["dropped"].items() if n},
        **{f"Garbage: {kind}": n for kind, n in backend["garbage"].items() if n},
        **{text: backend[name] for name, text in _EVENTS.items() if backend[name]},
    }


# -- plots ----------------------------------------------------------------------------------------

HEIGHT = 100  # of a plot, in its own units

Points = Sequence[float | None]


class Linear:
    """A scale from 0 to a round number.

    Attributes:
        marks: Values with a line of the grid, the uppermost first, at equal distances.
    """

    def __init__(self, points: Points) -> None:
        top = _round_up(max((value for value in points if value is not None), default=0.0))
        self.marks = [top, top / 2, 0.0]

    def y(self, value: float) -> float:
        """Return the height of a value, from above."""
        return HEIGHT * (1 - min(value / self.marks[0], 1.0))


class Logarithmic:
    """A scale of powers of ten. Attributes as of `Linear`."""

    def __init__(self, points: Points) -> None:
        found = [value for value in points if value] or [1e-4]
        low = min(math.floor(math.log10(min(found))), math.ceil(math.log10(max(found))) - 1)
        high = max(math.ceil(math.log10(max(found))), low + 1)
        self.marks = [10.0**power for power in range(high, low - 1, -1)]

    def y(self, value: float) -> float:
        """Return the height of a value, from above."""
        decades = math.log10(self.marks[0] / max(value, self.marks[-1]))
        return HEIGHT * decades / (len(self.marks) - 1)


def _round_up(value: float) -> float:
    """Return the next 1, 2 or 5 with zeros."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next((step * unit for step in (1, 2, 5) if value <= step * unit), 10 * unit)


def last(points: Points, text: Callable[[float], str]) -> str:
    """Write the last value of a line."""
    found = [value for value in points if value is not None]
    return text(found[-1]) if found else "none"


def _runs(points: Points, scale: Linear | Logarithmic) -> Iterable[list[tuple[int, float]]]:
    """Give the parts of a line between gaps."""
    run: list[tuple[int, float]] = []
    for x, value in enumerate((*points, None)):
        if value is not None:
            run.append((x, scale.y(value)))
        elif run:
            yield run
            run = []


def line(points: Points, scale: Linear | Logarithmic) -> str:
    """Draw a line, as the data of a path."""
    found = []
    for run in _runs(points, scale):
        if len(run) == 1:  # else nothing is drawn
            run.append((run[0][0], run[0][1] - 0.01))
        found.append("M" + "L".join(f"{x} {y:.2f}" for x, y in run))
    return "".join(found)


def area(points: Points, scale: Linear | Logarithmic) -> str:
    """Draw what is below a line, as the data of a path."""
    return "".join(
        f"M{run[0][0]} {HEIGHT}L{'L'.join(f'{x} {y:.2f}' for x, y in run)}L{run[-1][0]} {HEIGHT}Z"
        for run in _runs(points, scale)
    )


_ENVIRONMENT = Environment(
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
_ENVIRONMENT.globals |= {
    "style": _STYLE, "script": _SCRIPT, "HEIGHT": HEIGHT, "Linear": Linear,
    "Logarithmic": Logarithmic, "line": line, "area": area, "last": last, "count": count,
    "seconds": seconds, "size": size, "span": span, "utc": utc, "breakers": breakers,
    "faults_of": faults_of, "soon": soon, "pretty": pretty,
}  # fmt: skip
_TEMPLATE = _ENVIRONMENT.from_string(_FILES.joinpath("page.jinja").read_text("utf-8"))
