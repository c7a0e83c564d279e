"""A folder of skills is a snapshot, and nothing from outside of it is in it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lab.rows import every

from wirespeed.errors import LimitExceeded
from wirespeed.skills import Skill, SkillLimits
from wirespeed.skills.model import digest_of
from wirespeed.skills.skill import read_folder

LIMITS = SkillLimits()


def write(folder: Path, name: str, files: dict[str, str | bytes] | None = None) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    head = f"---\nname: {place.name}\ndescription: For {place.name}.\n---\nDo it.\n"
    for path, data in {"SKILL.md": head, **(files or {})}.items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
    return place


def uris(folder: Path, limits: SkillLimits = LIMITS) -> list[str]:
    return list(read_folder(folder, (), limits))


def test_files_and_digests(tmp_path: Path) -> None:
    write(tmp_path, "acme/refunds", {"a b/é.md": "x", "data.bin": b"\0\xff", "empty": b""})
    write(tmp_path, "notes")
    (tmp_path / "README.md").write_text("of no skill")
    (tmp_path / "acme" / ".hidden").mkdir()
    skills = read_folder(tmp_path, ("team",), LIMITS)
    assert list(skills) == ["skill://team/acme/refunds/SKILL.md", "skill://team/notes/SKILL.md"]
    refunds = skills["skill://team/acme/refunds/SKILL.md"]
    assert list(refunds.files) == [
        "skill://team/acme/refunds/SKILL.md",
        "skill://team/acme/refunds/a%20b/%C3%A9.md",
        "skill://team/acme/refunds/data.bin",
        "skill://team/acme/refunds/empty",
    ]
    for file in refunds.entry.resources:
        assert not isinstance(file, str)
        data = refunds.files[file.uri]
        assert (file.size, file.digest) == (len(data), digest_of(data))


def test_a_skill_in_a_skill(tmp_path: Path) -> None:
    write(tmp_path, "outer", {"inner/SKILL.md": "---\nname: inner\ndescription: x\n---\n"})
    skills = read_folder(tmp_path, (), LIMITS)
    assert list(skills) == ["skill://outer/SKILL.md", "skill://outer/inner/SKILL.md"]
    assert "skill://outer/inner/SKILL.md" in skills["skill://outer/SKILL.md"].files


def _link(place: Path) -> None:
    (place / "link").symlink_to("/etc/passwd")


def _inner_link(place: Path) -> None:
    (place / "link").symlink_to("SKILL.md")


def _linked_folder(place: Path) -> None:
    (place / "folder").symlink_to("/etc")


def _linked_head(place: Path) -> None:
    (place / "SKILL.md").rename(place / "other.md")
    (place / "SKILL.md").symlink_to("other.md")


def _fifo(place: Path) -> None:
    os.mkfifo(place / "fifo")


def _socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(place)  # the path of a socket is short
        try:
            one.bind("socket")
        finally:
            os.chdir(here)


def _bad_name(place: Path) -> None:
    os.close(os.open(os.fsencode(place) + b"/\xff", os.O_CREAT | os.O_WRONLY))


def _unreadable(place: Path) -> None:
    (place / "SKILL.md").write_text("no front matter")


def _other_name(place: Path) -> None:
    (place / "SKILL.md").write_text("---\nname: another\ndescription: x\n---\n")


def _bad_yaml(place: Path) -> None:
    (place / "SKILL.md").write_text("---\nname: bad\ndescription: [\n---\n")


def _no_character(place: Path) -> None:
    (place / "SKILL.md").write_text('---\nname: bad\ndescription: "\\UFFFFFFFF"\n---\n')


def _half_a_pair(place: Path) -> None:
    (place / "SKILL.md").write_text('---\nname: bad\ndescription: "a \\ud800"\n---\n')


def _half_a_pair_in_a_key(place: Path) -> None:
    text = '---\nname: bad\ndescription: x\n"\\ud800": 1\n---\n'
    (place / "SKILL.md").write_text(text)


def _folder_for_head(place: Path) -> None:
    (place / "SKILL.md").unlink()
    (place / "SKILL.md").mkdir()


def _backslash(place: Path) -> None:
    (place / "a\\b").write_text("x")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_link, "link: it is a link"),
        (_inner_link, "link: it is a link"),
        (_linked_folder, "folder: it is a link"),
        (_linked_head, "SKILL.md: it is a link"),
        (_fifo, "fifo: it is neither a file nor a folder"),
        (_socket, "socket: it is neither a file nor a folder"),
        (_bad_name, "the name is not UTF-8"),
        (_unreadable, "SKILL.md:1: the file does not begin"),
        (_other_name, "SKILL.md:1: the name 'another' differs from that of the folder, 'bad'"),
        (_bad_yaml, "SKILL.md:"),
        (_no_character, "SKILL.md:2: YAML: not valid"),
        (_half_a_pair, "SKILL.md:3: YAML: half a surrogate pair is not a character"),
        (_half_a_pair_in_a_key, "SKILL.md:4: YAML: half a surrogate pair is not a character"),
        (_folder_for_head, "SKILL.md: it is not a file"),
        (_backslash, "cannot be the name of a file"),
    ],
)
def test_one_skill_is_left_out(
    spoil: Callable[[Path], None], why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "good")
    spoil(write(tmp_path, "bad"))
    with caplog.at_level(logging.WARNING, "wirespeed.server"):
        assert uris(tmp_path) == ["skill://good/SKILL.md"]
    (record,) = caplog.records
    assert why in record.getMessage()
    assert str(tmp_path) in record.getMessage()


def test_a_fault_in_an_inner_skill_costs_the_outer_one(tmp_path: Path) -> None:
    outer = write(tmp_path, "outer", {"inner/SKILL.md": "---\nname: inner\ndescription: x\n---\n"})
    write(tmp_path, "outer/other")
    (outer / "inner" / "link").symlink_to("SKILL.md")
    assert uris(tmp_path) == ["skill://outer/other/SKILL.md"]


def test_a_head_beside_the_skills_is_no_skill(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "SKILL.md").write_text(f"---\nname: {tmp_path.name}\ndescription: x\n---\n")
    assert uris(tmp_path) == []
    assert "and not in one of its own" in caplog.text


@pytest.mark.parametrize(("limits", "left"), [
    (SkillLimits(files=3), ["skill://small/SKILL.md"]),
    (SkillLimits(size=900), ["skill://small/SKILL.md"]),
    (SkillLimits(), ["skill://large/SKILL.md", "skill://small/SKILL.md"]),
])  # fmt: skip
def test_limits_of_a_skill(limits: SkillLimits, left: list[str], tmp_path: Path) -> None:
    write(tmp_path, "large", {f"{n}.md": "x" * 300 for n in range(3)})
    write(tmp_path, "small")
    assert uris(tmp_path, limits) == left


def test_limits_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path, "one")
    write(tmp_path, "two")
    for limits in (SkillLimits(skills=1), SkillLimits(total_size=60)):
        with pytest.raises(LimitExceeded):
            read_folder(tmp_path, (), limits)


def test_a_folder_of_very_many_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    large = write(tmp_path, "large")
    (large / "many").mkdir()
    for n in range(1600):
        (large / "many" / str(n)).touch()
    write(tmp_path, "small")
    assert uris(tmp_path) == ["skill://small/SKILL.md"]
    assert "more than 1536 names are in one folder" in caplog.text


def test_the_folder_itself(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        uris(tmp_path / "nothing")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        uris(tmp_path / "file")
    write(tmp_path / "real", "one")
    (tmp_path / "link").symlink_to("real")  # the operator's own path
    assert uris(tmp_path / "link") == ["skill://one/SKILL.md"]


SWAP = """
import os, sys
folder = sys.argv[1]
os.chdir(folder)
print("ready", flush=True)
while True:
    for name in ("file.md", "folder"):
        os.rename(name, "kept")
        os.symlink({"file.md": "../secret", "folder": "../outside"}[name], name)
        os.unlink(name)
        os.rename("kept", name)
"""


def test_no_byte_from_outside_while_links_come_and_go(tmp_path: Path) -> None:
    """Another process swaps a file and a folder for links that lead out, as fast as it can."""
    (tmp_path / "secret").write_text("from outside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.md").write_text("from outside")
    skills = tmp_path / "skills"
    place = write(skills, "swapped", {"file.md": "inside", "folder/a.md": "inside"})
    swapper = subprocess.Popen(
        [sys.executable, "-c", SWAP, str(place)], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    logging.getLogger("wirespeed.server").disabled = True
    try:
        assert swapper.stdout is not None
        assert swapper.stdout.readline() == b"ready\n"
        for _ in range(500):
            for skill in read_folder(skills, (), LIMITS).values():
                assert all(b"outside" not in data for data in skill.files.values())
    finally:
        logging.getLogger("wirespeed.server").disabled = False
        swapper.kill()
        swapper.wait()
        assert swapper.stdout is not None
        swapper.stdout.close()


# -- one skill -------------------------------------------------------------------------------------


def test_a_skill_from_a_folder_of_its_own(tmp_path: Path) -> None:
    place = write(tmp_path, "refunds", {"a.md": "x"})
    skill = Skill.from_folder(place, path="acme")
    assert skill.entry.uri == "skill://acme/refunds/SKILL.md"
    assert len(skill.files) == 2
    with pytest.raises(ValueError, match=r"has no SKILL\.md"):
        Skill.from_folder(tmp_path)
    (place / "SKILL.md").write_text("nothing")
    with pytest.raises(ValueError, match=r"refunds/SKILL\.md:1: "):
        Skill.from_folder(place)


def test_a_skill_from_package_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package_of_skills"
    write(package / "skills", "refunds", {"a/b.md": "x"})
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    skill = Skill.from_package("package_of_skills", "skills/refunds")
    assert list(skill.files) == ["skill://refunds/SKILL.md", "skill://refunds/a/b.md"]
    with pytest.raises(ValueError, match="has no folder"):
        Skill.from_package("package_of_skills", "skills/nothing")


def test_a_skill_from_code() -> None:
    described = 'Say "é", \u2028 and: # no comment'
    skill = Skill("refunds", described, {"SKILL.md": "Do it."}, fields={"metadata": {"v": [1]}})
    head = skill.files["skill://refunds/SKILL.md"]
    assert head.endswith(b"---\n\nDo it.")
    # what is written reads back as the entry says
    from wirespeed.skills.frontmatter import frontmatter_of

    assert frontmatter_of(head) == skill.entry.frontmatter == {
        "name": "refunds", "description": described, "metadata": {"v": [1]},
    }  # fmt: skip


@every(
    "name, files, options, why",
    [
        ("Refunds", {}, {}, "small letters"),
        ("refunds", {"../a": "x"}, {}, "dots"),
        ("refunds", {"/a": "x"}, {}, "empty"),
        ("refunds", {"a\\b": "x"}, {}, "cannot be the name of a file"),
        ("refunds", {}, {"path": "a//b"}, "empty"),
        ("refunds", {}, {"fields": {"name": "x"}}, "there is an argument for it"),
        (
            "refunds",
            {"SKILL.md": "---\nname: refunds\ndescription: y\n---\n"},
            {},
            "something else",
        ),
        ("refunds", {"a": "x" * 50}, {"limits": SkillLimits(size=10)}, "the limit is 10"),
    ],
)
def test_skills_from_code_that_are_refused(
    name: str, files: dict[str, str], options: dict[str, object], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        Skill(name, "x", files, **options)  # type: ignore[arg-type]
