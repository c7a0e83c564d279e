"""Which stream of an HTTP client carries what a server asks and says: that of the request that it
belongs to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lab.http import Peer, Response, message
from lab.proxy import MODERN, Lab, call, said

from wirespeed import Context, Http, Server
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

LEVEL = "io.modelcontextprotocol/logLevel"
VERSIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]


class Poster:
    """A client of a legacy era without a stream of its own."""

    def __init__(self, url: str) -> None:
        self.port = int(url.split(":")[2].split("/")[0])
        self.peers: list[Peer] = []
        self.fields: dict[str, str | None] = {}

    async def peer(self) -> Peer:
        peer = Peer(self.port, *await asyncio.open_connection("127.0.0.1", self.port))
        self.peers.append(peer)
        return peer

    async def initialize(self, version: str) -> None:
        response = await (await self.peer()).initialize(version)
        self.fields["mcp_session_id"] = response.headers["mcp-session-id"]

    async def post(self, method: str, params: Any = None, id: Any = 1) -> tuple[Peer, Response]:
        """Send a request; return once its response has begun to come."""
        peer = await self.send(method, params, id)
        return peer, await peer.head()

    async def send(self, method: str, params: Any = None, id: Any = 1) -> Peer:
        peer = await self.peer()
        peer.send(body=message(method, params, id), **self.fields)
        return peer

    async def answer(self, question: Any, result: Any) -> None:
        peer = await self.peer()
        text = {"jsonrpc": "2.0", "id": question["id"], "result": result}
        response = await peer.ask(body=msgspec.json.encode(text), **self.fields)
        assert response.status == 202

    def close(self) -> None:
        for peer in self.peers:
            peer.close()


def tool(name: str, /, **arguments: Any) -> dict[str, Any]:
    params: dict[str, Any] = call(1, name, **arguments)["params"]
    return params


@contextlib.asynccontextmanager
async def stdio_behind(
    folder: Path, isolation: str = "session", *, merged: bool = False, **options: Any
) -> AsyncIterator[Any]:
    """``merged``: The proxy has the server twice, as b and as c, and all tools at its first URL."""
    lab = Lab(folder, isolation, **options)
    config = lab.proxy.config
    backends = (*config.backends, replace(config.backends[0], name="c"))[: 1 + merged]
    lab.proxy = Proxy(replace(config, backends=backends, listen=("http://127.0.0.1:0/mcp",)))
    async with lab.serving():
        yield lab


class Behind:
    """A server over HTTP whose tools speak when they are told to."""

    def __init__(self) -> None:
        self.server = Server("behind")
        self.go: dict[str, asyncio.Event] = {}
        self.begun: dict[str, asyncio.Event] = {}

        @self.server.tool
        async def ask(name: str, ctx: Context) -> str:
            await self.wait(name)
            return str((await ctx.sample(name, max_tokens=5)).text)

        @self.server.tool
        async def log(name: str, ctx: Context) -> str:
            await self.wait(name)
            await ctx.log("error", name)
            return name

    async def wait(self, name: str) -> None:
        self.begun.setdefault(name, asyncio.Event()).set()
        await self.go.setdefault(name, asyncio.Event()).wait()

    @contextlib.asynccontextmanager
    async def proxied(self, isolation: Any, *, merged: bool = False) -> AsyncIterator[str]:
        """Serve behind a proxy. Gives the URL of the proxy.

        ``merged``: The proxy serves it twice, as b and as c, and all tools at its URL.
        """
        loop = asyncio.get_running_loop()
        urls: list[asyncio.Future[Any]] = [loop.create_future(), loop.create_future()]
        serving = [
            asyncio.ensure_future(
                self.server.serve("http://127.0.0.1:0/mcp", on_listening=urls[0].set_result)
            )
        ]
        backend = BackendConfig(
            target=Http((await urls[0])[0]),
            name="b",
            isolation=isolation,
            ask=isolation == "shared",
        )
        backends = (backend, replace(backend, name="c"))[: 1 + merged]
        proxy = Proxy(ProxyConfig(backends=backends, listen=("http://127.0.0.1:0/mcp",)))
        serving.append(asyncio.ensure_future(proxy.serve(on_listening=urls[1].set_result)))
        try:
            yield (await urls[1])[0]
        finally:
            for task in reversed(serving):
                task.cancel()
            await asyncio.wait(serving)


SAMPLE = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}


@pytest.mark.parametrize(
    ("version", "merged"), [*((one, False) for one in VERSIONS), (VERSIONS[-1], True)]
)
async def test_questions_and_logs_without_a_stream_of_its_own(
    tmp_path: Path, version: str, merged: bool
) -> None:
    """They come in the response to the request that is open."""
    note, ask = ("b_note", "b_ask") if merged else ("note", "ask")
    async with stdio_behind(tmp_path, merged=merged) as lab:
        client = Poster(lab.urls[0])
        await client.initialize(version)
        line = {"level": "error", "data": "x"}
        peer, response = await client.post("tools/call", tool(note, method="message", params=line))
        told, answer = await peer.until(response, 2)
        assert told["params"] == line and answer["id"] == 1
        asked = tool(ask, its="q", method="sampling/createMessage")
        peer, response = await client.post("tools/call", asked, 2)
        (question,) = await peer.until(response, 1)
        assert question["method"] == "sampling/createMessage"
        await client.answer(question, SAMPLE)
        (_, answer) = await peer.until(response, 2)
        assert said(answer)["got"]["result"] == SAMPLE
        client.close()


async def test_a_stream_of_its_own_carries_what_belongs_to_no_request(tmp_path: Path) -> None:
    async with stdio_behind(tmp_path) as lab:
        client = Poster(lab.urls[0])
        await client.initialize("2025-11-25")
        own = await client.peer()
        own.send("GET", **client.fields)
        stream = await own.head()
        line = {"level": "error", "data": "x"}
        peer, response = await client.post(
            "tools/call", tool("note", method="message", params=line)
        )
        assert [m.get("method") for m in await peer.until(response, 2)] == [
            "notifications/message",
            None,
        ]
        changed = tool("note", method="tools/list_changed", params={})
        _, response = await client.post("tools/call", changed, 2)
        assert not response.is_stream
        (first,) = await own.until(stream, 1)
        assert first["method"] == "notifications/tools/list_changed"
        client.close()


async def test_the_newest_request_carries_it(tmp_path: Path) -> None:
    async with stdio_behind(tmp_path) as lab:
        client = Poster(lab.urls[0])
        await client.initialize("2025-11-25")
        older = await client.send("tools/call", tool("hold", **{"as": "x"}), 1)
        await lab.until_read("tools/call", 1)
        asked = tool("ask", its="q", method="sampling/createMessage")
        newer, response = await client.post("tools/call", asked, 2)
        (question,) = await newer.until(response, 1)
        await client.answer(question, SAMPLE)
        assert (await newer.until(response, 2))[1]["id"] == 2
        await client.post("tools/call", tool("free", **{"as": "x"}), 4)
        answer = await older.response()
        assert not answer.is_stream and answer.json["id"] == 1
        client.close()


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("isolation", ["session", "shared"])
async def test_a_server_over_http(isolation: str, merged: bool) -> None:
    """It says itself which request its message belongs to, of whichever client."""
    behind = Behind()
    ask, log = ("b_ask", "b_log") if merged else ("ask", "log")
    async with behind.proxied(isolation, merged=merged) as url:
        clients = [Poster(url), Poster(url)]
        for client in clients:
            await client.initialize("2025-11-25")
        one = clients[0]
        peers = {}
        for n, name in enumerate(("a", "b", "c")):
            asker = clients[1] if name == "c" else one
            peers[name] = await asker.send("tools/call", tool(ask, name=name), n)
            await behind.begun.setdefault(name, asyncio.Event()).wait()
        for n, name in enumerate(("a", "b", "c")):
            behind.go[name].set()
            response = await peers[name].head()
            (question,) = await peers[name].until(response, 1)
            assert question["params"]["messages"][0]["content"]["text"] == name
            await (clients[1] if name == "c" else one).answer(question, SAMPLE)
            answer = (await peers[name].until(response, 2))[1]
            assert answer["id"] == n and answer["result"]["content"][0]["text"] == "hi"
        behind.go["log"] = asyncio.Event()
        behind.go["log"].set()
        peer, response = await one.post("tools/call", tool(log, name="log"), 9)
        told, answer = await peer.until(response, 2)
        assert told["params"]["data"] == "log" and answer["id"] == 9
        for client in clients:
            client.close()


# -- 2026-07-28 ----------------------------------------------------------------------------------


async def modern(url: str, name: str, level: str | None = "debug", /, **arguments: Any) -> Any:
    """The messages in the response to a call."""
    peer = Peer(
        port := int(url.split(":")[2].split("/")[0]),
        *await asyncio.open_connection("127.0.0.1", port),
    )
    meta = {} if level is None else {"_meta": {LEVEL: level}}
    response = await peer.modern("tools/call", {**tool(name, **arguments), **meta})
    peer.close()
    return response.messages if response.is_stream else [response.json]


@pytest.mark.parametrize("merged", [False, True])
async def test_log_messages_of_2026_07_28_over_http(merged: bool) -> None:
    behind = Behind()
    log = "b_log" if merged else "log"
    async with behind.proxied("shared", merged=merged) as url:
        for name in ("a", "b"):
            behind.go[name] = asyncio.Event()
        calls = [asyncio.ensure_future(modern(url, log, name=name)) for name in ("a", "b")]
        for name in ("a", "b"):
            await behind.begun.setdefault(name, asyncio.Event()).wait()
        for name in ("a", "b"):
            behind.go[name].set()
        for name, one in zip(("a", "b"), calls, strict=True):
            told, answer = await one
            assert told["params"]["data"] == name
            assert answer["result"]["content"][0]["text"] == name


@pytest.mark.parametrize(
    ("isolation", "merged"), [("shared", False), ("pool", False), ("auto", False), ("auto", True)]
)
async def test_log_messages_of_a_process(tmp_path: Path, isolation: str, merged: bool) -> None:
    """They belong to the only request that asks for any."""
    line = {"level": "error", "data": "x"}
    note = {"method": "message", "params": line}
    say, hold, free = (f"{'b_' * merged}{one}" for one in ("note", "hold", "free"))
    async with stdio_behind(tmp_path, isolation, merged=merged, versions=MODERN, size=1) as lab:
        url = lab.urls[0]
        told, answer = await modern(url, say, **note)
        assert told["params"] == line and "result" in answer
        assert len(await modern(url, say, None, **note)) == 1
        # another request asks for log messages as well
        held = asyncio.ensure_future(modern(url, hold, **{"as": "x"}))
        await lab.until_read("tools/call", 3)
        assert len(await modern(url, say, **note)) == 1
        await modern(url, free, None, **{"as": "x"})
        assert len(await held) == 1
        assert len(await modern(url, say, **note)) == 2
        # one is given up: the server may go on about it
        peer = Peer(
            port := int(url.split(":")[2].split("/")[0]),
            *await asyncio.open_connection("127.0.0.1", port),
        )
        meta = {"_meta": {LEVEL: "debug"}}
        peer.send_modern("tools/call", {**tool(hold, **{"as": "y"}), **meta})
        await lab.until_read("tools/call", 7)
        peer.writer.transport.abort()
        await lab.until_read("notifications/cancelled", 1)
        assert len(await modern(url, say, **note)) == 1
