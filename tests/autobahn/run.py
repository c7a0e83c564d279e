"""The Autobahn cases against our frames, as a server and as a client, driven by `kosoku`.

    python tests/autobahn/run.py            all cases but most of 12 and 13 (compression)
    python tests/autobahn/run.py --full     all cases

kosoku is installed for the run if it is not there. Exit status 1 when a verdict is not the one that
it must be; the last line counts.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

KOSOKU = "kosoku==0.1.0"
ECHO = Path(__file__).with_name("echo.py")
AGENT = "wirespeed"

GROUPS = ["1", "2", "3", "4", "5", "6", "7", "9", "10", "12", "13"]
# Of the many cases of 12 and 13: message sizes, fragments and window sizes, each at least once.
SAMPLE = [
    "12.1.1", "12.1.4", "12.1.10", "12.1.18", "12.2.7", "12.3.2", "12.4.13", "12.5.5", "12.5.16",
    "13.1.1", "13.1.12", "13.2.6", "13.2.18", "13.3.3", "13.4.9", "13.5.15", "13.6.4", "13.7.8",
]  # fmt: skip
# Every other case must be OK, its closing handshake too.
OTHER = {
    # these let the verdict be less than OK when bad UTF-8 is found at the message's end only
    "6.4.1": ("NON-STRICT", "OK"),
    "6.4.2": ("NON-STRICT", "OK"),
    "6.4.3": ("NON-STRICT", "OK"),
    "6.4.4": ("NON-STRICT", "OK"),
    # these have no other verdict
    "7.1.6": ("INFORMATIONAL", "INFORMATIONAL"),
    "7.13.1": ("INFORMATIONAL", "INFORMATIONAL"),
    "7.13.2": ("INFORMATIONAL", "INFORMATIONAL"),
}
SECONDS = 240.0  # for one side
SECONDS_FULL = 1200.0


def load(folder: str) -> Any:
    """The kosoku module, installed into the folder if need be."""
    try:
        return importlib.import_module("kosoku")
    except ImportError:
        pass
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", folder, KOSOKU], check=True, timeout=120)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    return importlib.import_module("kosoku")


async def start(*arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, str(ECHO), *arguments, stdin=pipe, stdout=pipe
    )


async def end(child: asyncio.subprocess.Process) -> None:
    assert child.stdin is not None
    child.stdin.close()
    try:
        await asyncio.wait_for(child.wait(), 10)
    except TimeoutError:
        child.kill()
        await child.wait()


async def our_server(kosoku: Any, cases: list[str]) -> list[Any]:
    child = await start("serve")
    try:
        assert child.stdout is not None
        port = int(await child.stdout.readline())
        return list(await kosoku.run_fuzzingclient(f"ws://127.0.0.1:{port}", cases, concurrency=2))
    except kosoku.FailureError as failure:
        return list(failure.results)
    finally:
        await end(child)


async def our_client(kosoku: Any, cases: list[str]) -> list[Any]:
    async with kosoku.run_fuzzingserver(cases, host="127.0.0.1", port=0) as server:
        child = await start("run", f"{server.address}:{server.port}", AGENT)
        result = asyncio.ensure_future(server.get_result())
        try:
            if status := await child.wait():
                raise RuntimeError(f"the echo client ended with status {status}")
            return list(await asyncio.wait_for(result, 10))
        except kosoku.FailureError as failure:
            return list(failure.results)
        finally:
            result.cancel()
            await end(child)


def covered(case: str, results: list[Any]) -> bool:
    """Whether something of this case, or group with a star, was run."""
    if not case.endswith("*"):
        return any(result.case_id == case for result in results)
    return any(result.case_id.startswith(case[:-1]) for result in results)


def judge(side: str, results: list[Any], cases: list[str]) -> int:
    """Print what is not as it must be; returns how many cases that are."""
    wrong = []
    for result in results:
        got = (result.behavior.value, result.behavior_close.value)
        if got != OTHER.get(result.case_id, ("OK", "OK")):
            wrong.append((result.case_id, *got, result.result, result.result_close))
    wrong += [(case, "not run", "", "", "") for case in cases if not covered(case, results)]
    verdicts = Counter(result.behavior.value for result in results)
    counts = ", ".join(f"{n} {name}" for name, n in sorted(verdicts.items()))
    print(f"{side}: {len(results)} cases: {counts}")
    for case, behavior, closing, why, why_closing in wrong:
        print(f"  {case:8} {behavior:14} {closing:14} {why} {why_closing}")
    return len(wrong)


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--full", action="store_true", help="all cases of 12 and 13")
    arguments.add_argument("--cases", nargs="+", metavar="CASE", help="only these (6.* or 7.1.6)")
    options = arguments.parse_args()
    cases = options.cases or [f"{group}.*" for group in GROUPS]
    if not options.cases and not options.full:
        cases = [case for case in cases if case not in ("12.*", "13.*")] + SAMPLE
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        kosoku = load(folder)
        for side, play in (("our server", our_server), ("our client", our_client)):
            started = time.monotonic()
            try:
                async with asyncio.timeout(SECONDS_FULL if options.full else SECONDS):
                    results = await play(kosoku, cases)
            except (TimeoutError, RuntimeError) as exc:
                print(f"{side}: {str(exc) or 'out of time'}")
                failed += 1
                continue
            wrong = judge(side, results, cases)
            print(f"  {time.monotonic() - started:.0f} s")
            failed += wrong
            passed += len(results) - wrong
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
