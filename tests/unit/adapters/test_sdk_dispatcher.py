"""The dispatcher of the official SDK on a session, with stand-ins for what it takes of the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Self

import pytest
from lab.raw import cancel, encode, notification, request

from wirespeed.adapters.mcp import dispatcher as dispatching
from wirespeed.adapters.mcp.dispatcher import SdkDispatcher
from wirespeed.limits import Limits
from wirespeed.transport import FdLink

MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


class SdkError(Exception):
    """Stands for `mcp.shared.exceptions.MCPError`."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code, self.message, self.data = code, message, data


class NoBackChannel(SdkError):
    def __init__(self, method: str) -> None:
        super().__init__(-32600, f"no way back for {method}")


def error_data(exc: BaseException) -> SdkError | None:
    return exc if isinstance(exc, SdkError) else None


def intercepted(intercept: Any, method: str, params: Any) -> bool:
    return bool(intercept(method, params))


def to_json(value: Any, **options: Any) -> bytes:
    return json.dumps(value, default=str).encode()


@pytest.fixture(autouse=True)
def stand_ins() -> Iterator[None]:
    dispatching.use_sdk(
        mcp_error=SdkError,
        no_back_channel=NoBackChannel,
        handler_error_data=error_data,
        run_notify_intercept=intercepted,
        from_json=json.loads,
        to_json=to_json,
        event=asyncio.Event,
        shielded=lambda task: False,
        traced=lambda: False,
        traced_request=None,
    )
    yield


class Ends:
    """A dispatcher, and the raw end of the peer. What handlers were asked is in ``seen``."""

    def __init__(self, role: str = "server", **attributes: Any) -> None:
        self.role = role
        self.attributes = attributes
        self.seen: list[tuple[str, Any]] = []
        self.service = SimpleNamespace(limits=Limits(), shutdown_grace=5.0)
        self.buffer = b""

    async def __aenter__(self) -> Self:
        ours, self.peer = socket.socketpair()
        self.sockets = (ours, self.peer)
        for sock in self.sockets:
            sock.setblocking(False)
        loop = self.loop = asyncio.get_running_loop()
        self.dispatcher = SdkDispatcher(
            self.service,
            loop,
            role=self.role,
            make_link=lambda end: FdLink(loop, end, ours.fileno(), ours.fileno()),
        )
        for name, value in self.attributes.items():
            setattr(self.dispatcher, name, value)
        started = loop.create_future()
        status = SimpleNamespace(started=lambda: started.set_result(None))
        self.running = loop.create_task(self.serve(status))
        await asyncio.wait((started, self.running), return_when=asyncio.FIRST_COMPLETED)
        return self

    async def serve(self, status: Any) -> None:
        await self.dispatcher.run(self.on_request, self.on_notify, task_status=status)

    async def __aexit__(self, *exc: object) -> None:
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self.running
        for sock in self.sockets:
            sock.close()

    async def on_request(self, context: Any, method: str, params: Any) -> dict[str, Any]:
        self.seen.append((method, params))
        return dict(await getattr(self, method)(context, params=params) or {})

    async def on_notify(self, context: Any, method: str, params: Any) -> None:
        self.seen.append((method, params))

    # -- handlers ----------------------------------------------------------------------------

    async def echo(self, context: Any, params: Any) -> Any:
        return {"id": context.request_id, "params": params}

    async def later(self, context: Any, params: Any) -> Any:
        await asyncio.sleep(0)
        return {"later": True}

    async def stuck(self, context: Any, params: Any) -> Any:
        try:
            await asyncio.sleep(60)
        finally:
            self.seen.append(("cancelled", context.cancel_requested.is_set()))

    async def stubborn(self, context: Any, params: Any) -> Any:
        caught = 0
        while caught < 3:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                caught += 1
        self.seen.append(("caught", caught))

    async def fails(self, context: Any, params: Any) -> Any:
        raise SdkError(-32602, "no such thing", {"why": [1]})

    async def breaks(self, context: Any, params: Any) -> Any:
        raise KeyError("lost")

    async def unwritable(self, context: Any, params: Any) -> Any:
        circle: list[Any] = []
        circle.append(circle)
        raise SdkError(params["code"], "no", circle)

    async def unnameable(self, context: Any, params: Any) -> Any:
        class Unnameable(Exception):
            def __str__(self) -> str:
                raise ValueError

        raise Unnameable

    async def reports(self, context: Any, params: Any) -> Any:
        await context.progress(1, 2, "half")
        await context.notify("notifications/message", {"level": "info"})
        return {}

    async def asks(self, context: Any, params: Any) -> Any:
        return await context.send_raw_request("ping", None, params)

    async def odd(self, context: Any, params: Any) -> Any:
        return {"set": {1, 2}}

    async def initialize(self, context: Any, params: Any) -> Any:
        await asyncio.sleep(0.01)
        self.seen.append(("initialized", None))
        return {"protocolVersion": "2025-11-25"}

    # -- the peer ----------------------------------------------------------------------------

    async def send(self, *messages: Any) -> None:
        await self.loop.sock_sendall(self.peer, b"".join(map(encode, messages)))

    async def receive(self) -> Any:
        while b"\n" not in self.buffer:
            data = await self.loop.sock_recv(self.peer, 65536)
            if not data:
                return None
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    async def ask(self, *messages: Any) -> Any:
        await self.send(*messages)
        return await self.receive()


# -- requests ------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [1, "1", 2**70, "sub/1", -3])
async def test_ids_come_back_as_they_came(id: Any) -> None:
    async with Ends() as ends:
        answer = await ends.ask(request(id, "echo", {"big": 2**70}))
    assert answer == {"jsonrpc": "2.0", "id": id, "result": {"id": id, "params": {"big": 2**70}}}


async def test_params_may_be_absent_or_null_but_no_array() -> None:
    async with Ends() as ends:
        for params in (b"", b',"params":null'):
            text = b'{"jsonrpc":"2.0","id":1,"method":"echo"%b}\n' % params
            assert (await ends.ask(text))["result"]["params"] is None
        refused = await ends.ask(b'{"jsonrpc":"2.0","id":2,"method":"echo","params":[1]}\n')
        assert refused["error"]["code"] == -32600


async def test_errors_of_handlers() -> None:
    async with Ends() as ends:
        known = await ends.ask(request(1, "fails"))
        assert known["error"] == {
            "code": -32602,
            "message": "no such thing",
            "data": {"why": [1]},
        }
        unknown = await ends.ask(request(2, "breaks"))
        assert unknown["error"] == {"code": 0, "message": "'lost'"}


@pytest.mark.parametrize("code", [7, -32602, 2**40])
async def test_error_data_that_cannot_be_encoded_is_left_out(code: int) -> None:
    async with Ends() as ends:
        answer = await asyncio.wait_for(ends.ask(request(1, "unwritable", {"code": code})), 5)
        assert answer["error"] == {"code": code, "message": "no"}


async def test_an_exception_without_a_text_is_answered() -> None:
    async with Ends() as ends:
        answer = await asyncio.wait_for(ends.ask(request(1, "unnameable")), 5)
        assert answer["error"] == {"code": 0, "message": "Unnameable"}


async def test_an_exception_ends_the_connection_where_it_is_to_be_raised() -> None:
    async with Ends(raises=True) as ends:
        assert (await ends.ask(request(1, "breaks")))["error"]["code"] == 0
        with pytest.raises(KeyError):
            await ends.running


async def test_what_orjson_refuses_is_encoded_as_the_sdk_does() -> None:
    async with Ends() as ends:
        assert (await ends.ask(request(1, "odd")))["result"] == {"set": "{1, 2}"}


async def test_a_second_request_with_the_id_of_one_in_flight_is_refused() -> None:
    async with Ends() as ends:
        refused = await ends.ask(request(1, "stuck"), request(1, "echo"))
        assert (refused["id"], refused["error"]["code"]) == (1, -32600)


async def test_requests_behind_initialize_wait_for_its_end() -> None:
    async with Ends(parks=True) as ends:
        first = await ends.ask(request(1, "initialize"), request(2, "echo"))
        assert first["id"] == 1
        assert (await ends.receive())["id"] == 2
        assert [name for name, _ in ends.seen] == ["initialize", "initialized", "echo"]


async def test_an_envelope_is_known_by_its_text() -> None:
    seen: list[bytes | None] = []

    class Modern(Ends):
        async def serve(self, status: Any) -> None:
            self.dispatcher.serve(self.on_request, self.on_notify, self.on_modern, self.on_notify)
            await self.dispatcher.serve_until_closed(status)

        async def on_modern(self, context: Any, method: str, params: Any) -> dict[str, Any]:
            assert context.modern and not context.is_routed
            seen.append(context.envelope)
            return {}

    text = json.dumps(MODERN).encode()
    again = text.replace(b"protocolVersion", b"protocol\\u0056ersion")
    more = text[:-1] + b',"progressToken":1}'
    long = text[:-1] + b',"x":"%b"}' % (b"a" * 2048)
    async with Modern() as ends:
        for number, meta in enumerate([b"%b", b'%b,"_meta":{}', b'%b,"\\u005fmeta":{}']):
            params = meta % (b'"_meta":' + text)
            answer = await ends.ask(
                b'{"jsonrpc":"2.0","id":%d,"method":"m","params":{%b}}\n' % (number, params)
            )
            assert ("error" in answer) == (number > 0)
        for number, meta in enumerate([again, more, long, text]):
            await ends.ask(
                b'{"jsonrpc":"2.0","id":%d,"method":"m","params":{"_meta":%b}}\n' % (number, meta)
            )
    assert seen == [text, again, None, None, text]


# -- cancellation ----------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "named"), [(1, 1), ("a", "a"), (7, "7"), ("7", 7)])
async def test_a_cancelled_request_ends_without_an_answer(asked: Any, named: Any) -> None:
    async with Ends() as ends:
        answer = await ends.ask(request(asked, "stuck"), cancel(named), request("next", "echo"))
        assert answer["id"] == "next"
        seen = [name for name, _ in ends.seen]
        assert ("cancelled", True) in ends.seen
        assert seen.index("cancelled") < seen.index("echo")
        assert not ends.dispatcher.session.counters["requests_in_flight"]


async def test_a_cancellation_lasts() -> None:
    async with Ends() as ends:
        await ends.send(request(1, "stubborn"), cancel(1))
        assert (await ends.ask(request(2, "echo")))["id"] == 2
        while ("caught", 3) not in ends.seen:
            await asyncio.sleep(0.001)


async def test_a_cancellation_that_only_signals_drops_the_answer() -> None:
    async with Ends(interrupts=False) as ends:
        answer = await ends.ask(request(1, "later"), cancel(1), request(2, "echo"))
        assert answer["id"] == 2


# -- notifications, progress ---------------------------------------------------------------------


async def test_progress_and_notifications_come_before_the_answer() -> None:
    async with Ends() as ends:
        progress = await ends.ask(request(1, "reports", progressToken="t"))
        assert progress["params"] == {
            "progressToken": "t",
            "progress": 1,
            "total": 2,
            "message": "half",
        }
        assert (await ends.receive())["method"] == "notifications/message"
        assert (await ends.receive())["id"] == 1
        assert (await ends.ask(request(2, "reports")))["method"] == "notifications/message"


async def test_notifications_are_seen_in_order_and_by_the_intercept_first() -> None:
    taken: list[str] = []

    def intercept(method: str, params: Any) -> bool:
        taken.append(method)
        return method == "b"

    class Intercepting(Ends):
        async def serve(self, status: Any) -> None:
            await self.dispatcher.run(
                self.on_request, self.on_notify, intercept, task_status=status
            )

    async with Intercepting() as ends:
        await ends.ask(*map(notification, "abc"), request(1, "echo"))
        assert taken == ["a", "b", "c"]
        assert [name for name, _ in ends.seen] == ["a", "c", "echo"]


# -- requests of ours --------------------------------------------------------------------------


async def test_ids_of_ours_count_from_one_unless_the_caller_chooses() -> None:
    async with Ends("client") as ends:
        calls = [
            asyncio.ensure_future(ends.dispatcher.send_raw_request("m", params, opts))
            for params, opts in [(None, None), ({"a": 1}, {"request_id": "x"}), ({}, {})]
        ]
        asked = [await ends.receive() for _ in calls]
        assert asked == [
            {"jsonrpc": "2.0", "id": 1, "method": "m"},
            {"jsonrpc": "2.0", "id": "x", "method": "m", "params": {"a": 1}},
            {"jsonrpc": "2.0", "id": 2, "method": "m"},
        ]
        with pytest.raises(ValueError, match="already in flight"):
            await ends.dispatcher.send_raw_request("m", None, {"request_id": "x"})
        for message in reversed(asked):
            await ends.send(
                {"jsonrpc": "2.0", "id": message["id"], "result": {"to": message["id"]}}
            )
        assert [await call for call in calls] == [{"to": 1}, {"to": "x"}, {"to": 2}]


async def test_answers_that_are_errors_or_no_answers() -> None:
    async with Ends("client") as ends:
        for number, (body, code) in enumerate(
            [
                (b'"error":{"code":-5,"message":"no","data":1}', -5),
                (b'"error":{"message":"no"}', -32603),
                (b'"result":[1]', -32603),
            ],
            1,
        ):
            call = asyncio.ensure_future(ends.dispatcher.send_raw_request("m", None))
            await ends.receive()
            await ends.send(b'{"jsonrpc":"2.0","id":%d,%b}\n' % (number, body))
            with pytest.raises(SdkError) as caught:
                await call
            assert caught.value.code == code


async def test_a_request_that_nobody_waits_for_is_cancelled() -> None:
    async with Ends("client") as ends:
        with pytest.raises(SdkError) as caught:
            await ends.dispatcher.send_raw_request("m", None, {"timeout": 0.01})
        assert caught.value.code == -32001
        await ends.receive()
        assert (await ends.receive())["params"] == {
            "requestId": 1,
            "reason": "timed out after 0.01s",
        }
        call = asyncio.ensure_future(
            ends.dispatcher.send_raw_request("m", None, {"cancel_on_abandon": False})
        )
        await ends.receive()
        call.cancel()
        await asyncio.wait((call,))
        await ends.dispatcher.notify("last", None)
        assert (await ends.receive())["method"] == "last"


async def test_progress_of_a_request_reaches_its_callback_before_the_result() -> None:
    told: list[Any] = []

    async def on_progress(*values: Any) -> None:
        told.append(values)

    async with Ends("client") as ends:
        call = asyncio.ensure_future(
            ends.dispatcher.send_raw_request("m", None, {"on_progress": on_progress})
        )
        asked = await ends.receive()
        assert asked["params"] == {"_meta": {"progressToken": 1}}
        progress = {"progressToken": "1", "progress": 1, "total": 3}
        await ends.send(
            notification("notifications/progress", progress),
            {"jsonrpc": "2.0", "id": 1, "result": {}},
        )
        assert await call == {}
        assert told == [(1.0, 3.0, None)]


async def test_a_handler_asks_its_client() -> None:
    async with Ends() as ends:
        asked = await ends.ask(request("a", "asks"))
        assert asked == {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        answer = await ends.ask({"jsonrpc": "2.0", "id": 1, "result": {"pong": True}})
        assert answer == {"jsonrpc": "2.0", "id": "a", "result": {"pong": True}}
        ends.dispatcher.asks = False
        assert (await ends.ask(request("b", "asks")))["error"]["code"] == -32600


# -- the end -------------------------------------------------------------------------------------


async def test_the_end_of_the_input_cancels_what_runs() -> None:
    async with Ends() as ends:
        await ends.send(request(1, "stuck"))
        ends.peer.shutdown(socket.SHUT_WR)
        answer = await ends.receive()
        assert answer["error"] == {"code": -32000, "message": "Connection closed"}
        await ends.running


async def test_the_end_of_the_input_waits_for_what_runs_where_it_is_to_drain() -> None:
    async with Ends(drains_at_eof=True) as ends:
        await ends.send(request(1, "later"))
        ends.peer.shutdown(socket.SHUT_WR)
        assert (await ends.receive())["result"] == {"later": True}
        await ends.running


async def test_a_drain_refuses_further_requests() -> None:
    async with Ends() as ends:
        await ends.send(request(1, "asks"))
        await ends.receive()
        ends.dispatcher.drain()
        refused = await ends.ask(request(2, "echo"))
        assert (refused["id"], refused["error"]["code"]) == (2, -32000)
        answer = await ends.ask({"jsonrpc": "2.0", "id": 1, "result": {}})
        assert answer["id"] == 1
        await ends.running


async def test_what_was_asked_fails_when_the_peer_is_gone() -> None:
    async with Ends("client") as ends:
        call = asyncio.ensure_future(ends.dispatcher.send_raw_request("m", None))
        await ends.receive()
        assert not ends.dispatcher._closed
        ends.peer.close()
        with pytest.raises(SdkError) as caught:
            await call
        assert ends.dispatcher._closed
        assert (caught.value.code, caught.value.message) == (-32000, "Connection closed")
        with pytest.raises(SdkError):
            await ends.dispatcher.send_raw_request("m", None)
        await ends.dispatcher.notify("m", None)


async def test_what_waited_for_room_at_the_end_is_not_sent() -> None:
    async with Ends("client") as ends:
        await ends.dispatcher.notify("note", {"text": "x" * 3_000_000})
        waiting = ends.loop.create_task(ends.dispatcher.send_raw_request("ping", None))
        await asyncio.sleep(0)
        ends.dispatcher.stop()
        assert (await ends.receive())["method"] == "note"  # now there is room
        with pytest.raises(SdkError, match="Connection closed"):
            await asyncio.wait_for(waiting, 5)


async def test_nothing_can_be_asked_before_the_start() -> None:
    end = SdkDispatcher(None, asyncio.get_running_loop(), role="client")
    with pytest.raises(RuntimeError, match="before run"):
        await end.send_raw_request("m", None)


# -- eras ----------------------------------------------------------------------------------------


class InEras(Ends):
    """A server that tells the eras apart."""

    async def serve(self, status: Any) -> None:
        def handler(era: str) -> Any:
            async def handle(context: Any, method: str, params: Any) -> dict[str, Any]:
                self.seen.append((era, method))
                return {"era": era, "asks": context.can_send_request}

            return handle

        self.dispatcher.serve(
            handler("legacy"),
            handler("legacy note"),
            handler("modern"),
            handler("modern note"),
            handler("stateless"),
        )
        await self.dispatcher.serve_until_closed(status)


async def test_the_first_request_decides_the_era() -> None:
    async with InEras() as ends:
        early = [notification("early") for _ in range(10)]
        answer = await ends.ask(*early, request(1, "tools/call", {"name": "a"}, **MODERN))
        assert answer["result"] == {"era": "modern", "asks": False}
        assert ends.seen == [("modern note", "early")] * 8 + [("modern", "tools/call")]
        answer = await ends.ask(request(2, "initialize"))
        assert answer["result"]["era"] == "modern"  # which refuses it


async def test_a_connection_with_a_handshake_refuses_the_other_era() -> None:
    async with InEras() as ends:
        answer = await ends.ask(notification("early"), request(1, "initialize", **MODERN))
        assert answer["result"] == {"era": "legacy", "asks": True}
        assert ends.seen == [("legacy note", "early"), ("legacy", "initialize")]
        refused = await ends.ask(request(2, "tools/list", **MODERN))
        assert refused["error"]["code"] == -32600
