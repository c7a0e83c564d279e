"""What lists of tools, prompts, resources and templates have in common."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.caller import Caller, code_of_missing
from lab.lists import KINDS, Kind
from lab.raw import META, cancel, modern
from lab.server import LEGACY, MODERN
from lab.wording import raises

from wirespeed import Server

ENABLE = {"prompts": Server.enable_prompts, "resources": Server.enable_resources}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


# -- pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "size"), [(0, 3), (3, 3), (4, 3), (10, 3), (3, 1), (5, None)])
def test_all_pages_together_are_all_entries_in_order(
    n: int, size: int | None, kind: Kind, caller: Any
) -> None:
    server = kind.fill(Server("pages", page_size=size), *range(n))
    if kind.family in ENABLE:
        ENABLE[kind.family](server)
    client = caller(server)
    keys, cursor = kind.page(client)
    pages = 1
    while cursor is not None:
        page, cursor = kind.page(client, cursor=cursor)
        assert 0 < len(page) <= (size or 1000)
        keys += page
        pages += 1
    assert keys == kind.named(*range(n))
    assert pages == max(1, -(-n // (size or 1000)))


def test_a_cursor_needs_no_connection_and_survives_changes_elsewhere(
    kind: Kind, connect: Any
) -> None:
    server = kind.fill(Server("pages", page_size=2), *range(4))
    _, cursor = kind.page(Caller(connect(to=server), MODERN))
    other = Caller(connect(to=server), MODERN)
    assert kind.page(other, cursor=cursor) == (kind.named(2, 3), None)
    kind.drop(server, 0)
    kind.fill(server, 9)
    assert kind.page(other, cursor=cursor)[0] == kind.named(2, 3)


@pytest.mark.parametrize("size", [2, None])
def test_a_bad_cursor_is_refused_and_the_empty_one_is_a_cursor(
    size: int | None, kind: Kind, caller: Any
) -> None:
    client = caller(kind.fill(Server("pages", page_size=size), *range(4)))
    for cursor in ("", "nope", "x", "YQ", "dG9vbC05", "====", "é", "dG9vbC0x\n", "dG9v bC0x"):
        error = client.error(kind.method, cursor=cursor)
        assert error == {"code": -32602, "message": "Invalid cursor"}
    for wrong in (1, True, [], {}):
        error = client.error(kind.method, cursor=wrong)
        assert (error["code"], "cursor" in error["message"]) == (-32602, True)


def test_only_one_spelling_of_a_cursor_is_known(kind: Kind, caller: Any) -> None:
    """Else a client could fill the cache of pages with spellings."""
    client = caller(kind.fill(Server("pages", page_size=2), *range(4)))
    _, cursor = kind.page(client)
    for odd in (cursor + "=", cursor[:2] + "!" + cursor[2:], cursor + "é"):
        assert client.error(kind.method, cursor=odd)["code"] == -32602
    assert kind.page(client, cursor=cursor)[0] == kind.named(2, 3)


# -- changes --------------------------------------------------------------------------------------


def test_capabilities_follow_what_there_is(
    kind: Kind, connect: Any, server: Server, version: str
) -> None:
    def offered() -> Any:
        return Caller(connect(), version).capabilities().get(kind.family)

    capability = {"listChanged": True}
    if kind.family == "resources":
        capability["subscribe"] = True
    assert offered() == (capability if kind.family == "tools" else None)
    kind.fill(server, 1)
    assert offered() == capability
    kind.drop(server, 1)
    assert offered() == capability  # what was declared is answered


@pytest.mark.parametrize("family", ENABLE)
def test_a_server_may_offer_what_it_does_not_have_yet(
    family: str, caller: Any, server: Server
) -> None:
    client = caller()
    kinds = [kind for kind in KINDS.values() if kind.family == family]
    for kind in kinds:
        assert client.error(kind.method)["code"] == -32601
        assert kind.ask(client, 1)["error"]["code"] == -32601
    ENABLE[family](server)
    for kind in kinds:
        assert kind.page(client) == ([], None)
        assert kind.ask(client, 1)["error"]["code"] != -32601


def test_entries_come_and_go(kind: Kind, caller: Any, server: Server) -> None:
    kind.fill(server, 1)
    client = caller()
    assert kind.page(client)[0] == kind.named(1)
    kind.fill(server, 2)
    assert kind.page(client)[0] == kind.named(1, 2)
    kind.drop(server, 1)
    assert kind.page(client)[0] == kind.named(2)
    assert "found" in str(kind.ask(client, 2)["result"])
    code = kind.ask(client, 1)["error"]["code"]
    assert code == (code_of_missing(client.version) if kind.family == "resources" else -32602)
    member = "resource_templates" if kind is KINDS["templates"] else kind.family
    assert list(getattr(server, member)) == kind.named(2)


@pytest.mark.parametrize("version", LEGACY)
def test_legacy_clients_are_told_once_for_all_changes_of_a_tick(
    kind: Kind, caller: Any, server: Server, version: str
) -> None:
    kind.fill(server, 0)
    client = caller()
    client.peer.fence()  # it is initialized
    for n in (1, 3):
        kind.fill(server, n, n + 1)
        kind.drop(server, n)
        assert client.peer.recv() == kind.changed
        assert client.peer.fence() == []
    assert kind.page(client)[0] == kind.named(0, 2, 4)


def test_modern_clients_are_told_where_they_listen(
    kind: Kind, modern_peer: Any, server: Server
) -> None:
    kind.fill(server, 0)
    wanted = {f"{kind.family}ListChanged": True}
    modern_peer.send(modern(0, "subscriptions/listen", {"notifications": wanted}))
    assert modern_peer.recv()["params"]["notifications"] == wanted
    kind.fill(server, 1)
    note = {**kind.changed, "params": {"_meta": {META + "subscriptionId": 0}}}
    assert modern_peer.recv() == note
    assert modern_peer.fence() == []


# -- registration and use -------------------------------------------------------------------------


def test_a_key_is_taken_once(kind: Kind, server: Server) -> None:
    kind.fill(server, 1)
    with raises(ValueError):
        kind.fill(server, 1)
    with pytest.raises(KeyError):
        kind.drop(server, 2)


def test_a_handler_is_cancelled(kind: Kind, connect: Any, server: Server) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(x: str = "") -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    kind.fill(server, 1, function=endless)
    client = Caller(connect("2025-06-18"), "2025-06-18")
    client.peer.send(client.message(*kind.use(kind.keys.format(1))))
    client.peer.run(begun.wait())
    client.peer.send(cancel(1))
    client.peer.run(ended.wait())
    assert client.peer.fence() == []
