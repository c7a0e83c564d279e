"""The text of a configuration file as values: JSON with comments, TOML, or YAML."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any, NoReturn

# Strings, so that what stands in them is left alone, and what JSON of editors has besides.
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')
_NOT_A_LINE = re.compile(r"[^\n]")
_HINTS = (
    ("#", "a comment begins with //"),
    ("'", 'strings and keys go in double quotes (")'),
)
_TOML_PLACE = re.compile(r" \(at (.*)\)\Z")


class Fault(Exception):
    """What is wrong, and where in the document."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)


class Twice(dict[str, Any]):
    """An object of JSON with a key that is there twice: nobody knows which of the two is meant.

    Attributes:
        key: That key.
    """

    key = ""


def twice_in(value: Any) -> Iterator[str]:
    """The keys that are there twice in a value, however deep."""
    if isinstance(value, Twice):
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
        found = Twice(found)
        names = [name for name, _ in pairs]
        found.key = next(name for name in names if names.count(name) > 1)
    return found


def _syntax_fault(text: str, pos: int, message: str) -> str:
    # Some of the parser's messages end in "at", to be followed by the position.
    problem = (message[0].lower() + message[1:]).removesuffix(" at").removesuffix(" starting")
    problem = next((hint for mark, hint in _HINTS if text.startswith(mark, pos)), problem)
    line = text.count("\n", 0, pos) + 1
    return f"line {line}, column {pos - text.rfind(chr(10), 0, pos)}: {problem}"
