"""What the whole suite shares: how Hypothesis runs, and a header that says what is tested."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from wire_recorder import Recorder

import wirespeed
from wirespeed import core

# No deadlines: time limits fail on a busy machine and say nothing about the code.
settings.register_profile("wirespeed", deadline=None, print_blob=True)
# For sanitizers, which are many times slower: --hypothesis-profile=few
settings.register_profile("few", parent=settings.get_profile("wirespeed"), max_examples=20)
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


@pytest.fixture(autouse=True, scope="module")
def no_threads_left() -> Iterator[None]:
    """Some tests count threads: those of tools and of clients' handlers end with their module."""
    yield
    for name in ("wirespeed.server.launch", "wirespeed.client.threads"):
        home = sys.modules.get(name)
        if home is not None and home._executor is not None:
            home._executor.shutdown()
            home._executor = None
    for thread in threading.enumerate():
        if thread.name.startswith("wirespeed-worker"):
            thread.join(20)
            assert not thread.is_alive(), thread


def pytest_addoption(parser: pytest.Parser) -> None:
    """Switches of the whole suite."""
    parser.addoption(
        "--write-matrix",
        action="store_true",
        help="write docs/interoperability.md out of what tests/interop observes",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Markers of the whole suite."""
    config.addinivalue_line(
        "markers", "off_schema(why): the package is made to send what no revision knows"
    )
    config.addinivalue_line("markers", "unheard(why): what the package sends is not looked at")


@pytest.fixture(autouse=True)
def recorder(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """All that the package's servers and clients send during a test fits the revision in force."""
    heard = Recorder()
    if request.node.get_closest_marker("unheard") is not None:
        yield heard
        return
    heard.start()
    yield heard
    heard.stop()
    if request.node.get_closest_marker("off_schema") is None and heard.problems:
        several = "\n".join(heard.problems[:20])
        pytest.fail(f"the package sent what its revision does not know:\n{several}", pytrace=False)
