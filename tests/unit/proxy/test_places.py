"""Places at a server with a process for each client, which clients take with them when they leave
without a word."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from lab.http_front import Front, hello, serving
from lab.merge import MergeLab
from lab.principals import PRINCIPALS, Requests, client
from lab.proxy import call
from lab.raw import FOREVER
from lab.store import LISTS_FOR_SCRIPTS, SECONDS, MakeServer, free_port

from wirespeed import Client
from wirespeed.errors import RemoteError
from wirespeed.protocol import codes
from wirespeed.proxy import ClusterConfig

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]


# Clients lose their places as soon as they do not work.
HASTY = {"idle": 0.0, "unused": 0.0}


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


async def test_clients_that_left_without_a_word_make_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, "session", max_clients=3, delays=HASTY) as front:
        sessions = [await front.initialize() for _ in range(8)]
        states = [
            (await front.post(call(1, "echo"), f"Mcp-Session-Id: {one}"))[0] for one in sessions
        ]
        assert states == [404] * 5 + [200] * 3
        assert service(front).cut["replaced"] == 5
    lines = [one.getMessage() for one in caplog.records if "is full" in one.getMessage()]
    assert lines[0].startswith("b is full: of its 3 clients, one that was silent for 0 s")
    assert len(lines) <= 2


async def test_who_was_silent_for_the_longest_goes_first(tmp_path: Path) -> None:
    async with serving(tmp_path, "session", max_clients=2, delays=HASTY) as front:
        one, two = [f"Mcp-Session-Id: {await front.initialize()}" for _ in range(2)]
        assert (await front.post(call(1, "echo"), one))[0] == 200
        await front.initialize()
        assert [(await front.post(call(1, "echo"), it))[0] for it in (one, two)] == [200, 404]


async def test_a_client_that_works_keeps_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, "session", max_clients=2, delays=HASTY) as front:
        one, two = [f"Mcp-Session-Id: {await front.initialize()}" for _ in range(2)]
        slow = asyncio.ensure_future(front.post(call(1, "sleep", seconds=1), one))
        async with listening(front, two):
            while not any(it.session.inflight.live for it in service(front).downstreams):
                await asyncio.sleep(0.01)
            status, _, answer = await front.post(hello())
            assert status == 503
            assert answer["error"]["message"] == "b has 2 clients: there may be no more"
            assert "b is full: none of its 2 clients makes room" in caplog.text
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


async def state(front: Front, session: str) -> int:
    """What a session gets for a call."""
    return (await front.post(call(1, "echo"), session))[0]


async def test_who_has_the_most_places_gives_them_to_others(tmp_path: Path) -> None:
    async with serving(tmp_path, "session", max_clients=3) as front:
        two, three, four = (
            Front(front.lab, front.url, front.proxy, address=f"127.0.0.{n}") for n in (2, 3, 4)
        )
        busy, quiet, used = [f"Mcp-Session-Id: {await front.initialize()}" for _ in range(3)]
        slow = asyncio.ensure_future(front.post(call(1, "sleep", seconds=2), busy))
        assert await state(front, used) == 200
        async with listening(front, quiet):
            second = f"Mcp-Session-Id: {await two.initialize()}"
            assert [await state(front, it) for it in (quiet, used)] == [200, 404]
            assert (await two.post(hello()))[0] == 503  # it would have more than its share
            assert (await front.post(hello()))[0] == 503
            third = f"Mcp-Session-Id: {await three.initialize()}"
            assert await state(front, quiet) == 404
            assert (await four.post(hello()))[0] == 503  # nobody has two
            assert [await state(two, second), await state(three, third)] == [200, 200]
            assert (await slow)[0] == 200
        assert service(front).cut["replaced"] == 2


async def test_calls_of_a_session_that_makes_room_get_an_error(tmp_path: Path) -> None:
    async with serving(tmp_path, "session", max_clients=2) as front:
        sessions = [f"Mcp-Session-Id: {await front.initialize()}" for _ in range(2)]
        calls = [
            asyncio.ensure_future(front.post(call(1, "sleep", seconds=2), one)) for one in sessions
        ]
        while [it.session.inflight.live for it in service(front).downstreams] != [1, 1]:
            await asyncio.sleep(0.01)
        await Front(front.lab, front.url, address="127.0.0.2").initialize()
        answers = [answer for _, _, answer in await asyncio.gather(*calls)]
        (error,) = [one["error"] for one in answers if "error" in one]
        assert error["code"] == codes.CUT_OFF
        assert error["message"].startswith(
            "another client needs its place: the request was cut off"
        )


@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize("path", ["/mcp", "/servers/a"])
async def test_each_principal_has_a_share(tmp_path: Path, scheme: str, path: str) -> None:
    lab = MergeLab(tmp_path, principals=PRINCIPALS)
    lab.backends = [lab.inside("a", isolation="session", max_clients=2), lab.inside("b")]
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        contextlib.AsyncExitStack() as up,
    ):
        tool = "a_who" if path == "/mcp" else "who"

        async def connect(name: str) -> Client:
            found = await up.enter_async_context(client(urls[0], name, "legacy", path))
            assert (await found.call_tool(tool, {"nonce": name})).data == f"a:{name}"
            return found

        for _ in range(2):
            await connect("anne")
        assert lab.proxy.services["a"].cut["replaced"] == 0
        root = await connect("root")
        assert lab.proxy.services["a"].cut["replaced"] == 1
        if scheme == "http":  # a client of ours asks again, for 15 seconds
            requests = await up.enter_async_context(Requests(urls[0]))
            _, found, answer = await requests.post(json.dumps(hello()), "anne", path=path)
            if path == "/mcp":  # it says hello before its servers do
                session = f"Mcp-Session-Id: {found['mcp-session-id']}"
                body = json.dumps(call(2, tool, nonce="anne"))
                _, _, answer = await requests.post(body, "anne", session, path=path)
            assert answer["error"]["code"] == codes.OVERLOADED
        else:
            with pytest.raises(RemoteError) as refused:
                await connect("anne")
            assert refused.value.code == codes.OVERLOADED
        assert (await root.call_tool(tool, {"nonce": "1"})).data == "a:1"


async def test_a_session_of_a_silent_client_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, "session", session_idle=0.2) as front:
        two = f"Mcp-Session-Id: {await front.initialize()}"
        async with listening(front, two):
            one = f"Mcp-Session-Id: {await front.initialize()}"
            pid = service(front).supervisors[1].status.pid
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.01)
            states = [(await front.post(call(1, "echo"), it))[0] for it in (one, two)]
            assert states == [404, 200]
            assert service(front).cut["idle"] == 1


async def test_a_store_that_does_not_answer_with_numbers(
    tmp_path: Path, new_store_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A client gets an error, and one that comes later a server."""
    port = free_port()
    wrong = new_store_server(*LISTS_FOR_SCRIPTS, port=port)
    cluster = ClusterConfig(url=wrong.url, secret="s" * 16, store_timeout=SECONDS)
    async with serving(tmp_path, "session", max_clients=2, cluster=cluster) as front:
        for _ in range(3):
            async with asyncio.timeout(FOREVER):
                _, _, answer = await front.post(hello())
            assert answer["error"]["code"] == codes.INTERNAL_ERROR
        wrong.kill()
        new_store_server(port=port)
        for _ in range(2):
            while (await front.post(hello()))[0] != 200:
                await asyncio.sleep(0.01)
        assert (await front.post(hello()))[0] == 503
        assert len(service(front).downstreams) == 2
    assert "internal error of the proxy at a new client of b" in caplog.text
