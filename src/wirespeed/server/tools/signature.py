"""From a Python callable to a tool: name, texts, schemas, and how to decode and pass arguments.

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
from wirespeed.schema.python_types import adapter_of, dec_hook, is_field_info
from wirespeed.server.asking.input_required import split_annotation
from wirespeed.server.requests.launchers import SHARED, Threads
from wirespeed.server.tools.docstrings import parse_docstring
from wirespeed.server.tools.results import ResultPlan, plan_result

if typing.TYPE_CHECKING:
    import inspect

    from wirespeed.protocol.header_values import ParamField
    from wirespeed.server.dependencies.provider import Provider
    from wirespeed.server.dependencies.registry import Dependencies, Injection
    from wirespeed.server.tools.second_look import SecondLook

logger = logging.getLogger("wirespeed.server")

__all__ = ["ToolSpec", "inspect_tool", "parse_docstring"]

Extra: TypeAlias = Literal["forbid", "ignore"]

# Flags of code objects (the inspect module's CO_*); compiled functions carry them too.
_CO_GENERATOR, _CO_COROUTINE, _CO_ASYNC_GENERATOR = 0x20, 0x80, 0x200
_CO_ITERABLE_COROUTINE = 0x100  # types.coroutine

_MAX_WRAPPERS = 64
_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, Enum, types.FunctionType, type)


class ToolSpec:
    """What the server needs to know of a tool; made by `inspect_tool`.

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
    injection: Injection | None
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
            from wirespeed.server.tools.second_look import SecondLook

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


# -- callables ------------------------------------------------------------------------------------


def _layers(function: Any, *, wrapped: bool) -> list[Any]:
    """The callable and what it delegates to; with *wrapped*, what decorators wrapped as well."""
    layers = [function]
    while len(layers) <= _MAX_WRAPPERS:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif wrapped and callable(getattr(function, "__wrapped__", None)):
            function = function.__wrapped__
        elif hasattr(function, "__code__") or isinstance(function, types.BuiltinFunctionType):
            return layers
        else:
            call = getattr(type(function), "__call__", None)  # noqa: B004
            if call is None or isinstance(call, types.WrapperDescriptorType):
                return layers
            function = call
        layers.append(function)
    raise SignatureError(f"{function!r}: more than {_MAX_WRAPPERS} wrappers, or a cycle of them")


def _code_flags(function: Any) -> int:
    return int(getattr(getattr(function, "__code__", None), "co_flags", 0))


def _is_coroutine_function(function: Any, flags: int) -> bool:
    if flags & (_CO_COROUTINE | _CO_ITERABLE_COROUTINE):
        return True
    import inspect

    return inspect.iscoroutinefunction(function)  # knows inspect.markcoroutinefunction


def _label(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _name(name: str | None, layers: list[Any], kind: str) -> str:
    if name is None:
        # Of the callable itself; a partial has no name but its function's.
        named = layers[0]
        while isinstance(named, functools.partial) and not hasattr(named, "__name__"):
            named = named.func
        name = getattr(named, "__name__", None)
        if not isinstance(name, str) or name == "<lambda>":
            what = "a lambda" if name else f"an instance of {type(named).__qualname__}"
            raise SignatureError(f"{what} has no name: give the {kind} one (name=…)")
    if not isinstance(name, str) or not name:
        raise SignatureError(f"a {kind}'s name is a non-empty string, not {name!r}")
    return name


class _Holder:
    """Carries one annotation to `typing.get_type_hints`."""

    __annotations__: dict[str, Any]


class _Scope:
    """Where the string annotations of a function are evaluated."""

    def __init__(self, owner: Any, extra: Mapping[str, Any] | None, context_class: Any) -> None:
        self.globals: dict[str, Any] = getattr(owner, "__globals__", None) or {}
        self.locals: dict[str, Any] = dict(extra or {})
        code, closure = getattr(owner, "__code__", None), getattr(owner, "__closure__", None)
        for name, cell in zip(getattr(code, "co_freevars", ()), closure or (), strict=False):
            try:
                self.locals[name] = cell.cell_contents
            except ValueError:
                continue  # not assigned yet
        for param in getattr(owner, "__type_params__", ()):
            self.locals[param.__name__] = param
        self.context_class = context_class
        # Defined in the body of a class, so that a first parameter "self" wants an instance.
        within = str(getattr(owner, "__qualname__", "")).rpartition(".")[0]
        self.in_class = within != "" and not within.endswith("<locals>")

    def resolve(self, annotation: Any, where: str) -> Any:
        holder = _Holder()
        holder.__annotations__ = {"it": annotation}
        try:
            hints = typing.get_type_hints(holder, self.globals, self.locals, include_extras=True)
        except Exception as exc:  # evaluating the author's expression may raise anything
            if self._names_context(annotation):
                return self.context_class
            text = annotation if isinstance(annotation, str) else repr(annotation)
            hint = ""
            if isinstance(exc, NameError):
                hint = f"; import or define {exc.name} first, and not for type checkers alone"
            reason = f"cannot resolve annotation {text!r}: {exc}{hint}"
            raise SignatureError(f"{where}: {reason}") from exc
        return hints["it"]

    def _names_context(self, annotation: Any) -> bool:
        """A context class imported under TYPE_CHECKING only cannot be evaluated: go by its name."""
        if self.context_class is None or not isinstance(annotation, str):
            return False
        name = re.escape(self.context_class.__name__)
        pattern = rf"(?:\w+\.)*{name}(?:\s*\|\s*None)?|(?:\w+\.)?Optional\[(?:\w+\.)*{name}\]"
        return re.fullmatch(pattern, annotation.strip(" '\"")) is not None

    def is_context(self, tp: Any) -> bool:
        if self.context_class is None:
            return False
        if typing.get_origin(tp) is typing.Annotated:
            tp = tp.__origin__
        members = [tp]
        if typing.get_origin(tp) in (typing.Union, types.UnionType):
            members = [m for m in typing.get_args(tp) if m is not type(None)]
        cls = typing.get_origin(members[0]) or members[0]
        return len(members) == 1 and isinstance(cls, type) and issubclass(cls, self.context_class)


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


def _signature(function: Any, label: str) -> inspect.Signature:
    import inspect

    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as exc:
        raise SignatureError(f"{label}: its signature cannot be read: {exc}") from exc


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
    dependencies: Dependencies | None = None,
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
        what = "a class" if isinstance(function, type) else f"{type(function).__qualname__} object"
        raise SignatureError(f"{function!r} is {what}: a {kind} is a function or a callable object")
    layers = _layers(function, wrapped=True)
    owner = layers[-1]
    spec = ToolSpec()
    spec.injection = None
    spec.threads = threads
    spec.function = function
    spec.name = _name(name, layers, kind)
    spec.title = title
    label = f"{kind} {spec.name!r} ({_label(owner)})"

    inner = _layers(function, wrapped=False)[-1]
    flags = _code_flags(inner)
    spec.is_async = _is_coroutine_function(function, flags) or _is_coroutine_function(inner, flags)
    spec.is_generator = bool(flags & _CO_GENERATOR)
    spec.is_async_generator = bool(flags & _CO_ASYNC_GENERATOR)
    spec.wraps_async = not spec.is_async and bool(_code_flags(owner) & _CO_COROUTINE)

    text, notes = parse_docstring(_docstring(layers))
    spec.description = text if description is None else description
    signature = _signature(function, label)
    scope = _Scope(owner, localns, context_class)
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
    scope: _Scope,
    notes: dict[str, str],
    label: str,
    dependencies: Dependencies | None,
    extra: Extra,
) -> dict[int, Provider]:
    """Fill in what the parameters say. Returns the providers of those that are not arguments, by
    their index."""
    bound = spec.function.keywords if isinstance(spec.function, functools.partial) else {}
    given = [p for p in signature.parameters.values() if p.name not in bound]
    taken = {p.name for p in given}
    found: list[_Parameter] = []
    positional: list[str] = []
    kwnames: list[str] = []
    injected: dict[int, Provider] = {}
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


def _docstring(layers: list[Any]) -> str | None:
    for layer in reversed(layers):
        # A plain instance inherits its class's text, which may be all there is.
        if isinstance(layer, (functools.partial, types.MethodType)):
            continue
        doc = getattr(layer, "__doc__", None)
        if isinstance(doc, str) and doc.strip():
            return doc
    return None
