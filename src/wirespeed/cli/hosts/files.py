"""The text of a host's file with one server more or less. Comments, order and indents stay.

The new text is read again: if it has not exactly the one change, the file is not written.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from wirespeed.cli.failures import Exit, Failure
from wirespeed.config.text import Fault, parse

_SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR = re.compile(r"[^\s,\]}/]+")
_INDENT = re.compile(r'^([ \t]+)"', re.MULTILINE)
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_TABLE = re.compile(r"^[ \t]*\[\[?[^\]\n]+\]\]?[ \t]*(?:#[^\n]*)?$", re.MULTILINE)


def edited(text: str, file: str, path: tuple[str, ...], entry: dict[str, Any] | None) -> str:
    """Return the text of a file with an entry at a path, or without it (None). Failure (3): the
    file is not valid, or cannot be edited without the loss of something else."""
    suffix = ".toml" if file.endswith(".toml") else ".json"
    before = _read(text, file, suffix)
    wanted = _wanted(before, path, entry)
    if wanted == before:
        return text
    if suffix == ".toml":
        new = _toml_with(text, path, entry)
    elif not text.strip().removeprefix("\ufeff"):
        new = json.dumps(wanted, indent=2, ensure_ascii=False) + "\n"
    else:
        new = _json_with(text, path, entry)
    try:
        good = _pruned(_read(new, file, suffix), path) == _pruned(wanted, path)
    except Failure:
        good = False
    if not good:
        raise Failure(
            f"{file} cannot be edited safely: change it by hand, with what --print shows",
            Exit.UNREACHABLE,
            "TargetError",
        )
    return new


def _read(text: str, file: str, suffix: str) -> dict[str, Any]:
    if not text.removeprefix("\ufeff").strip():
        return {}
    try:
        value = parse(text, suffix)
    except Fault as exc:
        raise Failure(f"{file}: {exc}", Exit.UNREACHABLE, "ConfigError") from None
    if not isinstance(value, dict):
        raise Failure(f"{file}: expected an object", Exit.UNREACHABLE, "ConfigError")
    return value


def servers_in(text: str, file: str, path: tuple[str, ...]) -> dict[str, Any]:
    """Return the entries at a path of a file. Failure (3): the file is not valid."""
    found: Any = _read(text, file, ".toml" if file.endswith(".toml") else ".json")
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _wanted(
    before: dict[str, Any], path: tuple[str, ...], entry: dict[str, Any] | None
) -> dict[str, Any]:
    """The value of the new file."""
    wanted = copy.deepcopy(before)
    place = wanted
    for key in path[:-1]:
        if entry is None and key not in place:
            return wanted
        inner = place.setdefault(key, {})
        if not isinstance(inner, dict):
            raise Failure(f"{key} of the file is not an object", Exit.UNREACHABLE, "ConfigError")
        place = inner
    if entry is None:
        place.pop(path[-1], None)
    else:
        place[path[-1]] = entry
    return wanted


def _pruned(value: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """A value without objects on a path that are empty: TOML has no table for them."""
    inner = value.get(path[0])
    if not isinstance(inner, dict) or len(path) == 1:
        return value
    inner = _pruned(inner, path[1:])
    rest = {key: one for key, one in value.items() if key != path[0]}
    return {**rest, path[0]: inner} if inner else rest


def rendered(path: tuple[str, ...], entry: dict[str, Any], suffix: str) -> str:
    """Return an entry alone in a file."""
    if suffix == ".toml":
        return _table(path, entry)
    value: Any = entry
    for key in reversed(path):
        value = {key: value}
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


# -- JSON -----------------------------------------------------------------------------------------


class _Member(NamedTuple):
    """The places of a member in a text."""

    key: str
    start: int  # of its key
    value: int
    end: int  # behind its value
    comma: int  # behind the comma, or -1


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _members(text: str, at: int) -> Iterator[_Member]:
    """The members of the object that begins at a place."""
    at = _skip(text, at + 1)
    while at < len(text) and text[at] == '"':
        found = _STRING.match(text, at)
        assert found is not None
        value = _skip(text, _skip(text, found.end()) + 1)
        end = _end(text, value)
        behind = _skip(text, end)
        comma = behind + 1 if text[behind : behind + 1] == "," else -1
        yield _Member(json.loads(found[0]), at, value, end, comma)
        at = _skip(text, comma if comma > 0 else behind)


def _end(text: str, at: int) -> int:
    """The place behind the value that begins at a place."""
    if text[at] == '"':
        found = _STRING.match(text, at)
        assert found is not None
        return found.end()
    if text[at] not in "[{":
        scalar = _SCALAR.match(text, at)
        assert scalar is not None
        return scalar.end()
    depth = 0
    while True:
        if text[at] == '"':
            at = _end(text, at)
        elif text[at] in "[{":
            depth += 1
            at += 1
        elif text[at] in "]}":
            depth -= 1
            at += 1
            if not depth:
                return at
        else:
            at += 1
        at = _skip(text, at)


def _json_with(text: str, path: tuple[str, ...], entry: dict[str, Any] | None) -> str:
    """A JSON text with the value at a path set, or the member removed."""
    found = _INDENT.search(text)
    unit = found[1] if found is not None else "  "
    at = _skip(text, 1 if text.startswith("\ufeff") else 0)
    for depth, key in enumerate(path):
        members = list(_members(text, at))
        member = next((one for one in members if one.key == key), None)
        last = depth == len(path) - 1
        if member is None:
            value: Any = entry
            for inner in reversed(path[depth + 1 :]):
                value = {inner: value}
            return _inserted(text, at, members, key, value, unit, depth + 1)
        if last and entry is None:
            return _removed(text, members, members.index(member))
        if last:
            return text[: member.value] + _value(entry, unit, depth + 1) + text[member.end :]
        at = member.value
    return text


def _value(value: Any, unit: str, depth: int) -> str:
    """A value as JSON, for a member at a depth."""
    lines = json.dumps(value, indent=unit, ensure_ascii=False).splitlines()
    return f"\n{unit * depth}".join(lines)


def _inserted(
    text: str, at: int, members: list[_Member], key: str, value: Any, unit: str, depth: int
) -> str:
    """The text with a new last member in the object that begins at a place."""
    close = _end(text, at) - 1
    name = json.dumps(key, ensure_ascii=False)
    new = f"{unit * depth}{name}: {_value(value, unit, depth)}"
    head, tail = text[:close], text[close:]
    if members:
        last = members[-1]
        if last.comma < 0:
            head = f"{text[: last.end]},{text[last.end : close]}"
        else:
            new += ","
    return f"{head.rstrip()}\n{new}\n{unit * (depth - 1)}{tail}"


def _removed(text: str, members: list[_Member], index: int) -> str:
    """The text without a member, with its line where it is alone there."""
    member = members[index]
    start, end = member.start, member.comma if member.comma > 0 else member.end
    line = text.rfind("\n", 0, start) + 1
    newline = text.find("\n", end)
    alone = not text[line:start].strip() and newline >= 0 and not text[end:newline].strip()
    head, tail = text[:start].rstrip(), text[end:].lstrip()
    if len(members) == 1 and head.endswith("{") and tail.startswith("}"):
        return head + tail
    if alone:
        start, end = line, newline + 1
    else:
        end += len(text[end:]) - len(text[end:].lstrip(" \t"))
    new = text[:start] + text[end:]
    if member.comma < 0 and index:  # the one before it is the last now
        before = members[index - 1]
        new = new[: before.end] + new[before.end : before.comma - 1] + new[before.comma :]
    return new


# -- TOML -----------------------------------------------------------------------------------------


def _toml_with(text: str, path: tuple[str, ...], entry: dict[str, Any] | None) -> str:
    """A TOML text with the table at a path set, or without it and the tables in it."""
    tables = list(_TABLE.finditer(text))
    ends = [found.start() for found in tables[1:]] + [len(text)]
    new, at, added = "", 0, entry is None
    for found, end in zip(tables, ends, strict=bool(tables)):
        if _keys(found[0])[: len(path)] != list(path):
            continue
        new += text[at : found.start()]
        at = _end_of_table(text, found.end(), end)
        if not added and entry is not None:
            new += _table(path, entry) + ("" if text[at : at + 1] in ("", "\n") else "\n")
            added = True
        elif text.startswith("\n", at) and (not new or new.endswith("\n\n")):
            at += 1
    new += text[at:]
    if not added and entry is not None:
        new = f"{new.rstrip()}\n\n{_table(path, entry)}".lstrip("\n")
    return new if entry is not None else f"{new.rstrip()}\n".lstrip("\n")


def _end_of_table(text: str, start: int, end: int) -> int:
    """Return the position behind the last value of a table. Comments before the next table
    stay."""
    lines = text[start:end].splitlines(keepends=True)
    while len(lines) > 1 and (not (line := lines[-1].strip()) or line.startswith("#")):
        end -= len(lines.pop())
    return end


def _keys(header: str) -> list[str]:
    """The keys of the header of a table."""
    inner = header.strip().partition("#")[0].strip().strip("[]").strip()
    parts = re.findall(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^.\s]+)\s*(?:\.|\Z)""", inner)
    return [
        json.loads(part) if part[0] == '"' else part.strip("'") if part[0] == "'" else part
        for part in parts
    ]


def _table(path: tuple[str, ...], entry: dict[str, Any]) -> str:
    """A table of TOML; objects in it are inline."""
    lines = [f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(name)} = {_toml(value)}" for name, value in entry.items()]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _PLAIN_KEY.match(name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(name)} = {_toml(one)}" for name, one in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
