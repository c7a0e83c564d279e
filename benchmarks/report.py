"""Turns benchmarks/results/latest.json into the README's table (Markdown on stdout).

python benchmarks/report.py [FILE]
"""

import json
import sys
from pathlib import Path
from typing import Any

LATEST = Path(__file__).resolve().parent / "results" / "latest.json"


def number(value: float) -> str:
    """Three significant digits, with thousands separated."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def measured(target: dict[str, Any]) -> str:
    if target["median"] is None:
        return "no number"
    unit = target["unit"]
    text = f"**{number(target['median'])}{unit}**"
    if target["rounds"] > 1:
        text += f" [{number(target['min'])}–{number(target['max'])}]"  # noqa: RUF001
    return text


def verdict(target: dict[str, Any]) -> str:
    if not target.get("measured", True):
        return str(target["note"])
    if not target["correct"]:
        return f"wrong: {target['note']}"
    return {True: "met", False: "**missed**", None: "not measured"}[target["met"]]


def figures(target: dict[str, Any]) -> str:
    return "; ".join(f"{name} {number(value)}" for name, value in target["figures"].items())


def escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def table(record: dict[str, Any], verdicts: bool = True) -> str:
    """The table of a record; without verdicts for a quick run, whose figures mean little."""
    at, versions, rivals = record["machine"], record["versions"], record["rivals"]
    lines = [
        "| question: against | target | measured, median [min–max] | |",  # noqa: RUF001
        "|---|---|---|---|",
    ]
    for target in record["targets"]:
        told = verdicts or not (target["correct"] and target.get("measured", True))
        said = verdict(target) if told else ""
        cells = (target["question"], target["target"], measured(target), said)
        lines.append("| " + " | ".join(map(escape, cells)) + " |")
    lines += [
        "",
        f"{at['cpu']}, {at['cpus']} CPUs, {at['system']} {at['kernel']}, "
        f"{at['implementation']} {at['python']}, SIMD {record['simd']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + "; rivals: "
        + ", ".join(f"{name} {version}" for name, version in rivals.items())
        + f"; {record['started'][:10]}, {record['settings']['rounds']} interleaved rounds. "
        "Ratios are formed within a round; every answer is checked.",
    ]
    rows = [(target["key"], figures(target)) for target in record["targets"] if target["figures"]]
    if rows:
        lines += ["", "Median figures (calls/s; µs, ns a message, ms or MiB where so asked):", ""]
        lines += [f"* `{key}`: {text}" for key, text in rows]
    return "\n".join(lines)


def main() -> None:
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else LATEST
    try:
        record = json.loads(place.read_text())
    except OSError as error:
        sys.exit(f"{place}: {error.strerror}; run benchmarks/run.py first")
    print(table(record))


if __name__ == "__main__":
    main()
