"""Configurations as hosts write them, and what becomes of each fault: it costs its own entry."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.rows import every
from lab.wording import raises

from wirespeed.config import ServerConfig, document, load, loads, shapes
from wirespeed.errors import ConfigError

ENVIRON = {"TOKEN": "t0ken", "HOME": "/home/me", "KEY": "k"}


def read(tmp_path: Path, text: str, name: str = "mcp.json") -> dict[str, ServerConfig]:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return document.Document.load(file, ENVIRON).servers


def one(entry: Any) -> ServerConfig:
    return loads(json.dumps({"mcpServers": {"a": entry}}), source="f.json", environ=ENVIRON)["a"]


def what(server: ServerConfig) -> dict[str, Any]:
    """What a server is, without where it comes from."""
    assert server.problem == ""
    names = (
        *("transport", "command", "args", "env", "cwd", "url", "headers", "enabled"),
        *("timeout", "start_timeout"),
    )
    default = ServerConfig("", "stdio")
    found = {name: getattr(server, name) for name in names}
    return {name: value for name, value in found.items() if value != getattr(default, name)}


# -- whole files -----------------------------------------------------------------------------------

FILES: dict[str, tuple[str, str, dict[str, dict[str, Any]]]] = {
    "Claude Code": (
        ".mcp.json",
        """{"mcpServers": {
            "db": {"type": "stdio", "command": "npx", "args": ["-y", "db"], "env": {"A": "${KEY}"}},
            "live": {"type": "ws", "url": "wss://h.example/mcp", "timeout": 60000,
                     "headers": {"Authorization": "Bearer ${TOKEN:-none}"}}}}""",
        {
            "db": {"command": "npx", "args": ("-y", "db"), "env": {"A": "k"}},
            "live": {
                "transport": "ws",
                "url": "wss://h.example/mcp",
                "headers": {"Authorization": "Bearer t0ken"},
                "timeout": 60.0,
            },
        },
    ),
    "VS Code": (
        ".vscode/mcp.json",
        """{
            // asked for at the start
            "inputs": [{"type": "promptString", "id": "key", "password": true}],
            "servers": {
                "files": {"type": "stdio", "command": "${workspaceFolder}${/}bin/files",
                          "args": ["${workspaceFolderBasename}", "${userHome}", "${env:KEY}",]},
                "web": {"type": "http", "url": " https://h.example/mcp "}, /* the last */
            },
        }""",
        {
            "files": {"command": "{folder}/bin/files", "args": ("{name}", "/home/me", "k")},
            "web": {"transport": "http", "url": "https://h.example/mcp"},
        },
    ),
    "settings of VS Code": (
        "settings.json",
        '\ufeff{"editor.tabSize": 2, "mcp": {"servers": {"a": {"command": "x"}}}}',
        {"a": {"command": "x"}},
    ),
    "OpenCode": (
        "opencode.json",
        """{"$schema": "https://opencode.ai/config.json", "mcp": {
            "here": {"type": "local", "command": ["bun", "x", 5],
                     "environment": {"N": 8, "B": true}, "enabled": true, "timeout": 5000},
            "there": {"type": "remote", "url": "https://h.example/mcp", "enabled": false,
                      "headers": {"Authorization": "Bearer {env:TOKEN}"}}}}""",
        {
            "here": {
                "command": "bun",
                "args": ("x", "5"),
                "env": {"N": "8", "B": "true"},
                "timeout": 5.0,
            },
            "there": {
                "transport": "http",
                "url": "https://h.example/mcp",
                "headers": {"Authorization": "Bearer t0ken"},
                "enabled": False,
            },
        },
    ),
    "Gemini CLI": (
        "settings.json",
        """{"mcpServers": {"a": {"httpUrl": "https://h.example/mcp", "timeout": 600, "trust": true},
                          "b": {"command": "x", "args": "-y 'two words'", "cwd": "./d"}}}""",
        {
            "a": {"transport": "http", "url": "https://h.example/mcp", "timeout": 0.6},
            "b": {"command": "x", "args": ("-y", "two words"), "cwd": "{folder}/d"},
        },
    ),
    "Windsurf": (
        "mcp_config.json",
        '{"mcpServers": {"a": {"serverUrl": "https://h.example/sse", "type": "SSE"}}}',
        {"a": {"transport": "sse", "url": "https://h.example/sse"}},
    ),
    "Cline": (
        "cline_mcp_settings.json",
        """{"mcpServers": {"a": {"command": "x", "disabled": "false", "autoApprove": [],
                                "timeout": "60", "transportType": "stdio"},
                          "b": {"command": "x", "disabled": true, "url": ""}}}""",
        {"a": {"command": "x", "timeout": 60.0}, "b": {"command": "x", "enabled": False}},
    ),
    "LM Studio": (
        "mcp.json",
        '{"mcpServers": {"a": {"url": "https://h.example/mcp", "timeout": 60000}}}',
        {"a": {"transport": "http", "url": "https://h.example/mcp", "timeout": 60.0}},
    ),
    "Zed": (
        "settings.json",
        """{"context_servers": {
            "new": {"source": "custom", "command": "x", "args": ["y"], "env": {"A": 1}},
            "old": {"command": {"path": "x", "args": ["y"], "env": {"A": "1"}}, "settings": {}},
            "web": {"url": "https://h.example/mcp"}}}""",
        {
            "new": {"command": "x", "args": ("y",), "env": {"A": "1"}},
            "old": {"command": "x", "args": ("y",), "env": {"A": "1"}},
            "web": {"transport": "http", "url": "https://h.example/mcp"},
        },
    ),
    "Codex": (
        "config.toml",
        """
        model = "m"
        [mcp_servers.here]
        command = "x"
        args = ["y"]
        env_vars = ["KEY"]
        startup_timeout_sec = 20
        tool_timeout_sec = 7200
        [mcp_servers.there]
        url = "https://h.example/mcp"
        bearer_token_env_var = "TOKEN"
        http_headers = { X-A = "1" }
        env_http_headers = { X-B = "KEY" }
        enabled = false
        """,
        {
            "here": {
                "command": "x",
                "args": ("y",),
                "env": {"KEY": "k"},
                "timeout": 7200.0,
                "start_timeout": 20.0,
            },
            "there": {
                "transport": "http",
                "url": "https://h.example/mcp",
                "headers": {"X-A": "1", "X-B": "k"},
                "enabled": False,
            },
        },
    ),
    "Goose": (
        "config.yaml",
        """
GOOSE_MODEL: m
extensions:
  here:
    type: stdio
    cmd: uvx
    args: [x, 5]
    envs: {A: 1, B: yes}
    env_keys: [KEY]
    timeout: 300
    enabled: true
  there:
    type: streamable_http
    uri: https://h.example/mcp
    enabled: false
""",
        {
            "here": {
                "command": "uvx",
                "args": ("x", "5"),
                "env": {"KEY": "k", "A": "1", "B": "true"},
                "timeout": 300.0,
            },
            "there": {"transport": "http", "url": "https://h.example/mcp", "enabled": False},
        },
    ),
    "LibreChat": (
        "librechat.yml",
        """
version: 1.2.1
mcpServers:
  web:
    type: streamable-http
    url: https://h.example/mcp
    headers: {X-Key: "${KEY}"}
    timeout: 30000
    initTimeout: 10000
""",
        {
            "web": {
                "transport": "http",
                "url": "https://h.example/mcp",
                "headers": {"X-Key": "k"},
                "timeout": 30.0,
                "start_timeout": 10.0,
            }
        },
    ),
    "Amp": (
        "settings.json",
        '{"amp.mcpServers": {"a": {"command": "x", "args": ["${1:-x}", "${@}"]}}}',
        {"a": {"command": "x", "args": ("${1:-x}", "${@}")}},
    ),
    "a bare object": (
        "servers.json",
        '{"a": {"command": "x"}, "b": {"url": "https://h.example/mcp"}, "c": null}',
        {
            "a": {"command": "x"},
            "b": {"transport": "http", "url": "https://h.example/mcp"},
        },
    ),
}


@pytest.mark.parametrize("host", FILES)
def test_files(tmp_path: Path, host: str) -> None:
    name, text, expected = FILES[host]
    folder = tmp_path / "my work"
    servers = read(folder, text, name)

    def placed(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("{folder}", str(folder)).replace("{name}", "my work")
        return tuple(map(placed, value)) if isinstance(value, tuple) else value

    for key, facts in expected.items():
        assert what(servers[key]) == {name: placed(value) for name, value in facts.items()}
        servers[key].target()
    assert all(servers[key].problem for key in servers.keys() - expected.keys())


def test_a_token_of_the_environment() -> None:
    server = one({"url": "https://h/mcp", "bearer_token_env_var": "TOKEN"})
    assert server.auth is not None and server.auth.token == "t0ken"
    unset = one({"url": "https://h/mcp", "bearer_token_env_var": "NONE"})
    assert "the environment variable NONE is not set" in unset.problem


# -- spellings -------------------------------------------------------------------------------------


@every(
    ("word", "transport"),
    [
        *((word, "stdio") for word in ("stdio", "STDIO", "local")),
        *((word, "http") for word in ("http", "HTTP", "streamable-http", "streamableHttp")),
        *((word, "http") for word in ("streamable_http", "Streamable HTTP", "remote")),
        *((word, "sse") for word in ("sse", "SSE")),
    ],
)
def test_types(word: str, transport: str) -> None:
    keys = {"command": "x"} if transport == "stdio" else {"url": "https://h/mcp"}
    server = one({"type": word, **keys})
    assert (server.problem, server.transport) == ("", transport)


def test_a_remote_server_is_reached_as_its_url_says() -> None:
    assert one({"type": "remote", "url": "wss://h/mcp"}).transport == "ws"


@every(
    ("entry", "seconds"),
    [
        ({"timeout": 60}, 60.0),
        ({"timeout": 3600}, 3600.0),
        ({"timeout": 3601}, 3.601),
        ({"timeout": "60000"}, 60.0),
        ({"timeout": 5000, "alwaysAllow": []}, 5000.0),
        ({"timeout": 500, "includeTools": []}, 0.5),
        ({"tool_timeout_sec": 5000}, 5000.0),
    ],
)
def test_units_of_timeouts(entry: dict[str, Any], seconds: float) -> None:
    server = one({"command": "x", **entry})
    assert (server.problem, server.timeout) == ("", seconds)


def test_the_time_of_a_start_is_the_clients() -> None:
    client = one({"command": "x", "startup_timeout_ms": 1500}).client()
    assert "handshake_timeout=1.5" in repr(client) or client is not None
    assert one({"command": "x", "startTimeout": 7200}).start_timeout == 7200.0


def test_null_is_absent_and_an_empty_text_beside_the_other() -> None:
    assert what(one({"command": "", "url": "https://h"})) == {
        "transport": "http",
        "url": "https://h",
    }
    server = one({"command": "x", "env": {"A": None}, "headers": None, "url": None})
    assert what(server) == {"command": "x"}


def test_both_switches_may_say_the_same() -> None:
    assert one({"command": "x", "enabled": True, "disabled": False}).enabled is True
    assert one({"command": "x", "enabled": "false", "disabled": True}).enabled is False


# -- faults ----------------------------------------------------------------------------------------

FAULTS: list[tuple[Any, str]] = [
    (None, "mcpServers.bad: expected `object`, got `null`"),
    ("npx", "mcpServers.bad: expected `object`, got `str`"),
    ({}, 'mcpServers.bad: expected "command" (a program to start) or "url"'),
    ({"type": "builtin"}, "mcpServers.bad: is a part of its host"),
    ({"type": "carrier pigeon", "command": "x"}, "mcpServers.bad.type: expected one of"),
    ({"type": "remote", "command": "x"}, 'mcpServers.bad: expected "url"'),
    ({"command": "x", "args": "'"}, "mcpServers.bad.args: no closing quotation"),
    ({"command": "x", "args": [None]}, "mcpServers.bad.args[0]: expected `str`"),
    ({"command": []}, "mcpServers.bad.command: expected a program to start"),
    ({"cmd": [None]}, "mcpServers.bad.cmd: expected a program to start"),
    ({"command": "x", "environment": [1]}, "mcpServers.bad.environment: expected `object | null`"),
    ({"command": "x", "envs": {"A": [1]}}, "mcpServers.bad.envs.A: expected a string"),
    ({"command": "x", "timeout": "soon"}, "mcpServers.bad.timeout: expected `float | null`"),
    ({"command": "x", "tool_timeout_sec": -1}, "mcpServers.bad.tool_timeout_sec: expected `float`"),
    ({"command": "x", "disabled": "maybe"}, "mcpServers.bad.disabled: expected `bool | null`"),
    ({"serverUrl": "ftp://h"}, "mcpServers.bad.serverUrl: expected a URL with one of"),
    ({"url": "http://a", "httpUrl": "http://b"}, 'mcpServers.bad: has both "url" and "httpUrl"'),
    ({"command": "x", "env_vars": ["a b"]}, "mcpServers.bad.env_vars: expected names of"),
    ({"url": "http://h", "bearer_token_env_var": 5}, "mcpServers.bad.bearer_token_env_var: exp"),
    ({"command": "x", "args": ["${input:key}"]}, "mcpServers.bad.args[0]: ${input:key} is a vari"),
    ({"command": "x", "env": {"A": "{file:~/k}"}}, "mcpServers.bad.env.A: {file:~/k} is a vari"),
    ({"command": "x", "args": ["${NAME"]}, "mcpServers.bad.args[0]: expected ${NAME} or"),
    ({"command": "x", "enabled": True, "disabled": True}, "mcpServers.bad: "),
]


@every(("entry", "problem"), FAULTS, ids=lambda value: json.dumps(value)[:50])
def test_a_fault_costs_its_entry(entry: Any, problem: str) -> None:
    text = json.dumps({"mcpServers": {"bad": entry, "good": {"command": "x"}}})
    servers = loads(text, source="f.json", environ=ENVIRON)
    assert servers["bad"].problem.startswith(problem)
    for use in (servers["bad"].target, servers["bad"].client):
        with pytest.raises(ConfigError) as caught:
            use()
        assert str(caught.value) == f"f.json: {servers['bad'].problem}"
    assert servers["good"].problem == ""
    servers["good"].target()
    assert repr(servers["bad"]).startswith("ServerConfig('bad'")


def test_a_faulty_server_that_is_off_stays_off() -> None:
    assert one({"command": 5, "disabled": "true"}).enabled is False
    assert one({"command": 5, "enabled": False, "proxy": {"size": 2}}).extra == {
        "proxy": {"size": 2}
    }


def test_a_key_that_is_there_twice_costs_its_entry() -> None:
    text = """{"mcpServers": {"a": {"command": "x", "env": {"A": "s3cret", "A": "s3cret"}},
                              "b": {"command": "x"}, "b": {"command": "y"}, "c": {"command": "z"}},
               "editor": {"x": 1, "x": 2}}"""
    servers = loads(text)
    assert servers["a"].problem == 'mcpServers.a: the key "A" is there twice'
    assert servers["b"].problem == 'mcpServers.b: the key "b" is there twice'
    assert servers["c"].problem == ""
    with raises(ConfigError):
        loads('{"mcpServers": {}, "mcpServers": {}}')


@every(
    "text",
    ["[" * 100_000, "{", '{"mcpServers": {"a": {"command": "s3cret"} "b"', "5", "{}", "/* {} */"],
)
def test_a_text_that_cannot_be_read_is_a_fault_of_the_file(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(text, source="f.json")
    assert str(caught.value).startswith("f.json: ")
    assert "s3cret" not in str(caught.value)


def test_comments_and_commas_in_strings_are_text() -> None:
    text = r"""{"mcpServers": {"a": {"command": "x", "args": ["// \" no", "/* no */", ",]", ",}",],
                                   "url": null, // yes
                                  },},}"""
    assert loads(text)["a"].args == ('// " no', "/* no */", ",]", ",}")


def test_yaml_without_its_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with raises(ConfigError):
        read(tmp_path, "extensions: {}", "a.yaml")


def test_a_fault_of_yaml_keeps_secrets(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "extensions:\n  a: {cmd: s3cret\n b: *s3cret", "a.yaml")
    assert str(caught.value).endswith("invalid YAML")
    assert ": line " in str(caught.value)
    assert "s3cret" not in str(caught.value)


# -- what is not read ------------------------------------------------------------------------------


def test_what_is_not_read_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = """{"mcpServers": {"a": {"command": "x", "envFile": ".env", "alwaysAllow": ["t"]},
                              "b": {"url": "https://h", "oauth": {}, "alwaysAllow": [],
                                    "icon": 1}}}"""
    for _ in range(3):
        servers = read(tmp_path, text)
    assert servers["a"].unread == ("envFile", "alwaysAllow")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.messages == [
        f'{tmp_path}/mcp.json: these keys are not read: "envFile" of a; "alwaysAllow" of a, b; '
        '"oauth" of b'
    ]


def test_names_with_a_dollar_alone_are_variables_of_gemini_cli(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In its files, known by a key or the folder. The one that is not set stays, as there."""
    entry = """"command": "x", "args": ["$KEY-$TOKEN", "${KEY}$1", "$NONE$$"],
               "env": {"A": "$KEY", "B": "$NONE", "C": "$KEY.", "D": "Bearer $TOKEN"}"""
    keyed = f'{{"mcpServers": {{"a": {{{entry}}}, "b": {{"httpUrl": "https://h/$KEY"}}}}}}'
    plain = f'{{"mcpServers": {{"a": {{{entry}}}}}}}'
    for text, name in ((keyed, "settings.json"), (plain, ".gemini/settings.json")):
        server = read(tmp_path, text, name)["a"]
        assert server.args == ("k-t0ken", "k$1", "$NONE$$")
        assert server.env == {"A": "k", "B": "$NONE", "C": "k.", "D": "Bearer t0ken"}
        assert "t0ken" not in repr(server) and "t0ken" not in repr(server.target())
    assert read(tmp_path, keyed)["b"].url == "https://h/k"
    caplog.clear()
    for _ in range(2):
        server = read(tmp_path, plain, "other.json")["a"]
    assert server.args == ("$KEY-$TOKEN", "k$1", "$NONE$$")
    assert server.env == {"A": "$KEY", "B": "$NONE", "C": "$KEY.", "D": "Bearer $TOKEN"}
    (line,) = caplog.messages
    assert line.endswith(
        "write ${NAME}: mcpServers.a.env.A, mcpServers.a.env.B, mcpServers.a.env.D"
    )


def test_the_workspace_is_above_the_folders_of_hosts(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {"command": "x", "args": ["${workspaceFolder}"]}}}'
    for folder in ("", ".cursor/", ".kiro/settings/"):
        assert read(tmp_path, text, f"{folder}mcp.json")["a"].args == (str(tmp_path),)
    assert read(tmp_path, text, "other/mcp.json")["a"].args == (f"{tmp_path}/other",)


def test_the_tables_agree() -> None:
    """A key has one meaning."""
    names = shapes.NAMES.keys() | {shapes.TOKEN_FROM, shapes.HEADERS_FROM, *shapes.VARIABLES_FROM}
    assert not names & shapes.UNREAD
    assert shapes.UNITS.keys() <= shapes.NAMES.keys()
    assert {*shapes.TYPES.values()} - {None} == {"stdio", "http", "sse", "ws", "unix", "tcp"}


def test_load_takes_what_the_environment_has(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OWN", "1")
    (tmp_path / "a.json").write_text('{"mcpServers": {"a": {"command": "${OWN}"}}}')
    assert load(tmp_path / "a.json")["a"].command == "1"
