"""Consumers of changes: lists that come anew, resources that changed; what is listened for."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.client import HastyClient, Run, turns, until
from lab.feature import (
    LISTEN,
    Listener,
    Message,
    acknowledge,
    changed,
    listens,
    lists,
    peer,
    subscribes_anew,
    tagged,
    updated,
)
from lab.peer import Talk, nothing
from lab.wording import raises

from wirespeed import Client, Server, Socket
from wirespeed.errors import CallTimeout, NotHonoured, RemoteError

KINDS = ["tools", "prompts", "resources"]
NAMES = {"tools": ["t"], "prompts": ["p"], "resources": ["r"]}
ALL = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


class Told:
    """What consumers got, in order."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []

    def consumer(self, kind: str) -> Callable[[Any], None]:
        return lambda items: self.got.append((kind, [item.name for item in items]))

    @property
    def consumers(self) -> dict[str, Any]:
        return {f"on_{kind}_changed": self.consumer(kind) for kind in KINDS}

    def updated(self, uri: str) -> None:
        self.got.append(("updated", uri))


async def test_each_consumer_gets_its_new_list(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era, lists(3_600_000))  # what is fresh is not: it changed
    told = Told()
    async with server, HastyClient(server.url, era=era, **told.consumers) as client:
        await client.ping()
        assert told.got == []
        for n, kind in enumerate(KINDS * 2, 1):
            await changed(server.talks[0], kind)
            await until(lambda n=n: len(told.got) == n)  # type: ignore[misc]
        assert told.got == [(kind, NAMES[kind]) for kind in KINDS * 2]
        assert listens(server) == ([ALL] if era == "modern" else [])


@pytest.mark.parametrize("kind", KINDS)
async def test_only_what_has_a_consumer_is_listened_for(tmp_path: Path, kind: str) -> None:
    server = peer(tmp_path, "modern")
    told = Told()
    options: dict[str, Any] = {f"on_{kind}_changed": told.consumer(kind)}
    async with server, HastyClient(server.url, **options) as client:
        await client.ping()
        assert listens(server) == [{f"{kind}ListChanged": True}]
        id = server.talks[0].sent(LISTEN)[0]["id"]
        for other in KINDS:
            await tagged(server.talks[0], id, f"notifications/{other}/list_changed")
        await until(lambda: told.got)
        await client.ping()
        await turns()
        assert told.got == [(kind, NAMES[kind])]


async def test_consumers_and_subscriptions_do_not_share(tmp_path: Path) -> None:
    server = peer(tmp_path, "modern")
    told = Told()
    async with (
        server,
        HastyClient(server.url, **told.consumers) as client,
        client.subscribe(tools=True) as events,
    ):
        _, mine = (message["id"] for message in server.talks[0].sent(LISTEN))
        await tagged(server.talks[0], mine, "notifications/tools/list_changed")
        await anext(events)
        await client.ping()
        await turns()
        assert told.got == []
        await changed(server.talks[0], "tools")
        await anext(events)
        await until(lambda: told.got)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_server_does_not_honour_is_logged(
    once: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    honoured = {key: True for key in ALL if not key.startswith(kind)}
    server = peer(tmp_path, "modern", {LISTEN: Listener(honoured).listen})
    async with server, HastyClient(server.url, **Told().consumers) as client:
        await client.ping()
    told = [r.getMessage() for r in caplog.records if "does not report" in r.getMessage()]
    assert told == [f"the server does not report changes of its list of {kind}"]


async def test_a_server_without_a_list_does_not_report_its_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("tools alone")
    server.add_tool(lambda: "", name="t", description="A tool.")
    async with Client(server, **Told().consumers) as client:
        await client.ping()
    assert "does not report" not in caplog.text


async def test_what_is_listened_for_is_asked_for_again(tmp_path: Path, era: Any) -> None:
    """And all lists are fetched again, for nobody told what changed meanwhile."""
    server = peer(tmp_path, era)
    told = Told()
    options = told.consumers | {"on_resource_updated": told.updated}
    async with server, HastyClient(Socket(server.url, restart=3), era=era, **options) as client:
        await client.subscribe_resource("x://a")
        for n in (1, 2):
            told.got.clear()
            server.talks[-1].vanish()
            await until(lambda: len(told.got) == 4)
            assert sorted(told.got) == sorted(
                [(kind, NAMES[kind]) for kind in KINDS] + [("updated", "x://a")]
            )
            talk = await server.talk(n)
            if era == "modern":
                assert [m["params"]["notifications"] for m in talk.sent(LISTEN)] == [
                    ALL | {"resourceSubscriptions": ["x://a"]}
                ]
            else:
                await until(lambda talk=talk: talk.sent("resources/subscribe"))  # type: ignore[misc]
            told.got.clear()
            await updated(talk, "x://a")
            await until(lambda: told.got == [("updated", "x://a")])


# -- resources -------------------------------------------------------------------------------------


async def test_resources_that_change(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    told = Told()
    async with server, HastyClient(server.url, era=era, on_resource_updated=told.updated) as client:
        assert listens(server) == []
        await client.subscribe_resource("x://a")
        await client.subscribe_resource("x://a")
        await client.subscribe_resource("x://b")
        talk = server.talks[0]
        if era == "modern":
            assert listens(server) == [
                {"resourceSubscriptions": ["x://a"]},
                {"resourceSubscriptions": ["x://a", "x://b"]},
            ]
            # the second took the place of the first
            [gone] = await server.got("notifications/cancelled")
            first, second = (message["id"] for message in talk.sent(LISTEN))
            assert gone["params"]["requestId"] == first
            await tagged(talk, second, "notifications/resources/updated", uri="x://b/part")
        else:
            subscribed = server.sent("resources/subscribe")
            assert [m["params"] for m in subscribed] == [{"uri": "x://a"}, {"uri": "x://b"}]
            await updated(talk, "x://b/part")
        await until(lambda: told.got == [("updated", "x://b/part")])

        await client.unsubscribe_resource("x://b")
        await client.unsubscribe_resource("x://b")
        await client.unsubscribe_resource("x://never")
        if era == "modern":
            assert listens(server)[2:] == [{"resourceSubscriptions": ["x://a"]}]
        await client.unsubscribe_resource("x://a")
        if era == "modern":
            await server.got("notifications/cancelled", 3)
            assert len(listens(server)) == 3
        else:
            gone = server.sent("resources/unsubscribe")  # type: ignore[assignment]
            assert [m["params"] for m in gone] == [{"uri": "x://b"}, {"uri": "x://a"}]  # type: ignore[index]
        assert client.counters["requests_outstanding"] == 0
        await subscribes_anew(client, server)


async def test_no_update_is_told_twice_while_listens_change_places(tmp_path: Path) -> None:
    """Until the new one is acknowledged the old one is heard, and from then on the new one."""
    asked: list[Message] = []

    async def listen(talk: Talk, message: Message) -> None:
        asked.append(message)
        if len(asked) == 1:
            await acknowledge(talk, message)

    server = peer(tmp_path, "modern", {LISTEN: listen})
    told = Told()
    async with server, HastyClient(server.url, on_resource_updated=told.updated) as client:
        await client.subscribe_resource("x://a")
        adding = asyncio.ensure_future(client.subscribe_resource("x://b"))
        await until(lambda: len(asked) == 2)
        [talk] = server.talks
        first, second = (message["id"] for message in asked)
        await tagged(talk, first, "notifications/resources/updated", uri="x://1")
        await acknowledge(talk, asked[1])
        for id in (first, second):
            await tagged(talk, id, "notifications/resources/updated", uri="x://2")
        await adding
        await tagged(talk, second, "notifications/resources/updated", uri="x://3")
        await until(lambda: len(told.got) >= 3)
        await client.ping()
        assert [uri for _, uri in told.got] == ["x://1", "x://2", "x://3"]


async def test_many_resources_at_once_take_few_listens(tmp_path: Path) -> None:
    server = peer(tmp_path, "modern")
    told = Told()
    async with server, HastyClient(server.url, on_resource_updated=told.updated) as client:
        await asyncio.gather(*(client.subscribe_resource(f"x://{n}") for n in range(50)))
        assert len(listens(server)) <= 2
        assert len(listens(server)[-1]["resourceSubscriptions"]) == 50


async def test_a_resource_that_is_refused(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    told = Told()
    async with server, HastyClient(server.url, era=era, on_resource_updated=told.updated) as client:
        await client.subscribe_resource("x://a")
        if era == "modern":
            server.rules[LISTEN] = Listener({"resourceSubscriptions": ["x://a"]}).listen
            with raises(NotHonoured):
                await client.subscribe_resource("x://b")
            server.rules[LISTEN] = (-32603, "no more")
        else:
            server.rules["resources/subscribe"] = (-32002, "no more")
        with pytest.raises(RemoteError, match="no more"):
            await client.subscribe_resource("x://b")
        # the other one is told as before, and once
        talk = server.talks[0]
        if era == "modern":
            id = talk.sent(LISTEN)[0]["id"]
            await tagged(talk, id, "notifications/resources/updated", uri="x://a")
        else:
            await updated(talk, "x://a")
        await until(lambda: told.got == [("updated", "x://a")])
        server.rules |= {LISTEN: Listener().listen, "resources/subscribe": {}}
        await subscribes_anew(client, server, "x://a")


async def test_a_resource_that_takes_too_long(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era, {LISTEN: nothing, "resources/subscribe": nothing})
    async with server, HastyClient(server.url, era=era, on_resource_updated=print) as client:
        with pytest.raises(CallTimeout):
            await client.subscribe_resource("x://a", timeout=0.02)
        server.rules |= {LISTEN: Listener().listen, "resources/subscribe": {}}
        await subscribes_anew(client, server)
        await client.subscribe_resource("x://a")
        await subscribes_anew(client, server, "x://a")


async def test_subscriptions_and_the_consumer_share_a_resource(tmp_path: Path) -> None:
    """In the legacy revisions a resource has one subscription, which all of its users share."""
    server = peer(tmp_path, "legacy")
    async with server, HastyClient(server.url, era="legacy", on_resource_updated=print) as client:
        await client.subscribe_resource("x://a")
        async with client.subscribe(uris=["x://a"]):
            await client.unsubscribe_resource("x://a")
            assert not server.sent("resources/unsubscribe")
        await server.got("resources/unsubscribe")
        assert len(server.sent("resources/subscribe")) == 1


async def test_what_was_subscribed_to_elsewhere_is_not_for_the_consumer(
    tmp_path: Path, era: Any
) -> None:
    server = peer(tmp_path, era)
    told = Told()
    async with (
        server,
        HastyClient(server.url, era=era, on_resource_updated=told.updated) as client,
        client.subscribe(uris=["x://a"]) as events,
    ):
        await client.subscribe_resource("x://b")
        talk = server.talks[0]
        for message in talk.sent(LISTEN):
            [uri] = message["params"]["notifications"]["resourceSubscriptions"]
            method = "notifications/resources/updated"
            await tagged(talk, message["id"], method, uri=uri)
        if era == "legacy":
            await updated(talk, "x://a")
            await updated(talk, "x://b")
            await updated(talk, "y:c")  # a part of something, or the user's own subscription
        await anext(events)
        await client.ping()
        uris = ["x://b"] if era == "modern" else ["x://b", "y:c"]
        assert told.got == [("updated", uri) for uri in uris]


async def test_what_a_consumer_of_updates_raises_is_logged(
    once: Run, tmp_path: Path, era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, era)
    seen: list[str] = []

    async def consumer(uri: str) -> None:
        seen.append(uri)
        raise ZeroDivisionError("mine")

    async with server, HastyClient(server.url, era=era, on_resource_updated=consumer) as client:
        await client.subscribe_resource("x://a")
        for n in (1, 2):
            await updated(server.talks[0], "x://a")
            await until(lambda n=n: len(seen) == n)  # type: ignore[misc]
        await client.ping()
    assert caplog.text.count("ZeroDivisionError: mine") == 2


async def test_closing_forgets_what_was_subscribed_to(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    told = Told()
    async with server:
        client = HastyClient(server.url, era=era, on_resource_updated=told.updated)
        for n in (1, 2):
            await client.open()
            await client.subscribe_resource("x://a")
            assert len(listens(server) + server.sent("resources/subscribe")) == n
            await client.close()
    assert told.got == []  # opened anew, it missed nothing


async def test_a_server_that_announces_a_change_with_each_list(tmp_path: Path, era: Any) -> None:
    """It is asked more and more slowly, and the last list is not missed."""
    times: list[float] = []

    async def give(talk: Talk, message: Message) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) < 6:
            await changed(talk, "tools")
        tools = [{"name": f"t{len(times)}", "inputSchema": {"type": "object"}}]
        await talk.result(message, {"tools": tools, "resultType": "complete"})

    server = peer(tmp_path, era, {"tools/list": give})
    told = Told()
    async with server, HastyClient(server.url, era=era, **told.consumers) as client:
        await client.ping()
        await changed(server.talks[0], "tools")
        await until(lambda: told.got[-1:] == [("tools", ["t6"])])
    gaps = [after - before for before, after in itertools.pairwise(times)]
    # at least, after the first two that may be asked for in a row
    assert all(gap > least for gap, least in zip(gaps[1:], (0.04, 0.09, 0.19), strict=False)), gaps
