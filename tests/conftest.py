"""What the whole suite shares: switches and markers, event loops, revisions, the wire recorder."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from lab.client import our_threads
from wire_recorder import Recorder
from wire_transcripts import UNHEARD, Transcript

import wirespeed
from wirespeed import core
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.transport.loop import loop_factory as default_loop

pytest_plugins = ("lab.wording", "lab.store")

HERE = Path(__file__).parent
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
# Folders all of whose tests exercise compiled modules.
COMPILED = {"bench", "core", "fuzz", "property", "stress", "transport"}
# Folders whose tests run on both loops.
BOTH_LOOPS = {"transport", "stress"}
# Folders and files that take long come first, so that no process is alone with one at the end.
LONG = (
    "unit/transport/net/",
    "unit/test_packaging.py",
    "unit/transport/test_compiled_callers.py",
    "unit/cli/",
    "interop/",
    "unit/proxy/",
    "unit/transport/",
    "property/",
)
# The newest revision of each era, for tests that do not assert rules of revisions.
SAMPLE = ("2025-11-25", "2026-07-28")
UVLOOP_LEAVES = "unclosed resource <UDPTransport"  # pyproject.toml says why
# No test waits as long as this unless the code under test hangs.
BOUND_SECONDS = 60.0

# Rewriting the assertions of all files takes 20 s, in each process of a run, unless what an earlier
# run has written is found: also where PYTHONDONTWRITEBYTECODE is set, as in many containers.
sys.dont_write_bytecode = False

TRANSCRIPT = pytest.StashKey[Transcript]()

Run = Callable[[Coroutine[Any, Any, Any]], Any]
MakeLoop = Callable[[], asyncio.AbstractEventLoop]

# No deadlines: time limits fail on a busy machine and say nothing about the code.
settings.register_profile(
    "wirespeed", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
# For sanitizers, which are many times slower: --hypothesis-profile=few
settings.register_profile("few", parent=settings.get_profile("wirespeed"), max_examples=20)
# For transcripts, which two runs are compared by.
settings.register_profile("same", parent=settings.get_profile("wirespeed"), derandomize=True)
settings.register_profile("full", parent=settings.get_profile("wirespeed"), max_examples=300)
settings.load_profile("wirespeed")


def pytest_report_header(config: pytest.Config) -> str:
    """The package under test: the installed one, unless somebody set PYTHONPATH."""
    loop = os.environ.get("WIRESPEED_LOOP", "default")
    return (
        f"wirespeed {wirespeed.__version__} from {Path(wirespeed.__file__).parent}, "
        f"SIMD {core.simd_level()}, loop {loop}, {sys.implementation.cache_tag}"
    )


@pytest.fixture(scope="session", autouse=True)
def ps_without_preload(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Under a sanitizer ps would hang: its own start-up allocates before the library is ready."""
    ps = shutil.which("ps")
    if "LD_PRELOAD" not in os.environ or ps is None:
        yield
        return
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "ps"
    script.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {ps} "$@"\n')
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        yield


@pytest.fixture
def nothing_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The test leaves no threads, and no tasks or futures whose exception was never retrieved."""
    yield
    gc.collect()
    gc.freeze()  # the next collection looks only at what is newer
    deadline = time.monotonic() + BOUND_SECONDS
    while left := our_threads():  # they end shortly after what they did was seen
        assert time.monotonic() < deadline, left
        time.sleep(0.005)
    noise = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.name == "asyncio" and record.levelno >= logging.ERROR
    ]
    assert not noise


def pytest_addoption(parser: pytest.Parser) -> None:
    """Switches of the whole suite."""
    parser.addoption(
        "--full",
        action="store_true",
        help="every loop, every revision and every peer, instead of a sample",
    )
    parser.addoption(
        "--no-recorder",
        action="store_true",
        help="do not check each sent message against its revision (another run does)",
    )
    parser.addoption(
        "--transcripts",
        metavar="FOLDER",
        type=Path,
        help="write down each message that is sent, for tests/wire_schemas/wire_transcripts.py",
    )
    parser.addoption(
        "--write-matrix",
        action="store_true",
        help="write docs/interoperability.md out of what tests/interop observes (needs --full)",
    )


MARKERS = (
    "smoke: a sample of every folder that runs within a minute, on both loops",
    "full(why): left out unless the run has --full",
    "compiled: exercises compiled modules, so it runs under sanitizers and on each Python, too",
    "both_loops: the test runs on asyncio's own loop and on uvloop",
    "every_revision: the test asserts rules of revisions, so it runs in each of them",
    "own_environment: starts children without LD_PRELOAD, so it is left out under sanitizers",
    "off_schema(why): what the package sends is not looked at",
)


def pytest_configure(config: pytest.Config) -> None:
    """Markers of the whole suite; a run with --full tries more examples of each property."""
    if config.getoption("--full") and not config.getoption("--hypothesis-profile"):
        settings.load_profile("full")
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption("--transcripts"):
        settings.load_profile("same")
        config.stash[TRANSCRIPT] = Transcript()
    # What a shell starts in the background ignores SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Each process writes down what its connections have sent."""
    if TRANSCRIPT in config.stash and not config.getoption("numprocesses", None):
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        config.stash[TRANSCRIPT].write(config.getoption("--transcripts") / f"{worker}.txt")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto`: two workers for each core for whole folders, none for a few files.

    Half of the time of a test is waiting for children, sockets and timers.
    """
    named = [Path(arg.partition("::")[0]) for arg in config.args]
    wide = all(path.is_dir() and len(list(path.rglob("test_*.py"))) > 20 for path in named)
    return 2 * len(os.sched_getaffinity(0)) if wide and hasattr(os, "sched_getaffinity") else 0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The axes: which loops and which revisions a test runs on.

    With WIRESPEED_LOOP set, every test runs on that loop alone.
    """
    full = metafunc.config.getoption("--full")

    def marked(*names: str) -> bool:
        return full or any(metafunc.definition.get_closest_marker(name) for name in names)

    if "any_loop" in metafunc.fixturenames:
        chosen = os.environ.get("WIRESPEED_LOOP")
        of_loops = not BOTH_LOOPS.isdisjoint(metafunc.definition.path.relative_to(HERE).parts)
        both = not chosen and (of_loops or marked("both_loops", "smoke"))
        metafunc.parametrize("any_loop", tuple(LOOPS) if both else (chosen or "uvloop",))
    if "any_revision" in metafunc.fixturenames:
        every = marked("every_revision")
        metafunc.parametrize("any_revision", tuple(REVISIONS) if every else SAMPLE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m compiled`` and ``-m smoke``, files without such tests are not read: that takes
    long."""
    mark = config.option.markexpr
    if mark not in ("compiled", "smoke") or not collection_path.match("test_*.py"):
        return None
    parts = collection_path.relative_to(HERE).parts
    whole = mark == "compiled" and not COMPILED.isdisjoint(parts)
    return None if whole or mark in collection_path.read_text() else True


@cache
def turn(path: Path) -> int:
    """When a file's tests come: as LONG has it, and behind that all others."""
    name = path.relative_to(HERE).as_posix()
    return next((n for n, long in enumerate(LONG) if name.startswith(long)), len(LONG))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark whole folders; leave out what only a run with --full does; put what takes long first."""
    items.sort(key=lambda item: turn(item.path))
    for path, found in groupby(items, key=attrgetter("path")):
        if not COMPILED.isdisjoint(path.relative_to(HERE).parts):
            for item in found:
                item.add_marker(pytest.mark.compiled)
    unwanted = []
    if not config.getoption("--full"):
        unwanted.append("full")
    if "LD_PRELOAD" in os.environ:
        unwanted.append("own_environment")
    left_out = [item for item in items if any(map(item.get_closest_marker, unwanted))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(name: str, obj: object) -> None:
    """A test that is a coroutine needs the fixture that runs it, `run` unless it names `once`."""
    if name.startswith("test_") and inspect.iscoroutinefunction(obj):
        fixture = "once" if "once" in inspect.signature(obj).parameters else "run"
        pytest.mark.usefixtures(fixture)(obj)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs on the loop of its fixture `run` or `once`."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    pyfuncitem.funcargs["once" if "once" in arguments else "run"](test(**arguments))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in what a test logged: pytest-xdist cannot send them."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.fixture(scope="module", autouse=True)
def small_collections() -> None:
    """A test's own collections look at what is newer than its file: not at thousands of tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def loop_factory(any_loop: str) -> MakeLoop:
    """What makes the loop that the test is for."""
    return LOOPS[any_loop]


@pytest.fixture
def bound() -> float:
    """Seconds after which a test that is a coroutine counts as hung."""
    return BOUND_SECONDS


def close(runner: asyncio.Runner) -> list[Warning]:
    """Close its loop. Returns the warnings about what is still open, for uvloop never ends closing
    where one of them is raised."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", UVLOOP_LEAVES, ResourceWarning)
        runner.close()
    return [one.message for one in caught if isinstance(one.message, Warning)]


def runner_of(make_loop: MakeLoop, bound: float) -> Run:
    """Runs a coroutine on a new loop, for a bounded time."""

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(bound):
                return await main

        runner = asyncio.Runner(loop_factory=make_loop)
        try:
            result = runner.run(bounded())
        except BaseException:
            close(runner)
            raise
        for warning in close(runner):
            raise warning
        return result

    return run


@pytest.fixture
def run(loop_factory: MakeLoop, bound: float) -> Run:
    """``run(coroutine)`` on the loop that the test is for."""
    return runner_of(loop_factory, bound)


@pytest.fixture
def once(bound: float) -> Run:
    """``once(coroutine)``, for what has nothing to do with the loop: on the default one."""
    return runner_of(default_loop(), bound)


@pytest.fixture
def runner(loop_factory: MakeLoop) -> Iterator[asyncio.Runner]:
    """A runner with the loop that the test is for."""
    runner = asyncio.Runner(loop_factory=loop_factory)
    yield runner
    for warning in close(runner):
        raise warning


@pytest.fixture(autouse=True)
def recorder(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """All that the package's servers and clients send during a test fits the revision in force."""
    is_heard = UNHEARD.isdisjoint(request.path.relative_to(HERE).parts)
    transcript = request.config.stash.get(TRANSCRIPT, None) if is_heard else None
    asked_for = "recorder" in inspect.signature(request.function).parameters
    off_schema = request.node.get_closest_marker("off_schema") is not None
    unjudged = off_schema or request.config.getoption("--no-recorder")
    heard = Recorder(transcript, judges=asked_for or not unjudged)
    if unjudged and not asked_for and transcript is None:
        yield heard
        return
    heard.start()
    yield heard
    heard.stop()
    if heard.problems and not off_schema:
        several = "\n".join(heard.problems[:20])
        pytest.fail(f"the package sent what its revision does not know:\n{several}", pytrace=False)
