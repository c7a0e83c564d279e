"""tools/list: pages, what each revision shows, and changes at run time."""

from __future__ import annotations

import base64
import threading
from typing import Any

import pytest
from lab.raw import META, cancel, initialize, modern, notification, request
from lab.server import MODERN
from lab.wording import raises

from wirespeed import Server
from wirespeed.server.subscriptions import MAX_OPEN
from wirespeed.types import Icon

CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


def ask(peer: Any, version: str, id: int = 1, **params: Any) -> Any:
    if version == MODERN:
        return peer.ask(modern(id, "tools/list", params))
    return peer.ask(request(id, "tools/list", params))


async def nothing() -> None:
    pass


def numbered(n: int, **options: Any) -> Server:
    server = Server("pages", **options)
    for i in range(n):
        server.add_tool(nothing, name=f"tool-{i}")
    return server


# -- pages ----------------------------------------------------------------------------------------


def test_a_page_size_below_one_is_refused() -> None:
    with raises(ValueError):
        Server("x", page_size=0)


def test_odd_names_do_not_break_the_list(connect: Any, version: str) -> None:
    server = Server("odd", page_size=2)
    names = ["with space", "ümlaut/слово", "x" * 300, 'quo"te', "nul\0", "日本", ""]
    for name in names:
        server.tool_raw(name, {"type": "object"}, nothing)
    peer = connect(version, to=server)
    got: list[str] = []
    params: dict[str, Any] = {}
    while True:
        result = ask(peer, version, **params)["result"]
        got += [tool["name"] for tool in result["tools"]]
        if "nextCursor" not in result:
            break
        params = {"cursor": result["nextCursor"]}
    assert got == names


# -- what a revision shows ------------------------------------------------------------------------


@pytest.mark.every_revision
def test_an_entry_has_what_the_revision_has(version: str, connect: Any) -> None:
    server = Server("full")

    @server.tool(
        title="Full",
        annotations={"readOnlyHint": True},
        icons=[Icon("https://example.org/i.png", mime_type="image/png")],
        meta={"com.example/x": 1},
    )
    async def full(n: int, text: str = "x") -> dict[str, int]:
        """Everything at once."""
        return {"n": n}

    (entry,) = ask(connect(version, to=server), version)["result"]["tools"]
    wanted = {"name", "description", "inputSchema"}
    if version >= "2025-03-26":
        wanted.add("annotations")
    if version >= "2025-06-18":
        wanted |= {"title", "outputSchema", "_meta"}
    if version >= "2025-11-25":
        wanted.add("icons")
    assert set(entry) == wanted
    assert entry["description"] == "Everything at once."
    assert entry["inputSchema"]["required"] == ["n"]
    assert entry["inputSchema"]["type"] == "object"
    if version >= "2025-11-25":
        assert entry["icons"] == [{"src": "https://example.org/i.png", "mimeType": "image/png"}]


def test_an_output_schema_that_is_no_object_is_shown_from_2026_07_28_on(
    version: str, connect: Any
) -> None:
    server = Server("raw")
    server.tool_raw("list", {"type": "object"}, nothing, output_schema={"type": "array"})
    (entry,) = ask(connect(version, to=server), version)["result"]["tools"]
    assert ("outputSchema" in entry) == (version == MODERN)


def test_a_text_in_place_of_the_function_is_the_name(version: str, connect: Any) -> None:
    server = Server("named")
    add = server.tool("add-numbers", title="Add")(nothing)
    assert add is nothing
    (entry,) = ask(connect(version, to=server), version)["result"]["tools"]
    assert (entry["name"], entry.get("title", "Add")) == ("add-numbers", "Add")


def test_a_plain_tool_has_no_empty_members(version: str, connect: Any) -> None:
    server = Server("plain")
    server.add_tool(nothing, name="plain")
    (entry,) = ask(connect(version, to=server), version)["result"]["tools"]
    assert set(entry) == {"name", "inputSchema"}


# -- changes --------------------------------------------------------------------------------------


def test_nothing_is_said_before_initialized(modern_peer: Any, server: Server) -> None:
    modern_peer.send(notification("notifications/initialized"))  # too early: means nothing
    server.add_tool(nothing, name="one")
    assert modern_peer.fence() == []
    modern_peer.ask(initialize(1))
    server.add_tool(nothing, name="two")
    assert modern_peer.fence() == []
    modern_peer.send(notification("notifications/initialized"))
    modern_peer.fence()
    server.add_tool(nothing, name="three")
    assert modern_peer.recv() == CHANGED


def test_a_modern_client_without_a_listen_is_told_nothing(modern_peer: Any, server: Server) -> None:
    modern_peer.send(notification("notifications/initialized"))
    modern_peer.result(modern(1, "tools/list"))
    server.add_tool(nothing, name="one")
    assert modern_peer.fence() == []
    assert len(ask(modern_peer, MODERN)["result"]["tools"]) == 1


def test_a_change_from_another_thread_is_told(peer: Any, server: Server) -> None:
    peer.fence()
    thread = threading.Thread(target=server.add_tool, args=(nothing,), kwargs={"name": "one"})
    thread.start()
    thread.join()
    assert peer.recv() == CHANGED
    assert len(ask(peer, "2025-06-18")["result"]["tools"]) == 1


def test_a_removed_tool_is_unknown_and_its_calls_go_on(peer: Any, server: Server) -> None:
    import asyncio

    gate = asyncio.Event()

    @server.tool
    async def wait() -> str:
        await gate.wait()
        return "done"

    peer.send(request(1, "tools/call", {"name": "wait"}))
    peer.fence()
    server.remove_tool("wait")
    peer.recv()
    assert peer.error(request(2, "tools/call", {"name": "wait"}))[0] == -32602
    peer.loop.call_soon(gate.set)
    assert peer.recv()["id"] == 1


def test_a_tool_can_change_the_tools(peer: Any, server: Server) -> None:
    @server.tool(inline=True)
    def grow() -> str:
        server.add_tool(nothing, name="grown")
        return "grown"

    peer.send(request(1, "tools/call", {"name": "grow"}))
    answers = [peer.recv(), peer.recv()]
    assert CHANGED in answers
    assert "grown" in server.tools


# -- subscriptions/listen -------------------------------------------------------------------------

WANTED = {"notifications": {"toolsListChanged": True}}
SUBSCRIPTION = META + "subscriptionId"


def tagged(message: Any) -> Any:
    return message["params"]["_meta"][SUBSCRIPTION]


@pytest.mark.parametrize("id", [1, "1", 0, "", -5, "é"])
def test_the_acknowledgement_comes_first_with_the_id_as_it_was(id: Any, connect: Any) -> None:
    ack = connect().ask(modern(id, "subscriptions/listen", WANTED))
    assert ack == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"_meta": {SUBSCRIPTION: id}, "notifications": {"toolsListChanged": True}},
    }
    assert type(tagged(ack)) is type(id)


def test_the_acknowledgement_leaves_out_what_is_not_supported(connect: Any, server: Server) -> None:
    peer = connect()
    wanted = {"promptsListChanged": True, "resourceSubscriptions": ["a:b"], "com.example/x": 1}
    ack = peer.ask(modern(1, "subscriptions/listen", {"notifications": wanted}))
    assert ack["params"]["notifications"] == {}
    server.add_tool(nothing, name="one")
    assert peer.fence() == []


def test_each_listen_gets_its_own_tagged_copy(connect: Any, server: Server) -> None:
    peer = connect()
    for id in (1, "1", 2):
        peer.ask(modern(id, "subscriptions/listen", WANTED))
    peer.ask(modern(3, "subscriptions/listen", {"notifications": {"toolsListChanged": False}}))
    server.add_tool(nothing, name="one")
    got = [peer.recv() for _ in range(3)]
    assert {message["method"] for message in got} == {CHANGED["method"]}
    assert [tagged(message) for message in got] == [1, "1", 2]
    assert peer.fence() == []


def test_a_cancelled_listen_ends_silently_and_the_others_go_on(
    connect: Any, server: Server
) -> None:
    peer = connect()
    for id in (1, 2):
        peer.ask(modern(id, "subscriptions/listen", WANTED))
    peer.send(cancel(1))
    assert peer.fence() == []
    server.add_tool(nothing, name="one")
    assert tagged(peer.recv()) == 2
    peer.send(cancel(2), cancel(2))
    peer.fence()
    server.add_tool(nothing, name="two")
    assert peer.fence() == []
    assert peer.connection.session.counters["requests_in_flight"] == 0
    assert peer.connection.session.n_cancelled == 0
    assert peer.connection.listens == {}
    assert peer.ask(modern(1, "subscriptions/listen", WANTED))["method"].endswith("acknowledged")


def test_a_listen_whose_id_is_in_flight_is_refused(modern_peer: Any) -> None:
    modern_peer.ask(modern(1, "subscriptions/listen", WANTED))
    assert modern_peer.error(modern(1, "subscriptions/listen", WANTED))[0] == -32600
    assert len(modern_peer.connection.listens) == 1


def test_too_many_listens_are_refused_and_the_connection_goes_on(connect: Any) -> None:
    peer = connect()
    for id in range(MAX_OPEN):
        assert peer.ask(modern(id, "subscriptions/listen", WANTED))["method"].endswith(
            "acknowledged"
        )
    assert peer.error(modern("more", "subscriptions/listen", WANTED))[0] == -31000
    peer.send(cancel(0))
    assert peer.ask(modern("more", "subscriptions/listen", WANTED))["method"].endswith(
        "acknowledged"
    )


@pytest.mark.parametrize("params", [{}, {"notifications": None}, {"notifications": [1]}])
def test_a_listen_without_a_wish_list_is_invalid(params: Any, modern_peer: Any) -> None:
    assert modern_peer.error(modern(1, "subscriptions/listen", params))[0] == -32602
    assert modern_peer.connection.session.counters["requests_in_flight"] == 0


def test_a_shutdown_ends_each_listen_with_a_cancellation_and_a_result(
    connect: Any,
) -> None:
    peer = connect()
    for id in (1, "two"):
        peer.ask(modern(id, "subscriptions/listen", WANTED))
    peer.end_input()
    for id in (1, "two"):
        assert peer.recv() == {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": id},
        }
        result = peer.recv()
        assert result["id"] == id
        assert result["result"]["resultType"] == "complete"
        assert result["result"]["_meta"][SUBSCRIPTION] == id
        assert result["result"]["_meta"][META + "serverInfo"]["name"] == "lab"
    peer.wait_for(peer.connection.closed.done)


def test_listens_of_one_connection_are_not_told_to_another(connect: Any, server: Server) -> None:
    one, other = connect(), connect()
    one.ask(modern(1, "subscriptions/listen", WANTED))
    other.result(modern(1, "tools/list"))
    server.add_tool(nothing, name="one")
    assert tagged(one.recv()) == 1
    assert other.fence() == []


def test_the_cursor_is_the_name_of_the_last_tool(connect: Any) -> None:
    """Documented, so that a reader of logs can decode it."""
    cursor = ask(connect(to=numbered(3, page_size=2)), MODERN)["result"]["nextCursor"]
    assert base64.urlsafe_b64decode(cursor) == b"tool-1"


def test_a_list_on_one_page_has_no_cursors(connect: Any) -> None:
    """A client cannot have pages made that were never offered."""
    server = numbered(3)
    made_up = base64.urlsafe_b64encode(b"tool-0").decode()
    assert ask(connect(to=server), MODERN, cursor=made_up)["error"]["code"] == -32602
    paged = numbered(4, page_size=2)
    peer = connect(to=paged)
    assert len(ask(peer, MODERN, cursor=made_up)["result"]["tools"]) == 2
    ask(peer, MODERN)
    assert paged.service.tools.n_encoded == 1  # what lies between the pages is not kept
