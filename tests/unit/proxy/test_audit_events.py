"""The audit log: clients that were not let in, sessions, reads, prompts and reloads; rotation."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lab.audit import lines, until
from lab.merge import MergeLab
from lab.operation import Watched
from lab.principals import Requests, client, modern, serving
from lab.proxy import BACKEND, Lab, call
from lab.reload import ReloadLab, server
from lab.wording import raises

from wirespeed import Client, Http, WebSocket
from wirespeed.auth import hash_token
from wirespeed.errors import ConfigError, WirespeedError
from wirespeed.proxy import AuditConfig, PrincipalConfig, Proxy, ProxyConfig, ToolsConfig

pytestmark = pytest.mark.off_schema


def audit(folder: Path, *events: Any) -> AuditConfig:
    return AuditConfig(to=str(folder / "audit"), events=events)


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_clients_that_were_not_let_in(tmp_path: Path, scheme: str) -> None:
    async with serving(tmp_path, scheme, audit=audit(tmp_path, "refusal")) as url:
        for path in (None, "/servers/a"):
            with pytest.raises(WirespeedError):
                async with client(url, "anne", "legacy", path):
                    raise WirespeedError("let in")
            with pytest.raises(WirespeedError):
                async with client(url, "bob", "legacy", "/servers/a"):
                    pass
        found = await until(tmp_path / "audit", 2)
    assert {(one["status"], one.get("server")) for one in found} == {(403, "a")}


async def test_why_a_client_was_not_let_in(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, "http", audit=audit(tmp_path, "refusal")) as url,
        Requests(url) as requests,
    ):
        body, *fields = modern("tools/call", name="a_who", arguments={})
        status, _, _ = await requests.post(body, "nobody", *fields, "X-Request-Id: first")
        assert status == 401
        status, _, _ = await requests.post(body, "bob", *fields, path="/servers/a")
        assert status == 403
        status, _, _ = await requests.post(body, "anne", *fields, "Origin: https://evil.example")
        assert status == 403
        status, _, _ = await requests.post(body, "anne", *fields)
        assert status == 200
        found = await until(tmp_path / "audit", 3)
    shown = [(one["status"], one.get("server"), one.get("request_id")) for one in found]
    assert shown == [(401, None, "first"), (403, "a", None), (403, None, None)]
    assert [one["reason"] for one in found][1:] == [
        "this client may not use this server",
        "this Origin may not connect",
    ]
    assert all(one["event"] == "refusal" and one["peer"] for one in found)
    assert len(lines(tmp_path / "audit")) == 3


async def test_clients_of_the_admin_listener_that_were_not_let_in(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared", audit=audit(tmp_path, "refusal"))
    async with lab.serving():
        assert (await lab.get("/status", {})).status == 401
        assert (await lab.get("/readyz", {"Host": "another.name"})).status == 200
        (one,) = await until(tmp_path / "audit", 1)
    assert (one["server"], one["status"]) == ("admin", 401)
    assert len(lines(tmp_path / "audit")) == 1


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_reads_and_prompts(tmp_path: Path, era: str) -> None:
    config = audit(tmp_path, "read", "prompt")
    async with serving(tmp_path, "http", audit=config) as url, client(url, "anne", era) as anne:
        await anne.call_tool("a_who")
        await anne.read_resource("data://a")
        await anne.get_prompt("a_greet", {"whom": "secret argument"})
        with pytest.raises(WirespeedError):
            await anne.get_prompt("b_greet", {"whom": "x"})
        found = await until(tmp_path / "audit", 3)
    assert [one["event"] for one in found] == ["read", "prompt", "prompt"]
    assert [one.get("uri", one.get("prompt")) for one in found] == [
        "data://a",
        "a_greet",
        "b_greet",
    ]
    assert [one["server"] for one in found] == ["a", "a", "b"]
    assert [one["outcome"] for one in found] == ["ok", "ok", "refused"]
    assert all(one["principal"] == "anne" and "tool" not in one for one in found)
    assert "secret argument" not in (tmp_path / "audit").read_text()


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_sessions_begin_and_end(tmp_path: Path, scheme: str) -> None:
    async with serving(tmp_path, scheme, audit=audit(tmp_path, "session")) as url:
        async with client(url, "anne", "legacy") as anne:
            await anne.call_tool("a_who")
            (begun,) = await until(tmp_path / "audit", 1)
        found = await until(tmp_path / "audit", 2)
    assert found[0] == begun and [one["outcome"] for one in found] == ["begun", "ended"]
    assert {(one["event"], one["principal"], one["id"]) for one in found} == {
        ("session", "anne", begun["id"])
    }
    assert found[1]["ms"] > 0 and "server" not in begun


async def test_requests_without_a_session_are_none(tmp_path: Path) -> None:
    config = audit(tmp_path, "session", "call")
    async with serving(tmp_path, "http", audit=config) as url:
        async with client(url, "anne", "modern") as anne:
            await anne.call_tool("a_who")
        found = await until(tmp_path / "audit", 1)
    assert [one["event"] for one in found] == ["call"]


async def test_reloads(tmp_path: Path) -> None:
    lab = ReloadLab(tmp_path, server(tmp_path))
    lab.config = dataclasses.replace(lab.config, audit=audit(tmp_path, "reload"))
    async with lab.serving() as proxy:
        await lab.reload(server(tmp_path, mark="new"))

        def load() -> Any:
            raise ConfigError("proxy.json: it is broken")

        await proxy.reload_from(load)
        found = await until(tmp_path / "audit", 2)
    assert [(one["event"], one["outcome"]) for one in found] == [
        ("reload", "ok"),
        ("reload", "refused"),
    ]
    assert found[0]["changes"] == "changed: b"
    assert found[1]["error"] == "proxy.json: it is broken"


async def test_a_call_that_is_denied_names_its_server(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path, audit=audit(tmp_path, "call"))
    hidden = ToolsConfig(deny=("secret",))
    lab.backends = [lab.backend("a", tools=hidden), lab.backend("b")]
    async with lab.serving() as _:
        one = await lab.connect()
        for i, tool in enumerate(("a_secret", "b_secret", "none")):
            await one.ask(call(i, tool))
        found = await until(tmp_path / "audit", 3)
    assert [(one["tool"], one.get("server"), one["outcome"]) for one in found] == [
        ("a_secret", "a", "refused"),
        ("b_secret", "b", "ok"),
        ("none", None, "refused"),
    ]


async def test_no_line_is_lost_by_rotations_under_load(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    lab = Lab(tmp_path, "shared", audit=str(path))
    n_clients, n_calls = 4, 150
    async with lab.serving():

        async def work(name: int) -> None:
            one = await lab.connect()
            for i in range(n_calls):
                await one.ask(call(f"{name}-{i}", "echo"))

        working = [asyncio.ensure_future(work(name)) for name in range(n_clients)]
        rotations = 0
        while not all(task.done() for task in working):
            with contextlib.suppress(FileNotFoundError):  # the new file is not there yet
                path.rename(tmp_path / f"audit.{rotations}")
                rotations += 1
            lab.proxy.reopen_logs()
            await asyncio.sleep(0.02)
        await asyncio.gather(*working)
    found = [
        json.loads(line)["id"]
        for file in tmp_path.glob("audit*")
        for line in file.read_text().splitlines()
    ]
    assert len(found) == len(set(found)) == n_clients * n_calls
    assert rotations > 1


def test_events_that_are_not_known_are_refused() -> None:
    with raises(ValueError):
        AuditConfig(to="stderr", events=("login",))  # type: ignore[arg-type]


async def test_the_peer_of_each_line_is_an_address(tmp_path: Path) -> None:
    """It has no port: clients of LiteMCP have none, and a client has many."""
    path = tmp_path / "audit"
    token = "t" * 40
    (tmp_path / "backend.py").write_text(BACKEND)
    config = ProxyConfig(
        backends=(server(tmp_path),),
        listen=("http://127.0.0.1:0/mcp", "ws://127.0.0.1:0/mcp"),
        principals=(PrincipalConfig(name="p", token_sha256=hash_token(token)[7:]),),
        audit=AuditConfig(to=str(path), events=("call", "refusal", "session")),
    )
    proxy = Proxy(config)
    urls: list[str] = []
    listening = asyncio.Event()

    def on_listening(found: Sequence[str]) -> None:
        urls.append(found[0])
        if len(urls) == len(config.listen):
            listening.set()

    serving = asyncio.ensure_future(proxy.serve(on_listening=on_listening))
    await listening.wait()
    for url in urls:
        kind = Http if url.startswith("http:") else WebSocket
        async with Client(kind(url, token=token)) as client:
            await client.call_tool("echo", {})
        with pytest.raises(WirespeedError):
            await Client(kind(url)).open()
    found = await until(path, 6)
    serving.cancel()
    await asyncio.wait((serving,))
    assert {one["event"] for one in found} == {"call", "refusal", "session"}
    assert {one["peer"] for one in found} == {"127.0.0.1"}
