"""What the whole suite shares: how Hypothesis runs, and a header that says what is tested."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

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
