"""Servers mounted on servers: what shows, under which name, and whose rules hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec
import pytest
from lab.raw import call, notification, request
from lab.server import text_of
from lab.wording import raises

from wirespeed import Context, Server
from wirespeed.errors import ProtocolError, StartupError


@pytest.fixture
def peer(newest_peer: Any) -> Any:
    return newest_peer


class Database:
    def __init__(self, name: str) -> None:
        self.name = name


def calculator(**options: Any) -> Server:
    calc = Server("calc", **options)

    @calc.tool(title="Adds")
    async def add(a: int, b: int) -> int:
        return a + b

    @calc.prompt
    async def explain(what: str, style: Literal["brief", "long"] = "brief") -> str:
        """Explain something."""
        return f"Explain {what}, {style}"

    @calc.resource("calc://about")
    def about() -> str:
        return "a calculator"

    calc.add_resource("calc://fixed", "fixed text")

    @calc.resource("calc://table/{n}")
    def table(n: int) -> str:
        return f"table of {n}"

    @calc.completion("calc://table/{n}", "n")
    def numbers(value: str) -> list[str]:
        return [n for n in ("1", "12", "2") if n.startswith(value)]

    return calc


def names(peer: Any, kind: str = "tools", key: str = "name") -> list[str]:
    method = "resources/templates/list" if kind == "resourceTemplates" else f"{kind}/list"
    return [entry[key] for entry in peer.result(request("list", method))[kind]]


def read(peer: Any, uri: str) -> dict[str, Any]:
    (contents,) = peer.result(request("read", "resources/read", {"uri": uri}))["contents"]
    found: dict[str, Any] = contents
    return found


def complete(peer: Any, ref: dict[str, str], argument: str, value: str) -> list[str]:
    params = {"ref": ref, "argument": {"name": argument, "value": value}}
    completion = peer.result(request("c", "completion/complete", params))["completion"]
    values: list[str] = completion["values"]
    return values


@contextmanager
def served(peer: Any) -> Iterator[Any]:
    running = peer.server.running()
    state = peer.run(running.__aenter__())
    try:
        yield state
    finally:
        peer.run(running.__aexit__(None, None, None))


# -- what shows -----------------------------------------------------------------------------------


def test_everything_shows_under_the_prefix(modern_peer: Any, server: Server) -> None:
    server.mount("calc", calculator())
    offered = modern_peer.handshake("2025-11-25")["capabilities"]
    assert {"tools", "prompts", "resources", "completions"} <= set(offered)
    assert names(modern_peer) == ["calc_add"]
    assert names(modern_peer, "prompts") == ["calc_explain"]
    assert names(modern_peer, "resources", "uri") == ["calc://about", "calc://fixed"]
    assert names(modern_peer, "resourceTemplates", "uriTemplate") == ["calc://table/{n}"]
    (tool,) = modern_peer.result(request(1, "tools/list"))["tools"]
    assert tool["title"] == "Adds"
    result = modern_peer.result(call(2, "calc_add", {"a": 1, "b": 2}))
    assert result["structuredContent"] == {"result": 3}
    got = modern_peer.result(
        request(3, "prompts/get", {"name": "calc_explain", "arguments": {"what": "sums"}})
    )
    assert got["messages"][0]["content"]["text"] == "Explain sums, brief"
    assert got["description"] == "Explain something."
    assert read(modern_peer, "calc://about")["text"] == "a calculator"
    assert read(modern_peer, "calc://fixed")["text"] == "fixed text"
    assert read(modern_peer, "calc://table/7")["text"] == "table of 7"
    ref = {"type": "ref/resource", "uri": "calc://table/{n}"}
    assert complete(modern_peer, ref, "n", "1") == ["1", "12"]


def test_the_names_of_the_mounted_server_itself_are_not_known(peer: Any, server: Server) -> None:
    server.mount("calc", calculator())
    assert peer.error(call(1, "add", {"a": 1, "b": 2})) == (-32602, "Unknown tool: add")


def test_faults_name_the_tool_as_the_client_knows_it(peer: Any, server: Server) -> None:
    server.mount("calc", calculator())
    text = text_of(peer.result(call(1, "calc_add", {"a": "x"})))
    assert text.startswith("Invalid arguments for tool calc_add")


def test_a_mounted_server_goes_on_by_itself(connect: Any, server: Server) -> None:
    calc = calculator()
    server.mount("calc", calc)
    assert names(connect("2025-11-25", to=calc)) == ["add"]
    assert list(calc.tools) == ["add"]


@pytest.mark.parametrize(
    ("prefix", "options", "shown"),
    [
        ("calc", {"separator": "."}, "calc.add"),
        ("calc", {"separator": ""}, "calcadd"),
        ("", {}, "add"),
        ("a-b", {}, "a-b_add"),
    ],
)
def test_how_prefix_and_name_are_joined(
    peer: Any, server: Server, prefix: str, options: dict[str, str], shown: str
) -> None:
    server.mount(prefix, calculator(), **options)
    assert names(peer) == [shown]
    assert peer.result(call(1, shown, {"a": 1, "b": 2}))["structuredContent"] == {"result": 3}


def test_uris_may_have_a_prefix(peer: Any, server: Server) -> None:
    calc = calculator()
    server.mount("a", calc, uri_prefix="a+")
    server.mount("b", calc, uri_prefix="b:")
    assert names(peer, "resources", "uri") == [
        "a+calc://about",
        "a+calc://fixed",
        "b:calc://about",
        "b:calc://fixed",
    ]
    for prefix in ("a+", "b:"):
        for uri, text in (("about", "a calculator"), ("fixed", "fixed text")):
            contents = read(peer, f"{prefix}calc://{uri}")
            assert (contents["uri"], contents["text"]) == (f"{prefix}calc://{uri}", text)
        contents = read(peer, f"{prefix}calc://table/7")
        assert (contents["uri"], contents["text"]) == (f"{prefix}calc://table/7", "table of 7")
        ref = {"type": "ref/resource", "uri": f"{prefix}calc://table/{{n}}"}
        assert complete(peer, ref, "n", "2") == ["2"]
    code, _ = peer.error(request(1, "resources/read", {"uri": "calc://about"}))
    assert code == -32002


def test_mounts_nest(peer: Any, server: Server) -> None:
    middle = Server("middle")
    server.mount("outer", middle, uri_prefix="o+")
    middle.mount("inner", calculator(), uri_prefix="i+")  # behind the first: it is live
    assert names(peer) == ["outer_inner_add"]
    result = peer.result(call(1, "outer_inner_add", {"a": 1, "b": 2}))
    assert result["structuredContent"] == {"result": 3}
    assert read(peer, "o+i+calc://table/7")["text"] == "table of 7"


def test_tools_that_run_as_tasks_do_so_where_they_show(modern_peer: Any, server: Server) -> None:
    calc = Server("calc")
    server.mount("calc", calc)

    @calc.tool(task="required")
    async def slow() -> str:
        return "done"

    assert "tasks" in modern_peer.handshake("2025-11-25")["capabilities"]
    params = {"name": "calc_slow", "arguments": {}, "task": {}}
    task = modern_peer.result(request(1, "tools/call", params))["task"]
    modern_peer.send(request(2, "tasks/result", {"taskId": task["taskId"]}))
    assert text_of(modern_peer.until(2)[-1]["result"]) == "done"


# -- changes --------------------------------------------------------------------------------------


def test_what_changes_at_the_mounted_server_shows(peer: Any, server: Server) -> None:
    calc = calculator()
    server.mount("calc", calc)
    peer.fence()

    async def later(n: int) -> int:
        return -n

    calc.add_tool(later)
    assert peer.recv() == notification("notifications/tools/list_changed")
    assert names(peer) == ["calc_add", "calc_later"]
    assert peer.result(call(1, "calc_later", {"n": 1}))["structuredContent"] == {"result": -1}
    calc.remove_tool("later")
    assert peer.recv() == notification("notifications/tools/list_changed")
    assert names(peer) == ["calc_add"]
    calc.remove_tool("add")
    calc.add_tool(later, name="add")
    assert peer.recv() == notification("notifications/tools/list_changed")
    assert peer.result(call(2, "calc_add", {"n": 1}))["structuredContent"] == {"result": -1}
    calc.add_resource("calc://new", "new")
    assert peer.recv() == notification("notifications/resources/list_changed")
    assert read(peer, "calc://new")["text"] == "new"
    calc.remove_prompt("explain")
    assert peer.recv() == notification("notifications/prompts/list_changed")
    assert names(peer, "prompts") == []


def test_completers_that_come_later_are_there(connect: Any, server: Server) -> None:
    calc = calculator()
    server.mount("calc", calc)

    @calc.completion("explain", "what")
    def whats(value: str) -> list[str]:
        return ["sums"]

    peer = connect("2025-11-25")
    ref = {"type": "ref/prompt", "name": "calc_explain"}
    assert complete(peer, ref, "what", "") == ["sums"]


def test_updates_of_resources_reach_those_who_subscribed(peer: Any, server: Server) -> None:
    calc = calculator()
    server.mount("calc", calc, uri_prefix="c+")
    peer.result(request(1, "resources/subscribe", {"uri": "c+calc://about"}))
    calc.resource_updated("calc://about")
    assert peer.recv() == notification("notifications/resources/updated", {"uri": "c+calc://about"})


def test_unmounting_takes_everything_away(peer: Any, server: Server) -> None:
    calc = calculator()
    server.mount("calc", calc)
    server.mount("again", calc, uri_prefix="a+")

    @server.tool
    async def own() -> str:
        return "own"

    server.unmount(calc)
    assert names(peer) == ["own"]
    assert names(peer, "prompts") == []
    assert names(peer, "resources") == []
    assert names(peer, "resourceTemplates") == []
    calc.remove_tool("add")
    calc.add_resource("calc://later", "later")
    assert server.resources == {}
    with raises(ValueError):
        server.unmount(calc)
    server.mount("calc", calc)
    assert list(server.resources) == ["calc://about", "calc://fixed", "calc://later"]


def test_what_is_taken_away_where_it_shows_stays_away(server: Server) -> None:
    calc = calculator()
    server.mount("calc", calc)
    server.remove_tool("calc_add")
    calc.add_tool(nothing)
    assert list(server.tools) == ["calc_nothing"]
    calc.remove_tool("add")
    server.unmount(calc)
    assert server.tools == {}


def test_the_server_may_come_first(server: Server) -> None:
    server.mount(calculator(), namespace="calc")
    assert list(server.tools) == ["calc_add"]
    other = calculator()
    other.remove_resource("calc://about")
    other.remove_resource("calc://fixed")
    other.remove_resource("calc://table/{n}")
    server.mount(other)
    assert list(server.tools) == ["calc_add", "add"]


# -- what is refused ------------------------------------------------------------------------------


def test_a_prefix_is_given_once(server: Server) -> None:
    with raises(TypeError):
        server.mount("calc", calculator(), namespace="calc")  # type: ignore[call-overload]
    with raises(TypeError):
        server.mount(calculator(), namespace=5)  # type: ignore[call-overload]
    with raises(TypeError):
        server.mount("calc")  # type: ignore[call-overload]


def nothing() -> str:
    return ""


def test_a_name_that_is_taken_refuses_the_mount(connect: Any, server: Server) -> None:
    server.add_tool(nothing, name="calc_add")
    calc = calculator()
    with raises(ValueError):
        server.mount("calc", calc)
    assert list(server.tools) == ["calc_add"]
    assert server.prompts == {}
    assert server.resources == {}
    calc.add_tool(nothing)  # it is not mounted, not even a bit
    assert list(server.tools) == ["calc_add"]


def test_a_uri_that_is_taken_refuses_the_mount(server: Server) -> None:
    server.add_resource("calc://about", "mine")
    with raises(ValueError):
        server.mount("calc", calculator())
    server.mount("calc", calculator(), uri_prefix="c+")


def test_a_name_that_is_taken_is_refused_where_it_is_registered(server: Server) -> None:
    middle, calc = Server("middle"), calculator()
    server.mount("outer", middle)
    middle.mount("calc", calc)
    server.add_tool(nothing, name="outer_calc_nothing")
    with raises(ValueError):
        calc.add_tool(nothing)
    for each, shown in ((calc, "add"), (middle, "calc_add"), (server, "outer_calc_add")):
        assert shown in each.tools
    assert "nothing" not in calc.tools
    assert "calc_nothing" not in middle.tools
    with raises(ValueError):
        server.add_tool(nothing, name="outer_calc_add")


@pytest.mark.parametrize(
    ("prefix", "options"),
    [("a b", {}), ("ä", {}), ("a", {"separator": "/"}), ("a", {"uri_prefix": "a b"})],
)
def test_prefixes_that_cannot_stand_there_are_refused(
    server: Server, prefix: str, options: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=r"letters, digits|not a URI"):
        server.mount(prefix, calculator(), **options)
    assert server.tools == {}


def test_no_circles(server: Server) -> None:
    other = Server("other")
    server.mount("other", other)
    for one, two in ((server, server), (other, server)):
        with raises(ValueError):
            one.mount("circle", two)


# -- what is the mounted server's own -------------------------------------------------------------


def test_dependencies_are_those_of_its_own_server(peer: Any, server: Server) -> None:
    calc = Server("calc")
    events: list[str] = []

    for each in (server, calc):

        @each.provide(scope="server")
        async def database(of: Server) -> AsyncIterator[Database]:
            events.append(f"open {of.name}")
            yield Database(of.name)
            events.append(f"close {of.name}")

        @each.tool
        async def which(db: Database) -> str:
            return db.name

    server.mount("calc", calc)
    with served(peer):
        assert text_of(peer.result(call(1, "calc_which"))) == "calc"
        assert text_of(peer.result(call(2, "which"))) == "lab"
    assert events == ["open calc", "open lab", "close lab", "close calc"]


class Point(msgspec.Struct):
    x: int = 0


async def where(point: Point) -> str:
    return f"at {point.x}"


async def make_point() -> Point:
    return Point(7)


def test_what_is_provided_here_is_still_an_argument_there(peer: Any, server: Server) -> None:
    calc = Server("calc")
    calc.add_tool(where)
    server.mount("calc", calc)
    server.provide(make_point)
    server.add_tool(where)
    assert text_of(peer.result(call(1, "calc_where", {"point": {"x": 1}}))) == "at 1"
    assert text_of(peer.result(call(2, "where"))) == "at 7"


def lively(name: str, events: list[str]) -> Server:
    async def lifespan(server: Server) -> AsyncIterator[str]:
        events.append(f"begin {name}")
        yield f"state of {name}"
        events.append(f"end {name}")

    lively = Server(name, lifespan=lifespan)

    @lively.tool
    async def state(ctx: Context) -> str:
        return str(ctx.lifespan_state)

    @lively.prompt
    async def state_too(x: str, ctx: Context) -> str:
        return str(ctx.lifespan_state)

    @lively.completion("state_too", "x")
    async def complete(value: str, *, ctx: Context) -> list[str]:
        return [str(ctx.lifespan_state)]

    @lively.resource(f"{name}://state")
    async def state_again(ctx: Context) -> str:
        return str(ctx.lifespan_state)

    return lively


def test_lifespans_hold_for_what_is_mounted(connect: Any) -> None:
    events: list[str] = []
    outer, inner = lively("outer", events), lively("inner", events)
    outer.mount("in", inner)
    peer = connect("2025-11-25", to=outer)
    with served(peer):
        assert text_of(peer.result(call(1, "state"))) == "state of outer"
        assert text_of(peer.result(call(2, "in_state"))) == "state of inner"
        got = peer.result(
            request(3, "prompts/get", {"name": "in_state_too", "arguments": {"x": "y"}})
        )
        assert got["messages"][0]["content"]["text"] == "state of inner"
        assert read(peer, "inner://state")["text"] == "state of inner"
        assert read(peer, "outer://state")["text"] == "state of outer"
        ref = {"type": "ref/prompt", "name": "in_state_too"}
        assert complete(peer, ref, "x", "") == ["state of inner"]
    assert events == ["begin outer", "begin inner", "end inner", "end outer"]


def test_a_server_that_is_mounted_later_begins_then(connect: Any) -> None:
    events: list[str] = []
    outer, inner = lively("outer", events), lively("inner", events)
    peer = connect("2025-11-25", to=outer)
    with served(peer):
        peer.fence()
        outer.mount("in", inner)
        peer.wait_for(lambda: "begin inner" in events)
        peer.fence()
        assert text_of(peer.result(call(1, "in_state"))) == "state of inner"
        outer.unmount(inner)
        peer.wait_for(lambda: "end inner" in events)
    assert events == ["begin outer", "begin inner", "end inner", "end outer"]
    assert inner.service.life is None


def test_one_that_does_not_start_stops_the_start(connect: Any) -> None:
    events: list[str] = []
    outer = lively("outer", events)

    async def broken(server: Server) -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    outer.mount("broken", Server("broken", lifespan=broken))
    peer = connect("2025-11-25", to=outer)
    with raises(StartupError), served(peer):
        pass
    assert events == ["begin outer"]
    assert outer.service.life is None


def test_one_that_does_not_start_when_it_is_mounted_later_is_logged(
    connect: Any, caplog: Any
) -> None:
    events: list[str] = []
    outer = lively("outer", events)

    async def broken(server: Server) -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    peer = connect("2025-11-25", to=outer)
    with served(peer):
        outer.mount("broken", Server("broken", lifespan=broken))
        peer.wait_for(lambda: caplog.records)
        assert text_of(peer.result(call(1, "state"))) == "state of outer"
    assert "server 'broken' cannot be started: OSError: no database" in caplog.text
    assert events == ["begin outer", "end outer"]


def test_limits_are_shared_with_its_own_clients(connect: Any, server: Server) -> None:
    calc = Server("calc")
    go = asyncio.Event()

    @calc.tool(max_concurrency=1, queue=0)
    async def slow() -> str:
        await go.wait()
        return "done"

    server.mount("calc", calc)
    outer, own = connect("2025-11-25"), connect("2025-11-25", to=calc)
    outer.send(call(1, "calc_slow"))
    assert outer.fence() == []
    assert own.result(call(2, "slow"))["isError"] is True
    go.set()
    assert text_of(outer.recv()["result"]) == "done"


def test_middleware_of_both_is_passed_outside_in(connect: Any, server: Server) -> None:
    seen: list[str] = []

    def watch(of: Server) -> None:
        async def middleware(request: Any, call_next: Any) -> Any:
            seen.append(f"{of.name}: {request.method}")
            return await call_next(request)

        of.add_middleware(middleware)

    middle, calc = Server("middle"), calculator()
    server.mount("m", middle)
    middle.mount("c", calc, uri_prefix="c+")
    peer = connect("2025-11-25")  # connected before there was any
    watch(calc)
    server.unmount(middle)
    server.mount("m", middle)
    watch(server)

    @server.tool
    async def own() -> str:
        return "own"

    peer = connect("2025-11-25")
    seen.clear()

    def passed() -> list[str]:
        events = list(seen)
        seen.clear()
        return [event.partition(":")[0] for event in events]

    assert peer.result(call(1, "m_c_add", {"a": 1, "b": 2}))["structuredContent"] == {"result": 3}
    assert passed() == ["lab", "calc"]
    peer.result(call(2, "own"))
    assert passed() == ["lab"]
    names(peer)
    assert passed() == ["lab"]
    peer.result(request(3, "prompts/get", {"name": "m_c_explain", "arguments": {"what": "x"}}))
    assert passed() == ["lab", "calc"]
    read(peer, "c+calc://about")
    assert passed() == ["lab", "calc"]
    read(peer, "c+calc://table/7")
    assert passed() == ["lab", "calc"]
    complete(peer, {"type": "ref/prompt", "name": "m_c_explain"}, "style", "")
    assert passed() == ["lab", "calc"]
    complete(peer, {"type": "ref/resource", "uri": "c+calc://table/{n}"}, "n", "")
    assert passed() == ["lab", "calc"]
    peer.error(request(4, "completion/complete", {"ref": {"type": "ref/odd"}}))
    assert passed() == ["lab"]
    watch(middle)
    peer = connect("2025-11-25")
    seen.clear()
    peer.result(call(5, "m_c_add", {"a": 1, "b": 2}))
    assert passed() == ["lab", "middle", "calc"]


def test_middleware_guards_what_is_mounted_at_once(peer: Any, server: Server) -> None:
    calc = calculator()

    @calc.add_middleware
    async def nobody(request: Any, call_next: Any) -> Any:
        raise ProtocolError(-31999, "not you")

    server.add_tool(nothing)
    peer.fence()
    server.mount("calc", calc)
    assert peer.recv() == notification("notifications/tools/list_changed")
    peer.fence()
    assert peer.error(call(1, "calc_add", {"a": 1, "b": 2})) == (-31999, "not you")
    assert text_of(peer.result(call(2, "nothing"))) == ""
    server.unmount(calc)
    assert server.service.middleware.chain is None
