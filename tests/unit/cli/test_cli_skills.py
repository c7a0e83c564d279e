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


@pytest.fixture
def proxy_file(folder: Path, tmp_path: Path) -> Path:
    command = {"command": sys.executable, "args": served(folder)[3:]}
    file = tmp_path / "proxy.json"
    file.write_text(
        json.dumps(
            {
                "mcpServers": {
                    "shop": {**command, "proxy": {"skills": "approved"}},
                    "other": command,
                },
                "proxy": {"approvals": "approved.json"},
            }
        )
    )
    return file


def test_skills_are_approved(folder: Path, tmp_path: Path, proxy_file: Path) -> None:
    uri, target = "skill://refunds/SKILL.md", f"{proxy_file}#shop"
    reviewed = tmp_path / "reviewed"

    def states() -> dict[str, str]:
        done = wirespeed("skill", "list", "--json", "--quiet-server", target)
        assert done.returncode == 0, done.stderr
        return {one["uri"]: one["state"] for one in json.loads(done.stdout)["skills"]}

    assert states() == {uri: "new"}
    wirespeed("skill", "get", "--quiet-server", target, uri, "--to", str(reviewed))
    (folder / "refunds" / "SKILL.md").write_text(
        "---\nname: refunds\ndescription: For refunds.\n---\nAnd more.\n"
    )
    given = ["--quiet-server", target, uri, "--reviewed", str(reviewed)]
    done = wirespeed("skill", "approve", *given)
    assert done.returncode == 2
    assert "SKILL.md is not what the server has" in one_line(done)
    assert states() == {uri: "new"}

    done = wirespeed("skill", "approve", "--quiet-server", target, uri)
    assert done.returncode == 0, done.stderr
    assert "approved skill://refunds/SKILL.md of shop: 2 files" in done.stderr
    assert states() == {uri: "approved"}
    kept = json.loads((tmp_path / "approved.json").read_text())["approvals"]
    assert [(one["server"], one["uri"]) for one in kept] == [("shop", uri)]
    assert wirespeed("skill", "diff", "--quiet-server", target, uri).returncode == 0

    (folder / "refunds" / "templates" / "mail.md").write_text("Send me …")
    (folder / "refunds" / "more.md").write_text("more")
    assert states() == {uri: "changed"}
    done = wirespeed("skill", "diff", "--quiet-server", target, uri)
    assert done.returncode == 4
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["added", "skill://refunds/more.md"],
        ["changed", "skill://refunds/templates/mail.md"],
    ]
    lock = tmp_path / "approved.json.lock"
    lock.unlink()
    lock.mkdir()
    done = wirespeed("skill", "revoke", target, uri)
    assert done.returncode == 2
    assert "approved.json cannot be written" in one_line(done)
    lock.rmdir()
    done = wirespeed("skill", "revoke", "--json", target, uri)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"revoked": [uri]})
    assert states() == {uri: "new"}


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
        (("skill",), 2, "say what to do: skill get, verify, list, diff, approve, revoke"),
        (("skill", "eat", "x.py"), 2, "not 'eat'"),
        (("skill", "get", "x.py"), 2, "URI is missing"),
        (("skill", "verify", "x.py", "--to", "y"), 2, "--to is for skill get"),
        (("skill", "diff", "x.py", "y", "--reviewed", "z"), 2, "--reviewed is for skill approve"),
        (("skill", "get", "x.py", "y", "--server", "z"), 2, "are for skill list, diff"),
        (("skill", "list", "x.py"), 2, "say where the approvals are"),
        (("skill", "list", "x.py", "--approvals", "y"), 2, "say what the proxy calls the server"),
        (("skill", "revoke", "x.py", "y", "--approvals", "z", "--server", "w"), 2, "not approved"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], code: int, text: str) -> None:
    done = wirespeed(*arguments)
    assert done.returncode == code
    assert text in one_line(done)
