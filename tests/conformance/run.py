"""The official conformance suite of MCP against our server and our client.

    python tests/conformance/run.py                    all of it, in every revision
    python tests/conformance/run.py server             one side
    python tests/conformance/run.py server --url URL   a server that runs already
    python tests/conformance/run.py client --scenario sse-retry
    python tests/conformance/run.py proxy              our server, behind the proxy
    python tests/conformance/run.py skills             wirespeed serve --skills
    python tests/conformance/run.py --write-page       write docs/conformance.md

The suite and Node are npm packages, pinned in tests/interop/pins.toml and installed once. A failure
or a warning of any check, a client that ends with another status than 0, a scenario without
results, and a SKIPPED or INFO check that reasons.toml does not explain: each is a fault, and so is
an explanation that nothing needed. Exit status 1 if there are faults; the last line counts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "interop"))

import peers  # noqa: E402

PACKAGE = "@modelcontextprotocol/conformance"
PAGE = ROOT / "docs" / "conformance.md"
TABLES = "<!-- tables -->\n"
REVISIONS = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
OWN = "own revision"  # each scenario in the revision that the suite chooses; extensions only here
REQUIREMENTS = ["2025-11-25", "2026-07-28"]
SERVER_COLUMNS = [*REVISIONS, OWN, *(f"required {revision}" for revision in REQUIREMENTS)]
# Through the proxy: the revision, the isolation that has all of its era, and whether the server
# speaks HTTP.
PROXIED = {
    "2025-11-25": ("2025-11-25", "session", False),
    "2026-07-28": ("2026-07-28", "shared", False),
    "2025-11-25, HTTP": ("2025-11-25", "auto", True),
    "2026-07-28, HTTP": ("2026-07-28", "auto", True),
}
TITLES = {
    "server": "Our server",
    "client": "Our client",
    "proxy": "Our server behind the proxy",
    "skills": "Skills on the command line",
}
SKILLS = HERE / "skills"
SKILL = "skill://git-workflow/SKILL.md"
BEHIND = ("proxy", "skills")  # what is explained of a server holds for these, too
SECONDS = 240.0  # for one run of the suite
AT_ONCE = 4  # most of a run is waiting


@dataclass
class Run:
    """One run of the suite: one side, in one revision."""

    side: str
    column: str
    wanted: list[str] = field(default_factory=list)
    checks: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def read(self, folder: Path) -> None:
        """Take the results that the suite wrote, by scenario."""
        for path in sorted(folder.glob("**/checks.json")):
            name = str(path.parent.relative_to(folder))
            found = re.fullmatch(r"(?:server-)?(.+)-\d{4}-\d\d-\d\dT[\d-]+Z", name)
            assert found is not None, name
            self.checks[found[1]] = json.loads(path.read_text())

    def judge(self, reasons: Reasons) -> None:
        """Add the faults that the results show."""
        for scenario in self.wanted:
            if not self.checks.get(scenario):
                self.faults.append(f"{scenario}: there are no results")
        for scenario, checks in self.checks.items():
            for check in checks:
                status = check["status"]
                if status == "SUCCESS" or reasons.explain(self.side, scenario, check):
                    continue
                said = check.get("errorMessage") or check["description"]
                self.faults.append(f"{scenario}: {status} {check['id']} ({check['name']}): {said}")

    def cell(self, scenario: str) -> str:
        """Checks that passed, of those that were judged, and those that were not."""
        if scenario not in self.checks:
            return ""
        counts = Counter(check["status"] for check in self.checks[scenario])
        judged = counts["SUCCESS"] + counts["FAILURE"] + counts["WARNING"]
        skipped = f" {counts['SKIPPED']}S" if counts["SKIPPED"] else ""
        return f"{counts['SUCCESS']}/{judged}{skipped}"


class Reasons:
    """The checks that need not pass, with the reason why: reasons.toml."""

    def __init__(self) -> None:
        self.entries = tomllib.loads((HERE / "reasons.toml").read_text())["check"]
        self.used: set[int] = set()

    def explain(self, side: str, scenario: str, check: dict[str, str]) -> bool:
        """Whether an entry explains the status of a check."""
        for number, entry in enumerate(self.entries):
            if (
                (entry["side"] == side or (entry["side"] == "server" and side in BEHIND))
                and fnmatch(scenario, entry["scenario"])
                and entry["status"] == check["status"]
                and check["name"] in entry["names"]
            ):
                self.used.add(number)
                return True
        return False

    def unused(self, sides: list[str]) -> list[str]:
        """The entries of these sides that nothing needed."""
        return [
            f"reasons.toml: {entry['scenario']} has no {entry['status']} {entry['names']}"
            for number, entry in enumerate(self.entries)
            if entry["side"] in sides and number not in self.used
        ]


# -- the suite -------------------------------------------------------------------------------------


@cache
def suite() -> list[str]:
    """The command of the suite, under the pinned Node."""
    node = peers.npm() / "node_modules" / ".bin" / "node"
    script = peers.npm("conformance") / "node_modules" / PACKAGE / "dist" / "index.js"
    return [str(node), str(script)]


def call(*arguments: str) -> tuple[int, str]:
    """Run the suite: its exit status, and what it printed."""
    done = subprocess.run(
        [*suite(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=SECONDS,
    )
    return done.returncode, done.stdout


def revision(column: str) -> list[str]:
    """The option of the suite for a revision."""
    return [] if column == OWN else ["--spec-version", column]


@cache
def scenarios(side: str, column: str) -> list[str]:
    """The names of the scenarios of one run."""
    status, said = call("list", f"--{side}", *revision(column))
    assert status == 0, said
    return [line.split()[1] for line in said.splitlines() if line.startswith("  - ")]


# -- our server ------------------------------------------------------------------------------------


@contextmanager
def listening(
    command: list[str], faults: list[str] | None = None, *, says: re.Pattern[str] | None = None
) -> Iterator[str]:
    """The URL that a server prints, or says on stderr in a pattern. It is ended afterwards; how it
    ended, if not with status 0, and what it logged as an error, are faults, unless nobody takes
    them."""
    with tempfile.TemporaryFile("w+") as log:

        def said() -> str:
            log.seek(0)
            return log.read()

        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert child.stdout is not None
            if says is None:
                url = child.stdout.readline().strip()
            else:
                while (found := says.search(said())) is None and child.poll() is None:
                    time.sleep(0.05)
                url = "" if found is None else found[1]
            if not url:
                raise SystemExit(f"the server does not listen:\n{said()}")
            yield url
        finally:
            child.terminate()
            try:
                status = child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                status = child.wait()
        if faults is not None and (status != 0 or "Traceback" in said()):
            faults.append(f"the server ended with status {status}, and said:\n{said()[-4000:]}")


def our_server(faults: list[str], *program: str) -> AbstractContextManager[str]:
    """The URL of our server.

    ``program``: Another one than that of the server, and its arguments.
    """
    script, *arguments = program or ("server.py", "http://127.0.0.1:0/mcp")
    return listening([sys.executable, str(HERE / script), *arguments], faults)


def proxied_run(url: str, column: str, folder: Path) -> Run:
    """One run against the server behind the proxy."""
    return server_run(url, PROXIED[column][0], folder, Run("proxy", column))


def server_run(url: str, column: str, folder: Path, run: Run | None = None) -> Run:
    """One run against a server: in a revision, in the own one of each scenario, or of what the
    suite requires of a revision."""
    run = run or Run("server", column)
    if column.startswith("required "):
        which = ["--requirements", column.removeprefix("required ")]
    else:
        which = ["--suite", "all", *revision(column)]
        run.wanted = scenarios("server", column)
    status, said = call("server", "--url", url, *which, "-o", str(folder))
    run.read(folder)
    failed = any(check["status"] == "FAILURE" for found in run.checks.values() for check in found)
    if status != 0 and not failed:  # failures are judged one by one
        run.faults.append(f"the suite ended with status {status}: {said[-300:]}")
    return run


# -- skills on the command line --------------------------------------------------------------------

WIRESPEED = [sys.executable, "-m", "wirespeed"]
SERVE = [*WIRESPEED, "serve", "--skills", str(SKILLS)]
AT = re.compile(r" on ((?:http|ws)://[^\s;]+/mcp)")


def skill_servers(stack: ExitStack, faults: list[str]) -> dict[str, str]:
    """The URLs of a folder of skills: served over HTTP, behind the proxy over stdio and WebSocket,
    and of two servers that are one endpoint, where a skill needs approval and where it does not."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    other = folder / "skills" / "release-notes"  # a name that is there twice is a warning
    other.mkdir(parents=True)
    head = "---\nname: release-notes\ndescription: Write the notes of a release\n---\n"
    (other / "SKILL.md").write_text(head)

    def at(command: list[str], option: str, scheme: str = "http") -> str:
        whole = [*command, option, f"{scheme}://127.0.0.1:0/mcp"]
        return stack.enter_context(listening(whole, faults, says=AT))

    def proxy(name: str, servers: dict[str, object], **own: object) -> str:
        file = folder / f"{name}.json"
        file.write_text(json.dumps({"mcpServers": servers, "proxy": own}))
        if own:
            approve = [*WIRESPEED, "skill", "approve", f"{file}#one", SKILL]
            subprocess.run(approve, check=True, stderr=subprocess.DEVNULL)
        return at([*WIRESPEED, "proxy", "--config", str(file)], "--listen")

    stdio: dict[str, object] = {"command": SERVE[0], "args": SERVE[1:]}
    two: dict[str, object] = {**stdio, "args": [*SERVE[1:-1], str(other.parent)]}
    approved = {**stdio, "proxy": {"skills": "approved"}}
    return {
        "HTTP": at(SERVE, "--on"),
        "stdio, proxy": proxy("stdio", {"one": stdio}),
        "WebSocket, proxy": proxy("ws", {"one": {"url": at(SERVE, "--on", "ws")}}),
        "two servers, merged": proxy("merged", {"one": stdio, "two": two}),
        "the same, approved": proxy(
            "approved", {"one": approved, "two": two}, approvals="approvals.json"
        ),
    }


def skills_run(url: str, column: str, folder: Path) -> Run:
    """The scenarios of skills against a server."""
    run = Run("skills", column)
    run.wanted = [name for name in scenarios("server", OWN) if name.startswith("sep-2640-")]
    for name in run.wanted:
        call("server", "--url", url, "--scenario", name, "-o", str(folder))
    run.read(folder)
    return run


# -- our client ------------------------------------------------------------------------------------


def client_names(column: str, only: str | None) -> list[str]:
    """The scenarios of our client in a revision."""
    names = scenarios("client", column)
    if column == OWN:  # the others ran in each of their revisions
        known = {name for revision in REVISIONS for name in scenarios("client", revision)}
        names = [name for name in names if name not in known]
    return [name for name in names if only in (None, name)]


def run_client(name: str, column: str, folder: Path) -> str | None:
    """Run our client in one scenario: where the suite starts many at once it counts no exit status.
    Returns the fault, if there is one."""
    command = shlex.join([sys.executable, str(HERE / "client.py")])
    arguments = ["client", "--command", command, "--scenario", name, *revision(column)]
    status, said = call(*arguments, "-o", str(folder))
    return f"{name}: the suite ended with status {status}: {said[-1500:]}" if status else None


def client_run(
    column: str, folder: Path, only: str | None, pool: ThreadPoolExecutor
) -> Callable[[], Run]:
    """Start the runs of our client in a revision; what is returned waits for them."""
    run = Run("client", column, client_names(column, only))
    going = [pool.submit(run_client, name, column, folder) for name in run.wanted]

    def result() -> Run:
        run.faults += [fault for future in going if (fault := future.result())]
        run.read(folder)
        return run

    return result


# -- what is printed -------------------------------------------------------------------------------


def table(runs: list[Run]) -> list[str]:
    """One side as a Markdown table: a row for each scenario, a column for each revision."""
    columns = [run for run in runs if not run.column.startswith("required ")]
    names = list(dict.fromkeys(name for run in columns for name in run.checks))
    side = "client" if runs[0].side == "client" else "server"
    order = {name: number for number, name in enumerate(scenarios(side, OWN))}
    names.sort(key=lambda name: order.get(name, len(order)))
    lines = [
        "| scenario | " + " | ".join(run.column for run in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    lines += [
        f"| {name} | " + " | ".join(run.cell(name) for run in columns) + " |" for name in names
    ]
    return lines


def explanations(reasons: Reasons, side: str) -> list[str]:
    """The checks that were not judged, and why."""
    return [
        f"* {entry['scenario']}, {', '.join(f'`{name}`' for name in entry['names'])}, "
        f"{entry['status']}: {entry['reason']}"
        for entry in reasons.entries
        if entry["side"] == side
    ]


def page(runs: dict[str, list[Run]], reasons: Reasons) -> str:
    """The page of the guide: its text as it is, and the tables as they were observed."""
    lines = []
    for side, found in runs.items():
        lines += ["", f"## {TITLES[side]}", "", *table(found), ""]
        lines += explanations(reasons, side)
    return PAGE.read_text().partition(TABLES)[0] + TABLES + "\n".join(lines).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("side", nargs="?", choices=list(TITLES))
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--scenario", help="one scenario of the client")
    parser.add_argument("--results", type=Path, help="keep what the suite writes, in this folder")
    parser.add_argument("--write-page", action="store_true", help="write docs/conformance.md")
    options = parser.parse_args()
    sides = [options.side] if options.side else list(TITLES)
    whole = not (options.side or options.url or options.scenario)
    started = time.monotonic()
    reasons = Reasons()
    faults: list[str] = []
    runs: dict[str, list[Run]] = {}
    suite()  # installed before threads ask for it
    with ExitStack() as stack:
        folder = options.results or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = options.url
        if "server" in sides and url is None:
            url = stack.enter_context(our_server(faults))
        proxies = {}
        for column, (_, isolation, http) in PROXIED.items() if "proxy" in sides else ():
            behind = [stack.enter_context(our_server(faults))] if http else []
            program = ("proxy.py", isolation, *behind)
            proxies[column] = stack.enter_context(our_server(faults, *program))
        places = skill_servers(stack, faults) if "skills" in sides else {}
        # one server for all runs at once: what one does must not disturb the others
        with ThreadPoolExecutor(AT_ONCE) as pool:
            going: dict[str, list[Callable[..., Run]]] = {}
            if "server" in sides:
                going["server"] = [
                    pool.submit(server_run, url, column, folder / f"server {column}").result
                    for column in reversed(SERVER_COLUMNS)  # the longest first
                ][::-1]
            if "client" in sides:
                going["client"] = [
                    client_run(column, folder / f"client {column}", options.scenario, pool)
                    for column in [*REVISIONS, OWN]
                ]
            if proxies:
                going["proxy"] = [
                    pool.submit(proxied_run, place, column, folder / f"proxy {column}").result
                    for column, place in proxies.items()
                ]
            if places:
                going["skills"] = [
                    pool.submit(skills_run, place, column, folder / f"skills {column}").result
                    for column, place in places.items()
                ]
            for side, waits in going.items():
                runs[side] = [wait() for wait in waits]
    for side, found in runs.items():
        for run in found:
            run.judge(reasons)
        print(f"\n{TITLES[side]}:\n")
        print("\n".join(table(found)))
        faults += [f"{side}, {run.column}: {fault}" for run in found for fault in run.faults]
    print()
    for side in sides:
        print("\n".join(explanations(reasons, side)))
    if whole:
        faults += reasons.unused(sides)
        observed = page(runs, reasons)
        if options.write_page and not faults:
            PAGE.write_text(observed)
        elif observed != PAGE.read_text():
            faults.append(f"{PAGE.relative_to(ROOT)} shows something else: run with --write-page")
    for fault in faults:
        print(f"FAULT {fault}")
    count = Counter(
        check["status"]
        for found in runs.values()
        for run in found
        for checks in run.checks.values()
        for check in checks
    )
    told = ", ".join(f"{number} {status}" for status, number in sorted(count.items()))
    print(f"conformance: {len(faults)} faults; {told}; {time.monotonic() - started:.0f} s")
    return bool(faults)


if __name__ == "__main__":
    os.environ.pop("FORCE_COLOR", None)
    sys.exit(main())
