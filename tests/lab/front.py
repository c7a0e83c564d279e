"""Raw clients over each front of the proxy, which do the same."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import websockets
from lab.http import Peer, Response
from lab.proxy import BACKEND, GRACE, MODERN, Lab, Raw
from lab.raw import surroundings
from websockets.typing import Subprotocol

from wirespeed import HttpOptions, serve
from wirespeed.proxy import Proxy

NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Case(NamedTuple):
    """How clients come, what they find, and the revision that they use."""

    front: str
    isolation: str
    version: str

    def __str__(self) -> str:
        return "-".join(self)

    @property
    def is_modern(self) -> bool:
        return self.version == MODERN


class WebSocket(Raw):
    """A client over WebSocket."""

    def __init__(self, socket: websockets.ClientConnection, version: str) -> None:
        self.socket = socket
        self.is_modern = version == MODERN

    async def send(self, *texts: Any) -> None:
        for text in texts:
            await self.socket.send(text if isinstance(text, str) else self.text_of(text))

    async def text(self) -> str:
        return str(await self.socket.recv())

    async def close(self) -> None:
        await self.socket.close()

    async def ended(self) -> None:
        await self.socket.wait_closed()


class Http(Raw):
    """A client over Streamable HTTP. Each request has a connection of its own."""

    def __init__(self, port: int, version: str, path: str = "/mcp") -> None:
        self.port = port
        self.path = path
        self.is_modern = version == MODERN
        self.texts: asyncio.Queue[str] = asyncio.Queue()
        self.fields: dict[str, str | None] = {}
        self.open: dict[str, Peer] = {}  # by the JSON text of what the id says
        self.peers: list[Peer] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def text(self) -> str:
        return await self.texts.get()

    async def send(self, *texts: Any) -> None:
        for text in texts:
            await self.post(text if isinstance(text, str) else self.text_of(text))

    async def post(self, text: str) -> None:
        message = json.loads(text)
        method = None if isinstance(message, list) else message.get("method")
        params = {} if method is None else message.get("params", {})
        if self.is_modern and method == "notifications/cancelled":
            self.open[json.dumps(params["requestId"])].writer.transport.abort()
            return
        fields = dict(self.fields)
        if self.is_modern:
            fields = {"mcp_protocol_version": MODERN, "mcp_method": method}
            fields |= {"mcp_name": params[NAMES[method]]} if method in NAMES else {}
        peer = await self.peer()
        peer.send(path=self.path, body=text.encode(), **fields)
        reading = self.start(self.read(peer))
        if isinstance(message, list):
            return
        if method is not None and "id" in message:
            self.open[json.dumps(message["id"])] = peer
        else:
            await reading

    async def peer(self) -> Peer:
        peer = Peer(self.port, *await asyncio.open_connection("127.0.0.1", self.port))
        self.peers.append(peer)
        return peer

    def leave(self) -> None:
        """Close all connections, as a network does."""
        for task in list(self.tasks):
            task.cancel()
        for peer in self.peers:
            peer.writer.transport.abort()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def read(self, peer: Peer) -> None:
        with contextlib.suppress(ConnectionError, AssertionError):  # it was left
            response = await peer.head()
            if (session := response.headers.get("mcp-session-id")) is not None:
                self.fields["mcp_session_id"] = session
            await self.read_body(peer, response)
        peer.close()

    async def read_body(self, peer: Peer, response: Response) -> None:
        n_read = 0
        more = True
        while more:
            more = await peer.more(response)
            if response.is_stream:
                events = response.events
                for event in events[n_read:]:
                    if event.get("data"):
                        self.texts.put_nowait(event["data"])
                n_read = len(events)
        if response.body and not response.is_stream:
            self.texts.put_nowait(response.body.decode())

    async def initialize(self, version: str = "2025-11-25") -> Any:
        answer = await super().initialize(version)
        peer = await self.peer()
        peer.send("GET", self.path, **self.fields)
        response = await peer.head()
        assert response.status == 200
        self.start(self.read_body(peer, response))
        return answer

    async def close(self) -> None:
        if self.fields and not self.is_modern:
            peer = await self.peer()
            await peer.ask("DELETE", self.path, **self.fields)
        self.leave()

    async def ended(self) -> None:
        while True:
            peer = await self.peer()
            peer.send(body=b'{"jsonrpc":"2.0","id":"ended?","method":"ping"}', **self.fields)
            response = await peer.response()
            peer.close()
            if response.status == 404:
                return


class Sse(Http):
    """A client over HTTP+SSE."""

    async def connect(self) -> None:
        peer = await self.peer()
        peer.send("GET", "/sse")
        response = await peer.head()
        self.start(self.read_body(peer, response))
        self.place = f"/{await self.texts.get()}"

    async def post(self, text: str) -> None:
        peer = await self.peer()
        response = await peer.ask("POST", self.place, text.encode())
        assert response.status == 202
        peer.close()

    async def initialize(self, version: str = "2025-11-25") -> Any:
        return await Raw.initialize(self, version)

    async def close(self) -> None:
        self.leave()

    async def ended(self) -> None:
        while self.tasks:
            await asyncio.sleep(0.01)


class Child(Raw):
    """The client of a proxy that is a stdio server."""

    process: asyncio.subprocess.Process

    async def close(self) -> None:
        await super().close()
        await self.process.wait()


class FrontLab(Lab):
    """A proxy with the front of a case."""

    def __init__(self, folder: Path, case: Case, **options: Any) -> None:
        self.case = case
        self.folder = folder
        versions = MODERN if case.is_modern else ""
        super().__init__(folder, case.isolation, versions=versions, size=2, **options)
        if case.front in ("ws", "http"):
            listen = (f"{case.front}://127.0.0.1:0/mcp",)
            self.proxy = Proxy(replace(self.proxy.config, listen=listen))

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        if self.case.front == "stdio":
            self.write_file()
            try:
                yield
            finally:
                for client in self.clients:
                    await client.close()
        elif self.case.front == "sse":
            listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def on_listening(urls: tuple[str, ...]) -> None:
                self.urls = urls
                listening.set_result(None)

            task = asyncio.ensure_future(
                serve(
                    "http://127.0.0.1:0/mcp",
                    self.proxy.services["b"],
                    on_listening=on_listening,
                    http=HttpOptions(sse_path="/sse"),
                )
            )
            await listening
            try:
                yield
            finally:
                for client in self.clients:
                    await client.close()
                task.cancel()
                await asyncio.wait((task,))
        else:
            async with super().serving():
                yield

    def write_file(self) -> None:
        """The configuration of a proxy that is a stdio server."""
        (self.folder / "backend.py").write_text(BACKEND)
        server = {
            "command": sys.executable,
            "args": ["-S", str(self.folder / "backend.py"), str(self.seen)],
            "env": {"VERSIONS": MODERN if self.case.is_modern else ""},
            "proxy": {"isolation": self.case.isolation}
            | ({"size": 2} if self.case.isolation == "pool" else {}),
        }
        config = {"mcpServers": {"b": server}, "proxy": {"shutdownGrace": GRACE}}
        (self.folder / "proxy.json").write_text(json.dumps(config))

    @property
    def port(self) -> int:
        return int(self.urls[0].split(":")[2].split("/")[0])

    async def connect(self, version: str | None = None) -> Raw:
        version = self.case.version if version is None else version
        client: Raw
        if self.case.front == "unix":
            return await super().connect(version)
        if self.case.front == "ws":
            protocols = [Subprotocol("mcp")]
            client = WebSocket(
                await websockets.connect(self.urls[0], subprotocols=protocols), version
            )
        elif self.case.front == "http":
            client = Http(self.port, version)
        elif self.case.front == "sse":
            client = Sse(self.port, version)
            await client.connect()
        else:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "wirespeed", "proxy", "--config"),
                str(self.folder / "proxy.json"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 24,
                env=surroundings(),
            )
            assert process.stdout is not None and process.stdin is not None
            client = Child(process.stdout, process.stdin, version)
            client.process = process
        self.clients.append(client)
        if version != MODERN:
            await client.initialize(version)
        return client
