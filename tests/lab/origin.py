"""An HTTP server whose answers are written by hand, and a receiver that keeps what it is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Self

import h11

from wirespeed.transport.address import Address, parse
from wirespeed.transport.headers import Headers
from wirespeed.transport.http.pool import HttpPool

JSON = b"Content-Type: application/json\r\n"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


class Request(NamedTuple):
    method: str
    target: str
    headers: Headers
    body: bytes
    connection: int  # which one, counted from 0
    write: Callable[[bytes], Awaitable[None]]
    hang_up: Callable[[], None]


def ok(body: bytes = b"{}", fields: bytes = JSON, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, fields, len(body), body)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Origin:
    """A server; ``answer`` is called with each request, which h11 has read."""

    def __init__(
        self,
        answer: Callable[[Request], Awaitable[None]],
        *,
        host: str = "127.0.0.1",
        ssl: Any = None,
    ) -> None:
        self.answer = answer
        self.host = host
        self.ssl = ssl
        self.requests: list[Request] = []
        self.n_connections = 0
        self.open: set[asyncio.Task[None]] = set()
        self.gone = asyncio.Event()  # a connection has ended

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(self.serve, self.host, 0, ssl=self.ssl)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.server.close()
        for task in self.open:
            task.cancel()
        await asyncio.gather(*self.open, return_exceptions=True)

    @property
    def address(self) -> Address:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return parse(f"{'https' if self.ssl else 'http'}://{host}:{self.port}/mcp")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        n = self.n_connections
        self.n_connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        def hang_up() -> None:
            writer.close()

        try:
            connection = h11.Connection(h11.SERVER)
            head: Any = None
            body = b""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    data = await reader.read(65536)
                    connection.receive_data(data)
                    if not data:
                        return
                elif isinstance(event, h11.Request):
                    head, body = event, b""
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    fields = [(k.decode(), v.decode("latin-1")) for k, v in head.headers]
                    request = Request(
                        head.method.decode(),
                        head.target.decode(),
                        Headers(fields),
                        body,
                        n,
                        write,
                        hang_up,
                    )
                    self.requests.append(request)
                    await self.answer(request)
                    rest, _ = connection.trailing_data
                    connection = h11.Connection(h11.SERVER)
                    if rest:
                        connection.receive_data(rest)
        except (OSError, h11.RemoteProtocolError, asyncio.CancelledError):
            pass
        finally:
            self.open.discard(task)
            self.gone.set()
            writer.transport.abort()


class Told:
    """A receiver that keeps all that it is told."""

    def __init__(self) -> None:
        self.status = 0
        self.headers = Headers()
        self.streaming = False
        self.body: bytes | None = None
        self.events: list[tuple[str, bytes, str | None, int | None]] = []
        self.calls: list[str] = []
        self.exc: BaseException | None = None
        self.sent = False
        self.over = asyncio.Event()
        self.news = asyncio.Event()

    def on_response(self, status: int, headers: Headers, streaming: bool) -> None:
        self.calls.append("response")
        self.status, self.headers, self.streaming = status, headers, streaming
        self.news.set()

    def on_body(self, data: Any) -> None:
        self.calls.append("body")
        self.body = bytes(data)

    def on_event(self, event: str, data: Any, id: str | None, retry: int | None) -> None:
        self.calls.append("event")
        self.events.append((event, bytes(data), id, retry))
        self.news.set()

    def on_end(self, exc: BaseException | None, sent: bool) -> None:
        assert not self.over.is_set()
        self.calls.append("end")
        self.exc, self.sent = exc, sent
        self.over.set()

    async def end(self) -> Self:
        async with asyncio.timeout(10):
            await self.over.wait()
        return self

    async def more(self) -> None:
        self.news.clear()
        async with asyncio.timeout(10):
            await self.news.wait()


@contextlib.asynccontextmanager
async def pool_for(origin: Origin | Address, **options: Any) -> Any:
    address = origin if isinstance(origin, Address) else origin.address
    pool = HttpPool(address, loop=asyncio.get_running_loop(), **options)
    try:
        yield pool
    finally:
        await pool.close()


def post(pool: HttpPool, body: Any = b"{}", fields: bytes = JSON, target: str = "/mcp") -> Told:
    told = Told()
    pool.request("POST", target, fields, body, told)
    return told
