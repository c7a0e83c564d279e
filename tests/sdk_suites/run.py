"""The official SDK's own tests, on the adapter and without it.

    python tests/sdk_suites/run.py mcp               of mcp, from its source distribution
    python tests/sdk_suites/run.py mcp --checkout D  of a checkout
    python tests/sdk_suites/run.py mcp -k ping       a part of them

The tests are not part of this repository: the source distribution is downloaded, and kept with
the environment in the folder of the peers of tests/interop. Each test runs twice: on the stock SDK,
and with the plugin `wired`. A test that passes on the stock SDK alone is lost, unless
`differences.toml` names it and says why no peer can see the difference; a name there that is not
lost is a fault, too.
Exit status 1 if there are faults; the last line counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "interop"))

import peers  # noqa: E402

SUITES = tomllib.loads((HERE / "differences.toml").read_text())
SECONDS = 3600.0

Outcomes = dict[str, str]


def run(
    python: str, sources: Path, suite: dict[str, object], wired: bool, options: Sequence[str]
) -> Outcomes:
    """Run the tests; the outcome of each by its name."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        path = [str(ROOT / "src"), str(HERE)]
        plugin = ["-p", str(suite["plugin"])] if wired else []
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        done = subprocess.run(
            [
                *(python, "-m", "pytest", "-q", "--tb=short", "-p"),
                *("no:cacheprovider", "-W", "default", f"--junitxml={report}", *plugin),
                *map(str, suite["tests"]),  # type: ignore[call-overload]
                *options,
            ],
            cwd=sources,
            env=environ,
            timeout=SECONDS,
            capture_output=True,
            text=True,
        )
        if not report.exists():
            raise SystemExit(done.stdout[-4000:] + done.stderr[-4000:])
        (Path(os.environ.get("SUITE_LOG", scratch)) / f"log-{wired}.txt").write_text(done.stdout)
        return read(report)


def read(report: Path) -> Outcomes:
    found: Outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        bad = any(case.find(kind) is not None for kind in ("failure", "error"))
        skipped = case.find("skipped") is not None
        found[name] = "failed" if bad else "skipped" if skipped else "passed"
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--checkout", type=Path, help="the sources, in place of a download")
    options, rest = parser.parse_known_args()
    suite = SUITES[options.suite]
    python = peers.python(suite["environment"])
    sources = options.checkout or peers.sources(suite["distribution"], suite["version"])
    stock = run(python, sources, suite, False, rest)
    wired = run(python, sources, suite, True, rest)
    lost = {name for name, how in stock.items() if how == "passed" and wired.get(name) != "passed"}
    known = {name: why for name, why in suite["invisible"].items() if not rest or name in stock}
    faults = 0
    for name in sorted(lost - known.keys()):
        print(f"lost: {name} ({wired.get(name, 'not run')})")
        faults += 1
    for name in sorted(known.keys() - lost):
        print(f"not lost, though differences.toml names it: {name}")
        faults += 1
    for title, found in (("stock", stock), ("on the adapter", wired)):
        values = list(found.values())
        print(f"{title}: " + ", ".join(f"{values.count(how)} {how}" for how in sorted(set(values))))
    print(f"{len(lost)} differ, {len(lost & known.keys())} of them known; {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
