"""JSON as RFC 8259 and RFC 3629 write it: one byte after another, first fault wins."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Literal

BLANK = b" \t\n\r"
NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')

Kind = Literal["object", "array", "string", "integer", "number", "true", "false", "null"]


class Fault(Exception):
    """The text is no JSON (`syntax`, `utf8`), or opens too many levels (`depth`)."""

    def __init__(self, what: Literal["syntax", "utf8", "depth"], at: int) -> None:
        super().__init__(f"{what} at byte {at}")
        self.what = what
        self.at = at


@dataclass
class Value:
    """A JSON value, and where it stands in the text."""

    kind: Kind
    text: bytes
    start: int
    end: int
    members: list[tuple[str, Value]] = field(default_factory=list)

    def first(self, name: str) -> Value | None:
        """The first member of an object with this name."""
        return next((value for key, value in self.members if key == name), None)

    def count(self, name: str) -> int:
        return sum(key == name for key, _ in self.members)


class Reader:
    """Reads values off a text."""

    def __init__(self, text: bytes, max_depth: int) -> None:
        self.text = text
        self.max_depth = max_depth
        self.at = 0
        # members of the root object so far; None for a value that has not ended
        self.begun: list[tuple[str, Value | None]] = []

    def whole(self) -> Value:
        """The value that the whole text is."""
        value = self.value()
        self.blanks()
        if self.at != len(self.text):
            raise Fault("syntax", self.at)
        return value

    def blanks(self) -> None:
        while self.peek() and self.peek() in BLANK:
            self.at += 1

    def peek(self) -> bytes:
        return self.text[self.at : self.at + 1]

    def expect(self, text: bytes) -> None:
        if not self.text.startswith(text, self.at):
            raise Fault("syntax", self.at)
        self.at += len(text)

    def value(self, depth: int = 0) -> Value:
        self.blanks()
        start = self.at
        members: list[tuple[str, Value]] = []
        kind: Kind
        match self.peek():
            case b"{":
                kind = "object"
                members = self.members(depth + 1)
            case b"[":
                kind = "array"
                self.items(depth + 1)
            case b'"':
                kind = "string"
                self.string()
            case b"t":
                kind = "true"
                self.expect(b"true")
            case b"f":
                kind = "false"
                self.expect(b"false")
            case b"n":
                kind = "null"
                self.expect(b"null")
            case _:
                found = NUMBER.match(self.text, self.at)
                if found is None:
                    raise Fault("syntax", self.at)
                self.at = found.end()
                kind = "number" if found[1] or found[2] else "integer"
        return Value(kind, self.text[start : self.at], start, self.at, members)

    def open(self, depth: int) -> None:
        if depth > self.max_depth:
            raise Fault("depth", self.at)
        self.at += 1
        self.blanks()

    def items(self, depth: int) -> None:
        self.open(depth)
        if self.peek() == b"]":
            self.at += 1
            return
        while True:
            self.value(depth)
            self.blanks()
            if self.peek() != b",":
                break
            self.at += 1
        self.expect(b"]")

    def members(self, depth: int) -> list[tuple[str, Value]]:
        self.open(depth)
        members: list[tuple[str, Value]] = []
        if self.peek() == b"}":
            self.at += 1
            return members
        while True:
            self.blanks()
            start = self.at
            self.string()
            key = json.loads(self.text[start : self.at])
            self.blanks()
            self.expect(b":")
            if depth == 1:
                self.begun.append((key, None))
            members.append((key, self.value(depth)))
            if depth == 1:
                self.begun[-1] = members[-1]
            self.blanks()
            if self.peek() != b",":
                break
            self.at += 1
        self.expect(b"}")
        return members

    def string(self) -> None:
        self.expect(b'"')
        while (c := self.peek()) != b'"':
            if c < b" ":  # the end of the text too
                raise Fault("syntax", self.at)
            if c == b"\\":
                found = ESCAPE.match(self.text, self.at)
                if found is None:
                    raise Fault("syntax", self.at)
                self.at = found.end()
            else:
                self.at += self.character()
        self.at += 1

    def character(self) -> int:
        """How many bytes the character that starts here has."""
        for n in range(1, 5):
            try:
                self.text[self.at : self.at + n].decode()
            except UnicodeDecodeError:
                continue
            return n
        raise Fault("utf8", self.at)
