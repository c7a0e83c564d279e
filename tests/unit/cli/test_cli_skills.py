"""Skills on the command line: served from a folder, listed, got, verified."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from lab.cli import one_line, wirespeed

LIAR = """
from wirespeed import Extension, Server

entry = {
    "uri": "skill://refunds/SKILL.md",
    "frontmatter": {"name": "refunds", "description": "Refunds."},
    "resources": [{"uri": "skill://refunds/SKILL.md", "digest": "sha256:" + "0" * 64, "size": 3}],
}

async def skills(params: dict) -> dict:
    return {"skills": [entry, {"uri": "skill://x"}], "ttlMs": 0, "cacheScope": "public"}

async def skill(params: dict) -> dict:
    return {"skill": entry, "ttlMs": 0, "cacheScope": "public"}

server = Server("liar")
server.add_extension(Extension("io.modelcontextprotocol/skills", required=False,
                               requests={"skills/list": skills, "skills/get": skill}))
server.add_resource("skill://refunds/SKILL.md", "---\\nname: refunds\\n---\\n")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "skills" / "refunds"
    (place / "templates").mkdir(parents=True)
    (place / "SKILL.md").write_text("---\nname: refunds\ndescription: For refunds.\n---\nDo it.\n")
    (place / "templates" / "mail.md").write_text("Dear …")
    (tmp_path / "skills" / "broken").mkdir()
    (tmp_path / "skills" / "broken" / "SKILL.md").write_text("nothing")
    return tmp_path / "skills"


def served(folder: Path) -> list[str]:
    command = [sys.executable, "-m", "wirespeed", "serve", "--skills", str(folder)]
    return ["--quiet-server", "--", *command]


def test_a_folder_is_served_listed_and_verified(folder: Path) -> None:
    done = wirespeed("list", "--skills", "--json", *served(folder))
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(done.stdout)["skills"]
    assert entry["uri"] == "skill://refunds/SKILL.md"
    assert len(entry["resources"]) == 2
    done = wirespeed("skill", "verify", *served(folder))
    assert done.returncode == 0, done.stderr
    size = sum(file["size"] for file in entry["resources"])
    assert done.stdout == f"skill://refunds/SKILL.md  2 files, {size} bytes\n"


def test_a_skill_is_got(folder: Path, tmp_path: Path) -> None:
    uri, to = "skill://refunds/SKILL.md", tmp_path / "got"
    done = wirespeed("skill", "get", *served(folder), "--", uri)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (folder / "refunds" / "SKILL.md").read_text()
    done = wirespeed("skill", "get", "--to", str(to), *served(folder), "--", uri)
    assert done.returncode == 0, done.stderr
    assert (to / "templates" / "mail.md").read_text() == "Dear …"
    done = wirespeed("skill", "get", "--to", str(to), *served(folder), "--", uri)
    assert done.returncode == 2
    assert "nothing is overwritten" in one_line(done)


def test_a_server_that_lies(tmp_path: Path) -> None:
    file = tmp_path / "liar.py"
    file.write_text(LIAR)
    done = wirespeed("skill", "verify", "--json", str(file))
    assert done.returncode == 4
    found = json.loads(done.stdout)
    assert found["bad"] == 2
    assert "is not the file that the entry names" in found["skills"][0]["problem"]
    done = wirespeed("skill", "get", str(file), "skill://refunds/SKILL.md")
    assert (done.returncode, done.stdout) == (4, "")
    assert "is not the file that the entry names" in one_line(done)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("serve",), 2, "Missing argument 'FILE.py[:NAME]', or --skills FOLDER"),
        (("serve", "--skills", "/nowhere"), 3, "cannot read the skills of /nowhere"),
        (("serve", "--lite", "--skills", "."), 2, "LiteMCP has no skills"),
        (("skill",), 2, "skill get TARGET URI, or skill verify TARGET"),
        (("skill", "eat", "x.py"), 2, "not 'eat'"),
        (("skill", "get", "x.py"), 2, "URI is missing"),
        (("skill", "verify", "x.py", "--to", "y"), 2, "--to is for skill get"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], code: int, text: str) -> None:
    done = wirespeed(*arguments)
    assert done.returncode == code
    assert text in one_line(done)
