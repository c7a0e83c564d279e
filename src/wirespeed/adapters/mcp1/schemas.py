"""JSON Schemas that `mcp` 1.x checks each call against: each schema itself is checked once."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match
from referencing import Registry

# That of the library, unless a program has replaced it.
_validate = jsonschema.validate

# Validators that are kept. A list of tools makes new schema objects, so old ones are dropped.
MOST_KEPT = 512


class CheckedOnce:
    """`jsonschema`, with a `validate` that keeps the validators of schemas that have not changed.

    A schema that is no valid one is refused at each call, as by `jsonschema.validate`.

    Args:
        options: The options of the validators, such as `registry`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._kept: dict[int, tuple[Any, Any, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(jsonschema, name)

    def _validator(self, schema: Any) -> Any:
        kept = self._kept.get(id(schema))
        if kept is not None and kept[0] is schema and kept[1] == schema:
            return kept[2]
        cls = jsonschema.validators.validator_for(schema)
        cls.check_schema(schema)
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        validator = cls(schema, **self._options)
        self._kept[id(schema)] = schema, copy.deepcopy(schema), validator
        return validator

    def is_valid(self, instance: Any, schema: Any) -> bool:
        valid: bool = self._validator(schema).is_valid(instance)
        return valid

    def validate(self, instance: Any, schema: Any, *args: Any, **options: Any) -> None:
        if args or options or jsonschema.validate is not _validate:
            jsonschema.validate(instance, schema, *args, **options)
            return
        error = best_match(self._validator(schema).iter_errors(instance))
        if error is not None:
            raise error


def validate_tool_result(stock: Any) -> Any:
    """Makes the replacement of the check that a client makes of structured content."""
    checked = CheckedOnce(registry=Registry())  # references lead into the schema itself

    async def _validate_tool_result(self: Any, name: str, result: Any) -> None:
        schema = self._tool_output_schemas.get(name)
        if schema is not None and result.structuredContent is not None:
            try:
                if checked.is_valid(result.structuredContent, schema):
                    return
            except Exception:
                pass  # the stock method says what is wrong
        await stock(self, name, result)

    return _validate_tool_result
