"""Entries of lists that only some users see."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab.caller import Caller
from lab.lists import KINDS, Kind, found
from lab.raw import request
from lab.server import MODERN, text_of
from lab.wording import raises

from wirespeed import Server, User
from wirespeed.transport.service import Peer
from wirespeed.types import PromptEntry, ResourceEntry, TemplateEntry, ToolEntry

pytestmark = pytest.mark.compiled


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def number_of(entry: Any) -> int:
    key = entry.uri if isinstance(entry, ResourceEntry) else entry.name
    if isinstance(entry, TemplateEntry):
        key = entry.uri_template.removesuffix("/{x}")
    return int(key.rpartition("-")[2].rpartition("/")[2])


def odd_for_anne(user: User | None, entry: Any) -> bool:
    """Anne sees odd numbers, nobody else does; all see even ones."""
    return number_of(entry) % 2 == 0 or user == "anne"


def named(client: Caller, name: str | None) -> Caller:
    """The client of a user, as if the transport had said so."""
    if name is not None:
        client.peer.connection.peer = Peer("somewhere", User(name))
    return client


@pytest.mark.parametrize("size", [None, 2])
def test_each_user_sees_their_own_list(kind: Kind, size: int | None, caller: Any) -> None:
    server = Server("lab", page_size=size, filter=odd_for_anne)
    kind.fill(server, *range(6))
    for name, numbers in (("anne", range(6)), ("bob", (0, 2, 4)), (None, (0, 2, 4))):
        client = named(caller(server), name)
        keys, cursor = kind.page(client)
        while cursor is not None:
            more, cursor = kind.page(client, cursor=cursor)
            assert 0 < len(more) <= 2
            keys += more
        assert keys == kind.named(*numbers)


@pytest.mark.parametrize("hidden", [True, False])
def test_a_list_with_a_filter_is_private(kind: Kind, hidden: bool, caller: Any) -> None:
    server = Server("lab", cache_scope="public", list_ttl_ms=9, filter=lambda user, entry: hidden)
    kind.fill(server, 1)
    plain = kind.fill(Server("lab", cache_scope="public", list_ttl_ms=9), 1)
    for one, scope in ((server, "private"), (plain, "public")):
        result = caller(one, version=MODERN).result(kind.method)
        assert (result["cacheScope"], result["ttlMs"]) == (scope, 9)


def test_what_a_user_does_not_see_is_unknown_to_them(kind: Kind, caller: Any) -> None:
    """The answers about hidden entries and about missing ones differ in nothing but the name."""
    server = kind.fill(Server("lab", filter=odd_for_anne), 0, 1)
    bob, anne = named(caller(server), "bob"), named(caller(server), "anne")
    for _ in range(2):  # the second call is not answered from what the first one found
        assert "result" in kind.ask(anne, 1)
        assert "result" in kind.ask(bob, 0)
        hidden, missing = kind.ask(bob, 1)["error"], kind.ask(bob, 3)["error"]
        keys = [kind.use(kind.keys.format(n))[1].popitem()[1] for n in (1, 3)]
        assert json.dumps(hidden).replace(*keys) == json.dumps(missing)


def test_an_unknown_name_is_not_answered_with_a_hidden_one(caller: Any) -> None:
    server = Server("lab", filter=lambda user, entry: entry.name != "secret")
    server.add_tool(found, name="secret")
    server.add_prompt(found, name="secret")
    one = caller(server)
    for method in ("tools/call", "prompts/get"):
        assert "did you mean" not in one.error(method, name="secre")["message"]


def test_a_filter_sees_entries_of_their_classes(caller: Any) -> None:
    seen: dict[str, Any] = {}

    def note(user: User | None, entry: Any) -> bool:
        seen[type(entry).__name__] = entry
        return True

    server = Server("lab", filter=note)
    server.add_tool(found, name="a-tool", annotations={"readOnlyHint": True}, meta={"x/tag": 1})
    server.add_prompt(found, name="a-prompt", title="A prompt")
    server.add_resource("a://fixed", "text", size=4)
    server.add_resource("a://{x}", found)
    one = caller(server)
    for kind in KINDS.values():
        kind.page(one)
    tool, prompt = seen.pop("ToolEntry"), seen.pop("PromptEntry")
    resource, template = seen.pop("ResourceEntry"), seen.pop("TemplateEntry")
    assert not seen
    assert isinstance(tool, ToolEntry) and isinstance(prompt, PromptEntry)
    assert (tool.name, tool.annotations, tool.meta) == (
        "a-tool", {"readOnlyHint": True}, {"x/tag": 1}
    )  # fmt: skip
    assert (prompt.name, prompt.title) == ("a-prompt", "A prompt")
    assert (resource.uri, resource.size, template.uri_template) == ("a://fixed", 4, "a://{x}")


def test_a_hidden_resource_leaves_its_uri_to_templates(caller: Any) -> None:
    server = Server("lab", filter=lambda user, entry: user == "anne" or entry.name != "fixed")
    server.add_resource("a://1", "of the resource", name="fixed")
    server.add_resource("a://{x}", lambda x: "of the template", name="template")
    for name, text in (("anne", "of the resource"), ("bob", "of the template")):
        result = named(caller(server), name).plain("resources/read", uri="a://1")
        assert result["contents"][0]["text"] == text


def test_hidden_prompts_and_templates_do_not_complete(caller: Any) -> None:
    server = Server("lab", filter=lambda user, entry: user == "anne")
    server.add_prompt(lambda flag: "x", name="prompt").complete("flag")(lambda value: ["a"])
    server.add_resource("a://{x}", found, name="t").complete("x")(lambda value: ["b"])  # type: ignore[union-attr]
    anne, bob = named(caller(server), "anne"), named(caller(server), "bob")
    for ref, name, value in (
        ({"type": "ref/prompt", "name": "prompt"}, "flag", "a"),
        ({"type": "ref/resource", "uri": "a://{x}"}, "x", "b"),
        ({"type": "ref/resource", "uri": "a://some"}, "x", "b"),
    ):
        params = {"ref": ref, "argument": {"name": name, "value": ""}}
        completion = anne.result("completion/complete", **params)["completion"]
        assert completion["values"] == [value]
        assert bob.error("completion/complete", **params)["code"] == -32602


def test_updates_of_hidden_resources_are_not_told(connect: Any) -> None:
    server = Server("lab", filter=lambda user, entry: user == "anne")
    server.add_resource("a://1", "text")
    for name, told in (("anne", ["a://1", "a://elsewhere"]), ("bob", ["a://elsewhere"])):
        peer = connect("2025-11-25", to=server)
        peer.connection.peer = Peer("somewhere", User(name))
        for uri in ("a://1", "a://elsewhere"):
            peer.result(request(1, "resources/subscribe", {"uri": uri}))
        server.resource_updated("a://1")
        server.resource_updated("a://elsewhere")
        assert [note["params"]["uri"] for note in peer.fence()] == told


def test_filters_of_mounted_servers_count_too(kind: Kind, caller: Any) -> None:
    inner = kind.fill(Server("inner", filter=odd_for_anne), 0, 1, 2)
    middle, front = Server("middle"), Server("front", filter=lambda user, entry: True)
    middle.mount("", inner)
    front.mount("", middle)
    kind.fill(front, 7)
    bob, anne = named(caller(front), "bob"), named(caller(front), "anne")
    assert kind.page(bob)[0] == kind.named(0, 2, 7) or kind.page(bob)[0] == kind.named(7, 0, 2)
    assert len(kind.page(anne)[0]) == 4
    assert "error" in kind.ask(bob, 1)
    assert "result" in kind.ask(anne, 1)


def test_a_filter_sees_the_names_of_its_own_server(caller: Any) -> None:
    seen: dict[str, list[str]] = {"inner": [], "front": []}

    def noting(where: str) -> Any:
        def note(user: User | None, entry: Any) -> bool:
            seen[where].append(entry.name)
            return True

        return note

    inner, front = Server("inner", filter=noting("inner")), Server("f", filter=noting("front"))
    inner.add_tool(found, name="tool")
    front.mount("in", inner)
    caller(front).result("tools/list")
    assert seen == {"inner": ["tool"], "front": ["in_tool"]}


@pytest.mark.parametrize("fault", ["raises", "returns nothing", "returns a coroutine"])
def test_a_filter_that_fails_shows_nothing(
    kind: Kind, fault: str, caller: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Later:
        async def __call__(self, user: User | None, entry: Any) -> bool:
            return True

    def broken(user: User | None, entry: Any) -> Any:
        if fault == "raises":
            raise LookupError("no such role")
        return None

    if fault == "returns a coroutine":
        with raises(TypeError):
            Server("lab", filter=Later())  # type: ignore[arg-type]
        return
    server = kind.fill(Server("lab", filter=broken), 1)
    one = caller(server)
    assert one.error(kind.method)["code"] == -32603
    answer = kind.ask(one, 1)["error"]
    assert (answer["code"], answer["message"]) == (-32603, "Internal error")
    assert ("no such role" if fault == "raises" else "must return a bool, not None") in caplog.text


def test_the_filter_decides_at_each_call(caller: Any) -> None:
    visible = [True]
    server = Server("lab", filter=lambda user, entry: visible[0])
    server.add_tool(found, name="tool")
    one = caller(server)
    for shown in (True, True, False, True):
        visible[0] = shown
        answer = one.answer("tools/call", name="tool")
        assert ("result" in answer) is shown
        if shown:
            assert text_of(answer["result"]) == "found"
        else:
            assert answer["error"] == {"code": -32602, "message": "Unknown tool: tool"}
