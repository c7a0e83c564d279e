"""Middleware around inbound requests: what it sees, what it may answer, and how it can end."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from lab.questions import Asked, enter, reply
from lab.raw import META, call, cancel, modern, notification, request
from lab.server import MODERN, pass_on, text_of, tool_call
from lab.wording import raises

from wirespeed import Context, Server
from wirespeed.errors import ProtocolError
from wirespeed.limits import Limits
from wirespeed.server.middleware.inbound import InboundRequest, Reply
from wirespeed.types import ServerRequest

pytestmark = pytest.mark.compiled

INFO = META + "serverInfo"
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def asks(id: Any, method: str, version: str) -> dict[str, Any]:
    return (modern if version == MODERN else request)(id, method)


async def quit() -> str:
    """A tool that cancels its own task."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return "never"


async def ask_first(ctx: Context) -> str:
    """A tool that asks."""
    return (await ctx.elicit("Sure?", None)).action


@pytest.fixture
def seen(server: Server) -> list[tuple[Any, ...]]:
    """What a middleware that only looks has seen."""
    seen: list[tuple[Any, ...]] = []

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def fails() -> str:
        raise ValueError("no luck")

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        reply = await call_next(request)
        seen.append((request.method, request.name, reply))
        return reply

    return seen


# -- what it sees ---------------------------------------------------------------------------------


def test_it_sees_the_request_undecoded_and_the_result_encoded(
    connect: Any, server: Server, version: str
) -> None:
    @server.tool
    async def echo(text: str) -> str:
        return text

    asked: list[Any] = []

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        if request.method == "initialize":
            assert request.protocol_version is None
            return await call_next(request)
        raw = request.params
        assert raw is not None
        asked.append(
            (request.id, request.raw_id, request.method, request.name, bytes(raw), request.modern)
        )
        reply = await call_next(request)
        asked.append(reply.data)
        assert request.protocol_version == version
        assert (request.client_info or {})["name"] == "raw"
        assert request.client_capabilities == {}
        assert request.principal is None
        return reply

    peer = connect(version)
    message = tool_call(version, "a/b", "echo", {"text": "hi"})
    result = peer.result(message)
    assert text_of(result) == "hi"
    assert asked[0][:4] == ("a/b", b'"a/b"', "tools/call", "echo")
    assert json.loads(asked[0][4]) == message["params"]
    assert asked[0][5] is (version == MODERN)
    assert json.loads(asked[1]) == result
    assert (INFO in result.get("_meta", {})) is (version == MODERN)


def test_meta_is_decoded_when_it_is_looked_at(connect: Any, server: Server) -> None:
    metas: list[Any] = []

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        metas.append((request.meta, request.name))
        return await call_next(request)

    peer = connect("2025-06-18")
    metas.clear()
    peer.result(request(1, "ping", {}, trace="x"))
    peer.result(request(2, "ping"))
    assert metas == [({"trace": "x"}, None), ({}, None)]


def test_each_connection_has_a_number_of_its_own(connect: Any, server: Server) -> None:
    numbers: list[int] = []

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        numbers.append(request.connection_id)
        return await call_next(request)

    for _ in range(2):
        peer = connect("2025-06-18")
        peer.result(request(1, "ping"))
    assert len(numbers) == 4
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]


def test_the_first_added_is_outermost(connect: Any, server: Server, version: str) -> None:
    order: list[str] = []

    def named(name: str) -> Callable[..., Any]:
        async def middleware(request: InboundRequest, call_next: Any) -> Any:
            order.append(f"{name} in")
            reply = await call_next(request)
            order.append(f"{name} out")
            return reply

        return middleware

    @server.tool(inline=True)
    def work() -> str:
        order.append("work")
        return "done"

    for name in ("a", "b", "c"):
        server.add_middleware(named(name))
    peer = connect(version)
    order.clear()
    peer.result(tool_call(version, 1, "work"))
    assert order == ["a in", "b in", "c in", "work", "c out", "b out", "a out"]


def test_every_method_passes_with_result_or_error(
    connect: Any, server: Server, seen: list[Any]
) -> None:
    peer = connect("2025-06-18")
    assert [method for method, *_ in seen] == ["initialize"]
    peer.result(request(1, "ping"))
    peer.result(request(2, "tools/list"))
    peer.result(call(3, "echo", {"text": "x"}))
    assert [entry[:2] for entry in seen[1:]] == [
        ("ping", None),
        ("tools/list", None),
        ("tools/call", "echo"),
    ]


def test_a_tool_that_fails_is_a_reply_with_is_error(
    any_peer: Any, server: Server, seen: list[Any], version: str
) -> None:
    assert any_peer.result(tool_call(version, 1, "fails"))["isError"] is True
    assert seen[-1][2].is_error
    any_peer.result(tool_call(version, 2, "echo", {"text": '"isError":true'}))
    assert not seen[-1][2].is_error


def test_errors_are_raised_through_it(any_peer: Any, server: Server, version: str) -> None:
    errors: list[tuple[int, Any]] = []

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except ProtocolError as exc:
            errors.append((exc.code, exc.data))
            raise

    @server.tool
    async def picky(a: int) -> str:
        raise ProtocolError(-5, "no", {"a": a})

    assert any_peer.error(tool_call(version, 1, "nothing"))[0] == -32602
    assert any_peer.error(tool_call(version, 2, "picky", {"a": 3})) == (-5, "no")
    assert any_peer.error(asks(3, "no/such", version))[0] == -32601
    assert errors == [(-32602, None), (-5, {"a": 3}), (-32601, None)]


# -- answering ------------------------------------------------------------------------------------


def test_it_answers_without_the_handler(any_peer: Any, server: Server, version: str) -> None:
    ran: list[int] = []

    @server.tool
    async def work() -> str:
        ran.append(1)
        return "done"

    @server.add_middleware
    async def cached(request: InboundRequest, call_next: Any) -> Any:
        if request.name == "work":
            return Reply.result({"content": [{"type": "text", "text": "cached"}]})
        return await call_next(request)

    result = any_peer.result(tool_call(version, 1, "work"))
    assert text_of(result) == "cached"
    assert ran == []
    if version == MODERN:
        assert result["resultType"] == "complete"
        assert result["_meta"][INFO]["name"] == "lab"
    else:
        assert result.keys() == {"content"}


def test_it_refuses_with_an_error_of_its_own(any_peer: Any, server: Server, version: str) -> None:
    @server.add_middleware
    async def deny(request: InboundRequest, call_next: Any) -> Any:
        if request.method == "tools/list":
            raise ProtocolError(-7, "not today", {"why": "sunday"})
        return await call_next(request)

    answer = any_peer.ask(asks(1, "tools/list", version))
    assert answer["error"] == {"code": -7, "message": "not today", "data": {"why": "sunday"}}


def test_it_replaces_the_result(any_peer: Any, server: Server, version: str) -> None:
    @server.tool
    async def secret() -> str:
        return "password"

    @server.add_middleware
    async def redact(request: InboundRequest, call_next: Any) -> Any:
        reply = await call_next(request)
        if request.method != "tools/call":
            return reply
        return Reply.result(reply.data.replace(b"password", b"********") + b"\n ")

    result = any_peer.result(tool_call(version, 1, "secret"))
    assert text_of(result) == "********"
    assert (INFO in result.get("_meta", {})) is (version == MODERN)


def test_a_reply_must_be_a_json_object() -> None:
    assert Reply.result(b'{"a":\n1}').data == b'{"a": 1}'
    assert Reply.result(bytearray(b" {} ")).decode() == {}
    assert repr(Reply.result({})) == "<Reply of 2 bytes>"
    for bad in (b"[]", b"{", b"", b'{"a":1}{}', b"\xff"):
        with raises(ValueError):
            Reply.result(bad)
    for wrong in ([1], "text", 5):
        with raises(TypeError):
            Reply.result(wrong)
    with pytest.raises(TypeError):
        Reply()
    with pytest.raises(TypeError):
        InboundRequest()


def test_it_asks_the_handler_again(any_peer: Any, server: Server, version: str) -> None:
    left = [ValueError("first"), ValueError("second")]

    @server.tool
    async def flaky() -> str:
        await asyncio.sleep(0)
        if left:
            raise left.pop()
        return "at last"

    @server.add_middleware
    async def retry(request: InboundRequest, call_next: Any) -> Any:
        reply = await call_next(request)
        while request.method == "tools/call" and reply.is_error:
            reply = await call_next(request)
        return reply

    assert text_of(any_peer.result(tool_call(version, 1, "flaky"))) == "at last"


def test_a_second_call_while_the_first_runs_is_refused(
    peer: Any, server: Server, caplog: Any
) -> None:
    @server.tool
    async def slow() -> str:
        await asyncio.sleep(0)
        return "x"

    @server.add_middleware
    async def twice(request: InboundRequest, call_next: Any) -> Any:
        if request.method != "tools/call":
            return await call_next(request)
        first, second = await asyncio.gather(
            call_next(request), call_next(request), return_exceptions=True
        )
        assert isinstance(second, RuntimeError)
        return first

    assert text_of(peer.result(call(1, "slow"))) == "x"


# -- the context ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["coroutine", "inline", "thread"])
def test_the_handler_runs_in_the_context_and_the_task_of_the_chain(
    connect: Any, server: Server, how: str
) -> None:
    tasks: list[Any] = []

    async def coroutine() -> str:
        await asyncio.sleep(0)
        tasks.append(asyncio.current_task())
        return variable.get()

    def plain() -> str:
        return variable.get()

    if how == "coroutine":
        server.add_tool(coroutine, name="work")
    else:
        server.add_tool(plain, name="work", inline=how == "inline")

    @server.add_middleware
    async def outer(request: InboundRequest, call_next: Any) -> Any:
        variable.set("outer")
        tasks.append(asyncio.current_task())
        return await call_next(request)

    @server.add_middleware
    async def inner(request: InboundRequest, call_next: Any) -> Any:
        variable.set(f"{variable.get()}+{request.id}")
        return await call_next(request)

    peer = connect("2025-06-18")
    del tasks[:]
    assert text_of(peer.result(call(1, "work"))) == "outer+1"
    assert len({id(task) for task in tasks}) == 1
    del tasks[:]
    assert text_of(peer.result(call(2, "work"))) == "outer+2"
    assert variable.get() == "unset"


def test_other_features_see_it_too(peer: Any, server: Server) -> None:
    @server.prompt
    async def hello() -> str:
        await asyncio.sleep(0)
        return variable.get()

    @server.resource("config://app")
    def config() -> str:
        return variable.get()

    @server.add_middleware
    async def outer(request: InboundRequest, call_next: Any) -> Any:
        variable.set(f"{request.method} {request.name}")
        return await call_next(request)

    got = peer.result(request(1, "prompts/get", {"name": "hello"}))
    assert got["messages"][0]["content"]["text"] == "prompts/get hello"
    got = peer.result(request(2, "resources/read", {"uri": "config://app"}))
    assert got["contents"][0]["text"] == "resources/read config://app"


# -- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after", "at once"])
def test_its_own_failure_is_logged_and_says_nothing(
    connect: Any, server: Server, version: str, caplog: Any, when: str
) -> None:
    async def broken(request: InboundRequest, call_next: Any) -> Any:
        if request.method != "tools/list":
            return await call_next(request)
        if when == "after":
            await call_next(request)
        raise ValueError("secret")

    def at_once(request: InboundRequest, call_next: Any) -> Any:
        if request.method == "tools/list":
            raise ValueError("secret")
        return call_next(request)

    server.add_middleware(at_once if when == "at once" else broken)
    peer = connect(version)
    assert peer.error(asks(1, "tools/list", version)) == (-32603, "Internal error")
    assert "secret" in caplog.text
    assert "middleware at tools/list failed" in caplog.text
    peer.fence()


@pytest.mark.parametrize("value", [None, b"{}", {}, 7])
def test_anything_but_a_reply_is_a_failure(
    peer: Any, server: Server, caplog: Any, value: Any
) -> None:
    @server.add_middleware
    async def wrong(request: InboundRequest, call_next: Any) -> Any:
        reply = await call_next(request)
        return value if request.method == "tools/list" else reply

    assert peer.error(request(1, "tools/list")) == (-32603, "Internal error")
    assert "must return a Reply" in caplog.text


def test_another_request_is_not_passed_on(peer: Any, server: Server, caplog: Any) -> None:
    kept: list[InboundRequest] = []

    @server.add_middleware
    async def mixed(request: InboundRequest, call_next: Any) -> Any:
        kept.append(request)
        return await call_next(kept[0])

    assert peer.error(request(1, "ping")) == (-32603, "Internal error")
    assert "takes the request that the middleware was given" in caplog.text


def test_a_middleware_must_be_callable(server: Server) -> None:
    for add in (server.add_middleware, server.add_ask_middleware):
        with raises(TypeError):
            add("mw")  # type: ignore[arg-type]


def test_a_handler_whose_own_await_is_cancelled_failed(peer: Any, server: Server) -> None:
    @server.tool
    async def odd() -> str:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    server.add_middleware(pass_on)
    assert "was cancelled" in text_of(peer.result(call(1, "odd")))


# -- cancellation, timeouts, shutdown -------------------------------------------------------------


class Slow:
    """A tool that waits for ever, inside a middleware; both note how they ended."""

    def __init__(self, server: Server, *, timeout: float | None = None) -> None:
        self.notes: list[str] = []
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        server.add_tool(self.wait, timeout=timeout)
        server.add_middleware(self.around)

    def begin(self, peer: Any, message: Any = None) -> None:
        """Send a call of the tool, and wait until it runs."""
        self.started.clear()
        peer.send(call(1, "wait") if message is None else message)
        peer.wait_for(self.started.is_set)

    async def wait(self, ctx: Context) -> str:
        self.started.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.notes.append(f"tool cancelled {ctx.cancelled}")
            raise
        return "done"

    async def around(self, request: InboundRequest, call_next: Any) -> Any:
        try:
            reply = await call_next(request)
        except asyncio.CancelledError:
            self.notes.append("middleware cancelled")
            raise
        if request.method == "tools/call":
            await asyncio.sleep(0)
            self.notes.append("middleware done")
        return reply


@pytest.mark.parametrize("swallowed", [False, True])
def test_a_cancellation_reaches_both_and_nothing_is_answered(
    any_peer: Any, server: Server, version: str, swallowed: bool
) -> None:
    @server.add_middleware
    async def stubborn(request: InboundRequest, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except asyncio.CancelledError:
            if swallowed:
                return Reply.result({"content": []})
            raise

    slow = Slow(server)
    for id in (1, 2):
        slow.notes.clear()
        slow.begin(any_peer, tool_call(version, id, "wait"))
        any_peer.send(cancel(id))
        assert any_peer.fence() == []
        assert slow.notes == ["tool cancelled True", "middleware cancelled"]
        assert any_peer.connection.session.counters["requests_in_flight"] == 0
        assert any_peer.connection.session.n_cancelled == 0
        assert any_peer.connection.running == set()


def test_a_cancellation_while_only_the_middleware_waits(peer: Any, server: Server) -> None:
    waits, ended = asyncio.Event(), asyncio.Event()

    @server.add_middleware
    async def gate(request: InboundRequest, call_next: Any) -> Any:
        if request.method == "tools/list":
            waits.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        return await call_next(request)

    peer.send(request(1, "tools/list"))
    peer.wait_for(waits.is_set)
    peer.send(cancel(1))
    peer.wait_for(ended.is_set)
    assert peer.fence() == []


@pytest.mark.parametrize("apart", [False, True])
def test_the_tools_timeout_is_a_reply(
    any_peer: Any, server: Server, version: str, apart: bool
) -> None:
    slow = Slow(server, timeout=0.01)

    @server.add_middleware
    async def inner(request: InboundRequest, call_next: Any) -> Any:
        reply = call_next(request)
        return await (asyncio.ensure_future(reply) if apart else reply)

    result = any_peer.result(tool_call(version, 1, "wait"))
    assert result["isError"] is True
    assert "timed out" in text_of(result)
    assert slow.notes == ["tool cancelled False", "middleware done"]


def test_a_timeout_of_the_middleware_around_the_handler(peer: Any, server: Server) -> None:
    slow = Slow(server)

    @server.add_middleware
    async def limited(request: InboundRequest, call_next: Any) -> Any:
        try:
            async with asyncio.timeout(0.01):
                return await call_next(request)
        except TimeoutError:
            raise ProtocolError(-9, "too slow") from None

    assert peer.error(call(1, "wait")) == (-9, "too slow")
    assert slow.notes == ["tool cancelled False"]
    slow.go.set()
    assert text_of(peer.result(call(2, "wait"))) == "done"


def test_a_client_that_goes_ends_the_chain(peer: Any, server: Server) -> None:
    slow = Slow(server)
    slow.begin(peer)
    peer.connection.abort()
    peer.wait_for(lambda: len(slow.notes) == 2)
    assert slow.notes == ["tool cancelled True", "middleware cancelled"]


def test_a_shutdown_waits_for_the_chain(peer: Any, server: Server) -> None:
    slow = Slow(server)
    slow.begin(peer)
    peer.connection.drain()
    slow.go.set()
    assert text_of(peer.recv()["result"]) == "done"
    peer.wait_for(peer.connection.closed.done)


def test_a_shutdown_whose_grace_is_over_answers_for_the_chain(peer: Any, server: Server) -> None:
    slow = Slow(server)
    server.shutdown_grace = 0.01
    slow.begin(peer)
    peer.connection.drain()
    assert peer.recv()["error"]["code"] == -31006
    assert slow.notes[-1] == "middleware cancelled"


def test_requests_in_the_chain_count_against_the_limit(connect: Any) -> None:
    server = Server("lab", limits=Limits(max_in_flight=2))
    inside, go = [], asyncio.Event()

    @server.add_middleware
    async def gate(request: InboundRequest, call_next: Any) -> Any:
        if request.method == "tools/list":
            inside.append(request.id)
            await go.wait()
        return await call_next(request)

    peer = connect("2025-06-18", to=server)
    peer.send(*(request(i, "tools/list") for i in range(5)))
    peer.wait_for(lambda: len(inside) == 2)
    assert peer.fence() == []
    assert inside == [0, 1]
    go.set()
    peer.answers(*range(5))


# -- what is answered elsewhere -------------------------------------------------------------------


def listen(id: Any) -> dict[str, Any]:
    return modern(id, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})


def test_a_subscription_stays_open_behind_it(modern_peer: Any, server: Server) -> None:
    replies: list[Any] = []

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        reply = await call_next(request)
        replies.append(reply)
        return reply

    server.add_tool(lambda: "x", name="one")
    assert modern_peer.ask(listen("s"))["method"] == "notifications/subscriptions/acknowledged"
    assert replies == [None]
    server.add_tool(lambda: "x", name="two")
    assert modern_peer.recv()["method"] == "notifications/tools/list_changed"
    modern_peer.send(cancel("s"))
    assert modern_peer.fence() == []
    assert modern_peer.connection.listens == {}
    assert modern_peer.connection.session.n_cancelled == 0


def test_what_is_said_behind_an_open_subscription_is_only_logged(
    modern_peer: Any, server: Server, caplog: Any
) -> None:
    @server.add_middleware
    async def late(request: InboundRequest, call_next: Any) -> Any:
        reply = await call_next(request)
        await asyncio.sleep(0)
        return Reply.result({}) if reply is None else reply

    server.add_tool(lambda: "x", name="one")
    modern_peer.ask(listen("s"))
    assert modern_peer.fence() == []
    assert "failed behind an open subscription" in caplog.text
    server.add_tool(lambda: "x", name="two")
    assert modern_peer.recv()["method"] == "notifications/tools/list_changed"


def test_a_refused_subscription_is_an_error_as_any(modern_peer: Any, server: Server) -> None:
    codes: list[int] = []

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except ProtocolError as exc:
            codes.append(exc.code)
            raise

    assert modern_peer.error(modern(1, "subscriptions/listen", {"notifications": 5}))[0] == -32602
    assert codes == [-32602]


def test_progress_and_logs_of_the_handler_come_before_its_answer(
    peer: Any, server: Server, seen: list[Any]
) -> None:
    @server.tool
    async def chatty(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await ctx.info("half")
        return "done"

    peer.send(call(1, "chatty", {}, progressToken="t"))
    methods = [message.get("method") for message in peer.until(1)]
    assert methods == ["notifications/progress", "notifications/message", None]


def test_a_batch_is_answered_as_one(connect: Any, server: Server, seen: list[Any]) -> None:
    peer = connect("2025-03-26")
    peer.send(
        json.dumps([call(1, "echo", {"text": "a"}), call(2, "fails"), notification("x/y")]).encode()
        + b"\n"
    )
    answers = {answer["id"]: answer["result"] for answer in peer.recv()}
    assert text_of(answers[1]) == "a"
    assert answers[2]["isError"] is True


def test_it_is_for_connections_made_after_it_was_added(
    connect: Any, server: Server, caplog: Any
) -> None:
    before = connect("2025-06-18")
    names: list[str] = []

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        names.append(request.method)
        return await call_next(request)

    before.result(request(1, "ping"))
    assert names == []
    connect("2025-06-18")
    assert names == ["initialize"]
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


# -- what goes on behind the answer, or before it -------------------------------------------------


def test_questions_to_a_modern_client_are_a_reply(modern_peer: Any, server: Server) -> None:
    replies: list[Any] = []

    server.add_tool(ask_first)

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        reply = await call_next(request)
        await asyncio.sleep(0)
        replies.append(reply.decode()["resultType"])
        return reply

    asked = Asked(modern_peer, "ask_first")
    assert text_of(asked.result({"elicit-1": {"action": "decline"}})) == "decline"
    assert replies == ["input_required", "complete"]
    assert modern_peer.connection.running == set()


def test_questions_to_a_legacy_client_pass_middleware_of_their_own(
    connect: Any, server: Server
) -> None:
    seen: list[Any] = []

    server.add_tool(ask_first)

    @server.add_ask_middleware
    async def outer(question: ServerRequest, call_next: Any) -> bytes:
        seen.append((question.method, json.loads(question.params or b"{}")["message"]))
        assert question.connection_id == peer.connection.serial
        question.params = (question.params or b"").replace(b"Sure?", b"Really?")
        return await call_next(question)

    @server.add_ask_middleware
    async def inner(question: ServerRequest, call_next: Any) -> bytes:
        if b"Really" not in (question.params or b""):
            raise AssertionError(question.params)
        answer = await call_next(question)
        seen.append(json.loads(answer))
        return b'{"action":"cancel"}'

    peer = enter(connect, "2025-06-18", {"elicitation": {}})
    asked = peer.ask(call(1, "ask_first"))
    assert asked["params"]["message"] == "Really?"
    answer = peer.ask(reply(asked, {"action": "decline"}))
    assert text_of(answer["result"]) == "cancel"
    assert seen == [("elicitation/create", "Sure?"), {"action": "decline"}]


def test_middleware_answers_a_question_in_place_of_the_client(connect: Any, server: Server) -> None:
    server.add_tool(ask_first)

    answers: list[Any] = [b'{"action":"accept"}', {"action": "accept"}]

    @server.add_ask_middleware
    async def always(question: ServerRequest, call_next: Any) -> bytes:
        answer: bytes = answers.pop(0)
        return answer

    peer = enter(connect, "2025-06-18", {"elicitation": {}})
    assert text_of(peer.result(call(1, "ask_first"))) == "accept"
    assert "must return bytes, not dict" in text_of(peer.result(call(2, "ask_first")))


@pytest.mark.parametrize("value", ["done", "late"])
def test_a_call_that_becomes_a_task_is_a_reply_and_goes_on(
    connect: Any, server: Server, value: str
) -> None:
    replies: list[Any] = []
    gate = asyncio.Event()
    server.use_tasks()

    @server.tool(task="optional")
    async def work() -> str:
        if value == "late":
            await gate.wait()
        return f"{value} {variable.get()}"

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        variable.set("set")
        reply = await call_next(request)
        replies.append((request.method, reply.decode()))
        return reply

    peer = connect("2025-11-25")
    message = call(1, "work")
    message["params"]["task"] = {}
    peer.send(message)
    task = peer.until(1)[-1]["result"]["task"]
    assert replies[-1] == ("tools/call", {"task": task})
    gate.set()
    peer.send(request(2, "tasks/result", {"taskId": task["taskId"]}))
    assert text_of(peer.until(2)[-1]["result"]) == f"{value} set"
    assert peer.connection.running == set()


def test_the_name_of_a_request_follows_from_its_method(modern_peer: Any, server: Server) -> None:
    """Whatever other members it has: a guard must see what the handler will."""
    seen: list[Any] = []
    server.add_resource("secret://x", "hidden")

    @server.tool
    async def quiet() -> str:
        return ""

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        seen.append(request.name)
        return await call_next(request)

    modern_peer.result(modern(1, "resources/read", {"name": "nothing", "uri": "secret://x"}))
    modern_peer.result(modern(2, "tools/call", {"name": "quiet", "uri": "secret://x"}))
    assert seen == ["secret://x", "quiet"]


def test_a_call_behind_middleware_has_nothing_of_the_call_before(
    modern_peer: Any, server: Server
) -> None:
    wait = True

    server.add_middleware(pass_on)

    @server.tool(timeout=0.02)
    async def slow() -> str:
        if wait:
            await asyncio.sleep(60)
        raise ValueError("own words")

    assert "timed out" in text_of(modern_peer.result(tool_call(MODERN, 1, "slow")))
    wait = False
    for id in (2, 3):
        assert text_of(modern_peer.result(tool_call(MODERN, id, "slow"))) == "own words"


def test_a_handler_that_cancels_its_own_task_is_answered_as_without(
    connect: Any, server: Server, version: str, caplog: Any
) -> None:
    """It cancels the chain, too, which runs in the same task."""
    seen: list[str] = []

    server.add_tool(quit)
    server.add_tool(lambda: "still", name="next")
    alone = connect(version).result(tool_call(version, 1, "quit"))

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    peer = connect(version)
    assert peer.result(tool_call(version, 1, "quit")) == alone
    assert alone["isError"] is True
    assert text_of(alone) == "Tool quit was cancelled"
    assert seen == ["cancelled"]
    assert caplog.records == []
    assert text_of(peer.result(tool_call(version, 2, "next"))) == "still"


def test_a_middleware_that_catches_such_an_end_answers_itself(peer: Any, server: Server) -> None:
    server.add_tool(quit)

    @server.add_middleware
    async def catch(request: InboundRequest, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return Reply.result({"content": [{"type": "text", "text": "caught"}]})

    assert text_of(peer.result(call(1, "quit"))) == "caught"


def test_a_middleware_that_is_cancelled_by_itself_failed(
    connect: Any, server: Server, caplog: Any
) -> None:
    """Not by its handler, whose answer is not sent for it."""

    @server.add_middleware
    async def odd(request: InboundRequest, call_next: Any) -> Any:
        await call_next(request)
        raise asyncio.CancelledError

    server.add_tool(lambda: "x", name="quick")
    assert connect().error(tool_call(MODERN, 1, "quick")) == (-32603, "Internal error")
    assert "middleware at tools/call failed" in caplog.text


def test_a_cancellation_in_the_tick_in_which_the_handler_ends(
    connect: Any, server: Server, caplog: Any
) -> None:
    """Of a call that may become a task, which runs in a task of its own."""
    seen: list[type] = []
    running: list[Any] = []
    go = asyncio.Event()

    @server.tool(task="optional", task_after=60)
    async def later(ctx: Context) -> str:
        running.append(ctx)
        await go.wait()
        return "done"

    @server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except BaseException as exc:
            seen.append(type(exc))
            raise

    peer = connect()
    extension = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    capabilities = {META + "clientCapabilities": extension}
    peer.send(modern(1, "tools/call", {"name": "later"}, **capabilities))
    peer.wait_for(lambda: running)
    (passage,) = peer.connection.running

    async def end() -> None:
        """The handler has ended, and who waits for that has not gone on yet."""
        go.set()
        while not running[0].cancelled:
            await asyncio.sleep(0)
        passage.cancel()

    peer.run(end())
    peer.wait_for(lambda: seen)
    assert seen == [asyncio.CancelledError]
    assert "AttributeError" not in caplog.text
