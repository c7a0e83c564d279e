"""A watch over what tests leave behind."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def watched(nothing_left: None) -> None:
    """No test of this folder leaves anything behind."""
