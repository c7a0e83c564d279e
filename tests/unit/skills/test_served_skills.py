"""Skills as a server serves them: lists, entries, folders and files, in both eras."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wirespeed import Client, Server, User
from wirespeed.auth import ResourceServer
from wirespeed.errors import RemoteError, SkillChanged, Unsupported
from wirespeed.skills import Skill, SkillCatalog, SkillEntry, SkillLimits, SkillResource
from wirespeed.skills.model import SKILLS_EXTENSION, digest_of
from wirespeed.types import ResourceEntry

REFUNDS = "skill://acme/refunds/SKILL.md"

pytestmark = pytest.mark.off_schema  # `extensions` of a legacy handshake


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


def refunds(**files: str) -> Skill:
    data = {"SKILL.md": "Do it.", "templates/mail.md": "Dear …", "data.bin": b"\0\xff", **files}
    return Skill("refunds", "Refund requests.", data, path="acme", fields={"license": "MIT"})


def notes(n: int) -> Skill:
    return Skill(f"note-{n}", f"Note {n}.", {"SKILL.md": str(n)})


@pytest.fixture
def server() -> Server:
    server = Server("docs")
    server.add_skills([refunds(), notes(1)])
    return server


async def test_what_is_declared(server: Server, era: Any) -> None:
    async with Client(server, era=era) as client:
        capabilities = client.server_capabilities
        assert capabilities["extensions"] == {SKILLS_EXTENSION: {"directoryRead": True}}
        assert "resources" in capabilities
    async with Client(Server("none"), era=era) as client:
        assert "extensions" not in client.server_capabilities
        with pytest.raises(Unsupported):
            await client.list_skills()
        with pytest.raises(RemoteError) as refused:
            await client.request("skills/list")
        assert refused.value.code == -32601


async def test_the_results(server: Server, era: Any) -> None:
    async with Client(server, era=era) as client:
        listed = await client.request("skills/list")
        got = await client.request("skills/get", {"uri": REFUNDS})
        children = await client.request("resources/directory/read", {"uri": "skill://acme/refunds"})
    entry = msgspec.json.decode(msgspec.json.encode(refunds().entry))
    assert listed["skills"][0] == got["skill"] == entry
    assert [one["uri"] for one in listed["skills"]] == [REFUNDS, "skill://note-1/SKILL.md"]
    assert children["resources"] == [
        {
            "uri": REFUNDS, "name": "refunds", "description": "Refund requests.",
            "mimeType": "text/markdown", "size": entry["resources"][0]["size"],
        },
        {
            "uri": "skill://acme/refunds/data.bin", "name": "data.bin",
            "mimeType": "application/octet-stream", "size": 2,
        },
        {
            "uri": "skill://acme/refunds/templates", "name": "templates",
            "mimeType": "inode/directory",
        },
    ]  # fmt: skip
    for result in (listed, got):
        hints = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
        expected = hints if era == "modern" else {}
        assert {name: result[name] for name in hints if name in result} == expected
    assert ("resultType" in children) is (era == "modern")
    assert "ttlMs" not in children


async def test_files_are_read_as_they_are(server: Server, era: Any) -> None:
    async with Client(server, era=era) as client:
        result = await client.read_resource(REFUNDS)
        (contents,) = result.contents
        assert contents.mime_type == "text/markdown"
        assert contents.text is not None
        assert contents.text.startswith('---\nname: "refunds"\n')
        (contents,) = (await client.read_resource("skill://acme/refunds/data.bin")).contents
        assert contents.blob == b"\0\xff"
        for uri in ("skill://acme/refunds", "skill://acme/refunds/nothing", "skill://x"):
            with pytest.raises(RemoteError) as refused:
                await client.read_resource(uri)
            assert refused.value.resource_missing


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("skills/get", "skill://acme/refunds"),
        ("skills/get", "skill://other/SKILL.md"),
        ("resources/directory/read", REFUNDS),
        ("resources/directory/read", "skill://acme/refunds/"),
        ("resources/directory/read", "skill://"),
        ("resources/directory/read", "skill://nothing"),
    ],
)
async def test_what_is_not_there(method: str, uri: str, server: Server, era: Any) -> None:
    async with Client(server, era=era) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request(method, {"uri": uri})
        assert refused.value.code == -32602
        with pytest.raises(RemoteError) as refused:
            await client.request(method, {})
        assert refused.value.code == -32602


async def test_pages(era: Any) -> None:
    server = Server("docs", page_size=3, list_ttl_ms=500, cache_scope="public")
    server.add_skills([notes(n) for n in range(8)])
    server.add_skills(Skill("hidden", "Not listed.", {"SKILL.md": ""}), listed=False)
    async with Client(server, era=era) as client:
        first = await client.request("skills/list")
        assert len(first["skills"]) == 3
        if era == "modern":
            assert (first["ttlMs"], first["cacheScope"]) == (500, "public")
        assert [skill.name for skill in await client.list_skills()] == [
            f"note-{n}" for n in range(8)
        ]
        assert (await client.get_skill("skill://hidden/SKILL.md")).name == "hidden"
        with pytest.raises(RemoteError) as refused:
            await client.request("skills/list", {"cursor": "?"})
        assert refused.value.code == -32602
        found = await client.list_skill_folder("skill://note-1")
        assert [child.name for child in found] == ["note-1"]


async def test_the_heads_are_listed_as_resources(server: Server, era: Any) -> None:
    server.add_skills(Skill("hidden", "Not listed.", {}), listed=False)
    async with Client(server, era=era) as client:
        one, other = await client.list_resources()
    assert (one.uri, one.name, one.description, one.mime_type) == (
        REFUNDS, "refunds", "Refund requests.", "text/markdown",
    )  # fmt: skip
    assert other.uri == "skill://note-1/SKILL.md"


async def test_nothing_stands_for_a_file(server: Server) -> None:
    with pytest.raises(ValueError, match="already"):
        server.add_resource(REFUNDS, "another text")
    server.add_resource("skill://acme/refunds/templates/mail.md", "another text")
    server.add_resource("skill://late/SKILL.md", "another text")
    with pytest.raises(ValueError, match="there is a resource"):
        server.add_skills(Skill("late", "Too late.", {}))
    async with Client(server) as client:
        uri = "skill://acme/refunds/templates/mail.md"
        (contents,) = (await client.read_resource(uri)).contents
        assert contents.text == "Dear …"


def test_what_is_refused(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is a skill"):
        server.add_skills(refunds())
    with pytest.raises(ValueError, match="same URI"):
        server.add_skills([notes(2), notes(2)])
    with pytest.raises(TypeError, match="add_skills"):
        server.add_skills(notes(2), ttl=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="a folder, a Skill"):
        server.add_skills([1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="path is for folders"):
        server.add_skills(notes(2), path="a")
    with pytest.raises(FileNotFoundError):
        server.add_skills(tmp_path / "nothing")


# -- who sees what ---------------------------------------------------------------------------------


async def verify(token: str) -> Any:
    raise NotImplementedError


def resource_server(**options: Any) -> ResourceServer:
    issuers = ["https://issuer.example"]
    return ResourceServer("https://tools.example/mcp", issuers, verifier=verify, **options)


async def test_scopes(era: Any) -> None:
    server = Server("docs", auth=resource_server(filter_lists=True))
    server.add_skills(notes(1))
    server.add_skills(refunds(), scopes=["refunds:read"])
    assert "refunds:read" in server.service.scopes()
    async with Client(server, era=era, user="ann") as client:
        assert [skill.name for skill in await client.list_skills()] == ["note-1"]
        for method, uri in (
            ("skills/get", REFUNDS),
            ("resources/directory/read", "skill://acme/refunds"),
            ("resources/read", REFUNDS),
        ):
            with pytest.raises(RemoteError) as refused:
                await client.request(method, {"uri": uri})
            assert refused.value.code in (-32602, -32002), method  # as if it were not there
    user: Any = User("bob", scopes=["refunds:read"])
    async with Client(server, era=era, user=user) as client:
        assert [skill.name for skill in await client.list_skills()] == ["note-1", "refunds"]
        assert (await client.read_skill(REFUNDS)).text.endswith("Do it.")


async def test_scopes_without_a_filter_are_named(era: Any) -> None:
    server = Server("docs", auth=resource_server())
    server.add_skills(refunds(), scopes=["refunds:read"])
    async with Client(server, era=era, user="ann") as client:
        for method, uri in (
            ("skills/get", REFUNDS),
            ("resources/directory/read", "skill://acme/refunds"),
            ("resources/read", REFUNDS),
        ):
            with pytest.raises(RemoteError) as refused:
                await client.request(method, {"uri": uri})
            assert refused.value.code == -31003, method


async def test_a_filter_and_tags(era: Any) -> None:
    def shows(user: User | None, entry: Any) -> bool:
        assert isinstance(entry, ResourceEntry)
        return entry.name != "refunds"

    server = Server("docs", filter=shows)
    server.add_skills([refunds(), notes(1)], tags=["all"])
    server.add_skills(notes(2), tags=["second"])
    async with Client(server, era=era) as client:
        names = [skill.name for skill in await client.list_skills()]
        assert names == ["note-1", "note-2"]
        for method in ("skills/get", "resources/read"):
            with pytest.raises(RemoteError) as refused:
                await client.request(method, {"uri": REFUNDS})
            assert refused.value.code in (-32602, -32002)
        with pytest.raises(RemoteError):
            await client.list_skill_folder("skill://acme")
        server.disable(tags=["second"])
        assert [skill.name for skill in await client.list_skills()] == ["note-1"]
        server.disable(names=["skill://note-1/SKILL.md"])
        assert await client.list_skills() == []


async def test_middleware_sees_the_requests(server: Server, era: Any) -> None:
    seen: list[Any] = []

    @server.add_middleware
    async def note(request: Any, call_next: Any) -> Any:
        seen.append((request.method, request.decode().get("uri")))
        return await call_next(request)

    async with Client(server, era=era) as client:
        await client.read_skill(REFUNDS)
    assert seen[-2:] == [("skills/get", REFUNDS), ("resources/read", REFUNDS)]


# -- folders ---------------------------------------------------------------------------------------


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir(exist_ok=True)
    head = f"---\nname: {name}\ndescription: x\n---\n{text}"
    (folder / name / "SKILL.md").write_text(head)


async def test_a_folder_is_a_snapshot_until_it_is_read_again(tmp_path: Path, era: Any) -> None:
    put(tmp_path, "one", "first")
    server = Server("docs")
    source = server.add_skills(tmp_path)
    uri = "skill://one/SKILL.md"
    async with Client(server, era=era) as client:
        before = await client.get_skill(uri)
        put(tmp_path, "one", "second")
        put(tmp_path, "two", "")
        assert (await before.read()).text.endswith("first")
        assert source.reload()
        assert not source.reload()
        assert [skill.name for skill in await client.list_skills()] == ["one", "two"]
        with pytest.raises(SkillChanged) as changed:
            await before.read()
        assert changed.value.uri == uri
        assert changed.value.found != changed.value.expected
        assert (await client.read_skill(uri)).text.endswith("second")
        for name in ("one", "two"):
            (tmp_path / name / "SKILL.md").unlink()
        tmp_path.joinpath("one").rename(tmp_path / "gone")
        assert source.reload()
        assert await client.list_skills() == []


def test_a_folder_that_cannot_be_read_again_keeps_its_skills(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    folder.mkdir()
    put(folder, "one", "")
    server = Server("docs")
    source = server.add_skills(folder, limits=SkillLimits(skills=1))
    folder.rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        source.reload()
    assert list(source.skills) == ["skill://one/SKILL.md"]
    (tmp_path / "away").rename(folder)
    put(folder, "two", "")
    with pytest.raises(Exception, match="more than 1 skills"):
        source.reload()
    assert list(source.skills) == ["skill://one/SKILL.md"]


async def test_reloads_beside_readers(tmp_path: Path) -> None:
    """An entry and its file are of the same snapshot, or the client is told."""
    put(tmp_path, "one", "0")
    server = Server("docs")
    source = server.add_skills(tmp_path)
    over = threading.Event()

    def change() -> None:
        n = 0
        while not over.is_set():
            n += 1
            put(tmp_path, "one", str(n))
            source.reload()

    thread = threading.Thread(target=change)
    logging.getLogger("wirespeed.server").disabled = True
    thread.start()
    try:
        async with Client(server, cache=False) as client:
            for _ in range(200):
                try:
                    file = await client.read_skill("skill://one/SKILL.md")
                except (SkillChanged, RemoteError):  # it changed between the two requests
                    continue
                assert file.text.startswith("---")
    finally:
        over.set()
        await asyncio.to_thread(thread.join)
        logging.getLogger("wirespeed.server").disabled = False


# -- catalogs --------------------------------------------------------------------------------------


class Bucket(SkillCatalog):
    prefix = "bucket://"

    def __init__(self) -> None:
        self.files = {
            "bucket://b/far/SKILL.md": b"---\nname: far\ndescription: Far away.\n---\n",
            "bucket://b/far/a.md": b"a",
        }
        self.reads: list[str] = []
        self.waits = 0.0
        self.extra: list[SkillEntry] = []

    def _entry(self) -> SkillEntry:
        return SkillEntry(
            "bucket://b/far/SKILL.md",
            {"name": "far", "description": "Far away."},
            tuple(
                SkillResource(uri, digest_of(data), len(data)) for uri, data in self.files.items()
            ),
        )

    async def entries(self) -> Iterable[SkillEntry]:
        await asyncio.sleep(self.waits)
        return [self._entry(), *self.extra]

    async def entry(self, uri: str) -> SkillEntry | None:
        await asyncio.sleep(self.waits)
        return self._entry() if uri == "bucket://b/far/SKILL.md" else None

    async def read(self, uri: str) -> bytes | None:
        self.reads.append(uri)
        return self.files.get(uri)


async def test_a_catalog_reads_a_file_when_it_is_asked_for(era: Any) -> None:
    bucket = Bucket()
    server = Server("docs")
    server.add_skills(notes(1))
    server.add_skills(bucket)
    async with Client(server, era=era) as client:
        assert client.server_capabilities["extensions"] == {SKILLS_EXTENSION: {}}
        _, far = await client.list_skills()
        assert (far.name, bucket.reads) == ("far", [])
        assert (await far.read("a.md")).data == b"a"
        assert bucket.reads == ["bucket://b/far/a.md"]
        for uri in ("bucket://b/far/b.md", "bucket://b/far", "bucket://x"):
            with pytest.raises(RemoteError) as refused:
                await client.read_resource(uri)
            assert refused.value.resource_missing
        assert bucket.reads == ["bucket://b/far/a.md"]
        with pytest.raises(RemoteError) as refused:
            await client.request("resources/directory/read", {"uri": "skill://note-1"})
        assert refused.value.code == -32601
        with pytest.raises(RemoteError) as refused:
            await client.get_skill("bucket://b/near/SKILL.md")
        assert refused.value.code == -32602


async def test_a_catalog_is_not_asked_for_very_many_folders(era: Any) -> None:
    """Of a long path each folder could be a skill."""
    bucket = Bucket()
    asked: list[str] = []
    entry = bucket.entry

    async def counted(uri: str) -> SkillEntry | None:
        asked.append(uri)
        return await entry(uri)

    bucket.entry = counted  # type: ignore[method-assign]
    server = Server("docs")
    server.add_skills(bucket)
    async with Client(server, era=era) as client:
        with pytest.raises(RemoteError) as refused:
            await client.read_resource("bucket://b/far/" + "a/" * 2000 + "a")
        assert refused.value.resource_missing
    assert len(asked) < 100


async def test_an_entry_that_cannot_be_sent_costs_itself(
    era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = Bucket()
    fields = {"name": "x", "description": "z"}
    bucket.extra = [
        SkillEntry("bucket://b/x/SKILL.md", {**fields, "more": object()}, "dynamic"),
        SkillEntry("bucket://b/x/SKILL.md", {**fields, "more": "\ud800"}, "dynamic"),
        SkillEntry("bucket://b/x/SKILL.md", None, "dynamic"),  # type: ignore[arg-type]
    ]
    server = Server("docs")
    server.add_skills(bucket)
    async with Client(server, era=era) as client:
        assert [one.name for one in await client.list_skills()] == ["far"]
    assert "is left out" in caplog.text


async def test_a_catalog_that_lies(era: Any, caplog: pytest.LogCaptureFixture) -> None:
    bucket = Bucket()
    bucket.extra = [
        SkillEntry("bucket://b/x/SKILL.md", {"name": "y", "description": "z"}, "dynamic"),
        SkillEntry("bucket://b/x/SKILL.md", {"name": "x", "description": "z"}, ()),
    ]
    server = Server("docs")
    server.add_skills(bucket)
    async with Client(server, era=era) as client:
        (far,) = await client.list_skills()
        entry = bucket._entry()
        bucket._entry = lambda: entry  # type: ignore[method-assign]
        bucket.files["bucket://b/far/a.md"] = b"b"
        with pytest.raises(RemoteError) as refused:
            await far.read("a.md")
        assert refused.value.code == -32603
    assert "is left out" in caplog.text
    assert "is not the file that its entry names" in caplog.text


async def test_a_catalog_that_does_not_answer(era: Any, caplog: pytest.LogCaptureFixture) -> None:
    bucket = Bucket()
    bucket.waits = 60
    server = Server("docs")
    server.add_skills(notes(1))
    server.add_skills(bucket, timeout=0.02)
    async with Client(server, era=era) as client:
        assert [skill.name for skill in await client.list_skills()] == ["note-1"]
        with pytest.raises(RemoteError) as refused:
            await client.get_skill("bucket://b/far/SKILL.md")
        assert refused.value.code == -32603
        assert "did not answer within" in refused.value.message
        with pytest.raises(RemoteError) as refused:
            await client.read_resource("bucket://b/far/SKILL.md")
        assert refused.value.code == -32603
    assert "are missing in the list" in caplog.text
