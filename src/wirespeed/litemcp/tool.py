"""A function as the tool of a LiteMCP server: its parameters, and its arguments from strings."""

from __future__ import annotations

import contextvars
import re
from collections.abc import Callable, Sequence
from typing import Any

from wirespeed.litemcp.messages import Parameter
from wirespeed.schema import from_strings as strings
from wirespeed.schema.from_strings import ArgumentError, text_of, type_text
from wirespeed.server.requests import launchers
from wirespeed.server.tools.signature import ToolSpec, inspect_tool

__all__ = [
    "LiteSlot",
    "LiteTool",
    "decode_arguments",
    "parameter_of",
    "raw_tool",
    "slots_of",
    "typed_tool",
]

_EXAMPLE = re.compile(r"[\s(]*\b(?:Example|e\.g\.)\s*:?\s+(?P<text>.+?)[\s.)]*\Z", re.IGNORECASE)


_EXAMPLES = re.compile(r"^Examples?:[ \t]*\n?(?P<text>(?:.+\n?)+)", re.MULTILINE)


class LiteTool:
    """The tool of a LiteMCP server. `typed_tool` and `raw_tool` make it.

    Attributes:
        name, description, example: The texts of the tool for clients.
        parameters: The parameters, in the order of the arguments.
        timeout: Seconds after which a call is cancelled, or None.
        inline: Whether `start` returns the result itself, not a coroutine.
    """

    __slots__ = (
        "_start",
        "description",
        "example",
        "inline",
        "name",
        "names",
        "parameters",
        "timeout",
    )

    def __init__(
        self,
        name: str,
        description: str | None,
        example: str | None,
        parameters: Sequence[Parameter],
        start: Callable[[list[str]], Any],
        *,
        timeout: float | None,
        inline: bool = False,
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError("timeout must be seconds above 0")
        names = [parameter.name for parameter in parameters]
        if twice := {one for one in names if names.count(one) > 1}:
            raise ValueError(f"tool {name!r}: two parameters named {', '.join(sorted(twice))}")
        self.name = name
        self.description = description
        self.example = example
        self.parameters = list(parameters)
        self.names = names
        self.timeout = timeout
        self.inline = inline
        self._start = start

    def __repr__(self) -> str:
        return f"<LiteTool {self.name!r}({', '.join(self.names)})>"

    def start(self, arguments: list[str]) -> Any:
        """Call the tool. Returns a coroutine to run, or the result of an inline tool.
        ArgumentError: the arguments do not match the parameters."""
        return self._start(arguments)


def typed_tool(
    function: Callable[..., Any],
    threads: launchers.Threads,
    *,
    name: str | None = None,
    description: str | None = None,
    example: str | None = None,
    inline: bool = False,
    timeout: float | None = None,
) -> LiteTool:
    """Return a tool with the parameters of a function, which runs in *threads* if it blocks.

    SignatureError: the function cannot be a tool. The text is the reason.
    """
    # a result of any type can be sent, so the return type is not checked
    spec = inspect_tool(function, name=name, description=description, returns=Any)
    said = spec.description
    if description is None and said and (found := _EXAMPLES.search(said)):
        if example is None:
            example = " ".join(found["text"].split())
        said = (said[: found.start()].rstrip() + "\n\n" + said[found.end() :].lstrip()).strip()
    slots = slots_of(spec)
    called, names = spec.function, spec.kwnames or None
    if inline and (spec.is_async or spec.is_generator or spec.is_async_generator):
        raise ValueError(f"tool {spec.name!r}: only a plain function can be inline")
    inline = inline and not spec.wraps_async
    run: Callable[..., Any]
    if spec.is_async:
        run = launchers.call
    elif spec.is_async_generator:
        run = launchers.async_generator
    elif spec.wraps_async:
        run = launchers.awaitable
    elif spec.is_generator:
        run = threads.generator
    elif inline:
        run = _here
    else:
        run = threads.in_thread

    def start(arguments: list[str]) -> Any:
        return run(called, decode_arguments(slots, arguments), names)

    return LiteTool(
        spec.name,
        said or None,
        example,
        [slot.parameter for slot in slots],
        start if names or not spec.is_async else _direct(called, slots),
        timeout=timeout,
        inline=inline,
    )


def _here(function: Callable[..., Any], values: list[Any], names: launchers.Names) -> Any:
    """Call a function at once, in a copy of the current context."""
    return contextvars.copy_context().run(launchers.call, function, values, names)


def _direct(function: Callable[..., Any], slots: list[LiteSlot]) -> Callable[[list[str]], Any]:
    """Return a faster form of `start` for coroutine functions without keyword-only parameters."""

    def start(arguments: list[str]) -> Any:
        return function(*decode_arguments(slots, arguments))

    return start


def raw_tool(
    name: str,
    parameters: Sequence[Parameter],
    handler: Callable[[list[str]], Any],
    *,
    description: str | None = None,
    example: str | None = None,
    timeout: float | None = None,
) -> LiteTool:
    """Return a tool whose coroutine function receives the strings of a call unchanged. Only their
    number is checked."""
    most = len(parameters)

    def start(arguments: list[str]) -> Any:
        check_number(len(arguments), most)
        return handler(arguments)

    return LiteTool(name, description, example, parameters, start, timeout=timeout)


# -- arguments -------------------------------------------------------------------------------------


class LiteSlot(strings.TextSlot):
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


def decode_arguments(slots: Sequence[LiteSlot], arguments: Sequence[str]) -> list[Any]:
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


def slots_of(spec: ToolSpec) -> list[LiteSlot]:
    """Return the parameters of a function, in order."""
    defs = spec.input_schema.get("$defs", {})
    return [
        LiteSlot(
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
