"""``wirespeed list`` and ``wirespeed inspect``: what a server has."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, Failure, complain, print_json, printable
from wirespeed.cli.session import Options, connected, run
from wirespeed.errors import Unsupported

if TYPE_CHECKING:
    from wirespeed import Client
    from wirespeed.types import (
        PromptInfo,
        RemoteSkill,
        ResourceInfo,
        ResourceTemplateInfo,
        ToolInfo,
    )

KINDS = ("tools", "resources", "templates", "prompts", "skills")


class Features(NamedTuple):
    """The lists of a server; None where the server has no such feature, or was not asked."""

    tools: list[ToolInfo] | None = None
    resources: list[ResourceInfo] | None = None
    templates: list[ResourceTemplateInfo] | None = None
    prompts: list[PromptInfo] | None = None
    skills: list[RemoteSkill] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the lists in their wire form, by the names of the protocol."""
        names = ("tools", "resources", "resourceTemplates", "prompts", "skills")
        return {
            name: [show.wire(getattr(item, "entry", item)) for item in items]
            for name, items in zip(names, self, strict=True)
            if items is not None
        }


async def features_of(client: Client, kinds: tuple[str, ...] = KINDS) -> Features:
    """Ask for lists of a server: those of ``kinds`` that it has."""
    has = client.server_capabilities
    wanted = {
        "tools": ("tools", client.list_tools),
        "resources": ("resources", client.list_resources),
        "templates": ("resources", client.list_resource_templates),
        "prompts": ("prompts", client.list_prompts),
    }
    found: dict[str, Any] = {}
    for kind, (capability, fetch) in wanted.items():
        if kind in kinds and capability in has:
            found[kind] = await fetch()
    if "skills" in kinds:
        with contextlib.suppress(Unsupported):
            found["skills"] = await client.list_skills()
    return Features(**found)


# -- list -----------------------------------------------------------------------------------------


def list_features(options: Options, kinds: tuple[str, ...], *, long: bool, as_json: bool) -> int:
    """Print what a server has."""
    return run(_list(options, kinds, long, as_json))


async def _list(options: Options, kinds: tuple[str, ...], long: bool, as_json: bool) -> int:
    async with connected(options) as client:
        found = await features_of(client, kinds or KINDS)
    if as_json:
        print_json({"tools": [], **found.as_json()} if not kinds else found.as_json())
    elif not any(found):
        what = " or ".join(kinds) if kinds else "tools"
        complain(f"the server has no {what}", level="warning")
    elif long:
        _print_long(found)
    else:
        _print(found)
    return Exit.OK


def _print(found: Features) -> None:
    tables: list[tuple[Any, Callable[[Any], Any]]] = [
        (found.tools, show.tool_table),
        (found.resources, show.resource_table),
        (found.templates, show.template_table),
        (found.prompts, show.prompt_table),
        (found.skills, show.skill_table),
    ]
    out = show.console()
    first = True
    for items, table in tables:
        if items:
            if not first:
                print()
            show.put(out, table(items))
            first = False


def _print_long(found: Features) -> None:
    from wirespeed.cli.features import details

    for number, (title, rows) in enumerate(_items(found)):
        if number:
            print()
        details.put(title, rows)


def _items(found: Features) -> list[tuple[str, Any]]:
    """Every item with its title and its rows, in order."""
    from wirespeed.cli.features import details

    return [
        *((f"tool {tool.name}", details.tool_rows(tool)) for tool in found.tools or ()),
        *((f"resource {one.uri}", details.resource_rows(one)) for one in found.resources or ()),
        *(
            (f"template {one.uri_template}", details.resource_rows(one))
            for one in found.templates or ()
        ),
        *((f"prompt {one.name}", details.prompt_rows(one)) for one in found.prompts or ()),
        *((f"skill {one.uri}", details.skill_rows(one)) for one in found.skills or ()),
    ]


# -- inspect --------------------------------------------------------------------------------------


def inspect(options: Options, name: str, *, as_json: bool) -> int:
    """Print all of one tool, resource, template or prompt. Failure (4): the server has none of the
    name."""
    return run(_inspect(options, name, as_json))


async def _inspect(options: Options, name: str, as_json: bool) -> int:
    async with connected(options) as client:
        found = await features_of(client)
    named = Features(
        [tool for tool in found.tools or () if tool.name == name],
        [one for one in found.resources or () if name in (one.uri, one.name)],
        [one for one in found.templates or () if name in (one.uri_template, one.name)],
        [one for one in found.prompts or () if one.name == name],
        [one for one in found.skills or () if name in (one.uri, one.name)],
    )
    if not any(named):
        raise unknown(name, found)
    if as_json:
        print_json({key: items for key, items in named.as_json().items() if items})
    else:
        _print_long(named)
    return Exit.OK


def unknown(name: str, found: Features) -> Failure:
    """Return the failure of a name that a server does not have. It names a similar one."""
    names = [
        *(tool.name for tool in found.tools or ()),
        *(one.uri for one in found.resources or ()),
        *(one.uri_template for one in found.templates or ()),
        *(one.name for one in found.prompts or ()),
        *(one.uri for one in found.skills or ()),
    ]
    near = difflib.get_close_matches(name, names, n=1)
    guess = f"; did you mean {near[0]}?" if near else "; wirespeed list TARGET shows the names"
    text = f"the server has no tool, resource or prompt {name}{guess}"
    return Failure(printable(text), Exit.REMOTE, "UnknownName")
