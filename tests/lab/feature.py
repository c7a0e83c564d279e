"""A scripted server of every feature, in both eras, behind a UNIX socket, and calls of each."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.client import FOREVER, META, turns, until
from lab.peer import LEGACY_PEER, MODERN_PEER, LinePeer, Rules, Talk

from wirespeed import Client
from wirespeed.client.subscriptions.resource_subscriptions import _ResourceSubscription
from wirespeed.client.subscriptions.subscription import ListenRoute
from wirespeed.types import PromptRef

Message = dict[str, Any]

LISTEN = "subscriptions/listen"
SUBSCRIPTION = META + "subscriptionId"
EVERYTHING = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}


def declaring(rules: Rules, capabilities: dict[str, Any]) -> Rules:
    """The rules with other capabilities in the handshake."""
    changed = dict(rules)
    for method in ("initialize", "server/discover"):
        if isinstance(result := rules.get(method), dict):
            changed[method] = result | {"capabilities": capabilities}
    return changed


def lists(ttl: int = 0, scope: str = "private") -> Rules:
    """One thing of each kind."""
    hints = {"ttlMs": ttl, "cacheScope": scope, "resultType": "complete"}
    return {
        "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}], **hints},
        "prompts/list": {"prompts": [{"name": "p"}], **hints},
        "resources/list": {"resources": [{"name": "r", "uri": "x://r"}], **hints},
        "resources/templates/list": {
            "resourceTemplates": [{"name": "x", "uriTemplate": "x://{id}"}],
            **hints,
        },
        "resources/read": {"contents": [{"uri": "x://r", "text": "hello"}], **hints},
    }


def peer(folder: Path, era: str, more: Rules | None = None) -> LinePeer:
    """A server of one era that has everything; not started yet."""
    base = MODERN_PEER if era == "modern" else LEGACY_PEER
    rules = declaring(base, EVERYTHING) | lists()
    if era == "modern":
        rules["subscriptions/listen"] = Listener().listen
    else:
        rules |= {"resources/subscribe": {}, "resources/unsubscribe": {}}
    return LinePeer(rules | (more or {}), folder)


def listens(peer: LinePeer) -> list[dict[str, Any]]:
    """What was asked for by each subscriptions/listen, in order."""
    return [message["params"]["notifications"] for message in peer.sent("subscriptions/listen")]


async def acknowledge(talk: Talk, message: Message, honoured: dict[str, Any] | None = None) -> None:
    """The first message of a subscription: what of it is honoured, by default everything."""
    wanted = message["params"]["notifications"]
    await talk.send(
        method="notifications/subscriptions/acknowledged",
        params={
            "_meta": {SUBSCRIPTION: message["id"]},
            "notifications": wanted if honoured is None else honoured,
        },
    )


def told_of(talk: Talk) -> set[str]:
    """The resources that a connection's client is told about, from what it sent."""
    listens: dict[Any, set[str]] = {}
    uris: set[str] = set()
    for message in talk.messages:
        method, params = message.get("method"), message.get("params", {})
        if method == LISTEN:
            listens[message["id"]] = set(params["notifications"].get("resourceSubscriptions", ()))
        elif method == "notifications/cancelled":
            listens.pop(params["requestId"], None)
        elif method == "resources/subscribe":
            uris.add(params["uri"])
        elif method == "resources/unsubscribe":
            uris.discard(params["uri"])
    return uris.union(*listens.values())


async def subscribes_anew(client: Client, server: LinePeer, *uris: str) -> None:
    """Check that a new connection of the client subscribes to these resources alone, of all its
    subscriptions, and that no other request remains unanswered."""
    if not uris:
        await turns()  # what woke the test holds the error that it raised
        gc.collect()
        for one in gc.get_objects():
            assert not isinstance(one, ListenRoute)
            if isinstance(one, _ResourceSubscription):  # an error's traceback may hold it
                assert not one.users and not one.wanted and not one.on
    await client.restart()
    talk = server.talks[-1]
    await client.ping()
    await until(lambda: told_of(talk) == set(uris))
    await client.ping()
    assert told_of(talk) == set(uris)
    assert client.counters["requests_outstanding"] == len(talk.sent(LISTEN))


async def idle(connections: int = 1) -> None:
    """Wait until clients have no task at work: the test and the peer's connections remain."""
    await until(lambda: len(asyncio.all_tasks()) == 1 + connections)


class Listener:
    """What a modern server does with subscriptions/listen: it acknowledges at once."""

    def __init__(self, honoured: dict[str, Any] | None = None) -> None:
        self.honoured = honoured

    async def listen(self, talk: Talk, message: Message) -> None:
        await acknowledge(talk, message, self.honoured)


async def tagged(talk: Talk, id: Any, method: str, **params: Any) -> None:
    """A notification of one subscription."""
    await talk.send(method=method, params={**params, "_meta": {SUBSCRIPTION: id}})


async def changed(talk: Talk, kind: str) -> None:
    """A list changed: said to everyone (legacy), or on each listen that asked for it."""
    method = f"notifications/{kind}/list_changed"
    listening = talk.sent("subscriptions/listen")
    if talk.sent("initialize"):
        await talk.send(method=method)
    for listen in listening:
        if listen["params"]["notifications"].get(f"{kind}ListChanged"):
            await tagged(talk, listen["id"], method)


async def updated(talk: Talk, uri: str) -> None:
    """A resource changed: said to everyone (legacy), or on each listen with resources."""
    method = "notifications/resources/updated"
    if talk.sent("initialize"):
        await talk.send(method=method, params={"uri": uri})
    for listen in talk.sent("subscriptions/listen"):
        if listen["params"]["notifications"].get("resourceSubscriptions"):
            await tagged(talk, listen["id"], method, uri=uri)


URI = "x://r"

# Every request that a client makes for a feature, and where its answer comes from.
FETCHES: dict[str, Callable[[Client], Any]] = {
    "tools/list": lambda client: client.list_tools(),
    "prompts/list": lambda client: client.list_prompts(),
    "resources/list": lambda client: client.list_resources(),
    "resources/templates/list": lambda client: client.list_resource_templates(),
    "resources/read": lambda client: client.read_resource(URI),
    "prompts/get": lambda client: client.get_prompt("p"),
    "completion/complete": lambda client: client.complete(PromptRef("p"), "a", "b"),
    "tools/call": lambda client: client.call_tool("t"),
}
MEMBERS: dict[str, dict[str, Any]] = {
    "tools/list": {"tools": []},
    "prompts/list": {"prompts": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
    "prompts/get": {"messages": []},
    "completion/complete": {"completion": {"values": []}},
    "tools/call": {"content": []},
}
MODERN_FETCHES = FETCHES | {"server/discover": lambda client: client.discover()}


LISTS: dict[str, tuple[str, str, Callable[[Client], Any], Callable[[Client], Any], Any]] = {
    "tools": (
        "tools/list",
        "tools",
        lambda c: c.list_tools(),
        lambda c: c.iter_tools(),
        lambda n: {"name": n, "inputSchema": {}},
    ),
    "prompts": (
        "prompts/list",
        "prompts",
        lambda c: c.list_prompts(),
        lambda c: c.iter_prompts(),
        lambda n: {"name": n},
    ),
    "resources": (
        "resources/list",
        "resources",
        lambda c: c.list_resources(),
        lambda c: c.iter_resources(),
        lambda n: {"name": n, "uri": f"x://{n}"},
    ),
    "templates": (
        "resources/templates/list",
        "resourceTemplates",
        lambda c: c.list_resource_templates(),
        lambda c: c.iter_resource_templates(),
        lambda n: {"name": n, "uriTemplate": f"x://{n}/{{id}}"},
    ),
}


def paged(kind: str, pages: dict[str | None, tuple[str, str | None]], **hints: Any) -> Any:
    """A rule: by cursor, the names on the page (one a letter) and the next cursor; other cursors
    are refused. ``hints`` are further members of each page."""
    _, member, _, _, item = LISTS[kind]

    async def answer(talk: Talk, message: Message) -> None:
        cursor = message.get("params", {}).get("cursor")
        if cursor not in pages:
            error = {"code": -32602, "message": "Invalid cursor"}
            await talk.send(id=message["id"], error=error)
            return
        names, following = pages[cursor]
        result: dict[str, Any] = {
            member: [item(n) for n in names],
            "resultType": "complete",
        } | hints
        if following is not None:
            result["nextCursor"] = following
        await talk.result(message, result)

    return answer


Act = Callable[[Talk], Coroutine[Any, Any, Any]]


@contextmanager
def running(peer: LinePeer) -> Iterator[Callable[[Act], None]]:
    """A peer that runs beside; what is given does something with its last connection."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="peer")

    def run(work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(FOREVER)

    thread.start()
    try:
        run(peer.start())
        yield lambda act: run(act(peer.talks[-1]))
        run(peer.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
