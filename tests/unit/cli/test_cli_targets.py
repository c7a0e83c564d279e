"""TARGET: files, configurations, commands, and what is none of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from wirespeed.cli import targets
from wirespeed.cli.failures import Exit, Failure
from wirespeed.errors import ConfigError


def find(word: str | None, command: list[str] | None = None) -> targets.Target:
    return targets.find(word, command, stderr="discard")


def refused(word: str) -> str:
    with pytest.raises(Failure) as caught:
        find(word)
    assert caught.value.code == Exit.UNREACHABLE
    return str(caught.value)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    servers: dict[str, Any] = {
        "one": {"command": "first", "args": ["-x"], "timeout": 7, "era": "legacy"},
        "t#wo": {"command": "second"},
        "far": {"url": "ws://127.0.0.1:1/"},
        "off": {"command": "third", "enabled": False},
    }
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def test_a_named_server_of_a_configuration(config: Path) -> None:
    target = find(f"{config}#one")
    assert target.stdio.argv == ["first", "-x"]
    assert (target.timeout, target.era) == (7.0, "legacy")
    # a configuration is a host's: only what it names reaches the server
    assert not target.stdio.inherit_env
    assert find(f"{config}#t#wo").stdio.argv == ["second"]


def test_a_file_with_a_sharp_in_its_name(config: Path) -> None:
    renamed = config.rename(config.with_name("my#mcp.json"))
    assert find(f"{renamed}#one").stdio.argv == ["first", "-x"]
    assert "has 3 servers" in refused(str(renamed))


def test_the_only_enabled_server_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    servers = {"a": {"command": "a"}, "b": {"command": "b", "disabled": True}}
    path.write_text(json.dumps({"mcpServers": servers}))
    assert find(str(path)).stdio.argv == ["a"]
    path.write_text('{"mcpServers": {}}')
    assert refused(str(path)) == f"{path} has no server that is enabled"
    assert refused(f"{path}#a") == f'{path} has no server "a"; it has none'


def test_what_a_configuration_does_not_have(config: Path) -> None:
    assert refused(str(config)) == f"{config} has 3 servers, so add #name: one, t#wo, far"
    assert refused(f"{config}#x") == f'{config} has no server "x"; it has one, t#wo, far, off'
    assert "not enabled" in refused(f"{config}#off")
    assert "speaks stdio only" in refused(f"{config}#far")
    config.write_text('{"mcpServers": {"a": {"command": 1}}}')
    with pytest.raises(ConfigError, match=r"mcpServers\.a\.command"):
        find(str(config))


@pytest.mark.parametrize(
    "url",
    ["ws://h/mcp", "wss://h", "https://h/x.py", "unix:/run/s", "tcp://h:1", "git+ssh://h#x"],
)
def test_urls_are_told_apart(url: str) -> None:
    assert refused(url).startswith(f"cannot connect to {url}: this version speaks stdio only")


def test_python_files(tmp_path: Path) -> None:
    path = tmp_path / "a b.py"
    path.write_text("")
    for word in (str(path), f"{path}:server", f"{path}:box.server"):
        target = find(word)
        assert target.stdio.argv == [sys.executable, "-m", "wirespeed", "serve", word]
        assert target.stdio.inherit_env
    assert refused(f"{path}x.py") == f"there is no file {path}x.py"
    (tmp_path / "folder.py").mkdir()
    assert refused(f"{tmp_path}/folder.py").endswith("folder.py is not a file")
    odd = tmp_path / "x.py:y.py"
    odd.write_text("")
    assert targets.python_file(str(odd)) == (str(odd), None)
    assert targets.python_file("server.json") is None


def test_other_words(tmp_path: Path) -> None:
    assert "there is no file nowhere; TARGET is" in refused("nowhere")
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert refused(str(program)) == f"{program} is a program; to start it write -- before it"
    with pytest.raises(ConfigError, match="cannot read the file"):
        find(str(tmp_path))


def test_a_command_gets_the_whole_environment() -> None:
    target = find(None, ["prog", "--", "-x", ""])
    assert target.stdio.argv == ["prog", "--", "-x", ""]
    assert target.stdio.inherit_env
