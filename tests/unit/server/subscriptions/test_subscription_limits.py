"""What one client's subscriptions may make a server keep."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest
from lab.raw import cancel, modern, request

from wirespeed import Server
from wirespeed.limits import Limits
from wirespeed.protocol.uri_template import MAX_URI
from wirespeed.server import subscriptions as subscriptions

LONGEST = "a://" + "x" * (MAX_URI - 4)


@pytest.fixture
def server() -> Server:
    server = Server("lab")
    server.add_resource("a://1", "x")
    return server


def listen(id: Any, *uris: str) -> dict[str, Any]:
    return modern(id, "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})


def subscribe(id: Any, uri: str) -> dict[str, Any]:
    return request(id, "resources/subscribe", {"uri": uri})


def unsubscribe(id: Any, uri: str) -> dict[str, Any]:
    return request(id, "resources/unsubscribe", {"uri": uri})


def test_a_uri_that_no_resource_can_have_is_refused(connect: Any) -> None:
    legacy, current = connect("2025-06-18"), connect()
    assert legacy.result(subscribe(1, LONGEST)) == {}
    expected = (-32602, f"Invalid params: a URI is longer than {MAX_URI} characters")
    assert legacy.error(subscribe(2, LONGEST + "x")) == expected
    assert legacy.result(unsubscribe(3, LONGEST + "x")) == {}
    assert current.ask(listen(1, LONGEST))["method"] == "notifications/subscriptions/acknowledged"
    assert current.error(listen(2, "a://1", LONGEST + "x")) == expected
    assert list(current.connection.listens) == [b"1"]


def test_subscriptions_are_counted_by_their_length_too(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_CHARACTERS", 20)
    peer = connect("2025-06-18")
    for id in (1, 2):  # the second time it changes nothing
        assert peer.result(subscribe(id, "a://567890")) == {}
    code, text = peer.error(subscribe(3, "b://5678901"))
    assert code == -31000
    assert "of 20 characters together" in text
    assert peer.result(subscribe(4, "b://567890")) == {}
    for id in (6, 7):
        assert peer.result(unsubscribe(id, "a://567890")) == {}
    assert peer.result(subscribe(8, "c://567890")) == {}
    assert peer.error(subscribe(9, "d://"))[0] == -31000


def test_listens_count_their_ids_and_give_back_what_they_kept(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_CHARACTERS", 20)
    monkeypatch.setattr(subscriptions, "MAX_URIS", 2)
    peer = connect()
    assert "method" in peer.ask(listen("long-id", "a://56", "a://56"))  # 9 and 6
    assert peer.error(listen(2, "a://5"))[0] == -31000
    assert "method" in peer.ask(listen(3, "a://"))
    peer.send(cancel("long-id"))
    assert peer.error(listen(4, "a://", "b://"))[0] == -31000  # three URIs
    assert "method" in peer.ask(listen(4, "a://5678901234"))
    peer.send(cancel(3), cancel(4))
    peer.ask(modern("fence", "tools/list"))
    assert (peer.connection.changes.n_uris, peer.connection.changes.n_characters) == (0, 0)


def test_so_many_uris_and_no_more(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_URIS", 2)
    peer = connect("2025-06-18")
    for id in (1, 2):
        assert peer.result(subscribe(id, f"a://{id}")) == {}
    assert peer.error(subscribe(3, "a://3"))[0] == -31000
    assert peer.result(unsubscribe(4, "a://1")) == {}
    assert peer.result(subscribe(5, "a://3")) == {}


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_who_does_not_read_hears_of_each_change_once(connect: Any, era: str) -> None:
    server = Server("lab", limits=Limits(output_high=65536, output_low=1024))
    server.add_resource("a://1", "x")
    server.add_resource("a://2", "x")
    peer = connect("2025-06-18" if era == "legacy" else None, to=server)
    if era == "legacy":
        peer.result(subscribe(1, "a://1"))
        peer.result(subscribe(2, "a://2"))
    else:
        peer.ask(listen(1, "a://1", "a://2"))
    session = peer.connection.session

    async def change(times: int) -> None:
        for _ in range(times):
            server.resource_updated("a://1")
            await asyncio.sleep(0)

    while session.counters["bytes_queued"] < 65536:
        peer.run(change(100))
    full = session.counters["bytes_queued"]
    peer.run(change(100))
    server.resource_updated("a://2")
    peer.run(change(100))
    assert session.counters["bytes_queued"] == full
    heard = [message["params"]["uri"] for message in peer.fence()]
    peer.wait_for(lambda: session.counters["bytes_queued"] == 0)
    heard += [message["params"]["uri"] for message in peer.fence()]
    assert heard.count("a://2") == 1
    assert heard[-2:] == ["a://1", "a://2"]


# -- whom an update concerns -----------------------------------------------------------------------


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_an_update_of_a_part_is_for_the_subscribers_of_the_whole(connect: Any, era: str) -> None:
    server = Server("lab")
    server.add_resource("a://b", "x")
    wholes = ["a://b", "a://b/c/", "docs://", "x:y/z"]
    peer = connect("2025-06-18" if era == "legacy" else None, to=server)
    if era == "legacy":
        for id, uri in enumerate(wholes):
            peer.result(subscribe(id, uri))
    else:
        peer.ask(listen(1, *wholes))
    told = ["a://b", "a://b/", "a://b/c", "a://b/c/d", "docs://guide", "x:y/z/1"]
    not_told = ["a://bc", "a://", "doc://guide", "x:y/zz", "x:y/"]
    for uri in told + not_told:
        server.resource_updated(uri)
    heard = [message["params"]["uri"] for message in peer.fence()]
    assert heard == told


def test_an_update_does_not_look_at_each_subscribed_uri(connect: Any, server: Server) -> None:
    peer = connect()
    peer.ask(listen(1, *(f"a://{i}/b" for i in range(2000))))
    n_calls = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal n_calls
        n_calls += event in ("call", "c_call")

    async def update() -> None:
        server.resource_updated("a://1999/b/c/d")
        sys.setprofile(count)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sys.setprofile(None)

    peer.run(update())
    (message,) = peer.fence()
    assert message["params"]["uri"] == "a://1999/b/c/d"
    assert n_calls < 200


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_updates_from_other_threads_are_all_told(connect: Any, server: Server, era: str) -> None:
    peer = connect("2025-06-18" if era == "legacy" else None)
    uris = {f"a://{thread}/{i}" for thread in range(4) for i in range(500)}
    whole = [f"a://{thread}" for thread in range(4)]
    if era == "legacy":
        for id, uri in enumerate(whole):
            peer.result(subscribe(id, uri))
    else:
        peer.ask(listen(1, *whole))

    def update(thread: int) -> None:
        for i in range(500):
            server.resource_updated(f"a://{thread}/{i}")

    threads = [threading.Thread(target=update, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    heard: set[str] = set()
    while any(thread.is_alive() for thread in threads):
        heard |= {message["params"]["uri"] for message in peer.fence()}
    for _ in range(100):  # what the last calls left to the loop
        heard |= {message["params"]["uri"] for message in peer.fence()}
    assert heard == uris
