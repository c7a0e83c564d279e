"""``wirespeed skill``: the skills of a server, verified."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, complain, print_json, printable, usage
from wirespeed.cli.session import Options, connected, run
from wirespeed.errors import Unsupported, WirespeedError
from wirespeed.skills.model import LIST, SkillEntry, entry_of, excess

if TYPE_CHECKING:
    from wirespeed import Client
    from wirespeed.types import RemoteSkill

MAX_PAGES = 10_000


# -- skill get -------------------------------------------------------------------------------------


def get(options: Options, uri: str, folder: str | None, *, as_json: bool) -> int:
    """Print the ``SKILL.md`` of a skill, or write the skill into a folder."""
    if folder is not None and os.path.lexists(folder):
        raise usage(f"--to {folder}: there is something at this path, and nothing is overwritten")
    return run(_get(options, uri, folder, as_json))


async def _get(options: Options, uri: str, folder: str | None, as_json: bool) -> int:
    async with connected(options) as client:
        skill = await client.get_skill(uri)
        if folder is not None:
            try:
                await skill.to_directory(folder)
            except OSError as exc:
                raise usage(f"--to {folder}: {exc.strerror or exc}") from None
            except ValueError as exc:
                raise Unsupported(str(exc)) from None
            text = show.plural(len(skill.resources or ()), "file")
            complain(printable(f"{text} of {skill.uri} in {folder}"), level="note")
            if as_json:
                print_json(msgspec.to_builtins(skill.entry))
            return Exit.OK
        file = await skill.read()
    if as_json:
        print_json({**msgspec.to_builtins(skill.entry), "text": file.text})
    else:
        text = file.text
        sys.stdout.write(printable(text, lines=True) if sys.stdout.isatty() else text)
        if not text.endswith("\n"):
            sys.stdout.write("\n")
    return Exit.OK


# -- skill verify ----------------------------------------------------------------------------------


def verify(options: Options, *, as_json: bool) -> int:
    """Read and verify every file of every listed skill, and report the skills that are not
    valid."""
    return run(_verify(options, as_json))


async def _verify(options: Options, as_json: bool) -> int:
    async with connected(options) as client:
        await client.list_skills()  # Unsupported: the server has no skills
        found = [await _verdict(client, given) for given in await _listed(client)]
    bad = [one for one in found if one["problem"] is not None]
    if as_json:
        print_json({"skills": found, "bad": len(bad)})
    else:
        for one in found:
            problem = one["problem"]
            text = show.plural(one["files"], "file") + f", {one['bytes']:,} bytes"
            text = text if problem is None else f"BAD: {problem}"
            print(printable(f"{one['uri']}  {text}"))
        word = "skill is" if len(bad) == 1 else "skills are"
        if bad:
            complain(f"{len(bad)} of {show.plural(len(found), 'skill')}: {word} not valid")
    return Exit.REMOTE if bad else Exit.OK


async def _listed(client: Client) -> list[Any]:
    """Return the entries as the server sends them, also those that are not valid."""
    entries: list[Any] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        page = await client.request(LIST, {} if cursor is None else {"cursor": cursor})
        skills = page.get("skills")
        entries += skills if isinstance(skills, list) else ()
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or cursor in seen:
            break
        seen.add(cursor)
    return entries


async def _verdict(client: Client, given: Any) -> dict[str, Any]:
    """Return the fault of a skill, or None, and how much of it was read."""
    uri = given.get("uri") if isinstance(given, dict) else None
    verdict: dict[str, Any] = {"uri": str(uri), "files": 0, "bytes": 0, "problem": None}
    try:
        entry = entry_of(msgspec.json.encode(given))
        problem = excess(entry)
        skill = await client.get_skill(entry.uri)
        if problem is None and skill.entry != entry:
            problem = "skills/get shows another entry than skills/list"
        verdict["problem"] = problem
        if problem is None:
            await _read_all(skill, entry, verdict)
    except (WirespeedError, ValueError) as exc:
        verdict["problem"] = str(exc) or type(exc).__name__
    return verdict


async def _read_all(skill: RemoteSkill, entry: SkillEntry, verdict: dict[str, Any]) -> None:
    uris = [entry.uri]
    if skill.resources is not None:
        uris += [file.uri for file in skill.resources if file.uri != entry.uri]
    for one in uris:
        file = await skill.read(one)
        verdict["files"] += 1
        verdict["bytes"] += len(file.data)
