"""What the benchmark scripts share: rounds, ratios, environments, and what is recorded.

Contenders run interleaved (A B C, A B C, …) so that a slow spell of the machine meets all of
them; a ratio is formed within a round, and its median and spread over the rounds are reported.
A contender that gave a wrong answer, or could not run, gets no number.
"""

import compileall
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BUILD = HERE / ".build"
RIVALS = HERE / "rivals"

TIMES = "×"  # noqa: RUF001
NOT_MEASURED = "not measured: "  # begins the note of a contender that lacks a package

Sample = dict[str, Any]
Samples = dict[str, list[Sample]]


@dataclass
class Settings:
    """How much to run.  `scale` multiplies every count of calls."""

    rounds: int = 7
    scale: float = 1.0
    rivals_python: str = str(HERE / ".venvs" / "mcp2" / "bin" / "python")
    verbose: bool = True
    venvs: Path = HERE / ".venvs"
    seconds: float = 60.0  # of what is measured by the clock

    def calls(self, count: int) -> int:
        return max(50, int(count * self.scale))

    def rival(self, environment: str) -> str:
        """The interpreter of a rivals' environment; "" is the one wirespeed is measured in."""
        if environment == "mcp2":
            return self.rivals_python
        return str(self.venvs / environment / "bin" / "python") if environment else sys.executable

    def say(self, text: str) -> None:
        if self.verbose:
            print(text, file=sys.stderr, flush=True)


@dataclass
class Target:
    """One line of the table: what was asked and what was measured.

    `values` are one number a round (ratios, or plain figures with `unit`); the median is judged
    against `limit`, from below if `at_least`, else from above.
    """

    key: str
    question: str
    limit: float
    at_least: bool
    unit: str
    values: list[float]
    correct: bool
    note: str = ""
    figures: dict[str, float] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        judged = self.correct and bool(self.values)
        median = statistics.median(self.values) if judged else None
        met = None
        if median is not None:
            met = median >= self.limit if self.at_least else median <= self.limit
        return {
            "key": self.key,
            "question": self.question,
            "target": f"{'≥' if self.at_least else '≤'} {self.limit:g}{self.unit}",
            "unit": self.unit,
            "median": median,
            "min": min(self.values) if judged else None,
            "max": max(self.values) if judged else None,
            "rounds": len(self.values),
            "correct": self.correct,
            "measured": not self.note.startswith(NOT_MEASURED),
            "met": met,
            "note": self.note,
            "figures": self.figures,
        }


def build_tools() -> None:
    """Compiles the C programs into benchmarks/.build if they are missing or old."""
    subprocess.run(["make", "-s", "-C", str(HERE / "load")], check=True)


def compile_modules() -> None:
    """Compiles wirespeed's Python modules, as pip does.  Where nothing is cached, each process
    would compile them, and keep 1 MiB more."""
    package = find_spec("wirespeed")
    assert package is not None
    for folder in package.submodule_search_locations or ():
        compileall.compile_dir(folder, quiet=1)


def tool(name: str) -> str:
    return str(BUILD / name)


def lacking(**packages: str) -> Sample | None:
    """A sample that says what to install; None when every module (to its package) is there."""
    missing = [package for module, package in packages.items() if find_spec(module) is None]
    if not missing:
        return None
    return {"correct": False, "error": f"{NOT_MEASURED}pip install {' '.join(missing)}"}


def run_json(command: Sequence[str], timeout: float) -> Sample:
    """Runs a program that prints one JSON line.  A failure is a sample that is not correct."""
    try:
        run = subprocess.run(
            list(command), capture_output=True, text=True, timeout=timeout, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"correct": False, "error": f"{type(error).__name__}: {error}"}
    try:
        sample: Sample = json.loads(run.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        last = run.stderr.strip().splitlines()[-1:] or ["no output"]
        return {"correct": False, "error": f"exit status {run.returncode}: {last[0]}"}
    if not sample.get("correct") and run.stderr:
        sample["stderr"] = run.stderr[-500:]
    return sample


def interleave(
    settings: Settings, contenders: Mapping[str, Callable[[], Sample]], rounds: int | None = None
) -> Samples:
    """Runs every contender once a round.  One that fails is not run again."""
    samples: Samples = {name: [] for name in contenders}
    failed: set[str] = set()
    for number in range(rounds or settings.rounds):
        for name, measure in contenders.items():
            if name in failed:
                continue
            sample = measure()
            samples[name].append(sample)
            if not sample["correct"]:
                failed.add(name)
                reason = str(sample.get("error") or sample.get("first_wrong"))
                wrong = "" if reason.startswith(NOT_MEASURED) else "WRONG, no number: "
                settings.say(f"  {name}: {wrong}{reason}")
        settings.say(f"  round {number + 1} done")
    return samples


def correct(samples: Samples, *names: str) -> bool:
    return all(samples[name] and all(s["correct"] for s in samples[name]) for name in names)


def ratios(samples: Samples, ours: str, theirs: str, key: str) -> list[float]:
    """ours/theirs for each round; empty if either gave a wrong answer."""
    if not correct(samples, ours, theirs):
        return []
    pairs = zip(samples[ours], samples[theirs], strict=True)
    return [a[key] / b[key] for a, b in pairs]


def best_ratios(samples: Samples, ours: str, theirs: Sequence[str], key: str) -> list[float]:
    """ours over the best of theirs, for each round; empty if anybody gave a wrong answer."""
    if not correct(samples, ours, *theirs):
        return []
    rounds = zip(*(samples[name] for name in (ours, *theirs)), strict=True)
    return [taken[0][key] / max(s[key] for s in taken[1:]) for taken in rounds]


def medians(samples: Samples, key: str) -> dict[str, float]:
    """The median figure of each contender that answered correctly."""
    return {
        name: statistics.median(s[key] for s in taken)
        for name, taken in samples.items()
        if correct(samples, name)
    }


def why_wrong(samples: Samples, *names: str) -> str:
    """A short reason for the table when a contender has no number."""
    for name in names:
        for sample in samples[name]:
            if not sample["correct"]:
                reason = str(sample.get("error") or sample.get("first_wrong"))
                return reason if reason.startswith(NOT_MEASURED) else f"{name}: {reason}"
    return ""


def versus(
    key: str, question: str, limit: float, samples: Samples, ours: str, theirs: Sequence[str],
    figure: str = "calls_per_s", beside: Sequence[str] = (), *, at_least: bool = True,
) -> Target:  # fmt: skip
    """A line about our figure over the best of theirs; the figures of `beside` are shown, too."""
    shown = {name: samples[name] for name in (ours, *theirs, *beside)}
    return Target(
        key, question, limit, at_least, TIMES, best_ratios(samples, ours, theirs, figure),
        correct(samples, ours, *theirs), why_wrong(samples, ours, *theirs),
        figures=medians(shown, figure),
    )  # fmt: skip


def within(
    key: str, question: str, limit: float, unit: str, samples: Samples, ours: str, figure: str,
    *, scale: float = 1, beside: Sequence[str] = (),
) -> Target:  # fmt: skip
    """A line about one of our figures, times `scale`; `beside` names others that are shown, too."""
    right = correct(samples, ours)
    figures = {who: value * scale for who, value in medians(samples, figure).items()}
    if right:
        figures |= {name: statistics.median(s[name] for s in samples[ours]) for name in beside}
    return Target(
        key, question, limit, False, unit,
        [s[figure] * scale for s in samples[ours]] if right else [],
        right, why_wrong(samples, ours), figures,
    )  # fmt: skip


def client_load(
    settings: Settings, environment: str, script: str, loop: str, calls: int, window: int,
    *command: str,
) -> Sample:  # fmt: skip
    """Calls by a client in rivals/ of the server at a URL, or of the one that a command starts."""
    count = settings.calls(calls)
    return run_json(
        [
            *(settings.rival(environment), str(RIVALS / script)),
            *("--calls", str(count), "--warmup", str(min(2_000, count // 5))),
            *("--window", str(window), "--loop", loop, "--timeout", "120", "--", *command),
        ],
        150,
    )


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        run = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return run.stdout.strip() or platform.machine()
    return platform.processor() or platform.machine()


def package_versions() -> dict[str, str]:
    versions = {}
    for name in ("wirespeed", "uvloop", "msgspec", "orjson"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed (run from the source tree)"
    return versions


# environment -> the packages whose versions are told, and how they are called in the table
TOLD: dict[str, dict[str, str]] = {
    "mcp2": {"mcp": "mcp", "pydantic": "pydantic", "anyio": "anyio", "uvloop": "uvloop"},
    "http": {"uvicorn": "uvicorn", "httptools": "httptools"},
    "mcp1": {"mcp": "mcp (WebSocket)", "uvicorn": "uvicorn (WebSocket)"},
    "websocket": {"picows": "picows", "websockets": "websockets"},
}


def rival_versions(settings: Settings) -> dict[str, str]:
    versions: dict[str, str] = {}
    for environment, packages in TOLD.items():
        code = (
            "import importlib.metadata as m, json, platform;"
            "print(json.dumps({'correct': True, 'python': platform.python_version(),"
            f" **{{n: m.version(n) for n in {tuple(packages)!r}}}}}))"
        )
        sample = run_json([settings.rival(environment), "-c", code], 30)
        if sample["correct"]:
            versions.setdefault("python", sample["python"])
            versions |= {called: sample[name] for name, called in packages.items()}
        else:
            missing = "not installed (run benchmarks/setup_rivals.py)"
            versions |= dict.fromkeys(packages.values(), missing)
    return versions


def machine() -> dict[str, Any]:
    return {
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "load_before": os.getloadavg()[0],
    }
