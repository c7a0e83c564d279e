"""The plots of docs/performance.md, from the raw results: SVG, for light and dark pages.

Runs in the environment `python-plots` of builder.py; report.py starts it.
"""

from __future__ import annotations

import json
import math
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from figures import OURS, REFERENCE, RESULTS, ROOT, Field, digits

IMAGES = ROOT / "docs" / "images"
# Text and lines; wirespeed; the others; the reference; layers.
COLOURS: dict[str, dict[str, Any]] = {
    "light": {
        "text": "#24292f", "grid": "#d8dee4",
        "ours": "#0b6bcb", "others": "#8c959f", "c": "#57606a",
        "layers": ["#8c959f", "#0b6bcb", "#2da44e", "#bf8700", "#cf5c36", "#8250df", "#d4a5d6"],
    },
    "dark": {
        "text": "#e6edf3", "grid": "#3d444d",
        "ours": "#58a6ff", "others": "#7d8590", "c": "#adbac7",
        "layers": ["#7d8590", "#58a6ff", "#3fb950", "#d29922", "#f0883e", "#a371f7", "#e2c5e4"],
    },
}  # fmt: skip


def bars(
    axes: Any, found: list[tuple[str, str, float]], colours: dict[str, Any], title: str
) -> None:
    """Horizontal bars on a logarithmic axis, the smallest on top, each with its value."""
    found = sorted(found, key=lambda one: one[2], reverse=True)
    kinds = {OURS: colours["ours"], REFERENCE: colours["c"]}
    colour = [kinds.get(key.partition("/")[0], colours["others"]) for key, _, _ in found]
    names, values = [name for _, name, _ in found], [value for *_, value in found]
    axes.barh(names, values, color=colour, height=0.65)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    axes.grid(axis="x", which="major", linewidth=0.6)
    axes.set_axisbelow(True)
    if found:
        axes.set_xlim(10 ** math.floor(math.log10(min(values))), max(values) * 3)
    for row, value in enumerate(values):
        axes.text(value * 1.08, row, digits(value), va="center", fontsize=8)


def cpu(field: Field, colours: dict[str, Any]) -> None:
    """Processor time of a call by server."""
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    for axes, cell, title in (
        (panels[0], "stdio_64", "stdio, 64 in flight: µs a call"),
        (panels[1], "http_16", "HTTP, 16 connections: µs a call"),
    ):
        found = [
            (key, name, value)
            for key, name in field.servers("fastest")
            if (value := field.get(key, cell, "cpu_us")) is not None
        ]
        bars(axes, found, colours, title)
    save(figure, "cpu", colours)


def proxies(field: Field, colours: dict[str, Any]) -> None:
    """Processor time of a round trip by proxy."""
    figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
    found = [
        (key, f"{name}, {behind} ({sharing})", value)
        for key, (name, behind, sharing) in field.about["proxies"].items()
        if (value := field.get(key, "proxy_16", "cpu_us")) is not None
    ]
    bars(axes, found, colours, "16 clients over HTTP: µs of the proxy for a round trip")
    save(figure, "proxies", colours)


def layers(colours: dict[str, Any]) -> None:
    """Instructions of a call by layer."""
    counted: dict[str, dict[str, int]] = json.loads((RESULTS / "layers.json").read_text())
    names = list(dict.fromkeys(name for one in counted.values() for name in one))
    names = [name for name in names if max(one.get(name, 0) for one in counted.values()) >= 50]
    figure, axes = plt.subplots(figsize=(9.5, 2.9), layout="constrained")
    titles = list(counted)[::-1]
    left = [0.0] * len(titles)
    for name, colour in zip(names, colours["layers"], strict=False):
        widths = [counted[title].get(name, 0) for title in titles]
        axes.barh(titles, widths, left=left, color=colour, label=name, height=0.6)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_title("instructions of one call", loc="left", fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
    below = {"loc": "upper center", "bbox_to_anchor": (0.45, -0.12), "ncols": 3}
    axes.legend(**below, frameon=False, fontsize=8)
    save(figure, "layers", colours)


def save(figure: Any, name: str, colours: dict[str, Any]) -> None:
    """Write a figure as SVG without a background, the same bytes for the same figures."""
    kind = next(one for one, values in COLOURS.items() if values is colours)
    path = IMAGES / f"field-{name}-{kind}.svg"
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    print(path)


def main() -> None:
    """Draw all plots."""
    field = Field()
    for colours in COLOURS.values():
        text, grid = colours["text"], colours["grid"]
        mpl.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": "field",
                "font.family": "sans-serif",
                "font.size": 9,
                "text.color": text,
                "axes.labelcolor": text,
                "axes.edgecolor": grid,
                "xtick.color": text,
                "ytick.color": text,
                "grid.color": grid,
            }
        )
        cpu(field, colours)
        proxies(field, colours)
        layers(colours)


if __name__ == "__main__":
    main()
