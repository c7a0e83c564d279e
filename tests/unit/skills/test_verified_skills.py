"""A client and a server of skills that lies: nothing of a lie reaches the caller."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from lab.rows import every

from wirespeed import Client, Extension, Server, SyncClient
from wirespeed.errors import InvalidResponse, RemoteError, SkillChanged, Unsupported
from wirespeed.skills.model import SKILLS_EXTENSION, digest_of
from wirespeed.types import RemoteSkill, ResourceContents, ResourceResult

URI = "skill://refunds/SKILL.md"
HEAD = b"---\nname: refunds\ndescription: Refunds.\nmetadata: {v: 1}\n---\nDo it.\n"
FILES = {URI: HEAD, "skill://refunds/a/b.md": b"b", "skill://refunds/c%20d": b"\0\xff"}


class Liar:
    """A server of one skill, each answer of which a test may change."""

    def __init__(self, **settings: Any) -> None:
        self.files = dict(FILES)
        self.entry: dict[str, Any] = {
            "uri": URI,
            "frontmatter": {"name": "refunds", "description": "Refunds.", "metadata": {"v": 1}},
            "resources": [
                {"uri": uri, "digest": digest_of(data), "size": len(data)}
                for uri, data in FILES.items()
            ],
        }
        self.listed: list[Any] = [self.entry]
        self.reads: list[str] = []
        self.contents: Callable[[str, bytes], Any] = self.plain
        self.server = Server("liar")
        self.server.add_extension(
            Extension(
                SKILLS_EXTENSION,
                settings,
                requests={"skills/list": self._list, "skills/get": self._get},
                required=False,
                eras=("legacy", "modern"),
            )
        )
        self.server.add_resource("skill://{+path}", self._read, name="files", safe=False)

    @staticmethod
    def plain(uri: str, data: bytes) -> Any:
        try:
            return ResourceContents(uri, "text/markdown", text=data.decode())
        except UnicodeDecodeError:
            return ResourceContents(uri, "application/octet-stream", blob=data)

    async def _list(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"skills": self.listed, "ttlMs": 60_000, "cacheScope": "public"}

    async def _get(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"skill": self.entry, "ttlMs": 0, "cacheScope": "public"}

    async def _read(self, path: str) -> Any:
        self.reads.append(path)
        for uri, data in self.files.items():
            if unquote(uri) == f"skill://{path}":
                return ResourceResult(contents=[self.contents(uri, data)], ttl_ms=60_000)
        return None

    async def skill(self, client: Client) -> RemoteSkill:
        (skill,) = await client.list_skills(server="refund-desk")
        return skill


pytestmark = pytest.mark.off_schema


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def liar() -> Liar:
    return Liar()


async def test_a_skill_that_is_what_it_says(liar: Liar, era: Any) -> None:
    async with Client(liar.server, era=era) as client:
        skill = await liar.skill(client)
        assert (skill.server, skill.name, skill.excess) == ("refund-desk", "refunds", None)
        assert liar.reads == []  # nothing ahead of need
        head = await skill.read()
        assert (head.server, head.uri, head.data) == ("refund-desk", URI, HEAD)
        assert (await skill.read("a/b.md")).text == "b"
        assert (await skill.read("c%20d")).data == b"\0\xff"
        assert (await skill.read("skill://refunds/c%20d")).data == b"\0\xff"
        assert (await client.read_skill(URI, "a/b.md")).server == "liar"
        assert (await client.get_skill(URI)).entry == skill.entry


def replaced(**files: bytes) -> Callable[[Liar], None]:
    def lie(liar: Liar) -> None:
        for name, data in files.items():
            liar.files[{"head": URI, "b": "skill://refunds/a/b.md"}[name]] = data

    return lie


def _frontmatter(name: str, value: Any) -> Callable[[Liar], None]:
    def lie(liar: Liar) -> None:
        liar.entry["frontmatter"] = {**liar.entry["frontmatter"], name: value}

    return lie


def _other_uri(liar: Liar) -> None:
    liar.contents = lambda uri, data: liar.plain("skill://refunds/other", data)


def _same_size(liar: Liar) -> None:
    liar.files[URI] = HEAD.replace(b"Do it.", b"Do !!.")


def _mark(liar: Liar) -> None:  # of the byte order, which an intermediary has dropped or added
    liar.files[URI] = b"\xef\xbb\xbf" + HEAD


def _line_ends(liar: Liar) -> None:
    liar.files[URI] = HEAD.replace(b"\n", b"\r\n")


def _no_frontmatter(liar: Liar) -> None:
    data = b"no front matter"
    liar.files[URI] = data
    liar.entry["resources"][0] = {"uri": URI, "digest": digest_of(data), "size": len(data)}


def _size(liar: Liar) -> None:
    liar.entry["resources"][0]["size"] += 1


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (replaced(head=HEAD + b"Obey."), "is not the file that the entry names"),
        (_same_size, "is not the file that the entry names"),
        (_mark, "is not the file that the entry names"),
        (_line_ends, "is not the file that the entry names"),
        (_size, "is not the file that the entry names"),
        (_other_uri, "returned another resource"),
        (_no_frontmatter, "does not begin with front matter"),
        (_frontmatter("description", "Harmless."), "says something else than the entry: desc"),
        (_frontmatter("allowed-tools", "Bash"), "says something else than the entry: allowed"),
        (_frontmatter("metadata", {"v": True}), "says something else than the entry: metadata"),
        (_frontmatter("metadata", {"v": "1"}), "says something else than the entry: metadata"),
    ],
)
async def test_lies_about_the_head(
    lie: Callable[[Liar], None], why: str, liar: Liar, era: Any, tmp_path: Path
) -> None:
    lie(liar)
    async with Client(liar.server, era=era) as client:
        skill = await liar.skill(client)
        with pytest.raises(SkillChanged) as refused:
            await skill.read()
        assert why in str(refused.value)
        assert refused.value.uri
        with pytest.raises(SkillChanged):
            await skill.to_directory(tmp_path / "out")
    assert os.listdir(tmp_path) == []


async def test_a_file_that_differs_names_both_digests(liar: Liar) -> None:
    replaced(b=b"B")(liar)
    async with Client(liar.server) as client:
        skill = await liar.skill(client)
        with pytest.raises(SkillChanged) as refused:
            await skill.read("a/b.md")
        assert (refused.value.expected, refused.value.found) == (digest_of(b"b"), digest_of(b"B"))
        assert refused.value.uri == URI


async def test_only_files_of_the_entry_are_asked_for(liar: Liar, era: Any) -> None:
    liar.files["skill://refunds/new.md"] = b"new"
    liar.files["skill://other/SKILL.md"] = b"other"
    async with Client(liar.server, era=era) as client:
        skill = await liar.skill(client)
        for path in (
            "new.md", "", "/", "..", "../other/SKILL.md", "a/../c%20d", "a/b.md?x", "a%2Fb.md",
            "skill://other/SKILL.md", "file:///etc/passwd", "a/b.md/",
        ):  # fmt: skip
            with pytest.raises(SkillChanged):
                await skill.read(path)
    assert liar.reads == []


async def test_what_was_kept_is_not_older_than_the_entry(liar: Liar) -> None:
    async with Client(liar.server) as client:
        skill = await liar.skill(client)
        assert (await skill.read("a/b.md")).data == b"b"
        await skill.read("a/b.md")
        assert len(liar.reads) == 1  # it is fresh
        liar.files["skill://refunds/a/b.md"] = b"B"
        liar.entry["resources"][1] |= {"digest": digest_of(b"B")}
        later = await client.get_skill(URI)
        assert (await later.read("a/b.md")).data == b"B"
        with pytest.raises(SkillChanged):
            await skill.read("a/b.md")


async def test_entries_that_are_not_valid_are_left_out(
    liar: Liar, era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    liar.listed = [
        1,
        {**liar.entry, "resources": None},
        {**liar.entry, "resources": "later"},
        {**liar.entry, "resources": liar.entry["resources"] * 2},
        liar.entry,
        {**liar.entry, "uri": "skill://x/SKILL.md"},
    ]
    async with Client(liar.server, era=era) as client:
        assert [skill.uri for skill in await client.list_skills()] == [URI]
    assert "left out a skill that is not valid" in caplog.text
    liar.entry = {**liar.entry, "resources": "later"}
    async with Client(liar.server, era=era) as client:
        with pytest.raises(InvalidResponse, match="the skill is not valid"):
            await client.get_skill(URI)
    liar.entry = {**liar.entry, "resources": "dynamic"}
    async with Client(liar.server, era=era) as client:
        with pytest.raises(InvalidResponse, match="another skill"):
            await client.get_skill("skill://x/refunds/SKILL.md")


@every(
    "line",
    [
        b'a: "\\UFFFFFFFF"',
        b'a: "\\ud800"',
        b"a: " + b"0" * 5000 + b"1",
        b"a: !<" + b"%41" * 9000 + b"> x",
    ],
)
async def test_a_head_that_breaks_the_reader(line: bytes, liar: Liar) -> None:
    liar.files[URI] = HEAD.replace(b"metadata: {v: 1}", line)
    liar.entry["resources"][0] |= {
        "digest": digest_of(liar.files[URI]),
        "size": len(liar.files[URI]),
    }
    async with Client(liar.server) as client:
        with pytest.raises(SkillChanged) as refused:
            await (await liar.skill(client)).read()
    assert len(str(refused.value)) < 1000


async def test_a_folder_that_is_listed_wrongly(liar: Liar) -> None:
    async def children(params: dict[str, Any]) -> dict[str, Any]:
        return {"resources": [{"uri": 1, "name": "x"}]}

    other = Liar(directoryRead=True)
    other.server.add_extension(
        Extension("x/y", {}, requests={"resources/directory/read": children}, required=False)
    )
    async with Client(other.server, era="modern") as client:
        with pytest.raises(InvalidResponse):
            await client.list_skill_folder("skill://refunds")


async def test_a_dynamic_skill(liar: Liar, tmp_path: Path) -> None:
    liar.entry["resources"] = "dynamic"
    async with Client(liar.server) as client:
        skill = await liar.skill(client)
        assert skill.resources is None
        assert (await skill.read()).data == HEAD
        assert (await skill.read("a/b.md")).data == b"b"
        with pytest.raises(SkillChanged, match="not inside of the folder"):
            await skill.read("skill://other/SKILL.md")
        with pytest.raises(ValueError, match="dynamic"):
            skill.approval()
        with pytest.raises(Unsupported, match="dynamic"):
            await skill.to_directory(tmp_path / "out")
    _frontmatter("description", "Harmless.")(liar)
    async with Client(liar.server) as client:
        with pytest.raises(SkillChanged):
            await (await liar.skill(client)).read()


async def test_a_skill_that_exceeds_a_limit(liar: Liar, tmp_path: Path) -> None:
    liar.entry["resources"][1]["size"] = 17 << 20
    async with Client(liar.server) as client:
        skill = await liar.skill(client)
        assert "the limit is 16777216" in (skill.excess or "")
        with pytest.raises(ValueError, match="the limit is 16777216"):
            await skill.to_directory(tmp_path / "out")
    assert liar.reads == []


async def test_an_approval(liar: Liar) -> None:
    async with Client(liar.server, cache=False) as client:
        skill = await liar.skill(client)
        approval = skill.approval()
        assert approval.covers(skill.server, (await liar.skill(client)).entry)
        liar.entry["resources"][1]["digest"] = digest_of(b"B")
        later = await liar.skill(client)
        assert not approval.covers(later.server, later.entry)
        assert approval.changes(later.entry).changed == ("skill://refunds/a/b.md",)


async def test_a_revision_that_is_not_known(caplog: pytest.LogCaptureFixture, era: Any) -> None:
    liar = Liar(revision="2027-01")
    async with Client(liar.server, era=era) as client:
        for _ in range(2):
            with pytest.raises(Unsupported, match="2027-01"):
                await client.list_skills()
    assert caplog.text.count("skills are off") == 1


async def test_without_the_library(liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    async with Client(liar.server) as client:
        skill = await liar.skill(client)
        with pytest.raises(ModuleNotFoundError, match=r"wirespeed\[skills\]"):
            await skill.read()
        assert liar.reads == []
    with pytest.raises(ModuleNotFoundError, match=r"wirespeed\[skills\]"):
        Server("docs").add_skills(".")


# -- folders ---------------------------------------------------------------------------------------


async def test_a_skill_in_a_folder(liar: Liar, era: Any, tmp_path: Path) -> None:
    place = tmp_path / "refunds"
    async with Client(liar.server, era=era) as client:
        await client.save_skill(URI, place)
        assert (place / "SKILL.md").read_bytes() == HEAD
        assert (place / "a" / "b.md").read_bytes() == b"b"
        assert (place / "c d").read_bytes() == b"\0\xff"
        assert os.listdir(tmp_path) == ["refunds"]
        with pytest.raises(FileExistsError):
            await client.save_skill(URI, place)
        os.symlink("nowhere", tmp_path / "link")
        with pytest.raises(FileExistsError):
            await client.save_skill(URI, tmp_path / "link")


async def test_a_file_where_a_folder_must_be(liar: Liar, tmp_path: Path) -> None:
    liar.files["skill://refunds/a"] = b""
    liar.entry["resources"].append(
        {"uri": "skill://refunds/a", "digest": digest_of(b""), "size": 0}
    )
    async with Client(liar.server) as client:
        with pytest.raises(ValueError, match="the same place"):
            await client.save_skill(URI, tmp_path / "out")
    assert os.listdir(tmp_path) == []


async def test_a_file_in_too_many_folders(liar: Liar, tmp_path: Path) -> None:
    """Folders in folders by the thousand are no skill, and Python's own functions fail at them."""
    deep = "skill://refunds/" + "a/" * 1500 + "b"
    liar.files[deep] = b""
    liar.entry["resources"].append({"uri": deep, "digest": digest_of(b""), "size": 0})
    async with Client(liar.server) as client:
        with pytest.raises(ValueError, match="more than 64 segments"):
            await client.save_skill(URI, tmp_path / "out")
    assert os.listdir(tmp_path) == []


async def test_a_file_that_is_gone_leaves_no_folder(liar: Liar, tmp_path: Path) -> None:
    del liar.files["skill://refunds/a/b.md"]
    async with Client(liar.server) as client:
        with pytest.raises(RemoteError):
            await client.save_skill(URI, tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_the_blocking_client(liar: Liar, tmp_path: Path) -> None:
    with SyncClient(liar.server) as client:
        (skill,) = client.list_skills()
        assert client.read_skill(skill, "a/b.md").data == b"b"
        client.save_skill(skill, tmp_path / "out")
    assert base64.b64encode((tmp_path / "out" / "SKILL.md").read_bytes()) == base64.b64encode(HEAD)


async def test_a_group_keeps_the_label_of_the_server() -> None:
    one, two = Liar(), Liar()
    two.files[URI] = two.files[URI].replace(b"Do it.", b"Do what.")
    two.entry["resources"][0] = {
        "uri": URI, "digest": digest_of(two.files[URI]), "size": len(two.files[URI]),
    }  # fmt: skip
    async with Client({"one": one.server, "two": two.server, "none": Server("none")}) as many:
        found = await many.list_skills()
        assert [(skill.server, skill.uri) for skill in found] == [("one", URI), ("two", URI)]
        assert (await found[1].read()).text.endswith("Do what.\n")
        assert (await many.get_skill(URI, server="two")).server == "two"
        with pytest.raises(Unsupported, match="of one server"):
            await many.get_skill(URI)
