"""A service of another SDK at our URLs: Streamable HTTP of both eras, streams, the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import websockets
from lab import asgi
from lab.http import BOTH, FOREVER, LEGACY, MODERN, call, serving
from lab.rows import every

from wirespeed import HttpOptions, ListenOptions, MemoryEventStore, serve
from wirespeed.core import Message, Session
from wirespeed.errors import ProtocolError
from wirespeed.peer import HttpService, McpExchange, SessionConnection
from wirespeed.transport import Peer as Client
from wirespeed.transport import TaskPool
from wirespeed.types import AsgiApp

pytestmark = pytest.mark.off_schema
logger = logging.getLogger("foreign")


class Foreign(SessionConnection):
    """A connection of an SDK that knows how to answer, and leaves the rest to its base."""

    def __init__(self, service: ForeignService, loop: Any, pool: TaskPool, framer: Any) -> None:
        session = Session(limits=service.limits, framer=framer)
        super().__init__(session, service, loop, logger)
        self.pool = pool

    def take(self, message: Message) -> None:
        if message.kind == "request":
            method: Any = getattr(self, f"on_{message.method}".replace("/", "_"), None)
            if method is None:
                raise ProtocolError(-32601, f"Method not found: {message.method}")
            params = {} if message.params is None else json.loads(bytes(message.params))
            self.run(message, method(message, params), self.pool)
        elif message.kind == "notification":
            self.service.heard.append(message.method)

    async def on_initialize(self, message: Message, params: Any) -> bytes:
        version = params["protocolVersion"]
        self.agree(version)
        return json.dumps({"protocolVersion": version, "capabilities": {}}).encode()

    async def on_tools_call(self, message: Message, params: Any) -> bytes:
        self.service.begun.append(params["name"])
        try:
            return await getattr(self, params["name"])(message, params.get("arguments", {}))
        finally:
            self.service.ended.append(params["name"])

    async def sum(self, message: Message, args: Any) -> bytes:
        return b'{"sum":%d}' % (args["a"] + args["b"])

    async def who(self, message: Message, args: Any) -> bytes:
        route, client = self.route_of(message), self.peer_of(message)
        assert route is None or isinstance(route, McpExchange)
        return json.dumps(
            {
                "session": self.session_id,
                "version": None if self.revision is None else self.revision.version,
                "shared": self.shared,
                "agent": client.headers.get("user-agent"),
                "address": isinstance(client, Client) or client.address,
            }
        ).encode()

    async def talk(self, message: Message, args: Any) -> bytes:
        for i in range(args["n"]):
            params = b'{"progressToken":1,"progress":%d}' % i
            self.session.send_notification("notifications/progress", params, about=message)
            self.wrote()
            await self.service.gate.wait()
        return b'{"said":%d}' % args["n"]

    async def rest(self, message: Message, args: Any) -> bytes:
        """Close the stream for a while."""
        route = self.route_of(message)
        self.service.paused = route.pause(0.01)
        await self.service.gate.wait()
        return b'{"rested":true}'

    async def wait(self, message: Message, args: Any) -> bytes:
        try:
            await self.service.gate.wait()
        except asyncio.CancelledError:
            for _ in range(5):
                await asyncio.sleep(0)  # it unwinds
            raise
        return b'{"waited":true}'

    async def stubborn(self, message: Message, args: Any) -> bytes:
        while not self.service.gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.service.gate.wait()
        return b"{}"

    async def refuse(self, message: Message, args: Any) -> bytes:
        raise ProtocolError(-32602, "no", {"a": 1})

    async def fail(self, message: Message, args: Any) -> bytes:
        raise RuntimeError("a fault")

    async def nothing(self, message: Message, args: Any) -> Any:
        return None  # not JSON text

    async def large(self, message: Message, args: Any) -> bytes:
        return b'{"text":"%b"}' % (b"x" * 500_000)


class ForeignService(HttpService):
    """A service whose connections are `Foreign`."""

    def __init__(self, **attributes: Any) -> None:
        self.gate = asyncio.Event()
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.heard: list[str | None] = []
        self.held: list[str] = []
        self.connections: list[Foreign] = []
        self.paused = False
        for name, value in attributes.items():
            setattr(self, name, value)

    async def hold(self) -> str:
        self.held.append("hold")
        return "held"

    async def release(self, held: str, /) -> None:
        self.held.append(f"release {held}")

    def connect(
        self, make_link: Any, *, loop: Any, pool: Any, framer: Any = None, lane: bool = False
    ) -> Foreign:
        connection = Foreign(self, loop, pool, framer)
        make_link(connection)
        self.connections.append(connection)
        return connection

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(FOREVER):
            while not condition():
                await asyncio.sleep(0.002)


SUM = {"name": "sum", "arguments": {"a": 1, "b": 2}}


async def test_a_session_from_its_handshake_to_its_end() -> None:
    service = ForeignService()
    async with serving(service) as place:
        assert service.held == ["hold"]
        peer = await place.connect()
        opened = await peer.initialize()
        assert opened.json["result"]["protocolVersion"] == LEGACY
        session = opened.headers["mcp-session-id"]
        assert service.heard == ["notifications/initialized"]
        answer = await peer.ask(body=call("sum", SUM["arguments"]), mcp_session_id=session)
        assert (answer.status, answer.json["result"]) == (200, {"sum": 3})
        seen = await peer.ask(body=call("who"), mcp_session_id=session, user_agent="t")
        assert seen.json["result"] == {
            "session": session, "version": LEGACY, "shared": False, "agent": "t",
            "address": seen.json["result"]["address"],
        }  # fmt: skip
        assert (await peer.ask(body=call("sum"))).status == 400
        assert (await peer.ask("DELETE", mcp_session_id=session)).status == 204
        assert (await peer.ask(body=call("sum"), mcp_session_id=session)).status == 404
    assert service.held == ["hold", "release held"]
    assert [one.closed.done() for one in service.connections] == [True]


async def test_requests_without_a_session_share_lanes() -> None:
    service = ForeignService()
    async with serving(service) as place:
        peer = await place.connect()
        for _ in range(3):
            answer = await peer.modern("tools/call", SUM)
            assert (answer.status, answer.json["result"]) == (200, {"sum": 3})
            assert "mcp-session-id" not in answer.headers
        seen = await peer.modern("tools/call", {"name": "who"})
        found = seen.json["result"]
        assert (found["session"], found["version"], found["shared"]) == (None, None, True)
        assert len(service.connections) == 1


@every(
    "method, params, fields, status, code",
    [
        ("tools/call", SUM, {"mcp_name": "other"}, 400, -32020),
        ("tools/call", SUM, {"mcp_method": None}, 400, -32020),
        ("none", {}, {}, 404, -32601),
        ("tools/call", {"name": "refuse"}, {}, 200, -32602),
        ("tools/call", {"name": "fail"}, {}, 200, -32603),
        ("tools/call", {"name": "nothing"}, {}, 200, -32603),
    ],
)
async def test_errors_have_their_statuses(
    method: str, params: Any, fields: Any, status: int, code: int
) -> None:
    async with serving(ForeignService()) as place:
        peer = await place.connect()
        answer = await peer.modern(method, params, **fields)
        assert (answer.status, answer.json["error"]["code"]) == (status, code)
        assert answer.json["id"] == 1
        assert "a fault" not in answer.body.decode()


async def test_a_response_to_a_lane_is_refused() -> None:
    async with serving(ForeignService()) as place:
        peer = await place.connect()
        body = b'{"jsonrpc":"2.0","id":1,"result":{}}'
        answer = await peer.ask(body=body, mcp_protocol_version=MODERN)
        assert answer.status == 400


async def test_what_is_said_about_a_request_makes_a_stream() -> None:
    service = ForeignService()
    async with serving(service) as place:
        peer, session = await place.session()
        talk = call("talk", {"n": 2})
        peer.send(body=talk, mcp_session_id=session)
        response = await peer.head()
        assert response.is_stream
        first = await peer.until(response, 1)
        assert first[0]["params"]["progress"] == 0
        service.gate.set()
        while await peer.more(response):
            pass
        assert [one.get("result") for one in response.messages] == [None, None, {"said": 2}]


async def test_what_is_said_of_its_own_accord_is_on_the_get_stream() -> None:
    service = ForeignService()
    async with serving(service) as place:
        peer, session = await place.session()
        peer.send("GET", mcp_session_id=session, accept="text/event-stream")
        response = await peer.head()
        service.connections[0].session.send_notification("notifications/tools/list_changed")
        service.connections[0].wrote()
        (found,) = await peer.until(response, 1)
        assert found["method"] == "notifications/tools/list_changed"


async def test_a_stream_is_resumed() -> None:
    service = ForeignService()
    async with serving(service, http=HttpOptions(event_store=MemoryEventStore())) as place:
        peer, session = await place.session()
        peer.send(body=call("talk", {"n": 2}), mcp_session_id=session)
        response = await peer.head()
        await peer.until(response, 1)
        last = [event["id"] for event in response.events if event.get("data")][-1]
        peer.close()
        service.gate.set()
        other = await place.connect()
        rest = await other.ask("GET", mcp_session_id=session, accept=BOTH, last_event_id=last)
        assert [one.get("result") for one in rest.messages] == [None, {"said": 2}]


async def test_a_client_polls_a_stream_that_the_handler_has_closed() -> None:
    service = ForeignService()
    async with serving(service, http=HttpOptions(event_store=MemoryEventStore())) as place:
        peer, session = await place.session()
        closed = await peer.ask(body=call("rest"), mcp_session_id=session)
        assert closed.is_stream and service.paused
        last = closed.events[-1].get("id") or closed.events[0]["id"]
        service.gate.set()
        rest = await peer.ask("GET", mcp_session_id=session, accept=BOTH, last_event_id=last)
        assert rest.messages[-1]["result"] == {"rested": True}


async def test_leaving_cancels_a_request_without_a_session() -> None:
    service = ForeignService()
    async with serving(service) as place:
        peer = await place.connect()
        peer.send_modern("tools/call", {"name": "wait"})
        await service.until(lambda: service.begun)
        peer.close()
        await service.until(lambda: service.ended == ["wait"])


async def test_without_sessions_older_revisions_are_served_too() -> None:
    async with serving(ForeignService(), http=HttpOptions(stateless=True)) as place:
        peer = await place.connect()
        answer = await peer.ask(body=call("who"), mcp_protocol_version=LEGACY)
        found = answer.json["result"]
        assert (found["session"], found["version"], found["shared"]) == (None, LEGACY, True)


async def test_an_era_is_switched_off() -> None:
    service = ForeignService(legacy_versions=())
    assert not service.has_sessions
    async with serving(service) as place:
        peer = await place.connect()
        assert (await peer.ask("GET")).status == 405
        assert (await peer.modern("tools/call", SUM)).json["result"] == {"sum": 3}


async def test_clients_of_2024_11_05_use_their_own_path() -> None:
    async with serving(ForeignService(), http=HttpOptions(sse_path="/sse")) as place:
        peer, other = await place.connect(), await place.connect()
        peer.send("GET", "/sse", accept="text/event-stream")
        stream = await peer.head()
        while not stream.events:
            assert await peer.more(stream)
        path = "/" + stream.events[0]["data"].lstrip("/")
        assert (await other.ask(path=path, body=call("sum", SUM["arguments"]))).status == 202
        while len(stream.events) < 2:
            assert await peer.more(stream)
        assert json.loads(stream.events[1]["data"])["result"] == {"sum": 3}


async def test_another_http_server_has_it_as_an_application() -> None:
    service = ForeignService()
    app = AsgiApp(service, "/mcp", ListenOptions(hosts=["*"]))
    async with app.lifespan():
        request = await asgi.call(app, "sum", SUM["arguments"]).whole()
        assert request.json["result"] == {"sum": 3}
    assert service.held == ["hold", "release held"]


def test_a_service_without_connect_cannot_be_made() -> None:
    class Incomplete(HttpService):
        pass

    with pytest.raises(TypeError):
        Incomplete()  # type: ignore[abstract]


# -- on a stream -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def stream(
    service: ForeignService, folder: Path, **options: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Task[None]]]:
    """A client of the service at a UNIX socket, and the task that serves."""
    path = folder / "s"
    listens: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve(f"unix:{path}", service, on_listening=listens.set_result, **options)
    )
    await asyncio.wait([task, listens], return_when=asyncio.FIRST_COMPLETED)
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 24)
    try:
        yield reader, writer, task
    finally:
        writer.close()
        task.cancel()
        await asyncio.wait([task])


async def answers(reader: asyncio.StreamReader, n: int) -> dict[Any, Any]:
    async with asyncio.timeout(FOREVER):
        lines = [json.loads(await reader.readline()) for _ in range(n)]
    return {one["id"]: one for one in lines}


CANCEL = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n'


async def test_a_request_behind_a_cancellation_starts_after_the_cancelled_handler(
    tmp_path: Path,
) -> None:
    service = ForeignService()
    async with stream(service, tmp_path) as (reader, writer, _):
        writer.write(call("wait") + b"\n")
        await service.until(lambda: service.begun == ["wait"])
        writer.write(CANCEL + call("sum", SUM["arguments"], 2) + b"\n")
        assert (await answers(reader, 1))[2]["result"] == {"sum": 3}
        # "sum" began when "wait" had ended
        assert (service.begun, service.ended) == (["wait", "sum"], ["wait", "sum"])
        assert service.heard == ["notifications/cancelled"]


async def test_a_handler_that_ignores_its_cancellation_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    service = ForeignService()
    async with stream(service, tmp_path) as (reader, writer, _):
        writer.write(call("stubborn") + b"\n")
        await service.until(lambda: service.begun)
        writer.write(CANCEL + call("sum", SUM["arguments"], 2) + b"\n")
        assert (await answers(reader, 1))[2]["result"] == {"sum": 3}
        assert service.ended == ["sum"]
        service.gate.set()
        await service.until(lambda: service.ended == ["sum", "stubborn"])
        writer.write(call("sum", SUM["arguments"], 1) + b"\n")  # the id is free
        assert (await answers(reader, 1))[1]["result"] == {"sum": 3}


async def test_a_drain_answers_refuses_and_ends_when_idle(tmp_path: Path) -> None:
    service = ForeignService()
    async with stream(service, tmp_path) as (reader, writer, _):
        writer.write(call("wait") + b"\n")
        await service.until(lambda: service.begun)
        (connection,) = service.connections
        connection.drain()
        assert connection.draining and not connection.closed.done()
        writer.write(call("sum", SUM["arguments"], 2) + b"\n")
        assert (await answers(reader, 1))[2]["error"]["code"] == -31001
        service.gate.set()
        assert (await answers(reader, 1))[1]["result"] == {"waited": True}
        async with asyncio.timeout(FOREVER):
            assert await reader.read() == b""
            assert await connection.closed is None


async def test_after_the_grace_time_handlers_are_cut_off(tmp_path: Path) -> None:
    service = ForeignService(shutdown_grace=0.01)
    async with stream(service, tmp_path) as (reader, writer, _):
        writer.write(call("wait") + b"\n" + call("stubborn", id=2) + b"\n")
        await service.until(lambda: len(service.begun) == 2)
        service.connections[0].drain()
        found = await answers(reader, 2)
        assert found[1]["error"]["code"] == -31006
        assert found[2]["error"]["code"] in (-31001, -31006)
        async with asyncio.timeout(FOREVER):
            assert await reader.read() == b""
        service.gate.set()


async def test_queued_answers_leave_when_the_grace_time_is_over(tmp_path: Path) -> None:
    service = ForeignService(shutdown_grace=0.01)
    async with stream(service, tmp_path) as (reader, writer, _):
        writer.write(b"".join(call("large", id=i) + b"\n" for i in range(8)))
        await service.until(lambda: len(service.ended) == 8)
        service.connections[0].drain()
        await asyncio.sleep(0.4)  # the client reads nothing
        found = await answers(reader, 8)
        assert all(len(one["result"]["text"]) == 500_000 for one in found.values())
        async with asyncio.timeout(FOREVER):
            assert await reader.read() == b""


async def test_a_service_is_served_over_websocket_too() -> None:
    service = ForeignService()
    async with serving(service) as place:
        url = place.url.replace("http:", "ws:")
        async with websockets.connect(url, subprotocols=["mcp"]) as socket:  # type: ignore[list-item]
            await socket.send(call("sum", SUM["arguments"]).decode())
            async with asyncio.timeout(FOREVER):
                assert json.loads(await socket.recv())["result"] == {"sum": 3}
