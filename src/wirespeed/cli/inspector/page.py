"""The page of the inspector: its contents and its policy. Its template is ``page.jinja``: jinja2
fills it in, and escapes every text."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, StrictUndefined

from wirespeed.cli import show
from wirespeed.cli.features.details import Row, resource_rows, tool_rows
from wirespeed.cli.inspector.schema_form import (
    SchemaField,
    is_tangled,
    prompt_fields,
    template_fields,
    tool_fields,
)

if TYPE_CHECKING:
    from wirespeed.cli.features.lists import Features
    from wirespeed.cli.inspector.activity import Activity
    from wirespeed.cli.inspector.inspected import InspectedServer
    from wirespeed.cli.inspector.questions import Questions
    from wirespeed.cli.inspector.wire_log import WireLog

_FILES = files("wirespeed.cli.inspector")
_STYLE = _FILES.joinpath("page.css").read_text("utf-8")
_SCRIPT = _FILES.joinpath("page.js").read_text("utf-8")
_ABOUT_TOOL = ("returns", "hints", "task")
MAX_LISTED = 500  # of each list


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# Content-Security-Policy: this style and this script, and requests and forms to this listener.
POLICY = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; "
    "img-src 'self'; media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


@dataclass(frozen=True)
class Selection:
    """The tool, resource, template or prompt that is selected, with its form.

    Attributes:
        kind: tool, resource, template or prompt.
        name: Its name, URI or template.
        title: The title; "" if it is the name.
        description: Its description.
        rows: Further facts.
        fields: The form.
        json: Whether the arguments may be written as JSON: ``also``, ``only`` or ``no``.
        button: The label of the button that sends the form.
    """

    kind: str
    name: str
    title: str
    description: str
    rows: Sequence[Row]
    fields: Sequence[SchemaField]
    json: str
    button: str

    @property
    def stamp(self) -> str:
        """A digest. The page keeps what was typed while the digest stays the same."""
        return hashlib.sha256(repr(self).encode("utf-8", "replace")).hexdigest()[:16]


def selected(features: Features, kind: str, name: str, completes: bool) -> Selection | None:
    """Return the selection of a kind and a name; without a kind, of the first tool. None: the
    server has no such thing.

    completes: Whether the server suggests values of arguments.
    """
    if not kind:
        first = next(iter(features.tools or ()), None)
        return None if first is None else selected(features, "tool", first.name, completes)
    if kind == "tool":
        for tool in features.tools or ():
            if tool.name == name:
                rows, fields = list[Row](), list[SchemaField]()
                tangled = is_tangled(tool.input_schema) or is_tangled(tool.output_schema)
                if not tangled:
                    rows = [row for row in tool_rows(tool) if row.name in _ABOUT_TOOL]
                    fields = tool_fields(tool.input_schema)
                title = tool.display_name if tool.display_name != name else ""
                return Selection(
                    kind, name, title, tool.description or "", rows, fields,
                    "only" if tangled else "also" if fields else "no", "Call",
                )  # fmt: skip
    if kind == "resource":
        for one in features.resources or ():
            if one.uri == name:
                return Selection(
                    kind, name, one.display_name, one.description or "",
                    _facts(resource_rows(one)), [], "no", "Read",
                )  # fmt: skip
    if kind == "template":
        for template in features.templates or ():
            if template.uri_template == name:
                return Selection(
                    kind, name, template.display_name, template.description or "",
                    _facts(resource_rows(template)), template_fields(name, completes), "no",
                    "Read",
                )  # fmt: skip
    if kind == "prompt":
        for prompt in features.prompts or ():
            if prompt.name == name:
                title = prompt.display_name if prompt.display_name != name else ""
                return Selection(
                    kind, name, title, prompt.description or "", [],
                    prompt_fields(prompt, completes), "no", "Get",
                )  # fmt: skip
    return None


def _facts(rows: Any) -> list[Row]:
    return [row for row in rows if row.level and row.name != "name"]


@dataclass(frozen=True)
class PageView:
    """The contents of the page.

    Attributes:
        name: The target, as it was given to the command.
        reloads: Whether the server is started again when its file is saved.
        version: The number of changes so far.
    """

    name: str
    reloads: bool
    version: int
    server: InspectedServer
    activity: Activity
    questions: Questions
    wire: WireLog
    item: Selection | None
    kind: str

    @property
    def facts(self) -> str:
        """The name and the version of the server, and the revision of the protocol."""
        client = self.server.client
        if client is None:
            return ""
        info = client.server_info or {}
        named = " ".join(str(info[key])[:100] for key in ("name", "version") if info.get(key))
        return " · ".join(filter(None, (named, client.protocol_version)))

    @property
    def instructions(self) -> str:
        """The server's instructions for models."""
        return (self.server.client and self.server.client.instructions) or ""

    @property
    def capabilities(self) -> str:
        """The capabilities of the server as JSON."""
        client = self.server.client
        found = {} if client is None else client.server_capabilities
        return json.dumps(found, ensure_ascii=False, indent=2)

    @property
    def lists(self) -> list[tuple[str, str, list[tuple[str, str]], int]]:
        """The lists that are not empty: the kind, the heading, names with their titles, and how
        many more there are."""
        features = self.server.features
        found: list[tuple[str, str, list[tuple[str, str]]]] = [
            ("tool", "Tools", [(one.name, one.display_name) for one in features.tools or ()]),
            ("resource", "Resources", [(one.uri, one.name) for one in features.resources or ()]),
            (
                "template",
                "Templates",
                [(one.uri_template, one.name) for one in features.templates or ()],
            ),
            ("prompt", "Prompts", [(one.name, one.display_name) for one in features.prompts or ()]),
        ]
        return [
            (kind, title, items[:MAX_LISTED], max(0, len(items) - MAX_LISTED))
            for kind, title, items in found
            if items
        ]


def link(kind: str, name: str) -> str:
    """Return the address of the page with one thing selected."""
    return f"?{urlencode({'kind': kind, 'name': name}, errors='replace')}"


def clock(at: float) -> str:
    """Format a time in Unix seconds as the time of the day."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def took(seconds: float | None) -> str:
    """Format a duration: ``412 µs``, ``2.08 s``; "" for None."""
    if seconds is None:
        return ""
    for unit, scale in (("µs", 1e6), ("ms", 1e3)):
        if seconds * scale < 999.5:
            return f"{show.three_digits(seconds * scale)} {unit}"
    return f"{show.three_digits(seconds)} s"


def page(view: PageView) -> bytes:
    """Return the page."""
    return _TEMPLATE.render(view=view).encode("utf-8", "replace")


def refusal(text: str) -> bytes:
    """Return the page that says why a form was not sent, for browsers without a script."""
    return _REFUSAL.render(text=text).encode("utf-8", "replace")


_ENVIRONMENT = Environment(
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
_GLOBALS: Mapping[str, Any] = {
    "style": _STYLE, "script": _SCRIPT, "link": link, "clock": clock, "took": took,
    "plural": show.plural,
}  # fmt: skip
_ENVIRONMENT.globals |= _GLOBALS
_TEMPLATE = _ENVIRONMENT.from_string(_FILES.joinpath("page.jinja").read_text("utf-8"))
_REFUSAL = _ENVIRONMENT.from_string(
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Not sent</title>'
    '<meta name="color-scheme" content="light dark"><p>{{ text }}</p>'
    "<p>Go back, change the form, and send it again.</p></html>\n"
)
