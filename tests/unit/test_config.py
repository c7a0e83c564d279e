"""mcpServers JSON: what is read, and what each fault is told."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from lab.rows import every
from lab.wording import raises
from rich.pretty import pretty_repr

from wirespeed import Client
from wirespeed.auth import ClientCredentials, OAuth
from wirespeed.client.targets import Http, Socket, WebSocket
from wirespeed.config import AuthConfig, ServerConfig, load, loads
from wirespeed.errors import ConfigError, LaunchError, WirespeedError
from wirespeed.transport.child.command import Stdio
from wirespeed.transport.child.process import Child


def one(server: Any, **options: Any) -> ServerConfig:
    servers = loads(json.dumps({"mcpServers": {"time": server}}), source="f.json", **options)
    return servers["time"]


def fault(document: Any, **options: Any) -> str:
    text = document if isinstance(document, (str, bytes)) else json.dumps(document)
    with pytest.raises(ConfigError) as caught:
        for server in loads(text, source="f.json", **options).values():
            server.target()  # a fault of an entry costs this server
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
        shown=("mcp-server-time", "--utc", ""),
        unread=("alwaysAllow",),
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
    assert server == ServerConfig("time", "stdio", command="x", source="f.json", shown=("x",))
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


@every(
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
        assert got.target() == Http(server["url"])
    elif transport == "ws":
        assert got.target() == WebSocket(server["url"], headers=server.get("headers"))
    else:
        assert got.target() == (Stdio("x") if transport == "stdio" else Socket(server["url"]))


@every(
    ("server", "expected"),
    [
        ({"url": "ws://me:s3cret@h/"}, "must not hold a user or password"),
        ({"url": "ws://h:99999/"}, "the port must be a number from 0 to 65535"),
        ({"url": "tcp://h"}, "'tcp://h' has no port"),
        ({"url": "ws://h", "headers": {"A": "s3cret\r\nB: c"}}, r"headers\['A'\] has a line break"),
        ({"url": "ws://h", "headers": {"Host": "s3cret"}}, "itself writes the header Host"),
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


def test_a_variable_that_is_not_set_locks_its_own_server_only() -> None:
    text = """{"mcpServers": {
        "off": {"command": "x", "env": {"K": "${NO}"}, "enabled": false},
        "unset": {"command": "x", "env": {"K": "${NO}s3cret"}},
        "url": {"url": "${NO}"},
        "good": {"command": "x", "env": {"K": "${NO:-}"}}}}"""
    servers = loads(text, source="f.json", environ={})
    assert servers["good"].target() == Stdio("x", env={"K": ""})
    assert servers["off"].env == {"K": "${NO}"}
    for name, key in (("off", "env.K"), ("unset", "env.K"), ("url", "url")):
        for use in (servers[name].target, servers[name].client):
            with pytest.raises(ConfigError) as caught:
                use()
            assert str(caught.value) == (
                f"f.json: mcpServers.{name}.{key}: the environment variable NO is not set; "
                "set it, or write ${NO:-} if it may be empty"
            )


def test_values_of_variables_are_not_shown(tmp_path: Path) -> None:
    environ = {"KEY": "s3cret", "DIR": str(tmp_path / "s3cret")}
    server = one(
        {"command": "${DIR}/none", "args": ["--key=${KEY}", "${NO:-plain}"]}, environ=environ
    )
    target = server.target()
    assert isinstance(target, Stdio)
    assert target.argv == [f"{tmp_path}/s3cret/none", "--key=s3cret", "plain"]
    with pytest.raises(LaunchError) as caught:
        asyncio.run(Child.launch(target))
    shown = "".join(traceback.format_exception(caught.value))
    assert "'${DIR}/none' does not exist: command '${DIR}/none' '--key=${KEY}'" in shown
    texts = [shown, repr(server), repr(target), pretty_repr(server), pretty_repr(target)]
    for url in (f"unix:{tmp_path}/${{KEY}}/x", "ws://127.0.0.1:9/${KEY}", "tcp://${KEY}.invalid:1"):
        remote = one({"url": url}, environ=environ).target()
        with pytest.raises(WirespeedError) as failed:
            asyncio.run(Client(remote).open())
        assert url in str(failed.value)
        assert url in repr(remote)
        texts += [str(failed.value), repr(remote), pretty_repr(remote)]
    with pytest.raises(ConfigError) as refused:
        one({"url": "tcp://${KEY}"}, environ=environ).target()
    texts.append(str(refused.value))
    assert not [text for text in texts if "s3cret" in text]


def test_a_running_command_keeps_its_secrets(tmp_path: Path) -> None:
    async def main() -> str:
        args = ["-c", "exec sleep 60", "${KEY}"]
        config = one({"command": "sh", "args": args}, environ={"KEY": "s3cret"})
        target = config.target()
        assert isinstance(target, Stdio)
        child = await Child.launch(target)
        texts = [repr(child), child.failure("it ended")]
        await child.shutdown(0, 0)
        return "".join([*texts, repr(child), str(child.error("it ended"))])

    texts = asyncio.run(main())
    assert "${KEY}" in texts
    assert "s3cret" not in texts


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


# -- auth --------------------------------------------------------------------------------


@every(
    ("written", "expected"),
    [
        ("oauth", AuthConfig()),
        ({}, AuthConfig()),
        (
            {
                "type": "oauth",
                "clientId": "${ID}",
                "clientSecret": "${SECRET}",
                "scopes": ["a", "${ID}"],
                "issuer": "https://login.example",
                "redirectUri": "http://127.0.0.1:8080/callback",
                "dpop": True,
            },
            AuthConfig(
                client_id="desk",
                client_secret="s3cret",
                scopes=("a", "desk"),
                issuer="https://login.example",
                redirect_uri="http://127.0.0.1:8080/callback",
                dpop=True,
            ),
        ),
        # as Cursor writes it
        (
            {"CLIENT_ID": "desk", "CLIENT_SECRET": "s3cret", "scopes": ["a"]},
            AuthConfig(client_id="desk", client_secret="s3cret", scopes=("a",)),
        ),
        ({"scopes": "a b"}, AuthConfig(scopes=("a", "b"))),
        (
            {"clientMetadataUrl": "https://me.example/client.json"},
            AuthConfig(client_metadata_url="https://me.example/client.json"),
        ),
        (
            {"type": "client_credentials", "clientId": "job", "clientSecret": "s3cret"},
            AuthConfig(type="client_credentials", client_id="job", client_secret="s3cret"),
        ),
        (
            {"type": "client_credentials", "clientId": "job", "privateKey": "${SECRET}"},
            AuthConfig(type="client_credentials", client_id="job", private_key="s3cret"),
        ),
        # as FastMCP writes it
        ("${SECRET}", AuthConfig(type="bearer", token="s3cret")),
        ({"token": "${SECRET}"}, AuthConfig(type="bearer", token="s3cret")),
    ],
)
def test_auth(written: Any, expected: AuthConfig) -> None:
    environ = {"ID": "desk", "SECRET": "s3cret"}
    server = one({"url": "https://h/mcp", "auth": written}, environ=environ)
    assert server.auth == expected
    assert server.extra == {}
    for text in (repr(server), pretty_repr(server)):
        assert "s3cret" not in text
    assert pickle.loads(pickle.dumps(server)) == server


def test_auth_is_what_the_client_uses() -> None:
    def target(auth: Any, url: str = "https://h/mcp") -> Any:
        return one({"url": url, "auth": auth}).target()

    assert target("t0ken") == Http("https://h/mcp", token="t0ken")
    assert target("t0ken", "wss://h/mcp") == WebSocket("wss://h/mcp", token="t0ken")
    person = target({"clientId": "desk", "clientSecret": "s3cret", "scopes": ["a"]}).auth
    assert isinstance(person, OAuth)
    assert person.scopes == ("a",)
    program = {"type": "client_credentials", "clientId": "job", "clientSecret": "s3cret"}
    assert isinstance(target(program).auth, ClientCredentials)
    assert isinstance(target(program, "wss://h/mcp").auth, ClientCredentials)
    mine = OAuth()
    assert one({"url": "https://h/mcp", "auth": "oauth"}).target(auth=mine) == Http(
        "https://h/mcp", auth=mine
    )


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({"url": "unix:/s", "auth": "oauth"}, "auth means nothing to unix:"),
        ({"url": "unix:/s", "auth": "t"}, "auth means nothing to unix:"),
        (
            {"url": "https://h", "headers": {"Authorization": "s3cret"}, "auth": "oauth"},
            "auth gets the token",
        ),
        ({"url": "https://h", "auth": {"type": "client_credentials"}}, "client_id"),
    ],
)
def test_auth_of_which_no_target_can_be_made(server: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        one(server).target()
    assert expected in str(caught.value)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


# -- faults ------------------------------------------------------------------------------


@every(
    ("document", "expected"),
    [
        ([], 'expected an object with "mcpServers"'),
        (5, 'expected an object with "mcpServers"'),
        ({}, 'expected a key "mcpServers" (or "servers")'),
        ({"mcpServers": []}, "mcpServers: expected an object"),
        ({"servers": None}, "servers: expected an object"),
        ({"mcpServers": {"a": "x"}}, "mcpServers.a: expected `object`, got `str`"),
        ({"mcpServers": {"a b": 5}}, 'mcpServers["a b"]: expected `object`, got `int`'),
        ({"mcpServers": {"a.b": {}}}, 'mcpServers["a.b"]: expected "command" (a program'),
        ({"mcpServers": {"": 5}}, 'mcpServers[""]: expected `object`, got `int`'),
        ('{"mcpServers": {}, "mcpServers": {}}', 'the key "mcpServers" is there twice'),
        ('{"mcpServers": {"a": {}, "a": {}}}', 'mcpServers.a: the key "a" is there twice'),
        (
            '{"mcpServers": {"a": {"command": "x", "env": {"B": "s3cret", "B": "s3cret"}}}}',
            'mcpServers.a: the key "B" is there twice',
        ),
    ],
)
def test_document_faults(document: Any, expected: str) -> None:
    assert fault(document).startswith(expected)


@every(
    ("server", "expected"),
    [
        ({"command": "x", "args": ["a", []]}, "args[1]: expected `str`, got `array`"),
        ({"command": "x", "env": {"PORT": [8080]}}, "env.PORT: expected a string"),
        ({"url": "ws://h", "headers": {"A": {}}}, "headers.A: expected a string"),
        ({"command": "x", "timeout": "soon"}, "timeout: expected `float | null`, got `str`"),
        ({"command": "x", "args": ["a\0"]}, "args[0]: contains a null character"),
        ({"command": ""}, "command: expected a string that is not empty"),
        ({"command": "${NO:-}"}, "command: expected a string that is not empty"),
        ({"command": "x", "env": ["A=s3cret"]}, "env: expected `object | null`, got `array`"),
        ({"command": "x", "env": "A=s3cret"}, "env: expected `object | null`, got `str`"),
        ({"command": "x", "env": {"A=": "b"}}, 'env["A="]: not a possible variable'),
        ({"command": "x", "enabled": "yes"}, "enabled: expected `bool | null`, got `str`"),
        ({"command": "x", "disabled": 1}, "disabled: expected `bool | null`, got `int`"),
        ({"command": "x", "autoStart": 0}, "autoStart: expected `bool | null`, got `int`"),
        ({"command": "x", "timeout": True}, "timeout: expected `float | null`, got `bool`"),
        ({"command": "x", "timeout": 0}, "timeout: expected `float` > 0.0"),
        ({"command": "x", "timeout": 10**400}, "timeout: "),
        ({"command": "x", "era": "new"}, "era: invalid enum value 'new'"),
        ({"command": "x", "type": "pipe"}, 'type: expected one of "stdio", "local", '),
        ({"command": "x", "type": ["stdio"]}, "type: expected `str | null`, got `array`"),
        ({"url": "ftp://h"}, 'url: expected a URL with one of "ws", "wss", "http", '),
        ({"url": "h"}, "url: expected a URL with one of"),
        ({"url": "ws://h", "type": "sse"}, 'url: "ws:" does not go with the type "sse"'),
        ({"url": "http://h", "auth": 5}, "auth: expected `str | object | null`, got `int`"),
        ({"url": "http://h", "auth": ""}, "auth: expected a string that is not empty"),
        ({"url": "http://h", "auth": {"type": "basic"}}, "auth.type: invalid enum value 'basic'"),
        ({"url": "http://h", "auth": {"clientId": 5}}, "auth.clientId: expected `str | null`"),
        ({"url": "http://h", "auth": {"CLIENT_SECRET": ""}}, "auth.clientSecret: expected a str"),
        ({"url": "http://h", "auth": {"scopes": [1]}}, "auth.scopes[0]: expected `str`, got `int`"),
        ({"url": "http://h", "auth": {"issuer": "${}"}}, "auth.issuer: expected ${NAME}"),
        ({"url": "http://h", "auth": {"type": "bearer"}}, 'auth: "token" is for the type "bearer"'),
        (
            {"url": "http://h", "auth": {"type": "oauth", "token": "s3cret"}},
            'auth: "token" is for the type "bearer"',
        ),
        ({"url": "http://h", "auth": "${s3cret"}, "auth: expected ${NAME} or"),
        ({"command": "x", "args": ["${input:key}"]}, "args[0]: ${input:key} is a variable which"),
        ({"command": "x", "args": ["a${B"]}, "args[0]: expected ${NAME} or ${NAME:-default}"),
        ({"command": "x", "args": ["${}"]}, "args[0]: expected ${NAME}"),
        ({"command": "x", "args": ["${A:-${B}}"]}, "args[0]: expected ${NAME}"),
        ({"url": "ws://h", "headers": {"A": "${s3cret"}}, "headers.A: expected ${NAME} or"),
    ],
)
def test_server_faults(server: Any, expected: str) -> None:
    assert server_fault(server, environ={}).startswith(f"mcpServers.time.{expected}")


@every(
    ("server", "expected"),
    [
        ({"args": ["x"]}, 'expected "command" (a program to start) or "url"'),
        ({"command": "x", "url": "ws://h"}, 'has both "command" and "url"; leave one out'),
        ({"url": "ws://h", "type": "stdio"}, 'expected "command", because its type is "stdio"'),
        ({"command": "x", "type": "http"}, 'expected "url", because its type is "http"'),
        ({"command": "x", "type": "stdio", "transport": "ws"}, '"type" and "transport" say'),
        ({"command": "x", "enabled": True, "disabled": True}, '"enabled" and "disabled" contr'),
    ],
)
def test_faults_of_a_whole_server(server: Any, expected: str) -> None:
    assert server_fault(server).startswith(f"mcpServers.time: {expected}")


def test_faults_of_the_file(tmp_path: Path) -> None:
    with raises(ConfigError):
        load(tmp_path / "none.json")
    with raises(ConfigError):
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


@every(
    ("text", "expected"),
    [
        ("{\"a\": {'time': 1}}", 'line 1, column 8: strings and keys go in double quotes (")'),
        ('{"a": # all\n{}}', "line 1, column 7: a comment begins with //"),
        ('{"a": /* s3cret\n */ [x]}', "line 2, column 6: expecting value"),
        ('{"a": "C:\\x"}', "line 1, column 10: invalid \\escape"),
        ('{"a": ["x" "y"]}', "line 1, column 12: expecting ',' delimiter"),
        ('{"a":\n {"b": "x\n"}}', "line 2, column 10: invalid control character"),
        ('{"a": {"b": "x', "line 1, column 13: unterminated string"),
        ('{"a": {}} x', "line 1, column 11: extra data"),
    ],
)
def test_syntax_faults(text: str, expected: str) -> None:
    assert fault(text) == expected


@every("key", ["env", "headers"])
@every(
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


def test_import_is_cheap() -> None:
    code = "import sys, wirespeed.config; print(*sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert "wirespeed.config" in loaded
    heavy = {"asyncio", "uvloop", "orjson", "click", "rich", "subprocess", "logging"}
    assert not loaded & heavy


def test_a_name_that_the_file_does_not_have(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"agent": {"command": "a"}, "calc": {"command": "b"}}}')
    with pytest.raises(KeyError) as caught:
        load(file)["agnt"]
    assert caught.value.args == (f'{file} has no server "agnt"; it has agent, calc',)
    assert load(file).get("agnt") is None
    with pytest.raises(KeyError, match='<string> has no server "a"; it has none'):
        loads('{"servers": {}}')["a"]


# -- TOML --------------------------------------------------------------------------------


def test_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "s3cret")
    servers = {"time": {"command": "./serve", "args": ["${KEY}"], "env": {"A": "1"}, "timeout": 5}}
    as_json = tmp_path / "servers.json"
    as_json.write_text(json.dumps({"mcpServers": servers}))
    as_toml = tmp_path / "servers.toml"
    as_toml.write_text(
        """
        [mcpServers.time]
        command = "./serve"
        args = ["${KEY}"]
        env = { A = "1" }
        timeout = 5
        """
    )
    one, other = load(as_toml)["time"], load(as_json)["time"]
    assert one.target() == other.target() and one.timeout == other.timeout == 5.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a = ?", "line 1, column 5: invalid value"),
        (b"[a", "expected ']' at the end of a table declaration"),
        (b"", "the file is empty"),
        (b'a = "\xff"', "the file is not UTF-8"),
        (b"[mcpServers.a]\ncommand = 'x'\ntimeout = inf", "mcpServers.a.timeout: expected `float`"),
        (b"[mcpServers.a]\ncommand = 'x'\ntimeout = nan", "mcpServers.a.timeout: expected `float`"),
        (b"[mcpServers.a]\nurl = 1979-05-27", "mcpServers.a.url: expected `str | null`"),
    ],
)
def test_faults_of_toml(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "servers.toml"
    path.write_bytes(text)
    with pytest.raises(ConfigError) as caught:
        load(path)["a"].target()
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
