"""The configuration file of the proxy: what it gives, its faults, its JSON Schema."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from lab.wording import raises

from wirespeed import Http, Limits, ProcessLimits, Stdio, WebSocket
from wirespeed.config import ServerUrl
from wirespeed.errors import ConfigError
from wirespeed.proxy import (
    AuditConfig,
    AuthorizationConfig,
    BackendConfig,
    IntrospectionConfig,
    ListenConfig,
    ProxyConfig,
    ToolRules,
    ToolsConfig,
)
from wirespeed.proxy.file import load
from wirespeed.proxy.file_keys import schema

pytestmark = pytest.mark.smoke

SCHEMA = Path(__file__).resolve().parents[3] / "docs" / "schemas" / "proxy.json"

TOML = """
[mcpServers.time]
command = "mcp-server-time"
args = ["--utc"]
env = { KEY = "${KEY}" }

[mcpServers.time.proxy]
isolation = "shared"
startTimeout = 5
prefix = ""

[mcpServers.time.proxy.tools]
allow = ["get_*"]
deny = ["get_secret"]
rename = { get_time = "now" }
describe = { get_time = "The time." }

[mcpServers.far]
url = "wss://tools.example/mcp"
headers = { X-Key = "${KEY}" }
proxy = { maxClients = 9 }

[mcpServers.unused]
url = "https://tools.example/mcp"
enabled = false

[proxy]
listen = ["ws://127.0.0.1:${PORT:-8765}/mcp"]
limits = { maxMessage = 1000000 }
shutdownGrace = 2.5
pageSize = 50
tracing = true
"""

OF_A_HOST: dict[str, Any] = {
    "mcpServers": {"a": {"command": "a", "args": [], "icon": "🛠", "disabled": None}},
    "theme": "dark",
}


def written(folder: Path, document: object) -> Path:
    path = folder / "proxy.json"
    path.write_text(json.dumps(document))
    return path


def test_every_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "s3cret")
    path = tmp_path / "proxy.toml"
    path.write_text(TOML)
    config = load(path)
    assert config == ProxyConfig(
        backends=(
            BackendConfig(
                target=Stdio(
                    "mcp-server-time",
                    ["--utc"],
                    {"KEY": "s3cret"},
                ),
                name="time",
                isolation="shared",
                start_timeout=5,
                prefix="",
                tools=ToolsConfig(
                    allow=("get_*",),
                    deny=("get_secret",),
                    rename={"get_time": "now"},
                    describe={"get_time": "The time."},
                ),
            ),
            BackendConfig(
                target=WebSocket("wss://tools.example/mcp", headers={"X-Key": "s3cret"}),
                name="far",
                max_clients=9,
            ),
        ),
        listen=("ws://127.0.0.1:8765/mcp",),
        limits=Limits(max_message=1_000_000),
        shutdown_grace=2.5,
        page_size=50,
        tracing=True,
    )
    assert "s3cret" not in repr(config)


ACCESS: dict[str, Any] = {
    "listen": [
        "unix:/tmp/plain",
        {
            "url": "https://127.0.0.1:${PORT:-8765}/mcp",
            "certfile": "tls/cert.pem",
            "keyfile": "/tls/key.pem",
            "origins": ["https://app.example"],
            "hosts": ["${HOST_NAME:-tools.example}"],
            "trustedProxies": ["10.0.0.0/8"],
            "response": "sse",
            "ssePath": "/sse",
            "accessLog": "json",
            "accessLogSample": 0.1,
            "maxConnections": 9,
        },
        {"url": "ws://127.0.0.1:1/mcp", "token": "${TOKEN}", "headers": {"X-A": "${TOKEN}"}},
        {"url": "ws://127.0.0.1:2/mcp", "tokens": ["${TOKEN}", "other"]},
    ],
    "principals": [
        {"name": "anne", "token": "${TOKEN}", "servers": ["a"]},
        {"name": "bob", "tokenSha256": "AB" * 32, "tools": {"allow": ["x_*"], "deny": ["x_y"]}},
        {"name": "carl", "subject": "c@example"},
    ],
    "auth": {
        "resource": "https://tools.example",
        "issuers": ["https://auth.example"],
        "introspection": {
            "url": "https://auth.example/introspect",
            "clientId": "proxy",
            "clientSecret": "${TOKEN}",
        },
        "scopes": ["tools"],
    },
    "audit": "audit.log",
}


def at(urls: object, **entry: Any) -> dict[str, Any]:
    return {"mcpServers": {"a": {"urls": urls, "proxy": {"isolation": "pool"}, **entry}}}


def test_several_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST", "10.0.0.1")
    urls = ["http://${HOST}/mcp", {"url": "http://b/mcp", "weight": 3}, {"url": "http://c/mcp"}]
    (found,) = load(written(tmp_path, at(urls, headers={"X-Key": "${HOST}"}))).backends
    shown = "http://${HOST}/mcp"
    assert found.target == Http("http://10.0.0.1/mcp", headers={"X-Key": "10.0.0.1"}, shown=shown)
    assert found.urls == (
        ServerUrl("http://10.0.0.1/mcp", shown=shown),
        ServerUrl("http://b/mcp", 3),
        ServerUrl("http://c/mcp"),
    )
    assert "10.0.0.1" not in repr(found.urls)
    (found,) = load(written(tmp_path, at([{"url": "ws://c/mcp"}]))).backends
    assert (found.target, found.urls) == (WebSocket("ws://c/mcp"), (ServerUrl("ws://c/mcp"),))


def test_processes(tmp_path: Path) -> None:
    process = {"user": "tools", "group": "tools", "limits": {"memory": 1 << 30, "cpu": 60}}
    config = load(written(tmp_path, server(process=process)))
    assert config.backends[0].target == Stdio(
        "a", user="tools", group="tools", limits=ProcessLimits(memory=1 << 30, cpu=60)
    )
    far = {"mcpServers": {"a": {"url": "ws://a", "proxy": {"process": {}}}}}
    with raises(ConfigError):
        load(written(tmp_path, far))
    with raises(ConfigError):
        load(written(tmp_path, server(process={"limits": {"files": 0}})))


def test_who_may_use_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "t" * 40
    monkeypatch.setenv("TOKEN", token)
    config = load(written(tmp_path, {"mcpServers": {"a": {"command": "a"}}, "proxy": ACCESS}))
    plain, tls, one, several = config.listeners
    assert plain == ListenConfig(url="unix:/tmp/plain")
    assert tls == ListenConfig(
        url="https://127.0.0.1:8765/mcp",
        certfile=str(tmp_path / "tls/cert.pem"),
        keyfile="/tls/key.pem",
        origins=("https://app.example",),
        hosts=("tools.example",),
        trusted_proxies=("10.0.0.0/8",),
        response="sse",
        sse_path="/sse",
        access_log="json",
        access_log_sample=0.1,
        max_connections=9,
    )
    assert (one.tokens, one.headers, several.tokens) == ((token,), {"X-A": token}, (token, "other"))
    anne, bob, carl = config.principals
    assert anne.token_sha256 == hashlib.sha256(token.encode()).hexdigest()
    assert (anne.servers, anne.may_use("a"), anne.may_use("b")) == (("a",), True, False)
    assert bob.tools == ToolRules(allow=("x_*",), deny=("x_y",))
    assert carl.subject == "c@example"
    assert config.auth == AuthorizationConfig(
        resource="https://tools.example",
        issuers=("https://auth.example",),
        introspection=IntrospectionConfig(
            url="https://auth.example/introspect", client_id="proxy", client_secret=token
        ),
        scopes=("tools",),
    )
    assert config.audit == AuditConfig(to=str(tmp_path / "audit.log"))
    assert token not in repr(config)
    assert hashlib.sha256(token.encode()).hexdigest() not in repr(config)


@pytest.mark.parametrize(
    ("proxy", "problem"),
    [
        ({"listen": [{"ur": 1}]}, "proxy.listen[0]"),
        ({"listen": [{"url": "ws://127.0.0.1:1", "token": "${NONE}"}]}, "proxy.listen[0].token"),
        (
            {"listen": [{"url": "ws://a", "token": "a", "tokens": ["b"]}]},
            'proxy.listen[0]: give either "token" or "tokens"',
        ),
        ({"principals": [{"name": "a", "token": "short"}]}, "proxy.principals[0].token: a token"),
        ({"principals": [{"name": "a"}]}, "proxy.principals[0]: a principal has either"),
        (
            {"principals": [{"name": "a", "subject": "s"}]},
            "the principal a has a subject, which needs auth",
        ),
        (
            {"principals": [{"name": "a", "tokenSha256": "ab"}]},
            "proxy.principals[0].tokenSha256",
        ),
        (
            {"principals": [{"name": n, "tokenSha256": "ab" * 32} for n in "ab"]},
            "two principals have the same token",
        ),
        ({"principals": [{"name": "a", "tool": {}}]}, "proxy.principals[0]"),
        ({"auth": {"resource": "https://a", "issuers": []}}, "proxy.auth.issuers"),
        (
            {
                "auth": {"resource": "https://a", "issuers": ["https://b", "https://c"]},
                "principals": [{"name": "a", "subject": "s"}],
            },
            "the principal a needs an issuer",
        ),
    ],
)
def test_faults_of_access(tmp_path: Path, proxy: dict[str, Any], problem: str) -> None:
    path = written(tmp_path, {"mcpServers": {"a": {"command": "a"}}, "proxy": proxy})
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert problem in str(caught.value)


def test_a_file_of_a_host(tmp_path: Path) -> None:
    config = load(written(tmp_path, OF_A_HOST))
    assert config == ProxyConfig(backends=(BackendConfig(target=Stdio("a"), name="a"),), listen=())


def server(**proxy: Any) -> dict[str, Any]:
    return {"mcpServers": {"a": {"command": "a", "proxy": proxy}}}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"mcpServers": {}}, "no server is enabled"),
        ({"mcpServers": {"a": {"command": "a", "enabled": False}}}, "no server is enabled"),
        (
            {"mcpServers": {"a b": {"command": "a"}}},
            "mcpServers[\"a b\"]: a name has at most 64 letters, digits and ._~-, not 'a b'",
        ),
        (
            {"mcpServers": {"a": {"url": "https://a.example/mcp", "auth": "oauth"}}},
            "mcpServers.a.auth: nobody can log in to the proxy: use client_credentials or a token",
        ),
        (
            {"mcpServers": {"a": {"command": "${NOT_SET_ANYWHERE}"}}},
            "mcpServers.a.command: the environment variable NOT_SET_ANYWHERE is not set; "
            "set it, or write ${NOT_SET_ANYWHERE:-} if it may be empty",
        ),
        (
            {"mcpServers": {"a": {"command": "a", "proxy": 1}}},
            "mcpServers.a.proxy: expected `object`, got `int`",
        ),
        (
            server(isolaton="shared"),
            "mcpServers.a.proxy: object contains unknown field `isolaton`; "
            "did you mean 'isolation'?",
        ),
        (
            server(isolation="shard"),
            "mcpServers.a.proxy.isolation: invalid enum value 'shard'; "
            'expected one of "auto", "pool", "session", "shared"',
        ),
        (server(startTimeout=0), "mcpServers.a.proxy.startTimeout: expected `float` > 0.0"),
        (server(maxClients=0), "mcpServers.a.proxy.maxClients: expected `int` >= 1"),
        (
            server(prefix="a b"),
            "mcpServers.a.proxy.prefix: expected `str` matching regex '^[A-Za-z0-9_.-]{0,65}$'",
        ),
        (
            server(tools={"only": []}),
            "mcpServers.a.proxy.tools: object contains unknown field `only`",
        ),
        (
            {
                "mcpServers": {
                    name: {"command": "a", "proxy": {"prefix": "p_"}} for name in ("a", "b")
                }
            },
            "the servers a and b have the same prefix, p_: set another prefix",
        ),
        (at([]), "mcpServers.a.urls: expected a URL"),
        (
            at(["x"]),
            "mcpServers.a.urls: expected a URL with one of "
            '"ws", "wss", "http", "https", "http+unix", "unix", "tcp"',
        ),
        (at([1]), "mcpServers.a.urls[0]: expected `str | object`, got `int`"),
        (
            at(["http://a"], url="http://b"),
            'mcpServers.a: has both "url" and "urls"; leave one out',
        ),
        (
            at([{"url": "http://a", "weigth": 2}]),
            "mcpServers.a.urls[0]: object contains unknown field `weigth`",
        ),
        (
            at([{"url": "http://a", "weight": 0}]),
            "mcpServers.a.urls[0].weight: expected `float` >= 1.0",
        ),
        (at(["http://a", "http://a"]), "mcpServers.a: a URL is in urls twice"),
        (
            at(["http://a", "ws://a"]),
            "mcpServers.a: Http takes http: and https: and http+unix: URLs; ws: is for WebSocket",
        ),
        (
            at(["http://a", "http://b"], proxy={"isolation": "shared"}),
            'mcpServers.a: with urls, isolation is "auto" or "pool"',
        ),
        (
            OF_A_HOST | {"proxy": {"listens": []}},
            "proxy: object contains unknown field `listens`; did you mean 'listen'?",
        ),
        (
            OF_A_HOST | {"proxy": {"listen": [1]}},
            "proxy.listen[0]: expected `str | object`, got `int`",
        ),
        (
            OF_A_HOST | {"proxy": {"listen": ["unix:${NOT_SET_ANYWHERE}"]}},
            "proxy.listen[0]: the environment variable NOT_SET_ANYWHERE is not set; "
            "set it, or write ${NOT_SET_ANYWHERE:-} if it may be empty",
        ),
        (
            OF_A_HOST | {"proxy": {"listen": ["unix:${"]}},
            "proxy.listen[0]: expected ${NAME} or ${NAME:-default}",
        ),
        (
            OF_A_HOST | {"proxy": {"limits": {"maxDepth": 2000}}},
            "proxy.limits: max_depth must be at most 1024",
        ),
    ],
)
def test_a_fault_names_its_place(tmp_path: Path, document: object, problem: str) -> None:
    path = written(tmp_path, document)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: {problem}"


def test_a_fault_costs_its_own_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entries: dict[str, Any] = {
        "good": {"command": "a", "startup_timeout_sec": 7},
        "shape": {"command": 5},
        "variable": {"command": "${NOT_SET_ANYWHERE}"},
        "key": {"command": "a", "proxy": {"isolaton": "shared"}},
        "off": {"command": 5, "enabled": False},
        "a b": {"command": "a"},
    }
    path = written(tmp_path, {"mcpServers": entries})
    config = load(path)
    assert [one.name for one in config.backends] == ["good"]
    assert config.backends[0].start_timeout == 7
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 4
    assert caplog.messages[0] == (
        f"{path}: mcpServers.shape.command: expected `str | null`, got `int`; "
        "the server shape is left out"
    )
    # who loads may keep what a server was before
    before = {"shape": BackendConfig(target=Stdio("old"), name="shape")}
    kept = load(path, on_fault=lambda name, fault: before.get(name))
    assert [one.name for one in kept.backends] == ["good", "shape"]
    with raises(ConfigError):
        load(written(tmp_path, {"mcpServers": {"shape": entries["shape"], "a b": entries["a b"]}}))


def test_the_json_schema_in_the_repository() -> None:
    """CONTRIBUTING.md says how it is written."""
    assert json.loads(SCHEMA.read_text()) == schema()
    import tomllib

    validator = jsonschema_rs.validator_for(schema())
    validator.validate(tomllib.loads(TOML))
    validator.validate(OF_A_HOST)
    for wrong in (server(isolaton="shared"), server(maxClients=0), {}):
        assert not validator.is_valid(wrong)


def test_what_the_audit_log_notes(tmp_path: Path) -> None:
    audit = {"to": "stderr", "events": ["session", "reload"]}
    content = {"mcpServers": {"a": {"command": "a"}}, "proxy": {"audit": audit, "name": "east"}}
    config = load(written(tmp_path, content))
    assert config.audit == AuditConfig(to="stderr", events=("session", "reload"))
    assert config.shown_name == "east"
    for faulty in ({"to": "stderr", "events": ["login"]}, {"events": ["call"]}):
        content["proxy"] = {"audit": faulty}
        with raises(ConfigError):
            load(written(tmp_path, content))


def test_one_server_may_take_long_to_start(tmp_path: Path) -> None:
    """Beside the command, as other programs have it, or among the proxy's own keys, which win."""
    entries = {
        "a": {"command": "npx", "startTimeout": 300},
        "b": {"command": "npx", "startTimeout": 300, "proxy": {"startTimeout": 200}},
        "c": {"command": "c"},
    }
    config = load(written(tmp_path, {"mcpServers": entries}))
    assert [one.start_timeout for one in config.backends] == [300, 200, 30]
