"""MCP over WebSocket, to the end of each connection: `websockets` and bare bytes as clients."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import struct
from typing import Any

import pytest
import websockets
from lab.raw import call, initialize, modern, notification, request
from lab.rows import every
from lab.serve import Bare, Place, descriptors, exchange, frame, lab_server, serving, slabs, upgrade
from websockets.asyncio.client import ClientConnection, connect

from wirespeed import Client, Server
from wirespeed.limits import Limits

MESSAGE = call(1, "echo", {"text": "hi"})


async def ask(ws: ClientConnection, message: Any) -> Any:
    await ws.send(json.dumps(message))
    return json.loads(await ws.recv())


@every("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_legacy_session(version: str) -> None:
    async with serving(lab_server()) as place, connect(place.url, subprotocols=["mcp"]) as ws:
        assert ws.subprotocol == "mcp"
        answer = await ask(ws, initialize(0, version))
        assert answer["result"]["protocolVersion"] == version
        await ws.send(json.dumps(notification("notifications/initialized")))
        answer = await ask(ws, MESSAGE)
        assert answer["result"]["content"] == [{"type": "text", "text": "hi"}]


async def test_modern_requests() -> None:
    async with serving(lab_server()) as place, connect(place.url, subprotocols=["mcp"]) as ws:
        answer = await ask(ws, modern(1, "server/discover"))
        assert "2026-07-28" in answer["result"]["supportedVersions"]
        params = {"name": "echo", "arguments": {"text": "hi"}}
        answer = await ask(ws, modern(2, "tools/call", params))
        assert answer["result"]["content"][0]["text"] == "hi"


@every(("theirs", "ours"), [(True, True), (True, False), (False, True)])
async def test_compression_is_agreed_on_or_not(theirs: bool, ours: bool) -> None:
    text = "abc " * 20_000
    async with serving(lab_server(), compression=ours) as place:
        offer = "deflate" if theirs else None
        async with connect(place.url, subprotocols=["mcp"], compression=offer) as ws:
            assert bool(ws.protocol.extensions) == (theirs and ours)
            await ask(ws, initialize(0))
            answer = await ask(ws, call(1, "echo", {"text": text}))
            assert answer["result"]["content"][0]["text"] == text


async def test_several_servers_by_path() -> None:
    one, two = Server("one"), Server("two")
    async with serving({"/one": one, "/a/two": two}, "ws://127.0.0.1:0") as place:
        base = f"ws://127.0.0.1:{place.port}"
        assert place.listener.urls == (f"{base}/one", f"{base}/a/two")
        for url, name in zip(place.listener.urls, ("one", "two"), strict=True):
            async with connect(f"{url}?x=y", subprotocols=["mcp"]) as ws:
                answer = await ask(ws, initialize(0))
                assert answer["result"]["serverInfo"]["name"] == name
        assert (await exchange(place.port, upgrade("/"))).status == 404


async def test_a_path_is_meant_as_a_url_spells_it() -> None:
    async with serving({'/é/"a"': lab_server()}, "ws://127.0.0.1:0") as place:
        assert place.url.endswith("/%C3%A9/%22a%22")
        for url in (place.url, f'ws://127.0.0.1:{place.port}/é/"a"'):
            async with Client(url) as client:
                assert (await client.call_tool("echo", {"text": "é"})).text == "é"


async def test_header_fields_of_the_answer() -> None:
    async with serving(lab_server(), headers={"X-Served-By": "us"}) as place:
        peer = await Bare.connect(place.port)
        assert b"\r\nX-Served-By: us\r\n" in peer.head
        assert b"\r\nServer:" not in peer.head
        await peer.close()


def lite_like() -> Server:
    """A server with the manners of a LiteMCP server at the door."""
    server = Server("lite")
    service: Any = server.service
    service.subprotocol = None
    service.auth_headers = ("authorization", "authentication")
    service.refusal_status = 403
    return server


@every(
    ("fields", "status"),
    [
        ({"Authorization": "Bearer good"}, 101),
        ({"Authentication": "bearer good"}, 101),
        ({"Authorization": "Bearer good", "Authentication": "Bearer good"}, 101),
        ({"Authorization": "Bearer good", "Authentication": "Bearer bad"}, 403),
        ({"Authorization": "Bearer bad", "Authentication": "Bearer good"}, 403),
        ({"Authorization": "Bearer good", "Authentication": "good"}, 403),
        ({"Authorization": "Bearer bad", "Authentication": "Bearer bad"}, 403),
        ({}, 403),
    ],
)
async def test_both_spellings_of_a_token(fields: dict[str, str], status: int) -> None:
    async with serving(lite_like(), token="good") as place:
        if status == 101:
            await (await Bare.connect(place.port, **fields)).close()
        else:
            answer = await exchange(place.port, upgrade(**fields))
            assert answer.status == 403
            assert "www-authenticate" not in answer.headers


async def test_without_a_subprotocol_of_its_own_a_service_takes_the_first() -> None:
    """A browser fails the connection when it offered some and none is chosen."""
    async with serving(lite_like(), require_subprotocol=True) as place:
        for offered, chosen in (("a, b", b"a"), (None, None)):
            peer = await Bare.connect(place.port, Sec_WebSocket_Protocol=offered)
            line = b"Sec-WebSocket-Protocol: " + (chosen or b"")
            assert (line in peer.head) == (chosen is not None)
            await peer.close()


# -- frames ----------------------------------------------------------------------------------------


async def test_what_comes_with_the_request_is_not_lost() -> None:
    """A client must wait for the answer, but its first frames may be in the same read."""
    async with serving(lab_server()) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        first = frame(1, json.dumps(initialize(0)).encode())
        second = frame(1, json.dumps(MESSAGE).encode())
        writer.write(upgrade(port=place.port) + first + second[:7])
        peer = Bare(reader, writer)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert (await peer.message())["id"] == 0
        writer.write(second[7:])
        assert (await peer.message())["id"] == 1
        await peer.close()


@every(
    ("frames", "code"),
    [
        (frame(2, b"{}"), 1003),
        (frame(1, b'"\xff"'), 1007),
        (frame(3, b""), 1002),
        (b"\x81\x02{}", 1002),  # not masked
        (frame(1, b" " * 2000), 1009),
        (frame(8, b"\x03\xe8"), 1000),
    ],
)
async def test_close_codes(frames: bytes, code: int) -> None:
    server = lab_server(limits=Limits(max_message=1000))
    async with serving(server) as place:
        peer = await Bare.connect(place.port)
        peer.writer.write(frames)
        assert (await peer.close_code())[0] == code
        if code != 1000:
            peer.frame(8, code.to_bytes(2, "big"))
        assert await peer.at_end()  # the server closes first (RFC 6455 section 7.1.1)
        await peer.close()
        await place.empty()


async def test_bad_json_is_answered_and_the_socket_stays() -> None:
    async with serving(lab_server()) as place:
        peer = await Bare.connect(place.port)
        peer.frame(1, b"{not json")
        assert (await peer.message())["error"]["code"] == -32700
        await peer.handshake()
        await peer.close()


# -- leaving ---------------------------------------------------------------------------------------


@every("how", ["reset", "end of file", "close frame"])
async def test_a_client_that_leaves_cancels_its_requests(how: str) -> None:
    server: Any = lab_server()
    async with serving(server) as place:
        peer = await place.at_work("mine")
        other = await place.at_work("theirs")
        if how == "reset":
            peer.vanish()
        elif how == "end of file":
            peer.writer.write_eof()
        else:
            peer.frame(8, b"\x03\xe8")
            assert (await peer.close_code())[0] == 1000
            await peer.close()
        await place.until(lambda: server.cancelled)
        assert server.cancelled == ["mine"]
        await place.until(lambda: place.listener.n_connections == 1)
        server.waiting[1].set_result(None)
        assert (await other.message())["result"]["content"][0]["text"] == "theirs"
        await peer.close()
        await other.close()


def opened(port: int) -> socket.socket:
    """A WebSocket behind its opening handshake, as a blocking socket."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    sock.sendall(upgrade(port=port))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1)
    return sock


async def test_a_reset_right_behind_data_is_noticed() -> None:
    """uvloop tells of such a reset only once, together with the data; pings are off here, so that
    the link has to find out. More sockets than are peeked at in one turn."""
    n = 300
    async with serving(lab_server(), ping_interval=None) as place:
        socks = [await asyncio.to_thread(opened, place.port) for _ in range(n)]
        await place.until(lambda: place.listener.n_connections == n)
        for sock in socks:
            # all in one turn of the loop: data and reset are there when the server looks
            sock.send(frame(1, b'{"jsonrpc":"2.0","method":"notifications/nothing"}'))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        await place.empty()


async def test_drain_answers_what_is_in_flight_and_says_1001() -> None:
    server: Any = lab_server()
    async with serving(server) as place:
        busy, idle = await place.at_work("last"), await Bare.connect(place.port)
        # one is still at the door, one before it
        half = asyncio.ensure_future(exchange(place.port, b"GET /mcp"))
        await place.until(lambda: place.listener.n_connections == 3)
        await asyncio.sleep(0.1)  # for its bytes: a client that has sent none is closed silently
        place.listener.drain()
        assert await idle.close_code() == (1001, "")
        assert (await half).status == 503
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", place.port)
        busy.send(call(2, "echo", {"text": "too late"}))
        assert (await busy.message())["error"]["code"] == -31001
        assert not place.task.done()
        server.waiting[0].set_result(None)
        assert (await busy.message())["result"]["content"][0]["text"] == "last"
        assert await busy.close_code() == (1001, "")
        for peer in (busy, idle):
            peer.frame(8, b"\x03\xe9")
            assert await peer.at_end()
            await peer.close()
        await place.task
        assert server.cancelled == []


async def test_who_closes_during_the_drain_is_not_waited_for() -> None:
    server: Any = lab_server()
    async with serving(server) as place:
        busy = await place.at_work("last")
        place.listener.drain()
        busy.frame(8, b"\x03\xe9")
        assert await busy.close_code() == (1001, "")
        assert await busy.at_end()
        await busy.close()
        await place.task
        assert server.cancelled == ["last"]


async def test_drain_gives_up_after_the_grace_time() -> None:
    server: Any = lab_server(shutdown_grace=0.05)
    async with serving(server) as place:
        async with connect(place.url, subprotocols=["mcp"]) as ws:
            await ask(ws, initialize(0))
            await ws.send(json.dumps(call(1, "wait", {"name": "never"})))
            await place.until(lambda: server.waiting)
            place.listener.drain()
            answer = json.loads(await ws.recv())
            assert answer["error"]["code"] == -31006
            with pytest.raises(websockets.ConnectionClosed) as caught:
                await ws.recv()
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 1001
        await place.task
        assert server.cancelled == ["never"]


async def test_cancelling_serve_sends_what_is_answered() -> None:
    server: Any = lab_server()
    async with serving(server) as place:
        peer = await place.at_work("x")
        place.task.cancel()
        await asyncio.wait([place.task])
        assert server.cancelled == ["x"]
        assert await peer.at_end()
        await peer.close()
        assert place.task.cancelled()


# -- keep-alive ------------------------------------------------------------------------------------


async def test_a_silent_peer_is_pinged_and_a_live_one_stays() -> None:
    async with serving(lab_server(), ping_interval=0.04, ping_timeout=5.0) as place:
        peer = await Bare.connect(place.port)
        for _ in range(3):
            opcode, payload = await peer.recv()
            assert opcode == 9
            peer.frame(10, payload)
        await peer.handshake()
        await peer.close()


async def test_a_peer_that_answers_no_ping_is_ended(caplog: Any) -> None:
    caplog.set_level(logging.INFO, "wirespeed.server")
    server: Any = lab_server()
    options = {"ping_interval": 0.04, "ping_timeout": 0.08}
    async with serving(server, **options) as place:
        silent = await place.at_work("mine")
        # this one pings of its own accord and answers pings; it stays
        async with connect(place.url, subprotocols=["mcp"]) as live:
            await place.until(lambda: server.cancelled)
            assert (await silent.recv())[0] == 9
            assert await silent.at_end()
            assert (await ask(live, request(1, "ping")))["id"] == 1
        await silent.close()
        await place.empty()
    assert "no answer to a ping within 0.08 s" in caplog.text


async def test_no_pings_where_none_are_wanted() -> None:
    options: Any = {"ping_interval": None, "ping_timeout": 0.02, "slow_reader_timeout": 0.04}
    async with serving(lab_server(), **options) as place:
        peer = await Bare.connect(place.port)
        await asyncio.sleep(0.2)
        await peer.handshake()  # the next frame is the answer
        await peer.close()


async def test_the_allowance_of_control_frames_is_filled_up_again() -> None:
    """A thousand pings at once end a connection; the same over time do not."""
    async with serving(lab_server(), ping_interval=0.05) as place:
        peer = await Bare.connect(place.port)
        for _ in range(3):
            peer.writer.write(frame(9, b"") * 700)
            for _ in range(700):
                while (await peer.recv())[0] != 10:
                    pass
            while (await peer.recv())[0] != 9:  # the server has looked at the connection
                pass
        await peer.handshake()
        await peer.close()


# -- a peer that does not read ---------------------------------------------------------------------


async def not_reading(place: Place) -> Bare:
    """A client that has asked for much and reads nothing."""
    peer = await Bare.connect(place.port)
    await peer.handshake()
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    (served,) = place.listener.served()
    wire = served.endpoint.wire
    for id in range(200):
        peer.send(call(id, "fill", {"size": 200_000}))
    await place.until(lambda: len(wire.outbox) >= wire.limits.output_high)
    return peer


async def test_a_slow_reader_is_told_1008(caplog: Any) -> None:
    options: Any = {"slow_reader_timeout": 0.2, "ping_interval": 0.03, "ping_timeout": 0.03}
    async with serving(lab_server(), **options) as place:
        peer = await not_reading(place)
        (served,) = place.listener.served()
        link: Any = served.endpoint.link
        await place.until(lambda: link.ending)
        assert len(served.endpoint.wire.outbox) < 4 * 1024 * 1024
        # it reads again, in time: the answers first, then the reason of the end
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        opcode = 0
        while opcode != 8:
            opcode, payload = await peer.recv()
        assert int.from_bytes(payload[:2], "big") == 1008
        await peer.close()
        await place.empty()
    assert "left" in caplog.text
    assert "bytes unread" in caplog.text


async def test_a_slow_reader_that_never_reads_is_cut_off() -> None:
    options: Any = {"slow_reader_timeout": 0.1, "close_timeout": 0.05}
    async with serving(lab_server(), **options) as place:
        before = slabs()
        peer = await not_reading(place)
        await place.empty()
        assert slabs() <= before
        peer.vanish()


# -- nothing is left -------------------------------------------------------------------------------


@pytest.mark.off_schema("objects are counted")
async def test_connections_that_come_and_go_leave_nothing() -> None:
    server: Any = lab_server()
    async with serving(server) as place:

        async def visit(n: int) -> None:
            if n % 5 == 4:
                assert (await exchange(place.port, upgrade("/no"))).status == 404
                return
            peer = await Bare.connect(place.port)
            await peer.handshake()
            if n % 5 == 0:
                peer.send(call(1, "wait", {"name": str(n)}))
            elif n % 5 == 1:
                peer.frame(8, b"\x03\xe8")
                await peer.close_code()
            elif n % 5 == 2:
                peer.vanish()
                return
            elif n % 5 == 3:
                peer.writer.write(b"\x81\xfe")  # half a header
            await peer.close()

        async def round_of(n: int) -> None:
            await asyncio.gather(*(visit(i) for i in range(n)))
            await place.empty()

        await round_of(50)
        tasks, fds, live = len(asyncio.all_tasks()), descriptors(), len(gc.get_objects())
        for _ in range(4):
            await round_of(50)
        assert len(asyncio.all_tasks()) <= tasks
        assert descriptors() <= fds
        server.waiting.clear()
        server.cancelled.clear()
        gc.collect()
        assert len(gc.get_objects()) < live + 500
