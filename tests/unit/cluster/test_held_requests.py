"""Requests of a session whose host is gone are held until another host has adopted the session."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from lab.hosts import TOKENS, Visitor, deployed, join
from lab.http import FOREVER, call, message
from lab.store import Cable, MakeServer, StoreServer

from wirespeed.cluster.presence import LIFETIME, member_of
from wirespeed.cluster.store import STORE_TIMEOUT

pytestmark = pytest.mark.compiled

EVENTS = "text/event-stream"
LONG = 9 * 1024 * 1024  # bytes: two of these bodies are more than what is held


def text_of(answer: Any) -> str:
    text: str = answer.json["result"]["content"][0]["text"]
    return text


async def saved(store: StoreServer, n: int) -> None:
    """Wait until n sessions have a record."""
    while len(store.ask("KEYS", "*{session1:*record")) != n:
        await asyncio.sleep(0.02)


async def test_no_request_is_refused(tmp_path: Path, store_server: StoreServer) -> None:
    """At any living host: calls, streams, a cancellation, an answer, and the session's end."""
    async with deployed(tmp_path, store_server.url, "a", "b", "c") as hosts:
        one, other = Visitor(hosts), Visitor(hosts)
        await one.initialize("a")
        await other.initialize("a")
        await saved(store_server, 2)
        assert await one.answer("b", "who") == "a"  # b is connected to a, c is not
        await hosts.kill("a")
        calls = [asyncio.create_task(one.call(host, "who")) for host in "bcbc"]
        gets = [await one.send(host, "GET", accept=EVENTS) for host in "bc"]
        cancelled = message("notifications/cancelled", {"requestId": 7})
        assert (await one.ask("c", body=cancelled)).status == 202
        answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert (await one.ask("b", body=json.dumps(answer).encode())).status == 202
        answers = await asyncio.gather(*calls)
        assert [answer.status for answer in answers] == [200] * 4
        assert len({text_of(answer) for answer in answers}) == 1
        for get in gets:
            assert (await get.head()).is_stream
        assert (await other.ask("c", "DELETE")).status == 204
        assert (await other.call("b", "who")).status == 404


async def test_a_session_that_its_host_did_not_write_down(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """The client learns that it is lost when that is certain."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        one.fields["mcp_session_id"] = "a.0." + "A" * 32
        await hosts.kill("a")
        assert (await one.call("b", "who")).status == 404


async def test_what_was_passed_on_to_a_frozen_host(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """A request may have run there, so it does not run again. Everything else is repeated."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one, other = Visitor(hosts), Visitor(hosts)
        await one.initialize("a")
        await other.initialize("a")
        await saved(store_server, 2)
        assert await one.answer("b", "who") == "a"
        hosts.hosts["a"].signal(signal.SIGSTOP)
        asked = await one.send("b", body=call("who", {}, 5))
        streamed = await one.send("b", body=call("who", {}, "six"), accept=EVENTS)
        get = await one.send("b", "GET", accept=EVENTS)
        cancelled = message("notifications/cancelled", {"requestId": 7})
        cancel = await one.send("b", body=cancelled)
        said = await one.send("b", body=message("notifications/roots/list_changed"))
        end = await other.send("b", "DELETE")
        lost = await asked.response()
        assert (lost.status, lost.json["id"], lost.json["error"]["code"]) == (200, 5, -31006)
        (lost_too,) = (await streamed.response()).messages
        assert (lost_too["id"], lost_too["error"]["code"]) == ("six", -31006)
        assert (await get.head()).is_stream
        assert (await cancel.response()).status == 202
        assert (await said.response()).status == 502
        assert (await end.response()).status == 204
        assert text_of(await one.call("b", "who")) == "b"


async def test_the_answer_to_a_question_of_the_host_that_is_gone(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """It answers no question of the next one: no id comes twice in a session."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server, 1)
        asked = []
        for n, host in enumerate("ab"):
            peer = await one.send(host, body=call("confirm", {}, n))
            head = await peer.head()
            asked += await peer.until(head, 1)
            if host == "a":
                await hosts.kill("a")
        for question, action in zip(asked, ("accept", "decline"), strict=True):
            result = {"action": action, "content": {"value": True}}
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": result}
            assert (await one.ask("b", body=json.dumps(answer).encode())).status == 202
        _, said = await peer.until(head, 2)
        assert said["result"]["content"][0]["text"] == "b: DeclinedElicitation()"


async def test_a_host_that_goes_on_in_time(tmp_path: Path, store_server: StoreServer) -> None:
    """It keeps its sessions, and gets what was held."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server, 1)
        port = hosts.hosts["a"].port
        await hosts.kill("a")
        held = await one.send("b", body=call("who"))
        await hosts.begin("a", "a", port=port)
        assert (await held.response()).status == 200


async def test_a_host_that_lives_and_does_not_answer(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with deployed(tmp_path, store_server.url, "b") as hosts:
        one = await join(store_server, hosts, "http://127.0.0.1:9")
        refused = await one.call("b", "who")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")


async def test_a_client_that_leaves(tmp_path: Path, store_server: StoreServer) -> None:
    """Its request takes no room of what is held, which is bounded."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server, 1)
        await hosts.kill("a")
        long = "x" * LONG
        first = await one.send("b", body=call("who", {"text": long}, 1))
        await first.writer.drain()
        await asyncio.sleep(0.2)  # it is there
        small = await one.send("b", body=call("who", {}, 2))
        refused = await one.ask("b", body=call("who", {"text": long}, 3))
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        first.writer.transport.abort()
        third = await one.send("b", body=call("who", {"text": long}, 4))
        assert text_of(await small.response()) == "b"
        assert (await third.response()).status == 200


async def test_a_client_that_sends_much(tmp_path: Path, store_server: StoreServer) -> None:
    """It needs no session for that, and takes the room of nobody else."""
    async with deployed(tmp_path, store_server.url, "a", "b", tokens=TOKENS) as hosts:
        one, other = Visitor(hosts, TOKENS["anne"]), Visitor(hosts, TOKENS["bob"])
        await one.initialize("a")
        await saved(store_server, 1)
        other.fields["mcp_session_id"] = "a.0." + "A" * 32
        await hosts.kill("a")
        held = await other.send("b", body=call("who", {"text": "x" * LONG}))
        await held.writer.drain()
        await asyncio.sleep(0.2)  # it is there
        assert (await other.call("b", "who", text="x" * LONG)).status == 503
        assert (await one.call("b", "who", text="x" * LONG)).status == 200
        assert (await held.response()).status == 404


async def test_an_entry_that_nobody_can_read(tmp_path: Path, store_server: StoreServer) -> None:
    """Requests that are held because of it are answered."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server, 1)
        url = f"http://127.0.0.1:{hosts.ports['a']}"
        await hosts.kill("a")
        held = await one.send("b", body=call("who"))
        await asyncio.sleep(0.2)
        (key,) = store_server.ask("KEYS", "*{sessions1:*hosts")
        store_server.ask("HSET", key, member_of("a", url), f"1 x {url}")
        assert (await held.response()).status == 503


async def test_a_worker_that_its_host_does_not_have(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with deployed(tmp_path, store_server.url, "a") as hosts:
        one = Visitor(hosts)
        one.fields["mcp_session_id"] = "a.7." + "A" * 32
        async with asyncio.timeout(FOREVER):
            while (answer := await one.call("a", "who")).status == 503:
                await asyncio.sleep(0.05)  # the store is new: it may have lost its data
        assert answer.status == 404


async def test_a_host_that_drains(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server, 1)
        await hosts.kill("a")
        held = [await one.send("b", body=call("who")), await one.send("b", "GET", accept=EVENTS)]
        await asyncio.sleep(0.5)
        hosts.hosts["b"].signal(signal.SIGTERM)
        for peer in held:
            assert (await peer.response()).status == 503
        await asyncio.to_thread(hosts.hosts["b"].process.wait)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_the_store_is_away(tmp_path: Path, new_store_server: MakeServer, when: str) -> None:
    """Nobody knows whether the host is gone, and nothing is held."""
    store = new_store_server()
    async with deployed(tmp_path, store.url, "a", "b", store_timeout=STORE_TIMEOUT) as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store, 1)
        await hosts.kill("a")
        if when == "before":
            store.freeze()
        held = await one.send("b", body=call("who"))
        await asyncio.sleep(0.5)
        store.freeze()
        assert (await held.response()).status == 503
        assert (await one.call("b", "who")).status == 503


async def test_a_host_that_was_frozen(tmp_path: Path, store_server: StoreServer) -> None:
    """It finds out that its lease is over, and refuses nothing."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one, other = Visitor(hosts), Visitor(hosts)
        await one.initialize("a")
        await other.initialize("a")
        await saved(store_server, 2)
        hosts.hosts["a"].signal(signal.SIGSTOP)
        assert await one.answer("b", "who") == "b"
        asked = [await one.send("a", body=call("who")), await other.send("a", body=call("who"))]
        hosts.hosts["a"].signal(signal.SIGCONT)
        answers = [await peer.response() for peer in asked]
        assert [answer.status for answer in answers] == [200, 200]
        assert text_of(answers[0]) == "b"


async def test_a_host_that_loses_the_store_alone(tmp_path: Path, store_server: StoreServer) -> None:
    """The others adopt its sessions when its lease is over: through them, nothing is refused."""
    async with (
        Cable(store_server) as cable,
        deployed(tmp_path, store_server.url, "b", store_timeout=STORE_TIMEOUT) as hosts,
    ):
        await hosts.start("a", store=cable.url, store_timeout=STORE_TIMEOUT)
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server, 1)
        cable.cut()
        heard: list[str] = []
        while "b" not in heard:
            answer = await one.call("b", "who")
            assert answer.status == 200, answer.body
            heard.append(text_of(answer))
        assert (await one.call("a", "who")).status == 503


@pytest.mark.parametrize("store_is_away", [False, True])
async def test_a_session_that_a_host_opens_when_it_wakes(
    tmp_path: Path, store_server: StoreServer, store_is_away: bool
) -> None:
    """The others know the host by then. Without the store it opens none: they would not."""
    async with deployed(tmp_path, store_server.url, "a", "b", store_timeout=STORE_TIMEOUT) as hosts:
        one = Visitor(hosts)
        hosts.hosts["a"].signal(signal.SIGSTOP)
        await asyncio.sleep(LIFETIME + 0.5)
        opening = await hosts.connect("a")
        answered = asyncio.create_task(opening.initialize())
        await asyncio.sleep(0.1)  # it has sent
        if store_is_away:
            store_server.ask("CLIENT", "PAUSE", 3000, "ALL")
        hosts.hosts["a"].signal(signal.SIGCONT)
        opened = await answered
        if store_is_away:
            assert (opened.status, opened.headers["retry-after"]) == (503, "1")
        else:
            while opened.status == 503:  # on a busy machine the store did not answer in time
                opened = await (await hosts.connect("a")).initialize()
            one.fields["mcp_session_id"] = opened.headers["mcp-session-id"]
            assert await one.answer("b", "who") == "a"


async def test_a_host_that_starts_without_the_store(
    tmp_path: Path, new_store_server: MakeServer
) -> None:
    """It opens no session, because no other host would find it, until the store is back."""
    store = new_store_server()
    async with deployed(tmp_path, store.url, "b", store_timeout=STORE_TIMEOUT) as hosts:
        store.freeze()
        await hosts.begin("a", "a", store_timeout=STORE_TIMEOUT)
        opening = await hosts.connect("a")
        refused = await opening.initialize()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        store.thaw()
        one = Visitor(hosts)
        async with asyncio.timeout(FOREVER):
            while (await opening.initialize()).status == 503:
                await asyncio.sleep(0.05)
        await one.initialize("a")
        assert await one.answer("b", "who") == "a"
