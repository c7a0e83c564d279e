"""Scripted servers of HTTP behind real sockets, in the test's own loop.

They write each byte themselves, so that they can break any rule.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from lab.client import HastyClient, text_result, until
from lab.peer import LEGACY_PEER, MODERN_PEER

from wirespeed import Client, Http
from wirespeed.transport.headers import Headers

P = TypeVar("P", bound="HttpPeer")

Rule = dict[str, Any] | tuple[int, str] | Callable[["Exchange", dict[str, Any]], Awaitable[Any]]
Rules = dict[str, Rule]


class Exchange:
    """One request of a client, and its answer."""

    def __init__(
        self, line: str, headers: Headers, body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        self.method, self.target, _ = line.split(" ")
        self.headers = headers
        self.body = body
        is_json = "json" in headers.get("content-type", "json")
        self.message: dict[str, Any] = json.loads(body) if body and is_json else {}
        self.at = asyncio.get_running_loop().time()
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the client left before the answer was complete."""
        self._writer = writer
        self._streams = False

    @property
    def meta(self) -> dict[str, Any]:
        """The ``_meta`` of the request."""
        found: dict[str, Any] = self.message["params"]["_meta"]
        return found

    def reply(self, status: int, body: bytes | str = b"", **headers: str) -> None:
        """Answer with a body of a known length."""
        data = body.encode() if isinstance(body, str) else body
        self._head(status, {"content_length": str(len(data)), **headers})
        self._writer.write(data)

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        """Answer with JSON."""
        self.reply(status, json.dumps(value), content_type="application/json", **headers)

    def result(self, result: dict[str, Any], **headers: str) -> None:
        """Answer with the result of the request."""
        self.json({"jsonrpc": "2.0", "id": self.message["id"], "result": result}, **headers)

    def error(self, code: int, text: str, status: int = 200, **headers: str) -> None:
        """Answer with a JSON-RPC error."""
        error = {"code": code, "message": text}
        self.json({"jsonrpc": "2.0", "id": self.message["id"], "error": error}, status, **headers)

    def text(self, text: str = "ok") -> None:
        """Answer with the result of a tool, right in both eras."""
        self.result(text_result(text) | {"resultType": "complete"})

    def open(self, **headers: str) -> None:
        """Begin a stream of events."""
        self._streams = True
        more = {"content_type": "text/event-stream", "transfer_encoding": "chunked", **headers}
        self._head(200, more)

    def event(self, value: Any = None, **fields: Any) -> None:
        """Send an event with a message, or with the given fields alone."""
        lines = [f"{name}: {text}\n" for name, text in fields.items()]
        if value is not None:
            data = value if isinstance(value, str) else json.dumps({"jsonrpc": "2.0", **value})
            lines.append(f"data: {data}\n")
        self.raw("".join(lines) + "\n")

    def answered(self, text: str = "ok", **fields: Any) -> None:
        """Send the result of a tool as an event."""
        result = text_result(text) | {"resultType": "complete"}
        self.event({"id": self.message["id"], "result": result}, **fields)

    def raw(self, text: str) -> None:
        """Send a piece of the stream."""
        data = text.encode()
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def flushed(self) -> None:
        """Wait until the client has room."""
        await self._writer.drain()

    def end(self) -> None:
        """End the stream in order."""
        self._streams = False
        self._writer.write(b"0\r\n\r\n")

    def vanish(self) -> None:
        """Close the connection in the middle of whatever is being sent."""
        self._writer.close()

    @property
    def streams(self) -> bool:
        """Whether the stream is still open on this side."""
        return self._streams and not self._writer.is_closing()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Whatever"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())


class HttpPeer:
    """A scripted server.

    Attributes:
        rules: What it answers, by method, or by ``"tools/call:NAME"``. May be changed.
        session: The session of a legacy server; None for none.
        get, delete: What it does with these requests.
        exchanges: All requests.
    """

    def __init__(self, rules: Rules, session: str | None) -> None:
        self.rules = rules
        self.session = session
        self.exchanges: list[Exchange] = []
        self.port = 0
        self.get: Callable[[Exchange], Awaitable[Any]] = refuse
        self.delete: Callable[[Exchange], Awaitable[Any]] = accept
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def client(self, **options: Any) -> Client:
        """A client with short time limits and delays. Options of `Http` go there."""
        own = {"auth", "restart", "sse", "token", "headers", "close_timeout", "max_connections"}
        target = Http(self.url, **{key: options.pop(key) for key in own & options.keys()})
        return HastyClient(target, **({"timeout": 5.0} | options))

    def sent(self, method: str) -> list[Exchange]:
        """The POSTs of one JSON-RPC method, or all requests of a method of HTTP."""
        if method.isupper():
            return [one for one in self.exchanges if one.method == method]
        return [one for one in self.exchanges if one.message.get("method") == method]

    async def got(self, method: str, n: int = 1) -> list[Exchange]:
        """Wait until n such requests came."""
        await until(lambda: len(self.sent(method)) >= n)
        return self.sent(method)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._connection(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = b""
        while True:
            head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *fields = head.removesuffix("\r\n\r\n").split("\r\n")
            pairs = [field.split(":", 1) for field in fields]
            headers = Headers([(name, value.strip()) for name, value in pairs])
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            exchange = Exchange(line, headers, body, writer)
            self.exchanges.append(exchange)
            following = asyncio.ensure_future(reader.read(1))
            answering = asyncio.ensure_future(self._answer(exchange))
            try:
                await asyncio.wait((following, answering), return_when=asyncio.FIRST_COMPLETED)
                if following.done() and not answering.done():
                    exchange.gone.set_result(None)
                await answering
                while exchange.streams and not following.done():
                    await asyncio.wait((following,), timeout=0.01)
                if exchange.streams and not exchange.gone.done():
                    exchange.gone.set_result(None)
                await writer.drain()
                first = await following
            finally:
                following.cancel()
                answering.cancel()
            if not first or writer.is_closing():
                return

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.method == "GET":
            await self.get(exchange)
            return
        named = exchange.headers.get("mcp-session-id")
        method = exchange.message.get("method", "")
        if self.session is not None and method != "initialize" and named != self.session:
            exchange.reply(404 if named else 400)
            return
        if exchange.method == "DELETE":
            await self.delete(exchange)
            return
        tool = (exchange.message.get("params") or {}).get("name", "")
        rule = self.rules.get(f"{method}:{tool}", self.rules.get(method))
        more = {}
        if method == "initialize" and self.session is not None:
            more["mcp_session_id"] = self.session
        if callable(rule):
            await rule(exchange, exchange.message)
        elif "id" not in exchange.message or not method:
            exchange.reply(202)
        elif isinstance(rule, tuple):
            exchange.error(*rule)
        elif rule is None:
            exchange.error(-32601, "no such method")
        else:
            exchange.result(rule, **more)


async def refuse(exchange: Exchange) -> None:
    """405."""
    exchange.reply(405)


async def accept(exchange: Exchange) -> None:
    """200."""
    exchange.reply(200)


@contextlib.asynccontextmanager
async def serving(rules: Rules, session: str | None = None) -> AsyncIterator[HttpPeer]:
    """A scripted server at a free port."""
    async with listening(HttpPeer(dict(rules), session)) as peer:
        yield peer


@contextlib.asynccontextmanager
async def listening(peer: P) -> AsyncIterator[P]:
    """A server of this kind at a free port."""
    server = await asyncio.start_server(peer._serve, "127.0.0.1", 0)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        for writer in list(peer._writers):
            writer.transport.abort()
        await until(lambda: not peer._writers)
        await server.wait_closed()


LEGACY_HTTP: Rules = {**LEGACY_PEER}  # type: ignore[dict-item]
MODERN_HTTP: Rules = {**MODERN_PEER}  # type: ignore[dict-item]


def legacy(session: str | None = "s-1", **rules: Any) -> Any:
    """A legacy server."""
    return serving(LEGACY_HTTP | rules, session)


def modern(**rules: Any) -> Any:
    """A server of 2026-07-28."""
    return serving(MODERN_HTTP | rules)
