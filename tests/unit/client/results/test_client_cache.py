"""Answers that are kept: as long as the server says, and no longer (2026-07-28, caching)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab.client import META, HastyClient, Run, until
from lab.feature import (
    FETCHES,
    MEMBERS,
    MODERN_FETCHES,
    Message,
    changed,
    lists,
    paged,
    peer,
    tagged,
    updated,
)
from lab.peer import LinePeer, Rules, Talk

from wirespeed import Client, Socket
from wirespeed.client import cache as cache_module
from wirespeed.client import client as client_module
from wirespeed.client.cache import CachingDecoder, ResponseCache, belongs
from wirespeed.client.results.decode import Unfinished
from wirespeed.errors import RemoteError
from wirespeed.types import ResourceUpdated, ToolsChanged

CACHED = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
HOUR = 3_600_000


class Clock:
    """The seconds that caches see."""

    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(client_module, "ResponseCache", lambda: ResponseCache(lambda: clock.now))
    return clock


def hinted(method: str, ttl: Any = HOUR, scope: str = "private") -> dict[str, Any]:
    members = MEMBERS.get(method, {"supportedVersions": ["2026-07-28"], "capabilities": {}})
    hints = {"cacheScope": scope, "resultType": "complete"}
    return members | hints | ({} if ttl is None else {"ttlMs": ttl})


def asked(server: LinePeer, method: str) -> int:
    """How often the server was, since the handshake."""
    return len(server.sent(method)) - (method == "server/discover")


@pytest.mark.parametrize("method", [*CACHED, "resources/read", "server/discover"])
@pytest.mark.parametrize("scope", ["private", "public"])
async def test_what_is_fresh_is_not_asked_for_again(
    tmp_path: Path, clock: Clock, method: str, scope: str
) -> None:
    server = peer(tmp_path, "modern")
    async with server, Client(server.url) as client:
        server.rules[method] = hinted(method, 5000, scope)
        first = await MODERN_FETCHES[method](client)
        clock.now += 4.999
        again = await MODERN_FETCHES[method](client)
        assert asked(server, method) == 1
        assert again == first
        clock.now += 0.001  # fresh while now < received + ttl
        await MODERN_FETCHES[method](client)
        assert asked(server, method) == 2


@pytest.mark.parametrize("ttl", [None, 0, -1, -HOUR])
@pytest.mark.parametrize("method", [*CACHED, "resources/read"])
async def test_without_a_time_to_live_nothing_is_kept(
    once: Run, tmp_path: Path, method: str, ttl: Any
) -> None:
    server = peer(tmp_path, "modern", {method: hinted(method, ttl)})
    async with server, Client(server.url) as client:
        for _ in range(2):
            await FETCHES[method](client)
        assert asked(server, method) == 2


@pytest.mark.parametrize("ttl", ["null", 1.5, "5000", True, [], {}], ids=repr)
@pytest.mark.parametrize("method", [*CACHED, "resources/read", "server/discover"])
async def test_a_time_to_live_that_is_none_is_as_if_it_were_missing(
    once: Run, tmp_path: Path, method: str, ttl: Any
) -> None:
    server = peer(tmp_path, "modern")
    async with server, Client(server.url) as client:
        server.rules[method] = hinted(method) | {"ttlMs": None if ttl == "null" else ttl}
        for _ in range(2):
            await MODERN_FETCHES[method](client)
        assert asked(server, method) == 2


@pytest.mark.parametrize("method", [*CACHED, "resources/read", "server/discover"])
async def test_a_time_to_live_of_ages(once: Run, tmp_path: Path, clock: Clock, method: str) -> None:
    server = peer(tmp_path, "modern")
    async with server, Client(server.url) as client:
        server.rules[method] = hinted(method, 10**400)
        for _ in range(2):
            await MODERN_FETCHES[method](client)
            clock.now += 1e9
        assert asked(server, method) == 1


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "completion/complete"])
async def test_other_results_are_not_kept(once: Run, tmp_path: Path, method: str) -> None:
    server = peer(tmp_path, "modern", {method: hinted(method)})
    async with server, Client(server.url) as client:
        for _ in range(2):
            await FETCHES[method](client)
        assert asked(server, method) == 2


async def test_raw_requests_and_pings_are_always_sent(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern", lists(HOUR))
    async with server, Client(server.url) as client:
        await client.list_tools()
        await client.request("tools/list", {})
        await client.discover()
        await client.ping()
        await client.ping()
        assert asked(server, "tools/list") == 2
        assert asked(server, "server/discover") == 3


async def test_a_legacy_server_has_no_such_hints(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "legacy", lists(HOUR))
    async with server, Client(server.url, era="legacy") as client:
        for _ in range(2):
            await client.list_tools()
            await client.read_resource("x://r")
        assert asked(server, "tools/list") == asked(server, "resources/read") == 2


async def test_off(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern", lists(HOUR))
    async with server, Client(server.url, cache=False) as client:
        for _ in range(2):
            await client.list_tools()
        assert asked(server, "tools/list") == 2
        client.clear_cache()  # nothing happens


async def test_cleared(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern", lists(HOUR))
    async with server, Client(server.url) as client:
        await client.list_tools()
        client.clear_cache()
        await client.list_tools()
        await client.list_tools()
        assert asked(server, "tools/list") == 2


async def test_by_parameters_but_not_by_meta(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern", lists(HOUR))
    async with server, Client(server.url) as client:
        await client.read_resource("x://a")
        await client.read_resource("x://b")
        assert asked(server, "resources/read") == 2
        await client.read_resource("x://a", meta={"traceparent": "x"}, on_progress=print)
        await client.set_log_level("debug")  # part of _meta
        await client.read_resource("x://b", timeout=1)
        assert asked(server, "resources/read") == 2


async def test_everyone_gets_objects_of_their_own(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern", lists(HOUR))
    async with server, Client(server.url) as client:
        (await client.list_tools())[0].input_schema.clear()
        (await client.list_tools_page()).tools.clear()
        [tool] = await client.list_tools()
        assert tool.input_schema == {"type": "object"}
        assert asked(server, "tools/list") == 1


# -- pages -----------------------------------------------------------------------------------------


async def test_pages_are_kept_one_by_one(once: Run, tmp_path: Path, clock: Clock) -> None:
    async def answer(talk: Talk, message: Message) -> None:
        cursor = message["params"].get("cursor")
        name, following, ttl = {
            None: ("a", "", 9000),
            "": ("b", "z", 1000),
            "z": ("c", None, 9000),
        }[cursor]
        result: dict[str, Any] = {"prompts": [{"name": name}], "ttlMs": ttl, "cacheScope": "public"}
        await talk.result(
            message, result if following is None else result | {"nextCursor": following}
        )

    server = peer(tmp_path, "modern", {"prompts/list": answer})
    async with server, Client(server.url) as client:
        for _ in range(2):
            assert [prompt.name for prompt in await client.list_prompts()] == ["a", "b", "c"]
        assert asked(server, "prompts/list") == 3
        clock.now += 5
        await client.list_prompts()  # the second one alone is stale
        assert asked(server, "prompts/list") == 4
        assert server.sent("prompts/list")[-1]["params"]["cursor"] == ""


async def test_a_refused_cursor_drops_all_pages(once: Run, tmp_path: Path) -> None:
    first: Any = {None: ("a", "old"), "old": ("b", "older")}
    then: Any = {None: ("cd", None)}
    pages = first

    async def answer(talk: Talk, message: Message) -> None:
        await paged("prompts", pages, ttlMs=HOUR, cacheScope="public")(talk, message)

    server = peer(tmp_path, "modern", {"prompts/list": answer})
    async with server, Client(server.url) as client:
        assert (await client.list_prompts_page()).next_cursor == "old"
        assert (await client.list_prompts_page("old")).next_cursor == "older"
        pages = then
        # two cached pages lead to a cursor that is gone
        assert [prompt.name for prompt in await client.list_prompts()] == ["c", "d"]
        assert asked(server, "prompts/list") == 4
        with pytest.raises(RemoteError):
            await client.list_prompts_page("old")  # nothing is left of it
        assert (await client.list_prompts_page()).next_cursor is None


# -- what makes stale ------------------------------------------------------------------------------

STALE = {
    "tools": ["tools/list"],
    "prompts": ["prompts/list"],
    "resources": ["resources/list", "resources/templates/list"],
}


@pytest.mark.parametrize("kind", STALE)
async def test_a_list_changed_drops_what_is_fresh(tmp_path: Path, kind: str) -> None:
    server = peer(tmp_path, "modern", lists(HOUR))
    async with (
        server,
        Client(server.url) as client,
        client.subscribe(tools=True, prompts=True, resources=True) as events,
    ):
        for method in [*CACHED, "resources/read"]:
            await FETCHES[method](client)
        await changed(server.talks[0], kind)
        await anext(events)
        for method in [*CACHED, "resources/read"]:
            await FETCHES[method](client)
            assert asked(server, method) == 1 + (method in STALE[kind]), method


async def test_an_untagged_notification_makes_stale_too(once: Run, tmp_path: Path) -> None:
    """It should not be there, but what it says is worth more than a hint."""
    server = peer(tmp_path, "modern", lists(HOUR))
    async with server, Client(server.url) as client:
        await client.list_tools()
        await server.talks[0].send(method="notifications/tools/list_changed")
        await client.ping()
        await client.list_tools()
        assert asked(server, "tools/list") == 2


@pytest.mark.parametrize(
    ("read", "said", "again"),
    [
        ("x://a", "x://a", True),
        ("x://a", "x://a/b", True),  # a part of it
        ("x://a/b", "x://a/", True),  # what it is a part of
        ("x://a", "x://ab", False),
        ("x://a", "x://b", False),
        ("x://a", "x://a?q", True),
        ("x://a", "x://a#f", True),
    ],
)
async def test_an_updated_resource_is_read_again(
    once: Run, tmp_path: Path, read: str, said: str, again: bool
) -> None:
    server = peer(tmp_path, "modern", lists(HOUR))
    async with (
        server,
        Client(server.url) as client,
        client.subscribe(uris=["x://a", "x://b", "x://ab"]) as events,
    ):
        await client.read_resource(read)
        await client.list_tools()
        await updated(server.talks[0], said)
        assert await anext(events) == ResourceUpdated(said)
        await client.read_resource(read)
        await client.list_tools()
        assert asked(server, "resources/read") == 1 + again
        assert asked(server, "tools/list") == 1


async def test_a_part_that_does_not_show_in_its_uri(once: Run, tmp_path: Path) -> None:
    """It may be a part of anything that this subscription asked for."""
    server = peer(tmp_path, "modern", lists(HOUR))
    async with (
        server,
        Client(server.url) as client,
        client.subscribe(uris=["db://main", "db://other"]) as events,
    ):
        for uri in ("db://main", "db://other", "db://third"):
            await client.read_resource(uri)
        await updated(server.talks[0], "row:7")
        await anext(events)
        for uri in ("db://main", "db://other", "db://third"):
            await client.read_resource(uri)
        assert asked(server, "resources/read") == 5


@pytest.mark.parametrize("what", ["tools", "updated"])
async def test_what_was_under_way_when_it_changed_is_not_kept(tmp_path: Path, what: str) -> None:
    """Nobody knows whether the answer was made before or after the change."""

    async def answer(talk: Talk, message: Message) -> None:
        listen = talk.sent("subscriptions/listen")[0]["id"]
        if what == "tools":
            await tagged(talk, listen, "notifications/tools/list_changed")
        else:
            await tagged(talk, listen, "notifications/resources/updated", uri="x://r")
        await talk.result(message, hinted(message["method"]))

    method = "tools/list" if what == "tools" else "resources/read"
    server = peer(tmp_path, "modern", {method: answer})
    async with (
        server,
        Client(server.url) as client,
        client.subscribe(tools=True, uris=["x://r"]) as events,
    ):
        await FETCHES[method](client)
        assert await anext(events) == (
            ToolsChanged() if what == "tools" else ResourceUpdated("x://r")
        )
        server.rules[method] = hinted(method)
        await FETCHES[method](client)
        await FETCHES[method](client)
        assert asked(server, method) == 2


async def test_a_new_connection_starts_with_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, "modern", lists(HOUR))
    async with server, HastyClient(Socket(server.url)) as client:
        await client.list_tools()
        server.talks[0].vanish()
        await until(lambda: caplog.records)
        await client.ping()
        assert len(server.talks) == 2
        await client.list_tools()
        await client.list_tools()
        assert asked(server, "tools/list") == 2
        await client.restart()
        await client.list_tools()
        assert asked(server, "tools/list") == 3


@pytest.mark.parametrize("scope", ["private", "public"])
async def test_nothing_is_shared_between_clients(once: Run, tmp_path: Path, scope: str) -> None:
    """Each client has credentials of its own, and an answer that is private to them."""
    server = peer(tmp_path, "modern", lists(HOUR, scope))
    async with server, Client(server.url) as one, Client(server.url) as other:
        for client in (one, other, one, other):
            await client.read_resource("x://r")
            await client.list_tools()
        assert [len(talk.sent("resources/read")) for talk in server.talks] == [1, 1]
        assert [len(talk.sent("tools/list")) for talk in server.talks] == [1, 1]


async def test_what_took_input_is_not_kept(once: Run, tmp_path: Path) -> None:
    async def answer(talk: Talk, message: Message) -> None:
        if "requestState" in message["params"]:
            await talk.result(message, hinted("resources/read"))
        else:
            result = {"resultType": "input_required", "requestState": "s", "ttlMs": HOUR}
            await talk.result(message, result)

    server = peer(tmp_path, "modern", {"resources/read": answer})
    async with server, Client(server.url) as client:
        for _ in range(2):
            await client.read_resource("x://r")
        assert asked(server, "resources/read") == 4


# -- the store -------------------------------------------------------------------------------------


def kept(text: bytes, now: list[float], ttl: int = 1000) -> CachingDecoder:
    class Result:
        ttl_ms = ttl

    keeper = CachingDecoder(lambda data: Result(), lambda: now[0])
    keeper(text)
    return keeper


def test_what_was_not_used_the_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MAX_ENTRIES", 3)
    now = [0.0]
    cache = ResponseCache(lambda: now[0])

    def put(name: bytes, text: bytes = b"text") -> None:
        cache.put(("m", name), kept(text, now), cache.mark("m"))

    for name in (b"a", b"b", b"c"):
        put(name)
    assert cache.get(("m", b"a")) == b"text"
    put(b"d")
    assert [cache.get(("m", name)) for name in (b"a", b"b", b"c", b"d")] == [
        b"text", None, b"text", b"text",
    ]  # fmt: skip
    put(b"a", b"newer")
    assert cache.get(("m", b"a")) == b"newer"
    assert len(cache) == 3
    now[0] = 1.0
    assert cache.get(("m", b"a")) is None
    assert len(cache) == 2


def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MAX_BYTES", 100)
    now = [0.0]
    cache = ResponseCache(lambda: now[0])
    for name in (b"a", b"b", b"c"):
        cache.put(("m", name), kept(b"x" * 40, now), cache.mark("m"))
    assert [cache.get(("m", n)) is None for n in (b"a", b"b", b"c")] == [True, False, False]
    cache.put(("m", b"d"), kept(b"x" * 101, now), cache.mark("m"))
    assert cache.get(("m", b"d")) is None
    assert len(cache) == 2
    cache.drop("m")
    for name in (b"a", b"b", b"c"):
        cache.put(("m", name), kept(b"x" * 33, now), cache.mark("m"))
    assert len(cache) == 3  # what was dropped takes no room


def test_only_a_first_answer_that_is_complete_is_kept() -> None:
    now = [0.0]
    assert kept(b"{}", now).text == b"{}"
    twice = kept(b"{}", now)
    twice(b"{}")
    assert twice.text is None
    unfinished = CachingDecoder(lambda data: Unfinished("input_required", b"{}"), lambda: 0.0)
    unfinished(b"{}")
    assert unfinished.text is None


def test_parts_of_resources() -> None:
    assert belongs("x://a", "x://a")
    assert belongs("file:///a/b", "file:///a/") and belongs("file:///a/b", "file:///a")
    assert not belongs("file:///ab", "file:///a") and not belongs("file:///a", "file:///a/b")


async def test_the_log_level_of_meta(once: Run, tmp_path: Path) -> None:
    """What is cached was asked for with another level; that is no part of the key."""
    rules: Rules = lists(HOUR)
    server = peer(tmp_path, "modern", rules)
    async with server, Client(server.url, log_level="info") as client:
        await client.list_tools()
        assert server.sent("tools/list")[0]["params"]["_meta"][META + "logLevel"] == "info"
        await client.set_log_level("error")
        await client.list_tools()
        assert asked(server, "tools/list") == 1
