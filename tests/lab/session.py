"""A client of legacy sessions over HTTP, each of whose requests has a connection of its own, and a
server whose tools do what a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

from lab import raw
from lab.http import Peer, Place, Response
from lab.serve import serving

from wirespeed import Context, HttpOptions, Limits, Server
from wirespeed.transport.net.listener import Listener
from wirespeed.transport.options import Authenticate

BOUND = 30.0


class Event:
    """One event of a stream."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.fields = fields
        self.id = fields.get("id")
        self.data = fields.get("data")
        self.retry = fields.get("retry")

    def __repr__(self) -> str:
        return f"<Event {self.fields}>"

    @property
    def message(self) -> Any:
        """The JSON-RPC message."""
        assert self.data, self
        return json.loads(self.data)


class Reply:
    """A response: the head, and the body once a test reads it."""

    def __init__(self, peer: Peer, response: Response) -> None:
        self._peer = peer
        self._response = response
        self._n = 0  # events that were read
        self.status = response.status
        self.headers = response.headers
        self.is_stream = response.is_stream

    async def body(self) -> bytes:
        """The whole body."""
        while await self._peer.more(self._response):
            pass
        return self._response.body

    async def message(self) -> Any:
        """The JSON-RPC message that is the body."""
        return json.loads(await self.body())

    async def event(self) -> Event | None:
        """The next event; None at the end of the stream."""
        while len(self._response.events) == self._n:
            if not await self._peer.more(self._response):
                return None
        self._n += 1
        return Event(self._response.events[self._n - 1])

    async def comment(self) -> str:
        """The first comment of a stream."""
        while True:
            for line in self._response.body.decode().split("\n")[:-1]:
                if line.startswith(":"):
                    return line
            assert await self._peer.more(self._response), "the stream has ended"

    async def events(self) -> list[Event]:
        """All further events."""
        found = []
        while (event := await self.event()) is not None:
            found.append(event)
        return found

    async def messages(self) -> list[Any]:
        """The messages of all further events."""
        return [event.message for event in await self.events() if event.data]

    async def next_messages(self, n: int) -> list[Any]:
        """The next n messages of a stream."""
        found: list[Any] = []
        while len(found) < n:
            event = await self.event()
            assert event is not None, "the stream has ended"
            if event.data:
                found.append(event.message)
        return found

    async def read_until(self, text: bytes) -> bytes:
        """The body up to a text of a long stream."""
        while text not in self._response.body[-(2**17) :]:
            assert await self._peer.more(self._response), "the stream has ended"
        return self._response.body

    def narrow(self) -> None:
        """Let the system keep little of what is not read yet."""
        sock = self._peer.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)

    def leave(self) -> None:
        """Close the connection, as a network does."""
        self._peer.writer.transport.abort()


class HttpClient:
    """A legacy client.

    Attributes:
        fields: The header fields of its requests: the session's id, say.
    """

    def __init__(self, place: Place, listener: Listener) -> None:
        self._place = place
        self._listener = listener
        self._peers: list[Peer] = []
        self.fields: dict[str, str | None] = {}

    async def request(self, method: str, body: bytes = b"", **fields: str | None) -> Reply:
        """Send a request. Fields are given as ``mcp_session_id="…"``; None leaves one out."""
        peer = await self._place.connect()
        self._peers.append(peer)
        peer.send(method, body=body, **self.fields | fields)
        return Reply(peer, await peer.head())

    async def post(self, message: Any, **fields: str | None) -> Reply:
        """POST a message."""
        return await self.request("POST", json.dumps(message).encode(), **fields)

    async def get(self, last_event_id: str | None = None, **fields: str | None) -> Reply:
        """Ask for the stream of the server's own, or for the rest of a stream."""
        return await self.request("GET", last_event_id=last_event_id, **fields)

    async def open(self, version: str = "2025-11-25") -> Reply:
        """Open a session."""
        reply = await self.post(raw.initialize(0, version))
        if "mcp-session-id" in reply.headers:
            self.fields["mcp_session_id"] = reply.headers["mcp-session-id"]
            if version >= "2025-06-18":
                self.fields["mcp_protocol_version"] = version
            initialized = await self.post(raw.notification("notifications/initialized"))
            assert initialized.status == 202
        return reply

    async def call(self, tool: str, /, *, id: Any = 1, meta: Any = None, **arguments: Any) -> Reply:
        """Call a tool."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if meta is not None:
            params["_meta"] = meta
        return await self.post(raw.request(id, "tools/call", params))

    async def modern(self, method: str, params: Any, **fields: str | None) -> Reply:
        """Send a request of 2026-07-28."""
        peer = await self._place.connect()
        self._peers.append(peer)
        peer.send_modern(method, params, **fields)
        return Reply(peer, await peer.head())

    async def call_as(self, version: str, tool: str, arguments: Any, **fields: str | None) -> Reply:
        """Call a tool as a client of any version, which has a session if it needs one."""
        params = {"name": tool, "arguments": arguments}
        if version == "2026-07-28":
            return await self.modern("tools/call", params, **fields)
        return await self.post(raw.request(1, "tools/call", params), **fields)

    async def listen(self) -> Reply:
        """Subscribe to changes, as a client of 2026-07-28."""
        return await self.modern(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )

    @property
    def port(self) -> int:
        return self._place.port

    def another(self) -> HttpClient:
        """A client of the same server, with connections of its own."""
        return HttpClient(self._place, self._listener)

    def drain(self) -> None:
        """Shut the server down in order."""
        self._listener.drain()

    def leave(self) -> None:
        """Close all connections, as a network does."""
        for peer in self._peers:
            peer.writer.transport.abort()


class Lab:
    """A server whose tools do what a test wants, when it wants it."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.server = Server("lab", "1", limits=limits)
        self.gates: dict[str, asyncio.Event] = {}
        self.started: asyncio.Queue[str] = asyncio.Queue()
        self.cancelled: list[str] = []
        self.n_changes = 0
        self.n_said = 0  # by the tool flood
        server = self.server

        @server.tool
        async def echo(text: str) -> str:
            return text

        @server.tool
        async def wait(name: str) -> str:
            await self.at_gate(name)
            return name

        @server.tool
        async def talk(name: str, n: int, ctx: Context) -> str:
            """Say something n times, wait, say it again."""
            for i in range(n):
                await ctx.progress(i)
            await self.at_gate(name)
            for i in range(n, 2 * n):
                await ctx.progress(i)
            return name

        @server.tool
        async def flood(n: int, ctx: Context) -> str:
            """Say 20 KB n times."""
            for i in range(n):
                await ctx.progress(i, message="x" * 20_000)
                self.n_said = i + 1
            return "said"

        @server.tool
        async def ping(ctx: Context) -> str:
            await ctx.ping()
            return "pong"

        @server.tool
        async def poll(name: str, ctx: Context, retry: float | None = None) -> str:
            """Close the stream, and say something when the gate opens."""
            closed = ctx.close_stream(retry=retry)
            await self.at_gate(name)
            await ctx.log("info", "later")
            return f"closed: {closed}"

    def gate(self, name: str) -> asyncio.Event:
        """What the tools wait for."""
        return self.gates.setdefault(name, asyncio.Event())

    async def at_gate(self, name: str) -> None:
        self.started.put_nowait(name)
        try:
            await self.gate(name).wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise

    async def stuck(self) -> None:
        """Until the tool flood waits for its client to read."""
        before = 0
        while before == 0 or before != self.n_said:
            before = self.n_said
            await asyncio.sleep(0.2)

    def change(self) -> None:
        """Change the list of tools, which the server says of its own accord."""
        self.n_changes += 1
        self.server.add_tool(lambda: "", name=f"tool{self.n_changes}")


@contextlib.asynccontextmanager
async def served(
    lab: Lab,
    *,
    token: str | None = None,
    authenticate: Authenticate | None = None,
    beside: Server | None = None,
    slow_reader_timeout: float = 30.0,
    **http: Any,
) -> AsyncIterator[HttpClient]:
    """A client of a server that listens; ``http``: its `HttpOptions`. ``beside``: a further server
    of the port."""
    options = {
        "http": HttpOptions(**http),
        "token": token,
        "authenticate": authenticate,
        "slow_reader_timeout": slow_reader_timeout,
    }
    servers = {"/mcp": lab.server}
    if beside is not None:
        servers["/beside"] = beside
    async with asyncio.timeout(BOUND):
        async with serving(servers, "http://127.0.0.1:0", **options) as listening:
            place = Place(lab.server, listening.url)
            try:
                yield HttpClient(place, listening.listener)
            finally:
                place.close()
