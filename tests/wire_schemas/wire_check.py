"""Says what is wrong with a message of MCP in one revision: nothing, for a right one.

Two readers look at it: the tables of `wire_shapes`, which know every revision and take no member
that a revision lacks, and the models of ``mcp_types``, which others wrote from the schema files.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import wire_shapes as shapes
from mcp_types import methods as models
from pydantic import ValidationError

Side = Literal["client", "server"]

_MEMBER = re.compile(
    r"""(?P<name>[\w$./-]+?)(?P<needed>!?)
        (?::(?P<type>="[^"]*"|[\w\[\]{}|]+))?
        (?:@(?P<since>\d\d)?(?P<to>-)?(?P<until>\d\d)?)?(?:\s+|$)""",
    re.VERBOSE,
)
Problems = Iterator[str]
Reader = Callable[[Any, str], Problems]


@dataclass
class Member:
    name: str
    needed: bool
    read: Reader


@dataclass
class Shape:
    members: dict[str, Member]
    is_open: bool


def lives(period: str, code: str) -> bool:
    """Whether a revision lies in a period: "06", "-11", "11-11"."""
    first, _, last = period.partition("-")
    at = shapes.ORDER.index(code)
    if first and at < shapes.ORDER.index(first):
        return False
    return not ("-" in period and at > shapes.ORDER.index(last))


@functools.cache
def shape(name: str, code: str) -> Shape:
    """A type as one revision has it."""
    line = shapes.TYPES[name]
    is_open = line.endswith("+")
    line = line.removesuffix("+").rstrip()
    members: dict[str, Member] = {}
    at = 0
    while at < len(line):
        found = _MEMBER.match(line, at)
        assert found is not None, f"{name}: {line[at:]!r} is no member"
        at = found.end()
        since, until = found["since"] or "", found["until"] or ""
        if lives(f"{since}-{until}" if found["to"] else since or "24", code):
            assert found["name"] not in members, (name, found["name"])
            read = reader(found["type"] or "str", code)
            members[found["name"]] = Member(found["name"], bool(found["needed"]), read)
    return Shape(members, is_open)


@functools.cache
def reader(words: str, code: str) -> Reader:
    """What reads a value of a type."""
    if words.startswith('="'):
        return _one_of(words[2:-1].split("|"))
    if ("|" in words and words[0] not in "[{") or re.search(r"[\]}]\|", words):
        return _any_of([reader(word, code) for word in words.split("|")])
    if words[0] == "[":
        return _array(reader(words[1:-1], code))
    if words[0] == "{":
        return _map(reader(words[1:-1], code))
    if words in _PLAIN:
        return _PLAIN[words]
    if words in shapes.UNIONS:
        return reader(shapes.UNIONS[words], code)
    if words in shapes.CHOICES:
        return _choice(words, code)
    if words in shapes.HOLDING:
        return _holding(words, code)
    return _object(words, code)


def _plain(name: str, *types: type) -> Reader:
    def read(value: Any, path: str) -> Problems:
        # a boolean is an int to Python alone
        if type(value) not in types:
            yield f"{path}: {value!r:.80} is no {name}"

    return read


def _anything(value: Any, path: str) -> Problems:
    return iter(())


_PLAIN: dict[str, Reader] = {
    "str": _plain("string", str),
    "int": _plain("integer", int),
    "num": _plain("number", int, float),
    "bool": _plain("boolean", bool),
    "null": _plain("null", type(None)),
    "obj": _plain("object", dict),
    "id": _plain("string or integer", str, int),
    "any": _anything,
}


def _one_of(words: list[str]) -> Reader:
    def read(value: Any, path: str) -> Problems:
        if not isinstance(value, str) or value not in words:
            yield f"{path}: {value!r:.80} is none of {words}"

    return read


def _any_of(readers: list[Reader]) -> Reader:
    def read(value: Any, path: str) -> Problems:
        every = [list(read(value, path)) for read in readers]
        if all(every):
            yield from min(every, key=len)

    return read


def _array(item: Reader) -> Reader:
    def read(value: Any, path: str) -> Problems:
        if not isinstance(value, list):
            yield f"{path}: {value!r:.80} is no array"
            return
        for number, element in enumerate(value):
            yield from item(element, f"{path}[{number}]")

    return read


def _map(item: Reader) -> Reader:
    def read(value: Any, path: str) -> Problems:
        if not isinstance(value, dict):
            yield f"{path}: {value!r:.80} is no object"
            return
        for name, element in value.items():
            yield from item(element, f"{path}.{name}")

    return read


def _object(name: str, code: str) -> Reader:
    def read(value: Any, path: str) -> Problems:
        if not isinstance(value, dict):
            yield f"{path}: {value!r:.80} is no {name}"
            return
        known = shape(name, code)
        for member in known.members.values():
            if member.name in value:
                yield from member.read(value[member.name], f"{path}.{member.name}")
            elif member.needed:
                yield f"{path}: {name} without {member.name!r}"
        if not known.is_open:
            for extra in value.keys() - known.members.keys():
                yield f"{path}: {name} of {shapes.REVISIONS[code]} has no {extra!r}"
        if name == "Contents" and ("text" in value) == ("blob" in value):
            yield f"{path}: either text or blob"
        if name == "InputRequired" and not {"inputRequests", "requestState"} & value.keys():
            yield f"{path}: input_required that says nothing"

    return read


def _choice(name: str, code: str) -> Reader:
    member, kinds = shapes.CHOICES[name]

    def read(value: Any, path: str) -> Problems:
        kind = value.get(member, "") if isinstance(value, dict) else None
        words, _, period = (
            kinds.get(kind, "").partition("@") if isinstance(kind, str) else ("",) * 3
        )
        if not words or not lives(period or "24", code):
            yield f"{path}: {name} of {shapes.REVISIONS[code]} has no {member} {kind!r:.80}"
            return
        yield from reader(words, code)(value, path)

    return read


def _holding(name: str, code: str) -> Reader:
    def read(value: Any, path: str) -> Problems:
        for member, words in shapes.HOLDING[name]:
            if isinstance(value, dict) and member in value:
                yield from reader(words, code)(value, path)
                return
        yield f"{path}: {value!r:.80} is no {name}"

    return read


# -- messages --------------------------------------------------------------------------------------


def row(table: dict[str, list[shapes.Row]], method: str, code: str) -> shapes.Row | None:
    """What a table has of a method in a revision."""
    return next((r for r in table.get(method, []) if lives(r[0], code)), None)


def known(method: str) -> bool:
    """Whether any revision has it, on either side."""
    return any(
        method in table
        for table in (
            shapes.CLIENT_REQUESTS,
            shapes.SERVER_REQUESTS,
            shapes.CLIENT_NOTIFICATIONS,
            shapes.SERVER_NOTIFICATIONS,
        )
    )


def request(side: Side, method: str, params: Any, version: str) -> list[str]:
    """What is wrong with a request that this side sends; methods of nobody's are let pass."""
    table = shapes.CLIENT_REQUESTS if side == "client" else shapes.SERVER_REQUESTS
    return _asked(table, side, method, params, version, "requests")


def notification(side: Side, method: str, params: Any, version: str) -> list[str]:
    """What is wrong with a notification that this side sends."""
    client = side == "client"
    table = shapes.CLIENT_NOTIFICATIONS if client else shapes.SERVER_NOTIFICATIONS
    return _asked(table, side, method, params, version, "notifications")


def _asked(
    table: dict[str, list[shapes.Row]],
    side: Side,
    method: str,
    params: Any,
    version: str,
    what: str,
) -> list[str]:
    code = shapes.CODES[version]
    found = row(table, method, code)
    if found is None:
        if known(method):
            return [f"{method} is not among the {what} of a {side} in {version}"]
        return []
    problems = []
    if params is not None:
        problems += reader(found[1], code)(params, "params")
    elif any(member.needed for member in shape(found[1], code).members.values()):
        problems.append("params are missing")
    surface = getattr(models, f"{side.upper()}_{what.upper()}")
    model = surface.get((method, version))
    if model is not None:
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if what == "requests":
            body["id"] = 0
        if params is not None:
            body["params"] = params
        problems += _refused(lambda: model.model_validate(body, by_name=False))
    return problems


def result(side: Side, method: str, value: Any, version: str) -> list[str]:
    """What is wrong with a result that this side gives for the other's request."""
    code = shapes.CODES[version]
    table = shapes.CLIENT_REQUESTS if side == "server" else shapes.SERVER_REQUESTS
    found = row(table, method, code)
    if found is None:
        return [f"{version} has no results of {method}"] if known(method) else []
    words = found[2]
    theirs = True
    if words in shapes.OUTCOMES:
        kind = value.get("resultType") if isinstance(value, dict) else None
        if code == "26" and kind == "input_required":
            words = "InputRequired"
        elif code == "26" and kind == "task" and method == "tools/call":
            words, theirs = "ExtTaskMade", False
        elif code == "11" and isinstance(value, dict) and "task" in value:
            words, theirs = "TaskMade", False
        else:
            words = shapes.OUTCOMES[words]
    problems = list(reader(words, code)(value, "result"))
    model = getattr(models, f"{side.upper()}_RESULTS").get((method, version)) if theirs else None
    if model is not None:
        problems += _refused(lambda: models._adapter(model).validate_python(value, by_name=False))
    return problems


def error(value: Any, version: str) -> list[str]:
    """What is wrong with an error object."""
    code = shapes.CODES[version]
    problems = list(reader("ErrorObject", code)(value, "error"))
    if problems:
        return problems
    number = value["code"]
    if number in shapes.ERRORS:
        words, period = shapes.ERRORS[number]
        if not lives(period, code):
            return [f"error: {version} has no {number}"]
        return list(reader(words, code)(value.get("data"), "error.data"))
    if number == -32002 and code == "26":
        return ["error: 2026-07-28 has no -32002"]
    if number in (-32001, -32003, -32004):
        return [f"error: {number} was never in a revision"]
    return []


def _refused(validate: Callable[[], object]) -> list[str]:
    try:
        validate()
    except ValidationError as exc:
        return [
            f"mcp_types: {'.'.join(map(str, e['loc']))}: {e['msg']}"
            for e in exc.errors(include_url=False, include_input=False)
        ][:8]
    return []
