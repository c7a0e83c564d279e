"""Descriptions of a function and its parameters from its docstring (Google, NumPy, Sphinx
style)."""

from __future__ import annotations

import re

__all__ = ["parse_docstring"]

_PARAMETERS = {"args", "arguments", "parameters", "params", "other parameters"}
_PARAMETERS |= {"keyword args", "keyword arguments"}
_SECTIONS = _PARAMETERS | {"returns", "return", "yields", "yield", "receives", "raises", "raise"}
_SECTIONS |= {"exceptions", "except", "warns"}
_SPHINX = r":(?P<kind>\w+)(?P<args>[^:\n]*):(?:\s+|$)(?P<text>.*)"
_SPHINX_KINDS = {"param", "parameter", "arg", "argument", "key", "keyword", "type", "raises"}
_SPHINX_KINDS |= {"raise", "except", "exception", "return", "returns", "rtype", "yield", "yields"}
_SPHINX_PARAMETERS = {"param", "parameter", "arg", "argument", "key", "keyword"}
_GOOGLE = r"\*{0,2}(?P<name>\w+)\s*(?:\(.*?\))?\s*:(?:\s+|$)(?P<text>.*)"
_NUMPY = r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?"


def parse_docstring(doc: str | None) -> tuple[str | None, dict[str, str]]:
    """The description, or None, and a text for each parameter that the docstring describes.

    Sections on parameters, results and errors are taken out; other text stays as it is.
    """
    if not doc:
        return None, {}
    import inspect

    lines = inspect.cleandoc(doc).splitlines()
    first = lines[0].lower()
    if first[-1:] == ":" and first[:-1] in _SECTIONS and not "".join(lines[1:2]).startswith(" "):
        # The margin is that of the other lines: under a title in the first one, they lost theirs.
        lines[1:] = ["    " + line for line in lines[1:]]
    kept: list[str] = []
    notes: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        title = line.strip().lower()
        below = lines[at + 1].strip() if at + 1 < len(lines) else ""
        field = re.fullmatch(_SPHINX, line)
        start = at
        if title in _SECTIONS and len(below) >= 3 and set(below) == {"-"}:
            at = _numpy_end(lines, at + 2)
            body, collect = lines[start + 2 : at], _numpy_notes
        elif line == line.lstrip() and title.endswith(":") and title[:-1] in _SECTIONS:
            title = title[:-1]
            at = _indented_end(lines, at + 1)
            body, collect = lines[start + 1 : at], _google_notes
        elif field and field["kind"] in _SPHINX_KINDS:
            at = _indented_end(lines, at + 1)
            words = field["args"].split()
            if field["kind"] in _SPHINX_PARAMETERS and words:
                _note(notes, words[-1], [field["text"], *lines[start + 1 : at]])
            continue
        else:
            kept.append(line)
            at += 1
            continue
        if title in _PARAMETERS:
            collect(body, notes)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return text or None, notes


def _numpy_end(lines: list[str], at: int) -> int:
    """The next underlined title, or the end."""
    while at < len(lines):
        below = lines[at + 1].strip() if at + 1 < len(lines) else ""
        if lines[at].strip() and len(below) >= 3 and set(below) == {"-"}:
            break
        at += 1
    return at


def _indented_end(lines: list[str], at: int) -> int:
    """The next line that is neither indented nor blank, or the end."""
    while at < len(lines) and (not lines[at].strip() or lines[at][0].isspace()):
        at += 1
    return at


def _entries(body: list[str]) -> list[list[str]]:
    """Split at the lines with the least indentation."""
    filled = [line for line in body if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    entries: list[list[str]] = []
    for line in filled:
        if len(line) - len(line.lstrip()) == margin or not entries:
            entries.append([])
        entries[-1].append(line.strip())
    return entries


def _google_notes(body: list[str], notes: dict[str, str]) -> None:
    for first, *rest in _entries(body):
        match = re.fullmatch(_GOOGLE, first)
        if match:
            _note(notes, match["name"], [match["text"], *rest])


def _numpy_notes(body: list[str], notes: dict[str, str]) -> None:
    for first, *rest in _entries(body):
        match = re.fullmatch(_NUMPY, first)
        if match:
            for name in match["names"].split(","):
                _note(notes, name.strip(), rest)


def _note(notes: dict[str, str], name: str, lines: list[str]) -> None:
    text = " ".join(part for line in lines if (part := line.strip()))
    if text:
        notes.setdefault(name.lstrip("*"), text)
