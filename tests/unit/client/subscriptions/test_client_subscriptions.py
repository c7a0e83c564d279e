"""Subscriptions as iterators, in both eras: acknowledged, told, ended, made again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from pathlib import Path
from typing import Any

import pytest
from lab.client import META, HastyClient, Run, turns, until
from lab.feature import (
    EVERYTHING,
    LISTEN,
    SUBSCRIPTION,
    Listener,
    Message,
    acknowledge,
    changed,
    declaring,
    listens,
    peer,
    subscribes_anew,
    tagged,
    told_of,
    updated,
)
from lab.peer import Talk, nothing
from lab.wording import raises

from wirespeed import Socket
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    ConnectionLost,
    NotHonoured,
    RemoteError,
    TransportError,
)
from wirespeed.types import (
    Event,
    Notice,
    Overflowed,
    PromptsChanged,
    ResourcesChanged,
    ResourceUpdated,
    Resumed,
    Subscription,
    SubscriptionFilter,
    ToolsChanged,
)

EVENTS: dict[str, Event] = {
    "tools": ToolsChanged(),
    "prompts": PromptsChanged(),
    "resources": ResourcesChanged(),
}


async def rest(events: Subscription) -> list[Event]:
    """What still comes, to the end."""
    return [event async for event in events]


# -- what is told ----------------------------------------------------------------------------------


async def test_everything_is_told(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    async with server, HastyClient(server.url, era=era) as client:
        talk = await server.talk(0)
        async with client.subscribe(
            tools=True, prompts=True, resources=True, uris=["x://a", "x://b", "x://a"]
        ) as events:
            assert events.wanted == events.honoured
            for kind, event in EVENTS.items():
                await changed(talk, kind)
                assert await anext(events) == event
            await updated(talk, "x://b")
            assert await anext(events) == ResourceUpdated("x://b")
            if era == "modern":
                assert listens(server) == [
                    {
                        "toolsListChanged": True,
                        "promptsListChanged": True,
                        "resourcesListChanged": True,
                        "resourceSubscriptions": ["x://a", "x://b"],
                    }
                ]
                [listen] = talk.sent(LISTEN)
                assert META + "protocolVersion" in listen["params"]["_meta"]
            else:
                subscribed = server.sent("resources/subscribe")
                assert [m["params"] for m in subscribed] == [{"uri": "x://a"}, {"uri": "x://b"}]
        assert await rest(events) == []  # when it was left, that was the end
        if era == "modern":
            [end] = await server.got("notifications/cancelled")
            assert end["params"]["requestId"] == listen["id"]
        else:
            gone = await server.got("resources/unsubscribe", 2)
            assert {m["params"]["uri"] for m in gone} == {"x://a", "x://b"}
        await client.ping()
        assert client.counters["requests_outstanding"] == 0


async def test_nothing_is_told_that_was_not_asked_for(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    async with server, HastyClient(server.url, era=era) as client:
        talk = await server.talk(0)
        async with client.subscribe(prompts=True) as events:
            for kind in ("tools", "resources"):
                method = f"notifications/{kind}/list_changed"
                if era == "legacy":
                    await talk.send(method=method)
                else:  # a server must not; and what is not ours is nobody's
                    listen = talk.sent(LISTEN)[0]["id"]
                    await tagged(talk, listen, method)
                    await tagged(talk, listen + 1, "notifications/prompts/list_changed")
            await updated(talk, "x://a")
            await changed(talk, "prompts")
            assert await anext(events) == PromptsChanged()
            events.close()
            assert await rest(events) == []


@pytest.mark.parametrize("tag", ["str", "float", "none", "null"])
async def test_subscription_ids_keep_their_json_type(once: Run, tmp_path: Path, tag: str) -> None:
    server = peer(tmp_path, "modern")
    async with (
        server,
        HastyClient(server.url) as client,
        client.subscribe(tools=True, prompts=True) as events,
    ):
        [talk] = server.talks
        id = talk.sent(LISTEN)[0]["id"]
        assert type(id) is int
        others: dict[str, Any] = {"str": str(id), "float": float(id), "null": None}
        if tag == "none":
            await talk.send(method="notifications/tools/list_changed")
        else:
            await tagged(talk, others[tag], "notifications/tools/list_changed")
        await tagged(talk, id, "notifications/prompts/list_changed")
        assert await anext(events) == PromptsChanged()


async def test_parts_of_resources(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    async with (
        server,
        HastyClient(server.url, era=era) as client,
        client.subscribe(uris=["x://a"]) as events,
    ):
        await updated(server.talks[0], "x://a/part")
        assert await anext(events) == ResourceUpdated("x://a/part")
        if era == "legacy":  # for somebody else of the same connection
            await updated(server.talks[0], "x://ab")
            await updated(server.talks[0], "x://a")
            assert await anext(events) == ResourceUpdated("x://a")


async def test_what_extensions_tell(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern")
    async with (
        server,
        HastyClient(server.url) as client,
        client.subscribe(more={"taskIds": ["1"]}) as events,
        client.subscribe(tools=True) as others,
    ):
        [talk] = server.talks
        assert listens(server) == [{"taskIds": ["1"]}, {"toolsListChanged": True}]
        assert events.honoured == SubscriptionFilter(more={"taskIds": ["1"]})
        first, second = (message["id"] for message in talk.sent(LISTEN))
        await tagged(talk, second, "notifications/tasks", taskId="1")  # did not ask
        await tagged(talk, first, "notifications/tasks", taskId="1")
        await tagged(talk, first, "notifications/tasks", taskId="1")
        await talk.send(method="notifications/x", params={"_meta": {SUBSCRIPTION: first, "a": 1}})
        await talk.send(method="notifications/x", params={})
        notice = Notice("notifications/tasks", {"taskId": "1"})
        assert await anext(events) == notice
        assert await anext(events) == notice
        assert await anext(events) == Notice("notifications/x", {"_meta": {"a": 1}})
        await changed(talk, "tools")
        assert await anext(others) == ToolsChanged()


async def test_requests_of_subscriptions_carry_meta(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    meta = {"traceparent": "t"}
    async with server, HastyClient(server.url, era=era) as client:
        async with client.subscribe(uris=["x://a"], meta=meta):
            await client.subscribe_resource("x://b", meta=meta)
        await client.unsubscribe_resource("x://b", meta=meta)
        sent = server.sent(LISTEN) + server.sent("resources/subscribe")
        assert [m["params"]["_meta"]["traceparent"] for m in sent] == ["t", "t"]
        for message in server.sent("resources/unsubscribe"):
            if message["params"]["uri"] == "x://b":
                assert message["params"]["_meta"] == meta


# -- acknowledgement -------------------------------------------------------------------------------


async def test_a_subscription_begins_when_it_is_acknowledged(tmp_path: Path) -> None:
    asked: list[Message] = []

    async def listen(talk: Talk, message: Message) -> None:
        asked.append(message)

    server = peer(tmp_path, "modern", {LISTEN: listen})
    async with server, HastyClient(server.url) as client:
        events = client.subscribe(tools=True)
        opening = asyncio.ensure_future(events.__aenter__())
        await until(lambda: asked)
        await client.ping()
        assert not opening.done() and events.honoured is None
        await acknowledge(server.talks[0], asked[0])
        assert await opening is events
        assert events.honoured == SubscriptionFilter(tools=True)
        await acknowledge(server.talks[0], asked[0], {})  # once is enough
        await changed(server.talks[0], "tools")
        assert await anext(events) == ToolsChanged()
        assert events.honoured == SubscriptionFilter(tools=True)
        events.close()


@pytest.mark.parametrize(
    ("said", "honoured"),
    [
        ({}, SubscriptionFilter()),
        (None, SubscriptionFilter(tools=True, prompts=True, uris=("x://a", "x://b"))),
        (
            {"toolsListChanged": True, "resourceSubscriptions": ["x://a"]},
            SubscriptionFilter(tools=True, uris=("x://a",)),
        ),
        ({"toolsListChanged": 1, "resourceSubscriptions": [1, "x://a"]},
         SubscriptionFilter(uris=("x://a",))),
        ({"toolsListChanged": False, "resourceSubscriptions": "x"}, SubscriptionFilter()),
        ([1], SubscriptionFilter()),
    ],
)  # fmt: skip
async def test_the_honoured_subset_is_shown(
    once: Run, tmp_path: Path, said: Any, honoured: SubscriptionFilter
) -> None:
    server = peer(tmp_path, "modern", {LISTEN: Listener(said).listen})
    async with (
        server,
        HastyClient(server.url) as client,
        client.subscribe(tools=True, prompts=True, uris=["x://a", "x://b"]) as events,
    ):
        assert events.honoured == honoured


@pytest.mark.parametrize(
    ("capabilities", "honoured"),
    [
        ({}, SubscriptionFilter()),
        (EVERYTHING, SubscriptionFilter(tools=True, prompts=True, resources=True, uris=("x://a",))),
        ({"tools": {"listChanged": True}, "prompts": {}}, SubscriptionFilter(tools=True)),
        ({"resources": {"subscribe": True}}, SubscriptionFilter(uris=("x://a",))),
        ({"resources": {"subscribe": 1, "listChanged": 0}, "tools": True}, SubscriptionFilter()),
    ],
)
async def test_what_a_legacy_server_declares(
    once: Run, tmp_path: Path, capabilities: Any, honoured: SubscriptionFilter
) -> None:
    server = peer(tmp_path, "legacy")
    server.rules = declaring(server.rules, capabilities)
    async with (
        server,
        HastyClient(server.url, era="legacy") as client,
        client.subscribe(tools=True, prompts=True, resources=True, uris=["x://a"]) as events,
    ):
        assert events.honoured == honoured
        assert len(server.sent("resources/subscribe")) == len(honoured.uris)


async def test_a_legacy_server_that_refuses_a_resource(
    once: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def subscribe(talk: Talk, message: Message) -> None:
        if message["params"]["uri"] == "x://b":
            await talk.send(id=message["id"], error={"code": -32002, "message": "not found"})
        else:
            await talk.result(message, {})

    server = peer(tmp_path, "legacy", {"resources/subscribe": subscribe})
    async with server, HastyClient(server.url, era="legacy") as client:
        async with client.subscribe(uris=["x://a", "x://b"]) as events:
            assert events.honoured == SubscriptionFilter(uris=("x://a",))
        await server.got("resources/unsubscribe")
        await client.ping()
        assert len(server.sent("resources/unsubscribe")) == 1
    assert "does not report changes of x://b: not found" in caplog.text


async def test_a_server_without_subscriptions(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern", {LISTEN: (-32601, "Method not found")})
    async with server, HastyClient(server.url) as client:
        events = client.subscribe(tools=True)
        with raises(RemoteError, code=-32601):
            await events.__aenter__()
        with pytest.raises(RemoteError):
            await anext(events)
        assert client.counters["requests_outstanding"] == 0


async def test_a_server_that_ends_it_at_once(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern", {LISTEN: {"resultType": "complete"}})
    async with server, HastyClient(server.url) as client:
        with raises(NotHonoured):
            async with client.subscribe(tools=True):
                pass


async def test_a_server_that_does_not_acknowledge(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era, {LISTEN: nothing, "resources/subscribe": nothing})
    async with server, HastyClient(server.url, era=era) as client:
        events = client.subscribe(uris=["x://a"], timeout=0.02)
        with raises(CallTimeout):
            await events.__aenter__()
        asked = server.sent(LISTEN) + server.sent("resources/subscribe")
        [cancelled] = await server.got("notifications/cancelled")
        assert cancelled["params"]["requestId"] == asked[0]["id"]
        with pytest.raises(CallTimeout):
            await anext(events)
        server.rules |= {LISTEN: Listener().listen, "resources/subscribe": {}}
        await subscribes_anew(client, server)


async def test_cancelled_while_it_is_opened(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era, {LISTEN: nothing, "resources/subscribe": nothing})
    async with server, HastyClient(server.url, era=era) as client:
        opening = asyncio.ensure_future(client.subscribe(uris=["x://a"]).__aenter__())
        await until(lambda: server.sent(LISTEN) or server.sent("resources/subscribe"))
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await server.got("notifications/cancelled")
        server.rules |= {LISTEN: Listener().listen, "resources/subscribe": {}}
        await subscribes_anew(client, server)


# -- several ---------------------------------------------------------------------------------------


async def test_each_subscription_gets_its_own_copies(tmp_path: Path) -> None:
    server = peer(tmp_path, "modern")
    async with (
        server,
        HastyClient(server.url) as client,
        client.subscribe(tools=True) as one,
        client.subscribe(tools=True, uris=["x://a"]) as two,
        client.subscribe(uris=["x://a"]) as three,
    ):
        [talk] = server.talks
        ids = [message["id"] for message in talk.sent(LISTEN)]
        assert len(set(ids)) == 3
        # one copy is for one alone
        await tagged(talk, ids[1], "notifications/tools/list_changed")
        assert await anext(two) == ToolsChanged()
        await changed(talk, "tools")
        assert await anext(one) == await anext(two) == ToolsChanged()
        await updated(talk, "x://a")
        assert await anext(two) == await anext(three) == ResourceUpdated("x://a")
        # the end of one is the end of one
        one.close()
        await talk.send(id=ids[1], result={"resultType": "complete"})
        assert await rest(two) == [] == await rest(one)
        await updated(talk, "x://a")
        assert await anext(three) == ResourceUpdated("x://a")


async def test_legacy_subscriptions_share_a_resource(tmp_path: Path) -> None:
    server = peer(tmp_path, "legacy")

    def count(method: str) -> int:
        return len(server.sent(method))

    async with server, HastyClient(server.url, era="legacy") as client:
        async with client.subscribe(uris=["x://a"]) as one:
            async with client.subscribe(uris=["x://a", "x://b"], tools=True) as two:
                assert count("resources/subscribe") == 2
                await updated(server.talks[0], "x://a")
                assert await anext(one) == await anext(two) == ResourceUpdated("x://a")
            await server.got("resources/unsubscribe")
            await client.ping()
            assert [m["params"]["uri"] for m in server.sent("resources/unsubscribe")] == ["x://b"]
            await updated(server.talks[0], "x://a")
            assert await anext(one) == ResourceUpdated("x://a")
        await server.got("resources/unsubscribe", 2)
        async with client.subscribe(uris=["x://a"]):
            assert count("resources/subscribe") == 3


async def test_subscribing_to_one_resource_at_once(tmp_path: Path) -> None:
    """The second waits for the answer to the first; leaving and coming do not overtake another."""
    server = peer(tmp_path, "legacy")
    async with server, HastyClient(server.url, era="legacy") as client:

        async def come_and_go() -> None:
            async with client.subscribe(uris=["x://a"]) as events:
                assert events.honoured == SubscriptionFilter(uris=("x://a",))

        await asyncio.gather(*(come_and_go() for _ in range(10)))
        await until(lambda: not told_of(server.talks[0]))
        told = [m["method"] for m in server.talks[0].messages if "subscribe" in m["method"]]
        assert told == ["resources/subscribe", "resources/unsubscribe"] * (len(told) // 2)


# -- what waits ------------------------------------------------------------------------------------


async def test_equal_events_wait_once(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern")
    async with (
        server,
        HastyClient(server.url) as client,
        client.subscribe(tools=True, prompts=True, uris=["x://"]) as events,
    ):
        [talk] = server.talks
        for _ in range(3):
            await changed(talk, "tools")
            await updated(talk, "x://a")
            await changed(talk, "prompts")
            await updated(talk, "x://b")
        await client.ping()
        events.close()
        assert await rest(events) == [
            ToolsChanged(), ResourceUpdated("x://a"), PromptsChanged(), ResourceUpdated("x://b"),
        ]  # fmt: skip


async def test_too_many_events_become_one(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern")
    async with (
        server,
        HastyClient(server.url) as client,
        client.subscribe(tools=True, uris=["x://"], max_events=3) as events,
    ):
        [talk] = server.talks
        await changed(talk, "tools")
        for n in range(4):
            await updated(talk, f"x://{n}")
        await client.ping()
        assert await anext(events) == Overflowed()
        assert await anext(events) == ResourceUpdated("x://3")
        await updated(talk, "x://0")
        assert await anext(events) == ResourceUpdated("x://0")


async def test_waiting_for_an_event(tmp_path: Path) -> None:
    server = peer(tmp_path, "modern")
    async with server, HastyClient(server.url) as client, client.subscribe(tools=True) as events:
        with raises(CallTimeout):
            await events.next_event(0.01)
        waiting = [asyncio.ensure_future(events.next_event()) for _ in range(2)]
        await turns()
        waiting[0].cancel()  # loses nothing
        await changed(server.talks[0], "tools")
        assert await waiting[1] == ToolsChanged()
        more = asyncio.ensure_future(events.next_event(60))
        await turns()
        events.close()
        assert await more is None


async def test_a_subscription_is_used_once(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern")
    async with server, HastyClient(server.url) as client:
        events = client.subscribe(tools=True)
        with raises(RuntimeError):
            await anext(events)
        async with events:
            with raises(RuntimeError):
                await events.__aenter__()
        with raises(RuntimeError):
            await events.__aenter__()
        assert "over" in repr(events) and "toolsListChanged" in repr(events)
        with raises(TypeError):
            client.subscribe(uris="x://a")
        with raises(TypeError):
            client.subscribe(uris=[Path("/x")])  # type: ignore[list-item]
        with raises(ValueError):
            client.subscribe(tools=True, max_events=0)
        with raises(ValueError):
            client.subscribe()
        with raises(ValueError):
            client.subscribe(more={"toolsListChanged": False})
        with raises(ValueError):
            client.subscribe(tools=True, meta={"progressToken": 1})


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["result", "cancelled", "cancelled result", "result cancelled"])
async def test_the_cancellation_and_the_result_of_an_end_come_in_any_order(
    tmp_path: Path, how: str
) -> None:
    server = peer(tmp_path, "modern")
    async with (
        server,
        HastyClient(server.url) as client,
        client.subscribe(tools=True, prompts=True) as events,
    ):
        [talk] = server.talks
        id = talk.sent(LISTEN)[0]["id"]
        await changed(talk, "tools")
        for step in how.split():
            if step == "result":
                result = {"resultType": "complete", "_meta": {SUBSCRIPTION: id}}
                await talk.send(id=id, result=result)
            else:
                await talk.send(method="notifications/cancelled", params={"requestId": id})
        # what came before the end comes first
        assert await rest(events) == [ToolsChanged()]
        assert await events.next_event() is None
        await changed(talk, "prompts")
        await client.ping()
        assert await rest(events) == []
        assert client.counters["requests_outstanding"] == 0
        await client.restart()
        assert len(server.sent(LISTEN)) == 1
    assert not server.sent("notifications/cancelled")


async def test_an_error_is_no_graceful_end(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern")
    async with server, HastyClient(server.url) as client, client.subscribe(tools=True) as events:
        id = server.talks[0].sent(LISTEN)[0]["id"]
        await server.talks[0].send(id=id, error={"code": -32603, "message": "broken"})
        for _ in range(2):
            with pytest.raises(RemoteError, match="broken"):
                await anext(events)


@pytest.mark.parametrize("restart", [0, None])
async def test_an_abrupt_loss_has_no_end_of_its_own(tmp_path: Path, era: Any, restart: Any) -> None:
    """A link that is not made again ends the iterator with what happened to it."""
    if (era, restart) == ("modern", None):
        restart = 0
    server = peer(tmp_path, era)
    async with server, HastyClient(Socket(server.url, restart=restart), era=era) as client:
        async with client.subscribe(tools=True, uris=["x://a"]) as events:
            await changed(server.talks[0], "tools")
            await client.ping()
            server.talks[0].vanish()
            assert await anext(events) == ToolsChanged()
            with pytest.raises(ConnectionLost):
                await anext(events)
        with pytest.raises(TransportError):
            await client.subscribe(tools=True).__aenter__()


async def test_closing_the_client_ends_it(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    async with server:
        client = HastyClient(server.url, era=era)
        await client.open()
        async with client.subscribe(tools=True, uris=["x://a"]) as events:
            waiting = asyncio.ensure_future(anext(events))
            await turns()
            await client.close()
            with raises(ConnectionClosed):
                await waiting
        with raises(ConnectionClosed):
            await client.subscribe(tools=True).__aenter__()
        # opened anew it has nothing to do with what was before
        await client.open()
        await client.ping()
        assert len(listens(server)) == (era == "modern")
        assert len(server.sent("resources/subscribe")) == (era == "legacy")
        await client.close()


# -- connections that are made again ---------------------------------------------------------------


async def test_subscriptions_are_made_again(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    async with (
        server,
        HastyClient(Socket(server.url, restart=5), era=era) as client,
        client.subscribe(tools=True, uris=["x://a"]) as one,
        client.subscribe(uris=["x://a", "x://b"]) as two,
    ):
        for n in range(1, 4):
            server.talks[-1].vanish()
            # by itself: nobody calls anything
            assert await anext(one) == Resumed() == await anext(two)
            talk = await server.talk(n)
            if era == "modern":
                assert [m["params"]["notifications"] for m in talk.sent(LISTEN)] == [
                    {"toolsListChanged": True, "resourceSubscriptions": ["x://a"]},
                    {"resourceSubscriptions": ["x://a", "x://b"]},
                ]
            else:
                subscribed = talk.sent("resources/subscribe")
                assert [m["params"]["uri"] for m in subscribed] == ["x://a", "x://b"]
            await changed(talk, "tools")
            await updated(talk, "x://a")
            assert await anext(one) == ToolsChanged()
            assert await anext(one) == await anext(two) == ResourceUpdated("x://a")


async def test_restarting_the_client_makes_them_again(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    async with (
        server,
        HastyClient(server.url, era=era) as client,
        client.subscribe(tools=True, uris=["x://a"]) as events,
    ):
        await client.restart()
        assert await anext(events) == Resumed()
        await changed(server.talks[1], "tools")
        assert await anext(events) == ToolsChanged()


async def test_a_restart_that_fails_ends_them(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    async with (
        server,
        HastyClient(server.url, era=era) as client,
        client.subscribe(tools=True) as events,
    ):
        await server.stop()
        with pytest.raises(TransportError):
            await client.restart()
        with pytest.raises(TransportError):
            await anext(events)


async def test_attempts_that_are_used_up_end_them(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    async with (
        server,
        HastyClient(Socket(server.url, restart=2), era=era) as client,
        client.subscribe(tools=True) as events,
    ):
        await server.stop()
        with pytest.raises(TransportError):
            await anext(events)


async def test_a_new_connection_that_refuses_a_subscription(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, "modern")
    async with (
        server,
        HastyClient(Socket(server.url)) as client,
        client.subscribe(tools=True) as events,
    ):
        server.rules[LISTEN] = (-32601, "Method not found")
        server.talks[0].vanish()
        with raises(RemoteError, code=-32601):
            await anext(events)
        await client.ping()


async def test_a_new_legacy_connection_that_refuses_a_resource(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, "legacy")
    async with (
        server,
        HastyClient(Socket(server.url, restart=1), era="legacy") as client,
        client.subscribe(tools=True, uris=["x://a"]) as events,
    ):
        server.rules["resources/subscribe"] = (-32002, "gone")
        server.talks[0].vanish()
        assert await anext(events) == Resumed()
        assert events.honoured == SubscriptionFilter(tools=True)
    assert "no longer reports changes of x://a: gone" in caplog.text


async def test_a_new_legacy_connection_that_does_not_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, "legacy")
    async with (
        server,
        HastyClient(Socket(server.url, restart=1), era="legacy", timeout=0.1) as client,
        client.subscribe(tools=True, uris=["x://a"]) as events,
    ):
        server.rules["resources/subscribe"] = nothing
        server.talks[0].vanish()
        assert await anext(events) == Resumed()
        assert events.honoured == SubscriptionFilter(tools=True)
    assert "no longer reports changes of x://a" in caplog.text


async def test_lost_while_it_is_opened(tmp_path: Path) -> None:
    """What was asked for is asked for again, and acknowledged then."""
    server = peer(tmp_path, "modern")

    async def die(talk: Talk, message: Message) -> None:
        server.rules[LISTEN] = Listener().listen
        talk.vanish()

    server.rules[LISTEN] = die
    async with (
        server,
        HastyClient(Socket(server.url)) as client,
        client.subscribe(tools=True) as events,
    ):
        assert len(server.talks) == 2
        await changed(server.talks[1], "tools")
        assert await anext(events) == ToolsChanged()


async def test_a_client_that_starts_at_the_first_use(once: Run, tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    async with (
        server,
        HastyClient(server.url, era=era, auto_start=False) as client,
        client.subscribe(tools=True) as events,
    ):
        await changed(server.talks[0], "tools")
        assert await anext(events) == ToolsChanged()


@pytest.mark.parametrize("params", [{}, {"uri": 1}, {"uri": None}])
async def test_an_update_without_a_uri_is_told(
    once: Run, tmp_path: Path, era: Any, params: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, era)
    caplog.set_level(logging.WARNING)
    async with server, HastyClient(server.url, era=era) as client, client.subscribe(uris=["x://a"]):
        await server.talks[0].send(method="notifications/resources/updated", params=params)
        await client.ping()
    assert "notifications/resources/updated of the server is not valid" in caplog.text


async def test_a_cancellation_of_nothing_is_silent(
    once: Run, tmp_path: Path, era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, era)
    async with (
        server,
        HastyClient(server.url, era=era) as client,
        client.subscribe(tools=True) as events,
    ):
        for id in (0, 12345678, "x", None, 1.5):
            params = {"requestId": id}
            await server.talks[0].send(method="notifications/cancelled", params=params)
        await server.talks[0].send(method="notifications/cancelled", params={})
        await changed(server.talks[0], "tools")
        assert await anext(events) == ToolsChanged()
    assert not caplog.text


async def test_many_at_once(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    async with server, HastyClient(server.url, era=era) as client:

        async def one(n: int) -> None:
            async with client.subscribe(tools=True, uris=[f"x://{n}"]) as events:
                ready.append(n)
                assert await anext(events) == ToolsChanged()

        ready: list[int] = []
        tasks = [asyncio.ensure_future(one(n)) for n in range(50)]
        await until(lambda: len(ready) == 50)
        await changed(server.talks[0], "tools")
        await asyncio.gather(*tasks)
        await until(lambda: not told_of(server.talks[0]))
        await until(lambda: not client.counters["requests_outstanding"])
        n = len(server.sent("resources/subscribe"))
        assert n == (50 if era == "legacy" else 0)


@pytest.mark.parametrize("seed", range(8))
async def test_coming_going_and_losing_in_any_order(
    once: Run, tmp_path: Path, era: Any, seed: int
) -> None:
    """In the end the server tells just what is still wanted, and nothing is left behind."""
    dice = random.Random(seed)
    server = peer(tmp_path, era)
    some = [f"x://{n}" for n in range(5)]
    async with (
        server,
        HastyClient(Socket(server.url, restart=1000), era=era, on_resource_updated=len) as client,
    ):
        opened: list[Subscription] = []

        async def come() -> None:
            uris = dice.sample(some, dice.randint(1, 3))
            with contextlib.suppress(TransportError):  # lost in this very moment (legacy)
                opened.append(await client.subscribe(uris=uris).__aenter__())

        async def hold(uri: str) -> None:
            with contextlib.suppress(TransportError):
                await client.subscribe_resource(uri)

        async def release(uri: str) -> None:
            with contextlib.suppress(TransportError):
                await client.unsubscribe_resource(uri)

        for _ in range(40):
            works: list[Any] = []
            for _ in range(dice.randint(1, 4)):
                kind = dice.choice(["come", "come", "go", "hold", "release"])
                if kind == "come":
                    works.append(come())
                elif kind == "go" and opened:
                    opened.pop(dice.randrange(len(opened))).close()
                elif kind == "hold":
                    works.append(hold(dice.choice(some)))
                elif kind == "release":
                    works.append(release(dice.choice(some)))
            tasks = [asyncio.ensure_future(work) for work in works]
            if dice.random() < 0.15:
                await turns(dice.randint(0, 5))
                server.talks[-1].vanish()
            await asyncio.gather(*tasks)
        with contextlib.suppress(TransportError):  # of the last loss
            await client.ping()
        await client.ping()

        held = set(dice.sample(some, 2))
        for uri in some:
            await (client.subscribe_resource if uri in held else client.unsubscribe_resource)(uri)
        live = held.union(*(one.wanted.uris for one in opened))
        await until(lambda: told_of(server.talks[-1]) == live)
        await subscribes_anew(client, server, *live)
        for events in opened:
            events.close()
        for uri in some:
            await client.unsubscribe_resource(uri)
        await until(lambda: not told_of(server.talks[-1]))
        await client.ping()
        assert client.counters["requests_outstanding"] == 0
        await subscribes_anew(client, server)
