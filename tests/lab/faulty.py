"""A server in the test's process whose tool ``echo`` has a fault in each nth call: over TCP, over
WebSocket, over HTTP with answers as JSON or as events, HTTP+SSE, and the same of LiteMCP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from websockets.asyncio.server import serve as serve_websocket
from websockets.exceptions import ConnectionClosed

Say = Callable[[bytes], Awaitable[None]]
PAGES = 3


class Faulty:
    """The answers of the server.

    Args:
        fault: drop, twice, corrupt, other-id, text-id, float-id, error, busy, tool-error, garbage,
            delay (the answer comes SECONDS later), cut (the connection ends), a status of HTTP, or
            none. deaf: the server ignores a cancellation, and answers SECONDS later. backwards:
            progress falls.
        every: The calls that have the fault: those whose number is a multiple of it.
    """

    def __init__(self, fault: str = "none", every: int = 1, seconds: float = 0.0) -> None:
        self.fault, self.every, self.seconds = fault, every, seconds
        self.calls = 0
        self.asked: list[str] = []
        self.connections = 0

    def replies(self, message: Any) -> tuple[float, list[Any]]:
        """Return what answers a message: seconds of delay, and messages. A string is garbage, a
        number is a status, None the end of the connection."""
        method = message.get("method")
        self.asked.append(method)
        if "id" not in message:
            return 0.0, []

        def answer(member: str, value: Any, more: int = 0) -> dict[str, Any]:
            return {"jsonrpc": "2.0", "id": message["id"] + more, member: value}

        params = message.get("params", {})
        if method == "initialize":
            info = {"name": "faulty", "version": "1"}
            version = params["protocolVersion"]
            hello = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            return 0.0, [answer("result", hello)]
        if method == "tools/list":
            page = int(params.get("cursor", 0))
            tool = {"name": ("echo", "other", "last")[page], "inputSchema": {"type": "object"}}
            more = {"nextCursor": str(page + 1)} if page + 1 < PAGES else {}
            return 0.0, [answer("result", {"tools": [tool], **more})]
        if method == "ping":
            return 0.0, [answer("result", {})]
        if method != "tools/call":
            return 0.0, [answer("error", {"code": -32601, "message": "Method not found"})]
        self.calls += 1
        fault = self.fault if self.calls % self.every == 0 else "none"
        text = params["arguments"]["text"]
        right = answer("result", result(text))
        token = params.get("_meta", {}).get("progressToken")
        told = []
        if token is not None:
            steps = (2, 1) if fault == "backwards" else (1, 2)
            told = [
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": step},
                }
                for step in steps
            ]
        delay = self.seconds if fault in ("delay", "deaf") else 0.0
        faults: dict[str, list[Any]] = {
            "drop": [],
            "twice": [right, right],
            "corrupt": [answer("result", result(text[::-1] + "!"))],
            "other-id": [answer("result", result(text), 2**45)],
            "text-id": [right | {"id": str(message["id"])}],
            "float-id": [right | {"id": float(message["id"])}],
            "error": [answer("error", {"code": -32603, "message": "no"})],
            "busy": [answer("error", {"code": -31000, "message": "busy"})],
            "tool-error": [answer("result", result(text, isError=True))],
            "garbage": ["what?", right],
            "cut": [None],
        }
        found = [int(fault)] if fault.isdigit() else faults.get(fault, [right])
        return delay, told + found

    def lite_replies(self, message: Any) -> tuple[float, list[Any]]:
        """The same of LiteMCP."""
        more = {"version": [1, 0, 0]}
        if message["type"] == "get":
            parameters = [{"name": "text", "type": "string"}]
            tool = {"name": "echo", "parameters": parameters, **more}
            return 0.0, [{"id": message["id"], "type": "info", "data": tool, **more}]
        self.calls += 1
        fault = self.fault if self.calls % self.every == 0 else "none"
        text = message["data"]["arguments"][0]

        def answer(text: str, more_id: int = 0, error: bool = False) -> dict[str, Any]:
            response = {"content": [{"type": "text", "data": text}], "error": error}
            data = {"params": {"text": text}, "response": response, **more}
            return {"id": message["id"] + more_id, "type": "result", "data": data, **more}

        faults: dict[str, list[Any]] = {
            "drop": [],
            "twice": [answer(text), answer(text)],
            "corrupt": [answer(text[::-1] + "!")],
            "other-id": [answer(text, 2**45)],
            "tool-error": [answer(text, error=True)],
            "garbage": ["what?", answer(text)],
            "cut": [None],
        }
        delay = self.seconds if fault == "delay" else 0.0
        return delay, [int(fault)] if fault.isdigit() else faults.get(fault, [answer(text)])

    # -- transports ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def serving(self, transport: str) -> AsyncIterator[str]:
        """Serve ``tcp``, ``ws``, ``json``, ``events``, ``sse`` (HTTP+SSE), or ``lite-tcp``,
        ``lite-ws``, ``lite-http``. Yields the URL."""
        self._later: set[asyncio.Task[Any]] = set()
        kind = transport.removeprefix("lite-")
        replies = self.lite_replies if transport.startswith("lite-") else self.replies
        try:
            if kind == "ws":
                protocols: Any = None if replies == self.lite_replies else ["mcp"]

                async def peer(socket: Any) -> None:
                    self.connections += 1
                    with contextlib.suppress(ConnectionClosed):
                        async for text in socket:
                            await self._answer(replies, text, socket.send, socket.close)

                async with serve_websocket(peer, "127.0.0.1", 0, subprotocols=protocols) as server:
                    yield f"ws://127.0.0.1:{port_of(server)}/mcp"
                return
            handler: Any
            if kind == "tcp":
                end = b"\n\n\n" if replies == self.lite_replies else b"\n"
                handler = Lines(self, replies, end)
            else:
                handler = Web(self, kind, replies)

            async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                self._later.add(task)
                # cancelled at the end; asyncio of 3.11 logs a handler that was
                with contextlib.suppress(asyncio.CancelledError), contextlib.closing(writer):
                    await handler(reader, writer)

            listening = await asyncio.start_server(handle, "127.0.0.1", 0, limit=2**24)
            async with listening:
                port = port_of(listening)
                yield f"tcp://127.0.0.1:{port}" if kind == "tcp" else f"http://127.0.0.1:{port}/mcp"
        finally:
            for task in self._later:
                task.cancel()
            await asyncio.gather(*self._later, return_exceptions=True)
            await asyncio.sleep(0)  # the transports close

    async def _answer(self, replies: Any, text: Any, send: Any, close: Any) -> None:
        delay, messages = replies(json.loads(text))

        async def say() -> None:
            await asyncio.sleep(delay)
            for message in messages:
                if message is None:
                    await close()
                else:
                    await send(message if isinstance(message, str) else json.dumps(message))

        if delay:
            self.later(say())
        else:
            await say()

    def later(self, work: Any) -> None:
        """Run work until the server ends."""
        self._later.add(asyncio.ensure_future(work))


class Lines:
    """Messages that end with the same bytes."""

    def __init__(self, faulty: Faulty, replies: Any, end: bytes) -> None:
        self.faulty, self.replies, self.end = faulty, replies, end

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.faulty.connections += 1

        async def send(text: str) -> None:
            writer.write(text.encode() + self.end)

        async def close() -> None:
            writer.close()

        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                line = await reader.readuntil(self.end)
                await self.faulty._answer(self.replies, line, send, close)
        writer.close()


class Web:
    """Messages as bodies of POST. ``kind``: how they are answered."""

    def __init__(self, faulty: Faulty, kind: str, replies: Any) -> None:
        self.faulty, self.kind, self.replies = faulty, kind, replies
        self.stream: asyncio.StreamWriter | None = None  # of HTTP+SSE

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.faulty.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                await self._take(head, body, writer)
        writer.close()

    async def _take(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if self.kind == "sse" and head.startswith(b"GET"):
            self.stream = writer
            writer.write(head_of(200, b"text/event-stream"))
            writer.write(chunk(b"event: endpoint\ndata: /mcp\n\n"))
            return
        if self.kind == "http" and head.startswith(b"GET"):  # of LiteMCP
            tool = self.replies({"type": "get", "id": 1})[1][0]["data"]
            write(writer, 200, json.dumps(tool))
            return
        if not head.startswith(b"POST") or (self.kind == "sse" and self.stream is None):
            write(writer, 405, "")
            return
        message = json.loads(body)
        if self.kind == "http":
            message = {"type": "call", "id": 1, "data": message}
        delay, messages = self.replies(message)
        if delay and self.kind != "sse":
            await asyncio.sleep(delay)
        statuses = [one for one in messages if isinstance(one, int)]
        if None in messages:
            writer.close()
        elif statuses:
            write(writer, statuses[0], "")
        elif self.kind == "sse":
            write(writer, 202, "")
            self.faulty.later(self._tell(delay, messages))
        elif "method" in message and "id" not in message:
            write(writer, 202, "")
        elif self.kind == "events":
            writer.write(head_of(200, b"text/event-stream"))
            for one in messages:
                writer.write(event(one))
            writer.write(b"0\r\n\r\n")
        elif messages:  # one body has one message
            one = messages[0]
            if self.kind == "http":
                one = one if isinstance(one, str) else one["data"]
            write(writer, 200, one if isinstance(one, str) else json.dumps(one))

    async def _tell(self, delay: float, messages: list[Any]) -> None:
        await asyncio.sleep(delay)
        assert self.stream is not None
        for one in messages:
            self.stream.write(event(one))


def result(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


def port_of(server: Any) -> int:
    port: int = next(iter(server.sockets)).getsockname()[1]
    return port


def head_of(status: int, kind: bytes) -> bytes:
    more = b"Transfer-Encoding: chunked\r\n\r\n"
    return b"HTTP/1.1 %d X\r\nContent-Type: %b\r\n%b" % (status, kind, more)


def write(writer: asyncio.StreamWriter, status: int, body: str) -> None:
    data = body.encode()
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    writer.write(head % (status, len(data), data))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(message: Any) -> bytes:
    text = message if isinstance(message, str) else json.dumps(message)
    return chunk(b"event: message\ndata: %b\n\n" % text.encode())
