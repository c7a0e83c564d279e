"""What consumers are told after something ended: a listen, a fetch, a connection, an era."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.client import HastyClient, Run, hasty_client, until
from lab.feature import (
    EVERYTHING,
    LISTEN,
    SUBSCRIPTION,
    Listener,
    Message,
    acknowledge,
    changed,
    declaring,
    idle,
    listens,
    lists,
    peer,
    subscribes_anew,
    tagged,
    updated,
)
from lab.peer import Talk, nothing
from lab.wording import raises

from wirespeed import Socket
from wirespeed.client.subscriptions.callbacks import FETCHES, LISTENS
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    NotHonoured,
    RemoteError,
    TransportError,
    Unsupported,
)
from wirespeed.transport.backoff import Backoff
from wirespeed.types import ResourceUpdated, Resumed, SubscriptionFilter, ToolsChanged

UPDATED = "notifications/resources/updated"


@pytest.fixture(autouse=True)
def verbose(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


async def finish(talk: Talk, message: Message) -> None:
    """End a listen in order."""
    result = {"resultType": "complete", "_meta": {SUBSCRIPTION: message["id"]}}
    await talk.result(message, result)


def names(got: list[Any]) -> Callable[[list[Any]], None]:
    return lambda items: got.append([item.name for item in items])


# -- a listen that the server ends -----------------------------------------------------------------


@pytest.mark.parametrize("how", ["result", "error", "cancelled", "cancelled result"])
async def test_what_the_server_ends_is_listened_to_again(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And fetched again, for nobody told what changed meanwhile."""
    server = peer(tmp_path, "modern", lists(3_600_000))
    lists_told: list[Any] = []
    told: list[str] = []
    async with (
        server,
        HastyClient(
            server.url, on_tools_changed=names(lists_told), on_resource_updated=told.append
        ) as client,
    ):
        await client.subscribe_resource("x://a")
        [talk] = server.talks
        for n in range(3):
            listen = talk.sent(LISTEN)[-1]
            for step in how.split():
                if step == "result":
                    await finish(talk, listen)
                elif step == "error":
                    await talk.send(id=listen["id"], error={"code": -32603, "message": "no more"})
                else:
                    params = {"requestId": listen["id"]}
                    await talk.send(method="notifications/cancelled", params=params)
            await server.got(LISTEN, n + 3)
            assert listens(server)[-1] == listens(server)[1]
            await until(lambda n=n: len(lists_told) == len(told) == n + 1)  # type: ignore[misc]
            assert len(server.sent("tools/list")) == n + 1  # what is kept may be stale
        await updated(talk, "x://a")
        await changed(talk, "tools")
        await until(lambda: len(told) == 4 and len(lists_told) == 4)
        assert set(told) == {"x://a"}
        await client.unsubscribe_resource("x://a")
        assert listens(server)[-1] == {"toolsListChanged": True}
        assert client.counters["requests_outstanding"] == 1
    said = caplog.text.count("the subscription of the callbacks: no more")
    assert said == 3 * (how == "error")


async def test_a_server_that_ends_every_listen_is_left_alone_at_last(
    once: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until somebody asks for something."""

    async def listen(talk: Talk, message: Message) -> None:
        await acknowledge(talk, message)
        await finish(talk, message)

    server = peer(tmp_path, "modern", {LISTEN: listen})
    told: list[str] = []
    lists_told: list[Any] = []
    async with (
        server,
        HastyClient(
            server.url, on_tools_changed=names(lists_told), on_resource_updated=told.append
        ) as client,
    ):
        await until(lambda: "no longer reports changes" in caplog.text)
        await client.ping()
        assert len(listens(server)) == 1 + LISTENS
        await idle()
        lists_told.clear()
        server.rules[LISTEN] = Listener().listen
        await client.subscribe_resource("x://a")
        assert listens(server)[-1] == {
            "toolsListChanged": True,
            "resourceSubscriptions": ["x://a"],
        }
        await updated(server.talks[0], "x://a")
        await until(lambda: "x://a" in told)
        await until(lambda: lists_told == [["t"]])  # nobody told for a while
    assert caplog.text.count("no longer reports") == 1


async def test_a_listen_that_lasted_is_asked_for_anew(once: Run, tmp_path: Path) -> None:
    SettledClient = hasty_client(listened=0.0)
    server = peer(tmp_path, "modern")
    async with server, SettledClient(server.url, on_tools_changed=lambda _: None):
        for n in range(2 * LISTENS):
            asked = await server.got(LISTEN, n + 1)
            await finish(server.talks[0], asked[-1])


async def test_a_refused_listen_is_not_asked_for_again(
    once: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, "modern", {LISTEN: (-32601, "no such method")})
    async with server, HastyClient(server.url, on_tools_changed=lambda _: None) as client:
        await until(lambda: "does not report changes: " in caplog.text)
        await asyncio.sleep(0.01)  # longer than the pauses
        await client.ping()
        assert len(listens(server)) == 1


async def test_closing_while_it_waits_to_listen_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    PatientClient = hasty_client(listens=Backoff(60.0, 60.0, jitter=True))
    server = peer(tmp_path, "modern")
    async with server:
        client = PatientClient(server.url, on_tools_changed=lambda _: None)
        told = "ended the subscription"
        for n in (1, 2):
            await client.open()
            asked = await server.got(LISTEN, n)
            await finish(server.talks[-1], asked[-1])
            await until(lambda n=n: caplog.text.count(told) == n)  # type: ignore[misc]
            await client.close()


async def test_resources_are_subscribed_to_while_it_waits_to_listen_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """That listens at once; and if it is refused, what was is listened to again."""
    SlowClient = hasty_client(listens=Backoff(0.1, 0.1, jitter=True))
    server = peer(tmp_path, "modern")
    async with server, SlowClient(server.url, on_tools_changed=lambda _: None) as client:
        await server.got(LISTEN)
        [talk] = server.talks
        await finish(talk, talk.sent(LISTEN)[0])
        await until(lambda: "ended the subscription" in caplog.text)
        server.rules[LISTEN] = (-32603, "not now")
        with pytest.raises(RemoteError, match="not now"):
            await client.subscribe_resource("x://a")
        server.rules[LISTEN] = Listener().listen
        await server.got(LISTEN, 3)
        assert listens(server)[2] == {"toolsListChanged": True}
        await client.subscribe_resource("x://a")
        assert len(listens(server)) == 4


async def test_what_was_not_asked_for_is_not_asked_for_later(once: Run, tmp_path: Path) -> None:
    """Whatever a server says that it honours."""
    more = {"resourceSubscriptions": ["x://a", "x://other"]}
    server = peer(tmp_path, "modern", {LISTEN: Listener(more).listen})
    async with server, HastyClient(server.url, on_resource_updated=print) as client:
        await client.subscribe_resource("x://a")
        server.rules[LISTEN] = Listener().listen
        await client.subscribe_resource("x://b")
        assert listens(server)[-1] == {"resourceSubscriptions": ["x://a", "x://b"]}


# -- a list that cannot be fetched -----------------------------------------------------------------


async def test_a_change_during_a_fetch_that_fails_is_not_lost(
    tmp_path: Path, era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Message] = []

    async def listing(talk: Talk, message: Message) -> None:
        asked.append(message)
        if len(asked) > 1:
            await talk.result(message, lists()["tools/list"])  # type: ignore[arg-type]

    server = peer(tmp_path, era, {"tools/list": listing})
    told: list[Any] = []
    async with server, HastyClient(server.url, era=era, on_tools_changed=names(told)) as client:
        await client.ping()
        [talk] = server.talks
        await changed(talk, "tools")
        await until(lambda: asked)
        await changed(talk, "tools")
        await talk.send(id=asked[0]["id"], error={"code": -32603, "message": "busy"})
        await until(lambda: told == [["t"]])
        await client.ping()
        assert len(asked) == 2
    assert caplog.text.count("the list of tools changed, but cannot be fetched: busy") == 1


async def test_a_list_that_cannot_be_got_is_given_up_until_it_changes(
    once: Run, tmp_path: Path, era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, era, {"tools/list": (-32603, "broken")})
    told: list[Any] = []
    async with server, HastyClient(server.url, era=era, on_tools_changed=names(told)) as client:
        await client.ping()
        await changed(server.talks[0], "tools")
        await server.got("tools/list", FETCHES)
        await idle()
        assert len(server.sent("tools/list")) == FETCHES
        server.rules |= lists()
        await changed(server.talks[0], "tools")
        await until(lambda: told == [["t"]])
    assert caplog.text.count("cannot be fetched: broken") == FETCHES


# -- another era -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [("modern", "legacy"), ("legacy", "modern")])
async def test_a_server_of_another_era_takes_its_place(
    tmp_path: Path, before: str, after: str
) -> None:
    """Everything is subscribed to in the new era's way, and ended in it."""
    server = peer(tmp_path, before)
    told: list[str] = []
    async with (
        server,
        HastyClient(Socket(server.url, restart=3), on_resource_updated=told.append) as client,
    ):
        await client.subscribe_resource("x://held")
        async with client.subscribe(tools=True, uris=["x://mine", "x://held"]) as events:
            server.rules = peer(tmp_path, after).rules
            server.talks[-1].vanish()
            assert await events.next_event() == Resumed()
            assert events.honoured == events.wanted
            talk = server.talks[-1]
            if after == "legacy":
                subscribed = [m["params"]["uri"] for m in talk.sent("resources/subscribe")]
                assert sorted(subscribed) == ["x://held", "x://mine"]
                assert not talk.sent(LISTEN)
            else:
                asked = [m["params"]["notifications"] for m in talk.sent(LISTEN)]
                assert sorted(asked, key=len) == [
                    {"resourceSubscriptions": ["x://held"]},
                    {
                        "toolsListChanged": True,
                        "resourceSubscriptions": ["x://mine", "x://held"],
                    },
                ]
                assert not talk.sent("resources/subscribe")
            await until(lambda: told)
            told.clear()
            if after == "legacy":
                await updated(talk, "x://mine")
                await updated(talk, "x://held")
            else:
                held, mine = (message["id"] for message in talk.sent(LISTEN))
                await tagged(talk, held, UPDATED, uri="x://held")
                await tagged(talk, mine, UPDATED, uri="x://mine")
            await until(lambda: told)
            assert await events.next_event() == ResourceUpdated("x://mine")
            assert told == ["x://held"]
        await client.unsubscribe_resource("x://held")
        if after == "legacy":
            gone = await server.got("resources/unsubscribe", 2)
            assert sorted(m["params"]["uri"] for m in gone) == ["x://held", "x://mine"]
        else:
            await server.got("notifications/cancelled", 2)
            assert not server.sent("resources/unsubscribe")
        await subscribes_anew(client, server)


async def test_a_legacy_server_without_subscriptions_takes_its_place(
    once: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, "modern")
    async with server, HastyClient(Socket(server.url, restart=3)) as client:
        await client.subscribe_resource("x://held")
        async with client.subscribe(tools=True, uris=["x://mine"]) as events:
            bare = EVERYTHING | {"resources": {}}
            server.rules = declaring(peer(tmp_path, "legacy").rules, bare)
            server.talks[-1].vanish()
            assert await events.next_event() == Resumed()
            assert events.honoured == SubscriptionFilter(tools=True)
            await changed(server.talks[-1], "tools")
            assert await events.next_event() == ToolsChanged()
        assert not server.sent("resources/subscribe")
    assert caplog.text.count("no longer reports changes of resources") == 1


# -- closing ---------------------------------------------------------------------------------------


async def test_a_subscription_of_before_takes_nothing_from_one_of_now(
    tmp_path: Path, era: Any
) -> None:
    server = peer(tmp_path, era)
    async with server:
        client = HastyClient(server.url, era=era)
        await client.open()
        async with client.subscribe(uris=["x://a"]):
            await client.close()
            await client.open()
            later = client.subscribe(uris=["x://a"])
            await later.__aenter__()
        await client.ping()
        assert not server.sent("resources/unsubscribe")
        await updated(server.talks[-1], "x://a")
        assert await later.next_event() == ResourceUpdated("x://a")
        later.close()
        if era == "legacy":
            await server.got("resources/unsubscribe")
        await client.close()


async def test_a_lost_subscription_is_not_made_again(tmp_path: Path, era: Any) -> None:
    """It has ended, although it was not left yet, when somebody has the client connect again."""
    server = peer(tmp_path, era)
    await server.start()
    async with HastyClient(Socket(server.url, restart=1), era=era) as client:
        async with client.subscribe(uris=["x://a"]) as events:
            await server.stop()
            with pytest.raises(TransportError):
                await events.next_event()
            await server.start()
            await client.list_tools()
        await client.list_tools()
        assert len(server.sent(LISTEN) + server.sent("resources/subscribe")) == 1
        assert not server.sent("resources/unsubscribe")
    await server.stop()


async def test_closing_while_a_resource_is_subscribed_to(tmp_path: Path, era: Any) -> None:
    """Nothing of it is left for the next connection."""
    server = peer(tmp_path, era, {LISTEN: nothing, "resources/subscribe": nothing})
    method = LISTEN if era == "modern" else "resources/subscribe"
    async with server:
        client = HastyClient(server.url, era=era, on_resource_updated=print)
        await client.open()
        adding = asyncio.ensure_future(client.subscribe_resource("x://a"))
        await server.got(method)
        await client.close()
        with pytest.raises(ConnectionClosed):
            await adding
        server.rules = peer(tmp_path, era).rules
        await client.open()
        await client.subscribe_resource("x://a")
        assert len(server.talks[-1].sent(method)) == 1
        await client.close()


async def test_closing_when_a_resource_has_just_been_subscribed_to(
    tmp_path: Path, era: Any
) -> None:
    """The answer is there, and the caller that waits for it has not gone on yet."""
    log = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'

    async def answer(talk: Talk, message: Message) -> None:
        params = message["params"] | {"_meta": {SUBSCRIPTION: message["id"]}}
        said: Message = {"id": message["id"], "result": {}}
        if era == "modern":
            said = {"method": "notifications/subscriptions/acknowledged", "params": params}
        await talk.write(f"{log}\n{json.dumps({'jsonrpc': '2.0', **said})}")

    server = peer(tmp_path, era, {LISTEN: answer, "resources/subscribe": answer})
    closing: list[asyncio.Future[None]] = []

    def on_log(entry: object) -> None:  # the next turn closes the client, and then wakes the caller
        closing.append(asyncio.ensure_future(client.close()))

    async with server:
        client = HastyClient(server.url, era=era, on_log=on_log, on_resource_updated=print)
        await client.open()
        with pytest.raises(ConnectionClosed):
            await client.subscribe_resource("x://a")
        await closing[0]
        await subscribes_anew(client, server)
        await client.close()


# -- what cannot be undone, or begun ---------------------------------------------------------------


async def test_what_cannot_be_unsubscribed_from_stays(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    told: list[str] = []
    async with server, HastyClient(server.url, era=era, on_resource_updated=told.append) as client:
        await client.subscribe_resource("x://a")
        await client.subscribe_resource("x://b")
        before = dict(server.rules)
        server.rules |= {LISTEN: nothing, "resources/unsubscribe": nothing}
        with pytest.raises(CallTimeout):
            await client.unsubscribe_resource("x://a", timeout=0.02)
        server.rules = before | {
            LISTEN: (-32603, "stay"),
            "resources/unsubscribe": (-32603, "stay"),
        }
        with pytest.raises(RemoteError, match="stay"):
            await client.unsubscribe_resource("x://a")
        [talk] = server.talks
        if era == "modern":
            second = talk.sent(LISTEN)[1]["id"]
            await tagged(talk, second, UPDATED, uri="x://a")
        else:
            await updated(talk, "x://a")
        await until(lambda: told == ["x://a"])
        server.rules = before
        await client.unsubscribe_resource("x://a")
        if era == "modern":
            assert listens(server)[-1] == {"resourceSubscriptions": ["x://b"]}
        else:
            gone = [m["params"]["uri"] for m in server.sent("resources/unsubscribe")]
            assert gone == ["x://a"] * 3
        await client.unsubscribe_resource("x://a")  # nothing happens
        await client.ping()
        await subscribes_anew(client, server, "x://b")


async def test_unsubscribing_twice_at_once(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    async with server, HastyClient(server.url, era=era, on_resource_updated=print) as client:
        await client.subscribe_resource("x://a")
        await asyncio.gather(*(client.unsubscribe_resource("x://a") for _ in range(3)))
        await subscribes_anew(client, server)
        assert len(server.sent("resources/unsubscribe")) == (era == "legacy")


async def test_what_a_legacy_server_has_not_declared_is_not_asked_for(
    once: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, "legacy")
    server.rules = declaring(server.rules, {"resources": {"listChanged": True}})
    async with server, HastyClient(server.url, era="legacy") as client:
        with raises(NotHonoured):
            await client.subscribe_resource("x://a")
        with raises(Unsupported):
            await client.set_log_level("info")
        with raises(Unsupported):
            await client.discover()
        await client.ping()
        methods = [message["method"] for message in server.talks[0].messages]
        assert methods == ["server/discover", "initialize", "notifications/initialized", "ping"][1:]
        await client.restart()
    assert "log_level has no effect" not in caplog.text  # what was refused is not kept


async def test_declared_subscriptions_of_resources(once: Run, tmp_path: Path) -> None:
    """Anything but true is no declaration."""
    server = peer(tmp_path, "legacy")
    server.rules = declaring(server.rules, {"resources": {"subscribe": {}}})
    async with server, HastyClient(server.url, era="legacy") as client:
        with pytest.raises(NotHonoured):
            await client.subscribe_resource("x://a")


# -- waiting ---------------------------------------------------------------------------------------


async def test_waiting_for_others_is_part_of_the_time_limit(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era, {LISTEN: nothing, "resources/subscribe": nothing})
    async with server, HastyClient(server.url, era=era, on_resource_updated=print) as client:
        first = asyncio.ensure_future(client.subscribe_resource("x://a", timeout=None))
        await server.got(LISTEN if era == "modern" else "resources/subscribe")
        with raises(CallTimeout):
            await client.subscribe_resource("x://a", timeout=0.02)
        assert not first.done()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        server.rules |= {LISTEN: Listener().listen, "resources/subscribe": {}}
        await subscribes_anew(client, server)
        await client.subscribe_resource("x://a")


async def test_what_waits_for_others_ends_with_the_client(tmp_path: Path, era: Any) -> None:
    """And does not go on with the next connection."""
    server = peer(tmp_path, era, {LISTEN: nothing, "resources/subscribe": nothing})
    async with server:
        client = HastyClient(server.url, era=era, on_resource_updated=print)
        await client.open()
        waiting = [
            asyncio.ensure_future(client.subscribe_resource("x://a", timeout=limit))
            for limit in (None, None, 20.0)
        ]
        await server.got(LISTEN if era == "modern" else "resources/subscribe")
        await client.close()
        server.rules |= {LISTEN: Listener().listen, "resources/subscribe": {}}
        await client.open()
        for one in waiting:
            with pytest.raises(ConnectionClosed):
                await one
        await client.ping()
        assert not server.talks[-1].sent(LISTEN)
        assert not server.talks[-1].sent("resources/subscribe")
        await subscribes_anew(client, server)
        await client.close()


async def test_an_opening_that_fails_leaves_nothing(tmp_path: Path) -> None:
    PatientClient = hasty_client(listens=Backoff(60.0, 60.0, jitter=True))
    server = peer(tmp_path, "modern")
    async with server:
        client = PatientClient(server.url, on_tools_changed=print)
        await client.open()
        await server.got(LISTEN)
        server.rules["server/discover"] = (-32603, "broken")
        server.rules["initialize"] = (-32603, "broken")
        with pytest.raises(RemoteError, match="broken"):
            await client.restart()
        await idle(connections=0)


async def test_a_new_connection_that_tells_less(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, "modern")
    told: list[str] = []
    async with (
        server,
        HastyClient(
            Socket(server.url, restart=3),
            on_tools_changed=lambda _: None,
            on_resource_updated=told.append,
        ) as client,
    ):
        await client.subscribe_resource("x://a")
        await client.subscribe_resource("x://b")
        server.rules[LISTEN] = Listener({"resourceSubscriptions": ["x://b"]}).listen
        server.talks[0].vanish()
        await until(lambda: "x://a" in caplog.text)
        assert caplog.text.count("the server does not report changes of its list of tools") == 1
        assert caplog.text.count("the server no longer reports changes of x://a") == 1
        server.rules[LISTEN] = Listener().listen
        n = len(listens(server))
        await client.subscribe_resource("x://b")
        assert len(listens(server)) == n
        await client.subscribe_resource("x://a")
        assert listens(server)[-1]["resourceSubscriptions"] == ["x://a", "x://b"]


# -- what is not valid -----------------------------------------------------------------------------


async def test_an_acknowledgement_that_cannot_be_read(
    once: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is none, and another one may follow."""

    async def listen(talk: Talk, message: Message) -> None:
        id = message["id"]
        await talk.write(
            '{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":'
            f'{{"_meta":{{"{SUBSCRIPTION}":{id}}},"notifications":{{"x":1e999}}}}}}'
        )
        await acknowledge(talk, message)

    server = peer(tmp_path, "modern", {LISTEN: listen})
    async with server, HastyClient(server.url) as client, client.subscribe(tools=True) as events:
        assert events.honoured == events.wanted
    assert "notifications/subscriptions/acknowledged of the server is not valid" in caplog.text
    assert "internal error" not in caplog.text


@pytest.mark.parametrize("method", ["notifications/message", UPDATED])
async def test_a_flood_of_what_is_not_valid_does_not_flood_the_log(
    once: Run, tmp_path: Path, era: Any, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = peer(tmp_path, era)
    async with server, HastyClient(server.url, era=era, on_log=print) as client:
        for _ in range(200):
            await server.talks[0].send(method=method, params={"level": 1, "uri": 1})
        await client.list_tools()
    assert caplog.text.count("not valid") == 20
