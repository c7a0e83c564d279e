"""A server file for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.cli import SERVER


@pytest.fixture(scope="session")
def server_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a server of many tools."""
    path = tmp_path_factory.mktemp("cli") / "lab.py"
    path.write_text(SERVER)
    return path
