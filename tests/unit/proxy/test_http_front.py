"""HTTP clients of the proxy: sessions, each with its own ids, tokens and streams."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from lab.http_front import Front, asked, fields, hello, serving
from lab.merge import MergeLab
from lab.proxy import ENVELOPE, MODERN, Lab, call, said
from lab.reload import ReloadLab, server
from lab.wording import raises

from wirespeed import Client, Stdio
from wirespeed.errors import CallTimeout, RemoteError, VersionMismatch
from wirespeed.protocol.codes import SERVER_LOST
from wirespeed.proxy import BackendConfig, Proxy

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema, pytest.mark.both_loops]

ISOLATIONS = ["session", "shared"]


async def test_session_ids_begin_with_the_name_of_the_proxy(tmp_path: Path) -> None:
    """A reload leaves the name of the proxy as it is, and a session keeps its server."""
    lab = ReloadLab(tmp_path, server(tmp_path), listen=("http://127.0.0.1:0/mcp",))
    lab.config = dataclasses.replace(lab.config, name="east")
    async with lab.serving() as proxy:
        front = Front(lab, lab.urls[0][0])
        assert proxy.name == "east" and (await front.initialize()).startswith("east.0.")
        changes = await lab.reload(server(tmp_path, mark="new"), name="west")
        assert changes.pending == ("name changes at a restart only",)
        assert proxy.name == "east" and (await front.initialize()).startswith("east.0.")


async def test_a_proxy_without_a_name_makes_one(tmp_path: Path) -> None:
    """It is the same after a restart, and another one for another proxy."""
    names = []
    for url in ("http://127.0.0.1:0/other", "http://127.0.0.1:0/other", "http://127.0.0.1:0/mcp"):
        lab = ReloadLab(tmp_path, server(tmp_path), listen=(url,))
        names.append(Proxy(lab.config).name)
    assert names[0] == names[1] != names[2]
    async with lab.serving() as proxy:
        front = Front(lab, lab.urls[0][0])
        session = await front.initialize()
    assert session.startswith(f"{proxy.name}.0.") and len(proxy.name) == 8


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_clients_at_once(tmp_path: Path, isolation: str) -> None:
    async with serving(tmp_path, isolation) as front, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(front.url)) for _ in range(3)]
        spoken = "2025-11-25" if isolation == "session" else MODERN  # translated
        assert [client.protocol_version for client in clients] == [spoken] * 3
        reports: list[list[Any]] = [[] for _ in clients]

        async def work(n: int) -> set[int]:
            pids = set()
            for i in range(5):
                nonce = f"{n}-{i}"
                result = await clients[n].call_tool(
                    "echo",
                    {"nonce": nonce},
                    on_progress=lambda _, __, message: reports[n].append(message),
                )
                assert result.meta is not None
                assert result.meta["nonce"] == nonce
                pids.add(result.meta["pid"])
            return pids

        pids = await asyncio.gather(*map(work, range(3)))
        assert len(set.union(*pids)) == (3 if isolation == "session" else 1)
        assert reports == [[f"{n}-{i}" for i in range(5)] for n in range(3)]


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_the_same_ids_in_sessions_side_by_side(tmp_path: Path, isolation: str) -> None:
    async with serving(tmp_path, isolation) as front:
        sessions = [await front.initialize(7) for _ in range(3)]
        answers = await asyncio.gather(
            *(
                front.post(call(7, "echo", nonce=session), f"Mcp-Session-Id: {session}")
                for session in sessions
            )
        )
        for session, (status, _, answer) in zip(sessions, answers, strict=True):
            assert status == 200
            assert answer["id"] == 7
            assert answer["result"]["_meta"]["nonce"] == session


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_cancellations_and_what_a_client_leaves(tmp_path: Path, isolation: str) -> None:
    async with serving(tmp_path, isolation) as front, Client(front.url) as client:
        held = asyncio.ensure_future(client.call_tool("hold", {"as": "x"}))
        await front.lab.until_read("tools/call", 1)
        held.cancel()
        (cancelled,) = await front.lab.until_read("notifications/cancelled", 1)
        (request,) = front.lab.read("tools/call")
        assert cancelled["params"]["requestId"] == request["id"]


async def test_modern_requests_learn_the_revisions(tmp_path: Path) -> None:
    async with serving(tmp_path, "session") as front:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
        status, _, answer = await front.post(
            body, "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: server/discover"
        )
        assert status == 400
        assert answer["error"]["code"] == -32022
        assert "2025-11-25" in answer["error"]["data"]["supported"]
        with pytest.raises(VersionMismatch):
            async with Client(front.url, era="modern"):
                pass
        assert not front.lab.seen.exists()  # no server was started for them


async def test_requests_without_a_session_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, "session") as front:
        status, _, answer = await front.post(call(1, "echo"))
        assert (status, answer["error"]["code"]) == (400, -32600)
        status, _, _ = await front.post(call(1, "echo"), "Mcp-Session-Id: unknown")
        assert status == 404


async def test_a_session_ends_with_its_server(tmp_path: Path) -> None:
    async with serving(tmp_path, "session") as front:
        session = f"Mcp-Session-Id: {await front.initialize()}"
        status, _, answer = await front.post(call(1, "crash"), session)
        assert (status, answer["error"]["code"]) == (200, SERVER_LOST)
        while (await front.post(call(2, "echo"), session))[0] != 404:
            pass


@pytest.mark.parametrize(
    ("isolation", "version"),
    [
        *product(["shared", "auto"], ["2025-11-25", MODERN]),
        ("session", "2025-11-25"),
        ("pool", MODERN),
    ],
)
async def test_the_status_says_that_a_server_is_down(
    tmp_path: Path, isolation: Any, version: str
) -> None:
    """No server has seen the request."""
    target = Stdio(str(tmp_path / "missing"))
    down = BackendConfig(target=target, name="down", isolation=isolation)
    async with serving(tmp_path, "shared", others=(down,)) as front:
        front.path = "/servers/down"
        if version == MODERN:
            request = call(1, "echo")
            request["params"] |= {"_meta": ENVELOPE}
            fields = ("Mcp-Method: tools/call", "Mcp-Name: echo", f"MCP-Protocol-Version: {MODERN}")
            status, _, answer = await front.post(request, *fields)
        else:
            status, _, answer = await front.post(hello(1, version))
        assert (status, answer["error"]["code"]) == (503, SERVER_LOST)


async def test_a_shared_server_that_crashes_comes_back(tmp_path: Path) -> None:
    async with serving(tmp_path, "shared") as front, Client(front.url) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("crash")
        assert caught.value.code == SERVER_LOST
        result = await client.call_tool("echo", {"nonce": 1})
        assert result.meta is not None
        assert result.meta["nonce"] == 1


async def test_delete_ends_the_server_of_a_session(tmp_path: Path) -> None:
    async with serving(tmp_path, "session") as front:
        session = f"Mcp-Session-Id: {await front.initialize()}"
        _, _, answer = await front.post(call(1, "echo"), session)
        pid = answer["result"]["_meta"]["pid"]
        status, _, _ = await front.request("DELETE", b"", session)
        assert status == 204
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


async def test_batches(tmp_path: Path) -> None:
    async with serving(tmp_path, "shared") as front:
        session = f"Mcp-Session-Id: {await front.initialize(version='2025-03-26')}"
        batch = [call(n, "echo", nonce=n) for n in ("a", 1)]
        status, _, answer = await front.post(batch, session)
        assert status == 200
        answers = json.loads(answer)
        assert {one["id"]: one["result"]["_meta"]["nonce"] for one in answers} == {"a": "a", 1: 1}


async def test_a_list_change_reaches_the_open_get(tmp_path: Path) -> None:
    async with serving(tmp_path, "shared") as front:
        one, two = [f"Mcp-Session-Id: {await front.initialize()}" for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        head = ["GET /mcp HTTP/1.1", "Host: 127.0.0.1", "Accept: text/event-stream", one]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await front.post(call(1, "note", method="tools/list_changed", params={}), two)
        await reader.readuntil(b":\n\n")
        event = await reader.readuntil(b"\n\n")
        assert b'"method": "notifications/tools/list_changed"' in event
        writer.close()


async def test_stateless_is_refused(tmp_path: Path) -> None:
    from wirespeed import HttpOptions
    from wirespeed.transport.net.serve import serve

    service = Lab(tmp_path, "shared").proxy.services["b"]
    with raises(ValueError):
        await serve("http://127.0.0.1:0/mcp", service, http=HttpOptions(stateless=True))


# -- clients of 2026-07-28 -------------------------------------------------------------------


async def test_modern_clients_of_a_shared_server(tmp_path: Path) -> None:
    """Each request stands alone. The header fields agree with it, and errors have their status."""
    async with serving(tmp_path, "shared", versions=MODERN, translate=False) as front:
        echo = asked("tools/call", name="echo", arguments={"nonce": 5})
        status, _, answer = await front.post(echo, *fields("tools/call", "echo"))
        assert (status, answer["id"], said(answer)["nonce"]) == (200, 1, 5)
        for wrong in (fields("tools/call", "hold"), fields("tools/list", "echo"), fields("x")):
            status, _, answer = await front.post(echo, *wrong)
            assert (status, answer["error"]["code"]) == (400, -32020)
        for code, status in ((-32601, 404), (-32021, 400), (-31000, 200), (-32602, 200)):
            error = {"jsonrpc": "2.0", "id": "$id", "error": {"code": code, "message": "no"}}
            body = asked("tools/call", name="fail", arguments={"text": json.dumps(error)})
            got, _, answer = await front.post(body, *fields("tools/call", "fail"))
            assert (got, answer["error"]["code"]) == (status, code)
        status, _, answer = await front.post(hello())
        assert (status, answer["error"]["code"]) == (400, -32022)


async def test_modern_clients_at_once(tmp_path: Path) -> None:
    """Clients with the same ids and tokens, some of which leave."""
    async with serving(tmp_path, "shared", versions=MODERN) as front:

        async def one(n: int) -> None:
            async with Client(front.url, era="modern") as client:
                heard: list[str] = []
                for k in range(20):
                    answer = await client.call_tool(
                        "echo",
                        {"nonce": f"{n}/{k}"},
                        on_progress=lambda done, total, text: heard.append(str(text)),
                    )
                    assert answer.meta["nonce"] == f"{n}/{k}"
                assert heard == [f"{n}/{k}" for k in range(20)]
                with pytest.raises(CallTimeout):
                    await client.call_tool("hold", {"as": str(n)}, timeout=0.1)

        await asyncio.gather(*(one(n) for n in range(8)))
        held = {m["id"] for m in front.lab.read("tools/call") if m["params"]["name"] == "hold"}
        cancelled = await front.lab.until_read("notifications/cancelled", 8)
        assert {m["params"]["requestId"] for m in cancelled} == held


async def test_a_crash_while_modern_clients_ask(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, "shared", versions=MODERN) as front,
        Client(front.url, era="modern") as client,
    ):
        first = (await client.call_tool("echo")).meta["pid"]
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("crash")
        assert caught.value.code == SERVER_LOST
        assert (await client.call_tool("echo")).meta["pid"] != first


async def test_one_endpoint_of_shared_servers(tmp_path: Path) -> None:
    """It serves clients of 2026-07-28 over HTTP. A server with a process for each session is left
    out for these clients, and is there for those of a legacy era."""
    for one, other, era, shown in (
        ("shared", "shared", "modern", ["red", "blue"]),
        ("shared", "session", "modern", ["red"]),
        ("shared", "session", "legacy", ["red", "blue"]),
        ("auto", "auto", "modern", ["red", "blue"]),
    ):
        lab = MergeLab(tmp_path)
        lab.backends = [
            lab.inside("red", isolation=one),
            lab.inside("blue", isolation=other),
        ]
        async with (
            lab.serving("http://127.0.0.1:0/mcp") as urls,
            Client(urls[0], era=era) as client,
        ):
            names = {tool.name.partition("_")[0] for tool in await client.list_tools()}
            assert names == set(shown)
            answers = await asyncio.gather(
                *(client.call_tool(f"{name}_who", {"nonce": "n"}) for name in shown)
            )
            assert [answer.data for answer in answers] == [f"{name}:n" for name in shown]


async def test_paths_of_several_servers(tmp_path: Path) -> None:
    """A slash behind a path changes nothing."""
    lab = MergeLab(tmp_path)
    lab.backends = [lab.inside("red", isolation="shared"), lab.inside("blue")]
    async with lab.serving("http://127.0.0.1:0/mcp") as urls:
        front = Front(lab, urls[0])
        for slash in ("", "/"):
            for path, name in (("/mcp", "red_who"), ("/servers/red", "who")):
                body = asked("tools/call", name=name, arguments={"nonce": "n"})
                front.path = path + slash
                status, _, answer = await front.post(body, *fields("tools/call", name))
                assert (status, answer["result"]["content"][0]["text"]) == (200, "red:n")
            front.path = "/servers/blue" + slash
            status, got, _ = await front.post(hello())
            assert status == 200 and "mcp-session-id" in got


async def test_the_endpoint_of_a_server_that_has_no_modern_clients(tmp_path: Path) -> None:
    """The refusal says which server it is, and what to set."""
    lab = MergeLab(tmp_path)
    lab.backends = [lab.inside("red", isolation="session"), lab.inside("blue")]
    async with lab.serving("http://127.0.0.1:0/mcp") as urls:
        front = Front(lab, urls[0])
        body = asked("tools/call", name="who", arguments={})
        front.path = "/servers/red"
        status, _, answer = await front.post(body, *fields("tools/call", "who"))
        assert (status, answer["error"]["code"]) == (400, -32022)
        text = answer["error"]["message"]
        assert "red" in text and 'set isolation to "auto", "shared" or "pool"' in text
