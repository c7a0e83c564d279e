"""Instructions per call of the hot paths, compared with a baseline: did a change make one slower?

    python benchmarks/guard                   compare; exit status 1 if a path costs over 2 % more
    python benchmarks/guard --refresh         write what was counted into baseline.json
    python benchmarks/guard --base COMMIT     build that commit and compare with it

callgrind counts the instructions of N and of 2N calls; the difference, divided by N, is what one
call costs, without start and end. The hash seed, the kernels (AVX2) and the loop (asyncio's) are
fixed, so that a count comes out the same each time, within about 0.2 % (of the proxy: 0.7 %). A
path that seems slower is counted again, three times at most, and the smallest count is compared.

A baseline belongs to a version of CPython, of msgspec and of the compiler. For others the base
commit is built and counted in the same run: where the branch left `origin/main` or `main`, or the
commit before, if HEAD is there. Linux on x86-64 only; needs valgrind, and git for a base commit.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BASELINE = HERE / "baseline.json"
TOLERANCE = 0.02
RECOUNTS = 3

sys.path.insert(0, str(HERE))

Counts = dict[str, float]


class LeftOut(Exception):
    """Nothing can be compared here."""


def environment(source: Path | None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WIRESPEED_")}
    fixed = {"PYTHONHASHSEED": "0", "WIRESPEED_SIMD": "avx2", "WIRESPEED_LOOP": "asyncio"}
    fixed["WIRESPEED_WATCHDOG"] = "0"  # it looks by the clock, not by the call
    if source is not None:
        fixed["PYTHONPATH"] = str(source)
    return kept | fixed | {"PYTHONDONTWRITEBYTECODE": "1"}


def key() -> str:
    """What the counts depend on besides this package's source."""
    from wirespeed._core import _simd

    assert _simd.__file__ is not None
    found = re.search(rb"(GCC|clang version)[^\0]*?([0-9]+\.[0-9]+\.[0-9]+)", module_bytes(_simd))
    compiler = f"{found[1].decode()} {found[2].decode()}" if found else "unknown compiler"
    python = f"CPython {platform.python_version()} ({platform.python_compiler()})"
    shared = " shared" if sysconfig.get_config_var("Py_ENABLE_SHARED") else ""
    return f"{compiler}, {python}{shared}, msgspec {version('msgspec')}, {platform.machine()}"


def module_bytes(module: object) -> bytes:
    return Path(str(getattr(module, "__file__", ""))).read_bytes()


def start(
    folder: Path, source: Path | None, factor: float, names: Collection[str] = ()
) -> subprocess.Popen[str]:
    """Count workloads, by default every one, at N and at 2N, in the background."""
    from workloads import WORKLOADS

    work = []
    for name in names or WORKLOADS:
        n = max(int(WORKLOADS[name][1] * factor) // 64, 1) * 64
        work += [f"{name}={n}", f"{name}={2 * n}"]
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/%p"]
    return subprocess.Popen(
        [*command, "--quiet", sys.executable, str(HERE / "workloads.py"), *work],
        env=environment(source),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(folder: Path, started: subprocess.Popen[str]) -> Counts:
    """Instructions per call by workload; a workload that failed is missing."""
    out, err = started.communicate()
    totals: dict[str, dict[int, int]] = {}
    for line in out.splitlines():
        name, number, pid = line.rsplit(" ", 2)
        text = (folder / pid).read_text()
        total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        if total is not None:
            totals.setdefault(name, {})[int(number)] = int(total[1])
    if started.returncode != 0 or not totals:
        print(err[-3000:], file=sys.stderr)
    if started.returncode != 0:
        raise SystemExit("the workloads failed")
    counts = {}
    for name, by_number in totals.items():
        (n, once), (_, twice) = sorted(by_number.items())
        counts[name] = round((twice - once) / n, 1)
    return counts


def git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise LeftOut(f"git {arguments[0]}: {done.stderr.strip() or 'failed'}")
    return done.stdout.strip()


def base_commit(repository: Path) -> str:
    for branch in ("origin/main", "main"):
        try:
            found = git(repository, "merge-base", "HEAD", branch)
        except LeftOut:
            continue
        if found != git(repository, "rev-parse", "HEAD"):
            return found
    return git(repository, "rev-parse", "HEAD^")


def build(repository: Path, commit: str, folder: Path) -> Path:
    """The sources of a commit, built in place: what PYTHONPATH needs."""
    archive = subprocess.run(
        ["git", "-C", str(repository), "archive", commit], capture_output=True, check=True
    )
    subprocess.run(["tar", "-xf", "-", "-C", str(folder)], input=archive.stdout, check=True)
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env=environment(None),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"{commit} cannot be built:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return folder / "src"


def slower(new: Counts, old: Counts) -> list[str]:
    return [name for name in new if name in old and new[name] > old[name] * (1 + TOLERANCE)]


def report(new: Counts, old: Counts, against: str) -> bool:
    """Print the table; whether nothing became slower than the tolerance."""
    worse = slower(new, old)
    print(f"instructions per call, against {against}")
    for name, count in new.items():
        before = old.get(name)
        if before is None:
            print(f"  {name:22} {count:12,.0f}   (new)")
            continue
        change = count / before - 1
        mark = ""
        if name in worse:
            mark = "  SLOWER"
        elif change < -TOLERANCE:
            mark = "  faster: --refresh keeps it so"
        print(f"  {name:22} {count:12,.0f} {before:12,.0f} {change:+8.2%}{mark}")
    missing = old.keys() - new.keys()
    if missing:
        print(f"  not counted any more: {', '.join(sorted(missing))}")
    return not worse and not missing


def guard(options: argparse.Namespace, folder: Path) -> int:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise LeftOut("the guard needs Linux on x86-64")
    if shutil.which("valgrind") is None:
        raise LeftOut("there is no valgrind")
    here = key()
    known = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    factor = 4.0 if options.full else 1.0
    ours = folder / "ours"
    ours.mkdir()
    counting = start(ours, None, factor)
    old: Counts | None = None
    if options.base is None and not options.refresh and here in known:
        old, against = known[here], f"the baseline of {here}"
    elif not options.refresh:
        repository = Path(options.repository)
        try:
            commit = options.base or base_commit(repository)
            commit = git(repository, "rev-parse", f"{commit}^{{commit}}")
        except LeftOut:
            counting.kill()
            counting.communicate()
            raise LeftOut(f"no baseline for {here}, and no base commit") from None
        theirs = folder / "theirs"
        (theirs / "tree").mkdir(parents=True)
        source = build(repository, commit, theirs / "tree")
        old = finish(theirs, start(theirs, source, factor))
        against = f"commit {commit[:12]} built here ({here})"
    new = finish(ours, counting)
    if options.refresh:
        BASELINE.write_text(json.dumps(known | {here: new}, indent=2) + "\n")
        print(f"{BASELINE}: {here}")
        return 0
    assert old is not None
    for n in range(RECOUNTS):
        again = slower(new, old)
        if not again:
            break
        # Sockets that become ready one by one take more turns of the loop: that only adds.
        further = folder / f"again{n}"
        further.mkdir()
        counted = finish(further, start(further, None, factor, again))
        new |= {name: min(count, new[name]) for name, count in counted.items()}
    return 0 if report(new, old, against) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/guard", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--refresh", action="store_true", help="write the baseline")
    parser.add_argument("--base", metavar="COMMIT", help="build this commit and compare with it")
    parser.add_argument("--full", action="store_true", help="four times the calls")
    parser.add_argument("--repository", metavar="DIR", default=str(ROOT), help="where commits are")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wirespeed-guard.") as folder:
        try:
            return guard(options, Path(folder))
        except LeftOut as exc:
            print(f"left out: {exc}")
            return 0


if __name__ == "__main__":
    sys.exit(main())
