"""The text of a configuration file as values (JSON with comments, TOML, or YAML), and the variables
and paths in its texts."""

from __future__ import annotations

import importlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from wirespeed.config.shapes import ASKED, FOLDERS

# Strings, so that what stands in them is left alone, and what JSON of editors has besides.
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')
_NOT_A_LINE = re.compile(r"[^\n]")
_HINTS = (("#", "a comment begins with //"), ("'", 'strings and keys go in double quotes (")'))
_TOML_PLACE = re.compile(r" \(at (.*)\)\Z")

# ``{env:NAME}`` and ``{file:PATH}`` are OpenCode's.
_VARIABLE = re.compile(r"\$?\$\{([^}]*)(\}?)|\{((?:env|file):[^{}]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
# A value that can only mean a variable.
_MEANT = re.compile(r"(?:[A-Za-z]+ )?\$[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\Z", re.DOTALL)
_OF_HOSTS = re.compile(r"([a-z]+):")
# Parameters of a shell: ``${1:-x}``, ``${@}``.
_OF_SHELLS = "0123456789@*#?!-$"


class Fault(Exception):
    """A fault of a document, with its place."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)


class DuplicateKeys(dict[str, Any]):
    """An object of JSON with a key that is there twice: nobody knows which of the two is meant.

    Attributes:
        key: That key.
    """

    key = ""


def twice_in(value: Any) -> Iterator[str]:
    """The keys that are there twice in a value, however deep."""
    if isinstance(value, DuplicateKeys):
        yield value.key
    if isinstance(value, dict):
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        yield from twice_in(one)


def is_there_twice(key: str) -> str:
    """The text of a fault."""
    return f"the key {json.dumps(key, ensure_ascii=False)} is there twice"


def parse(text: str | bytes, suffix: str) -> Any:
    """The value of a text. No fault holds a part of it: it may be secret.

    ``suffix``: That of the file, in small letters: ``.toml``, ``.yaml`` or ``.yml``; any other is
    JSON.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            line = exc.object.count(b"\n", 0, exc.start) + 1
            raise Fault("", f"line {line}: the file is not UTF-8") from None
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise Fault("", "the file is empty")
    parser = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml}.get(suffix, _json)
    try:
        return parser(text)
    except RecursionError:
        problem = "nested too deeply"
    raise Fault("", problem)


def _toml(text: str) -> Any:
    """The parser's errors name keys, never values."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        message, place, _ = (*_TOML_PLACE.split(str(exc)), "", "")[:3]
        problem = f"{place}: {message[:1].lower()}{message[1:]}" if place else message
    raise Fault("", problem)


def _yaml(text: str) -> Any:
    try:
        yaml: Any = importlib.import_module("yaml")  # it has no types
    except ImportError:
        raise Fault("", "YAML needs PyYAML: pip install pyyaml") from None
    try:
        return _plain(yaml.safe_load(text))
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    raise Fault("", f"{place}invalid YAML")


def _plain(value: Any) -> Any:
    """A value of YAML as one of JSON: keys are strings, and so is a date."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _json(text: str) -> Any:
    try:
        return _strict(text)
    except json.JSONDecodeError:  # spaces stand in for what is left out: places stay
        text = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else _NOT_A_LINE.sub(" ", m[0]), text)
        text = _COMMA.sub(lambda m: m[0] if m[0][0] == '"' else " ", text)
    except ValueError as exc:  # an integer of thousands of digits
        raise Fault("", str(exc)) from None
    try:
        return _strict(text)
    except json.JSONDecodeError as exc:
        problem = _syntax_fault(text, exc.pos, exc.msg)
    except ValueError as exc:
        problem = str(exc)
    raise Fault("", problem)


def _strict(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)


def _constant(word: str) -> NoReturn:
    raise Fault("", f"{word} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        found = DuplicateKeys(found)
        names = [name for name, _ in pairs]
        found.key = next(name for name in names if names.count(name) > 1)
    return found


def _syntax_fault(text: str, pos: int, message: str) -> str:
    # Some of the parser's messages end in "at", to be followed by the position.
    problem = (message[0].lower() + message[1:]).removesuffix(" at").removesuffix(" starting")
    problem = next((hint for mark, hint in _HINTS if text.startswith(mark, pos)), problem)
    line = text.count("\n", 0, pos) + 1
    return f"line {line}, column {pos - text.rfind(chr(10), 0, pos)}: {problem}"


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
                    f"set it, or write ${{{name[1]}:-}} if it may be empty"
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
