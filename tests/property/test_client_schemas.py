"""Schemas that the client rewrites before it checks by them say the same as they did before."""

from __future__ import annotations

from random import Random
from typing import Any

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.client import schemas
from wirespeed.client.schema_check import SchemaCheck
from wirespeed.client.schema_graph import SchemaFault
from wirespeed.errors import InvalidResponse

DIALECTS: dict[str, Any] = {
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema_rs.Draft7Validator,
    "http://json-schema.org/draft-04/schema#": jsonschema_rs.Draft4Validator,
}
LEAVES: list[Any] = [
    {},
    {"type": "integer"},
    {"type": ["object", "array"]},
    {"enum": [1, "a", None, {"$ref": "a"}]},
    {"minimum": 2},
    {"maxLength": 1},
    {"required": ["a"]},
]
KEYS = ["a", "b", "ab", "$ref", "default"]  # of which some are keywords elsewhere


class Made:
    """A random schema."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.dialect = random.choice(list(DIALECTS))
        self.old = "draft-0" in self.dialect
        definitions = "definitions" if self.old else "$defs"
        self.refs = ["#", f"#/{definitions}/x", f"#/{definitions}/y~1z"]
        named: dict[str, Any] = {}
        if not self.old:
            self.refs += ["#name", "http://example.com/r#name", "part", "part#/%24defs/in"]
            inner = {"in": {"type": ["object", "integer"], "additionalProperties": {"$ref": "#"}}}
            named = {
                "n": {"$anchor": "name", "items": {"$ref": random.choice(self.refs)}},
                "p": {"$id": "part", "properties": {"a": {"$ref": "r#name"}}, "$defs": inner},
            }
        self.schema: dict[str, Any] = {
            **self.part(3),
            "$schema": self.dialect,
            definitions: {"x": self.part(3), "y/z": self.part(2), **named},
        }
        if not self.old:
            self.schema["$id"] = "http://example.com/r"

    def part(self, depth: int) -> dict[str, Any]:
        random = self.random
        if depth <= 0 or random.random() < 0.1:
            return dict(random.choice(LEAVES))
        made: dict[str, Any] = {}
        for _ in range(random.randint(1, 3)):
            made |= self.keyword(depth)
        return made

    def keyword(self, depth: int) -> dict[str, Any]:
        random = self.random
        words = ["allOf", "anyOf", "oneOf", "not", "items", "additionalProperties", "properties"]
        words += ["patternProperties", "tuple", "dependent", "$ref", "$ref", "properties"]
        words += [] if self.old else ["if", "contains", "unevaluatedProperties", "unevaluatedItems"]
        word = random.choice(words)
        if word == "$ref":
            return {"$ref": random.choice(self.refs)}
        if word in ("allOf", "anyOf", "oneOf"):
            return {word: [self.part(depth - 1) for _ in range(random.randint(1, 3))]}
        if word == "properties":
            return {word: {key: self.part(depth - 1) for key in random.sample(KEYS, 2)}}
        if word == "patternProperties":
            return {word: {"^a": self.part(depth - 1), "b": self.part(depth - 1)}}
        if word == "tuple":
            first = [self.part(depth - 1), self.part(depth - 1)]
            if self.old:
                return {"items": first, "additionalItems": self.part(depth - 1)}
            return {"prefixItems": first} if "2020" in self.dialect else {"items": first}
        if word == "dependent":
            kind = "dependencies" if self.old else "dependentSchemas"
            return {kind: {"a": self.part(depth - 1)}}
        if word == "if":
            return {one: self.part(depth - 1) for one in ("if", "then", "else")}
        return {word: self.part(depth - 1)}

    def value(self, depth: int) -> Any:
        random = self.random
        if depth <= 0 or random.random() < 0.2:
            return random.choice([1, 2, "a", "bb", None, True, {"$ref": "a"}])
        if random.random() < 0.6:
            keys = random.sample(KEYS, random.randint(0, 3))
            return {key: self.value(depth - 1) for key in keys}
        return [self.value(depth - 1) for _ in range(random.randint(0, 3))]


@given(st.integers(0, 2**32))
def test_what_is_rewritten_says_the_same(seed: int) -> None:
    made = Made(Random(seed))
    try:
        check = SchemaCheck("it", made.schema)
    except InvalidResponse as exc:
        assert "itself" in str(exc) or "more work" in str(exc)
        return
    plain = DIALECTS[made.dialect](made.schema)
    for _ in range(10):
        value = made.value(4)
        assert (check.fault(value) is None) == plain.is_valid(value)


@given(st.integers(0, 2**32))
def test_no_circle_is_left(seed: int) -> None:
    """So that what is counted is all there is."""
    made = Made(Random(seed))
    try:
        plan = schemas.plan(made.schema, lambda *_: True, lambda *_: True)
    except SchemaFault:
        return
    again = schemas.plan(plan.document, lambda *_: True, lambda *_: True)
    assert again.targets == ()
