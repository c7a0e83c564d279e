"""A server in a Python file, as the command that serves it."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirespeed.transport.child.command import Stdio

__all__ = ["from_file"]

_PYTHON = re.compile(r"(?!unix:|\w+://)(.+\.py)(?::[A-Za-z_][\w.]*)?\Z", re.DOTALL)


def from_file(path: str) -> Stdio | None:
    """The command that serves ``FILE.py`` or ``FILE.py:NAME``; None for text of another form.
    ValueError if the file does not exist."""
    match = _PYTHON.match(path)
    if match is None:
        return None
    if not os.path.isfile(match[1]):
        raise ValueError(f"there is no file {match[1]}")
    from wirespeed.transport.child.command import Stdio

    return Stdio(sys.executable, ["-m", "wirespeed", "serve", path])
