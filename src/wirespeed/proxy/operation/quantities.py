"""Quantities as people read them."""

from __future__ import annotations


def count(value: float) -> str:
    """A number, or a rate: ``0.25``, ``9.5``, ``1234``, ``12.3 k``."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            scaled = value / (1e3 if unit == "k" else limit)
            return f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.3g} {unit}"
    if value >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.2g}" if value < 10 else f"{value:.1f}"


def size(value: float) -> str:
    """A number of bytes: ``12 B``, ``1.5 KiB``, ``640 MiB``."""
    for limit, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= limit:
            scaled = value / limit
            return f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.3g} {unit}"
    return f"{value:.0f} B"


def seconds(value: float | None) -> str:
    """A short time: ``209 µs``, ``1.5 ms``, ``2 s``; a dash for none."""
    if value is None:
        return "—"
    for unit, scaled in (("µs", 1e6 * value), ("ms", 1e3 * value)):
        if scaled < 999.5:
            return f"{scaled:.3g} {unit}"
    return f"{value:.3g} s"


def span(value: float) -> str:
    """A long time: ``12 s``, ``3 min 5 s``, ``2 d 4 h``."""
    n = int(value)
    for unit_seconds, unit, smaller, less in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if n >= unit_seconds:
            return f"{n // unit_seconds} {unit} {n % unit_seconds // smaller} {less}"
    return f"{n} s"
