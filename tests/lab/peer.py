"""Scripted servers behind real sockets, in the test's own loop: WebSocket by `websockets`, and
lines over UNIX and TCP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import pytest
from lab.client import LEGACY, MODERN, TOOL, HastyClient, text_result, until
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from wirespeed import Client, WebSocket

# What a rule does: send a result, send an error, or whatever it likes.
Rule = dict[str, Any] | tuple[int, str] | Callable[["Talk", dict[str, Any]], Awaitable[Any]]
Rules = dict[str, Rule]


def _of(lines: dict[str, list[list[Any]]]) -> Rules:
    """Rules for children, of one action each, as rules for peers."""
    rules: Rules = {}
    for method, [(kind, value)] in lines.items():
        rules[method] = value if kind == "result" else (value["code"], value["message"])
    return rules


LEGACY_PEER = _of(LEGACY)
MODERN_PEER = _of(MODERN)


async def nothing(talk: Talk, message: dict[str, Any]) -> None:
    """No answer."""


# Both eras, for tests that take the rules of a peer.
ERAS = pytest.mark.parametrize("rules", [LEGACY_PEER, MODERN_PEER], ids=["legacy", "modern"])


class Talk:
    """One connection of a peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.messages: list[dict[str, Any]] = []
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """How it ended: the exception that `websockets` raised, or None."""

    async def write(self, text: str) -> None:
        raise NotImplementedError

    def vanish(self) -> None:
        """End it without a word."""
        raise NotImplementedError

    async def send(self, **members: Any) -> None:
        await self.write(json.dumps({"jsonrpc": "2.0", **members}))

    async def result(self, message: dict[str, Any], result: dict[str, Any]) -> None:
        await self.send(id=message["id"], result=result)

    async def text(self, message: dict[str, Any], text: str) -> None:
        """A tool's result, right in both eras."""
        await self.result(message, text_result(text) | {"resultType": "complete"})

    async def heard(self, text: str | bytes) -> None:
        message = json.loads(text)
        self.messages.append(message)
        method = message.get("method", "")
        tool = (message.get("params") or {}).get("name", "")
        rule = self.peer.rules.get(f"{method}:{tool}", self.peer.rules.get(method))
        if callable(rule):
            await rule(self, message)
        elif "id" in message and method and isinstance(rule, tuple):
            await self.send(id=message["id"], error={"code": rule[0], "message": rule[1]})
        elif "id" in message and method and rule is not None:
            await self.result(message, rule)

    def sent(self, method: str) -> list[dict[str, Any]]:
        """What the client sent of one method."""
        return [message for message in self.messages if message.get("method") == method]


class Peer:
    """A scripted server. `rules` may be changed while it runs."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.talks: list[Talk] = []

    @property
    def url(self) -> str:
        raise NotImplementedError

    async def talk(self, number: int) -> Talk:
        """The connection of this number, counted from 0, when it is there."""
        await until(lambda: len(self.talks) > number)
        return self.talks[number]

    async def got(self, method: str, n: int = 1) -> list[dict[str, Any]]:
        """Wait until n messages of a method came, over all connections."""
        await until(lambda: len(self.sent(method)) >= n)
        return self.sent(method)

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [message for talk in self.talks for message in talk.sent(method)]


class WebTalk(Talk):
    """One WebSocket."""

    def __init__(self, peer: Peer, socket: ServerConnection) -> None:
        super().__init__(peer)
        self.socket = socket

    @property
    def headers(self) -> Any:
        assert self.socket.request is not None
        return self.socket.request.headers

    async def write(self, text: str) -> None:
        await self.socket.send(text)

    def raw(self, data: bytes) -> None:
        """Bytes as they are, past the framing."""
        self.socket.transport.write(data)

    def vanish(self) -> None:
        self.socket.transport.abort()

    async def close(self, code: int, reason: str = "") -> None:
        await self.socket.close(code, reason)


class WebPeer(Peer):
    """A WebSocket server; ``options`` are those of `websockets`."""

    def __init__(self, rules: Rules, port: int = 0, **options: Any) -> None:
        super().__init__(rules)
        options.setdefault("subprotocols", ["mcp"])
        options.setdefault("ping_interval", None)
        options.setdefault("compression", None)
        self.options = options
        self.port = port
        self.path = "/mcp"
        self.asked = 0  # requests for an upgrade
        self._server: Server | None = None

    async def _handle(self, socket: ServerConnection) -> None:
        talk = WebTalk(self, socket)
        self.talks.append(talk)
        try:
            async for text in socket:
                await talk.heard(text)
        except ConnectionClosed as exc:
            talk.ended.set_result(exc)
        else:
            talk.ended.set_result(None)

    @property
    def scheme(self) -> str:
        return "wss" if self.options.get("ssl") else "ws"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}{self.path}"

    async def start(self) -> None:
        """Listen, at the same port as before."""
        self._server = await serve(self._handle, "127.0.0.1", self.port, **self.options)
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self, code: int = 1001) -> None:
        """Close all connections and listen no more."""
        if self._server is not None:
            self._server.close(code=code)
            await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


def target(peer: WebPeer, **options: Any) -> WebSocket:
    """A peer as a target, to which clients do not connect again unless a test wants that."""
    options.setdefault("restart", 0)
    return WebSocket(peer.url, **options)


class LineTalk(Talk):
    """One stream socket."""

    def __init__(self, peer: Peer, writer: asyncio.StreamWriter) -> None:
        super().__init__(peer)
        self.writer = writer

    async def write(self, text: str) -> None:
        self.writer.write(text.encode() + b"\n")
        await self.writer.drain()

    def vanish(self) -> None:
        self.writer.transport.abort()


class LinePeer(Peer):
    """A server behind ``unix:`` (a folder is given) or ``tcp://``."""

    def __init__(self, rules: Rules, folder: Path | None = None) -> None:
        super().__init__(rules)
        self.path = None if folder is None else folder / "s"
        self.port = 0
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"unix:{self.path}" if self.path else f"tcp://127.0.0.1:{self.port}"

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = LineTalk(self, writer)
        self.talks.append(talk)
        try:
            while line := await reader.readline():
                await talk.heard(line)
        except ConnectionError as exc:
            talk.ended.set_result(exc)
        else:
            talk.ended.set_result(None)
        finally:
            writer.close()

    async def start(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._handle, self.path)
        else:
            self._server = await asyncio.start_server(self._handle, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for talk in self.talks:
            if not talk.ended.done():
                talk.vanish()
                await asyncio.wait((talk.ended,))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


@contextlib.asynccontextmanager
async def with_client(
    folder: Path, rules: Rules, **options: Any
) -> AsyncIterator[tuple[Client, LinePeer]]:
    """A client, without long pauses, of a server with these rules, over a UNIX socket."""
    async with LinePeer(rules, folder) as peer, HastyClient(peer.url, **options) as client:
        yield client, peer


__all__ = [
    "ERAS",
    "LEGACY_PEER",
    "MODERN_PEER",
    "TOOL",
    "LinePeer",
    "LineTalk",
    "Peer",
    "Rules",
    "Talk",
    "WebPeer",
    "WebTalk",
    "nothing",
    "target",
    "with_client",
]
