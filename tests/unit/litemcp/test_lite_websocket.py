"""LiteMCP over WebSocket, and over stream sockets: with peers that know the pages alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import websockets
from lab.lite import Run, calculator, call, content, failure, get, listening
from lab.wording import raises
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve as other_serve

import wirespeed
from wirespeed import Socket, WebSocket
from wirespeed.errors import ConnectionLost, TransportError, UpgradeRefused
from wirespeed.litemcp import LiteClient, LiteServer, serve

pytestmark = pytest.mark.compiled

TOKEN = "sesame"


def bearer(token: str = TOKEN) -> str:
    return f"Bearer {token}"


async def ask(socket: Any, message: Any) -> Any:
    await socket.send(json.dumps(message) if not isinstance(message, str) else message)
    return json.loads(await socket.recv())


# -- our server, a client written from the pages --------------------------------------------------


async def test_the_exchange_of_the_pages() -> None:
    async with listening(calculator()) as url, connect(url) as socket:
        info = await ask(socket, json.dumps(get(1), indent=4))
        assert info["data"]["name"] == "Calculator"
        answer = await ask(socket, call(2, "Calculator", ["2", "3"]))
        assert content(answer) == [("number", "5")]
        assert answer["data"]["params"] == {"a": "2", "b": "3"}
        # a terminator is whitespace here
        assert content(
            await ask(socket, json.dumps(call(3, "Calculator", ["1", "1"])) + "\n\n\n")
        ) == [("number", "2")]
        await socket.send(json.dumps(get(4)))
        text = await socket.recv()
        assert isinstance(text, str)
        assert text == text.strip()


async def test_several_tools_on_several_paths() -> None:
    shout, add = LiteServer(), calculator()

    @shout.tool
    async def upper(text: str) -> str:
        return text.upper()

    async with listening({"/shout": shout, "/add": add}) as url:
        base = url.removesuffix("/shout")
        async with connect(base + "/shout") as one, connect(base + "/add?x=1") as other:
            assert content(await ask(one, call(1, "upper", ["a"]))) == [("text", "A")]
            assert failure(await ask(other, call(1, "upper", ["a"]))).startswith("unknown tool")
            assert content(await ask(other, call(2, "Calculator", ["1", "2"])))
        with pytest.raises(websockets.InvalidStatus) as caught:
            await connect(base + "/other").__aenter__()
        assert caught.value.response.status_code == 404


@pytest.mark.parametrize(
    ("headers", "good"),
    [
        ({"Authorization": bearer()}, True),
        ({"Authentication": bearer()}, True),
        ({"authentication": f"bEaReR {TOKEN}"}, True),
        ({"Authorization": bearer(), "Authentication": bearer()}, True),
        ({}, False),
        ({"Authorization": bearer("other")}, False),
        ({"Authentication": bearer("other")}, False),
        ({"Authorization": bearer(), "Authentication": bearer("other")}, False),
        ({"Authorization": bearer("other"), "Authentication": bearer()}, False),
        ({"Authorization": TOKEN}, False),
        ({"X-Token": bearer()}, False),
    ],
)
async def test_either_header_brings_the_token(
    once: Run, headers: dict[str, str], good: bool
) -> None:
    for status in (403, 401):
        server = calculator(refusal_status=status)
        async with listening(server, token=TOKEN) as url:
            if good:
                async with connect(url, additional_headers=headers) as socket:
                    assert (await ask(socket, get(1)))["type"] == "info"
                continue
            with pytest.raises(websockets.InvalidStatus) as caught:
                await connect(url, additional_headers=headers).__aenter__()
            assert caught.value.response.status_code == status


async def test_any_header_reaches_the_server(once: Run) -> None:
    seen = []

    def authenticate(request: wirespeed.HttpRequest) -> bool:
        seen.append((request.path, request.query, request.headers["X-Custom"], request.token))
        return True

    async with listening({"/c": calculator()}, authenticate=authenticate) as url:
        client = LiteClient(
            url + "?user=1", token=TOKEN, headers={"X-Custom": "a b"}, both_headers=True
        )
        async with client:
            assert (await client.call(2, 3)).text == "5"
    assert seen == [("/c", "user=1", "a b", TOKEN)]


async def test_no_subprotocol_is_needed_and_any_may_be_offered(once: Run) -> None:
    async with listening(calculator()) as url:
        for offered in (None, ["whatever"]):
            async with connect(url, subprotocols=offered) as socket:  # type: ignore[arg-type]
                assert (await ask(socket, get(1)))["type"] == "info"


async def test_a_binary_message_closes_with_1003(once: Run) -> None:
    async with listening(calculator()) as url, connect(url) as socket:
        await socket.send(json.dumps(get(1)).encode())
        with pytest.raises(websockets.ConnectionClosedError) as caught:
            await socket.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1003


async def test_a_message_that_is_not_utf8_closes_with_1007(once: Run) -> None:
    async with listening(calculator()) as url, connect(url) as socket:
        await socket.send(b'{"id":1,"type":"\xff"}', text=True)
        with pytest.raises(websockets.ConnectionClosedError) as caught:
            await socket.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1007


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"id":1}', '{"id":1,"type":"x"}', "{}{}"])
async def test_what_is_no_message_is_ignored_and_the_socket_stays(once: Run, text: str) -> None:
    async with listening(calculator()) as url, connect(url) as socket:
        await socket.send(text)
        assert (await ask(socket, get(1)))["id"] == 1


async def test_repeated_ids_count_for_a_connection(once: Run) -> None:
    async with listening(calculator()) as url, connect(url) as one, connect(url) as other:
        for socket in (one, other):
            assert (await ask(socket, get(1)))["id"] == 1
            await socket.send(json.dumps(get(1)))
            assert (await ask(socket, get(2)))["id"] == 2


async def test_a_long_call_is_kept_alive_by_pings() -> None:
    server = LiteServer()
    gate = asyncio.Event()

    @server.tool
    async def waits() -> str:
        await gate.wait()
        return "done"

    options = {"ping_interval": 0.02, "ping_timeout": 0.1}
    async with (
        listening(server, **options) as url,
        LiteClient(WebSocket(url, ping_interval=None)) as client,
    ):
        calling = asyncio.ensure_future(client.call())
        await asyncio.sleep(0.5)  # ten times as long as the server bears silence
        gate.set()
        assert (await calling).text == "done"


async def test_calls_in_flight_are_answered_before_the_server_ends() -> None:
    server = LiteServer()
    began = asyncio.Event()

    @server.tool
    async def waits() -> str:
        began.set()
        await asyncio.sleep(0.05)
        return "done"

    async with listening(server) as url, connect(url) as socket:
        await socket.send(json.dumps(call(1, "waits")))
        await began.wait()
        (connection,) = server.connections
        connection.drain()
        assert content(json.loads(await socket.recv())) == [("text", "done")]
        with pytest.raises(websockets.ConnectionClosedOK) as caught:
            await socket.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1001


# -- our client, a server written from the pages --------------------------------------------------


class OtherServer:
    """A calculator with the `websockets` package and nothing else."""

    def __init__(self) -> None:
        self.headers: list[Any] = []
        self.requests: list[Any] = []

    async def __call__(self, socket: Any) -> None:
        self.headers.append(socket.request.headers)
        async for text in socket:
            assert isinstance(text, str)
            request = json.loads(text)
            self.requests.append(request)
            if request["type"] == "get":
                kind = "info"
                data: Any = {
                    "version": [1, 0, 0],
                    "name": "Calculator",
                    "parameters": [
                        {"name": "a", "type": "number"},
                        {"name": "b", "type": "number"},
                    ],
                }
            else:
                kind = "result"
                values = request["data"]["arguments"]
                if values == ["close", "1"]:
                    await socket.close(1011, "out of numbers")
                    return
                data = {
                    "version": [1, 0, 0],
                    "params": dict(zip("ab", values, strict=True)),
                    "response": {
                        "content": [{"type": "number", "data": str(sum(map(int, values)))}],
                        "error": False,
                    },
                }
            answer = {"version": [1, 0, 0], "id": request["id"], "type": kind, "data": data}
            await socket.send(json.dumps(answer, indent=4))


@contextlib.asynccontextmanager
async def other(handler: Any) -> AsyncIterator[str]:
    async with other_serve(handler, "127.0.0.1", 0) as server:
        (sock,) = server.sockets
        yield f"ws://127.0.0.1:{sock.getsockname()[1]}/tool"


async def test_a_client_says_what_the_pages_say() -> None:
    there = OtherServer()
    async with other(there) as url:
        async with LiteClient(url, token=TOKEN) as client:
            assert (await client.call(2, b=3)).text == "5"
        async with LiteClient(WebSocket(url, token=TOKEN), both_headers=True) as client:
            await client.info()
        async with LiteClient(url, headers={"Authentication": "x", "X-Any": "y"}) as client:
            await client.info()
    first, second, third = there.headers
    assert first["Authorization"] == bearer()
    assert "Authentication" not in first
    assert "Sec-WebSocket-Protocol" not in first
    assert second["Authorization"] == second["Authentication"] == bearer()
    assert (third["Authentication"], third["X-Any"]) == ("x", "y")
    assert "Authorization" not in third
    get_, call_ = there.requests[:2]
    assert get_ == {"version": [1, 0, 0], "id": get_["id"], "type": "get", "data": {}}
    assert call_ == {
        "version": [1, 0, 0],
        "id": call_["id"],
        "type": "call",
        "data": {"version": [1, 0, 0], "tool": "Calculator", "arguments": ["2", "3"]},
    }
    assert 1 <= get_["id"] < 2**31
    assert get_["id"] != call_["id"]


async def test_a_server_that_closes_is_explained_and_connected_to_again() -> None:
    async with other(OtherServer()) as url, LiteClient(url) as client:
        assert (await client.call(1, 2)).text == "3"
        with raises(ConnectionLost):
            await client.call("close", 1)
        assert (await client.call(1, 2)).text == "3"
    async with other(OtherServer()) as url, LiteClient(WebSocket(url, restart=0)) as client:
        for _ in range(2):
            with pytest.raises(ConnectionLost, match="out of numbers"):
                await client.call("close", 1)


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_refused_upgrade_is_told_with_its_status(once: Run, status: int) -> None:
    async def main() -> None:
        def refuse(socket: Any, request: Any) -> Any:
            return socket.respond(status, "no\n")

        async with other_serve(OtherServer(), "127.0.0.1", 0, process_request=refuse) as server:
            (sock,) = server.sockets
            client = LiteClient(f"ws://127.0.0.1:{sock.getsockname()[1]}/?secret=1", token=TOKEN)
            with pytest.raises(UpgradeRefused) as caught:
                await client.open()
            assert caught.value.status == status
            assert TOKEN not in str(caught.value)
            assert "secret" not in str(caught.value)
            await client.close()

    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    try:
        once(main())
    finally:
        logging.getLogger("websockets").setLevel(logging.NOTSET)


async def test_nobody_listens(once: Run) -> None:
    async with other(OtherServer()) as url:
        pass
    client = LiteClient(url)
    with raises(TransportError):
        await client.open()
    await client.close()


# -- both are ours --------------------------------------------------------------------------------


async def test_many_calls_over_one_websocket() -> None:
    async with (
        listening(calculator(), token=TOKEN) as url,
        LiteClient(url, token=TOKEN, both_headers=True) as client,
    ):
        results = await asyncio.gather(*(client.call(i, b=1) for i in range(2000)))
        assert [result.text for result in results] == [str(i + 1) for i in range(2000)]
        big = await client.call("1", "x" * 200_000)
        assert big.error


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
async def test_stream_sockets_have_the_framing_of_stdio(scheme: str, tmp_path: Path) -> None:
    url = f"unix:{tmp_path}/s" if scheme == "unix" else "tcp://127.0.0.1:0"
    async with listening(calculator(), url) as found:
        async with LiteClient(found) as one, LiteClient(Socket(found), strict=True) as two:
            for client in (one, two):
                assert (await client.info()).name == "Calculator"
                assert (await client.call(2, b=3)).text == "5"
        reader, writer = await (
            asyncio.open_unix_connection(f"{tmp_path}/s")
            if scheme == "unix"
            else asyncio.open_connection(*found.removeprefix("tcp://").split(":"))
        )
        writer.write(json.dumps(get(1), indent=2).encode())
        writer.write(b"\r\n\r\n\r\n")
        answer = await reader.readuntil(b"\n\n\n")
        assert json.loads(answer)["type"] == "info"
        writer.write(json.dumps(call(2, "Calculator", ["1", "1"])).encode())
        writer.write_eof()
        answer = await reader.read()
        assert answer.endswith(b"}\n\n\n")
        assert content(json.loads(answer)) == [("number", "2")]
        writer.close()
        await writer.wait_closed()


async def test_a_server_serves_itself() -> None:
    server = calculator()
    ready = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(
        server.serve("ws://127.0.0.1:0/calc", on_listening=ready.set_result)
    )
    (url,) = await ready
    assert url.endswith("/calc")
    async with LiteClient(url) as client:
        assert (await client.call(1, 1)).text == "2"
    task.cancel()
    await asyncio.wait((task,))


async def test_servers_without_tools_are_not_served(once: Run) -> None:
    with raises(ValueError):
        await serve("ws://127.0.0.1:0", {"/a": calculator(), "/b": LiteServer("b")})


def test_credentials_are_for_http_and_websocket() -> None:
    for target in (calculator(), "unix:/x", Socket("tcp://127.0.0.1:1")):
        for options in ({"token": "x"}, {"headers": {"a": "b"}}, {"both_headers": True}):
            with raises(ValueError):
                LiteClient(target, **options)  # type: ignore[arg-type]
    with raises(ValueError):
        LiteClient("ws://127.0.0.1/", both_headers=True)
    with raises(ValueError):
        LiteClient("ws://127.0.0.1/", token="x", both_headers=True, headers={"authentication": "y"})
    for nothing in (5, "ftp://127.0.0.1/", wirespeed.Server("mcp")):
        with pytest.raises((TypeError, ValueError)):
            LiteClient(nothing)  # type: ignore[arg-type]
    assert TOKEN not in repr(LiteClient("ws://127.0.0.1/", token=TOKEN, both_headers=True))
