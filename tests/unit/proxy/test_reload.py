"""A proxy takes another configuration while clients are served."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import MODERN, Raw, call, said
from lab.reload import ReloadLab, pid, server
from lab.wording import raises

from wirespeed import Client, Stdio
from wirespeed.errors import ConfigError, ConnectionLost, TransportError, WirespeedError
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig, ToolsConfig
from wirespeed.proxy.reload import compare

pytestmark = [pytest.mark.off_schema, pytest.mark.both_loops]

WS, HTTP = "ws://127.0.0.1:0/", "http://127.0.0.1:0/"


def at(url: str, name: str) -> str:
    """The URL of one server."""
    return url.split("/servers/")[0].removesuffix("/mcp") + f"/servers/{name}"


@pytest.mark.parametrize("url", [WS, HTTP])
async def test_a_server_that_is_the_same_keeps_its_process_and_sessions(
    tmp_path: Path, url: str
) -> None:
    lab = ReloadLab(tmp_path, server(tmp_path, "a"), server(tmp_path, "b"), listen=(url,))
    async with lab.serving(), contextlib.AsyncExitStack() as stack:
        one, two = [at(lab.urls[0][0], name) for name in "ab"]
        a = await stack.enter_async_context(Client(one))
        b = await stack.enter_async_context(Client(two))
        pids = await pid(a), await pid(b)
        changes = await lab.reload(server(tmp_path, "a"), server(tmp_path, "b", mark="x"))
        assert changes.changed == ("b",) and not changes.added and not changes.removed
        assert await pid(a) == pids[0]
        async with Client(two) as again:
            assert await pid(again) != pids[1]
        assert not (await lab.reload(server(tmp_path, "a"), server(tmp_path, "b", mark="x")))


@pytest.mark.parametrize("isolation", ["session", "shared", "pool"])
@pytest.mark.parametrize("listen", [(WS,), (HTTP,), (HTTP, WS)], ids=["ws", "http", "both"])
async def test_requests_in_flight_end_where_they_began(
    tmp_path: Path, isolation: str, listen: tuple[str, ...]
) -> None:
    """The clients of each listener."""
    lab = ReloadLab(tmp_path, server(tmp_path, isolation=isolation), listen=listen)
    async with lab.serving() as proxy, contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(Client(urls[0], era="legacy")) for urls in lab.urls
        ]
        before = [await pid(client) for client in clients]
        calls = [client.call_tool("sleep", {"seconds": 1.5}) for client in clients]
        slow = [asyncio.ensure_future(call) for call in calls]
        old = proxy.services["b"]
        while sum(front.session.inflight.live for front in old.downstreams) < len(slow):
            await asyncio.sleep(0.01)
        await lab.reload(server(tmp_path, isolation=isolation, mark="new"))
        assert not any(one.done() for one in slow)
        async with Client(lab.urls[0][0]) as fresh:
            assert await pid(fresh) not in before
        assert [((await one).meta or {})["pid"] for one in slow] == before
        while old.downstreams:
            await asyncio.sleep(0.01)


async def test_clients_of_a_stream_are_told_that_their_server_changed(tmp_path: Path) -> None:
    lab = ReloadLab(tmp_path, server(tmp_path))
    async with lab.serving():
        client = await lab.connect()
        await client.send(call(1, "hold", **{"as": "x"}))
        before = said(await client.ask(call(2, "echo")))["pid"]
        await lab.reload(server(tmp_path, mark="new"))
        answer = await client.ask(call(3, "echo"))
        assert answer["error"] == {"code": -31001, "message": "the server b was changed"}
        other = await lab.connect()
        assert said(await other.ask(call(1, "echo")))["pid"] != before


async def test_servers_are_added_and_removed(tmp_path: Path) -> None:
    lab = ReloadLab(tmp_path, server(tmp_path, "a"), listen=(f"{HTTP}mcp", f"{WS}mcp"))
    async with lab.serving() as proxy:
        web, ws = sorted(urls[0] for urls in lab.urls)
        async with Client(at(web, "a")) as client:
            before = await pid(client)
            changes = await lab.reload(server(tmp_path, "a"), server(tmp_path, "b"))
            assert changes.added == ("b",)
            assert await pid(client) == before
        for url in (at(web, "b"), at(ws, "b")):
            async with Client(url) as client:
                await pid(client)
        async with Client(web) as client:  # was that of the only server
            assert await pid(client, "a_echo") == before
            changes = await lab.reload(server(tmp_path, "b"))
        assert changes.removed == ("a",)
        assert list(proxy.services) == ["b"]
        for url in (at(web, "a"), at(ws, "a")):
            with raises(WirespeedError):
                async with Client(url):
                    pass


async def test_clients_of_all_servers_stay(tmp_path: Path) -> None:
    servers = server(tmp_path, "a"), server(tmp_path, "b")
    lab = ReloadLab(tmp_path, *servers, shutdown_grace=0.5)
    async with lab.serving():
        client = await lab.connect()
        pids = [said(await client.ask(call(1, f"{name}_echo")))["pid"] for name in "ab"]
        await client.send(call("slow", "b_hold", token=7, **{"as": "x"}))
        assert (await client.recv())["params"]["progressToken"] == 7
        await lab.reload(
            server(tmp_path, "a"), server(tmp_path, "b", mark="new"), server(tmp_path, "c")
        )
        changed = [(await client.recv())["method"].split("/")[1] for _ in range(2)]
        assert changed == ["tools", "resources"]
        again = [said(await client.ask(call(1, f"{name}_echo")))["pid"] for name in "abc"]
        assert again[0] == pids[0]
        assert again[1] != pids[1] and len({*again}) == 3
        # what was in flight has `shutdown_grace`, then it fails
        answer = await client.recv()
        assert answer["id"] == "slow" and answer["error"]["code"] == -31006
        await lab.reload(server(tmp_path, "a"), server(tmp_path, "c"))
        assert [(await client.recv())["method"] for _ in range(2)]
        gone = await client.ask(call(2, "b_echo"))
        assert gone["error"]["message"] == "Unknown tool: b_echo"


async def test_other_names_are_shown_without_a_start(tmp_path: Path) -> None:
    lab = ReloadLab(tmp_path, server(tmp_path, "a"), server(tmp_path, "b"))
    async with lab.serving():
        client = await lab.connect()
        before = said(await client.ask(call(1, "a_echo")))["pid"]
        tools = ToolsConfig(rename={"echo": "repeat"})
        changes = await lab.reload(
            server(tmp_path, "a", tools=tools), server(tmp_path, "b", prefix="n_")
        )
        assert changes.shown == ("a", "b") and not changes.changed
        assert [(await client.recv())["method"] for _ in range(2)] == [
            "notifications/tools/list_changed",
            "notifications/resources/list_changed",
        ]
        assert said(await client.ask(call(1, "repeat")))["pid"] == before
        await client.ask(call(2, "n_echo"))
        assert "error" in await client.ask(call(3, "b_echo"))


LISTEN = {
    "jsonrpc": "2.0",
    "id": "all",
    "method": "subscriptions/listen",
    "params": {"notifications": {"toolsListChanged": True}},
}


@pytest.mark.parametrize("size", [1, 2])
async def test_subscriptions_end_with_their_server(tmp_path: Path, size: int) -> None:
    modern: Any = {"versions": MODERN, "era": "modern", "isolation": "pool", "size": size}
    lab = ReloadLab(tmp_path, server(tmp_path, **modern))
    async with lab.serving() as proxy:
        client = await lab.connect(MODERN)
        acknowledged = await client.ask(LISTEN)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        began = asyncio.get_running_loop().time()
        await lab.reload(server(tmp_path, mark="new", **modern))
        assert await client.recv() == {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": "all"},
        }
        last = await client.recv()
        assert last["id"] == "all"
        assert last["result"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "all"}
        assert await client.reader.read() == b""
        assert asyncio.get_running_loop().time() - began < proxy.config.shutdown_grace


async def test_streams_over_http_end_with_their_server(tmp_path: Path) -> None:
    modern: Any = {"versions": MODERN, "era": "modern"}
    lab = ReloadLab(tmp_path, server(tmp_path, **modern), listen=(f"{HTTP}mcp",))
    async with lab.serving() as proxy:
        old = proxy.services["b"]
        port = int(lab.urls[0][0].split(":")[2].split("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = Raw(reader, writer, MODERN)
        body = client.text_of(LISTEN)
        fields = [
            "POST /mcp HTTP/1.1",
            "Host: 127.0.0.1",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"MCP-Protocol-Version: {MODERN}",
            "Mcp-Method: subscriptions/listen",
            f"Content-Length: {len(body)}",
        ]
        writer.write("\r\n".join(fields).encode() + b"\r\n\r\n" + body.encode())
        await reader.readuntil(b"acknowledged")
        began = asyncio.get_running_loop().time()
        await lab.reload(server(tmp_path, mark="new", **modern))
        await reader.readuntil(b'"resultType":"complete"')
        while old.downstreams:
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - began < proxy.config.shutdown_grace
        # the connection stays
        ping = client.text_of({"jsonrpc": "2.0", "id": 1, "method": "server/discover"})
        fields[5:] = ["Mcp-Method: server/discover", f"Content-Length: {len(ping)}"]
        writer.write("\r\n".join(fields).encode() + b"\r\n\r\n" + ping.encode())
        await reader.readuntil(b'"supportedVersions"')
        await client.close()


async def test_listeners_are_added_and_removed(tmp_path: Path) -> None:
    first = f"unix:{tmp_path / 'one'}"
    lab = ReloadLab(tmp_path, server(tmp_path), listen=(first,))
    async with lab.serving():
        async with Client(first) as client:
            before = await pid(client)
            second = f"unix:{tmp_path / 'two'}"
            changes = await lab.reload(listen=(first, second))
            assert changes.listening == (second,)
            async with Client(second) as other:
                assert await pid(other) == before
                changes = await lab.reload(listen=(second,))
                assert changes.closed == (first,)
                assert await pid(other) == before
            with pytest.raises(TransportError):
                async with Client(first):
                    pass
        changes = await lab.reload(listen=())
        assert "restart" in changes.pending[0]
        async with Client(second) as other:
            assert await pid(other) == before


async def test_a_reload_while_servers_start(tmp_path: Path) -> None:
    first, second, third = (f"unix:{tmp_path / name}" for name in ("one", "two", "three"))
    lab = ReloadLab(tmp_path, server(tmp_path), listen=(first, third))
    lab.proxy = proxy = Proxy(lab.config)
    for again in range(2):
        serving = asyncio.ensure_future(proxy.serve())
        await asyncio.sleep(0)  # it has begun, and waits for the server
        changes = await lab.reload(server(tmp_path, mark=f"x{again}"), listen=(first, second))
        assert changes.changed == ("b",)
        pids = set()
        for url in (first, second):
            async with Client(url) as client:
                pids.add(await pid(client))
                assert len(proxy.services["b"].downstreams) == 1
        assert len(pids) == 1
        with pytest.raises(TransportError):
            await Client(third).open()
        serving.cancel()
        await asyncio.wait((serving,))


async def test_a_reload_whose_listener_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lab = ReloadLab(tmp_path, server(tmp_path), listen=(f"unix:{tmp_path / 'file'}",))
    lab.proxy = proxy = Proxy(lab.config)
    serving = asyncio.ensure_future(proxy.serve())
    await asyncio.sleep(0)
    await lab.reload(server(tmp_path, mark="x"))  # does not wait for ever
    with pytest.raises(TransportError):
        await serving


async def test_a_fault_changes_nothing(tmp_path: Path) -> None:
    lab = ReloadLab(tmp_path, server(tmp_path))
    (tmp_path / "file").touch()
    async with lab.serving() as proxy, Client(lab.urls[0][0]) as client:
        before = await pid(client)
        config = proxy.config
        for listen, kind in {
            "what://x": ConfigError,
            f"unix:{tmp_path / 'file'}": TransportError,
        }.items():
            with pytest.raises(kind):
                await lab.reload(server(tmp_path, mark="x"), listen=(*config.listen, listen))
        assert proxy.config is config
        assert await pid(client) == before
        assert (proxy.reloads.ok, proxy.reloads.failed) == (0, 2)
        assert proxy.reloads.error is not None and proxy.reloads.last is not None


async def test_a_server_that_cannot_be_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = ReloadLab(tmp_path, server(tmp_path))
    async with lab.serving():
        await lab.reload(BackendConfig(target=Stdio("/nowhere/x"), name="b", isolation="shared"))
        assert "/nowhere/x" in caplog.text
        await lab.reload(server(tmp_path))
        async with Client(lab.urls[0][0]) as client:
            await pid(client)


async def test_reloads_under_load(tmp_path: Path) -> None:
    """Clients that open, ask and close meanwhile: each request has its answer, or is refused with
    the code for it."""
    lab = ReloadLab(
        tmp_path, server(tmp_path, "a"), server(tmp_path, "b"), listen=(f"{WS}mcp", f"{HTTP}mcp")
    )
    async with lab.serving() as proxy:
        over = False
        counts = {"answered": 0, "refused": 0, "closed": 0}

        async def work(url: str, tool: str, n: int) -> None:
            i = 0
            while not over:
                with contextlib.suppress(ConnectionLost):
                    async with Client(url) as client:
                        for _ in range(5):
                            i += 1
                            try:
                                result = await client.call_tool(tool, {"nonce": f"{n}-{i}"})
                            except ConnectionLost:
                                counts["closed"] += 1
                                break
                            except WirespeedError as exc:
                                counts["refused"] += 1
                                assert "changed" in str(exc) or "ended" in str(exc), exc
                            else:
                                assert result.meta is not None
                                assert result.meta["nonce"] == f"{n}-{i}"
                                counts["answered"] += 1

        urls = [urls[0] for urls in lab.urls]
        work_at = [(urls[0], "a_echo"), (urls[1], "b_echo"), (at(urls[0], "a"), "echo")]
        work_at.append((at(urls[1], "b"), "echo"))
        tasks = [asyncio.ensure_future(work(*one, n)) for n, one in enumerate(work_at)]
        for i in range(6):
            await lab.reload(server(tmp_path, "a", mark=str(i)), server(tmp_path, "b", mark=str(i)))
            await asyncio.sleep(0.2)
        over = True
        await asyncio.gather(*tasks)
        assert proxy.reloads.ok == 6
        print(counts)
        assert counts["answered"] > 50


def test_what_counts_as_the_same(tmp_path: Path) -> None:
    one = ProxyConfig(backends=(server(tmp_path, "a"), server(tmp_path, "b")), listen=("ws://h/",))
    assert not compare(one, one)
    other = ProxyConfig(
        backends=(server(tmp_path, "b", isolation="session"), server(tmp_path, "c")),
        listen=("ws://h/", "tcp://h:1"),
        page_size=5,
    )
    changes = compare(one, other)
    assert (changes.added, changes.removed, changes.changed) == (("c",), ("a",), ("b",))
    assert (changes.listening, changes.settings) == (("tcp://h:1",), ("page_size",))
    assert str(changes).startswith("added: c; removed: a; changed: b")
