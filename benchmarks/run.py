"""Runs the benchmarks and records them in benchmarks/results/latest.json.

    python benchmarks/run.py [--rounds 7] [--scale 1] [--only server,client,…] [--json FILE]
    python benchmarks/run.py --quick         # does everything run? writes results/quick.json

The interpreter that runs this is the one wirespeed is measured in.  Set the rivals up first with
benchmarks/setup_rivals.py (or give --rivals-python).  Ends with status 1 if an answer was wrong.
"""

import argparse
import datetime
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from harness import (
    HERE,
    Settings,
    build_tools,
    compile_modules,
    machine,
    package_versions,
    rival_versions,
)
from report import table

SECTIONS = (
    "server",
    "extras",
    "client",
    "threads",
    "engine",
    "copy",
    "footprint",
    "tools",
    "websocket",
    "connections",
    "http",
    "proxy",
    "sdk",
)


def simd_level() -> str:
    try:
        from engine_adapter import simd_level as level

        return level()
    except (ImportError, AttributeError) as error:
        return f"unknown ({error})"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the counts of calls")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, comma-separated")
    parser.add_argument(
        "--seconds", type=float, default=60, help="how long connections come and go"
    )
    parser.add_argument(
        "--quick", action="store_true", help="does it run? (the figures mean little)"
    )
    parser.add_argument(
        "--venvs", type=Path, default=Settings.venvs, help="the rivals' environments"
    )
    parser.add_argument("--rivals-python", help="mcp 2.3.0's interpreter, if it is elsewhere")
    parser.add_argument("--json", type=Path, help="where to write (a partial run writes nowhere)")
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args(arguments)
    wanted = args.only.split(",")
    if unknown := set(wanted) - set(SECTIONS):
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")

    if args.quick:
        args.rounds, args.scale, args.seconds = 1, 0.02, 3.0
    settings = Settings(
        rounds=args.rounds,
        scale=args.scale,
        rivals_python=args.rivals_python or str(args.venvs / "mcp2" / "bin" / "python"),
        verbose=not args.quiet,
        venvs=args.venvs,
        seconds=args.seconds,
    )
    build_tools()
    compile_modules()
    record: dict[str, Any] = {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": package_versions(),
        "rivals": rival_versions(settings),
        "simd": simd_level(),
        "settings": {"rounds": args.rounds, "scale": args.scale, "seconds": args.seconds},
        "targets": [],
        "samples": {},
    }
    for name in wanted:
        samples, targets = importlib.import_module(f"bench_{name}").run(settings)
        record["samples"][name] = samples
        record["targets"] += [target.record() for target in targets]

    place = args.json
    if place is None and args.quick:
        place = HERE / "results" / "quick.json"
    elif place is None and set(wanted) == set(SECTIONS):
        place = HERE / "results" / "latest.json"
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        settings.say(f"written to {place}")
    print(table(record, verdicts=not args.quick))
    wrong = [t for t in record["targets"] if t["measured"] and not t["correct"]]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
