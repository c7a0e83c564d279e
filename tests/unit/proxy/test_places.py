"""Places at a server with a process for each client, which clients take with them when they leave
without a word."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.unit.proxy.proxy_lab import call
from tests.unit.proxy.test_http_front import Front, hello, serving
from wirespeed.proxy.isolation import places

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients lose their places as soon as they do not work."""
    monkeypatch.setattr(places, "IDLE", 0.0)
    monkeypatch.setattr(places, "UNUSED", 0.0)


def service(front: Front) -> Any:
    return front.proxy.services["b"]


@contextlib.asynccontextmanager
async def listening(front: Front, session: str) -> Any:
    """A client with a stream of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = ["GET /mcp HTTP/1.1", "Host: 127.0.0.1", "Accept: text/event-stream", session]
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    yield
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.usefixtures("hasty")
async def test_clients_that_left_without_a_word_make_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, "session", max_clients=3) as front:
        sessions = [await front.initialize() for _ in range(8)]
        states = [
            (await front.post(call(1, "echo"), f"Mcp-Session-Id: {one}"))[0] for one in sessions
        ]
        assert states == [404] * 5 + [200] * 3
        assert service(front).cut["replaced"] == 5
    lines = [one.getMessage() for one in caplog.records if "is full" in one.getMessage()]
    assert lines[0].startswith("b is full: of its 3 clients, one that was silent for 0 s")
    assert len(lines) <= 2


@pytest.mark.usefixtures("hasty")
async def test_who_was_silent_for_the_longest_goes_first(tmp_path: Path) -> None:
    async with serving(tmp_path, "session", max_clients=2) as front:
        one, two = [f"Mcp-Session-Id: {await front.initialize()}" for _ in range(2)]
        assert (await front.post(call(1, "echo"), one))[0] == 200
        await front.initialize()
        assert [(await front.post(call(1, "echo"), it))[0] for it in (one, two)] == [200, 404]


@pytest.mark.usefixtures("hasty")
async def test_a_client_that_works_keeps_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, "session", max_clients=2) as front:
        one, two = [f"Mcp-Session-Id: {await front.initialize()}" for _ in range(2)]
        slow = asyncio.ensure_future(front.post(call(1, "sleep", seconds=1), one))
        async with listening(front, two):
            while not any(it.session.inflight.live for it in service(front).fronts):
                await asyncio.sleep(0.01)
            status, _, answer = await front.post(hello())
            assert status == 503
            assert answer["error"]["message"] == "b has 2 clients: there may be no more"
            assert "b is full: all of its 2 clients work" in caplog.text
            assert (await slow)[0] == 200
            assert (await front.post(call(1, "echo"), two))[0] == 200
            await front.initialize()  # the first one is silent now
            states = [(await front.post(call(1, "echo"), it))[0] for it in (one, two)]
            assert states == [404, 200]


async def test_a_client_keeps_its_place_between_two_requests(tmp_path: Path) -> None:
    async with serving(tmp_path, "session", max_clients=1) as front:
        session = f"Mcp-Session-Id: {await front.initialize()}"
        for n in range(2):
            await front.post(call(n, "echo"), session)
        assert (await front.post(hello()))[0] == 503
        assert (await front.post(call(3, "echo"), session))[0] == 200
        assert (await front.request("DELETE", b"", session))[0] == 204
        while (await front.post(hello()))[0] != 200:
            await asyncio.sleep(0.01)


async def test_a_session_of_a_silent_client_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, "session", session_idle=0.2) as front:
        one, two = [f"Mcp-Session-Id: {await front.initialize()}" for _ in range(2)]
        pid = (await front.post(call(1, "echo"), one))[2]["result"]["_meta"]["pid"]
        async with listening(front, two):
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.01)
            states = [(await front.post(call(1, "echo"), it))[0] for it in (one, two)]
            assert states == [404, 200]
            assert service(front).cut["idle"] == 1
