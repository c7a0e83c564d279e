"""The own tests of other SDKs, on their adapter and without it.

    python tests/sdk_suites/run.py mcp                   mcp 2, from its source distribution
    python tests/sdk_suites/run.py mcp1                  mcp 1.x, from its source distribution
    python tests/sdk_suites/run.py fastmcp               FastMCP 4, from its source distribution
    python tests/sdk_suites/run.py mcp -k ping -n 2      what follows is for pytest

The tests are not part of this repository: a source distribution is downloaded, and kept with the
environment in the folder of the peers of tests/interop. Each test runs twice: on the stock SDK, and
with the plugin that puts the adapter below it. A test that passes on stock alone, twice, is lost,
unless `differences.toml` names it and says why no peer can see the difference; a name there that is
not lost is a fault, too. The installed SDK is tested, of the version of `differences.toml`.
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
from typing import Any
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "interop"))

import peers  # noqa: E402

SUITES: dict[str, dict[str, Any]] = tomllib.loads((HERE / "differences.toml").read_text())
SECONDS = 3600.0
MOST_AGAIN = 100  # tests that are run again; more of them are no accident

Outcomes = dict[str, str]


def run(
    python: str, sources: Path, suite: dict[str, Any], wired: bool, arguments: Sequence[str]
) -> Outcomes:
    """Run tests; the outcome of each by its node id."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        path = [str(ROOT / "src"), str(HERE)]
        environ = peers.environment() | {"PYTHONPATH": os.pathsep.join(path)}
        environ["PATH"] = os.pathsep.join([str(Path(python).parent), environ["PATH"]])
        plugin = ["-p", str(suite["plugin"])] if wired else []
        done = subprocess.run(
            [
                *(python, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"),
                *("-W", "default", "-o", "junit_family=xunit1", f"--junitxml={report}"),
                *(*plugin, *suite.get("options", ()), *arguments),
            ],
            cwd=sources,
            env=environ,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            capture_output=True,
            text=True,
        )
        folder = Path(os.environ.get("SUITE_LOG", scratch))
        name = "adapter" if wired else "stock"
        with (folder / f"{name}.txt").open("a") as log:
            log.write(done.stdout + done.stderr)
        if done.returncode not in (0, 1):  # it did not run all of them
            raise SystemExit(done.stdout[-4000:] + done.stderr[-4000:])
        return read(report)


def read(report: Path) -> Outcomes:
    found: Outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = any(case.find(kind) is not None for kind in ("failure", "error"))
        skipped = case.find("skipped") is not None
        name = node_id(case.get("file") or "", case.get("classname") or "", case.get("name") or "")
        if found.get(name) != "failed":  # an error of its end is a testcase of its own
            found[name] = "failed" if bad else "skipped" if skipped else "passed"
    return found


def node_id(file: str, classname: str, name: str) -> str:
    """The name by which pytest runs a test."""
    module = file.removesuffix(".py").replace("/", ".")
    classes = classname.removeprefix(module).strip(".")
    return "::".join([file, *classes.split("."), name] if classes else [file, name])


def selection(suite: dict[str, Any]) -> list[str]:
    """The tests of a suite, for pytest."""
    return [*suite["tests"], *(f"--ignore={place}" for place in suite.get("ignore", ()))]


def lost_tests(stock: Outcomes, wired: Outcomes) -> set[str]:
    """The tests that pass on stock alone."""
    return {name for name, how in stock.items() if how == "passed" and wired.get(name) != "passed"}


def check_version(python: str, suite: dict[str, Any]) -> None:
    """SystemExit: another version of the SDK is installed."""
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    command = [python, "-c", code, suite["distribution"]]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if found != suite["version"]:
        raise SystemExit(f"{suite['distribution']} {found} is installed, not {suite['version']}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--checkout", type=Path, help="a checkout, in place of a download")
    options, rest = parser.parse_known_args()
    suite = SUITES[options.suite]
    python = peers.python(suite["environment"])
    check_version(python, suite)
    sources = options.checkout or peers.sources(suite["distribution"], suite["version"])
    arguments = [*selection(suite), *rest]
    stock = run(python, sources, suite, False, arguments)
    wired = run(python, sources, suite, True, arguments)
    lost = lost_tests(stock, wired)
    known = {name: why for name, why in suite["invisible"].items() if name in stock}
    unexpected = sorted(lost - known.keys())
    if 0 < len(unexpected) <= MOST_AGAIN:  # an accident of a busy machine?
        again = run(python, sources, suite, True, unexpected)
        passed = [name for name in unexpected if again.get(name) == "passed"]
        lost -= set(passed)
        print("".join(f"passed when it ran again: {name}\n" for name in passed), end="")
    faults = 0
    for name in sorted(lost - known.keys()):
        print(f"lost: {name} ({wired.get(name, 'not run')})")
        faults += 1
    for name in sorted(known.keys() - lost):
        print(f"not lost, though differences.toml names it: {name}")
        faults += 1
    if not rest:
        for name in sorted(suite["invisible"].keys() - known.keys()):
            print(f"there is no such test, though differences.toml names it: {name}")
            faults += 1
    for title, found in (("stock", stock), ("on the adapter", wired)):
        values = list(found.values())
        print(f"{title}: " + ", ".join(f"{values.count(how)} {how}" for how in sorted(set(values))))
    print(f"{len(lost)} differ, {len(lost & known.keys())} of them known; {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
