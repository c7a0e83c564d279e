"""WebSocket libraries behind one small interface, for the ws_raw_* programs.

    websockets      the library of that name, asyncio API
    picows          picows' own API: frames
    picows-api      picows in the API of websockets

A link has ``send(*parts)`` (more than one part: as many frames), ``send_binary``, ``recv`` (a
text; `Closed` at the end), ``ping`` (until its pong came), ``close(code)`` and ``facts`` (what the
opening handshake agreed on).
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

MAX_SIZE = 64 << 20


class Closed(Exception):
    """The other side closed the connection; the argument is its code."""


class Plain:
    """A connection of websockets, or of picows in its API."""

    def __init__(self, connection: Any, closed: type[Exception]) -> None:
        self.connection = connection
        self.closed = closed
        extensions = connection.response.headers.get("Sec-WebSocket-Extensions")
        self.facts = {"subprotocol": connection.subprotocol, "extensions": extensions}

    async def send(self, *parts: str) -> None:
        await self.connection.send(parts[0] if len(parts) == 1 else parts)

    async def send_binary(self, data: bytes) -> None:
        await self.connection.send(data)

    async def recv(self) -> str:
        try:
            text: str = await self.connection.recv()
        except self.closed:
            raise Closed(self.connection.close_code) from None
        return text

    async def ping(self) -> None:
        await (await self.connection.ping(b"are you there"))

    async def close(self, code: int = 1000) -> None:
        await self.connection.close(code)


class Frames:
    """A connection of picows."""

    def __init__(self, transport: Any) -> None:
        headers = {k.lower(): v for k, v in transport.response.headers.items()}
        self.transport = transport
        self.texts: asyncio.Queue[str | int] = asyncio.Queue()
        self.parts: list[bytes] = []
        self.pong = asyncio.Event()
        self.facts = {
            "subprotocol": headers.get("sec-websocket-protocol"),
            "extensions": headers.get("sec-websocket-extensions"),
        }

    def on_frame(self, frame: Any) -> None:
        import picows

        kind = frame.msg_type
        if kind in (picows.WSMsgType.TEXT, picows.WSMsgType.CONTINUATION):
            self.parts.append(frame.get_payload_as_bytes())
            if frame.fin:
                text, self.parts = b"".join(self.parts).decode(), []
                self.texts.put_nowait(text)
        elif kind is picows.WSMsgType.PONG:
            assert frame.get_payload_as_bytes() == b"are you there"
            self.pong.set()
        elif kind is picows.WSMsgType.CLOSE:
            code = frame.get_close_code()
            self.texts.put_nowait(int(getattr(code, "value", code)))
            if not self.transport.is_close_frame_sent:
                self.transport.send_close(code)
            self.transport.disconnect()

    async def send(self, *parts: str) -> None:
        import picows

        for i, part in enumerate(parts):
            kind = picows.WSMsgType.CONTINUATION if i else picows.WSMsgType.TEXT
            self.transport.send(kind, part.encode(), fin=i == len(parts) - 1)

    async def send_binary(self, data: bytes) -> None:
        import picows

        self.transport.send(picows.WSMsgType.BINARY, data)

    async def recv(self) -> str:
        text = await self.texts.get()
        if isinstance(text, int):
            raise Closed(text)
        return text

    async def ping(self) -> None:
        self.transport.send_ping(b"are you there")
        await self.pong.wait()
        self.pong.clear()

    async def close(self, code: int = 1000) -> None:
        import picows

        self.transport.send_close(picows.WSCloseCode(code))
        await self.transport.wait_disconnected()


def api_of(library: str) -> Any:
    if library == "websockets":
        import websockets

        return websockets
    import picows.websockets

    return picows.websockets


@asynccontextmanager
async def connected(
    library: str, url: str, *, deflate: bool, trust: str | None = None
) -> AsyncIterator[Plain | Frames]:
    """A link of a client; ``trust``: the certificate of the server, for wss://."""
    context = None if trust is None else ssl.create_default_context(cafile=trust)
    if library == "picows":
        import picows

        made: list[Frames] = []

        class Listener(picows.WSListener):  # type: ignore[misc]
            def on_ws_connected(self, transport: Any) -> None:
                made.append(Frames(transport))

            def on_ws_frame(self, transport: Any, frame: Any) -> None:
                made[0].on_frame(frame)

        transport, _ = await picows.ws_connect(
            Listener,
            url,
            ssl_context=context,
            max_frame_size=MAX_SIZE,
            extra_headers={"Sec-WebSocket-Protocol": "mcp"},
        )
        try:
            yield made[0]
        finally:
            transport.disconnect(graceful=False)
        return
    api = api_of(library)
    async with api.connect(
        url,
        ssl=context,
        subprotocols=["mcp"],
        compression="deflate" if deflate else None,
        max_size=MAX_SIZE,
    ) as connection:
        yield Plain(connection, api.ConnectionClosed)


async def serve(
    library: str, handler: Callable[[Any], Awaitable[None]], *, deflate: bool
) -> tuple[Any, int]:
    """Listen on a free port of 127.0.0.1: the server, and the port."""
    if library == "picows":
        import picows

        tasks: set[Any] = set()

        class Listener(picows.WSListener):  # type: ignore[misc]
            def on_ws_connected(self, transport: Any) -> None:
                self.link = Frames(transport)
                task = asyncio.ensure_future(handler(self.link))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

            def on_ws_frame(self, transport: Any, frame: Any) -> None:
                self.link.on_frame(frame)

        def choose(request: Any) -> Any:
            response = picows.WSUpgradeResponse.create_101_response(
                {"Sec-WebSocket-Protocol": "mcp"}
            )
            return picows.WSUpgradeResponseWithListener(response, Listener())

        server = await picows.ws_create_server(choose, "127.0.0.1", 0, max_frame_size=MAX_SIZE)
    else:
        api = api_of(library)

        async def handle(connection: Any) -> None:
            await handler(Plain(connection, api.ConnectionClosed))

        server = await api.serve(
            handle,
            "127.0.0.1",
            0,
            subprotocols=["mcp"],
            compression="deflate" if deflate else None,
            max_size=MAX_SIZE,
        )
    return server, next(iter(server.sockets)).getsockname()[1]
