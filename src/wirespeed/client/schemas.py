"""What the schemas of servers may cost: read, bounded, and made ready to be checked by.

A schema of a hundred bytes can ask for more work than anybody has time for. Without the references
that `wirespeed.client.schema_graph` cuts out it has no circles, so that the work that it makes of
one byte of a value can be counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from wirespeed.client.schema_graph import UNEVALUATED, Graph, Node, SchemaFault, written

__all__ = ["MAX_BACKTRACKING", "MAX_PATTERN_BYTES", "Plan", "plan"]

# To make a schema ready: parts, with each reference written out, and as much again for regular
# expressions. One unit is about 4 µs.
MAX_WORK = 100_000
MAX_PATTERNS = 100  # different ones
MAX_PATTERN = 10_000  # characters of one
MAX_PATTERN_BYTES = 1 << 20  # of one, compiled
MAX_BACKTRACKING = 100  # steps

# What a regular expression costs for each byte of a string, by the bytes that it is compiled to: in
# the worst case, one has so many states, and each byte is looked at in all of them.
_PATTERN_COST = ((1 << 14, 4), (1 << 16, 100), (1 << 18, 4_000), (MAX_PATTERN_BYTES, 16_000))
# What it takes to compile them, by the same; and for each character, as classes are worked out
# before their size is known: those that ignore case take far longer.
_PATTERN_WORK = {1 << 14: 100, 1 << 16: 200, 1 << 18: 800, MAX_PATTERN_BYTES: 3_000}
_CHARACTER_WORK = 1
_CASELESS_WORK = 80
_caseless = re.compile(r"\(\?[a-zA-Z]*i").search
_TRIES = 4  # until the size of one is known
_UNIQUE_COST = 60
# Numbers that do not fit into a machine word, or may not, are compared digit by digit: for a value,
# and for each byte of it.
_LIMIT_COST = (120, 2)
_LONG_LIMIT_COST = (200, 12)
_FACTOR_COST = (120, 2)
_FRACTION_COST = (5_000, 50)  # multipleOf 0.01 of 1e300 is a division of long numbers
_NUMBER_COST = (120, 2)
_LONG_NUMBER_COST = (500, 12)
_CONTAINER_COST = 8  # to be compared with
_CUT_COST = 120

_MOST = 1 << 62

_COMPARED = ("const", "enum", "dependentRequired", "dependencies")
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_FACTORS = ("multipleOf", "divisibleBy")
# Those that are gone through whatever the value is. (Of the names in ``properties``, only those of
# the value are looked at, and what is ``required`` ends with the first that it does not have.)
_SEVERAL = ("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies")


class Plan(NamedTuple):
    """A schema that may be used.

    Attributes:
        document: The schema, without names, and with `CUT`.
        targets: The pointers that `CUT` has.
        load: How much work there is at most for each byte of the JSON text of a value, if what is
            behind a `CUT` is found out once for each value. One unit is about 10 ns.
        largest: The same for the costliest of the parts that `CUT` leaves.
        backtracks: Whether it has regular expressions that take a backtracking engine.
        unique: Whether it has ``uniqueItems``.
        unions: Whether it has ``anyOf`` or ``oneOf``.
    """

    document: Any
    targets: tuple[str, ...]
    load: int
    largest: int
    backtracks: bool
    unique: bool
    unions: bool


class _Cost(NamedTuple):
    """Work of one part of a schema, with all that it is made of.

    Attributes:
        size: All of it, written out.
        once: For the value that it is applied to.
        own: For each byte of that value.
        below: For each byte of any one part of that value, at most.
    """

    size: int
    once: int
    own: int
    below: int

    def plus(self, others: Iterable[_Cost]) -> _Cost:
        size, once, own, below = self
        for other in others:
            size, once = size + other.size, once + other.once
            own, below = own + other.own, below + other.below
        return _Cost(min(size, _MOST), min(once, _MOST), min(own, _MOST), min(below, _MOST))

    def load(self, least: int = 1) -> int:
        """For each byte, of a value that has so many at least."""
        return max(self.own + -(-self.once // least), self.below)


Compiles: TypeAlias = Callable[[str, int], bool]
"""Whether a regular expression can be compiled to so many bytes."""


def plan(schema: dict[str, Any] | bool, linear: Compiles, backtracking: Compiles) -> Plan:
    """Read a schema, whose dialect is known, for two engines of regular expressions: one that needs
    time in proportion to the text, and one that knows more. SchemaFault: it is not to be used."""
    if isinstance(schema, bool):
        return Plan(schema, (), 1, 1, False, False, False)
    graph = Graph(schema)
    costs = _Costs(graph, linear, backtracking)
    loads = costs.loads()
    document = written(graph, schema)
    cut = tuple(sorted(graph.cut))
    unions = any("anyOf" in one.schema or "oneOf" in one.schema for one in graph.order)
    return Plan(document, cut, sum(loads), max(loads), costs.backtracks, costs.unique, unions)


class _Costs:
    """How much work the parts of a schema make."""

    def __init__(self, graph: Graph, linear: Any, backtracking: Any) -> None:
        self._graph = graph
        self._linear = linear
        self._backtracking = backtracking
        self.backtracks = self.unique = False
        self._patterns: dict[str, int] = {}
        self._works: list[int] = []  # of the patterns, to be compiled once
        self._work = 0  # of all of them, until their sizes are known
        self._bits: dict[str, int] = {}  # which patterns a part has, with all that it is made of
        self._own_bits = 0  # of the part that is looked at
        self._costs: dict[str, _Cost] = {}
        self._marks: dict[str, _Cost] = {}
        for node in graph.order:
            self._count(node)

    def loads(self) -> list[int]:
        """Of the whole, and of what was cut out. SchemaFault: written out, it is too large."""
        roots = {"", *self._graph.cut} & self._costs.keys()
        if sum(self._costs[pointer].size for pointer in roots) > MAX_WORK:
            raise SchemaFault("makes more work than is allowed (MAX_WORK)")
        work = self._work  # each root has its patterns compiled for itself
        for pointer in roots:
            bits = self._bits[pointer]
            work += sum(cost for n, cost in enumerate(self._works) if bits >> n & 1)
        if work > MAX_WORK:
            raise SchemaFault("has regular expressions that take too long to be compiled")
        return [self._costs[pointer].load() for pointer in roots]

    def _count(self, node: Node) -> None:
        graph, schema = self._graph, node.schema
        self._own_bits = 0
        same = [ref for ref in node.refs if ref in graph.nodes and not graph.cuts(node, ref)]
        same += graph.inline(node)
        below = size = 0
        for group in graph.groups(node):
            below += max((self._costs[p].load(least) for p, least in group), default=0)
            size += sum(self._costs[p].size for p, _ in group)
        parts = _Cost(1 + size, 1, 0, below)
        once = 1 + sum(len(schema[word]) for word in _SEVERAL if _is_several(schema.get(word)))
        once += _CUT_COST * sum(graph.cuts(node, ref) for ref in node.refs)
        numbers, weight = _numbers(schema)
        said = _Cost(0, once + numbers, weight + self._weight(schema), 0)
        cost = parts.plus([said, *(self._costs[p] for p in same)])
        # to know what is evaluated, all is gone through once more
        mark = parts.plus([cost for p in same for cost in (self._costs[p], self._marks[p])])
        if schema.keys() & UNEVALUATED:
            cost = cost.plus((mark, mark))
        self._costs[node.pointer], self._marks[node.pointer] = cost, mark
        bits = self._own_bits
        for pointer in (*same, *graph.parts(node)):
            bits |= self._bits[pointer]
        self._bits[node.pointer] = bits

    def _weight(self, schema: dict[str, Any]) -> int:
        """Of what a part of a schema says itself, for each byte of a value."""
        weight = sum(_compared(schema[word]) for word in _COMPARED if word in schema)
        if isinstance(pattern := schema.get("pattern"), str):
            weight += self._pattern(pattern)
        if isinstance(patterns := schema.get("patternProperties"), dict):
            for pattern in patterns:
                weight += 1 + self._pattern(pattern, ahead=False)
        if schema.get("uniqueItems") is True:
            self.unique = True
            weight += _UNIQUE_COST
        return weight

    def _pattern(self, pattern: str, ahead: bool = True) -> int:
        known = self._patterns.get(pattern)
        if known is None:
            if len(self._patterns) == MAX_PATTERNS:
                raise SchemaFault(f"has more than {MAX_PATTERNS} regular expressions")
            known = self._patterns[pattern] = self._pattern_cost(pattern)
        self._own_bits |= 1 << list(self._patterns).index(pattern)
        if known == 0:  # looks ahead or back
            self.backtracks = True
            if not ahead:
                raise SchemaFault(
                    f"has a regular expression in patternProperties that looks ahead or back, or is"
                    f" none: {pattern[:100]!r}"
                )
            return MAX_BACKTRACKING * _PATTERN_COST[0][1]
        return known

    def _pattern_cost(self, pattern: str) -> int:
        work = len(pattern) * (_CASELESS_WORK if _caseless(pattern) else _CHARACTER_WORK)
        self._work += _TRIES * work
        if len(pattern) <= MAX_PATTERN and self._work <= MAX_WORK:
            for size, cost in _PATTERN_COST:
                if self._linear(pattern, size):
                    self._compiled(work, size)
                    return cost
            small = _PATTERN_COST[0][0]
            if self._backtracking(pattern, small):
                self._compiled(work, small)
                return 0
        raise SchemaFault(
            f"has a regular expression that is too large, or is none: {pattern[:100]!r}"
        )

    def _compiled(self, work: int, size: int) -> None:
        self._works.append(work + _PATTERN_WORK[size])
        self._work += _TRIES * _PATTERN_WORK[size]


def _compared(value: Any) -> int:
    return sum(
        1 + _CONTAINER_COST if isinstance(one, (dict, list)) else 1 for one in _all_of(value)
    )


def _numbers(schema: dict[str, Any]) -> tuple[int, int]:
    """What a part of a schema says of numbers: for a value, and for each byte of it."""
    costs = [
        _LONG_NUMBER_COST if _is_long(one) else _NUMBER_COST
        for word in ("const", "enum")
        for one in _all_of(schema.get(word))
        if isinstance(one, (int, float)) and not isinstance(one, bool)
    ]
    for words, short, long in (
        (_LIMITS, _LIMIT_COST, _LONG_LIMIT_COST),
        (_FACTORS, _FACTOR_COST, _FRACTION_COST),
    ):
        costs += [long if _is_long(schema[word]) else short for word in words if word in schema]
    return sum(once for once, _ in costs), sum(own for _, own in costs)


def _all_of(value: Any) -> Iterator[Any]:
    """A value, and all that is in it."""
    stack = [value]
    while stack:
        one = stack.pop()
        yield one
        if isinstance(one, (dict, list)):
            stack += one.values() if isinstance(one, dict) else one


def _is_long(number: object) -> bool:
    """Whether it may take more than a machine word; also for what is no number."""
    return not isinstance(number, int) or abs(number) >= 1 << 53


def _is_several(value: object) -> bool:
    return isinstance(value, (dict, list))
