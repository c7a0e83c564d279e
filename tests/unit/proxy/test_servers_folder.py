"""A folder with a file for each of further servers."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from lab.process import ProcessLab, pid, unix
from lab.rows import every
from lab.wording import raises

from wirespeed import Http, Stdio
from wirespeed.config import ServerUrl
from wirespeed.errors import ConfigError
from wirespeed.proxy.config import ProxyConfig
from wirespeed.proxy.file import MAX_FILES, load


def written(folder: Path, servers: dict[str, Any], *, name: str = "servers.d", **top: Any) -> Path:
    """A file with servers, which names a folder."""
    (folder / "servers.d").mkdir(exist_ok=True)
    path = folder / "proxy.json"
    path.write_text(json.dumps({"mcpServers": servers, "proxy": {"serversFolder": name, **top}}))
    return path


def targets(config: ProxyConfig) -> dict[str, Any]:
    return {one.name: one.target for one in config.backends}


def test_each_file_is_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST", "10.0.0.1")
    path = written(tmp_path, {"own": {"command": "own"}})
    folder = tmp_path / "servers.d"
    (folder / "b.toml").write_text(
        'urls = ["http://${HOST}/mcp", "http://b/mcp"]\nproxy = { isolation = "pool" }\n'
    )
    (folder / "a.json").write_text('{"command": "./a", "cwd": "."}')
    (folder / "off.json").write_text('{"command": "off", "enabled": false}')
    for name in (".hidden.json", "a.json~", "README", "c.json.new"):
        (folder / name).write_text("{")
    config = load(path)
    shown = "http://${HOST}/mcp"
    assert targets(config) == {
        "own": Stdio("own"),
        "a": Stdio(str(folder / "a"), cwd=str(folder)),
        "b": Http("http://10.0.0.1/mcp", shown=shown),
    }
    urls = ServerUrl("http://10.0.0.1/mcp", shown=shown), ServerUrl("http://b/mcp")
    assert config.backends[-1].urls == urls
    assert config.servers_folder == str(folder)


def test_a_file_without_servers_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path, {}, name=str(tmp_path / "servers.d"))
    with raises(ConfigError):
        load(path)
    (tmp_path / "servers.d" / "a.json").write_text('{"command": "a"}')
    assert targets(load(path)) == {"a": Stdio("a")}


FAULTY = [
    ("{", "line 1"),
    ("[]", "expected the object of one server"),
    ('{"mcpServers": {}}', "expected the object of one server"),
    ('{"proxy": {}}', 'expected "command" (a program to start) or "url"'),
    ('{"command": 5}', "bad.command"),
    ('{"command": "x", "command": "y"}', '"command" is there twice'),
    ('{"command": "x", "proxy": {"isolaton": "x"}}', "bad.proxy: object contains unknown field"),
    ('{"command": "${NOT_SET_ANYWHERE}"}', "NOT_SET_ANYWHERE is not set"),
]


@every(("text", "fault"), FAULTY)
def test_a_fault_costs_its_own_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, fault: str
) -> None:
    path = written(tmp_path, {"own": {"command": "own"}})
    folder = tmp_path / "servers.d"
    (folder / "bad.json").write_text(text)
    (folder / "good.json").write_text('{"command": "good"}')
    caplog.clear()
    assert set(targets(load(path))) == {"own", "good"}
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert fault in record.getMessage()
    assert str(folder / "bad.json") in record.getMessage()


def test_the_name_of_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is a name of a server, which another file may have already."""
    path = written(tmp_path, {"own": {"command": "own"}})
    folder = tmp_path / "servers.d"
    for name in ("own.json", "a.json", "a.toml", "not a name.json"):
        (folder / name).write_text('command = "x"' if name == "a.toml" else '{"command": "x"}')
    assert targets(load(path)) == {"own": Stdio("own"), "a": Stdio("x")}
    text = caplog.text
    assert f"own.json: {path} has a server own already" in text
    assert f"a.toml: {folder / 'a.json'} has a server a already" in text
    assert "a name has at most 64 letters" in text


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    """This is a fault of the file: a reload changes nothing."""
    path = written(tmp_path, {"own": {"command": "own"}}, name="missing")
    with raises(ConfigError):
        load(path)
    path = written(tmp_path, {"own": {"command": "own"}})
    for n in range(MAX_FILES + 1):
        (tmp_path / "servers.d" / f"{n}.json").touch()
    with raises(ConfigError):
        load(path)


@pytest.mark.own_environment
def test_the_folder_is_watched(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    socket = tmp_path / "s"
    folder = tmp_path / "servers.d"
    folder.mkdir()
    lab.write("a", "b")
    servers = json.loads(lab.file.read_text())["mcpServers"]
    own, other = servers["a"], servers["b"]
    written(tmp_path, {"a": own}, listen=[f"unix:{socket}"])
    (folder / "b.json").write_text(json.dumps(other))

    def pids(*names: str) -> list[int]:
        with unix(socket) as client:
            return [pid(client, f"{name}_echo") for name in names]

    with lab.running():
        before = pids("a", "b")
        (folder / "c.json").write_text(json.dumps(other))
        lab.until("reloaded: added: c")
        (folder / "b.json").write_text("{")  # it stays as it was
        lab.until("the server b stays as it was")
        lab.until("reloaded", 2)
        assert pids("a", "b") == before
        (folder / "b.json").write_text(json.dumps(other | {"env": {"MARK": "x"}}))
        lab.until("reloaded: changed: b")
        assert pids("a") == before[:1]
        (folder / "c.json").unlink()
        (folder / "b.json").unlink()
        lab.until("reloaded: removed: b, c")
