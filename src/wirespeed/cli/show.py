"""Output for people: consoles, parameters of tools, content blocks, numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from wirespeed.cli.failures import coloured, printable

if TYPE_CHECKING:
    from rich.console import Console

    from wirespeed.litemcp import Content, Tool
    from wirespeed.types import (
        PromptInfo,
        RemoteSkill,
        ResourceInfo,
        ResourceTemplateInfo,
        ToolInfo,
    )

_MAX_TYPE = 60


def console(*, stderr: bool = False) -> Console:
    """Return a console that writes control codes to terminals only, in the terminal's colours."""
    from rich.console import Console

    class OurConsole(Console):
        def on_broken_pipe(self) -> None:
            raise

    return OurConsole(
        stderr=stderr,
        highlight=False,
        soft_wrap=False,
        markup=False,
        emoji=False,
        no_color=not coloured(sys.stderr if stderr else sys.stdout),
    )


def put(out: Console, table: Any, *, indent: int = 0) -> None:
    """Print a table. Output to a pipe or file has no spaces at line ends."""
    from rich.padding import Padding

    item = Padding(table, (0, 0, 0, indent), expand=False) if indent else table
    if out.is_terminal:
        out.print(item)
        return
    with out.capture() as captured:
        out.print(item)
    for line in captured.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")


def unicode_output() -> bool:
    """Whether stdout can show more than ASCII."""
    return (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")


def plural(count: int, word: str) -> str:
    """``1 tool``, ``2 tools``."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def wire(value: Any) -> dict[str, Any]:
    """Return a result's members in their wire form, without absent members."""
    import msgspec

    members = msgspec.to_builtins(value)
    return {key: item for key, item in members.items() if item is not None}


# -- tools ----------------------------------------------------------------------------------------


def tool_table(tools: list[ToolInfo]) -> Any:
    """Return a table of tools: name, parameters, the first paragraph of the description."""
    return _tool_table(
        (
            tool.name,
            parameters(tool.input_schema),
            [_paragraph(tool.description or tool.title or "") or dash()],
        )
        for tool in tools
    )


def resource_table(resources: list[ResourceInfo]) -> Any:
    """Return a table of resources: URI, media type, name and description."""
    return table(
        ("resource", "type", "description"),
        ((one.uri, [one.mime_type or ""], [_named(one)]) for one in resources),
    )


def template_table(templates: list[ResourceTemplateInfo]) -> Any:
    """Return a table of templates of resources."""
    return table(
        ("template", "type", "description"),
        ((one.uri_template, [one.mime_type or ""], [_named(one)]) for one in templates),
    )


def skill_table(skills: list[RemoteSkill]) -> Any:
    """Return a table of skills: URI, files and description."""
    return table(
        ("skill", "files", "description"),
        (
            (
                one.uri,
                ["dynamic" if one.resources is None else str(len(one.resources))],
                [_paragraph(one.description) or dash()],
            )
            for one in skills
        ),
    )


def prompt_table(prompts: list[PromptInfo]) -> Any:
    """Return a table of prompts: name, arguments, description."""
    return table(
        ("prompt", "arguments", "description"),
        (
            (
                one.name,
                [
                    f"{argument.name}{'' if argument.required else '?'}"
                    for argument in one.arguments
                ],
                [_paragraph(one.description or one.title or "") or dash()],
            )
            for one in prompts
        ),
    )


def _named(resource: ResourceInfo | ResourceTemplateInfo) -> str:
    text = _paragraph(resource.description or "")
    return f"{resource.display_name}: {text}" if text else resource.display_name


def dash() -> str:
    """The sign for what is missing."""
    return "—" if unicode_output() else "-"


def lite_table(tool: Tool) -> Any:
    """Return a table of the tool of a LiteMCP server. Its parameters are numbered in the order of
    the arguments."""
    numbered = []
    described = [_paragraph(tool.description or "")]
    for number, parameter in enumerate(tool.parameters, 1):
        numbered.append(f"{number} {_one_line(parameter.name)}: {_one_line(parameter.type)}")
        text = _one_line(parameter.description or "")
        if parameter.example is not None:
            text = f"{text}{', ' if text else ''}such as {_cut(_one_line(parameter.example))}"
        if text:
            described.append(f"{_one_line(parameter.name)}: {text}")
    return _tool_table([(tool.name, numbered, [line for line in described if line])])


def _tool_table(rows: Iterable[tuple[str, list[str], list[str]]]) -> Any:
    return table(("tool", "parameters", "description"), rows)


def table(titles: tuple[str, str, str], rows: Iterable[tuple[str, list[str], list[str]]]) -> Any:
    """Return a table of three columns: a name, and two texts of lines."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    first, second, third = titles
    width = 32 if first in ("tool", "prompt") else 44
    made.add_column(first, style="cyan", overflow="fold", max_width=width)
    made.add_column(second, overflow="fold", ratio=1 if first in ("tool", "prompt") else None)
    made.add_column(third, overflow="fold", ratio=1)
    for name, *columns in rows:
        texts = [Text(printable("\n".join(lines), lines=True)) for lines in columns]
        made.add_row(Text(printable(name)), *texts)
    return made


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _paragraph(text: str) -> str:
    return _one_line(text.strip().partition("\n\n")[0])


def parameters(schema: dict[str, Any]) -> list[str]:
    """Return each parameter of an input schema: ``a: integer``, ``n?: integer = 3``.

    The schema is not trusted: an unexpected part is shown as ``any``.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return []
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    lines = []
    for name, part in properties.items():
        line = f"{name}{'' if name in required else '?'}: {type_name(part, schema)}"
        if isinstance(part, dict) and part.get("default") is not None:
            line += f" = {json_text(part['default'])}"
        lines.append(line)
    return lines


def json_text(value: Any) -> str:
    """Return a value as JSON, cut if it is long."""
    import msgspec

    return _cut(msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TYPE else text[: _MAX_TYPE - 1] + "…"


def type_name(schema: Any, root: dict[str, Any], depth: int = 0) -> str:
    """Return a short name for the type of a schema."""
    if not isinstance(schema, dict) or depth > 8:
        return "any"
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _referred(reference, root, depth)
    values = schema.get("enum")
    if isinstance(values, list) and values:
        return _cut(" | ".join(map(json_text, values)))
    if "const" in schema:
        return json_text(schema["const"])
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list) and options:
            return _union([type_name(option, root, depth + 1) for option in options])
    kind = schema.get("type")
    if isinstance(kind, list) and kind:
        return _union([str(item) for item in kind])
    if kind == "array" and "items" in schema:
        return f"array of {type_name(schema['items'], root, depth + 1)}"
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "any"


def _union(names: list[str]) -> str:
    unique = list(dict.fromkeys(names))
    if "number" in unique and "integer" in unique:
        unique.remove("integer")  # every integer is a number
    return _cut(" | ".join(unique))


def _referred(reference: str, root: dict[str, Any], depth: int) -> str:
    name = reference.rpartition("/")[2]
    found = definition_of({"$ref": reference}, root)
    if found is None:
        return name or "any"
    kind = type_name(found, root, depth + 1)
    return name if kind == "object" else kind


def definition_of(schema: Any, root: Any) -> Any:
    """Return the definition whose name the reference of a schema ends with; None if there is
    none."""
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if isinstance(reference, str) and isinstance(root, dict):
        name = reference.rpartition("/")[2]
        for key in ("$defs", "definitions"):
            definitions = root.get(key)
            if isinstance(definitions, dict) and name in definitions:
                return definitions[name]
    return None


# -- content --------------------------------------------------------------------------------------


def block_text(block: Any) -> str:
    """Return a content block for people: text unchanged, other blocks described."""
    from wirespeed.protocol.blocks import Audio, EmbeddedResource, Image, ResourceLink, Text

    if isinstance(block, Text):
        return block.text
    if isinstance(block, Image | Audio):
        kind = "image" if isinstance(block, Image) else "audio"
        return f"[{kind}: {block.mime_type}, {plural(len(block.data), 'byte')}]"
    if isinstance(block, EmbeddedResource):
        resource = block.resource
        media = f", {resource.mime_type}" if resource.mime_type else ""
        if isinstance(resource.text, str):
            return f"[resource: {resource.uri}{media}]\n{resource.text}"
        size = len(resource.blob) if isinstance(resource.blob, bytes) else 0
        return f"[resource: {resource.uri}{media}, {plural(size, 'byte')}]"
    if isinstance(block, ResourceLink):
        media = f", {block.mime_type}" if block.mime_type else ""
        return f"[link: {block.title or block.name}{media}] {block.uri}"
    return f"[{block.data.get('type', 'unknown')}: unknown kind of content; see --json]"


def content_text(content: Content) -> str:
    """Return a content of a LiteMCP result for people: text unchanged, media described."""
    from wirespeed.litemcp.messages import is_media

    if is_media(content.type):
        size = len(content.data.rstrip("=")) * 3 // 4  # base64
        return f"[{content.type}, {plural(size, 'byte')}]"
    return content.data


# -- numbers --------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """Return a duration with three digits and a unit: ``9.12 µs``, ``412 µs``, ``2.08 s``."""
    micro = "µs" if unicode_output() else "us"
    for unit, scale in ((micro, 1e6), ("ms", 1e3)):
        if seconds * scale < 999.5:
            return f"{three_digits(seconds * scale)} {unit}"
    return f"{three_digits(seconds)} s"


def three_digits(value: float) -> str:
    """Return a number with three digits, or with all digits before the point if they are more."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
