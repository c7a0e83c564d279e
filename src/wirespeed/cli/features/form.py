"""A form of a server on a terminal: field by field, with defaults, choices and checks."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from wirespeed.cli.failures import coloured, printable
from wirespeed.schema.form_answers import check, defaults

_MAX_LINE = 65536  # characters of a typed line
_YES, _NO = ("y", "yes", "true"), ("n", "no", "false")


class Cancelled(Exception):
    """The person ended the input (Ctrl-D)."""


class Person:
    """The person at the terminal: reads stderr, and types lines into stdin."""

    def __init__(self) -> None:
        self._typed = b""
        self._colours = coloured(sys.stderr)

    def say(self, text: str = "", style: str = "") -> None:
        """Write a line. Control characters of the server are shown as escapes."""
        sys.stderr.write(self.styled(printable(text, lines=True), style) + "\n")

    def styled(self, text: str, style: str) -> str:
        """Return a text in bold (``1``), in grey (``2``) or in another style of ECMA-48."""
        return f"\x1b[{style}m{text}\x1b[0m" if style and self._colours else text

    async def ask(self, prompt: str) -> str:
        """Return a typed line without blanks around it. Cancelled: the input has ended."""
        sys.stderr.write(prompt)
        sys.stderr.flush()
        loop = asyncio.get_running_loop()
        file = sys.stdin.fileno()
        while b"\n" not in self._typed:
            ready = asyncio.Event()
            loop.add_reader(file, ready.set)
            try:
                await ready.wait()
            except asyncio.CancelledError:
                sys.stderr.write("\n")
                raise
            finally:
                loop.remove_reader(file)
            data = os.read(file, _MAX_LINE)
            if not data or len(self._typed) > _MAX_LINE:
                sys.stderr.write("\n")
                raise Cancelled
            self._typed += data
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode(errors="replace").strip()

    async def agrees(self, question: str, *, default: bool) -> bool:
        """Ask a question with the answers yes and no."""
        shown = "[Y/n]" if default else "[y/N]"
        while True:
            typed = (await self.ask(f"{question} {shown} ")).lower()
            if not typed or typed in _YES or typed in _NO:
                return default if not typed else typed in _YES
            self.say("  type y or n", "33")


# -- fields ---------------------------------------------------------------------------------------


class Choice(NamedTuple):
    """One option of a field."""

    value: Any
    title: str


class Field(NamedTuple):
    """One field of a form. The schema is not trusted: unexpected parts are ignored."""

    name: str
    schema: Mapping[str, Any]
    required: bool

    @property
    def kind(self) -> str:
        """The JSON type of the values."""
        kind = self.schema.get("type")
        return kind if isinstance(kind, str) else "string"

    @property
    def label(self) -> str:
        """The title of the field, or its name."""
        title = self.schema.get("title")
        return title if isinstance(title, str) and title else self.name

    @property
    def choices(self) -> list[Choice]:
        """The options of a choice, or of each item of a list."""
        schema: Any = self.schema
        if self.kind == "array":
            schema = schema.get("items")
        return _choices(schema if isinstance(schema, Mapping) else {})

    @property
    def rules(self) -> str:
        """The rules of the field in words: ``2 to 20 characters``, ``a date``."""
        kinds = {"integer": "a whole number", "number": "a number"}
        wanted = self.schema.get("format")
        kind = _FORMATS.get(wanted, wanted) if isinstance(wanted, str) else kinds.get(self.kind)
        words = [kind, *(_range(self.schema, *row) for row in _RANGES)]
        return ", ".join(word for word in words if word)

    def value(self, typed: str) -> Any:
        """Return the value of a typed text. ValueError says what is expected."""
        if self.kind == "array":
            parts = [part.strip() for part in typed.split(",")]
            return [self._one(part) for part in parts if part]
        return self._one(typed)

    def _one(self, typed: str) -> Any:
        choices = self.choices
        if choices:
            return _chosen(choices, typed)
        if self.kind == "boolean":
            if typed.lower() not in _YES + _NO:
                raise ValueError("type y or n")
            return typed.lower() in _YES
        if self.kind in ("integer", "number"):
            return _number(typed)
        return "" if typed == '""' else typed

    def shown(self, value: Any) -> str:
        """Return a value as it would be typed."""
        if isinstance(value, list):
            return ", ".join(map(self.shown, value))
        if isinstance(value, bool):
            return "y" if value else "n"
        return str(value) if value != "" else '""'


_RANGES = (
    ("minLength", "maxLength", " character"),
    ("minimum", "maximum", ""),
    ("minItems", "maxItems", " choice"),
)
_FORMATS = {
    "email": "a mail address",
    "uri": "a URI",
    "date": "a date as 2026-07-28",
    "date-time": "a time as 2026-07-28T14:30:00Z",
}


def _range(schema: Mapping[str, Any], low: str, high: str, unit: str) -> str:
    """``2 to 20 characters``, ``at least 1``, ``at most 5``."""
    least, most = schema.get(low), schema.get(high)
    if least is None and most is None:
        return ""
    last = least if most is None else most
    unit += "s" if unit and last != 1 else ""
    if most is None:
        return f"at least {least}{unit}"
    return f"at most {most}{unit}" if least is None else f"{least} to {most}{unit}"


def _choices(schema: Mapping[str, Any]) -> list[Choice]:
    values = schema.get("enum")
    if isinstance(values, list):
        names = schema.get("enumNames")
        titles = names if isinstance(names, list) and len(names) == len(values) else values
        return [Choice(value, str(title)) for value, title in zip(values, titles, strict=True)]
    for keyword in ("oneOf", "anyOf"):
        titled = schema.get(keyword)
        if isinstance(titled, list) and all(
            isinstance(option, dict) and "const" in option for option in titled
        ):
            return [Choice(one["const"], str(one.get("title", one["const"]))) for one in titled]
    return []


def _chosen(choices: list[Choice], typed: str) -> Any:
    """The option of a typed number, value or title."""
    for choice in choices:
        if typed == str(choice.value):
            return choice.value
    if re.fullmatch("[0-9]{1,6}", typed) and 1 <= int(typed) <= len(choices):
        return choices[int(typed) - 1].value
    near = [one for one in choices if one.title.lower().startswith(typed.lower())]
    if len(near) == 1 or (near and near[0].title.lower() == typed.lower()):
        return near[0].value
    raise ValueError(f"type a number from 1 to {len(choices)}, or one of the choices")


def _number(typed: str) -> int | float:
    try:
        return int(typed)
    except ValueError:
        pass
    try:
        return float(typed)
    except ValueError:
        raise ValueError("type a number") from None


def fields_of(schema: Mapping[str, Any]) -> list[Field]:
    """Return the fields of a form."""
    properties = schema.get("properties")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    return [
        Field(name, part if isinstance(part, dict) else {}, name in needed)
        for name, part in (properties.items() if isinstance(properties, dict) else ())
    ]


# -- the form -------------------------------------------------------------------------------------


async def fill_in(person: Person, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Ask for each field, and whether to send the answer. Returns the content; None if the person
    declines. Cancelled: the person ended the input."""
    fields = fields_of(schema)
    if not fields:
        return {} if await person.agrees("Accept?", default=True) else None
    given = defaults(schema)
    hint = "Enter takes the value in brackets; Ctrl-D cancels"
    person.say(hint, "2")
    while True:
        for field in fields:
            given = await _field(person, field, given)
        while True:
            typed = (await person.ask("Send this answer? [Y/n/e to edit] ")).lower()
            if not typed or typed in _YES:
                return given
            if typed in _NO:
                return None
            if typed in ("e", "edit"):
                break
            person.say("  type y, n to decline, or e", "33")


async def _field(person: Person, field: Field, given: dict[str, Any]) -> dict[str, Any]:
    """Ask for one field until its value is valid; return the content with it."""
    _introduce(person, field)
    rest = {name: value for name, value in given.items() if name != field.name}
    name = person.styled(printable(field.label), "1")
    default = f" [{printable(field.shown(given[field.name]))}]" if field.name in given else ""
    optional = "" if field.required or default else person.styled(" (optional)", "2")
    yes_no = " (y/n)" if field.kind == "boolean" and not field.choices else ""
    while True:
        typed = await person.ask(f"{name}{yes_no}{optional}{default}: ")
        if not typed and field.name in given:
            return given
        if not typed and not field.required:
            return rest
        if not typed:
            person.say("  this field is required" + _empty(field), "33")
            continue
        try:
            value = field.value(typed)
            check({"properties": {field.name: field.schema}}, {field.name: value})
        except ValueError as exc:
            person.say(f"  {str(exc).removeprefix(repr(field.name)).strip()}", "33")
            continue
        return {**rest, field.name: value}


def _empty(field: Field) -> str:
    return '; "" is the empty text' if field.kind == "string" and not field.choices else ""


def _introduce(person: Person, field: Field) -> None:
    """Write what a field is about, its rules and its options."""
    person.say()
    about = field.schema.get("description")
    rules = field.rules if not field.choices or field.kind == "array" else ""
    several = "several, separated by commas" if field.kind == "array" else ""
    words = [about if isinstance(about, str) else "", ", ".join(filter(None, (rules, several)))]
    if text := "; ".join(filter(None, words)):
        person.say(text, "2")
    for number, choice in enumerate(field.choices, 1):
        value = printable(str(choice.value))
        title = "" if choice.title == str(choice.value) else f"  {printable(choice.title)}"
        person.say(f"  {number}  {value}{title}")
