"""``install``, ``uninstall``, ``discover``: what is written starts the server; the rest stays."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.cli import error_of, on_terminal, one_line
from lab.cli import forked as wirespeed
from lab.rows import every
from lab.wording import raises

from wirespeed import Client, config
from wirespeed.cli.failures import Failure
from wirespeed.cli.hosts import files
from wirespeed.cli.hosts import install as hosts_install
from wirespeed.cli.hosts.known import HOSTS, Launch, Remote

FILE = '''
import os
from helper import NAME
from wirespeed import Server

print("loud"); os.write(1, b"louder")
server = Server(NAME)
other = Server("other one/2")

@server.tool
async def where() -> str:
    """The directory of the process."""
    return os.getcwd()

@other.tool
async def where_else() -> str:
    """Nowhere."""
    return "nowhere"

server.run()
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "helper.py").write_text("NAME = 'notes'\n")
    (folder / "served.py").write_text(FILE)
    return folder


def printed(folder: Path, *words: str) -> dict[str, Any]:
    done = wirespeed("install", "--print", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    whole: dict[str, Any] = json.loads(done.stdout)
    return whole


@pytest.mark.parametrize(
    ("url", "kind"),
    [("wss://h.example/mcp", "ws"), ("ws://h:1/", "ws"), ("https://h.example/mcp", "http")],
)
def test_a_server_at_a_url(folder: Path, url: str, kind: str) -> None:
    whole = printed(folder, url, "--key", "tools")
    assert whole == {"mcpServers": {"tools": {"type": kind, "url": url}}}
    server = config.loads(json.dumps(whole))["tools"]
    assert (server.problem, server.transport, server.url) == ("", kind, url)
    if kind == "http":
        assert printed(folder, "vscode", url) == {"servers": {"server": {"type": kind, "url": url}}}


@pytest.mark.parametrize("url", ["unix:/run/x", "tcp://h:1", "https://"])
def test_a_url_that_no_host_reaches(folder: Path, url: str) -> None:
    done = wirespeed("install", "--print", url, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done)


async def test_what_is_printed_starts_the_server(folder: Path, tmp_path: Path) -> None:
    whole = printed(folder, "served.py")
    assert whole == {
        "mcpServers": {
            "notes": {
                "command": os.path.abspath(sys.executable),
                "args": ["-m", "wirespeed", "serve", str(folder / "served.py")],
            }
        }
    }
    file = tmp_path / "mcp.json"
    entry = whole["mcpServers"]["notes"]
    file.write_text(json.dumps({"mcpServers": {"notes": {**entry, "cwd": "/"}}}))
    async with config.load(file)["notes"].client() as client:
        result = await client.call_tool("where")
        assert result.content[0].text == "/"
    done = wirespeed("list", f"{file}#notes", cwd=Path("/"))
    assert (done.returncode, "where" in done.stdout) == (0, True)


async def test_a_named_server_in_the_form_of_vscode(folder: Path) -> None:
    whole = printed(folder, "vscode", "served.py:other")
    (entry,) = whole["servers"].values()
    assert list(whole["servers"]) == ["other-one-2"]
    assert entry["type"] == "stdio"
    async with Client(config.loads(json.dumps(whole))["other-one-2"].target()) as client:
        assert [tool.name for tool in await client.list_tools()] == ["where_else"]


def test_the_key(folder: Path) -> None:
    assert list(printed(folder, "served.py", "--key", "my_Key-1")["mcpServers"]) == ["my_Key-1"]
    done = wirespeed("install", "--print", "served.py", "--key", "my key", cwd=folder)
    assert (done.returncode, one_line(done).startswith("--key: letters, digits")) == (2, True)


def test_a_file_that_cannot_be_served(folder: Path) -> None:
    (folder / "served.py").write_text("x = 1\n")
    done = wirespeed("install", "--print", "served.py", cwd=folder)
    assert done.returncode == 3
    assert one_line(done).startswith("served.py has no Server at module level")
    done = wirespeed("install", "--print", "missing.py", cwd=folder)
    assert (done.returncode, one_line(done)) == (3, "there is no file missing.py")


# -- files of hosts -------------------------------------------------------------------------------

ENTRY = {"command": "/p", "args": ["a", "b"], "env": {"K": "v"}}
COMMENTED = """{
    // the theme
    "theme": "x", /* dark */
    "mcpServers": {
        "a": {"command": "x"} // the last
    },
}
"""
TOML = """model = "m" # mine

[mcp_servers.a]
command = "x"

[mcp_servers."notes".env]
OLD = "1"

[mcp_servers.notes]
command = "old"

[other]
x = 1
"""


@every(
    ("name", "text"),
    [
        ("a.json", ""),
        ("a.json", "{}"),
        ("a.json", '{"mcpServers": {}}'),
        ("a.json", COMMENTED),
        ("a.json", '\ufeff{"x": [1, {"y": "}"}] }'),
        ("a.json", '{\n\t"mcpServers": {\n\t\t"notes": {"command": "old"},\n\t\t"b": {}\n\t}\n}'),
        ("a.json", '{"mcpServers": {"b": {}, "notes": 7, }}'),
        ("a.json", '{"a": "\\"{//", "mcpServers": {"b//": {"c": "/* \\\\"}}}'),
        ("a.toml", ""),
        ("a.toml", TOML),
        ("a.toml", 'mcpServers.b.command = "x"\n'),
    ],
)
def test_only_the_entry_changes(name: str, text: str) -> None:
    path = ("mcp_servers" if name.endswith("toml") else "mcpServers", "notes")
    before = files.servers_in(text, name, path[:1])
    new = files.edited(text, name, path, ENTRY)
    assert files.servers_in(new, name, path[:1]) == before | {"notes": ENTRY}
    assert files.edited(new, name, path, ENTRY) == new
    without = files.edited(new, name, path, None)
    rest = {key: value for key, value in before.items() if key != "notes"}
    assert files.servers_in(without, name, path[:1]) == rest
    if "notes" not in before and before:
        assert without == text or name.endswith("toml") or "\n" not in text


def test_comments_and_indents_stay() -> None:
    new = files.edited(COMMENTED, "a.json", ("mcpServers", "notes"), {"command": "/p"})
    added = '        "notes": {\n            "command": "/p"\n        }'
    before = '"a": {"command": "x"}'
    assert new == COMMENTED.replace(f"{before} // the last", f"{before}, // the last\n{added}")
    assert files.edited(new, "a.json", ("mcpServers", "notes"), None) == COMMENTED


NOTES = """[mcp_servers.a]
command = "x"

[mcp_servers.notes]
command = "old"
# old = 1

# What follows is mine.
[profile]
x = 1
"""


def test_comments_before_the_next_table_stay() -> None:
    path = ("mcp_servers", "notes")
    kept = "# old = 1\n\n# What follows is mine.\n[profile]\nx = 1\n"
    before = '[mcp_servers.a]\ncommand = "x"\n\n'
    assert files.edited(NOTES, "a.toml", path, None) == before + kept
    new = files.edited(NOTES, "a.toml", path, {"command": "/p"})
    assert new == f'{before}[mcp_servers.notes]\ncommand = "/p"\n\n{kept}'


@every(
    ("name", "text"),
    [
        ("a.json", "{"),
        ("a.json", "[]"),
        ("a.json", '{"mcpServers": 7}'),
        ("a.json", '{"mcpServers": {"notes": {}, "notes": {}}}'),
        ("a.toml", "x ="),
        ("a.toml", 'mcp_servers = {notes = {command = "x"}}'),
        ("a.toml", 'mcp_servers.notes.command = "x"'),
        ("a.toml", 'x = """\n[mcp_servers.notes]\n"""'),
    ],
)
def test_a_file_that_cannot_be_edited_is_left_alone(name: str, text: str) -> None:
    path = ("mcp_servers" if name.endswith("toml") else "mcpServers", "notes")
    with raises(Failure):
        files.edited(text, name, path, ENTRY)


@pytest.mark.parametrize("host", HOSTS)
def test_the_entry_of_every_host_is_read_again(host: str) -> None:
    one = HOSTS[host]
    suffix = ".toml" if host == "codex" else ".json"
    text = files.rendered((*one.path, "n"), one.entry(Launch("/p", ("a",), {"K": "v"})), suffix)
    server = config.loads(text, source=f"x{suffix}", environ={})["n"]
    assert (server.command, server.args, server.env) == ("/p", ("a",), {"K": "v"})
    assert server.problem == ""
    if host == "claude-desktop":
        with pytest.raises(Failure, match="Connectors"):
            one.entry(Remote("https://h.example/mcp", {}))
        return
    remote = one.entry(Remote("https://h.example/mcp", {"X-Team": "blue"}))
    server = config.loads(
        files.rendered((*one.path, "n"), remote, suffix), source=f"x{suffix}", environ={}
    )["n"]
    assert (server.url, server.headers) == ("https://h.example/mcp", {"X-Team": "blue"})
    assert (server.transport, server.problem) == ("http", "")


# -- install and uninstall ------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


def test_install_writes_once_and_keeps_a_copy(folder: Path, home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"a": {"command": "x", "env": {"API_KEY": "s3cret"}}}}\n')
    file.chmod(0o640)
    before = file.read_text()
    done = wirespeed("install", "cursor", "served.py", cwd=folder)
    assert done.returncode == 0
    assert "+++ ~/.cursor/mcp.json" in done.stdout
    assert '+    "notes": {' in done.stdout
    assert "s3cret" not in done.stdout
    assert "next: " in done.stdout
    servers = json.loads(file.read_text())["mcpServers"]
    assert list(servers) == ["a", "notes"]
    assert servers["notes"]["args"][-1] == str(folder / "served.py")
    assert file.stat().st_mode & 0o777 == 0o640
    (copy,) = file.parent.glob("mcp.json.*.bak")
    assert copy.read_text() == before
    written = file.read_text()
    done = wirespeed("install", "cursor", "served.py", cwd=folder)
    assert done.stdout == "~/.cursor/mcp.json has notes already\n"
    assert file.read_text() == written
    assert len(list(file.parent.iterdir())) == 2
    done = wirespeed("uninstall", "cursor", "served.py", "--json", cwd=folder)
    assert json.loads(done.stdout)["changed"] is True
    assert list(json.loads(file.read_text())["mcpServers"]) == ["a"]
    done = wirespeed("uninstall", "cursor", "notes", cwd=folder)
    assert one_line(done) == "~/.cursor/mcp.json has no server notes; it has a"


def test_a_copy_is_as_private_as_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"secret": 1}')
    file.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(file, 12345, 12346)
    owner = (file.stat().st_uid, file.stat().st_gid)
    copy = Path(str(hosts_install._write(str(file), file.read_bytes(), b"{}", private=True)))
    for one, text in ((file, "{}"), (copy, '{"secret": 1}')):
        assert one.read_text() == text
        status = one.stat()
        assert status.st_mode & 0o7777 == 0o600
        assert (status.st_uid, status.st_gid) == owner


def test_a_file_that_was_changed_meanwhile_stays(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text("{}")
    with raises(Failure):
        hosts_install._write(str(file), b"[]", b"{}", private=True)
    assert [one.name for one in tmp_path.iterdir()] == ["mcp.json"]
    assert file.read_text() == "{}"


def test_a_new_file_is_private_and_a_link_stays(folder: Path, home: Path) -> None:
    real = home / "dotfiles.json"
    real.write_text("{}")
    (home / ".claude.json").symlink_to(real)
    assert wirespeed("install", "claude-code", "served.py", cwd=folder).returncode == 0
    assert (home / ".claude.json").is_symlink()
    assert json.loads(real.read_text())["mcpServers"]["notes"]["type"] == "stdio"
    assert wirespeed("install", "gemini", "served.py", cwd=folder).returncode == 0
    assert (home / ".gemini" / "settings.json").stat().st_mode & 0o777 == 0o600


def test_the_project_and_other_files(folder: Path, home: Path) -> None:
    done = wirespeed("install", "vscode", "served.py", "--project", "--json", cwd=folder)
    assert json.loads(done.stdout)["file"] == str(folder / ".vscode" / "mcp.json")
    (folder / "mine.json").write_text('{"context_servers": {"a": {"command": "x"}}}')
    done = wirespeed("install", "mine.json", "--key", "n", "--", sys.executable, "-V", cwd=folder)
    assert done.returncode == 0, done.stderr
    servers = json.loads((folder / "mine.json").read_text())["context_servers"]
    assert servers["n"] == {"command": os.path.abspath(sys.executable), "args": ["-V"]}
    (home / ".config" / "opencode").mkdir(parents=True)
    second = home / ".config" / "opencode" / "opencode.jsonc"
    second.write_text('{"mcp": {"servers": {}}, /* second */}')
    assert wirespeed("install", "opencode", "https://h.example/mcp", cwd=folder).returncode == 0
    assert "/* second */" in second.read_text()
    assert config.load(second)["server"].url == "https://h.example/mcp"


def test_another_server_of_the_key_is_not_lost(folder: Path, home: Path) -> None:
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text('[mcp_servers.notes]\ncommand = "mine"\n')
    done = wirespeed("install", "codex", "served.py", cwd=folder)
    assert done.returncode == 2
    assert "has another server notes: --yes replaces it" in done.stderr
    assert "mine" in file.read_text()
    done = wirespeed("install", "codex", "served.py", "--yes", "--env", "A=1", cwd=folder)
    assert done.returncode == 0
    assert config.load(file)["notes"].env == {"A": "1"}


def test_a_person_is_asked(folder: Path, home: Path) -> None:
    args = ["install", "cursor", "served.py"]
    written, status = on_terminal(args, talk=[("Write this? [Y/n]: ", "n\n")], cwd=folder)
    assert status == 2
    assert "\x1b[32m+" in written
    assert not (home / ".cursor").exists()
    written, status = on_terminal(args, talk=[("Write this? [Y/n]: ", "\n")], cwd=folder)
    assert status == 0
    assert (home / ".cursor" / "mcp.json").exists()
    done = wirespeed("install", "zed", "served.py", "--dry-run", cwd=folder)
    assert (done.returncode, '+  "context_servers": {' in done.stdout) == (0, True)
    assert not (home / ".config").exists()


@every(
    ("args", "text"),
    [
        (["install"], "HOST and FILE.py are missing"),
        (["install", "cursor"], "FILE.py or URL is missing"),
        (["install", "x.py"], "HOST is missing: one of claude-desktop"),
        (["install", "curser", "x.py"], "there is no host 'curser': did you mean cursor?"),
        (["install", "cursor", "x.py", "y"], "there is 'y' after them"),
        (["install", "--print"], "FILE.py or URL is missing"),
        (["install", "windsurf", "x.py", "--project"], "Windsurf has no file in projects"),
        (["install", "cursor", "wss://h.example/"], "http:// and https:// URLs only"),
        (["install", "cursor", "https://h.example/", "--env", "A=1"], "--env is for a server"),
        (["install", "cursor", "--env", "1A=1", "--", "sh"], "--env takes NAME=VALUE"),
        (["install", "cursor", "--env", "NOT_SET_HERE", "--", "sh"], "is not set here"),
        (["install", "cursor", "--"], "there is no command after --"),
    ],
)
def test_wrong_lines(home: Path, args: list[str], text: str) -> None:
    done = wirespeed(*args)
    assert done.returncode == 2
    assert text in one_line(done)


# -- discover -------------------------------------------------------------------------------------


def test_discover_starts_nothing_unasked(folder: Path, home: Path) -> None:
    mark = home / "started"
    (home / ".cursor").mkdir()
    touch = {"command": "touch", "args": [str(mark)]}
    keys = {"command": "x", "args": ["--api-key", "s3cret"], "disabled": True}
    (home / ".cursor" / "mcp.json").write_text(
        json.dumps({"mcpServers": {"touch": touch, "off": keys, "bad": {"command": 1}}})
    )
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text('model = "m"\n')
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text("{")
    local = {"projects": {str(folder): {"mcpServers": {"here": {"command": "x"}}}}}
    (home / ".claude.json").write_text(json.dumps(local))
    assert wirespeed("install", "claude-code", "served.py", "--project", cwd=folder).returncode == 0
    done = wirespeed("discover", cwd=folder)
    assert done.returncode == 0
    assert "s3cret" not in done.stdout
    assert "switched off" in done.stdout
    assert "cannot be used" in done.stdout
    assert "Gemini CLI: " in done.stderr
    assert not mark.exists()
    found = json.loads(wirespeed("discover", "--json", cwd=folder).stdout)["servers"]
    assert [(one["host"], one["scope"], one["key"]) for one in found] == [
        ("claude-code", "local", "here"),
        ("claude-code", "project", "notes"),
        ("cursor", "user", "touch"),
        ("cursor", "user", "off"),
        ("cursor", "user", "bad"),
    ]
    done = wirespeed("discover", "--try", "--json", cwd=folder)
    tried = {one["key"]: one.get("tried") for one in json.loads(done.stdout)["servers"]}
    assert tried["off"] is tried["bad"] is None
    assert tried["touch"]["ok"] is tried["here"]["ok"] is False
    assert (tried["notes"]["ok"], tried["notes"]["tools"]) == (True, 1)
    assert mark.exists()


def test_discover_of_nothing(home: Path) -> None:
    done = wirespeed("discover", cwd=home)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no host of this machine has a server" in done.stderr
    assert error_of(wirespeed("install", "--json", "nowhere", "x.py"))["type"] == "UsageError"
