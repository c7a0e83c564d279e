"""What all connections of a listener keep together of requests and messages that are not whole."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from lab.raw import call, encode, envelope, initialize
from lab.rows import every
from lab.serve import Answer, Bare, lab_server, serving

from wirespeed import HttpRequest, Limits, Server
from wirespeed.litemcp import LiteServer
from wirespeed.transport import link as link_module
from wirespeed.transport.rate_limited_log import RateLimitedLog

HTTP = "http://127.0.0.1:0/mcp"
SIZE = 200_000
BUDGET = 500_000


class Half:
    """A client that sends a part of a request, and waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    made: ClassVar[list[Half]] = []

    @classmethod
    async def send(cls, port: int, data: bytes) -> Half:
        self = cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22))
        cls.made.append(self)
        self.writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()
        return self

    async def answer(self) -> Answer:
        """The answer, after which the server closes."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while more := await self.reader.read(65536):
                data += more
        await self.close()
        return Answer(data)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def head(length: int | None = 10 * SIZE, **fields: str) -> bytes:
    lines = ["POST /mcp HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def used(place: Any) -> int:
    found: int = place.listener._budget.used
    return found


def echo(text: str) -> bytes:
    return encode(call(1, "echo", {"text": text}, **envelope()))


def whole(text: str) -> bytes:
    body = echo(text)
    fields = {
        "MCP_Protocol_Version": "2026-07-28",
        "Mcp_Method": "tools/call",
        "Mcp_Name": "echo",
        "Accept": "application/json, text/event-stream",
        "Connection": "close",
    }
    return head(len(body), **fields) + body


@contextlib.asynccontextmanager
async def listening(server: Any, url: str, **options: Any) -> AsyncIterator[Any]:
    """Serve, and close the clients at the end."""
    Half.made.clear()
    async with serving(server, url, **options) as place:
        try:
            yield place
        finally:
            for half in Half.made:
                await half.close()


# -- HTTP ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [10 * SIZE, None])
async def test_bodies_beyond_the_limit_get_503(length: int | None) -> None:
    piece = b"x" * SIZE if length else b"%x\r\n%b\r\n" % (SIZE, b"x" * SIZE)
    async with listening(lab_server(), HTTP, max_input_bytes=BUDGET) as place:
        halves = [await Half.send(place.port, head(length) + piece) for _ in range(2)]
        await place.until(lambda: used(place) > 2 * SIZE - 50_000)
        late = await (await Half.send(place.port, head(length) + piece)).answer()
        assert (late.status, late.headers["retry-after"]) == (503, "5")
        assert late.line == "too many requests are not complete yet"
        assert late.headers["connection"] == "close"
        # the others are served meanwhile, and go on
        assert (await (await Half.send(place.port, whole("hi"))).answer()).status == 200
        assert used(place) <= BUDGET
        for half in halves:
            await half.close()
        await place.until(lambda: used(place) == 0)
        assert (await (await Half.send(place.port, whole("x" * SIZE))).answer()).status == 200
        await place.until(lambda: used(place) == 0)


async def test_one_long_body_is_taken_where_no_other_waits() -> None:
    async with listening(lab_server(), HTTP, max_input_bytes=1) as place:
        assert (await (await Half.send(place.port, whole("x" * SIZE))).answer()).status == 200


async def test_requests_that_wait_count() -> None:
    server = lab_server(limits=Limits(max_in_flight=1))
    long = encode(call(2, "echo", {"text": "x" * 2 * SIZE}))
    opening = encode(initialize(0)) + encode(call(1, "wait", {"name": "one"}))
    async with listening(server, "tcp://127.0.0.1:0", max_input_bytes=BUDGET) as place:
        first = await Half.send(place.port, opening + long)
        await place.until(lambda: used(place) > SIZE)
        late = await Half.send(place.port, opening + long)
        with contextlib.suppress(ConnectionResetError):
            assert b"xxx" not in await late.reader.read()
        server.waiting[0].set_result(None)  # type: ignore[attr-defined]
        lines = [await first.reader.readline() for _ in range(3)]
        assert [b"xxx" in line for line in lines] == [False, False, True]
        await place.until(lambda: used(place) == 0)
        await first.close()


# -- messages and lines ----------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", [0x01, 0x81])
async def test_websocket_messages_beyond_the_limit_are_told_to_come_back(opcode: int) -> None:
    """Unfinished frames (0x81), and messages whose last frame is missing (0x01)."""
    size = 10 * SIZE if opcode == 0x81 else SIZE
    start = bytes([opcode, 0xFF]) + struct.pack("!Q", size) + b"\0\0\0\0" + b" " * SIZE
    async with listening(lab_server(), "ws://127.0.0.1:0/mcp", max_input_bytes=BUDGET) as place:
        peers = [await Bare.connect(place.port) for _ in range(3)]
        for peer in peers[:2]:
            peer.writer.write(start)
        await place.until(lambda: used(place) > 2 * SIZE - 50_000)
        peers[2].writer.write(start)
        assert await peers[2].close_code() == (1013, "too many unfinished messages")
        another = await Bare.connect(place.port)
        await another.handshake()
        for peer in (*peers, another):
            await peer.close()
        await place.until(lambda: used(place) == 0)


def lite_server() -> LiteServer:
    server = LiteServer("lite")

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


@pytest.mark.parametrize("server", [lab_server, lite_server])
async def test_lines_beyond_the_limit_end_their_connection(
    server: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        link_module, "_quiet", RateLimitedLog(logging.getLogger("wirespeed.transport"))
    )
    start = b'{"a": "' + b"x" * SIZE
    async with listening(server(), "tcp://127.0.0.1:0", max_input_bytes=BUDGET) as place:
        halves = [await Half.send(place.port, start) for _ in range(2)]
        await place.until(lambda: used(place) > 2 * SIZE - 50_000)
        late = await Half.send(place.port, start)
        with contextlib.suppress(ConnectionResetError):
            assert await late.reader.read() == b""
        lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert len(lines) == 1
        assert lines[0].startswith("a connection is closed: unfinished messages of all connections")
        for half in (*halves, late):
            await half.close()
        await place.until(lambda: used(place) == 0)


# -- the gate is asked at the head -----------------------------------------------------------------


async def refused_early(port: int, length: int | None = 10 * SIZE, **fields: str) -> Answer:
    """Send a head and a byte of the body; the answer must come without the rest."""
    first = b"x" if length else b"1\r\nx\r\n"
    half = await Half.send(port, head(length, **fields) + first)
    return await asyncio.wait_for(half.answer(), 10)


@every("length", [10 * SIZE, None])
@every("waits", [False, True])
async def test_authenticate_is_asked_before_the_body(waits: bool, length: int | None) -> None:
    asked: list[HttpRequest] = []

    def decide(request: HttpRequest) -> Any:
        asked.append(request)
        return request.token == "good"

    async def later(request: HttpRequest) -> Any:
        await asyncio.sleep(0.01)
        return decide(request)

    options: Any = {"authenticate": later if waits else decide}
    async with listening(lab_server(), HTTP, **options) as place:
        for fields in ({}, {"Authorization": "Bearer bad"}):
            answer = await refused_early(place.port, length, **fields)
            assert (answer.status, answer.line) == (401, "not authorized")
        assert len(asked) == 2
        # one that is let in is asked once, although its body comes later
        body = echo("hi")
        fields = {
            "Authorization": "Bearer good",
            "MCP_Protocol_Version": "2026-07-28",
            "Mcp_Method": "tools/call",
            "Mcp_Name": "echo",
        }
        half = await Half.send(place.port, head(len(body), **fields) + body[:5])
        await place.until(lambda: len(asked) == 3)
        await asyncio.sleep(0.03)
        half.writer.write(body[5:-1])
        await asyncio.sleep(0.01)
        half.writer.write(
            body[-1:] + whole("ho").replace(b"Host", b"Authorization: Bearer no\r\nHost")
        )
        data = await half.reader.read()
        assert data.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 401 " in data
        assert len(asked) == 4


async def test_a_verdict_that_takes_too_long_refuses_a_body_that_has_begun() -> None:
    async def never(request: HttpRequest) -> bool:
        await asyncio.Event().wait()
        return True

    options: Any = {"authenticate": never, "open_timeout": 0.2}
    async with listening(lab_server(), HTTP, **options) as place:
        answer = await refused_early(place.port)
        assert (answer.status, answer.line) == (503, "the request could not be authorized in time")


async def test_a_server_that_ends_before_the_verdict() -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def never(request: HttpRequest) -> bool:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return True

    server = lab_server()
    async with listening(server, HTTP, authenticate=never) as place:
        half = await Half.send(place.port, head() + b"x")
        await asyncio.wait_for(asked.wait(), 10)
        place.listener.drain()
        assert (await half.answer()).status == 503
        await asyncio.wait_for(cancelled.wait(), 10)


async def test_an_authority_is_asked_once_for_a_body_that_comes_in_pieces() -> None:
    """A proof of a key (DPoP) is accepted once."""
    from wirespeed.transport.gate import Admission, Refused
    from wirespeed.transport.options import Refusal, User

    asked: list[str] = []

    class Once:
        def check(self, request: HttpRequest) -> Admission:
            proof = request.headers.get("dpop", "")
            asked.append(proof)
            if proof != "fresh" or asked.count(proof) > 1:
                raise Refused(Refusal(401, "the proof is not fresh"))
            return Admission(User("anne"), b"anne", 0, fields=(("DPoP-Nonce", "next"),))

    server: Server = lab_server()
    async with listening(server, HTTP) as place:
        place.listener._site.targets[b"/mcp"].authority = Once()  # type: ignore[union-attr]
        answer = await refused_early(place.port, Authorization="DPoP t", DPoP="stale")
        assert (answer.status, answer.line) == (401, "the proof is not fresh")
        request = whole("hi").replace(b"Host", b"DPoP: fresh\r\nHost")
        half = await Half.send(place.port, request[:-3])
        await place.until(lambda: "fresh" in asked)
        half.writer.write(request[-3:])
        answer = await half.answer()
        assert (answer.status, answer.headers["dpop-nonce"]) == (200, "next")
        assert asked == ["stale", "fresh"]


@pytest.mark.parametrize("length", [10 * SIZE, None])
async def test_a_preflight_brings_no_long_body(length: int | None) -> None:
    async with listening(lab_server(), HTTP, token="t") as place:
        start = head(length, Origin="http://localhost:1").replace(b"POST", b"OPTIONS", 1)
        half = await Half.send(place.port, start + b"1\r\nx\r\n")
        answer = await asyncio.wait_for(half.answer(), 10)
        assert (answer.status, answer.line) == (413, "this request needs no body")


# -- what is logged --------------------------------------------------------------------------------


@pytest.mark.parametrize("partly", [False, True])
async def test_a_first_request_without_a_token_is_no_warning(
    partly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with listening(lab_server(), HTTP, token="t") as place:
        for fields in ({}, {"Authorization": "Bearer wrong"}):
            data = head(2, Connection="close", **fields) + (b"{" if partly else b"{}")
            assert (await (await Half.send(place.port, data)).answer()).status == 401
    found = [one.levelname for one in caplog.records if "refused" in one.getMessage()]
    assert found == ["INFO", "WARNING"]
