"""The parts of a schema, what each is applied through, and the document that is left of it.

What is applied to a value is a graph: a part of a schema is applied to the same value as the one it
is in (``allOf``, ``$ref`` …), or to a part of that value (``properties``, ``items`` …).

* A part of a schema that is applied to the same value again and again is refused (2020-12 core,
  9.4.1, "Guarding Against Infinite Recursion").
* A schema may refer to itself for the parts of a value. Where it does so in several ways, a value
  of depth n would be gone through 2^n times. So these references are cut out: `written` has `CUT`
  in their place, for whoever checks to remember what was said of a value before. What is left has
  no circles.

References are written as pointers, and names (``$id``, ``$anchor``) are left out: what is counted
is what is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, unquote, urljoin

__all__ = ["CUT", "UNEVALUATED", "Graph", "Node", "SchemaFault", "written"]

CUT = "wirespeed:cut"
"""The keyword in the place of references of a schema to itself: its value is their pointers."""

MAX_PARTS = 5_000  # objects, lists, and schemas that are true or false
MAX_VALUES = 100_000
MAX_DEPTH = 128
MAX_POINTER = 1024  # characters of the names of a part and those around it

ITEM = 2  # bytes of the shortest part of a list
MEMBER = 5  # the same of an object, without its name

_LEGACY = ("http://json-schema.org/draft-0",)

_REFS = ("$ref", "$dynamicRef", "$recursiveRef")
# Keywords whose schemas are about the same value …
_SAME_ONE = ("not", "if", "then", "else")
_SAME_MANY = ("allOf", "anyOf", "oneOf")
_SAME_MAPS = ("dependentSchemas", "dependencies")
# … and about its parts. Of the schemas in one of these groups, at most one is for the same part.
_PART_ONE = (
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "contains",
    "contentSchema",
)
_ITEMS = ("items", "prefixItems", "additionalItems")
_PROPERTIES = ("properties", "additionalProperties")
_DEFINITIONS = ("$defs", "definitions")
_MAPS = (*_SAME_MAPS, *_DEFINITIONS, "properties", "patternProperties")
UNEVALUATED = {"unevaluatedProperties", "unevaluatedItems"}
# Values to compare with, and to show.
_DATA = ("const", "enum", "default", "examples")
_NAMES = ("$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor")


class SchemaFault(ValueError):
    """A schema that is not to be used; the text goes on after its name."""


class Node:
    """A part of a schema that is applied to values."""

    __slots__ = ("base", "pointer", "refs", "resource", "schema")

    def __init__(self, schema: dict[str, Any], pointer: str, resource: str, base: str) -> None:
        self.schema = schema
        self.pointer = pointer
        self.resource = resource  # the pointer of the part with the next ``$id``
        self.base = base
        self.refs: list[str] = []  # pointers


class Graph:
    """The parts of a schema, and what each is applied through."""

    def __init__(self, schema: dict[str, Any]) -> None:
        dialect = schema.get("$schema")
        self.legacy = isinstance(dialect, str) and dialect.startswith(_LEGACY)
        self._id = "id" if self.legacy and "draft-04" in dialect else "$id"  # type: ignore[operator]
        self._dialect = dialect
        other = "$recursiveRef" if "2019-09" in (dialect or "") else "$dynamicRef"
        self._refs = ("$ref",) if self.legacy else ("$ref", other)
        self.nodes: dict[str, Node] = {}
        self._booleans: set[str] = set()
        self._resources: dict[str, str] = {}
        self._anchors: dict[tuple[str, str], str] = {}
        self._dynamic: dict[str, list[str]] = {}
        self._recursive = 0
        self._read(schema)
        for node in self.nodes.values():
            node.refs = [self._target(node, word) for word in _REFS if self._has(node, word)]
        same = {pointer: list(self.same(node)) for pointer, node in self.nodes.items()}
        heights: dict[str, int] = {}
        for group in _circles(same):
            here = group[0]
            if len(group) > 1 or here in same[here]:
                raise SchemaFault("applies itself to the same value without end")
            heights[here] = 1 + max((heights[pointer] for pointer in same[here]), default=0)
            if heights[here] > MAX_DEPTH:
                raise SchemaFault(f"applies more than {MAX_DEPTH} parts in one another to a value")
        edges = {
            pointer: [*same[pointer], *self.parts(node)] for pointer, node in self.nodes.items()
        }
        self.order: list[Node] = []  # each after those that it is made of, but for what is cut
        self.cut: set[str] = set()
        self.cutting: set[str] = set()  # those with references that are cut
        for group in _circles(edges):
            if len(group) > 1 or group[0] in edges[group[0]]:
                inside = set(group)
                for pointer in group:
                    if targets := inside.intersection(self.nodes[pointer].refs):
                        self.cut |= targets
                        self.cutting.add(pointer)
            self.order += [self.nodes[p] for p in sorted(group, key=len, reverse=True)]
        self._check_unevaluated(same)

    def _check_unevaluated(self, same: dict[str, list[str]]) -> None:
        """What a reference that is cut has evaluated of the same value is not known."""
        stack = [p for p, node in self.nodes.items() if node.schema.keys() & UNEVALUATED]
        seen = set(stack)
        while stack:
            here = stack.pop()
            if here in self.cutting:
                raise SchemaFault(
                    "refers to itself under an unevaluatedProperties or unevaluatedItems,"
                    " which is not supported"
                )
            new = set(same[here]) - seen
            seen |= new
            stack += new

    def _read(self, root: dict[str, Any]) -> None:
        self._resources[""] = ""
        parts = values = 0
        # a value, its pointer, resource and base, its depth, and what it is: a schema or a map of
        # schemas; lists are made of what they are
        stack: list[tuple[Any, str, str, str, int, str]] = [(root, "", "", "", 0, "schema")]
        while stack:
            value, pointer, resource, base, depth, kind = stack.pop()
            parts += 1
            if len(pointer) > MAX_POINTER:
                raise SchemaFault("has names that are too long")
            if parts > MAX_PARTS:
                raise SchemaFault(f"has more than {MAX_PARTS} parts")
            if isinstance(value, bool):
                self._booleans.add(pointer)
                continue
            values += len(value)
            if values > MAX_VALUES:
                raise SchemaFault(f"has more than {MAX_VALUES} values")
            if depth > MAX_DEPTH:
                raise SchemaFault(f"is nested deeper than {MAX_DEPTH} levels")
            if isinstance(value, dict) and kind == "schema":
                resource, base = self._named(value, pointer, resource, base)
                self.nodes[pointer] = Node(value, pointer, resource, base)
            for key, part in value.items() if isinstance(value, dict) else enumerate(value):
                inner = "schema"
                if isinstance(value, dict) and kind == "schema":
                    inner = "data" if key in _DATA else "map" if key in _MAPS else "schema"
                elif kind == "data":
                    inner = "data"
                if isinstance(part, (dict, list)) or (isinstance(part, bool) and inner == "schema"):
                    name = f"{pointer}/{_escaped(key)}"
                    stack.append((part, name, resource, base, depth + 1, inner))

    def _named(
        self, schema: dict[str, Any], pointer: str, resource: str, base: str
    ) -> tuple[str, str]:
        """Keep the names of a part; the resource that it is in, and that one's URI."""
        if self.legacy and isinstance(schema.get("$ref"), str):
            return resource, base  # whatever is beside it is ignored
        names = [schema.get("$anchor"), schema.get("$dynamicAnchor")]
        if isinstance(uri := schema.get(self._id), str):
            uri, _, fragment = uri.partition("#")
            names.append(fragment)
            if uri:
                if pointer and schema.get("$schema", self._dialect) != self._dialect:
                    raise SchemaFault("has parts of several dialects")
                resource, base = pointer, _joined(base, uri)
                self._name(self._resources, base, pointer)
        for name in names:
            if isinstance(name, str) and name:
                known = self._anchors.get((resource, name))
                if known != pointer:
                    self._name(self._anchors, (resource, name), pointer)
        if isinstance(name := schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(name, []).append(pointer)
        self._recursive += schema.get("$recursiveAnchor") is True
        return resource, base

    def _name(self, names: dict[Any, str], name: Any, pointer: str) -> None:
        if name in names:
            raise SchemaFault("has two parts of one name")
        names[name] = pointer

    def _has(self, node: Node, word: str) -> bool:
        return word in self._refs and isinstance(node.schema.get(word), str)

    def _target(self, node: Node, word: str) -> str:
        """The pointer that a reference means. SchemaFault: it means nothing in this document, or
        what it means depends on how it was come to."""
        ref: str = node.schema[word]
        uri, _, fragment = ref.partition("#")
        resource: str | None = node.resource
        if uri:
            resource = self._resources.get(_joined(node.base, uri))
        if resource is None:
            raise SchemaFault(f"refers to another document, which is not followed: {ref[:100]!r}")
        if word == "$recursiveRef" and self._recursive > 1:
            raise SchemaFault("has several $recursiveAnchor, which is not supported")
        fragment = unquote(fragment)
        if word == "$dynamicRef" and len(self._dynamic.get(fragment, ())) > 1:
            raise SchemaFault(
                f"has several $dynamicAnchor {fragment[:100]!r}, which is not supported"
            )
        if fragment and not fragment.startswith("/"):
            pointer = self._anchors.get((resource, fragment))
        else:
            pointer = resource + fragment
        if pointer is None or (pointer not in self.nodes and pointer not in self._booleans):
            raise SchemaFault(f"has a reference to nothing: {ref[:100]!r}")
        return pointer

    # -- edges -----------------------------------------------------------------------------------

    def _only_ref(self, node: Node) -> bool:
        return self.legacy and bool(node.refs)

    def same(self, node: Node) -> Iterator[str]:
        """What is applied to the same value."""
        yield from (ref for ref in node.refs if ref in self.nodes)
        yield from self.inline(node)

    def cuts(self, node: Node, ref: str) -> bool:
        """Whether this reference is cut out."""
        return node.pointer in self.cutting and ref in self.cut

    def inline(self, node: Node) -> Iterator[str]:
        """What is applied to the same value, without references."""
        if self._only_ref(node):
            return
        yield from self._at(node, _SAME_ONE)
        yield from self._in(node, _SAME_MANY)
        yield from self._in(node, _SAME_MAPS)

    def parts(self, node: Node) -> Iterator[str]:
        """What is applied to parts of the value."""
        if self._only_ref(node):
            return
        every = (*_PART_ONE, *_ITEMS, *_PROPERTIES, "patternProperties")
        yield from self._at(node, [word for word in every if word != "properties"])
        yield from self._in(node, every)

    def groups(self, node: Node) -> Iterator[list[tuple[str, int]]]:
        """The same, where only one of each list is applied to any one part; with the bytes that
        such a part has at least, its name and comma included."""
        if self._only_ref(node):
            return
        yield [(p, ITEM) for p in (*self._at(node, _ITEMS), *self._in(node, _ITEMS))]
        named = len(node.pointer) + len("/properties/")
        yield [
            *((p, MEMBER) for p in self._at(node, _PROPERTIES)),
            *((p, MEMBER + len(p) - named - p.count("~", named)) for p in self.properties(node)),
        ]
        for pointer in self._at(node, _PART_ONE):
            yield [(pointer, ITEM)]
        for pointer in self._in(node, ("patternProperties",)):
            yield [(pointer, MEMBER)]

    def properties(self, node: Node) -> Iterator[str]:
        """The parts that are for one name each."""
        return self._in(node, ("properties",))

    def _at(self, node: Node, words: Iterable[str]) -> Iterator[str]:
        for word in words:
            pointer = f"{node.pointer}/{word}"
            if word in node.schema and word not in _MAPS and pointer in self.nodes:
                yield pointer

    def _in(self, node: Node, words: Iterable[str]) -> Iterator[str]:
        for word in words:
            several = node.schema.get(word)
            keys: Iterable[Any] = ()
            if isinstance(several, list):
                keys = range(len(several))
            elif isinstance(several, dict) and word in _MAPS:
                keys = several
            for key in keys:
                pointer = f"{node.pointer}/{word}/{_escaped(key)}"
                if pointer in self.nodes:
                    yield pointer


def _circles(edges: dict[str, list[str]]) -> Iterator[list[str]]:
    """The strongly connected parts of a graph, each after those that it leads to (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    waiting: set[str] = set()
    for root in edges:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        stack.append(root)
        waiting.add(root)
        path = [(root, iter(edges[root]))]
        while path:
            here, ways = path[-1]
            for there in ways:
                if there not in number:
                    number[there] = low[there] = len(number)
                    stack.append(there)
                    waiting.add(there)
                    path.append((there, iter(edges[there])))
                    break
                if there in waiting:
                    low[here] = min(low[here], number[there])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[here])
                if low[here] == number[here]:
                    group: list[str] = []
                    while not group or group[-1] != here:
                        group.append(stack.pop())
                    waiting.difference_update(group)
                    yield group


def written(graph: Graph, value: Any, pointer: str = "") -> Any:
    """The document with pointers for references, and `CUT` for those of a part to itself."""
    if isinstance(value, list):
        return [written(graph, part, f"{pointer}/{n}") for n, part in enumerate(value)]
    if not isinstance(value, dict):
        return value
    node = graph.nodes.get(pointer)
    if node is None:
        return {k: written(graph, part, f"{pointer}/{_escaped(k)}") for k, part in value.items()}
    made: dict[str, Any] = {}
    for key, part in value.items():
        if (
            key == CUT
            or (pointer and key == "$schema")
            or (graph.legacy and node.refs and key not in _DEFINITIONS)
        ):
            continue  # what is beside a $ref of old dialects means nothing
        if key in _DATA:
            made[key] = part
        elif key not in _REFS + _NAMES or not isinstance(part, (str, bool)):
            made[key] = written(graph, part, f"{pointer}/{_escaped(key)}")
    cut = [ref for ref in node.refs if graph.cuts(node, ref)]
    if cut:
        made[CUT] = cut
    refs = [{"$ref": "#" + quote(ref, safe="/~$")} for ref in node.refs if ref not in cut]
    if len(refs) == 1:
        made |= refs[0]
    elif refs:
        several = made.get("allOf")
        made["allOf"] = [*(several if isinstance(several, list) else ()), *refs]
    return made


def _joined(base: str, uri: str) -> str:
    try:
        return urljoin(base, uri)
    except ValueError:
        raise SchemaFault(f"has a URI that is none: {uri[:100]!r}") from None


def _escaped(key: object) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")
