"""What a JSON scan must find, told by the standard library's json; and documents to scan.

The reader here shares nothing with the kernels: it decodes the text, then looks at the values.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

META = "io.modelcontextprotocol/"
ROOT_KEYS = ("jsonrpc", "id", "method", "params", "result", "error")
PARAMS_KEYS = ("name", "uri", "arguments", "requestId", "progressToken", "_meta")
META_KEYS = (
    "progressToken",
    META + "protocolVersion",
    META + "clientCapabilities",
    META + "clientInfo",
    META + "logLevel",
    META + "subscriptionId",
)


class Members(list[tuple[str, Any]]):
    """The members of an object in order, doubles too."""


@dataclass(frozen=True)
class Number:
    text: str


@dataclass
class Expected:
    """Points of interest by path: what their text decodes to, and which occur twice."""

    root: str
    id_kind: str
    values: dict[str, Any]
    duplicates: set[str]
    depth: int


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def decode(text: str) -> Any:
    """The value of a JSON text as RFC 8259 has it; raises ValueError."""
    return json.loads(
        text,
        object_pairs_hook=Members,
        parse_int=Number,
        parse_float=Number,
        parse_constant=_no_constant,
    )


def _depth(value: Any) -> int:
    if isinstance(value, Members):
        return 1 + max((_depth(item) for _, item in value), default=0)
    if isinstance(value, list):
        return 1 + max((_depth(item) for item in value), default=0)
    return 0


def _id_kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Number) and value.text.removeprefix("-").isdecimal():
        return "integer"
    return "invalid"


def _look(found: Expected, members: Any, keys: tuple[str, ...], path: str) -> None:
    if not isinstance(members, Members):
        return
    for key, value in members:
        name = path + key
        if key not in keys:
            continue
        if name in found.values:
            found.duplicates.add(name)
            continue
        found.values[name] = value
        if name == "params":
            _look(found, value, PARAMS_KEYS, "params.")
        elif name == "params._meta":
            _look(found, value, META_KEYS, "params._meta.")


def read(data: bytes) -> Expected | None:
    """What `data` says as a message, or None when it is no JSON text in UTF-8."""
    try:
        value = decode(data.decode("utf-8"))
    except ValueError:
        return None
    root = (
        "object" if isinstance(value, Members) else "array" if isinstance(value, list) else "other"
    )
    found = Expected(root, "absent", {}, set(), _depth(value))
    _look(found, value, ROOT_KEYS, "")
    if "id" in found.values:
        found.id_kind = _id_kind(found.values["id"])
    return found


# ---- documents ----

NUMBERS = (
    "0", "-0", "7", "-12", "1001", "123456789012345678901234567890", "1.5", "-0.25", "0.0", "1e5",
    "1E+5", "2e-10", "-1.25e12", "10", "100.001e100", "3.14159265358979323846264338327950288",
)  # fmt: skip
PIECES = (
    "a", "Z", " ", "0", "-", "{", "}", "[", "]", ":", ",", "'", "true", "\x7f", "é", "日本", "🎉",
    '\\"', "\\\\", "\\/", "\\b\\f\\n\\r\\t", "\\u0041", "\\uABCD", "\\ud83d", "plain text ",
)  # fmt: skip
JUNK = b'{}[]:,"\\ \n\t\r\x0b0123456789-+.eEtrufalsnNI\x00\x1f\x7f\x80\xbf\xc0\xc3\xe0\xed\xf4\xff/'


class Writer:
    """Writes one random document; `space` is the chance of whitespace between tokens."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.space = rng.choice((0.0, 0.0, 0.1, 0.6))

    def blank(self) -> str:
        if self.rng.random() >= self.space:
            return ""
        return "".join(self.rng.choices(" \t\n\r", k=self.rng.choice((1, 1, 2, 70))))

    def string(self) -> str:
        count = self.rng.choice((0, 1, 2, 5, 5, 40))
        return '"' + "".join(self.rng.choices(PIECES, k=count)) + '"'

    def key(self, name: str) -> str:
        """`name` as a key; at times with an escape."""
        if self.rng.random() < 0.1:
            i = self.rng.randrange(len(name))
            escape = r"\/" if name[i] == "/" else f"\\u{ord(name[i]):04x}"
            name = name[:i] + escape + name[i + 1 :]
        return f'"{name}"'

    def join(self, items: list[str], brackets: str) -> str:
        comma = self.blank() + "," + self.blank()
        inside = comma.join(items)
        return brackets[0] + self.blank() + inside + self.blank() + brackets[1]

    def member(self, key: str, value: str) -> str:
        return key + self.blank() + ":" + self.blank() + value

    def value(self, depth: int = 0) -> str:
        kind = self.rng.randrange(10 if depth < 6 else 7)
        if kind < 3:
            return self.rng.choice(("true", "false", "null"))
        if kind < 5:
            return self.rng.choice(NUMBERS)
        if kind < 7:
            return self.string()
        count = self.rng.choice((0, 1, 2, 3, 8))
        if kind < 9:
            return self.join([self.value(depth + 1) for _ in range(count)], "[]")
        keys = ROOT_KEYS + PARAMS_KEYS + META_KEYS
        return self.join(
            [
                self.member(
                    self.string() if self.rng.random() < 0.5 else self.key(self.rng.choice(keys)),
                    self.value(depth + 1),
                )
                for _ in range(count)
            ],
            "{}",
        )

    def message(self, keys: tuple[str, ...] = ROOT_KEYS) -> str:
        """An object with known keys in any order, some twice, some strange."""
        members = []
        for key in self.rng.sample(keys, self.rng.randint(0, len(keys))):
            if key == "params" and self.rng.random() < 0.8:
                members.append(self.member(self.key(key), self.message(PARAMS_KEYS)))
            elif key == "_meta" and self.rng.random() < 0.8:
                members.append(self.member(self.key(key), self.message(META_KEYS)))
            else:
                members.append(self.member(self.key(key), self.value(3)))
        if members and self.rng.random() < 0.2:
            members.insert(
                self.rng.randint(0, len(members)),
                self.member(self.key(self.rng.choice(keys)), self.value(3)),
            )
        if self.rng.random() < 0.2:
            strange = self.rng.choice(
                ("i", "ids", "param", "params ", "Id", "xprogressToken", META)
            )
            members.append(self.member(f'"{strange}"', self.value(4)))
        return self.join(members, "{}")

    def document(self) -> bytes:
        text = self.message() if self.rng.random() < 0.7 else self.value()
        lead = " " * self.rng.choice((0, 0, 0, self.rng.randrange(131)))
        return (lead + self.blank() + text + self.blank()).encode()


def document(rng: random.Random) -> bytes:
    """A valid document; two of three look like messages."""
    return Writer(rng).document()


def mutate(rng: random.Random, data: bytes) -> bytes:
    """`data` with one to three small damages."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        i = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0:
                out[i : i + 1] = bytes([rng.choice(JUNK)])
            case 1:
                out[i:i] = bytes([rng.choice(JUNK)])
            case 2:
                del out[i : i + rng.choice((1, 1, 2, 9))]
            case 3:
                out[i : i + 1] = bytes([rng.randrange(256)])
            case 4:
                out[i:i] = out[i : i + rng.randint(1, 20)]
            case _:
                if rng.random() < 0.3:
                    del out[i:]
                elif i < len(out):
                    out[i] ^= 1 << rng.randrange(8)
    return bytes(out)
