"""The front matter of a ``SKILL.md``: YAML 1.2 in its core schema, read as JSON.

Dates and the like stay text. An alias counts with all that it stands for, so that few lines cannot
become a large value. A key that occurs twice, a tag of another schema, and a number without a form
in JSON are errors. PyYAML scans and parses. The meaning of scalars is decided here, because
PyYAML's own schema is that of YAML 1.1.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable
from typing import Any

from wirespeed.skills.model import check_frontmatter

MAX_CHARACTERS = 64 << 10  # of the front matter
MAX_DEPTH = 32
MAX_WEIGHT = 1 << 20  # of the value that it becomes: 16 for each scalar, and its characters

_BEGIN = re.compile(r"---[ \t]*\r?\n")
_END = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)

_TAG = "tag:yaml.org,2002:"
_NULL = re.compile(r"(?:null|Null|NULL|~|)")
_TRUE = re.compile(r"(?:true|True|TRUE)")
_FALSE = re.compile(r"(?:false|False|FALSE)")
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_JSON = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.nan|\.NaN|\.NAN)")
_MAX_DIGITS = 20
_MAX_REASON = 300  # characters


class FrontmatterError(ValueError):
    """The front matter of a file is not valid. ``line`` is that of the file, from 1 on."""

    def __init__(self, text: str, line: int = 1) -> None:
        super().__init__(text)
        self.line = line


def require_yaml() -> Any:
    """The module that reads YAML. ModuleNotFoundError: it is not installed."""
    try:
        return importlib.import_module("yaml")  # it has no types
    except ImportError as exc:
        raise ModuleNotFoundError(
            "skills need the package PyYAML: pip install 'wirespeed[skills]'", name="yaml"
        ) from exc


def frontmatter_of(data: bytes) -> dict[str, Any]:
    """The front matter of a ``SKILL.md`` as JSON. FrontmatterError: it is missing or not valid.
    ModuleNotFoundError: as of `require_yaml`."""
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise FrontmatterError("the file is not UTF-8", line) from None
    head = text.removeprefix("\ufeff")[: MAX_CHARACTERS + 16]
    begin = _BEGIN.match(head)
    if begin is None:
        raise FrontmatterError("the file does not begin with front matter (---)")
    end = _END.search(head, begin.end())
    if end is None:
        raise FrontmatterError(
            f"the front matter has no end (---) within {MAX_CHARACTERS} characters"
        )
    value = _read(head[begin.end() : end.start()])
    if not isinstance(value, dict):
        raise FrontmatterError("the front matter is not a mapping", 2)
    return value


def checked_frontmatter(data: bytes) -> dict[str, Any]:
    """The same, with a name and a description as skills need them. FrontmatterError."""
    fields = frontmatter_of(data)
    try:
        check_frontmatter(fields)
    except ValueError as exc:
        raise FrontmatterError(str(exc)) from None
    return fields


def _read(text: str) -> Any:
    yaml = require_yaml()
    try:
        return _Reader().value(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
        why = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "not valid"
        line = 2 if mark is None else mark.line + 2
        raise FrontmatterError(f"YAML: {str(why)[:_MAX_REASON]}", line) from None
    except FrontmatterError:
        raise
    except (ValueError, OverflowError):  # for an escape that is not a character
        raise FrontmatterError("YAML: not valid", 2) from None


class _Open:
    """A mapping or a sequence that is not complete yet."""

    __slots__ = ("anchor", "began", "key", "made")

    def __init__(self, made: dict[str, Any] | list[Any], anchor: str | None, began: int) -> None:
        self.made = made
        self.anchor = anchor
        self.began = began  # the weight of everything before it
        self.key: str | None = None


class _Reader:
    """Makes a value from the events of a parser, without recursion."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}  # complete values, and their weights
        self._weight = 0
        self._documents = 0
        self._line = 2
        self._found: Any = None

    def value(self, events: Iterable[Any]) -> Any:
        """The value of the only document. FrontmatterError."""
        for event in events:
            self._line = event.start_mark.line + 2
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                self._documents += 1
                if self._documents > 1:
                    raise self._error("the front matter has a second document")
            elif kind == "ScalarEvent":
                self._scalar(event)
            elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                self._begin(event, kind == "MappingStartEvent")
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                one = self._open.pop()
                self._done(one.made, one.anchor, self._weight - one.began)
            elif kind == "AliasEvent":
                if event.anchor not in self._anchors:
                    raise self._error(f"the alias *{event.anchor} has no complete value")
                value, weight = self._anchors[event.anchor]
                self._weigh(weight)
                self._place(value, None)
        return self._found

    def _error(self, text: str) -> FrontmatterError:
        return FrontmatterError(f"YAML: {text[:_MAX_REASON]}", self._line)

    def _weigh(self, weight: int) -> None:
        self._weight += weight
        if self._weight > MAX_WEIGHT:
            raise self._error("the front matter becomes too large")

    def _begin(self, event: Any, is_mapping: bool) -> None:
        kind = "map" if is_mapping else "seq"
        if event.tag not in (None, "!", _TAG + kind):
            raise self._error(f"the tag {event.tag} is not of the core schema")
        if len(self._open) >= MAX_DEPTH:
            raise self._error(f"the front matter is nested deeper than {MAX_DEPTH} levels")
        if self._open and isinstance(self._open[-1].made, dict) and self._open[-1].key is None:
            raise self._error("a key is a mapping or a sequence, and keys of JSON are texts")
        one = _Open({} if is_mapping else [], event.anchor, self._weight)
        self._weigh(16)
        self._open.append(one)

    def _scalar(self, event: Any) -> None:
        self._weigh(16 + len(event.value))
        try:
            event.value.encode()
        except UnicodeEncodeError:
            raise self._error("half a surrogate pair is not a character") from None
        value = self._resolved(event)
        # a key is the text that was written: JSON has no others
        self._done(value, event.anchor, 16 + len(event.value), event.value)

    def _done(self, value: Any, anchor: str | None, weight: int, text: str | None = None) -> None:
        if anchor is not None:
            self._anchors[anchor] = value, weight
        self._place(value, text)

    def _place(self, value: Any, text: str | None) -> None:
        """Put a value where it belongs. ``text``: the text of a scalar that was written here."""
        if not self._open:
            self._found = value
            return
        one = self._open[-1]
        if isinstance(one.made, list):
            one.made.append(value)
        elif one.key is None:
            key = text if text is not None else value
            if not isinstance(key, str):
                raise self._error("a key is not a text")
            if key in one.made:
                raise self._error(f"the key {key[:100]!r} is there twice")
            one.key = key
        else:
            one.made[one.key] = value
            one.key = None

    def _resolved(self, event: Any) -> Any:
        """The value of a scalar by the core schema (YAML 1.2.2 section 10.3.2)."""
        text: str = event.value
        if event.tag is None:
            return self._plain(text) if event.implicit[0] else text
        kind = event.tag.removeprefix(_TAG)
        if kind in ("!", "str"):
            return text
        if kind not in ("null", "bool", "int", "float"):
            raise self._error(f"the tag {event.tag} is not of the core schema")
        value = self._plain(text)
        if kind == "float" and type(value) is int:
            return float(value)
        if {"null": type(None), "bool": bool, "int": int, "float": float}[kind] is not type(value):
            raise self._error(f"{text[:100]!r} is not a value of the type {kind}")
        return value

    def _plain(self, text: str) -> Any:
        if _NULL.fullmatch(text):
            return None
        if _TRUE.fullmatch(text):
            return True
        if _FALSE.fullmatch(text):
            return False
        if _NO_JSON.fullmatch(text):
            raise self._error(f"JSON has no form for {text}")
        for pattern, base in ((_INT, 10), (_OCTAL, 8), (_HEX, 16)):
            if pattern.fullmatch(text):
                digits = (text if base == 10 else text[2:]).lstrip("+-").lstrip("0") or "0"
                number = int(digits, base) if len(digits) <= _MAX_DIGITS else 1 << 64
                number = -number if text[0] == "-" else number
                if not -(1 << 63) <= number < 1 << 64:
                    raise self._error(f"the integer {text[:100]} has more than 64 bits")
                return number
        if _FLOAT.fullmatch(text):
            value = float(text)
            if not math.isfinite(value):
                raise self._error(f"the number {text[:100]} is out of range")
            return value
        return text
