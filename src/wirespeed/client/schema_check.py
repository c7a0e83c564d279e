"""One schema, and values checked by it.

Schemas are their server's, so they are not trusted (basic, "JSON Schema Usage", of 2026-07-28):

* No reference to another document is followed, whether it is on a network or in a file; a schema
  that has one is refused.
* The dialects are `DIALECTS`; a schema that names none is of 2020-12, one of another is refused.
* What a schema costs is counted before it is used (`wirespeed.client.schemas`), and what it may
  cost for one value is `MAX_STEPS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import jsonschema_rs
import msgspec

from wirespeed.client.schema_graph import CUT, SchemaFault
from wirespeed.client.schemas import MAX_BACKTRACKING, MAX_PATTERN_BYTES, plan
from wirespeed.errors import InvalidResponse

__all__ = ["DIALECTS", "SchemaCheck", "TooLarge"]

DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}
"""By ``$schema``, without an empty fragment at its end."""

_DEFAULT = "https://json-schema.org/draft/2020-12/schema"

# Work for one value: about 10 ns each, on the loop's thread.
MAX_STEPS = 30_000_000
# For more than this, it is not said where a value is wrong. Of a union, the library collects what
# is wrong by each of its schemas, which takes some µs for each.
MAX_EXPLAINED = 2_000_000
MAX_UNION_EXPLAINED = 100_000

# Calls of checks from within one another, for parts of one value: each takes two of Python's stack.
MAX_NESTED = 300

_SHOWN = 200  # characters of a value that an error shows
_TOO_LARGE = "structuredContent: it is not valid, and too large to say where"
_DOCUMENT = "wirespeed:/schema"

# Lists of numbers that are to be unique: fractions take so many times as long, and the library
# cannot tell long numbers apart before it compares each with all others.
_FRACTIONS = 4
_LONG = 500  # bytes of a value for which they take as long again
_fraction = re.compile(rb"[\[,]-?\d+[.e]").search
_long = re.compile(rb"[:\[,]-?\d{16}").search

_encode = msgspec.json.Encoder().encode


class _Refused(Exception):
    """A value, or a part of one, breaks what was cut out of a schema."""

    def __init__(self, pointer: str, value: Any) -> None:
        super().__init__(pointer)
        self.pointer = pointer
        self.value = value


class TooLarge(Exception):
    """A value takes more work to be checked, or is nested deeper, than is allowed."""


class SchemaCheck:
    """A schema, made ready. InvalidResponse: it is not to be used."""

    def __init__(self, what: str, schema: Any) -> None:
        if not isinstance(schema, (dict, bool)):
            raise InvalidResponse(f"{what} is neither an object nor a boolean")
        dialect = schema.get("$schema", _DEFAULT) if isinstance(schema, dict) else _DEFAULT
        known = DIALECTS.get(dialect.removesuffix("#")) if isinstance(dialect, str) else None
        if known is None:
            raise InvalidResponse(
                f"{what} is of a dialect that is not supported: {dialect!r:.{_SHOWN}}"
            )
        try:
            made = plan(schema, _linear, _backtracking)
        except SchemaFault as exc:
            raise InvalidResponse(f"{what} {exc}") from None
        self._load = made.load
        self._largest = made.largest
        self._unique = made.unique
        self._explained_up_to = MAX_UNION_EXPLAINED if made.unions else MAX_EXPLAINED
        self._error = jsonschema_rs.ValidationError
        # what was found out of a value: by the part of the schema that was cut out, and identity;
        # with the value, so that none is mistaken for another
        self._known: dict[tuple[str, int], tuple[Any, bool]] = {}
        self._targets: dict[str, Any] = {}
        self._deep = 0
        self._too_deep = False
        of_dialect = getattr(jsonschema_rs, known)
        engine: Any = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES)
        if made.backtracks:
            engine = jsonschema_rs.FancyRegexOptions(MAX_BACKTRACKING, MAX_PATTERN_BYTES)
        options = {"retriever": _refuse, "pattern_options": engine}
        if made.targets:
            document = {"$schema": dialect, **made.document}
            options["registry"] = jsonschema_rs.Registry([(_DOCUMENT, document)])
            options["keywords"] = {CUT: self._keyword()}
        try:
            self._whole = of_dialect(made.document, **options)
            for pointer in made.targets:
                target = {"$ref": f"{_DOCUMENT}#{quote(pointer)}"}
                self._targets[pointer] = of_dialect(target, **options)
        except ValueError as exc:  # its ValidationError is one
            raise InvalidResponse(
                f"{what} cannot be used: {_short(getattr(exc, 'message', str(exc)))}"
            ) from None

    def fault(self, value: Any) -> str | None:
        """What is wrong with a value; None: nothing. `TooLarge`."""
        try:
            text = _encode(value)
        except RecursionError:
            raise TooLarge from None
        size = len(text)
        work = self._load * size
        if self._unique and work <= MAX_STEPS:
            if _long(text):
                work *= max(_FRACTIONS, size // _LONG)
            elif _fraction(text):
                work *= _FRACTIONS
        if work > MAX_STEPS:
            raise TooLarge
        self._too_deep = False
        try:
            # this ends at the first fault of each part; to collect them takes far more
            valid = self._whole.is_valid(value)
            if self._too_deep:
                raise TooLarge
            if valid:
                return None
            few = self._largest * size <= self._explained_up_to
            return self._explained(value) if few else _TOO_LARGE
        finally:
            self._known.clear()

    def _explained(self, value: Any) -> str | None:
        path: list[str | int] = []
        validator = self._whole
        while True:
            try:
                validator.validate(value)
            except self._error as exc:
                path += exc.instance_path
                inner = exc.__cause__
                if not isinstance(inner, _Refused):
                    return f"{_path(path)}: {_short(exc.message)}"
                validator, value = self._targets[inner.pointer], inner.value
            except ValueError:  # it is too deep for the library to tell of it
                return _TOO_LARGE
            else:
                return None

    def _keyword(self) -> type:
        """The keyword in the place of what was cut out."""
        whole = self

        class Cut:
            def __init__(self, schema: Any, pointers: list[str], path: Any) -> None:
                self._pointers = pointers

            def validate(self, value: Any) -> None:
                for pointer in self._pointers:
                    if not whole._holds(pointer, value):
                        raise _Refused(pointer, value)

        return Cut

    def _holds(self, pointer: str, value: Any) -> bool:
        key = (pointer, id(value))
        known = self._known.get(key)
        if known is None:
            # the library takes whatever is raised for a "no"
            if self._too_deep or self._deep == MAX_NESTED:
                self._too_deep = True
                return False
            self._deep += 1
            try:
                known = self._known[key] = (value, self._targets[pointer].is_valid(value))
            finally:
                self._deep -= 1
        return known[1]


def _linear(pattern: str, size: int) -> bool:
    return _compiles(pattern, jsonschema_rs.RegexOptions(size_limit=size))


def _backtracking(pattern: str, size: int) -> bool:
    return _compiles(pattern, jsonschema_rs.FancyRegexOptions(MAX_BACKTRACKING, size))


def _compiles(pattern: str, engine: Any) -> bool:
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=engine)
    except ValueError:
        return False
    return True


def _refuse(uri: str) -> Any:
    """Nothing is fetched."""
    raise LookupError(f"references to other documents are not followed ({uri:.{_SHOWN}})")


def _path(parts: Iterable[str | int]) -> str:
    """Where a value is, such as ``structuredContent.rows[3].name``."""
    path = "structuredContent"
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if part.isidentifier() else f"[{part!r}]"
    return path


def _short(text: str) -> str:
    """The value is at the beginning of an error, and what is wrong with it at the end."""
    half = _SHOWN // 2
    return text if len(text) <= _SHOWN else f"{text[:half]}…{text[-half:]}"
