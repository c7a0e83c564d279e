"""Structs whose constructors say which class and which argument is wrong, and what was meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import StructMeta

_make = StructMeta.__call__


class ExplainedStruct(StructMeta):
    """The metaclass of structs whose errors of construction name the class and the argument, and
    the nearest argument that there is.

    ``_instead`` of a class has arguments that other libraries have or that users forget, and what
    to write for each. Only a call of the class costs more: decoding does not call it.
    """

    if not TYPE_CHECKING:  # type checkers know a struct's arguments by its fields

        def __call__(cls, *args: Any, **given: Any) -> Any:  # noqa: N805 - of a metaclass
            try:
                return _make(cls, *args, **given)
            except TypeError:
                text = _fault(cls, args, given)
                if text is None:  # an error of ``__post_init__``
                    raise
            raise TypeError(text)


def _fault(cls: Any, args: tuple[Any, ...], given: dict[str, Any]) -> str | None:
    """What is wrong with the arguments of a struct; None if nothing is."""
    name, fields, positional = cls.__name__, cls.__struct_fields__, cls.__match_args__
    instead = getattr(cls, "_instead", {})
    for key in given:
        if key not in fields:
            return f"{name} has no argument {key!r}; {instead.get(key) or nearest(key, fields)}"
    if len(args) > len(positional):
        keywords = ", ".join(f"{field}=…" for field in fields if field not in positional)
        if not positional:
            return f"{name} takes keyword arguments only: {keywords}"
        listed = ", ".join(positional)
        more = f"; by keyword: {keywords}" if keywords else ""
        return f"{name} takes {listed}, not {len(args)} values by position{more}"
    for key in positional[: len(args)]:
        if key in given:
            return f"{name} was given {key!r} twice, by position and by keyword"
    filled = {*positional[: len(args)], *given}
    # not by `msgspec.structs.fields`, which resolves annotations
    defaults = (msgspec.NODEFAULT,) * (len(fields) - len(cls.__struct_defaults__))
    defaults += cls.__struct_defaults__
    missing = [
        field
        for field, default in zip(fields, defaults, strict=True)
        if default is msgspec.NODEFAULT and field not in filled
    ]
    if not missing:
        return None
    needs = f"{name} needs {' and '.join(map(repr, missing))}"
    return "; ".join([needs, *(instead[field] for field in missing if field in instead)])


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest known one, or else all of them."""
    import difflib

    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(known)}"
