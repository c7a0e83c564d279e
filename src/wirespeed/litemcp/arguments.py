"""A function's parameters as LiteMCP parameters, and its arguments from strings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from wirespeed.litemcp.messages import Parameter
from wirespeed.schema import from_strings as strings
from wirespeed.schema.from_strings import ArgumentError, text_of, type_text
from wirespeed.server.tools.signature import ToolSpec

__all__ = [
    "ArgumentError",
    "Slot",
    "check_number",
    "decode_arguments",
    "parameter_of",
    "slots_of",
    "text_of",
    "type_text",
]

_EXAMPLE = re.compile(r"[\s(]*\b(?:Example|e\.g\.)\s*:?\s+(?P<text>.+?)[\s.)]*\Z", re.IGNORECASE)


class Slot(strings.TextSlot):
    """One parameter of a tool: its description for clients, and the conversion of its strings."""

    __slots__ = ("parameter",)

    def __init__(
        self,
        parameter: Parameter,
        tp: Any,
        default: Callable[[], Any] | None,
        *,
        schema: dict[str, Any] | None = None,
        defs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(parameter.name, tp, parameter.type, default, schema=schema, defs=defs)
        self.parameter = parameter


def decode_arguments(slots: Sequence[Slot], arguments: Sequence[str]) -> list[Any]:
    """Convert the strings of a call to values, one for each parameter.

    A parameter without an argument gets its default. A parameter with a default also gets it for
    an empty string that is not the last argument, or whose type does not allow strings.
    ArgumentError: too many arguments, an argument of another type, or a missing required argument.
    """
    given = len(arguments)
    check_number(given, len(slots))
    values: list[Any] = []
    for at, slot in enumerate(slots):
        if at < given:
            text = arguments[at]
            gap = text == "" and (at < given - 1 or not slot.takes_text)
            if not gap or slot.default is None:
                values.append(slot.parse(text))
                continue
        if slot.default is None:
            missing = [s.name for s in slots[given:] if s.default is None]
            plural = "s" if len(missing) > 1 else ""
            raise ArgumentError(f"missing argument{plural}: {', '.join(missing)}")
        values.append(slot.default())
    return values


def check_number(given: int, most: int) -> None:
    """Raise ArgumentError if there are more arguments than parameters."""
    if given > most:
        raise ArgumentError(f"too many arguments: {given} were given, at most {most} are allowed")


# -- from a signature -----------------------------------------------------------------------------


def slots_of(spec: ToolSpec) -> list[Slot]:
    """Return the parameters of a function, in order."""
    defs = spec.input_schema.get("$defs", {})
    return [
        Slot(
            parameter_of(slot.name, slot.schema, defs, optional=slot.default is not None),
            slot.type,
            slot.default,
            schema=slot.schema,
            defs=defs,
        )
        for slot in strings.slots_of(spec)
    ]


def parameter_of(
    name: str, schema: dict[str, Any], defs: dict[str, Any], optional: bool
) -> Parameter:
    """Return the description of a parameter for clients, from its JSON Schema."""
    description = schema.get("description")
    example = None
    examples = schema.get("examples")
    if examples:
        example = text_of(examples[0])
    elif description and (found := _EXAMPLE.search(description)):
        example = found["text"]
        description = description[: found.start()].rstrip(" ,;:") or None
    if optional:
        note = "Optional."
        if "default" in schema:
            note = f"Optional, {text_of(schema['default']) or 'empty'} by default."
        if description and description[-1] not in ".!?":
            description += "."
        description = f"{description} {note}" if description else note
    return Parameter(name, type_text(schema, defs), description, example)
