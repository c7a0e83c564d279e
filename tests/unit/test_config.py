"""mcpServers JSON: what is read, and what each fault is told."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from wirespeed.client.remote import Socket, WebSocket
from wirespeed.client.target import Stdio
from wirespeed.config import ServerConfig, load, loads
from wirespeed.errors import ConfigError, WirespeedError


def one(server: Any, **options: Any) -> ServerConfig:
    servers = loads(json.dumps({"mcpServers": {"time": server}}), source="f.json", **options)
    return servers["time"]


def fault(document: Any, **options: Any) -> str:
    text = document if isinstance(document, (str, bytes)) else json.dumps(document)
    with pytest.raises(ConfigError) as caught:
        loads(text, source="f.json", **options)
    error = caught.value
    assert isinstance(error, WirespeedError) and isinstance(error, ValueError)
    # Neither the text nor a cause or context gives away what is secret.
    assert "s3cret" not in "".join(traceback.format_exception(error))
    assert error.__context__ is None or error.__suppress_context__
    message = str(error)
    assert message.startswith("f.json: ")
    return message.removeprefix("f.json: ")


def server_fault(server: Any, **options: Any) -> str:
    return fault({"mcpServers": {"time": server}}, **options)


# -- what is read ------------------------------------------------------------------------


def test_everything(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    path.write_text(
        """
        {"mcpServers": {
            "time": {"command": "mcp-server-time", "args": ["--utc", ""],
                     "env": {"TOKEN": "t"}, "cwd": "data", "enabled": true, "autoStart": false,
                     "type": "stdio", "timeout": 30, "era": "legacy", "alwaysAllow": ["now"]},
            "remote": {"url": "wss://h/mcp", "headers": {"Authorization": "Bearer x"}},
            "off": {"command": "x", "enabled": false}
        }, "other": 1}
        """
    )
    servers = load(path)
    assert list(servers) == ["time", "remote", "off"]
    time = servers["time"]
    assert time == ServerConfig(
        "time",
        "stdio",
        command="mcp-server-time",
        args=("--utc", ""),
        env={"TOKEN": "t"},
        cwd=str(tmp_path / "data"),
        auto_start=False,
        timeout=30.0,
        era="legacy",
        extra={"alwaysAllow": ["now"]},
        source=str(path),
    )
    assert time.target() == Stdio(
        "mcp-server-time", ["--utc", ""], {"TOKEN": "t"}, tmp_path / "data"
    )
    assert time.target(stderr="discard") == Stdio(
        "mcp-server-time", ["--utc", ""], {"TOKEN": "t"}, tmp_path / "data", stderr="discard"
    )
    remote = servers["remote"]
    assert remote.transport == "ws"
    assert remote.target() == WebSocket("wss://h/mcp", headers={"Authorization": "Bearer x"})
    assert remote.headers == {"Authorization": "Bearer x"}
    assert (remote.enabled, remote.auto_start, remote.timeout, remote.era) == (
        True,
        True,
        None,
        "auto",
    )
    assert servers["off"].enabled is False
    assert len({hash(server) for server in servers.values()}) == 3
    assert pickle.loads(pickle.dumps(servers["off"])) == servers["off"]


def test_minimal_and_null() -> None:
    server = one({"command": "x", "args": None, "env": None, "cwd": None, "url": None})
    assert server == ServerConfig("time", "stdio", command="x", source="f.json")
    assert server.target() == Stdio("x")
    assert loads('{"mcpServers": {}}') == {}
    assert loads(b'\xef\xbb\xbf{"mcpServers": {}}') == loads('\ufeff{"mcpServers": {}}') == {}


def test_names_of_other_hosts() -> None:
    assert list(loads('{"servers": {"a": {"command": "x"}}}')) == ["a"]
    both = '{"servers": {"a": {"command": "x"}}, "mcpServers": {"b": {"command": "x"}}}'
    assert list(loads(both)) == ["b"]
    assert one({"command": "x", "disabled": True}).enabled is False
    assert one({"command": "x", "disabled": False}).enabled is True
    assert one({"command": "x", "protocolEra": "modern"}).era == "modern"
    assert one({"command": "x", "transport": "stdio"}).transport == "stdio"


@pytest.mark.parametrize(
    ("server", "transport"),
    [
        ({"url": "ws://h"}, "ws"),
        ({"url": "WSS://h", "type": "websocket"}, "ws"),
        ({"url": "wss://h/mcp", "headers": {"X-Key": "k"}}, "ws"),
        ({"url": "http://h"}, "http"),
        ({"url": "https://h", "type": "streamable-http"}, "http"),
        ({"url": "https://h", "type": "http", "transport": "streamableHttp"}, "http"),
        ({"url": "https://h", "type": "sse"}, "sse"),
        ({"url": "unix:/run/x"}, "unix"),
        ({"url": "tcp://h:1"}, "tcp"),
        ({"url": "http://h", "command": "x", "type": "stdio"}, "stdio"),
        ({"url": "http://h", "command": "x", "type": "http"}, "http"),
    ],
)
def test_transports(server: dict[str, Any], transport: str) -> None:
    got = one(server)
    assert got.transport == transport
    if transport in ("http", "sse"):
        expected = f'f.json: the server "time": this version speaks .*, not {transport}$'
        with pytest.raises(ConfigError, match=expected):
            got.target()
    elif transport == "ws":
        assert got.target() == WebSocket(server["url"], headers=server.get("headers"))
    else:
        assert got.target() == (Stdio("x") if transport == "stdio" else Socket(server["url"]))


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({"url": "ws://me:s3cret@h/"}, "must not hold a user or password"),
        ({"url": "ws://h:99999/"}, "the port must be a number from 0 to 65535"),
        ({"url": "tcp://h"}, "'tcp://h' has no port"),
        ({"url": "ws://h", "headers": {"A": "s3cret\r\nB: c"}}, r"headers\['A'\] has a line break"),
        ({"url": "ws://h", "headers": {"Host": "s3cret"}}, "the header Host is what the handshake"),
        ({"url": "unix:/x", "headers": {"A": "s3cret"}}, "headers mean nothing to unix:"),
    ],
)
def test_what_no_target_can_be_made_of(server: dict[str, Any], expected: str) -> None:
    config = one(server)
    with pytest.raises(ConfigError, match=expected) as caught:
        config.target()
    assert str(caught.value).startswith('f.json: the server "time": ')
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError, match=expected):
        config.client()


def test_a_socket_is_found_from_the_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    (tmp_path / "c.json").write_text(
        json.dumps({"mcpServers": {"a": {"url": "unix:run/x"}, "b": {"url": "unix:~/x"}}})
    )
    servers = load(tmp_path / "c.json")
    assert servers["a"].target() == Socket(f"unix:{tmp_path}/run/x")
    assert servers["b"].target() == Socket("unix:/home/me/x")


def test_paths(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "c.json"
    cases = {
        "node": "node",
        "./server": f"{tmp_path}/conf/server",
        "bin/server": f"{tmp_path}/conf/bin/server",
        "../server": f"{tmp_path}/conf/../server",
        "/opt/server": "/opt/server",
        "~/server": "/home/me/server",
    }
    for written, expected in cases.items():
        servers = {"a": {"command": written, "cwd": written, "args": [written]}}
        file.write_text(json.dumps({"mcpServers": servers}))
        monkeypatch.chdir(tmp_path)
        server = load("conf/c.json")["a"]  # relative to the file, wherever we are
        assert server.command == expected
        assert server.cwd == (f"{tmp_path}/conf/node" if written == "node" else expected)
        assert server.args == (written,)
    assert loads('{"mcpServers": {"a": {"command": "x", "cwd": "."}}}')["a"].cwd == os.getcwd()
    assert one({"command": "x", "cwd": "y"}, folder="/z").cwd == "/z/y"


def test_variables() -> None:
    environ = {"A": "1", "EMPTY": "", "DIR": "/d"}
    server = one(
        {
            "command": "${DIR}/x",
            "args": ["${A}${A}", "${env:A}", "${NO:-d e}", "${EMPTY:-d}", "${EMPTY}", "${NO:-}"],
            "env": {"K": "v${A}", "${A}": "plain"},
            "cwd": "${DIR}",
            "extra": "${NO}",
        },
        environ=environ,
    )
    assert (server.command, server.cwd) == ("/d/x", "/d")
    assert server.args == ("11", "1", "d e", "d", "", "")
    assert server.env == {"K": "v1", "${A}": "plain"}
    assert server.extra == {"extra": "${NO}"}
    args = ["$${A}", "$A", "$", "$$", "{A}", "a${A}$${A}"]
    expected = ("${A}", "$A", "$", "$$", "{A}", "a1${A}")
    assert one({"command": "x", "args": args}, environ=environ).args == expected
    server = one({"url": "ws://${A}", "headers": {"H": "Bearer ${A}"}}, environ=environ)
    assert (server.url, dict(server.headers)) == ("ws://1", {"H": "Bearer 1"})


def test_a_value_is_not_expanded_again() -> None:
    environ = {"A": "${B}", "B": "no"}
    assert one({"command": "x", "args": ["${A}"]}, environ=environ).args == ("${B}",)


def test_a_server_that_is_off_needs_no_variables() -> None:
    server = one({"command": "x", "env": {"K": "${NO}"}, "enabled": False}, environ={})
    assert server.env == {"K": "${NO}"}
    assert one({"url": "${NO}", "enabled": False}, environ={}).transport == "http"
    text = '{"mcpServers": {"a": {"command": "x", "enabled": false}, "b": {"command": "${NO}"}}}'
    assert fault(text, environ={}) == (
        "mcpServers.b.command: the environment variable NO is not set"
    )


def test_reprs_keep_secrets() -> None:
    server = one(
        {
            "url": "https://me:s3cret@h/p?key=s3cret",
            "headers": {"Authorization": "s3cret"},
            "token": "s3cret",
        }
    )
    assert repr(server) == "ServerConfig('time', url='https://h/p', headers=<Authorization>)"
    server = one({"command": "x", "env": {"A": "s3cret"}, "cwd": "/d", "enabled": False})
    assert repr(server) == (
        "ServerConfig('time', command='x', args=[], env=<A>, cwd='/d', enabled=False)"
    )
    assert "s3cret" not in repr(server.target())


# -- faults ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], 'expected an object with "mcpServers", got an array'),
        (5, 'expected an object with "mcpServers", got 5'),
        ({}, 'expected a key "mcpServers" (or "servers")'),
        ({"mcpServers": []}, "mcpServers: expected an object, got an array"),
        ({"servers": None}, "servers: expected an object, got null"),
        ({"mcpServers": {"a": "x"}}, 'mcpServers.a: expected an object, got "x"'),
        ({"mcpServers": {"a b": 5}}, 'mcpServers["a b"]: expected an object, got 5'),
        ({"mcpServers": {"a.b": {}}}, 'mcpServers["a.b"]: expected "command" (a program'),
        ({"mcpServers": {"": 5}}, 'mcpServers[""]: expected an object, got 5'),
        ('{"mcpServers": {}, "mcpServers": {}}', "mcpServers: the key is there twice"),
        ('{"mcpServers": {"a": {}, "a": {}}}', "mcpServers.a: the key is there twice"),
        (
            '{"mcpServers": {"a": {"command": "x", "env": {"B": "s3cret", "B": "s3cret"}}}}',
            "mcpServers.a.env.B: the key is there twice",
        ),
    ],
)
def test_document_faults(document: Any, expected: str) -> None:
    assert fault(document).startswith(expected)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({"command": "x", "args": ["a", 5]}, "args[1]: expected a string, got 5"),
        ({"command": "x", "args": "a b"}, 'args: expected an array of strings, got "a b"'),
        ({"command": "x", "args": [["a"]]}, "args[0]: expected a string, got an array"),
        ({"command": "x", "args": ["a\0"]}, "args[0]: contains a null character"),
        ({"command": ["x"]}, "command: expected a string, got an array"),
        ({"command": ""}, "command: expected a string that is not empty"),
        ({"command": "x", "env": {"PORT": 8080}}, "env.PORT: expected a string, got a number"),
        ({"command": "x", "env": {"A": None}}, "env.A: expected a string, got null"),
        ({"command": "x", "env": ["A=s3cret"]}, "env: expected an object, got an array"),
        ({"command": "x", "env": "A=s3cret"}, "env: expected an object, got a string"),
        ({"command": "x", "env": {"A=": "b"}}, 'env["A="]: not a possible variable'),
        ({"command": "x", "cwd": 5}, "cwd: expected a string, got 5"),
        ({"command": "x", "enabled": "yes"}, 'enabled: expected true or false, got "yes"'),
        ({"command": "x", "disabled": 1}, "disabled: expected true or false, got 1"),
        ({"command": "x", "autoStart": 0}, "autoStart: expected true or false, got 0"),
        ({"command": "x", "timeout": "5"}, "timeout: expected a number of seconds above 0"),
        ({"command": "x", "timeout": True}, "timeout: expected a number of seconds above 0"),
        ({"command": "x", "timeout": 0}, "timeout: expected a number of seconds above 0, got 0"),
        ({"command": "x", "timeout": 10**400}, "timeout: expected a number of seconds above 0"),
        (
            {"command": "x", "era": "new"},
            'era: expected one of "auto", "legacy", "modern", got "new"',
        ),
        ({"command": "x", "era": {}}, "era: expected one of"),
        ({"command": "x", "type": "pipe"}, 'type: expected one of "stdio", "ws", '),
        ({"command": "x", "type": ["stdio"]}, "type: expected one of"),
        ({"url": "ftp://h"}, 'url: expected a URL with one of "ws", "wss", "http", '),
        ({"url": "h"}, "url: expected a URL with one of"),
        ({"url": "ws://h", "type": "sse"}, 'url: "ws:" does not go with the type "sse"'),
        ({"url": "ws://h", "headers": {"A": 1}}, "headers.A: expected a string, got a number"),
        ({"command": "x" * 80, "args": ["y" * 70, {}]}, "args[1]: expected a string, got an obj"),
        ({"command": "x", "args": [10**70]}, f"args[0]: expected a string, got {'1' + '0' * 58}…"),
        ({"command": "${NO}"}, "command: the environment variable NO is not set"),
        ({"command": "x", "env": {"A": "${NO}s3cret"}}, "env.A: the environment variable NO is"),
        (
            {"command": "x", "args": ["${input:key}"]},
            "args[0]: expected ${NAME} or ${NAME:-default}, got '${input:key}'",
        ),
        ({"command": "x", "args": ["a${B"]}, "args[0]: expected ${NAME} or ${NAME:-default}, got"),
        ({"command": "x", "args": ["${}"]}, "args[0]: expected ${NAME}"),
        ({"command": "x", "args": ["${A:-${B}}"]}, "args[0]: expected ${NAME}"),
        ({"url": "ws://h", "headers": {"A": "${s3cret"}}, "headers.A: expected ${NAME} or"),
    ],
)
def test_server_faults(server: Any, expected: str) -> None:
    assert server_fault(server, environ={}).startswith(f"mcpServers.time.{expected}")


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({"args": ["x"]}, 'expected "command" (a program to start) or "url"'),
        ({"command": "x", "url": "ws://h"}, 'has both "command" and "url"; leave one out'),
        ({"url": "ws://h", "type": "stdio"}, 'expected "command", because its type is "stdio"'),
        ({"command": "x", "type": "http"}, 'expected "url", because its type is "http"'),
        ({"command": "x", "type": "stdio", "transport": "ws"}, '"type" and "transport" say'),
        ({"command": "x", "enabled": True, "disabled": True}, 'has both "enabled" and "disabled"'),
    ],
)
def test_faults_of_a_whole_server(server: Any, expected: str) -> None:
    assert server_fault(server).startswith(f"mcpServers.time: {expected}")


def test_faults_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: cannot read the file: No such file"):
        load(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot read the file: Is a directory"):
        load(tmp_path)
    path = tmp_path / "bad.json"
    path.write_bytes(b'{"mcpServers":\n{"\xff"')
    with pytest.raises(ConfigError) as caught:
        load(str(path))
    assert str(caught.value) == f"{path}: line 2: the file is not UTF-8"
    assert fault("") == fault(b" \n") == "the file is empty"
    assert fault("[" * 100_000) == "nested too deeply"
    assert fault('{"mcpServers": NaN}') == "NaN is not JSON"
    assert "4300" in fault('{"timeout": ' + "1" * 5000 + "}")


def test_trailing_comma() -> None:
    text = (
        '{\n  "mcpServers": {\n    "time": {\n      "command": "java",\n'
        '      "args": ["-jar", "x",]\n    }\n  }\n}'
    )
    assert fault(text) == (
        'line 5, column 27 (in mcpServers.time.args[1]): trailing comma before "]"; '
        "JSON allows none\n"
        '          "args": ["-jar", "x",]\n'
        "                              ^"
    )
    # The fault is where the comma is, not on the line after it.
    text = '{"mcpServers": {\n  "time": {\n    "command": "x",\n  }\n}}'
    assert fault(text) == (
        'line 3, column 19 (in mcpServers.time.command): trailing comma before "}"; '
        "JSON allows none\n"
        '        "command": "x",\n'
        "                      ^"
    )


@pytest.mark.parametrize(
    ("text", "first", "shown"),
    [
        (
            "{\"mcpServers\": {'time': 1}}",
            'line 1, column 17 (in mcpServers): strings and keys go in double quotes (")',
            "{\"mcpServers\": {'time' …",
        ),
        ('{"mcpServers": // all\n{}}', "line 1, column 16 (in mcpServers): JSON has no", None),
        (
            '{"mcpServers": {"a": {"command": "C:\\x"}}}',
            "line 1, column 37 (in mcpServers.a.command): invalid \\escape; write \\\\ for",
            None,
        ),
        (
            '{"mcpServers": {"a": {"args": ["x" "y"]}}}',
            "line 1, column 36 (in mcpServers.a.args[0]): expecting ',' delimiter; is a comma or",
            '{"mcpServers": {"a": {"args": ["x" "y" …',
        ),
        (
            '{"mcpServers": {"a": {"command": "x\n"}}}',
            "line 1, column 36 (in mcpServers.a.command): invalid control character; is a closing",
            '{"mcpServers": {"a": {"command": "x',
        ),
        (
            '{"mcpServers": {"a": "x',
            "line 1, column 22 (in mcpServers.a): unterminated string",
            None,
        ),
        ('{"mcpServers": {}} x', "line 1, column 20: extra data", '{"mcpServers": {}} x'),
        ('{"mcpServers": {"a b": [1 2', 'line 1, column 27 (in mcpServers["a b"][0]): exp', None),
    ],
)
def test_syntax_faults(text: str, first: str, shown: str | None) -> None:
    lines = fault(text).splitlines()
    assert lines[0].startswith(first)
    assert shown is None or lines[1] == "    " + shown
    column = int(first.split()[3].rstrip(":,"))
    assert lines[2] == " " * (3 + column) + "^"


def test_a_long_line_is_cut() -> None:
    text = '{"mcpServers": {"a": {"args": [' + '"x", ' * 100 + "'y'"
    first, line, caret = fault(text).splitlines()
    assert first.startswith("line 1, column 532 (in mcpServers.a.args[100])")
    assert line == "    …" + ('"x", ' * 100)[-79:] + "'y'"
    assert caret == " " * 84 + "^"


@pytest.mark.parametrize("key", ["env", "headers"])
@pytest.mark.parametrize(
    "broken",
    [
        '{"A": "s3cret",}',
        '{"A": "s3cret" "B": "s3cret"}',
        '{"A": "s3cret", "B": \'s3cret\'}',
        '{"A": s3cret}',
        '{"A": "s3cret\n"}',
        '{"A": "s3cret\t"}',
        '{"A": "s3cret\\q"}',
        '{"A": "{s3cret,\\q"}',
        '{"A": "\\qs3cret"}',
        '{"A": "s3cret',
        '{"A": "s3cret\\',
        '{"A": ["s3cret", {"k": "s3cret"} "s3cret"]',
        '{"A": "s3cret"} "B": "s3cret"',
        '{"A": "s3cret"}, }',
        '{"A": "s3cret"}}}} x',
        '"s3cret" "s3cret"',
        '{"A" "s3cret"}',
    ],
)
def test_syntax_faults_keep_secrets(key: str, broken: str) -> None:
    message = fault(f'{{"mcpServers": {{"a": {{"command": "x", "{key}": {broken}')
    assert "line 1" in message  # and fault() has looked for the secret


def test_secrets_are_recognised_by_escaped_names() -> None:
    fault('{"mcpServers": {"a": {"\\u0065nv": {"A": "s3cret",}')


def test_import_is_cheap() -> None:
    code = "import sys, wirespeed.config; print(*sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert "wirespeed.config" in loaded
    heavy = {"asyncio", "uvloop", "msgspec", "orjson", "click", "rich", "subprocess", "logging"}
    assert not loaded & heavy
