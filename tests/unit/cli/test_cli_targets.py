"""TARGET: files, configurations, commands, and what is none of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.wording import raises

from wirespeed import Http, Socket, WebSocket
from wirespeed.cli import targets
from wirespeed.cli.credentials import Secret
from wirespeed.cli.failures import Exit, Failure
from wirespeed.client.targets import python_file
from wirespeed.errors import ConfigError

pytestmark = pytest.mark.smoke


def find(word: str | None, command: list[str] | None = None, **access: Any) -> targets.Target:
    return targets.find(word, command, stderr="discard", access=targets.RemoteAccess(**access))


def websocket(word: str, **access: Any) -> WebSocket:
    endpoint = find(word, **access).endpoint
    assert isinstance(endpoint, WebSocket)
    return endpoint


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
    assert target.endpoint.argv == ["first", "-x"]
    assert (target.timeout, target.era) == (7.0, "legacy")
    # a configuration is a host's: only what it names reaches the server
    assert not target.endpoint.inherit_env
    assert find(f"{config}#t#wo").endpoint.argv == ["second"]


def test_a_file_with_a_sharp_in_its_name(config: Path) -> None:
    renamed = config.rename(config.with_name("my#mcp.json"))
    assert find(f"{renamed}#one").endpoint.argv == ["first", "-x"]
    assert "has 3 servers" in refused(str(renamed))


def test_the_only_enabled_server_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    servers = {"a": {"command": "a"}, "b": {"command": "b", "disabled": True}}
    path.write_text(json.dumps({"mcpServers": servers}))
    assert find(str(path)).endpoint.argv == ["a"]
    path.write_text('{"mcpServers": {}}')
    assert refused(str(path)) == f"{path} has no server that is enabled"
    assert refused(f"{path}#a") == f'{path} has no server "a"; it has none'


def test_what_a_configuration_does_not_have(config: Path) -> None:
    assert refused(str(config)) == f"{config} has 3 servers, so add #name: one, t#wo, far"
    assert refused(f"{config}#x") == f'{config} has no server "x"; it has one, t#wo, far, off'
    assert "not enabled" in refused(f"{config}#off")
    config.write_text('{"mcpServers": {"a": {"command": 1}}}')
    with raises(ConfigError):
        find(str(config))


@pytest.mark.parametrize("url", ["ftp://h/x.py", "git+ssh://h#x"])
def test_urls_that_are_not_spoken(url: str) -> None:
    text = refused(f"{url}?key=open-sesame")
    assert text.startswith("cannot connect to ")
    assert ": this version supports http:, https:, ws:, wss:, http+unix:, unix: and tcp: " in text
    assert "sesame" not in text


def test_urls() -> None:
    for url in ("ws://h/mcp", "wss://h", "ws://[::1]:8/x?q=1"):
        target = websocket(url)
        # one command, one connection
        assert (target.url, target.restart, target.open_timeout) == (url, 0, 10.0)
    for url in ("http://h/mcp?q=1", "https://h/x.py"):
        far = find(url, secret=TYPED, headers={"x": "1"}).endpoint
        assert isinstance(far, Http)
        assert (far.url, far.restart, far.open_timeout) == (url, 0, 10.0)
        assert far.request_headers() == {"x": "1", "Authorization": "Bearer typed"}
    for url in ("unix:/run/s", "unix:s", "tcp://h:1"):
        endpoint = find(url).endpoint
        assert isinstance(endpoint, Socket)
        assert (endpoint.url, endpoint.restart) == (url, 0)
    assert websocket("ws://h", timeout=3.5).open_timeout == 3.5
    assert websocket("ws://h", timeout=0).open_timeout >= 1e9


def bad(word: str, **access: Any) -> str:
    with pytest.raises(Failure) as caught:
        find(word, **access)
    assert caught.value.code == Exit.USAGE
    return str(caught.value)


def test_urls_that_cannot_be() -> None:
    assert "port" in bad("ws://h:99999/")
    assert "no host" in bad("ws:///x")
    assert "no port" in bad("tcp://h")
    assert "fragment" in bad("wss://h/#x")


TYPED = Secret(("typed",), "--token")
FOUND = Secret(("found",), "WIRESPEED_TOKEN")


def test_tokens_of_urls() -> None:
    assert websocket("ws://h", secret=TYPED).token == "typed"
    assert websocket("ws://localhost:1", secret=FOUND).token == "found"
    own = {"authorization": "Bearer own"}
    target = websocket("ws://h", secret=FOUND, headers=own)
    assert (target.token, dict(target.headers)) == (None, own)
    assert "say the same" in bad("ws://h", secret=TYPED, headers=own)
    # the variable may be there for another server; what is typed must not go unused
    assert isinstance(find("unix:/run/s", secret=FOUND).endpoint, Socket)
    assert "a token is for targets of HTTP and WebSocket; unix: has" in bad("unix:/s", secret=TYPED)
    assert "--header is for targets of HTTP" in bad("tcp://h:1", headers={"a": "b"})
    assert "--ca is for https:// and wss:// targets" in bad("tcp://h:1", ca="x")


def test_the_token_of_the_environment_stays_on_this_machine(monkeypatch: Any, capsys: Any) -> None:
    for url in ("ws://127.0.0.1:1", "wss://[::1]:1/x", "ws://app.localhost:1"):
        assert websocket(url, secret=FOUND).token == "found"
    assert capsys.readouterr().err == ""
    for url in ("ws://h", "wss://tools.example/mcp", "ws://127.0.0.1.example:1"):
        assert websocket(url, secret=FOUND).token is None
        host = url.split("/")[2].partition(":")[0]
        assert capsys.readouterr().err == (
            f"wirespeed: WIRESPEED_TOKEN is not sent to {host}: "
            f"set WIRESPEED_TOKEN_HOST={host} to send it there\n"
        )
    monkeypatch.setenv("WIRESPEED_TOKEN_HOST", "other.example, Tools.Example")
    assert websocket("wss://tools.example/mcp", secret=FOUND).token == "found"
    assert websocket("wss://evil.example/mcp", secret=FOUND).token is None
    assert websocket("wss://evil.example/mcp", secret=TYPED).token == "typed"


def test_a_configuration_has_its_own_headers(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    entry = {"url": "wss://h/mcp", "headers": {"Authorization": "Bearer own", "X": "1"}}
    servers: dict[str, Any] = {"a": entry, "b": {"url": "unix:/s"}, "c": {"url": "https://h/"}}
    path.write_text(json.dumps({"mcpServers": servers}))
    target = websocket(f"{path}#a")
    assert (target.url, dict(target.headers)) == (entry["url"], entry["headers"])
    # a token of the environment is not for any server of a file
    target = websocket(f"{path}#a", secret=FOUND, headers={"x": "2"})
    assert target.token is None
    assert dict(target.headers) == {"Authorization": "Bearer own", "x": "2"}
    target = websocket(f"{path}#a", secret=TYPED)
    assert (target.token, dict(target.headers)) == ("typed", {"X": "1"})
    assert isinstance(find(f"{path}#b", secret=FOUND).endpoint, Socket)
    far = find(f"{path}#c", secret=FOUND).endpoint
    assert isinstance(far, Http) and (far.url, far.token) == ("https://h/", None)


def test_an_authority_to_trust(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    assert bad("wss://h", ca=str(path)) == (
        f"cannot read the --ca file {path}: No such file or directory"
    )
    path.write_text("none\n")
    assert bad("wss://h", ca=str(path)) == f"{path} has no certificates that --ca can trust (PEM)"
    assert bad("ws://h", ca=str(path)) == (
        "--ca is for https:// and wss:// targets; ws:// has no certificates"
    )
    assert "http:// has no certificates" in bad("http://h", ca=str(path))


def test_python_files(tmp_path: Path) -> None:
    path = tmp_path / "a b.py"
    path.write_text("")
    for word in (str(path), f"{path}:server", f"{path}:box.server"):
        target = find(word)
        assert target.endpoint.argv == [sys.executable, "-m", "wirespeed", "serve", word]
        assert target.endpoint.inherit_env
    assert refused(f"{path}x.py") == f"there is no file {path}x.py"
    (tmp_path / "folder.py").mkdir()
    assert refused(f"{tmp_path}/folder.py").endswith("folder.py is not a file")
    odd = tmp_path / "x.py:y.py"
    odd.write_text("")
    assert python_file(str(odd)) == (str(odd), None)
    assert python_file("server.json") is None


def test_other_words(tmp_path: Path) -> None:
    assert "there is no file nowhere; TARGET is" in refused("nowhere")
    for place in ("localhost:8000", "127.0.0.1:8000/mcp"):
        assert refused(place).endswith(f"; for a server write http://{place}")
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert refused(str(program)) == f"{program} is a program; to start it write -- before it"
    with raises(ConfigError):
        find(str(tmp_path))


def test_a_command_gets_the_whole_environment() -> None:
    target = find(None, ["prog", "--", "-x", ""])
    assert target.endpoint.argv == ["prog", "--", "-x", ""]
    assert target.endpoint.inherit_env
