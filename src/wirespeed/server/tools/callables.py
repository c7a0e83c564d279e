"""Functions as their authors wrote them: layers, names, annotations, docstrings."""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

from wirespeed.errors import SignatureError

if typing.TYPE_CHECKING:
    import inspect

# Flags of code objects (the inspect module's CO_*); compiled functions carry them too.
CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR = 0x20, 0x80, 0x200
_CO_ITERABLE_COROUTINE = 0x100  # types.coroutine

_MAX_WRAPPERS = 64


def layers_of(function: Any, *, wrapped: bool) -> list[Any]:
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


def code_flags(function: Any) -> int:
    """The flags of a function's code; 0 without code."""
    return int(getattr(getattr(function, "__code__", None), "co_flags", 0))


def is_coroutine_function(function: Any, flags: int) -> bool:
    """Whether a call returns a coroutine. ``flags``: those of the function's code."""
    if flags & (CO_COROUTINE | _CO_ITERABLE_COROUTINE):
        return True
    import inspect

    return inspect.iscoroutinefunction(function)  # knows inspect.markcoroutinefunction


def label_of(function: Any) -> str:
    """The name of a function or of a callable's class, for people."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def name_of(name: str | None, layers: list[Any], kind: str) -> str:
    """The name that was given, or the function's. SignatureError: there is none."""
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


class AnnotationScope:
    """The names with which the string annotations of a function are evaluated."""

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


def signature_of(function: Any, label: str) -> inspect.Signature:
    """See `inspect.signature`. SignatureError: it cannot be read."""
    import inspect

    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as exc:
        raise SignatureError(f"{label}: its signature cannot be read: {exc}") from exc


# -- docstrings (Google, NumPy, Sphinx style) ------------------------------------------------------

_PARAMETERS = {"args", "arguments", "parameters", "params", "other parameters"}
_PARAMETERS |= {"keyword args", "keyword arguments"}
_SECTIONS = _PARAMETERS | {"returns", "return", "yields", "yield", "receives", "raises", "raise"}
_SECTIONS |= {"exceptions", "except", "warns"}
_SPHINX = r":(?P<kind>\w+)(?P<args>[^:\n]*):(?:\s+|$)(?P<text>.*)"
_SPHINX_KINDS = {"param", "parameter", "arg", "argument", "key", "keyword", "type", "raises"}
_SPHINX_KINDS |= {"raise", "except", "exception", "return", "returns", "rtype", "yield", "yields"}
_SPHINX_PARAMETERS = {"param", "parameter", "arg", "argument", "key", "keyword"}
_GOOGLE = r"\*{0,2}(?P<name>\w+)\s*(?:\(.*?\))?\s*:(?:\s+|$)(?P<text>.*)"
_NUMPY = r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?"


def docstring_of(layers: list[Any]) -> str | None:
    """The docstring of the innermost layer that has one."""
    for layer in reversed(layers):
        # A plain instance inherits its class's text, which may be all there is.
        if isinstance(layer, (functools.partial, types.MethodType)):
            continue
        doc = getattr(layer, "__doc__", None)
        if isinstance(doc, str) and doc.strip():
            return doc
    return None


def parse_docstring(doc: str | None) -> tuple[str | None, dict[str, str]]:
    """The description, or None, and a text for each parameter that the docstring describes.

    Sections on parameters, results and errors are taken out; other text stays as it is.
    """
    if not doc:
        return None, {}
    import inspect

    lines = inspect.cleandoc(doc).splitlines()
    first = lines[0].lower()
    if first[-1:] == ":" and first[:-1] in _SECTIONS and not "".join(lines[1:2]).startswith(" "):
        # The margin is that of the other lines: under a title in the first one, they lost theirs.
        lines[1:] = ["    " + line for line in lines[1:]]
    kept: list[str] = []
    notes: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        title = line.strip().lower()
        below = lines[at + 1].strip() if at + 1 < len(lines) else ""
        field = re.fullmatch(_SPHINX, line)
        start = at
        if title in _SECTIONS and len(below) >= 3 and set(below) == {"-"}:
            at = _numpy_end(lines, at + 2)
            body, collect = lines[start + 2 : at], _numpy_notes
        elif line == line.lstrip() and title.endswith(":") and title[:-1] in _SECTIONS:
            title = title[:-1]
            at = _indented_end(lines, at + 1)
            body, collect = lines[start + 1 : at], _google_notes
        elif field and field["kind"] in _SPHINX_KINDS:
            at = _indented_end(lines, at + 1)
            words = field["args"].split()
            if field["kind"] in _SPHINX_PARAMETERS and words:
                _note(notes, words[-1], [field["text"], *lines[start + 1 : at]])
            continue
        else:
            kept.append(line)
            at += 1
            continue
        if title in _PARAMETERS:
            collect(body, notes)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return text or None, notes


def _numpy_end(lines: list[str], at: int) -> int:
    """The next underlined title, or the end."""
    while at < len(lines):
        below = lines[at + 1].strip() if at + 1 < len(lines) else ""
        if lines[at].strip() and len(below) >= 3 and set(below) == {"-"}:
            break
        at += 1
    return at


def _indented_end(lines: list[str], at: int) -> int:
    """The next line that is neither indented nor blank, or the end."""
    while at < len(lines) and (not lines[at].strip() or lines[at][0].isspace()):
        at += 1
    return at


def _entries(body: list[str]) -> list[list[str]]:
    """Split at the lines with the least indentation."""
    filled = [line for line in body if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    entries: list[list[str]] = []
    for line in filled:
        if len(line) - len(line.lstrip()) == margin or not entries:
            entries.append([])
        entries[-1].append(line.strip())
    return entries


def _google_notes(body: list[str], notes: dict[str, str]) -> None:
    for first, *rest in _entries(body):
        match = re.fullmatch(_GOOGLE, first)
        if match:
            _note(notes, match["name"], [match["text"], *rest])


def _numpy_notes(body: list[str], notes: dict[str, str]) -> None:
    for first, *rest in _entries(body):
        match = re.fullmatch(_NUMPY, first)
        if match:
            for name in match["names"].split(","):
                _note(notes, name.strip(), rest)


def _note(notes: dict[str, str], name: str, lines: list[str]) -> None:
    text = " ".join(part for line in lines if (part := line.strip()))
    if text:
        notes.setdefault(name.lstrip("*"), text)
