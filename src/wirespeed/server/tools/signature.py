"""From a Python callable to a tool: its name, texts and schemas, and how arguments are decoded.

`inspect_tool` does everything once, at registration; a call then needs only plain attributes of the
`ToolSpec` that it returns::

    try:
        arguments = spec.decoder.decode(buffer)          # b"{}" where the call has no arguments
    except msgspec.ValidationError as exc:
        arguments = spec.decode_again(buffer, exc)
    vector = [getattr(arguments, name) for name in spec.fields]
    if spec.context_index >= 0:
        vector.insert(spec.context_index, context)
    # a vectorcall of spec.function: the last len(spec.kwnames) values are keyword arguments

What a signature means:

* Every parameter is one property of the input schema, in order; no annotation means any JSON value
  (the rules for types are in `wirespeed.schema.json_schema`).  A default makes it optional.  A
  mutable default is copied for each call; one without a JSON form is not shown in the schema.
* The parameter annotated with the context class, or with that class ``| None``, gets the context
  and is not an argument.  String annotations, ``from __future__ import annotations`` too, are
  resolved in the function's module and closure.
* ``*args`` and ``**kwargs`` are refused: a schema cannot name what they take.  Arguments bound with
  `functools.partial` are the server's own: clients neither see nor set them.
* The description is the docstring without its sections on parameters, results and errors (Google,
  NumPy or Sphinx style); those on parameters describe the properties, unless `Annotated` does.
* A generator function, async or not, is a tool whose result is the list of what it yields.

MCP server/tools, "Data Types" and "Tool Names" (the rules for names are SHOULDs: a name that breaks
them is logged).
"""

from __future__ import annotations

import functools
import logging
import re
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Literal, TypeAlias

import msgspec

from wirespeed.errors import SignatureError
from wirespeed.protocol.meta import check_json
from wirespeed.schema.json_schema import input_schema, prepare_type
from wirespeed.schema.python_types import adapter_of, dec_hook, is_field_info, lax_dec_hook
from wirespeed.server.asking.input_required import split_annotation
from wirespeed.server.requests.launchers import SHARED, Threads
from wirespeed.server.tools.callables import (
    CO_ASYNC_GENERATOR,
    CO_COROUTINE,
    CO_GENERATOR,
    AnnotationScope,
    code_flags,
    docstring_of,
    is_coroutine_function,
    label_of,
    layers_of,
    name_of,
    parse_docstring,
    signature_of,
)
from wirespeed.server.tools.results import ResultPlan, plan_result

if typing.TYPE_CHECKING:
    import inspect

    from wirespeed.protocol.header_values import ParamField
    from wirespeed.server.requests.operation import Injected, Injector

logger = logging.getLogger("wirespeed.server")

Extra: TypeAlias = Literal["forbid", "ignore"]

_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, Enum, types.FunctionType, type)


class ToolSpec:
    """The signature of a tool as the server needs it; made by `inspect_tool`.

    function            what to call
    name                unique in the server
    title, description  for people and models, or None
    input_schema        JSON Schema of the arguments; ``input_schema_json``: the same, encoded
    output_schema       JSON Schema of the structured result, or None (``output_schema_json``)
    result              the `ResultPlan`: ``result.encode(value)``
    returns             the annotation of the finished result, resolved; `msgspec.UNSET`: none
    is_async            calling it returns a coroutine
    is_generator        calling it returns a generator
    is_async_generator  calling it returns an async generator
    wraps_async         a plain ``def`` around an async function, or annotated as returning an
                        awaitable: run it on the loop and await its result if that is awaitable
    struct, decoder     the class of the decoded arguments; its `msgspec.json.Decoder`
    coerce              whether texts may stand for other values
    second_look         what `decode_again` uses; None until then
    fields              attributes of the decoded arguments, in the order of the call
    positional          those of `fields` that are passed by position
    kwnames             the names of the values passed by keyword: the last of the vector
    context_param       the name of the parameter that takes the context, or None
    context_index       where the context goes in the vector; -1: nowhere
    header_params       the arguments that HTTP clients mirror (`ParamField`); None: there are none
    injection           what is injected beside the arguments; None: nothing
    threads             where the function runs, if it blocks
    """

    function: Callable[..., Any]
    name: str
    title: str | None
    description: str | None
    input_schema: dict[str, Any]
    input_schema_json: bytes
    output_schema: dict[str, Any] | None
    output_schema_json: bytes | None
    result: ResultPlan
    returns: Any
    is_async: bool
    is_generator: bool
    is_async_generator: bool
    wraps_async: bool
    struct: type[msgspec.Struct]
    decoder: msgspec.json.Decoder[Any]
    coerce: bool
    second_look: SecondLook | None
    fields: tuple[str, ...]
    positional: tuple[str, ...]
    kwnames: tuple[str, ...]
    context_param: str | None
    context_index: int
    header_params: tuple[ParamField, ...] | None
    injection: Injected | None
    threads: Threads

    def __repr__(self) -> str:
        return f"<ToolSpec {self.name!r}>"

    def replace_function(self, function: Callable[..., Any]) -> None:
        """Call another instead, a coroutine function that takes the same."""
        self.function = functools.update_wrapper(function, self.function)
        self.is_async = True
        self.is_generator = self.is_async_generator = self.wraps_async = False

    def decode_again(self, arguments: Any, refusal: msgspec.ValidationError) -> msgspec.Struct:
        """Decode what `decoder` refused once more, with whole numbers in digits, and with texts
        read as other values where the tool allows that. Raises what msgspec raises for arguments
        that do not fit."""
        if self.second_look is None:
            self.second_look = SecondLook(self)
        return self.second_look.decode(bytes(arguments), refusal)

    def vector(self, arguments: msgspec.Struct, context: Any = None) -> list[Any]:
        """The values of the call, in order."""
        values = [getattr(arguments, name) for name in self.fields]
        if self.context_index >= 0:
            values.insert(self.context_index, context)
        return values

    def call(self, arguments: msgspec.Struct, context: Any = None) -> Any:
        """Call the function with decoded arguments (a coroutine is not awaited)."""
        values = self.vector(arguments, context)
        count = len(values) - len(self.kwnames)
        keywords = dict(zip(self.kwnames, values[count:], strict=True))
        return self.function(*values[:count], **keywords)


# -- parameters -----------------------------------------------------------------------------------


class WireName(msgspec.Struct, frozen=True):
    """In `Annotated`: the name of an argument in JSON, where that is not a name in Python."""

    name: str


class _Parameter:
    """One argument of the tool: `wire` is its name in JSON, `attribute` in the decoded struct."""

    __slots__ = ("attribute", "default", "description", "type", "wire")

    def __init__(self, parameter: inspect.Parameter, tp: Any, where: str, taken: set[str]) -> None:
        self.wire = parameter.name
        self.default = parameter.default
        self.description: str | None = None
        metadata: list[Any] = []
        if self.default is parameter.empty:
            self.default = msgspec.NODEFAULT
        elif is_field_info(self.default):
            metadata.append(self.default)
        if typing.get_origin(tp) is typing.Annotated:
            infos = [*metadata, *(m for m in tp.__metadata__ if is_field_info(m))]
        else:
            infos = list(metadata)
        for info in infos:
            self._read_field(info, parameter)
        for item in getattr(tp, "__metadata__", ()):
            if isinstance(item, WireName):
                self.wire = item.name
        self.type = prepare_type(tp, where, metadata=metadata)
        # The struct's own attributes, and all dunders, keep their meaning.
        self.attribute = parameter.name
        if hasattr(msgspec.Struct, self.attribute) or self.attribute.startswith("__"):
            self.attribute = "arg" + self.attribute
            while self.attribute in taken:
                self.attribute += "_"
            taken.add(self.attribute)

    def _read_field(self, info: Any, parameter: inspect.Parameter) -> None:
        """Pydantic's ``Field(...)``, as the default or in `Annotated`."""
        if info is self.default:
            self.default = msgspec.NODEFAULT
        if self.default is msgspec.NODEFAULT and not info.is_required():
            factory = info.default_factory
            self.default = (
                info.default if factory is None else msgspec.field(default_factory=factory)
            )
        alias = info.validation_alias or info.alias
        if isinstance(alias, str):
            self.wire = alias

    def schema_default(self) -> Any:
        if isinstance(self.default, _FIELD_TYPE):
            return msgspec.UNSET
        return self.default

    def definition(self) -> tuple[str, Any, Any]:
        name = None if self.wire == self.attribute else self.wire
        default = self.default
        if default is msgspec.NODEFAULT:
            spec = msgspec.field(name=name)
        elif isinstance(default, _FIELD_TYPE):
            spec = msgspec.field(default_factory=default.default_factory, name=name)
        elif _is_immutable(default):
            spec = msgspec.field(default=default, name=name)
        else:
            spec = msgspec.field(default_factory=_copier(default), name=name)
        return self.attribute, self.type, spec


_FIELD_TYPE: Any = type(msgspec.field())


def _is_immutable(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(_is_immutable(item) for item in value)
    return isinstance(value, _IMMUTABLE)


def _copier(value: Any) -> Callable[[], Any]:
    if isinstance(value, (list, dict, set, bytearray, tuple)):
        import copy

        return lambda: copy.deepcopy(value)
    return lambda: value  # some object: whether it is state or a constant only its author knows


def _check_kind(parameter: inspect.Parameter, label: str) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise SignatureError(
            f"{label}: parameter '{stars}{parameter.name}': every argument has a name of its own; "
            "replace it by named parameters (or one dict or list)"
        )


def _result_type(annotation: Any, spec: ToolSpec) -> Any:
    """The type of the finished result: awaited, and collected from a generator."""
    origin = typing.get_origin(annotation)
    parts = typing.get_args(annotation)
    if getattr(origin, "__module__", "") != "collections.abc" or not parts:
        return annotation
    name = origin.__name__
    if spec.is_generator or spec.is_async_generator:
        if name.removeprefix("Async") in ("Generator", "Iterator", "Iterable"):
            return types.GenericAlias(list, parts[:1])
    elif name in ("Awaitable", "Coroutine") and not spec.is_async:
        spec.wraps_async = True
        return parts[-1]
    return annotation


def inspect_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    context_class: type | None = None,
    structured: bool | None = None,
    returns: Any = msgspec.UNSET,
    localns: Mapping[str, Any] | None = None,
    kind: str = "tool",
    dependencies: Injector | None = None,
    extra: Extra = "forbid",
    coerce: bool = False,
    threads: Threads = SHARED,
) -> ToolSpec:
    """Read a callable as a tool; `SignatureError` says why it cannot be one.

    *description* replaces the docstring's.  *structured* and the annotation of the result decide
    what is sent (see `wirespeed.server.tools.results`); *returns* stands for that annotation.
    *localns* adds names to those that string annotations may use.  Another *kind* ("prompt",
    "resource") is read the same way, but its result is not planned: see ``ToolSpec.returns``.
    What *dependencies* provide is not an argument: ``spec.function`` is then a coroutine function
    around this one, which takes the arguments and, last, the context.
    *extra* decides whether arguments that are not parameters are refused or ignored, *coerce*
    whether texts may stand for other values (see `Server.add_tool`).  *threads* are those that a
    function which blocks runs in.
    """
    if isinstance(function, staticmethod):
        function = function.__func__
    if isinstance(function, type) or not callable(function):
        what = "a class" if isinstance(function, type) else f"of type {type(function).__qualname__}"
        hint = ""
        if isinstance(function, types.CoroutineType):
            hint = "; give the function itself, without calling it"
            function.close()
        raise SignatureError(
            f"{function!r} is {what}: a {kind} is a function or a callable object{hint}"
        )
    layers = layers_of(function, wrapped=True)
    owner = layers[-1]
    spec = ToolSpec()
    spec.injection = None
    spec.threads = threads
    spec.function = function
    spec.name = name_of(name, layers, kind)
    spec.title = title
    label = f"{kind} {spec.name!r} ({label_of(owner)})"

    inner = layers_of(function, wrapped=False)[-1]
    flags = code_flags(inner)
    spec.is_async = is_coroutine_function(function, flags) or is_coroutine_function(inner, flags)
    spec.is_generator = bool(flags & CO_GENERATOR)
    spec.is_async_generator = bool(flags & CO_ASYNC_GENERATOR)
    spec.wraps_async = not spec.is_async and bool(code_flags(owner) & CO_COROUTINE)

    text, notes = parse_docstring(docstring_of(layers))
    spec.description = text if description is None else description
    signature = signature_of(function, label)
    scope = AnnotationScope(owner, localns, context_class)
    spec.coerce = coerce
    injected = _read_parameters(spec, signature, scope, notes, label, dependencies, extra)

    where = f"{label}: return value"
    if returns is msgspec.UNSET and signature.return_annotation is not signature.empty:
        returns = _result_type(scope.resolve(signature.return_annotation, where), spec)
        asks, returns = split_annotation(returns)
        if asks:
            from wirespeed.server.asking.input_required import explicit

            explicit(spec, label)
    spec.returns = returns
    spec.result = plan_result(returns if kind == "tool" else msgspec.UNSET, where, structured)
    spec.output_schema = spec.result.output_schema
    spec.header_params = None
    try:
        check_json(label, {"name": spec.name, "title": spec.title, "description": spec.description})
    except (ValueError, TypeError) as exc:
        raise SignatureError(str(exc)) from None
    try:
        spec.input_schema_json = msgspec.json.encode(spec.input_schema)
        out = spec.output_schema
        spec.output_schema_json = None if out is None else msgspec.json.encode(out)
    except (UnicodeEncodeError, TypeError) as exc:
        raise SignatureError(f"{label}: its schema is not JSON: {exc}") from exc
    if b'"x-mcp-header"' in spec.input_schema_json:
        from wirespeed.protocol.header_values import param_fields

        try:
            spec.header_params = param_fields(spec.input_schema) or None
        except ValueError as exc:
            raise SignatureError(f"{label}: {exc}") from None
        if kind != "tool" and spec.header_params is not None:
            raise SignatureError(f"{label}: only arguments of tools have header fields")
    if dependencies is not None and injected:
        spec.injection = dependencies.bind(spec, injected)
    return spec


def _read_parameters(
    spec: ToolSpec,
    signature: inspect.Signature,
    scope: AnnotationScope,
    notes: dict[str, str],
    label: str,
    dependencies: Injector | None,
    extra: Extra,
) -> dict[int, Any]:
    """Fill in what the parameters say. Returns the providers of those that are not arguments, by
    their index."""
    bound = spec.function.keywords if isinstance(spec.function, functools.partial) else {}
    given = [p for p in signature.parameters.values() if p.name not in bound]
    taken = {p.name for p in given}
    found: list[_Parameter] = []
    positional: list[str] = []
    kwnames: list[str] = []
    injected: dict[int, Any] = {}
    spec.context_param, spec.context_index = None, -1
    for index, parameter in enumerate(given):
        _check_kind(parameter, label)
        where = f"{label}: parameter '{parameter.name}'"
        tp: Any = Any
        if parameter.annotation is not parameter.empty:
            tp = scope.resolve(parameter.annotation, where)
        elif parameter.name in ("ctx", "context") and spec.context_param is None:
            logger.warning(
                "%s is an argument of clients; to get the Context, annotate it: %s: Context",
                where,
                parameter.name,
            )
        elif index == 0 and parameter.name in ("self", "cls") and scope.in_class:
            raise SignatureError(
                f"{where}: not bound; register the method of an instance, "
                "as in server.add_tool(instance.method)"
            )
        if parameter.kind is parameter.KEYWORD_ONLY:
            kwnames.append(parameter.name)
        if dependencies is not None:
            provider = dependencies.find(tp, parameter, where)
            if provider is not None:
                injected[index] = provider
                continue
        if scope.is_context(tp):
            if spec.context_param is not None:
                raise SignatureError(f"{where}: a second context")
            spec.context_param, spec.context_index = parameter.name, index
            continue
        try:
            item = _Parameter(parameter, tp, where, taken)
        except SignatureError as exc:
            if not isinstance(_bare_class(tp), type):
                raise
            raise SignatureError(
                f"{exc}, and nothing provides it: an argument takes a JSON type, such as str, a "
                "list or a dataclass; for a dependency, register its provider first "
                "(@server.provide), or give it the default Depends(…)"
            ) from exc.__cause__
        if any(item.wire == other.wire for other in found):
            raise SignatureError(f"{where}: a second argument named {item.wire!r}")
        is_bare = parameter.annotation is parameter.empty
        if is_bare and label.startswith("tool ") and parameter.name not in ("ctx", "context"):
            logger.warning(
                "%s has no annotation, so clients may give any value; say what it takes, such as "
                "%s: str",
                where,
                parameter.name,
            )
        item.description = notes.get(parameter.name)
        found.append(item)
        if parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append(item.attribute)
    spec.fields = tuple(item.attribute for item in found)
    spec.positional = tuple(positional)
    spec.kwnames = tuple(kwnames)
    # gc=False: nothing refers back to this short-lived struct, so it is in no cycle.
    spec.struct = msgspec.defstruct(
        "Arguments",
        [item.definition() for item in found],
        kw_only=True,
        gc=False,
        forbid_unknown_fields=extra == "forbid",
    )
    spec.decoder = msgspec.json.Decoder(spec.struct, dec_hook=dec_hook)
    spec.second_look = None
    spec.input_schema = input_schema(
        [(item.wire, item.type, item.schema_default(), item.description) for item in found],
        closed=extra == "forbid",
    )
    if "$defs" in spec.input_schema or any(adapter_of(item.type) is not None for item in found):
        from wirespeed.schema.marked_fields import place_marks

        place_marks(spec.input_schema, [(item.wire, item.type) for item in found], label)
    return injected


def _bare_class(tp: Any) -> Any:
    return tp.__origin__ if typing.get_origin(tp) is typing.Annotated else tp


# -- arguments that are written in another way -----------------------------------------------------

# What msgspec says of a string in the place of an object or array, and the steps of its place.
_GOT_TEXT = re.compile(r"(Expected `[^`]*\b(?:object|array)\b[^`]*`, got `str`)( - at `\$(.*)`)?")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


class SecondLook:
    """Decodes arguments of one tool that its decoder refused, because they are written in another
    way. Made by the first such call."""

    def __init__(self, spec: ToolSpec) -> None:
        from wirespeed.schema.from_strings import slots_of
        from wirespeed.schema.whole_numbers import WholeNumbers

        self._decode: Callable[[bytes], msgspec.Struct] = spec.decoder.decode
        self._whole = WholeNumbers(spec.input_schema)
        self._decode_lax: Callable[[bytes], msgspec.Struct] | None = None
        if spec.coerce:
            lax = msgspec.json.Decoder(spec.struct, strict=False, dec_hook=lax_dec_hook)
            self._decode_lax = lax.decode
            self._names = [s.name for s in slots_of(spec) if s.is_json and not s.takes_text]

    def decode(self, text: bytes, refusal: msgspec.ValidationError) -> msgspec.Struct:
        """The arguments; ``refusal`` is why the decoder did not take them. ValidationError: they do
        not fit."""
        in_digits = self._whole.in_digits(text)
        if in_digits is not None:
            text = in_digits
            try:
                return self._decode(text)
            except msgspec.ValidationError as exc:
                refusal = exc
        if self._decode_lax is None:
            raise _with_hint(refusal, text)
        return self._decode_lax(self._whole.in_digits_of_texts(self._unquoted(text)))

    def _unquoted(self, text: bytes) -> bytes:
        """The text with the lists and objects that strings contain, where an argument cannot be a
        string. msgspec reads other strings itself."""
        given = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        for name in self._names:
            raw = bytes(given.get(name, b""))
            if not raw.startswith(b'"'):
                continue
            inner: str = msgspec.json.decode(raw)
            if _is_container(inner):
                given[name] = msgspec.Raw(inner.encode())
        return msgspec.json.encode(given)


def _with_hint(refusal: msgspec.ValidationError, text: bytes) -> msgspec.ValidationError:
    """Return the refusal; of a JSON text where an object or array is expected, with that fact."""
    found = _GOT_TEXT.fullmatch(str(refusal))
    if found is None:
        return refusal
    reason, at, path = found.groups()
    value = msgspec.json.decode(text)
    for name, index in _STEP.findall(path or ""):
        try:
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError):
            return refusal
    if not isinstance(value, str) or not _is_container(value):
        return refusal
    hint = "a JSON text: send the value itself (a server takes texts with coerce=True)"
    hinted = msgspec.ValidationError(f"{reason}, {hint}{at or ''}")
    hinted.__cause__ = refusal.__cause__
    return hinted


def _is_container(text: str) -> bool:
    if not text.lstrip().startswith(("[", "{")):
        return False
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True
