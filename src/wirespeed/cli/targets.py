"""TARGET: what the words of the command line name, and the client's settings that go with it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wirespeed.cli.failures import cannot_start, usage

if TYPE_CHECKING:
    from wirespeed.client.target import Stdio

KINDS = "a FILE.py, a mcpServers FILE.json with #name, or -- COMMAND…"

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:unix|tcp):")
_PYTHON = re.compile(r"(.+\.py)(?::([A-Za-z_][\w.]*))?\Z", re.DOTALL)


@dataclass(frozen=True)
class Target:
    """What to start, and what its configuration says of calls: seconds, and the era."""

    stdio: Stdio
    timeout: float | None = None
    era: str = "auto"


def find(
    word: str | None, command: Sequence[str] | None, *, stderr: Callable[[str], object] | str
) -> Target:
    """The target of a command line: a word, or a command behind ``--``.

    Failure (2 or 3) or ConfigError says what is wrong with it.
    """
    from wirespeed.client.target import Stdio

    if command is not None:
        if not command:
            raise usage("there is no command behind --")
        if not command[0]:
            raise usage("the command behind -- is empty")
        # The user's own shell has the variables that the server needs, as with any command.
        return Target(Stdio(command[0], command[1:], stderr=stderr, inherit_env=True))
    assert word is not None
    if not word:
        raise usage(f"TARGET is empty; it is {KINDS}")
    if _URL.match(word) and not os.path.exists(word):
        raise cannot_start(
            f"cannot connect to {word}: this version speaks stdio only; TARGET is {KINDS}"
        )
    python = python_file(word)
    if python is not None:
        check_file(python[0])
        args = ["-m", "wirespeed", "serve", word]
        return Target(Stdio(sys.executable, args, stderr=stderr, inherit_env=True))
    return _configured(word, stderr)


def python_file(word: str) -> tuple[str, str | None] | None:
    """``FILE.py[:NAME]`` as (file, name); None for any other word."""
    match = None if word.endswith(".py") and os.path.exists(word) else _PYTHON.match(word)
    if match is not None:
        return match[1], match[2]
    return (word, None) if word.endswith(".py") else None


def check_file(path: str) -> None:
    """Failure (3) unless there is a file of this name that can be read."""
    if not os.path.exists(path):
        raise cannot_start(f"there is no file {path}")
    if not os.path.isfile(path):
        raise cannot_start(f"{path} is not a file")
    if not os.access(path, os.R_OK):
        raise cannot_start(f"{path} may not be read; see its permissions")


def _split(word: str) -> tuple[str, str | None]:
    """``FILE#name``; a file's own name may have a # in it, and so may a server's."""
    if os.path.exists(word):
        return word, None
    at = word.find("#")
    while at > 0:
        if os.path.isfile(word[:at]):
            return word[:at], word[at + 1 :]
        at = word.find("#", at + 1)
    path, sharp, name = word.partition("#")
    return path, name if sharp else None


def _configured(word: str, stderr: Any) -> Target:
    path, name = _split(word)
    if not os.path.exists(path):
        raise cannot_start(f"there is no file {path}; TARGET is {KINDS}")
    if os.path.isfile(path) and not path.endswith((".json", ".jsonc")) and os.access(path, os.X_OK):
        raise cannot_start(f"{path} is a program; to start it write -- before it")
    from wirespeed import config

    servers = config.load(path)
    if name is None:
        enabled = [server for server in servers.values() if server.enabled]
        if not enabled:
            raise cannot_start(f"{path} has no server that is enabled")
        if len(enabled) > 1:
            names = ", ".join(server.name for server in enabled)
            raise cannot_start(f"{path} has {len(enabled)} servers, so add #name: {names}")
        server = enabled[0]
    elif name in servers:
        server = servers[name]
        if not server.enabled:
            raise cannot_start(f'{path}: the server "{name}" is not enabled there')
    else:
        names = ", ".join(servers) or "none"
        raise cannot_start(f'{path} has no server "{name}"; it has {names}')
    stdio = server.target(stderr=stderr)
    if isinstance(stdio, str):
        raise cannot_start(
            f'{path}: the server "{server.name}" has a URL, and this version speaks stdio only'
        )
    return Target(stdio, server.timeout, server.era)
