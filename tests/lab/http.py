"""HTTP servers that listen in this process, and clients of bare HTTP (read by h11)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import h11

from wirespeed import serve
from wirespeed.transport.options import ListenFields

FOREVER = 20.0
BOTH = "application/json, text/event-stream"
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Response:
    """A response: its body, or the events of its stream as far as they were read."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.headers = {name.decode(): value.decode() for name, value in headers}
        self.body = b""
        self._events: list[dict[str, str]] = []
        self._n_parsed = 0  # bytes of the body, so that a long stream is parsed once

    @property
    def json(self) -> Any:
        """The message in the body."""
        return json.loads(self.body)

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    @property
    def events(self) -> list[dict[str, str]]:
        """The whole events of the body: their fields."""
        *blocks, rest = self.body[self._n_parsed :].split(b"\n\n")
        self._n_parsed = len(self.body) - len(rest)
        for block in blocks:
            lines = block.decode().split("\n")
            fields = [line.partition(": ") for line in lines if line[:1] != ":"]
            if fields:
                self._events.append({name.rstrip(":"): value for name, _, value in fields})
        return self._events.copy()

    @property
    def messages(self) -> list[Any]:
        """The messages of the events."""
        return [json.loads(event["data"]) for event in self.events if event.get("data")]


class Peer:
    """A connection of a client. ``patience``: Seconds for the next bytes."""

    def __init__(
        self,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        patience: float = FOREVER,
    ) -> None:
        self.port = port
        self._patience = patience
        self._reader = reader
        self.writer = writer
        self._http = h11.Connection(h11.CLIENT)

    def send(
        self, method: str = "POST", path: str = "/mcp", body: bytes = b"", **fields: str | None
    ) -> None:
        """Send a request. Underscores of names stand for hyphens; None leaves a field out."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        headers: dict[str, str | None] = {"host": f"127.0.0.1:{self.port}", "accept": BOTH}
        if body:
            headers |= {"content-type": "application/json", "content-length": str(len(body))}
        headers |= {name.replace("_", "-").lower(): value for name, value in fields.items()}
        sent = [(name, value) for name, value in headers.items() if value is not None]
        data = self._http.send(h11.Request(method=method, target=path, headers=sent)) or b""
        if body:
            data += self._http.send(h11.Data(data=body)) or b""
        self.writer.write(data + (self._http.send(h11.EndOfMessage()) or b""))

    async def _event(self) -> Any:
        async with asyncio.timeout(self._patience):
            while True:
                event = self._http.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self._http.receive_data(await self._reader.read(65536))

    async def head(self) -> Response:
        """The head of the next response."""
        while isinstance(event := await self._event(), h11.InformationalResponse):
            pass
        assert isinstance(event, h11.Response), event
        return Response(event.status_code, list(event.headers))

    async def more(self, response: Response) -> bool:
        """Read the next part of a body; False at its end."""
        event = await self._event()
        if isinstance(event, h11.Data):
            response.body += event.data
        return not isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed))

    async def response(self) -> Response:
        """The next response, whole."""
        response = await self.head()
        while await self.more(response):
            pass
        return response

    async def until(self, response: Response, n: int) -> list[Any]:
        """The first n messages of a stream."""
        while len(response.messages) < n:
            assert await self.more(response), "the stream has ended"
        return response.messages

    async def ask(self, *args: Any, **kwargs: Any) -> Response:
        """Send a request, and read the response to its end."""
        self.send(*args, **kwargs)
        return await self.response()

    def send_modern(self, method: str, params: Any = None, *, id: Any = 1, **fields: Any) -> None:
        """Send a request of 2026-07-28 with the fields that it needs."""
        params = {**(params or {}), "_meta": META | (params or {}).get("_meta", {})}
        named = NAMES.get(method)
        mine: dict[str, Any] = {"mcp_protocol_version": MODERN, "mcp_method": method}
        if named is not None:
            mine["mcp_name"] = params.get(named)
        self.send(body=message(method, params, id), **(mine | fields))

    async def modern(self, method: str, params: Any = None, **more: Any) -> Response:
        """Send a request of 2026-07-28, and read the response to its end."""
        self.send_modern(method, params, **more)
        return await self.response()

    async def initialize(self, version: str = LEGACY, **fields: str | None) -> Response:
        """The handshake of a legacy client."""
        params = {
            "protocolVersion": version,
            "capabilities": {"elicitation": {}, "sampling": {}},
            "clientInfo": {"name": "peer", "version": "1"},
        }
        response = await self.ask(body=message("initialize", params, 0), **fields)
        if session := response.headers.get("mcp-session-id"):
            done = await self.ask(
                body=message("notifications/initialized"), mcp_session_id=session, **fields
            )
            assert done.status == 202 and not done.body
        return response

    async def line(self) -> bytes:
        """What the server sends next, up to a line end."""
        async with asyncio.timeout(self._patience):
            return await self._reader.readuntil(b"\r\n")

    async def eof(self) -> None:
        """Until the server has closed the connection."""
        async with asyncio.timeout(self._patience):
            while await self._reader.read(65536):
                pass

    def close(self) -> None:
        self.writer.close()


class Place:
    """A server at work."""

    def __init__(self, server: Any, url: str) -> None:
        self.server = server
        self.url = url
        self.port = int(url.rpartition(":")[2].partition("/")[0])
        self._peers: list[Peer] = []

    async def connect(self) -> Peer:
        """A further connection of a client."""
        peer = Peer(self.port, *await asyncio.open_connection("127.0.0.1", self.port))
        self._peers.append(peer)
        return peer

    async def session(self, version: str = LEGACY) -> tuple[Peer, str]:
        """A legacy client, and its session."""
        peer = await self.connect()
        response = await peer.initialize(version)
        return peer, response.headers["mcp-session-id"]

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


def message(method: str, params: Any = None, id: Any = None) -> bytes:
    """A request; without an id, a notification."""
    members: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if id is not None:
        members["id"] = id
    if params is not None:
        members["params"] = params
    return json.dumps(members).encode()


def call(
    name: str, arguments: Mapping[str, Any] | None = None, id: Any = 1, **params: Any
) -> bytes:
    """A tools/call of a legacy client."""
    return message("tools/call", {"name": name, "arguments": arguments or {}, **params}, id)


@contextlib.asynccontextmanager
async def serving(
    server: Any, *, url: str = "http://127.0.0.1:0/mcp", **options: Any
) -> AsyncIterator[Place]:
    """Serve at a URL meanwhile."""
    listens: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    fields: ListenFields = options  # type: ignore[assignment]
    task = asyncio.create_task(serve(url, server, on_listening=listens.set_result, **fields))
    await asyncio.wait([task, listens], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    place = Place(server, listens.result()[0])
    try:
        yield place
    finally:
        place.close()
        task.cancel()
        await asyncio.wait([task], timeout=FOREVER)
        assert task.done()
