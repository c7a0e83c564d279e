"""Every method and notification in every revision, both ways: there where the revision has it, and
refused where it has it not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.client import discovered, failed, initialized
from lab.peer import LinePeer
from lab.raw import modern, notification, request
from lab.server import Peer
from lab.table import (
    MODERN,
    NOTIFICATIONS,
    REQUESTS,
    STEPS,
    VERSIONS,
    Guest,
    House,
    Side,
    sends,
)

from wirespeed import Client
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.transport.taskpool_choice import open_pool

FOREVER = 20.0
MESSAGES = REQUESTS | NOTIFICATIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tables_of_the_package_agree(version: str) -> None:
    revision = REVISIONS[version]

    def those(side: Side, table: Any) -> set[str]:
        return {name for name, row in table.items() if sends(side, row, version, extension=False)}

    embedded = {name for name, row in REQUESTS.items() if row[VERSIONS.index(version)] == "e"}
    assert revision.requests == those("client", REQUESTS)
    assert revision.server_requests == those("server", REQUESTS) | embedded
    assert revision.notifications == those("client", NOTIFICATIONS)
    assert revision.server_notifications == those("server", NOTIFICATIONS)


# -- our client and our server --------------------------------------------------------------------


def test_every_message_has_its_step() -> None:
    for side in ("client", "server"):
        for name, row in MESSAGES.items():
            said = any(sends(side, row, version) for version in VERSIONS)
            if name == "notifications/tasks":
                said = side == "server"
            elif all(mark in "-x" for mark in row):
                said = side == "client"
            assert ((side, name) in STEPS) == said or (side, name) in NOWHERE, (side, name)


# What one of our sides understands and the other never sends: a task of the extension is updated
# by the client alone, and our client runs no tasks of 2025-11-25.
NOWHERE = {
    ("server", "tasks/update"),
    ("server", "tasks/get"),
    ("server", "tasks/result"),
    ("server", "tasks/list"),
    ("server", "tasks/cancel"),
    ("client", "notifications/tasks/status"),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("side", "name"), list(STEPS), ids=lambda value: str(value))
def test_together(side: Side, name: str, version: str, recorder: Any) -> None:
    """A real call between our two sides: it goes over the wire where the revision has it, and
    nowhere else does anything break, or go over the wire that the revision does not know (which
    the recorder would say, too)."""

    async def main() -> None:
        guest = Guest(House(version))
        async with asyncio.timeout(FOREVER), guest.client:
            await STEPS[side, name](guest)

    asyncio.run(main())
    said = recorder.judged(version)
    row = MESSAGES[name]
    mark = row[VERSIONS.index(version)]
    there = sends(side, row, version)
    if mark == "x":
        there = (side == "server") == name.startswith("notifications/")
    if name == "initialize" and version != VERSIONS[3]:
        # it asks for the newest revision of the handshake, and is answered with another one
        assert (side, "request", name) not in said
        assert (("server", "result", name) in said) == there
        return
    kind = "request" if name in REQUESTS else "notification"
    assert ((side, kind, name) in said) == there
    if kind == "request":
        other = "server" if side == "client" else "client"
        answered = there and name != "subscriptions/listen"  # which stays open
        assert ((other, "result", name) in said) == answered


# -- our server and what clients may send ---------------------------------------------------------


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def connect(loop: asyncio.Runner) -> Iterator[Any]:
    """``connect(version)``: a client of bytes of a server of that revision."""
    pool = open_pool(loop.get_loop())
    made: list[tuple[Peer, House]] = []

    def connect(version: str) -> Peer:
        house = House(version)
        peer = Peer(house.server, loop, pool)
        made.append((peer, house))
        peer.hello = None if version == MODERN else peer.handshake(version)  # type: ignore[attr-defined]
        return peer

    yield connect

    async def close() -> None:
        async with asyncio.timeout(FOREVER):
            for _, house in made:
                if house.server.service.tasks.service is not None:
                    await house.server.service.tasks.service.close()
            await pool.aclose()

    for peer, _ in made:
        peer.close()
    loop.run(close())


SAMPLE = {"messages": [], "maxTokens": 1}
FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
# Right params of each request, so that nothing but the method can be wrong.
PARAMS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
    "tools/call": {"name": "add", "arguments": {"a": 1, "b": 2}},
    "prompts/get": {"name": "greet", "arguments": {"name": "Ann"}},
    "resources/read": {"uri": "text://hello"},
    "resources/subscribe": {"uri": "text://hello"},
    "resources/unsubscribe": {"uri": "text://hello"},
    "subscriptions/listen": {"notifications": {"toolsListChanged": True}},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "name", "value": "A"},
    },
    "logging/setLevel": {"level": "error"},
    "sampling/createMessage": SAMPLE,
    "elicitation/create": FORM,
    "tasks/get": {"taskId": "t"},
    "tasks/result": {"taskId": "t"},
    "tasks/cancel": {"taskId": "t"},
    "tasks/update": {"taskId": "t", "inputResponses": {}},
}
# The code with which a request is answered that is right but for what it is about.
NO_SUCH = -32602


def sent_by_client(version: str, name: str) -> Any:
    params = PARAMS.get(name)
    return (modern if version == MODERN else request)(1, name, params)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", [*REQUESTS, "tasks/gone", "", "tools/LIST"])
def test_our_server_serves_what_a_revision_has(name: str, version: str, connect: Any) -> None:
    peer = connect(version)
    peer.send(sent_by_client(version, name))
    row = REQUESTS.get(name)
    there = row is not None and row[VERSIONS.index(version)] in "CB"
    if name == "subscriptions/listen" and there:
        assert peer.recv()["method"] == "notifications/subscriptions/acknowledged"
        return
    answer = peer.recv()
    assert answer["id"] == 1
    code = answer.get("error", {}).get("code")
    if row is not None and row[VERSIONS.index(version)] == "x":
        assert code == -32021  # the client has not declared the extension
    elif name == "initialize" and there:
        assert code == -32600  # for the second time
    elif name.startswith("tasks/") and there:
        assert code == (None if name == "tasks/list" else NO_SUCH)
    elif there:
        assert code is None, answer
    else:
        assert code == -32601, answer
    assert peer.ask(sent_by_client(version, "tools/list"))["result"]["tools"]


TOKEN = {"progressToken": "nobody's", "progress": 1}
TASK = {
    "taskId": "t",
    "status": "completed",
    "createdAt": "2025-11-25T10:30:00Z",
    "lastUpdatedAt": "2025-11-25T10:30:00Z",
    "ttl": None,
}
NOTES: dict[str, Any] = {
    "notifications/cancelled": {"requestId": 99},
    "notifications/progress": TOKEN,
    "notifications/message": {"level": "error", "data": "x"},
    "notifications/resources/updated": {"uri": "text://hello"},
    "notifications/elicitation/complete": {"elicitationId": "e"},
    "notifications/tasks/status": TASK,
    "notifications/tasks": TASK,
    "notifications/subscriptions/acknowledged": {"notifications": {}},
}


@pytest.mark.parametrize("version", VERSIONS)
def test_our_server_takes_any_notification(version: str, connect: Any) -> None:
    """'JSON-RPC 2.0: a notification is never answered', whoever may send it."""
    peer = connect(version)
    for name in [*NOTIFICATIONS, *REQUESTS, "notifications/unknown"]:
        peer.send(notification(name, NOTES.get(name, PARAMS.get(name))))
    answer = peer.ask(sent_by_client(version, "tools/list"))
    assert answer["id"] == 1 and answer["result"]["tools"]


# -- our client and what servers may send ---------------------------------------------------------


def peer_of(version: str, folder: Path) -> LinePeer:
    """A server of bytes of one revision."""
    rules: dict[str, Any] = {"tools/list": {"tools": []}}
    if version == MODERN:
        [[_, result]] = discovered()
        rules["server/discover"] = result
        rules["tools/list"] |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    else:
        [[_, error]] = failed(-32601)
        rules["server/discover"] = (error["code"], error["message"])
        [[_, result]] = initialized(version)
        rules["initialize"] = result
    return LinePeer(rules, folder)


def guest_of(peer: LinePeer) -> Client:
    return Client(
        peer.url,
        on_elicit=lambda _: {},
        on_elicit_url=lambda _: "accept",
        on_sample=lambda _: "decline",
        roots=[],
        cache=False,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_our_client_serves_what_a_revision_has(version: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(FOREVER),
            peer_of(version, tmp_path) as peer,
            guest_of(peer) as client,
        ):
            assert client.protocol_version == version
            talk = await peer.talk(0)
            names = [*REQUESTS, "tasks/gone", "", "roots/LIST"]
            for id, name in enumerate(names):
                members: dict[str, Any] = {"id": f"s{id}", "method": name}
                if name in PARAMS:
                    members["params"] = PARAMS[name]
                await talk.send(**members)
            answers: dict[Any, Any] = {}
            if version == MODERN:  # "clients do not send JSON-RPC responses" (basic/patterns)
                for _ in range(3):
                    await client.list_tools()
                assert not [m for m in talk.messages if "method" not in m]
                return
            while len(answers) < len(names):
                await client.list_tools()
                answers = {m["id"]: m for m in talk.messages if "method" not in m}
            for id, name in enumerate(names):
                answer = answers[f"s{id}"]
                code = answer.get("error", {}).get("code")
                row = REQUESTS.get(name)
                tasks = name.startswith("tasks/")  # which our client does not run
                if row is None or tasks or not sends("server", row, version, extension=False):
                    assert code == -32601, (name, answer)
                elif name == "sampling/createMessage":
                    assert code == -1  # the user's "no"
                else:
                    assert code is None, (name, answer)

    asyncio.run(main())


@pytest.mark.parametrize("version", VERSIONS)
def test_our_client_takes_any_notification(version: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(FOREVER),
            peer_of(version, tmp_path) as peer,
            guest_of(peer) as client,
        ):
            talk = await peer.talk(0)
            for name in [*NOTIFICATIONS, *REQUESTS, "notifications/unknown"]:
                params = NOTES.get(name, PARAMS.get(name))
                await talk.send(method=name, **({} if params is None else {"params": params}))
            assert await client.list_tools() == []
            assert not [m for m in talk.messages if "method" not in m]  # nothing is answered

    asyncio.run(main())


# -- members --------------------------------------------------------------------------------------

# Where to look: what the client gets of a method, or what it declares, and a path of members. Then
# the first revision that has it, and the last. (That nothing else is sent, the recorder sees.)
FIELDS: list[tuple[str, str, str, str]] = [
    ("initialize", "serverInfo.title", "2025-06-18", "2025-11-25"),
    ("initialize", "serverInfo.description", "2025-11-25", "2025-11-25"),
    ("initialize", "serverInfo.websiteUrl", "2025-11-25", "2025-11-25"),
    ("initialize", "serverInfo.icons", "2025-11-25", "2025-11-25"),
    ("initialize", "instructions", "2024-11-05", "2025-11-25"),
    ("server/discover", "supportedVersions", MODERN, MODERN),
    ("server/discover", "instructions", MODERN, MODERN),
    ("server/discover", "resultType", MODERN, MODERN),
    ("server/discover", "ttlMs", MODERN, MODERN),
    ("server/discover", "cacheScope", MODERN, MODERN),
    ("server/discover", "_meta.io\\.modelcontextprotocol/serverInfo.icons", MODERN, MODERN),
    ("capabilities", "experimental", "2024-11-05", MODERN),
    ("capabilities", "logging", "2024-11-05", MODERN),
    ("capabilities", "prompts.listChanged", "2024-11-05", MODERN),
    ("capabilities", "resources.listChanged", "2024-11-05", MODERN),
    ("capabilities", "resources.subscribe", "2024-11-05", MODERN),
    ("capabilities", "tools.listChanged", "2024-11-05", MODERN),
    ("capabilities", "completions", "2025-03-26", MODERN),
    ("capabilities", "tasks.requests.tools.call", "2025-11-25", "2025-11-25"),
    ("capabilities", "extensions.io\\.modelcontextprotocol/tasks", MODERN, MODERN),
    ("tools/list", "tools.0.annotations.readOnlyHint", "2025-03-26", MODERN),
    ("tools/list", "tools.0.title", "2025-06-18", MODERN),
    ("tools/list", "tools.0.outputSchema", "2025-06-18", MODERN),
    ("tools/list", "tools.0._meta.a", "2025-06-18", MODERN),
    ("tools/list", "tools.0.icons.0.src", "2025-11-25", MODERN),
    ("tools/list", "tools.7.execution.taskSupport", "2025-11-25", "2025-11-25"),
    ("tools/list", "resultType", MODERN, MODERN),
    ("tools/list", "ttlMs", MODERN, MODERN),
    ("tools/list", "cacheScope", MODERN, MODERN),
    ("tools/call", "content.0.text", "2024-11-05", MODERN),
    ("tools/call", "structuredContent", "2025-06-18", MODERN),
    ("tools/call", "resultType", MODERN, MODERN),
    ("tools/call", "ttlMs", "", ""),
    ("blocks", "audio", "2025-03-26", MODERN),
    ("blocks", "resource_link", "2025-06-18", MODERN),
    ("blocks", "resource_link.annotations.lastModified", "2025-06-18", MODERN),
    ("blocks", "resource_link.icons", "2025-11-25", MODERN),
    ("prompts/list", "prompts.0.title", "2025-06-18", MODERN),
    ("prompts/list", "prompts.0.icons", "2025-11-25", MODERN),
    ("prompts/list", "ttlMs", MODERN, MODERN),
    ("prompts/get", "messages.0.content.text", "2024-11-05", MODERN),
    ("prompts/get", "resultType", MODERN, MODERN),
    ("resources/list", "resources.0.title", "2025-06-18", MODERN),
    ("resources/list", "resources.0.icons", "2025-11-25", MODERN),
    ("resources/list", "ttlMs", MODERN, MODERN),
    ("resources/templates/list", "resourceTemplates.0.title", "2025-06-18", MODERN),
    ("resources/templates/list", "ttlMs", MODERN, MODERN),
    ("resources/read", "contents.0.text", "2024-11-05", MODERN),
    ("resources/read", "ttlMs", MODERN, MODERN),
    ("completion/complete", "completion.values", "2024-11-05", MODERN),
    ("completion/complete", "resultType", MODERN, MODERN),
    ("client", "experimental", "2024-11-05", MODERN),
    ("client", "roots", "2024-11-05", MODERN),
    ("client", "roots.listChanged", "2024-11-05", "2025-11-25"),
    ("client", "sampling", "2024-11-05", MODERN),
    ("client", "sampling.tools", "2025-11-25", MODERN),
    ("client", "elicitation", "2025-06-18", MODERN),
    ("client", "elicitation.form", "2025-11-25", MODERN),
    ("client", "elicitation.url", "2025-11-25", MODERN),
    ("client", "extensions.io\\.modelcontextprotocol/tasks", MODERN, MODERN),
]


def look(value: Any, path: str) -> bool:
    """Whether there is a member."""
    for name in path.replace("\\.", "\0").split("."):
        name = name.replace("\0", ".")
        if isinstance(value, list):
            if int(name) >= len(value):
                return False
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return False
    return True


@pytest.mark.parametrize("version", VERSIONS)
def test_members_are_there_where_a_revision_has_them(version: str, connect: Any) -> None:
    got: dict[str, Any] = {}

    async def main() -> None:
        guest = Guest(House(version))
        async with asyncio.timeout(FOREVER), guest.client as client:
            got["capabilities"] = client.server_capabilities
            got["client"] = json.loads(await guest.text("declared"))

    asyncio.run(main())
    peer = connect(version)
    got["initialize"] = peer.hello
    for name in {name for name, _, _, _ in FIELDS} & REQUESTS.keys() - {"initialize"}:
        if sends("client", REQUESTS[name], version):
            got[name] = peer.ask(sent_by_client(version, name))["result"]
    asked = sent_by_client(version, "tools/call")
    asked["params"] = asked["params"] | {"name": "blocks", "arguments": {}}
    got["blocks"] = {block["type"]: block for block in peer.ask(asked)["result"]["content"]}
    for name, path, first, last in FIELDS:
        # a client declares itself in the newest revision of the handshake, whatever comes of that
        here = max(version, VERSIONS[3]) if name == "client" else version
        expected = bool(first) and first <= here <= last
        assert look(got.get(name), path) == expected, (name, path, json.dumps(got.get(name)))
