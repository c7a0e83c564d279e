"""Variables and paths in the texts of a configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from wirespeed.config.shapes import ASKED, FOLDERS
from wirespeed.config.text import Fault

# ``{env:NAME}`` and ``{file:PATH}`` are OpenCode's.
_VARIABLE = re.compile(r"\$?\$\{([^}]*)(\}?)|\{((?:env|file):[^{}]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
# A value that can only mean a variable.
_MEANT = re.compile(r"(?:[A-Za-z]+ )?\$[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\Z", re.DOTALL)
_OF_HOSTS = re.compile(r"([a-z]+):")
# Parameters of a shell: ``${1:-x}``, ``${@}``.
_OF_SHELLS = "0123456789@*#?!-$"


class Texts:
    """Replaces variables, and resolves paths.

    Args:
        folder: Of the file.
        environ: Where variables are looked up.
        bare: Whether ``$NAME`` is a variable too, if it is set.

    Attributes:
        problem: The first variable that has no value; "" if all have one.
    """

    def __init__(self, folder: str, environ: Mapping[str, str], *, bare: bool = False) -> None:
        self.problem = ""
        self._bare = bare
        self._folder = folder
        self._environ = environ

    def expand(self, path: str, text: str) -> str:
        """Return a text with its variables replaced. Fault: it cannot be. ``path``: its place."""

        def replace(match: re.Match[str]) -> str:
            if match[4] is not None:
                return self._environ.get(match[4], match[0]) if self._bare else match[0]
            if match[0].startswith("$$"):
                return match[0][1:]
            inner, closed = (match[1], match[2]) if match[3] is None else (match[3], "}")
            if inner[:1] and inner[0] in _OF_SHELLS:
                return match[0]
            known = self._of_host(inner) if closed else None
            if known is not None:
                return known
            prefix = _OF_HOSTS.match(inner)
            if closed and prefix is not None and prefix[1] in ASKED:
                self.problem = self.problem or (
                    f"{path}: {match[0]} is a variable {ASKED[prefix[1]]}; write ${{NAME}}, and "
                    "set NAME in the environment"
                )
                return match[0]
            name = _NAME.match(inner) if closed and "${" not in inner else None
            if name is None:
                raise Fault(path, "expected ${NAME} or ${NAME:-default}")
            value = self._environ.get(name[1])
            if name[2] is not None:
                return value or name[2]
            if value is None:
                self.problem = self.problem or (
                    f"{path}: the environment variable {name[1]} is not set; "
                    f"write ${{{name[1]}:-}} if it may be empty"
                )
                return match[0]
            return value

        text = _VARIABLE.sub(replace, text)
        if "\0" in text:
            raise Fault(path, "contains a null character")
        return text

    def is_literal(self, text: str) -> bool:
        """Whether a text can only mean a variable, as ``$NAME``, and is not read so."""
        name = text.rpartition("$")[2]
        return bool(_MEANT.fullmatch(text)) and not (self._bare and name in self._environ)

    def _of_host(self, name: str) -> str | None:
        """The value of a variable that editors know: None for any other."""
        if name in ("workspaceFolder", "workspaceRoot"):
            return self._workspace()
        if name == "workspaceFolderBasename":
            return os.path.basename(self._workspace())
        if name == "userHome":
            return self._environ.get("HOME") or os.path.expanduser("~")
        return os.sep if name in ("/", "pathSeparator") else None

    def _workspace(self) -> str:
        """The folder of the file, or the one that has the folder of a host in it."""
        parts = self._folder.split(os.sep)
        for at in range(len(parts) - 1, max(0, len(parts) - 3), -1):
            if parts[at] in FOLDERS:
                return os.sep.join(parts[:at]) or os.sep
        return self._folder

    def resolve(self, path: str, *, only_slash: bool = False) -> str:
        """A path of the file as an absolute one; a bare command is left to PATH."""
        if path == "~" or path.startswith("~/"):
            path = os.path.expanduser(path)
        if only_slash and "/" not in path:
            return path
        joined = os.path.join(self._folder, path)
        # Where a folder is a symbolic link, only the system knows what is above it.
        return joined if ".." in path.split("/") else os.path.normpath(joined)
