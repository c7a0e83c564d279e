"""The answers that a load expects: any, a text that was sent, a value at a path, a value of a
schema, or a number of bytes.

A path is ``$`` and steps: ``.name``, ``["any name"]`` and ``[0]``, of the result as JSON. The value
is JSON; a string is also compared with the text of the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wirespeed.contents import contents_of

__all__ = ["FORMS", "Expected", "read_expect"]

FORMS = "any, echo=NAME, path=$.PATH:VALUE, schema=FILE or bytes=N"

_DIGITS = 15  # of a number of bytes
_SHOWN = 200  # characters of a text that is wrong

_STEP = re.compile(r'\.([A-Za-z_][A-Za-z0-9_-]*)|\[(-?[0-9]{1,15})\]|\[("(?:[^"\\]|\\.)*")\]')


@dataclass(frozen=True)
class Expected:
    """The right answer.

    Attributes:
        echo: The argument whose text is to come back; None for none.
        check: Whether a result, as decoded JSON, is right; None: each is.
    """

    echo: str | None = None
    check: Callable[[Any], bool] | None = None


def read_expect(text: str, *, whole: bool = False) -> Expected:
    """Return what a text means. ValueError: it means nothing, or what it needs is not there.

    whole: The results are those of LiteMCP. A schema is that of the whole result, and not of its
        ``structuredContent``.
    """
    kind, _, rest = text.partition("=")
    if text == "any":
        return Expected()
    if kind == "echo" and rest:
        return Expected(echo=rest)
    if kind == "path" and rest:
        return Expected(check=_path_check(rest))
    if kind == "schema" and rest:
        return Expected(check=_schema_check(rest, whole))
    if kind == "bytes" and rest.isascii() and rest.isdigit():
        if len(rest) > _DIGITS:
            raise ValueError(f"bytes=N takes a number of at most {_DIGITS} digits")
        return Expected(check=_bytes_check(int(rest), whole))
    raise ValueError(f"it is {FORMS}, not {text[:_SHOWN]!r}")


# -- paths ----------------------------------------------------------------------------------------


def _path_check(text: str) -> Callable[[Any], bool]:
    steps, rest = _steps(text)
    if not rest:
        return lambda result: _find(result, steps) is not _MISSING
    word = rest[1:]
    try:
        value = json.loads(word)
    except (ValueError, RecursionError):
        value = word

    def check(result: Any) -> bool:
        found = _find(result, steps)
        return same(found, value) or (isinstance(found, str) and found == word)

    return check


def _steps(text: str) -> tuple[list[str | int], str]:
    """Return the steps of a path, and the colon and the value behind it."""
    steps: list[str | int] = []
    at = 1
    while text.startswith("$") and at < len(text) and text[at] != ":":
        match = _STEP.match(text, at)
        if match is None:
            break
        if match[1] is not None:
            steps.append(match[1])
        elif match[2] is not None:
            steps.append(int(match[2]))
        else:
            try:
                steps.append(json.loads(match[3]))
            except ValueError:
                break  # it is no string of JSON
        at = match.end()
    if not text.startswith("$") or text[at : at + 1] not in ("", ":"):
        raise ValueError(
            f"path={text[:_SHOWN]} is not a path and a value: write "
            "path=$.structuredContent.sum:42 or path=$.content[0].text:hello; "
            '["any name"] is a step, too'
        )
    return steps, text[at:]


_MISSING = object()


def _find(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        if isinstance(step, str):
            value = value.get(step, _MISSING) if isinstance(value, dict) else _MISSING
        elif isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            value = _MISSING
        if value is _MISSING:
            break
    return value


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON: true is not 1, and 1.0 is."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


# -- schemas, sizes -------------------------------------------------------------------------------


def _schema_check(path: str, whole: bool) -> Callable[[Any], bool]:
    from wirespeed.client.output_checks import SchemaCheck, Unusable, available

    if not available():
        raise ValueError("schema=FILE needs jsonschema-rs: pip install 'wirespeed[validate]'")
    try:
        schema = json.loads(contents_of(path))
    except OSError as exc:
        raise ValueError(f"cannot read {path}: {exc.strerror}") from None
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"{path} is not JSON: {exc}") from None
    try:
        found = SchemaCheck(path, schema)
    except Unusable as exc:
        raise ValueError(str(exc)) from None
    if whole:
        return lambda result: found.fault(result) is None
    # a result without structured content breaks its schema
    return lambda result: (
        "structuredContent" in result and found.fault(result["structuredContent"]) is None
    )


def _bytes_check(size: int, lite: bool) -> Callable[[Any], bool]:
    member = "data" if lite else "text"

    def check(result: Any) -> bool:
        content = _find(result, ["response", "content"] if lite else ["content"])
        if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
            return False
        texts = [block.get(member) for block in content if block.get("type") == "text"]
        if not all(isinstance(text, str) for text in texts):
            return False
        return sum(len(text.encode(errors="surrogatepass")) for text in texts) == size

    return check
