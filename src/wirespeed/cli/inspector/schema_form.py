"""Forms of the page, made from JSON schemas, and the arguments of forms that were sent.

The schemas come from the server and are not trusted: a part that is not understood becomes a field
for JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from wirespeed.cli import show
from wirespeed.cli.features import form
from wirespeed.cli.features.arguments import (
    Word,
    choices_of,
    encode_value,
    encode_words,
    refuse_constant,
    resolved,
    types_of,
)
from wirespeed.cli.features.details import about
from wirespeed.protocol.uri_template import UriTemplate
from wirespeed.schema.form_answers import defaults

if TYPE_CHECKING:
    from wirespeed.types import PromptInfo

PREFIX = "a."  # of the names of fields, which sets them apart from the other names of the form
MAX_FIELDS = 200  # of one form
MAX_PARTS = 5000  # of a schema, where each reference counts as all that it refers to
_MAX_DEPTH = 16
_MAX_CHOICES = 200
_SHORT = 120  # characters of a text that has one line
_SCALARS = {"string", "integer", "number", "boolean"}

Sent = Mapping[str, Sequence[str]]
"""The values of a sent form, by the names of its fields."""


class FormError(ValueError):
    """The form cannot be sent as it is. The text says what to change."""


class SchemaField(NamedTuple):
    """One field of a form.

    Attributes:
        name: The name of the argument.
        label: The label that is shown.
        kind: line, text, number, choice, several (choices), list (a value a line) or json.
        required: Whether the field must have a value.
        type_name: The type, in words.
        about: The description, and the rules.
        choices: Values with their titles.
        value: The text that stands in it at first.
        suggests: Whether the server may suggest values.
    """

    name: str
    label: str
    kind: str
    required: bool
    type_name: str = ""
    about: str = ""
    choices: Sequence[tuple[str, str]] = ()
    value: str = ""
    suggests: bool = False

    @property
    def key(self) -> str:
        """The name in the form."""
        return PREFIX + self.name

    def given(self, sent: Sent) -> list[str]:
        """Return the values that were sent."""
        return [text.replace("\r\n", "\n") for text in sent.get(self.key, ())]

    def text(self, sent: Sent) -> str:
        """Return the one value that was sent; "" for none."""
        return next(iter(self.given(sent)), "")


def is_tangled(schema: Any) -> bool:
    """Whether a schema is too large for a form, with all that its references refer to."""
    left = MAX_PARTS
    waiting = [(schema, 0)]
    while waiting:
        given, depth = waiting.pop()
        part = resolved(given, schema)
        left -= 1
        if left < 0:
            return True
        if depth > _MAX_DEPTH:
            continue
        named = show.definition_of(given, schema)  # it may differ from the part at the path
        inner = [] if resolved(named, schema) is part else [named]
        if not isinstance(part, Mapping):
            part = {}
        inner += [part.get("items"), part.get("additionalProperties")]
        for key in ("anyOf", "oneOf"):
            options = part.get(key)
            inner += options if isinstance(options, list) else []
        properties = part.get("properties")
        inner += properties.values() if isinstance(properties, Mapping) else []
        waiting += [(one, depth + 1) for one in inner if isinstance(one, Mapping)]
    return False


# -- tools ----------------------------------------------------------------------------------------


def tool_fields(schema: Any) -> list[SchemaField]:
    """Return the fields of a tool's input schema; at most `MAX_FIELDS`."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return []
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    fields = []
    for name, part in list(properties.items())[:MAX_FIELDS]:
        whole = resolved(part, schema)
        merged = {**whole, **part} if _maps(whole, part) else part
        kind, choices = _kind_of(merged, schema)
        title = merged.get("title") if isinstance(merged, Mapping) else None
        fields.append(
            SchemaField(
                name,
                title if isinstance(title, str) and title else name,
                kind,
                name in needed,
                show.type_name(part, schema),
                about(merged, schema),
                choices,
                _shown_default(merged, kind),
            )
        )
    return fields


def _maps(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def _kind_of(schema: Any, root: Any) -> tuple[str, list[tuple[str, str]]]:
    """The kind of a field, and its choices."""
    types = types_of(schema, root)
    if types == {"array"}:
        items = schema.get("items") if isinstance(schema, Mapping) else None
        inner = types_of(items, root)
        if not inner or not inner <= _SCALARS:
            return "json", []
        options = choices_of(items, root)
        if options and len(options) <= _MAX_CHOICES and inner != {"boolean"}:
            return "several", [(one, one) for one in options]
        return "list", []
    if not types or not types <= _SCALARS:
        return "json", []
    options = choices_of(schema, root)
    # In a union, some members may have choices and others not.
    if options and len(options) <= _MAX_CHOICES and _is_closed(schema, root):
        return "choice", [(one, one) for one in dict.fromkeys(options)]
    if types <= {"integer", "number"}:
        return "number", []
    return ("line" if _is_short(schema, root) else "text"), []


def _is_closed(schema: Any, root: Any, depth: int = 0) -> bool:
    """Whether only the choices are valid."""
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or depth > 4:
        return False
    if "const" in schema or isinstance(schema.get("enum"), list):
        return True
    if schema.get("type") in ("boolean", "null"):
        return True
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list):
            return all(_is_closed(option, root, depth + 1) for option in options)
    return False


def _is_short(schema: Any, root: Any) -> bool:
    schema = resolved(schema, root)
    most = schema.get("maxLength")
    bounded = isinstance(most, int) and most <= _SHORT
    return bounded or isinstance(schema.get("format"), str)


def _shown_default(schema: Any, kind: str) -> str:
    value = schema.get("default") if isinstance(schema, Mapping) else None
    if value is None:
        return ""
    if kind in ("several", "list") and isinstance(value, list):
        return "\n".join(map(_typed, value))
    return json.dumps(value, ensure_ascii=False) if kind == "json" else _typed(value)


def _typed(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def tool_arguments(schema: Any, sent: Sent) -> bytes:
    """Return the JSON object of a sent form. Numbers keep their digits. FormError: a required
    field is empty, or JSON is not valid. The server checks all other rules."""
    words = []
    for field in tool_fields(schema):
        text = _json_text(field, sent, schema)
        if text is None:
            if field.required:
                raise FormError(f"{field.label} is required")
            continue
        words.append(Word(field.name, text, field.kind in ("json", "list", "several")))
    return encode_words(words, schema)


def _json_text(field: SchemaField, sent: Sent, schema: Any) -> str | None:
    """The text of a field; None if it is left out."""
    if field.kind in ("several", "list"):
        values = field.given(sent)
        if field.kind == "list":
            values = [line for text in values for line in text.split("\n") if line.strip()]
        if not values and not field.required:
            return None
        part = resolved(schema["properties"][field.name], schema)
        types = types_of(part.get("items"), schema)
        return "[" + ",".join(encode_value(value, types).decode() for value in values) + "]"
    text = field.text(sent)
    if field.kind == "json":
        return whole_json(text, field.label) if text.strip() else None
    if field.kind in ("line", "text") and field.required:
        return text
    return text if text.strip() else None


def whole_json(text: str, label: str) -> str:
    """Return a JSON text on one line. FormError: it is not JSON."""
    try:
        json.loads(text, parse_constant=refuse_constant)
        return msgspec.json.format(text.encode(), indent=-1).decode()
    except json.JSONDecodeError as exc:
        where = f"line {exc.lineno} column {exc.colno}"
        raise FormError(f"{label} is not valid JSON ({where}: {exc.msg})") from None
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise FormError(f"{label} is not valid JSON") from None


def json_arguments(text: str) -> bytes:
    """Return arguments that were typed as one JSON object."""
    whole = whole_json(text or "{}", "the text")
    if not whole.startswith("{"):
        raise FormError('arguments are a JSON object, as in {"a": 1}')
    return whole.encode()


# -- prompts and resources ------------------------------------------------------------------------


def prompt_fields(prompt: PromptInfo, suggests: bool) -> list[SchemaField]:
    """Return the fields of a prompt. ``suggests``: whether the server completes arguments."""
    return [
        SchemaField(
            one.name,
            one.title or one.name,
            "text",
            one.required,
            about=one.description or "",
            suggests=suggests,
        )
        for one in prompt.arguments[:MAX_FIELDS]
    ]


def template_fields(uri_template: str, suggests: bool) -> list[SchemaField]:
    """Return the variables of a template; none if it is not valid."""
    try:
        names = UriTemplate(uri_template).names
    except ValueError:
        return []
    return [SchemaField(name, name, "line", False, suggests=suggests) for name in names]


def strings(fields: Sequence[SchemaField], sent: Sent) -> dict[str, str]:
    """Return the values of a form whose arguments are texts. FormError: one is missing."""
    found = {}
    for field in fields:
        text = field.text(sent)
        if text or field.required:
            found[field.name] = text
        if field.required and not text:
            raise FormError(f"{field.label} is required")
    return found


# -- questions of the server ----------------------------------------------------------------------


def question_fields(schema: Mapping[str, Any]) -> list[SchemaField]:
    """Return the fields of a form that a server asks for."""
    given = defaults(schema)
    return [_question_field(one, given) for one in form.fields_of(schema)[:MAX_FIELDS]]


def _question_field(field: form.Field, given: Mapping[str, Any]) -> SchemaField:
    kinds = {"array": "list", "integer": "number", "number": "number", "boolean": "choice"}
    kind = kinds.get(field.kind, "line" if _is_short(field.schema, field.schema) else "text")
    choices = [(_typed(one.value), one.title) for one in field.choices[:_MAX_CHOICES]]
    if field.kind == "boolean" and not choices:
        choices = [("true", "yes"), ("false", "no")]
    if choices:
        kind = "several" if field.kind == "array" else "choice"
    described = field.schema.get("description")
    text = described if isinstance(described, str) else ""
    rules = "" if choices else field.rules
    value = given.get(field.name)
    return SchemaField(
        field.name,
        field.label,
        kind,
        field.required,
        about=f"{text} ({rules})" if text and rules else text or rules,
        choices=choices,
        value="\n".join(map(_typed, value)) if isinstance(value, list) else _typed_or_none(value),
    )


def _typed_or_none(value: Any) -> str:
    return "" if value is None else _typed(value)


def question_content(schema: Mapping[str, Any], sent: Sent) -> dict[str, Any]:
    """Return the content of an answer. FormError: a value is not one of the choices, or not a
    number."""
    content: dict[str, Any] = {}
    for field in form.fields_of(schema)[:MAX_FIELDS]:
        shown = _question_field(field, {})
        values = shown.given(sent)
        if shown.kind == "list":
            values = [line for text in values for line in text.split("\n") if line.strip()]
        if not any(values):
            if field.required and shown.kind in ("line", "text"):
                content[field.name] = ""
            elif field.required and shown.kind in ("several", "list"):
                content[field.name] = []
            continue
        try:
            found = [_answer(field, text) for text in values]
        except ValueError as exc:
            raise FormError(f"{field.label}: {exc}") from None
        content[field.name] = found if field.kind == "array" else found[0]
    return content


def _answer(field: form.Field, text: str) -> Any:
    """Return the value of a field, or of an item of its list, from its text."""
    for choice in field.choices:
        if text == _typed(choice.value):
            return choice.value
    if field.choices:
        raise ValueError("choose one of the values")
    if field.kind == "array":
        return text
    return field.value(text)
