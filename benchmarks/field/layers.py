"""The instructions of a call by layer: the guard's workloads under callgrind.

python benchmarks/field/layers.py    # writes benchmarks/results/layers.json
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "layers.json"
sys.path.insert(0, str(HERE.parent / "guard"))

WORKLOADS = {
    "stdio (lines on a socket)": "server, 2025-11-25",
    "WebSocket": "WebSocket server",
    "HTTP": "HTTP server, 2025-11-25",
}
# The first that matches the name of an object file is its layer.
LAYERS = [
    (r"wirespeed/_core/", "framing and envelope"),
    (r"wirespeed/transport/", "transport"),
    (r"wirespeed/", "server: session, dispatch, answer"),
    (r"msgspec", "arguments (msgspec)"),
    (r"_asyncio|uvloop|select", "event loop"),
    (r"libpython|/python3|_datetime|_struct|_socket", "interpreter: handler, tasks, client"),
    (r"libc\.|libc-|ld-linux|libpthread|libm\.", "C library: copies, memory, system calls"),
]
_NAME = re.compile(r"\((\d+)\)(?: (.*))?")


def by_object(text: str) -> Counter[str]:
    """Instructions of each object file, without those of what it calls."""
    names: dict[str, str] = {}
    found: Counter[str] = Counter()
    current, skip = "", False
    for line in text.splitlines():
        if line.startswith(("ob=", "cob=")):
            key, _, value = line.partition("=")
            match = _NAME.match(value)
            name = names.setdefault(match[1], match[2] or "") if match else value
            if key == "ob":
                current = name
        elif line.startswith("calls="):
            skip = True  # the next line is the cost of what was called
        elif line[:1] in "+-*0123456789" and line:
            if skip:
                skip = False
                continue
            parts = line.split()
            if len(parts) == 2:
                found[current] += int(parts[1])
    return found


def layer(name: str) -> str:
    """The layer of an object file."""
    return next((title for pattern, title in LAYERS if re.search(pattern, name)), "other")


def count() -> dict[str, dict[str, float]]:
    """Instructions of one call by layer, of each workload."""
    spec = importlib.util.spec_from_file_location("guard", HERE.parent / "guard" / "__main__.py")
    assert spec is not None and spec.loader is not None
    guard = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(guard)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        out, err = guard.start(folder, None, 1.0, WORKLOADS.values()).communicate()
        runs: dict[str, dict[int, Counter[str]]] = {}
        for line in out.splitlines():
            name, number, pid = line.rsplit(" ", 2)
            runs.setdefault(name, {})[int(number)] = by_object((folder / pid).read_text())
    if not runs:
        raise SystemExit(f"the workloads failed: {err[-500:]}")
    found = {}
    for title, name in WORKLOADS.items():
        (n, once), (_, twice) = sorted(runs[name].items())
        layers: Counter[str] = Counter()
        for one in twice:
            layers[layer(one)] += (twice[one] - once[one]) / n
            if "-v" in sys.argv:
                print(title, one, (twice[one] - once[one]) / n)
        found[title] = {key: round(value) for key, value in layers.most_common()}
    return found


if __name__ == "__main__":
    RESULTS.write_text(json.dumps(count(), indent=1) + "\n")
    print(RESULTS.read_text())
