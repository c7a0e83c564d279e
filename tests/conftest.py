"""What the whole suite shares: how Hypothesis runs, and a header that says what is tested."""

from __future__ import annotations

import os
import sys
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
