"""The client over ``unix:`` and ``tcp://``: stdio's framing on a socket."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from lab.client import Run, open_fds, text_result, turns, until
from lab.peer import ERAS, LEGACY_PEER, MODERN_PEER, LinePeer, LineTalk, Rules, Talk, nothing
from lab.wording import raises

from wirespeed import Client, Socket, SyncClient
from wirespeed.errors import CallTimeout, ConnectionClosed, ConnectionLost, TransportError

Message = dict[str, Any]


@pytest.fixture(params=["unix", "tcp"])
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> LinePeer:
    return LinePeer({}, tmp_path if request.param == "unix" else None)


@ERAS
async def test_both_eras_are_found_out(peer: LinePeer, rules: Rules) -> None:
    peer.rules = rules
    async with peer, Client(peer.url) as client:
        assert (await client.call_tool("echo")).text == "ok"
        assert [tool.name for tool in await client.list_tools()] == ["echo"]
        await client.ping()
        expected = "2025-11-25" if rules is LEGACY_PEER else "2026-07-28"
        assert client.protocol_version == expected


async def test_a_legacy_server_that_hangs_up_on_the_probe(peer: LinePeer) -> None:
    async def hang_up(talk: Talk, message: Message) -> None:
        assert isinstance(talk, LineTalk)
        talk.writer.close()

    peer.rules = LEGACY_PEER | {"server/discover": hang_up}
    async with peer, Client(peer.url) as client:
        assert client.protocol_version == "2025-11-25"
        assert [len(talk.sent("initialize")) for talk in peer.talks] == [0, 1]


@ERAS
async def test_progress_cancelling_and_time_limits(peer: LinePeer, rules: Rules) -> None:
    async def work(talk: Talk, message: Message) -> None:
        token = message["params"]["_meta"]["progressToken"]
        await talk.send(
            method="notifications/progress", params={"progressToken": token, "progress": 1}
        )
        await talk.text(message, "done")

    peer.rules = rules | {"tools/call:work": work, "tools/call:wait": nothing}
    seen: list[Any] = []
    async with peer, Client(peer.url) as client:
        result = await client.call_tool("work", on_progress=lambda *step: seen.append(step))
        assert (result.text, seen) == ("done", [(1, None, None)])
        call = asyncio.create_task(client.call_tool("wait"))
        await peer.got("tools/call", 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await peer.got("notifications/cancelled")
        with pytest.raises(CallTimeout):
            await client.call_tool("wait", timeout=0.02)
        await peer.got("notifications/cancelled", 2)


async def test_large_messages_both_ways(peer: LinePeer) -> None:
    async def echo(talk: Talk, message: Message) -> None:
        await talk.text(message, message["params"]["arguments"]["text"])

    peer.rules = MODERN_PEER | {"tools/call": echo}
    async with peer, Client(peer.url) as client:
        texts = ["x" * n for n in (1, 1000, 50_000)] * 20
        got = await asyncio.gather(*(client.call_tool("e", {"text": text}) for text in texts))
        assert [result.text for result in got] == texts


@pytest.mark.parametrize("how", ["eof", "reset"])
async def test_the_server_goes_away(peer: LinePeer, how: str) -> None:
    async def leave(talk: Talk, message: Message) -> None:
        assert isinstance(talk, LineTalk)
        if how == "reset":
            talk.writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
            )
            talk.vanish()
        else:
            talk.writer.close()

    peer.rules = LEGACY_PEER | {"tools/call:die": leave, "tools/call:wait": nothing}
    async with peer, Client(peer.url, timeout=None) as client:
        calls = [client.call_tool("wait") for _ in range(64)] + [client.call_tool("die")]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error) for error in errors} == {ConnectionLost}
        error = errors[0]
        assert isinstance(error, ConnectionLost) and error.code is None
        assert str(error).startswith(f"{peer.url}: the ")
        with pytest.raises(ConnectionLost):
            await client.call_tool("echo")
        assert client.counters["requests_outstanding"] == 0


async def test_the_last_answer_before_the_end_counts(peer: LinePeer) -> None:
    async def last(talk: Talk, message: Message) -> None:
        assert isinstance(talk, LineTalk)
        await talk.text(message, "last")
        talk.writer.close()

    peer.rules = MODERN_PEER | {"tools/call": last}
    async with peer, Client(peer.url) as client:
        assert (await client.call_tool("x")).text == "last"


def answer_and_reset(listener: socket.socket) -> None:
    """A legacy server that resets the connection right behind its answer to a call of "last"."""
    sock, _ = listener.accept()
    with sock, sock.makefile("rb") as lines:
        for line in lines:
            message = json.loads(line)
            answer: Message = {"jsonrpc": "2.0", "id": message.get("id")}
            if message["method"] == "initialize":
                answer["result"] = LEGACY_PEER["initialize"]
            elif message["method"] == "server/discover":
                answer["error"] = {"code": -32601, "message": "unknown"}
            elif message.get("params", {}).get("name") == "last":
                answer["result"] = text_result("last")
            else:
                continue
            sock.send(json.dumps(answer).encode() + b"\n")
            if "params" in message and message["params"].get("name") == "last":
                break
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def test_a_reset_right_behind_an_answer_is_noticed() -> None:
    """uvloop tells of such a reset only once, together with the data."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        for _ in range(2):
            server = asyncio.ensure_future(asyncio.to_thread(answer_and_reset, listener))
            async with Client(url, timeout=None) as client:
                calls = [asyncio.create_task(client.call_tool(n)) for n in ("wait", "last")]
                await asyncio.sleep(0)
                await asyncio.sleep(0)  # both calls are sent
                time.sleep(0.02)  # the loop finds the answer and the reset together
                waiting, _ = await asyncio.gather(*calls, return_exceptions=True)
                assert isinstance(waiting, ConnectionLost)
            await server


async def test_nobody_is_there(tmp_path: Path) -> None:
    with raises(TransportError):
        await Client(f"unix:{tmp_path}/nothing").open()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with raises(TransportError):
            await Client(f"tcp://127.0.0.1:{port}").open()
    (tmp_path / "file").write_text("")
    with raises(TransportError):
        await Client(f"unix:{tmp_path}/file").open()


async def test_a_path_that_is_too_long(once: Run) -> None:
    with raises(TransportError):
        await Client("unix:/" + "x" * 200).open()


async def test_closing_ends_the_stream(peer: LinePeer) -> None:
    peer.rules = MODERN_PEER | {"tools/call": nothing}
    async with peer:
        client = Client(peer.url)
        await client.open()
        call = asyncio.create_task(client.call_tool("x"))
        await peer.got("tools/call")
        await client.close()
        with raises(ConnectionClosed):
            await call
        assert await peer.talks[0].ended is None


async def test_nothing_is_left_after_many_clients(peer: LinePeer) -> None:
    peer.rules = MODERN_PEER
    async with peer:
        async with Client(peer.url):  # what is started once
            pass
        await until(lambda: all(talk.ended.done() for talk in peer.talks))
        await turns(20)
        fds, tasks = open_fds(), len(asyncio.all_tasks())
        for _ in range(20):
            async with Client(peer.url) as client:
                assert (await client.call_tool("echo")).text == "ok"
        await until(lambda: (open_fds(), len(asyncio.all_tasks())) == (fds, tasks))


async def test_the_blocking_client(once: Run, peer: LinePeer) -> None:
    peer.rules = MODERN_PEER

    def work(url: str) -> str | None:
        with SyncClient(Socket(url)) as client:
            return client.call_tool("echo").text

    async with peer:
        assert await asyncio.to_thread(work, peer.url) == "ok"
