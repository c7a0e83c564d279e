"""tools/call: every kind of handler, every kind of end."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from lab.raw import META, call, cancel, modern, request
from lab.server import MODERN, Peer, pass_on, text_of, tool_call
from lab.wording import raises

from wirespeed import Context, Server
from wirespeed.errors import ProtocolError
from wirespeed.types import Image, RawResult

pytestmark = pytest.mark.compiled


@pytest.fixture
def collector() -> Iterator[None]:
    """Without the collector of cycles: what is freed is freed by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# -- kinds of handlers ----------------------------------------------------------------------------


def test_every_kind_of_function_is_a_tool(connect: Any, server: Server, version: str) -> None:
    main = threading.get_ident()

    @server.tool
    async def coroutine(n: int) -> int:
        await asyncio.sleep(0)
        assert threading.get_ident() == main
        return n

    @server.tool
    def thread(n: int) -> int:
        assert threading.get_ident() != main
        return n

    @server.tool(inline=True)
    def inline(n: int) -> int:
        assert threading.get_ident() == main
        return n

    @server.tool
    def generator(n: int) -> Iterator[int]:
        assert threading.get_ident() != main
        yield from range(n)

    @server.tool
    async def async_generator(n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    class Callable_:
        async def __call__(self, n: int) -> int:
            return n

    server.add_tool(Callable_(), name="object")
    server.add_tool(functools.partial(coroutine, 3), name="partial")

    @server.tool(name="wrapped")
    @functools.wraps(coroutine)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return coroutine(*args, **kwargs)

    peer = connect(version)
    for id, name in enumerate(("coroutine", "thread", "inline", "object", "wrapped")):
        assert text_of(peer.result(tool_call(version, id, name, {"n": 3}))) == "3"
    assert text_of(peer.result(tool_call(version, 9, "partial"))) == "3"
    for id, name in enumerate(("generator", "async_generator"), 10):
        assert text_of(peer.result(tool_call(version, id, name, {"n": 3}))) == "[0,1,2]"


def test_a_blocking_tool_stalls_no_other(peer: Any, server: Server) -> None:
    gate = threading.Event()

    @server.tool
    def block() -> str:
        gate.wait()
        return "blocked"

    @server.tool
    async def fast() -> str:
        return "fast"

    @server.tool
    def fast_in_thread() -> str:
        return "fast"

    peer.send(call(1, "block"), call(2, "fast"), call(3, "fast_in_thread"))
    try:
        assert set(peer.answers(2, 3)) == {2, 3}
    finally:
        gate.set()
    assert text_of(peer.recv()["result"]) == "blocked"


def test_inline_is_for_plain_functions_only(server: Server) -> None:
    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    for function in (coroutine, generator):
        with raises(ValueError):
            server.add_tool(function, inline=True)


def test_many_arguments_and_keyword_only_ones(peer: Any, server: Server) -> None:
    names = [f"a{i}" for i in range(24)]
    source = f"async def many({', '.join(n + ': int' for n in names)}) -> list[int]:\n"
    source += f"    return [{', '.join(names)}]\n"
    space: dict[str, Any] = {}
    exec(source, space)
    server.add_tool(space["many"])

    @server.tool
    async def keywords(ctx: Context, a: int, *, b: int = 2, c: str) -> str:
        return f"{a} {b} {c} {ctx.request_id}"

    result = peer.result(call(1, "many", {n: i for i, n in enumerate(names)}))
    assert result["structuredContent"] == {"result": list(range(24))}
    assert text_of(peer.result(call("x", "keywords", {"c": "c", "a": 1}))) == "1 2 c x"


# -- raw tools ------------------------------------------------------------------------------------

OBJECT = {"type": "object"}


def test_a_raw_tool_gets_the_bytes_as_they_came(connect: Any, server: Server) -> None:
    seen: list[bytes] = []

    async def coroutine(arguments: Any) -> str:
        seen.append(bytes(arguments))
        return "ok"

    def thread(arguments: Any) -> str:
        seen.append(bytes(arguments))
        return "ok"

    for name, handler, inline in (
        ("coroutine", coroutine, False), ("thread", thread, False), ("inline", thread, True),
    ):  # fmt: skip
        server.tool_raw(name, OBJECT, handler, inline=inline)
    peer = connect("2025-06-18")
    odd = b'{ "b" :1.0,"a":[ 1e5 ],"b":2, "x":"\\u00e9"  }'
    for name in ("coroutine", "thread", "inline"):
        line = (
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%b","arguments":%b}}'
        )
        assert text_of(peer.ask(line % (name.encode(), odd) + b"\n")["result"]) == "ok"
        assert text_of(peer.result(call(2, name))) == "ok"
    assert seen == [odd, b"{}"] * 3


def test_a_raw_tool_with_its_context(connect: Any, server: Server, version: str) -> None:
    async def handler(arguments: Any, ctx: Context) -> str:
        return f"{ctx.request_id!r} {ctx.protocol_version} {len(arguments)}"

    server.tool_raw("raw", OBJECT, handler, context=True)
    peer = connect(version)
    assert text_of(peer.result(tool_call(version, "7", "raw", {}))) == f"'7' {version} 2"


@pytest.mark.off_schema("what a tool writes itself is not looked at")
def test_a_raw_result_is_sent_as_it_is(peer: Any, server: Server) -> None:
    body = b'{"content":[], "resultType":"complete","com.example/x":[1.0,1e400]}'

    async def handler(arguments: Any) -> RawResult:
        return RawResult(body)

    server.tool_raw("raw", OBJECT, handler)
    peer.send(call(1, "raw"))
    assert peer.line() == b'{"jsonrpc":"2.0","id":1,"result":%b}' % body


@pytest.mark.off_schema("what a tool writes itself is not looked at")
def test_a_raw_result_from_a_typed_tool_may_be_pretty(peer: Any, server: Server) -> None:
    @server.tool
    async def pretty():  # type: ignore[no-untyped-def]
        return RawResult(b'\n{\n  "content": [],\r\n "x": "a\\nb"\n}\n')

    assert peer.result(call(1, "pretty")) == {"content": [], "x": "a\nb"}
    assert peer.fence() == []


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b"{", b'{"a":NaN}', b'{"a":"\xff"}', 5, None]
)
def test_a_raw_result_that_is_no_object_is_an_error(
    data: Any, connect: Any, server: Server
) -> None:
    async def handler(arguments: Any) -> RawResult:
        return RawResult(data)

    server.tool_raw("raw", OBJECT, handler)
    assert connect("2025-06-18").result(call(1, "raw"))["isError"] is True


def test_a_lease_keeps_its_memory_while_the_handler_keeps_it(connect: Any, server: Server) -> None:
    kept: list[Any] = []

    async def handler(arguments: Any) -> str:
        kept.append(arguments)
        await asyncio.sleep(0)
        return bytes(arguments).decode()

    server.tool_raw("raw", OBJECT, handler)
    peer = connect("2025-06-18")
    for i in range(50):
        text = text_of(peer.result(call(i, "raw", {"n": i, "fill": "x" * 20000})))
        assert text.startswith(f'{{"n": {i},')
    for i, lease in enumerate(kept):
        assert bytes(lease).startswith(b'{"n": %d,' % i)
        copy = lease.copy()
        assert isinstance(copy, bytes)
        assert copy == bytes(lease)


def test_input_memory_goes_when_nobody_keeps_it(peer: Any, server: Server) -> None:
    async def handler(arguments: Any) -> int:
        return len(arguments)

    server.tool_raw("raw", OBJECT, handler)
    peer.fence()
    before = peer.connection.session.counters["slabs_live"]
    for i in range(50):
        peer.result(call(i, "raw", {"fill": "x" * 200_000}))
    peer.fence()
    assert peer.connection.session.counters["slabs_live"] <= before + 1


def test_a_raw_schema_that_is_no_json_is_refused_when_it_is_registered(server: Server) -> None:
    async def handler(arguments: Any) -> None: ...

    with pytest.raises(TypeError):
        server.tool_raw("raw", {"type": "object", "properties": object()}, handler)
    assert server.tools == {}


@pytest.mark.parametrize("schema", [{}, {"type": "array"}, {"type": ["object"]}, {"$ref": "#"}])
def test_a_raw_schema_is_one_of_an_object(schema: Any, server: Server) -> None:
    with raises(ValueError):
        server.tool_raw("raw", schema, len)
    assert server.tools == {}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"timeout": 0}, "timeout must be a positive number of seconds, not 0"),
        ({"timeout": -1.5}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"meta": {"dev.mcp/x": 1}}, "'dev.mcp/x' is reserved for MCP"),
        ({"meta": {"progressToken": 1}}, "is reserved for MCP"),
        ({"meta": {"a b": 1}}, "is not the name of a member"),
    ],
)
def test_options_that_cannot_be_right(options: Any, why: str, server: Server) -> None:
    with pytest.raises(ValueError, match=why):
        server.add_tool(lambda: 1, name="tool", **options)
    with pytest.raises(ValueError, match=why):
        server.tool_raw("tool", OBJECT, len, **options)
    assert server.tools == {}


# -- arguments ------------------------------------------------------------------------------------


@pytest.fixture
def typed(server: Server) -> Server:
    @server.tool
    async def typed(n: int, text: str = "x") -> str:
        return f"{n}{text}"

    @server.tool
    async def none() -> str:
        return "none"

    return server


@pytest.mark.every_revision
@pytest.mark.parametrize(
    "arguments", [{}, {"n": "1"}, {"n": 1.5}, {"n": None}, {"n": 1, "text": 2}]
)
def test_arguments_that_do_not_fit_are_a_tool_error_or_invalid_params(
    arguments: Any, version: str, connect: Any, typed: Server
) -> None:
    answer = connect(version).ask(tool_call(version, 1, "typed", arguments))
    if version >= "2025-11-25":
        result = answer["result"]
        assert result["isError"] is True
        text = text_of(result)
    else:
        assert answer["error"]["code"] == -32602
        text = answer["error"]["message"]
    assert "typed" in text
    assert "n" in text or "text" in text


def test_an_unknown_tool_is_a_protocol_error_everywhere(
    version: str, connect: Any, typed: Server
) -> None:
    answer = connect(version).ask(tool_call(version, 1, "ghost", {}))
    assert answer["error"] == {"code": -32602, "message": "Unknown tool: ghost"}


@pytest.mark.parametrize("name", [None, 1, [], {"a": 1}, "ABSENT"])
def test_a_call_without_a_name_is_a_protocol_error(
    name: Any, version: str, connect: Any, typed: Server
) -> None:
    params = {} if name == "ABSENT" else {"name": name}
    message = request(1, "tools/call", params)
    if version == MODERN:
        message = modern(1, "tools/call", params)
    code, text = connect(version).error(message)
    assert code == -32602
    assert "name" in text


@pytest.mark.parametrize("arguments", ["[1]", '"x"', "1", "true"])
def test_arguments_that_are_no_object_are_a_protocol_error(
    arguments: str, connect: Any, typed: Server
) -> None:
    peer = connect("2025-11-25")
    line = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"none","arguments":%s}}'
    answer = peer.ask((line % arguments).encode() + b"\n")
    assert answer["error"]["code"] == -32602
    assert "arguments" in answer["error"]["message"]


def test_absent_arguments_are_none(version: str, connect: Any, typed: Server) -> None:
    peer = connect(version)
    assert text_of(peer.result(tool_call(version, 1, "none"))) == "none"
    assert text_of(peer.result(tool_call(version, 2, "none", {}))) == "none"


def test_text_of_an_error_from_odd_input_is_valid(connect: Any, typed: Server) -> None:
    peer = connect("2025-06-18")
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800\\n"}}\n'
    assert peer.ask(line)["error"]["message"].startswith("Unknown tool: ")


# -- results --------------------------------------------------------------------------------------


@pytest.mark.every_revision
def test_structured_null_and_arrays_are_for_2026_only(
    version: str, connect: Any, server: Server
) -> None:
    from wirespeed.types import ToolResult

    @server.tool
    async def give(what: str) -> ToolResult:
        values = {"null": None, "array": [1, None], "object": {"a": None}}
        return ToolResult(structured_content=values[what])

    peer = connect(version)
    for id, (what, value) in enumerate(
        {"null": None, "array": [1, None], "object": {"a": None}}.items()
    ):
        result = peer.result(tool_call(version, id, "give", {"what": what}))
        since = "2025-06-18" if what == "object" else MODERN
        assert ("structuredContent" in result) == (version >= since)
        if version >= since:
            assert result["structuredContent"] == value
        assert text_of(result) in ("null", "[1,null]", '{"a":null}')


@pytest.mark.parametrize("loud", [True, False])
def test_nan_is_never_sent(loud: bool, connect: Any, server: Server) -> None:
    @server.tool
    async def typed() -> float:
        return float("nan")

    @server.tool
    async def untyped():  # type: ignore[no-untyped-def]
        return {"x": float("inf")}

    peer = connect("2025-06-18")
    if loud:
        result = peer.result(call(1, "typed"))
        assert result["isError"] is True
        assert "NaN" in text_of(result)
    else:
        result = peer.result(call(1, "untyped"))
        assert result["isError"] is True
        assert "Infinity at x" in text_of(result)


@pytest.mark.parametrize("size", [1, 20000])
def test_a_lone_surrogate_is_never_sent(size: int, connect: Any, server: Server) -> None:
    odd = "\ud800" * size

    @server.tool
    async def text() -> str:
        return odd

    @server.tool
    async def inside() -> dict[str, str]:
        return {"x": odd}

    @server.tool
    async def raising() -> str:
        raise ValueError(odd[:1])

    @server.tool
    async def refusing() -> str:
        raise ProtocolError(7, odd[:1], {"x": odd[:1]})

    peer = connect("2025-06-18")
    for id, name in enumerate(("text", "inside", "raising")):
        result = peer.result(call(id, name))
        assert result["isError"] is True
    assert "surrogate" in text_of(peer.result(call(3, "text")))
    assert peer.ask(call(4, "refusing"))["error"] == {
        "code": 7, "message": r"\ud800", "data": {"x": r"\ud800"}
    }  # fmt: skip


def test_a_huge_result_arrives_whole(connect: Any, server: Server, version: str) -> None:
    @server.tool
    async def huge() -> str:
        return "é\n" * (5 * 1024 * 1024 // 3)

    peer = connect(version)
    peer.send(tool_call(version, 1, "huge"), tool_call(version, 2, "huge"))
    got = peer.answers(1, 2)
    for answer in got.values():
        assert text_of(answer["result"]) == "é\n" * (5 * 1024 * 1024 // 3)


@pytest.mark.parametrize(
    "pattern", ['a"\\\n\x01é\U0001f600\x7f/', "plain", "é", "\n", "plain" * 900 + "\n☃"]
)
def test_texts_of_all_sizes_are_escaped(pattern: str, connect: Any, server: Server) -> None:
    """Short texts, those with runs to copy and those that are sent from where they lie."""
    sizes = [0, 1, 31, 32, 33, 4501, 4502, 70000]
    sizes += [limit + more for limit in (1024, 4096, 8192, 16384) for more in (-1, 0, 1)]

    @server.tool
    async def give(n: int) -> str:
        return (pattern * (n // len(pattern) + 1))[:n]

    peer = connect("2025-06-18")
    peer.send(*(tool_call("2025-06-18", n, "give", {"n": n}) for n in sizes))
    for n, answer in peer.answers(*sizes).items():
        assert text_of(answer["result"]) == (pattern * (n // len(pattern) + 1))[:n]


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "says"),
    [(object(), "JSON"), (endless(), "contains itself"), (b"x", "return Image")],
    ids=["object", "endless", "bytes"],
)
def test_what_cannot_be_json_is_an_error_of_the_call(
    value: Any, says: str, peer: Any, server: Server
) -> None:
    server.add_tool(lambda: value, name="odd")
    result = peer.result(call(1, "odd"))
    assert (result["isError"], says in text_of(result)) == (True, True)


def test_a_result_with_its_own_meta_keeps_it(version: str, connect: Any, server: Server) -> None:
    from wirespeed.types import ToolResult

    @server.tool
    async def give() -> ToolResult:
        return ToolResult(content=[Image(b"x", "image/png")], meta={"com.example/x": None})

    result = connect(version).result(tool_call(version, 1, "give"))
    assert result["_meta"]["com.example/x"] is None
    assert (META + "serverInfo" in result["_meta"]) == (version == MODERN)


# -- failures -------------------------------------------------------------------------------------


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("kind", ["coroutine", "later", "thread", "inline", "raw"])
def test_an_exception_is_a_result_and_its_traceback_only_logged(
    kind: str, peer: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async def coroutine() -> str:
        raise LookupError("what went wrong")

    async def later() -> str:
        await asyncio.sleep(0)
        raise LookupError("what went wrong")

    def plain(*arguments: Any) -> str:
        raise LookupError("what went wrong")

    def thread() -> str:
        raise LookupError("what went wrong")

    if kind == "raw":
        server.tool_raw("tool", OBJECT, plain, inline=True)
    else:
        function = {"coroutine": coroutine, "later": later}.get(kind, thread)
        server.add_tool(function, name="tool", inline=kind == "inline")
    result = peer.result(call(1, "tool"))
    assert result == {
        "content": [{"type": "text", "text": "what went wrong"}], "isError": True
    }  # fmt: skip
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "tool" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is LookupError


@pytest.mark.parametrize(
    "exc, text",
    [
        (ValueError(), "ValueError"),
        (Silent(), "Silent"),
        (KeyError("k"), "KeyError: 'k'"),
        (asyncio.CancelledError(), "Tool odd was cancelled"),
        (asyncio.CancelledError("why"), "Tool odd was cancelled"),
        (GeneratorExit(), "GeneratorExit"),
        (StopAsyncIteration("s"), "s"),
        (TimeoutError(), "TimeoutError"),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "two (2 sub-exceptions)"),
    ],
)
@pytest.mark.parametrize("inline", [True, False])
def test_odd_exceptions_are_results_too(
    exc: BaseException, text: str, inline: bool, peer: Any, server: Server
) -> None:
    def odd() -> str:
        raise exc

    async def odd_later() -> str:
        await asyncio.sleep(0)
        raise exc

    server.add_tool(odd if inline else odd_later, name="odd", inline=inline)
    peer.send(call(1, "odd"), request(2, "ping"))
    got = peer.answers(1, 2)
    assert got[1]["result"]["isError"] is True
    assert text_of(got[1]["result"]) == text
    assert got[2]["result"] == {}


def test_a_protocol_error_is_a_protocol_error(version: str, connect: Any, server: Server) -> None:
    @server.tool
    async def refuse(data: bool) -> str:
        raise ProtocolError(4711, "no", {"why": [None]} if data else None)

    peer = connect(version)
    answer = peer.ask(tool_call(version, 1, "refuse", {"data": True}))
    assert answer == {
        "jsonrpc": "2.0", "id": 1, "error": {"code": 4711, "message": "no", "data": {"why": [None]}}
    }  # fmt: skip
    answer = peer.ask(tool_call(version, 2, "refuse", {"data": False}))
    assert answer["error"] == {"code": 4711, "message": "no"}


@pytest.mark.parametrize(
    "exc",
    [
        ProtocolError(1, "m", object()),
        ProtocolError(2**40, "m"),
        ProtocolError("x", "m"),  # type: ignore[arg-type]
        ProtocolError(1, b"m"),  # type: ignore[arg-type]
    ],
)
def test_a_protocol_error_that_cannot_be_sent_is_an_internal_error(
    exc: ProtocolError, connect: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    @server.tool
    async def refuse() -> str:
        raise exc

    answer = connect("2025-06-18").ask(call(1, "refuse"))
    assert answer["error"] == {"code": -32603, "message": "Internal error"}
    assert "cannot be sent" in caplog.text


# -- timeouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["coroutine", "thread", "raw"])
def test_a_timeout_ends_the_call_with_an_error(kind: str, connect: Any, server: Server) -> None:
    gate = threading.Event()
    ended: list[str] = []

    async def coroutine() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("coroutine")
        return "never"

    def thread() -> str:
        gate.wait()
        return "never"

    async def raw(arguments: Any) -> str:
        return await coroutine()

    if kind == "raw":
        server.tool_raw("slow", OBJECT, raw, timeout=0.01)
    else:
        server.add_tool(coroutine if kind == "coroutine" else thread, name="slow", timeout=0.01)
    peer = connect("2025-06-18")
    try:
        result = peer.result(call(1, "slow"))
    finally:
        gate.set()
    assert result["isError"] is True
    assert text_of(result) == "Tool slow timed out after 0.01 s"
    assert peer.fence() == []
    if kind != "thread":
        assert ended == ["coroutine"]
    assert peer.connection.session.counters["requests_in_flight"] == 0


async def quick() -> str:
    await asyncio.sleep(0)
    return "quick"


async def late() -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "partial"
    return "never"


async def slow_inside() -> str:
    async with asyncio.timeout(0.005):
        await asyncio.Event().wait()
    return "never"


@pytest.mark.parametrize(
    ("tool", "timeout", "text"),
    [(quick, 1000, "quick"), (late, 0.01, "partial"), (slow_inside, None, "TimeoutError")],
    ids=["not reached", "answered in spite of it", "the tool's own"],
)
def test_what_else_may_come_of_a_timeout(
    tool: Any, timeout: float | None, text: str, peer: Any, server: Server
) -> None:
    server.add_tool(tool, name="tool", timeout=timeout)
    for i in range(5):
        result = peer.result(call(i, "tool"))
        assert (text_of(result), result.get("isError")) == (text, timeout is None or None)


def test_finished_calls_are_not_kept(connect: Any, server: Server) -> None:
    class Value:
        pass

    seen: list[weakref.ref[Value]] = []

    @server.tool
    async def make(ctx: Context) -> str:
        value = Value()
        seen.append(weakref.ref(value))
        await asyncio.sleep(0)
        return str(ctx.request_id)

    peer = connect("2025-06-18")
    for i in range(10):
        peer.result(call(i, "make"))
    peer.fence()
    gc.collect()
    assert [ref for ref in seen if ref() is not None] == []
    assert len(peer.connection.running) == 0


@pytest.mark.parametrize("middleware", [False, True])
@pytest.mark.parametrize("end", ["result", "failure", "refusal", "cancelled", "timeout"])
def test_input_memory_goes_with_the_call_not_at_a_collection(
    end: str,
    middleware: bool,
    modern_peer: Any,
    server: Server,
    collector: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of modern calls, whose context keeps their params."""
    # pytest keeps the tracebacks of what is logged
    monkeypatch.setattr(logging.getLogger("wirespeed.server"), "disabled", True)
    begun = asyncio.Event()

    @server.tool(timeout=0.001 if end == "timeout" else None)
    async def work(text: str, ctx: Context) -> int:
        begun.set()
        await asyncio.sleep(60 if end in ("cancelled", "timeout") else 0)
        if end == "failure":
            raise ValueError(ctx.protocol_version)
        if end == "refusal":
            raise ProtocolError(-5, "will not")
        return len(text)

    if middleware:
        server.add_middleware(pass_on)
    modern_peer.result(modern("first", "tools/list"))
    before = modern_peer.connection.session.counters["slabs_live"]
    for id in range(20):
        modern_peer.send(
            modern(id, "tools/call", {"name": "work", "arguments": {"text": "x" * 200_000}})
        )
        if end == "cancelled":
            modern_peer.wait_for(begun.is_set)
            begun.clear()
            modern_peer.send(cancel(id))
            assert modern_peer.fence() == []
        else:
            assert modern_peer.recv()["id"] == id
    modern_peer.fence()
    assert modern_peer.connection.session.counters["slabs_live"] <= before + 1


@pytest.mark.parametrize("middleware", [False, True])
@pytest.mark.parametrize("inline", [False, True])
def test_a_connection_that_is_idle_keeps_nothing_of_its_last_call(
    inline: bool, middleware: bool, modern_peer: Any, server: Server, collector: None
) -> None:
    def work(text: str, ctx: Context) -> str:
        return text[:1]

    async def work_soon(text: str, ctx: Context) -> str:
        return text[:1]

    server.add_tool(work if inline else work_soon, name="work", inline=inline)
    if middleware:
        server.add_middleware(pass_on)
    modern_peer.result(modern("first", "tools/list"))
    before = modern_peer.connection.session.counters["slabs_live"]
    modern_peer.result(
        modern(1, "tools/call", {"name": "work", "arguments": {"text": "x" * 200_000}})
    )
    assert modern_peer.connection.session.counters["slabs_live"] <= before


# -- names that nothing has ------------------------------------------------------------------------


def test_an_unknown_tool_names_the_nearest_one(server: Server, peer: Peer) -> None:
    @server.tool
    def write() -> str:
        return "written"

    assert peer.error(call(1, "writ")) == (-32602, "Unknown tool: writ; did you mean write?")
    assert peer.error(call(2, "read")) == (-32602, "Unknown tool: read")
