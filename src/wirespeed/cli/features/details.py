"""Tools, resources and prompts in full: descriptions, parameters with their rules, hints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from wirespeed.cli import show
from wirespeed.cli.failures import printable
from wirespeed.cli.features.arguments import property_of, resolved
from wirespeed.protocol.results import WRAP_MARKER

if TYPE_CHECKING:
    from wirespeed.types import (
        PromptInfo,
        RemoteSkill,
        ResourceInfo,
        ResourceTemplateInfo,
        ToolInfo,
    )

_DEPTH = 6  # levels of nested fields
_MAX_RULE = 60  # characters of a pattern

_HINTS = {
    "readOnlyHint": ("read-only", "may change things"),
    "destructiveHint": ("may destroy", "destroys nothing"),
    "idempotentHint": ("may be repeated", "not to be repeated"),
    "openWorldHint": ("reaches other systems", "stays in its own system"),
}


class Row(NamedTuple):
    """A line of details: the level, what it is about, and what is said of it."""

    level: int
    name: str
    text: str = ""


def tool_rows(tool: ToolInfo) -> Iterator[Row]:
    """Describe a tool. Its schemas and hints are not trusted: unexpected parts are left out."""
    yield from _head(tool.title, tool.description, tool.annotations)
    yield from schema_rows(tool.input_schema, tool.input_schema, 1)
    if isinstance(tool.output_schema, dict):
        returned = tool.output_schema
        if returned.get(WRAP_MARKER) is True:  # {"result": value}
            returned = property_of(returned, "result")
        yield Row(1, "returns", show.type_name(returned, tool.output_schema))
        inner, reference = _inside(returned, tool.output_schema)
        if inner is not None:
            yield from schema_rows(inner, tool.output_schema, 2, (reference,))
    hints = [
        words[0 if value else 1]
        for key, words in _HINTS.items()
        if isinstance(value := (tool.annotations or {}).get(key), bool)
    ]
    if hints:
        yield Row(1, "hints", ", ".join(hints))
    task = (tool.execution or {}).get("taskSupport")
    if isinstance(task, str) and task != "forbidden":
        yield Row(1, "task", task)


def resource_rows(resource: ResourceInfo | ResourceTemplateInfo) -> Iterator[Row]:
    """Describe a resource, or a template of resources."""
    yield from _head(resource.title, resource.description, None)
    yield Row(1, "name", resource.name)
    if resource.mime_type:
        yield Row(1, "type", resource.mime_type)
    size = getattr(resource, "size", None)
    if size is not None:
        yield Row(1, "size", show.plural(int(size), "byte"))
    for key, value in (resource.annotations or {}).items():
        yield Row(1, key, ", ".join(map(str, value)) if isinstance(value, list) else str(value))


def prompt_rows(prompt: PromptInfo) -> Iterator[Row]:
    """Describe a prompt and its arguments."""
    yield from _head(prompt.title, prompt.description, None)
    for argument in prompt.arguments:
        words = [text for text in (argument.title, argument.description) if text]
        yield Row(1, f"{argument.name}{'' if argument.required else '?'}", ": ".join(words))


def skill_rows(skill: RemoteSkill) -> Iterator[Row]:
    """Describe a skill: its front matter, and its files."""
    yield from _head(None, skill.description, None)
    for key, value in skill.entry.frontmatter.items():
        if key not in ("name", "description"):
            yield Row(1, key, value if isinstance(value, str) else show.json_text(value))
    if skill.resources is None:
        yield Row(1, "files", "dynamic")
    for file in skill.resources or ():
        path = file.uri.removeprefix(skill.entry.root + "/")
        yield Row(1, path, show.plural(file.size, "byte"))


def _head(
    title: str | None, description: str | None, annotations: Mapping[str, Any] | None
) -> Iterator[Row]:
    title = title or (annotations or {}).get("title")
    if isinstance(title, str) and title:
        yield Row(0, "", title)
    yield Row(0, "", (description or "").strip() or show.dash())


# -- schemas --------------------------------------------------------------------------------------


def schema_rows(schema: Any, root: Any, level: int, seen: tuple[str, ...] = ()) -> Iterator[Row]:
    """Describe the fields of an object, with those of objects inside."""
    schema = resolved(schema, root)
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or level > _DEPTH:
        return
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    for name, part in properties.items():
        whole = resolved(part, root)
        merged = {**whole, **part} if _maps(whole, part) else part
        optional = "" if name in required else "?"
        line = f"{name}{optional}: {show.type_name(part, root)}"
        if isinstance(merged, Mapping) and merged.get("default") is not None:
            line += f" = {show.json_text(merged['default'])}"
        yield Row(level, line, about(merged, root))
        inner, reference = _inside(part, root)
        if inner is not None and (not reference or reference not in seen):
            yield from schema_rows(inner, root, level + 1, (*seen, reference))


def _maps(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def about(schema: Any, root: Any) -> str:
    """Return the description of a field, and its rules."""
    if not isinstance(schema, Mapping):
        return ""
    description = schema.get("description")
    text = " ".join(description.split()) if isinstance(description, str) else ""
    rules = ", ".join(dict.fromkeys(_rules(schema, root)))
    return f"{text} ({rules})" if text and rules else text or rules


def _rules(schema: Any, root: Any, depth: int = 0) -> Iterator[str]:
    """The bounds of a schema in words, with those of its alternatives and of the items of a
    list."""
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or depth > 2:
        return
    for low, high, unit in (
        ("minLength", "maxLength", " character"),
        ("minItems", "maxItems", " item"),
        ("minimum", "maximum", ""),
    ):
        least, most = schema.get(low), schema.get(high)
        many = "s" if unit and (least if most is None else most) != 1 else ""
        if least is not None and most is not None:
            same = least == most
            yield f"{least}{unit}{many}" if same else f"{least} to {most}{unit}{many}"
        elif least is not None:
            yield f"at least {least}{unit}{many}"
        elif most is not None:
            yield f"at most {most}{unit}{many}"
    for key, words in (
        ("exclusiveMinimum", "above {}"),
        ("exclusiveMaximum", "below {}"),
        ("multipleOf", "a multiple of {}"),
        ("format", "{}"),
        ("pattern", "pattern {}"),
        ("contentEncoding", "{}"),
        ("contentMediaType", "{}"),
    ):
        value = schema.get(key)
        if value is not None and not isinstance(value, bool | dict | list):
            text = str(value)
            yield words.format(text if len(text) <= _MAX_RULE else text[: _MAX_RULE - 1] + "…")
    if schema.get("uniqueItems") is True:
        yield "each once"
    if schema.get("additionalProperties") is False and depth:
        return
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        for option in options if isinstance(options, list) else ():
            if isinstance(option, Mapping) and "$ref" not in option:
                yield from _rules(option, root, depth + 1)
    items = schema.get("items")
    if isinstance(items, Mapping) and "$ref" not in items:
        for rule in _rules(items, root, depth + 1):
            yield f"each {rule}"


def _inside(schema: Any, root: Any, depth: int = 0) -> tuple[Any, str]:
    """The object inside of a field whose fields are worth a line, and its reference: the field
    itself, the items of a list, or one alternative."""
    if depth > 4 or not isinstance(schema, Mapping):
        return None, ""
    reference = schema.get("$ref")
    whole = resolved(schema, root)
    if not isinstance(whole, Mapping):
        return None, ""
    if isinstance(whole.get("properties"), Mapping):
        return whole, reference if isinstance(reference, str) else ""
    parts = [whole.get("items"), whole.get("additionalProperties")]
    for key in ("anyOf", "oneOf"):
        options = whole.get(key)
        parts += options if isinstance(options, list) else []
    found = [one for part in parts if (one := _inside(part, root, depth + 1))[0] is not None]
    return found[0] if len(found) == 1 else (None, "")


# -- on the terminal ------------------------------------------------------------------------------


def put(title: str, rows: Iterator[Row]) -> None:
    """Print the details of one item below its name."""
    from rich.table import Table
    from rich.text import Text

    out = show.console()
    out.print(Text(printable(title), style="bold cyan"), soft_wrap=True)
    listed = list(rows)
    for row in listed:
        if row.level == 0:
            show.put(out, Text(printable(row.text, lines=True)), indent=2)
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold", max_width=44)
    explained = any(row.text for row in listed if row.level)
    if explained:
        table.add_column(overflow="fold")
    for row in listed:
        if row.level:
            name = Text("  " * (row.level - 1) + printable(row.name), style="cyan")
            table.add_row(*(name, Text(printable(row.text, lines=True)))[: 1 + explained])
    if table.row_count:
        show.put(out, table, indent=4)
