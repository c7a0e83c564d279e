"""Arguments on the command line: one JSON text, or words as ``name=value`` and ``name:=JSON``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from wirespeed.cli.failures import Failure, usage

EXAMPLE = "write the tool's arguments as in '{\"a\": 1}'"

_KINDS = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
_WORD = re.compile(r"""([^\s"'{}\[\]@=:-][^\s"{}=]*?)(:?=)(.*)\Z""", re.DOTALL)
_DEPTH = 16  # levels of references in a schema


class Word(NamedTuple):
    """One argument of the command line.

    Attributes:
        name: Its name.
        text: What stands behind ``=`` or ``:=``.
        is_json: Whether the text is JSON (``:=``).
    """

    name: str
    text: str
    is_json: bool


# -- JSON -----------------------------------------------------------------------------------------


def read_arguments(text: str | None) -> bytes:
    """Return the arguments of a call: the text of one JSON object."""
    return b"{}" if text is None else read_json(text, (dict,), "an object", EXAMPLE)[0]


def read_json(text: str, kinds: tuple[type, ...], expected: str, example: str) -> tuple[bytes, Any]:
    """Read JSON from the command line, stdin (``-``) or a file (``@FILE``). Returns its text on one
    line, and its value.

    The text keeps the numbers as written. Failure (2): the JSON is not valid, or its value is not
    of one of the ``kinds``.
    """
    import msgspec

    source = "JSON"
    try:
        if text == "-":
            source = "the JSON on stdin"
            data = sys.stdin.buffer.read().decode("utf-8-sig")
        elif text.startswith("@"):
            source = text[1:]
            with open(text[1:], "rb") as file:
                data = file.read().decode("utf-8-sig")
        else:
            data = text
            data.encode()  # bytes of argv that are not UTF-8 are surrogates in the text
    except OSError as exc:
        raise usage(f"cannot read {source or 'the file after @'}: {exc.strerror}") from None
    except UnicodeError:
        raise usage(f"{source} is not UTF-8") from None
    try:
        value = json.loads(data, parse_constant=refuse_constant)
        if "\\u" in data:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise usage(f"{source} has half a surrogate pair, which is no character") from None
    except json.JSONDecodeError as exc:
        where = f"line {exc.lineno} column {exc.colno}"
        raise usage(f"{source} is not valid ({where}: {exc.msg}); {example}") from None
    except (ValueError, RecursionError) as exc:
        raise usage(f"{source} is not valid: {exc}") from None
    if not isinstance(value, kinds):
        raise usage(f"{source} must be {expected}, not {_KINDS[type(value)]}; {example}")
    # A message is one line; the text of strings and numbers is kept.
    return msgspec.json.format(data.encode(), indent=-1), value


def refuse_constant(word: str) -> Any:
    """Refuse NaN and Infinity, which `json` reads: ValueError."""
    raise ValueError(f"{word} is not JSON")


# -- words ----------------------------------------------------------------------------------------


def read_words(words: Sequence[str]) -> list[Word] | None:
    """Return arguments that are written as words; None for JSON, and for no arguments. Failure (2):
    some of the words are of another form."""
    found = [_WORD.match(word) for word in words]
    if not found or found[0] is None:
        return None
    read = []
    for word, match in zip(words, found, strict=True):
        if match is None:
            raise usage(f"{word!r} is neither name=value nor name:=JSON")
        read.append(Word(match[1], match[3], match[2] == ":="))
    return read


def strings_of(words: Sequence[Word]) -> dict[str, str]:
    """Return arguments that are strings, as those of prompts are. JSON other than a string stands
    for its text. Failure (2): a name is given twice, or a JSON is not valid."""
    values: dict[str, str] = {}
    for word in words:
        if word.name in values:
            raise usage(f"{word.name} is given twice")
        values[word.name] = word.text
        if word.is_json:
            data, value = _json_of(word)
            values[word.name] = value if isinstance(value, str) else data.decode()
    return values


def encode_words(words: Sequence[Word], schema: Any) -> bytes:
    """Return the JSON object of arguments for a tool.

    schema: The tool's input schema, which is not trusted. A value is a string, unless the schema
    has no string there and the text is JSON of a type that it has. A name that is given several
    times, or whose schema has only arrays, is an array.
    """
    given: dict[str, list[Word]] = {}
    for word in words:
        given.setdefault(word.name, []).append(word)
    members = [
        json.dumps(name).encode() + b":" + _member(name, several, schema)
        for name, several in given.items()
    ]
    return b"{" + b",".join(members) + b"}"


def encode_value(text: str, types: set[str]) -> bytes:
    """Return the JSON of a typed text for a schema with these types: a string, or JSON of another
    of the types."""
    return _value(Word("", text, False), types)


def _member(name: str, words: list[Word], root: Any) -> bytes:
    schema = property_of(root, name)
    types = types_of(schema, root)
    if len(words) > 1 and types and "array" not in types:
        raise usage(f"{name} is given twice, and is not a list")
    single = len(words) == 1
    if single and (words[0].is_json or types != {"array"}):
        return _value(words[0], types)
    if single and types == {"array"} and words[0].text.lstrip()[:1] == "[":
        return _value(words[0], types)
    items = schema.get("items") if isinstance(schema, dict) else None
    kinds = types_of(items, root)
    return b"[" + b",".join(_value(word, kinds) for word in words) + b"]"


def _value(word: Word, types: set[str]) -> bytes:
    if word.is_json:
        return _json_of(word)[0]
    if types and "string" not in types:
        import msgspec

        try:
            value = json.loads(word.text, parse_constant=refuse_constant)
        except (ValueError, RecursionError):
            return _string(word.text)  # the server says what it expects
        if _kind(value) & types:
            return msgspec.json.format(word.text.encode(), indent=-1)
    return _string(word.text)


def _string(text: str) -> bytes:
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeError:
        raise usage("an argument is not UTF-8") from None


def _kind(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number", "integer"} if value.is_integer() else {"number"}
    names = {dict: "object", list: "array", str: "string", type(None): "null"}
    return {names[type(value)]}


def _json_of(word: Word) -> tuple[bytes, Any]:
    """The JSON behind ``:=``, also of a file (``name:=@FILE``)."""
    text = word.text
    if text == "-":
        raise usage(f"{word.name}:=- is not JSON; stdin takes all arguments: TOOL -")
    try:
        return read_json(text, (object,), "", f"write JSON behind :=, as in {word.name}:=3")
    except Failure as exc:
        raise usage(f"{word.name}: {exc}") from None


# -- schemas --------------------------------------------------------------------------------------


def property_of(schema: Any, name: str) -> Any:
    """Return the schema of one argument; None if it is not known."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties.get(name) if isinstance(properties, Mapping) else None


def resolved(schema: Any, root: Any) -> Any:
    """Return a schema in place of its reference into the same document."""
    for _ in range(_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        schema = root
        for key in reference[2:].split("/"):
            key = key.replace("~1", "/").replace("~0", "~")
            schema = schema.get(key) if isinstance(schema, Mapping) else None
    return schema


def types_of(schema: Any, root: Any, depth: int = 0) -> set[str]:
    """Return the JSON types that a schema names, without null; empty if it names none."""
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return set()
    kinds = schema.get("type")
    if isinstance(kinds, str):
        kinds = [kinds]
    if isinstance(kinds, list):
        found = {kind for kind in kinds if isinstance(kind, str)}
    else:
        found = set()
        values = schema.get("enum")
        if "const" in schema:
            values = [schema["const"]]
        if isinstance(values, list):
            for value in values:
                found |= _kind(value)
        for key in ("anyOf", "oneOf"):
            options = schema.get(key)
            for option in options if isinstance(options, list) else ():
                some = types_of(option, root, depth + 1)
                if not some and resolved(option, root) != {"type": "null"}:
                    return set()  # one of them takes anything
                found |= some
    return found - {"null"} if found != {"null"} else set()


def choices_of(schema: Any, root: Any, depth: int = 0) -> list[str]:
    """Return the values of an enum, a constant or a boolean, as a person types them."""
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return []
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list):
        values = [True, False] if schema.get("type") == "boolean" else []
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        for option in options if isinstance(options, list) else ():
            values = [*values, *choices_of(option, root, depth + 1)]
    return [value if isinstance(value, str) else json.dumps(value) for value in values]
