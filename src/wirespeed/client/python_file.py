"""The target ``FILE.py[:NAME]``: the command that serves a Python file."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirespeed.transport.child.command import Stdio

__all__ = ["from_file", "python_file"]

_URL = re.compile(r"unix:|[\w+]+://")
_NAMED = re.compile(r"(.+\.py)(?::([A-Za-z_][\w.]*))?\Z", re.DOTALL)


def python_file(word: str) -> tuple[str, str | None] | None:
    """``FILE.py[:NAME]`` as (file, name); None for any other word."""
    match = None if word.endswith(".py") and os.path.exists(word) else _NAMED.match(word)
    if match is not None:
        return match[1], match[2]
    return (word, None) if word.endswith(".py") else None


def from_file(word: str) -> Stdio | None:
    """The command that serves ``FILE.py[:NAME]``; None for any other word. ValueError if the file
    does not exist."""
    found = None if _URL.match(word) else python_file(word)
    if found is None:
        return None
    if not os.path.isfile(found[0]):
        raise ValueError(f"there is no file {found[0]}")
    from wirespeed.transport.child.command import Stdio

    return Stdio(sys.executable, ["-m", "wirespeed", "serve", word])
