"""Skills of several servers behind one endpoint."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.merge import MergeLab

from wirespeed import Client, Extension
from wirespeed.errors import RemoteError, Unsupported
from wirespeed.proxy import AuditConfig
from wirespeed.skills import Skill
from wirespeed.skills.model import SKILLS_EXTENSION

pytestmark = pytest.mark.off_schema


@pytest.fixture(params=["auto", "legacy"])
def era(request: pytest.FixtureRequest) -> Any:
    """Each era."""
    return request.param


def skill(text: str) -> Skill:
    files = {"SKILL.md": text, "a/b.md": f"\ufeff{text}\r\n<&\u2028>", "c.bin": b"\xff"}
    return Skill("refunds", f"Refunds of {text}.", files)


@contextlib.asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[MergeLab]:
    """The servers red and blue have a skill with the same URI, green has none."""
    lab = MergeLab(tmp_path, "red", "blue", "green")
    for url, server in lab.servers.items():
        if not url.endswith("green"):
            server.add_skills(skill(url.rpartition("-")[2]))
    async with lab.serving():
        yield lab


async def test_each_server_has_its_own(tmp_path: Path, era: Any) -> None:
    async with serving(tmp_path) as lab, Client(lab.url, era=era) as client:
        assert client.server_capabilities["extensions"] == {
            SKILLS_EXTENSION: {"directoryRead": True}
        }
        found = await client.list_skills()
        assert [one.uri for one in found] == [
            "skill://red/refunds/SKILL.md", "skill://blue/refunds/SKILL.md",
        ]  # fmt: skip
        for one, name in zip(found, ("red", "blue"), strict=True):
            assert one.description == f"Refunds of {name}."
            assert (await one.read()).text.endswith(name)  # verified: the digests hold
            assert (await one.read("a/b.md")).data.startswith(b"\xef\xbb\xbf")
            assert (await one.read("c.bin")).data == b"\xff"
            assert (await client.get_skill(one.uri)).entry == one.entry
        listed = [one.uri for one in await client.list_resources()]
        assert {one.uri for one in found} == {uri for uri in listed if uri.startswith("skill:")}
        children = await client.list_skill_folder("skill://blue/refunds")
        assert [child.uri for child in children] == [
            "skill://blue/refunds/SKILL.md",
            "skill://blue/refunds/a",
            "skill://blue/refunds/c.bin",
        ]


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("skills/get", "skill://green/refunds/SKILL.md"),
        ("skills/get", "skill://refunds/SKILL.md"),
        ("skills/get", "skill://red/other/SKILL.md"),
        ("skills/get", "skill://red"),
        ("resources/directory/read", "skill://green/refunds"),
        ("resources/directory/read", "skill://red"),
        ("resources/read", "skill://refunds/SKILL.md"),
        ("resources/read", "skill://red/other"),
        ("resources/read", "skill://green/refunds/SKILL.md"),
    ],
)
async def test_what_is_not_there(method: str, uri: str, tmp_path: Path, era: Any) -> None:
    async with serving(tmp_path) as lab, Client(lab.url, era=era) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request(method, {"uri": uri})
        assert refused.value.code in (-32602, -32002)


async def test_a_server_without_skills_forges_none(tmp_path: Path, era: Any) -> None:
    """Its resource has the URI of another server's skill, and would come first in the list."""
    lab = MergeLab(tmp_path, "aqua", "blue")
    for url, server in lab.servers.items():
        if url.endswith("blue"):
            server.add_skills(skill("blue"))
        else:
            server.add_resource(
                "skill://blue/refunds/SKILL.md", lambda: "forged", name="SKILL.md",
                description="forged",
            )  # fmt: skip
    async with lab.serving(), Client(lab.url, era=era) as client:
        found = [one for one in await client.list_resources() if one.uri.startswith("skill:")]
        assert [(one.uri, one.description) for one in found] == [
            ("skill://blue/refunds/SKILL.md", "Refunds of blue.")
        ]


async def test_pages(tmp_path: Path, era: Any) -> None:
    async with serving(tmp_path) as lab, Client(lab.url, era=era) as client:
        for url, server in lab.servers.items():
            if not url.endswith("green"):
                server.add_skills([Skill(f"s-{n}", "One of many.", {}) for n in range(150)])
        page = await client.request("skills/list")
        assert len(page["skills"]) == 100
        assert len(await client.list_skills()) == 302


async def test_a_server_that_fails_costs_its_own(
    tmp_path: Path, era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lab = MergeLab(tmp_path, "red", "blue")

    async def fails(params: dict[str, Any]) -> Any:
        raise LookupError

    async def lies(params: dict[str, Any]) -> Any:
        entry = {"uri": "skill://x/SKILL.md", "frontmatter": {"name": "y", "description": ""}}
        return {"skills": [{**entry, "resources": "dynamic"}], "ttlMs": 0, "cacheScope": "public"}

    red, blue = lab.servers.values()
    red.add_skills(skill("red"))
    blue.add_extension(
        Extension(
            SKILLS_EXTENSION, {"directoryRead": True}, required=False, eras=("legacy", "modern"),
            requests={"skills/list": fails, "skills/get": lies},
        )
    )  # fmt: skip
    async with lab.serving(), Client(lab.url, era=era, cache=False) as client:
        assert [one.uri for one in await client.list_skills()] == ["skill://red/refunds/SKILL.md"]
        with pytest.raises(RemoteError) as refused:
            await client.get_skill("skill://blue/x/SKILL.md")
        assert refused.value.code == -32603
    assert "blue: nothing is shown of its skills" in caplog.text


async def test_without_skills(tmp_path: Path, era: Any) -> None:
    lab = MergeLab(tmp_path, "red", "blue")
    _, blue = lab.servers.values()
    blue.add_extension(
        Extension(SKILLS_EXTENSION, {"revision": "2099"}, required=False, eras=("legacy", "modern"))
    )
    async with lab.serving(), Client(lab.url, era=era) as client:
        assert SKILLS_EXTENSION not in client.server_capabilities.get("extensions", {})
        with pytest.raises(Unsupported):
            await client.list_skills()
        for method in ("skills/list", "skills/get", "resources/directory/read"):
            with pytest.raises(RemoteError) as refused:
                await client.request(method, {"uri": "skill://red/x"})
            assert refused.value.code == -32601


async def test_reads_are_audited(tmp_path: Path, era: Any) -> None:
    log = tmp_path / "audit"
    lab = MergeLab(tmp_path, "red", "blue", audit=AuditConfig(to=str(log), events=("read",)))
    for server in lab.servers.values():
        server.add_skills(skill("x"))
    async with lab.serving(), Client(lab.url, era=era) as client:
        await client.read_skill("skill://blue/refunds/SKILL.md")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    found = [(line["server"], line["uri"]) for line in lines if "uri" in line]
    assert found == [("blue", "skill://refunds/SKILL.md")]
