"""Sessions over HTTP that any host serves: passed on while their host lives, adopted when it is
gone. The hosts are processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from lab.hosts import TOKENS, Deployment, Visitor, deployed
from lab.http import message
from lab.store import Cable, MakeServer, StoreServer

from wirespeed.cluster.presence import member_of

pytestmark = pytest.mark.compiled

YES = {"action": "accept", "content": {"value": True}}


async def saved(store: StoreServer, **fields: str) -> str:
    """The key of the only record of a session, when it is there."""
    while True:
        keys = store.ask("KEYS", "*{session1:*record")
        if keys and all(store.ask("HGET", keys[0], name) == it for name, it in fields.items()):
            return str(keys[0])
        await asyncio.sleep(0.05)


def owner(store: StoreServer) -> str:
    """The host that has the only session, as the store knows."""
    (key,) = store.ask("KEYS", "*{session1:*record")
    return str(store.ask("HGET", key, "owner")).partition("@")[0]


def owner_of(hosts: Deployment, name: str) -> str:
    """A host as records name it."""
    return f"{member_of(name, f'http://127.0.0.1:{hosts.hosts[name].port}')}.0"


async def next_message(stream: Any, opened: Any, n: int = 1) -> dict[str, Any]:
    messages = await stream.until(opened, n)
    last: dict[str, Any] = messages[n - 1]
    return last


async def test_any_host_answers(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b", "c") as hosts:
        one = Visitor(hosts)
        assert (await one.initialize("a")).startswith("a.0.")
        await asyncio.sleep(1.5)  # the others have read of a, and the record is written
        for host in "bca":
            assert await one.answer(host, "who") == "a"
            streamed = await one.call(host, "who", steps=2)
            assert streamed.is_stream
            assert [m.get("method") for m in streamed.messages] == [
                "notifications/progress", "notifications/progress", None,
            ]  # fmt: skip
        missing = await one.request("b", "tools/list_all")
        assert missing.json["error"]["code"] == -32601
        get = await one.send("b", "GET", accept="text/event-stream")
        opened = await get.head()
        assert opened.is_stream
        assert (await one.request("c", "resources/subscribe", uri="stock://tea")).status == 200
        assert await one.answer("c", "sell") == "a"
        heard = await next_message(get, opened)
        assert heard["params"] == {"uri": "stock://tea"}
        get.close()
        asked = await one.send("b", body=call_of("confirm", 50))
        question = await next_message(asked, opened := await asked.head())
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": YES}
        assert (await one.ask("c", body=json.dumps(answer).encode())).status == 202
        result = await next_message(asked, opened, 2)
        assert result["result"]["content"][0]["text"] == "a: AcceptedElicitation(content=True)"
        endless = await one.send("b", body=call_of("wait", 51, seconds=60))
        await next_message(endless, opened := await endless.head())
        cancel = message("notifications/cancelled", {"requestId": 51})
        assert (await one.ask("c", body=cancel)).status == 202
        while await endless.more(opened):
            pass
        assert (await one.ask("c", "DELETE")).status == 204
        for host in "abc":
            assert (await one.call(host, "who")).status == 404
        while store_server.ask("KEYS", "*{session1:*"):
            await asyncio.sleep(0.05)


async def test_calls_at_their_host_do_not_ask_the_store(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server, owner=owner_of(hosts, "a"))
        store_server.ask("CONFIG", "RESETSTAT")
        for _ in range(100):
            assert await one.answer("a", "who") == "a"
        calls = store_server.calls()
        # the hosts' own: one a second each, and they may have been slow
        assert calls.get("evalsha", 0) < 50


async def test_a_session_whose_host_is_gone(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b", "c", tokens=TOKENS) as hosts:
        anne, bob = (Visitor(hosts, TOKENS[name]) for name in ("anne", "bob"))
        bob.fields["mcp_session_id"] = await anne.initialize("a")
        assert await anne.answer("b", "who") == "a for anne"
        assert (await bob.call("b", "who")).status == 404
        assert (await anne.request("a", "logging/setLevel", level="debug")).status == 200
        assert (await anne.request("a", "resources/subscribe", uri="stock://tea")).status == 200
        get = await anne.send("a", "GET", accept="text/event-stream")
        first = await get.head()
        assert await anne.answer("a", "sell") == "a"
        assert (await next_message(get, first))["params"] == {"uri": "stock://tea"}
        (*_, last) = (event["id"] for event in first.events if "id" in event)
        await anne.answer("a", "sell")  # which nobody reads
        cut = await anne.send("a", body=call_of("wait", 70, seconds=60))
        begun = await cut.head()
        assert (await next_message(cut, begun))["method"] == "notifications/progress"
        (*_, of_cut) = (event["id"] for event in begun.events if "id" in event)
        await asyncio.sleep(1.2)
        await hosts.kill("a")

        assert await anne.answer("b", "who") == "b for anne"
        assert "host a has left, or is lost" in hosts.hosts["b"].log.read_text()
        assert await anne.answer("c", "who") == "b for anne"
        assert (await bob.call("b", "who")).status == 404
        assert (await bob.call("c", "who")).status == 404
        # its log level and capabilities
        logged = await anne.call("c", "log")
        assert logged.messages[0]["params"]["data"] == "looked"
        # its subscriptions, and the stream from where it was
        get = await anne.send("c", "GET", accept="text/event-stream", last_event_id=last)
        opened = await get.head()
        assert (await next_message(get, opened))["params"] == {"uri": "stock://tea"}
        assert await anne.answer("b", "sell") == "b"
        assert (await next_message(get, opened, 2))["params"] == {"uri": "stock://tea"}
        ids = [event["id"] for event in opened.events if "id" in event]
        assert len(set(ids)) == len(ids)
        # what ran there does not run again
        over = await anne.ask("c", "GET", accept="text/event-stream", last_event_id=of_cut)
        (answer,) = over.messages
        assert (answer["id"], answer["error"]["code"]) == (70, -31006)
        asked = await anne.send("b", body=call_of("confirm", 71))
        question = await next_message(asked, await asked.head())
        assert question["method"] == "elicitation/create"


async def test_what_handlers_keep_for_a_session(tmp_path: Path, store_server: StoreServer) -> None:
    """Its state as far as it is JSON, its opaque id, and what is shown of the server's lists."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        assert await one.answer("a", "remember", what={"n": [1, None, "é"]}) == "a"
        await saved(store_server)
        long = await one.send("a", body=call_of("remember", 90, what="x", seconds=1.5))
        _, session_id, state = json.loads(await one.answer("a", "recall"))
        assert state["first"] == state["last"] == {"n": [1, None, "é"]} and "lock" in state
        assert b'"text":"a"' in (await long.response()).body
        await asyncio.sleep(0.2)  # the record has it, though no other request came
        a = hosts.hosts["a"]
        await hosts.kill("a")
        moved = json.loads(await one.answer("b", "recall"))
        assert moved == ["b", session_id, {"first": {"n": [1, None, "é"]}, "last": "x"}]
        names = {
            tool["name"] for tool in (await one.request("b", "tools/list")).json["result"]["tools"]
        }
        assert "who" in names and "log" not in names
        assert "session_state does not move" in a.log.read_text()


async def test_a_state_that_is_too_long_stays(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        assert await one.answer("a", "remember", what="x" * 40_000) == "a"
        await asyncio.sleep(1.2)
        assert "session_state does not move" in hosts.hosts["a"].log.read_text()
        await hosts.kill("a")
        assert json.loads(await one.answer("b", "recall"))[2] == {}


async def test_a_new_session_is_in_the_store_before_its_client_knows(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with (
        Cable(store_server) as cable,
        deployed(tmp_path, store_server.url, "b") as hosts,
    ):
        await hosts.start("a", store=cable.url)
        one = Visitor(hosts)
        await one.initialize("a")
        assert len(store_server.ask("KEYS", "*{session1:*record")) == 1
        cable.cut()
        peer = await hosts.connect("a")
        refused = await peer.initialize(**Visitor(hosts).fields)
        assert refused.status == 503 and refused.headers["retry-after"] == "1"
        assert "mcp-session-id" not in refused.headers
        cable.is_cut = False
        await Visitor(hosts).initialize("b")
        while len(store_server.ask("KEYS", "*{session1:*record")) != 2:
            await asyncio.sleep(0.05)


async def test_a_change_is_in_the_store_before_its_answer(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server)
        assert (await one.request("a", "logging/setLevel", level="debug")).status == 200
        assert (await one.request("a", "resources/subscribe", uri="stock://tea")).status == 200
        await hosts.kill("a")
        await one.answer("b", "who")
        logged = await one.call("b", "log")
        assert logged.messages[0]["params"]["data"] == "looked"
        get = await one.send("b", "GET", accept="text/event-stream")
        opened = await get.head()
        assert await one.answer("b", "sell") == "b"
        assert (await next_message(get, opened))["params"] == {"uri": "stock://tea"}


def call_of(tool: str, id: int, **arguments: Any) -> bytes:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": id}}
    text = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    return json.dumps(text).encode()


async def test_a_stream_whose_answer_was_kept(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server)
        whole = await one.ask("a", body=call_of("who", 5, steps=2))
        first = whole.events[0]["id"]
        await asyncio.sleep(0.2)
        await hosts.kill("a")
        assert await one.answer("b", "who") == "b"
        again = await one.ask("b", "GET", accept="text/event-stream", last_event_id=first)
        assert again.messages == whole.messages
        assert [event["id"] for event in again.events] == [
            event["id"] for event in whole.events if event.get("data")
        ]


async def test_a_host_that_ends_in_order(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server)
        hosts.hosts["a"].signal(signal.SIGTERM)
        await asyncio.to_thread(hosts.hosts["a"].process.wait)
        response = await one.call("b", "who")
        assert response.status == 200
        assert response.json["result"]["content"][0]["text"] == "b"


async def test_a_host_that_comes_back_with_its_name(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with deployed(tmp_path, store_server.url, "a") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server)
        port = hosts.hosts["a"].port
        await hosts.kill("a")
        await hosts.start("a", port=port)
        assert await one.answer("a", "who") == "a"


async def test_a_frozen_host_has_lost_its_sessions(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server)
        frozen = hosts.hosts["a"]
        frozen.signal(signal.SIGSTOP)
        held = await one.send("a", body=call_of("who", 90))  # it reads this when it goes on
        await asyncio.sleep(4.5)
        assert await one.answer("b", "who") == "b"
        frozen.signal(signal.SIGCONT)
        answer = await held.response()
        # on a machine that is too slow for a host's entry, the session may have gone on to a again
        if answer.status == 200:
            assert owner(store_server) in answer.json["result"]["content"][0]["text"]
        for _ in range(20):
            for host in "ab":
                assert await one.answer(host, "who") == owner(store_server)
            await asyncio.sleep(0.1)


async def test_workers_are_hosts(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b", workers=2) as hosts:
        visitors = [Visitor(hosts) for _ in range(6)]
        for one in visitors:
            await one.initialize("a")
        while len(store_server.ask("KEYS", "*{session1:*record")) < 6:
            await asyncio.sleep(0.05)
        for one in visitors:
            assert [await one.answer("b", "who") for _ in range(4)] == ["a"] * 4
        pid = hosts.hosts["a"].process.pid
        workers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        await hosts.kill("a")
        for worker in workers:  # they notice it a moment later
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(worker), signal.SIGKILL)
        for one in visitors:
            assert [await one.answer("b", "who") for _ in range(6)] == ["b"] * 6
        records = store_server.ask("KEYS", "*{session1:*record")
        # none has changed hands between the workers
        assert {store_server.ask("HGET", key, "epoch") for key in records} == {"1"}


async def test_the_store_goes_and_comes_back_empty(
    tmp_path: Path, new_store_server: MakeServer
) -> None:
    store = new_store_server()
    async with deployed(tmp_path, store.url, "a", "b", "c") as hosts:
        one, other = Visitor(hosts), Visitor(hosts)
        await one.initialize("a")
        await other.initialize("b")
        for host in "bc":  # each knows the others
            assert await one.answer(host, "who") == "a"
        while len(store.ask("KEYS", "*{session1:*record")) < 2:
            await asyncio.sleep(0.05)
        store.kill()
        for _ in range(25):  # longer than an entry lives
            assert (await one.call("b", "who")).status == 200
            assert (await other.call("b", "who")).status == 200
            await asyncio.sleep(0.2)
        store.start()
        while len(store.ask("KEYS", "*{session1:*record")) < 2:
            assert (await one.call("c", "who")).status == 200
            await asyncio.sleep(0.1)
        await hosts.know_each_other()
        await hosts.kill("a")
        assert await one.answer("c", "who") == "c"


async def test_forged_requests_and_records(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        session = await one.initialize("a")
        key = await saved(store_server)
        store_server.ask("CONFIG", "RESETSTAT")
        for id in ("a", "a.0", "a.0.x", "a.99999.x", session + "x", "..", "x" * 4000):
            other = Visitor(hosts)
            other.fields["mcp_session_id"] = id
            assert (await other.call("b", "who")).status == 404
        unknown = Visitor(hosts)
        unknown.fields["mcp_session_id"] = session[:-4] + "AAAA"
        for host in "ab":
            assert (await unknown.call(host, "who")).status == 404
        await hosts.kill("a")
        for field, value in (
            ("record", "junk"), ("owner", "nobody"), ("epoch", "many"), ("record", "\x94\x02"),
        ):  # fmt: skip
            store_server.ask("COPY", key, "kept", "REPLACE")
            store_server.ask("HSET", key, field, value)
            while (status := (await one.call("b", "who")).status) == 503:
                await asyncio.sleep(0.1)  # a may live
            assert status == 404
            store_server.ask("COPY", "kept", key, "REPLACE")
        assert await one.answer("b", "who") == "b"
        log = hosts.hosts["b"].log.read_text()
        assert log.count("the record of a session in the store") == 1
        assert session not in log


async def test_two_hosts_with_one_name(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server)
        hosts.hosts["first"], hosts.ports["first"] = hosts.hosts.pop("a"), hosts.ports.pop("a")
        await hosts.start("a")
        while "another host has the name a" not in hosts.hosts["a"].log.read_text():
            await asyncio.sleep(0.1)
        assert await one.answer("first", "who") == "a"
        assert await one.answer("b", "who") == "a"


async def test_a_host_that_alone_loses_the_store(tmp_path: Path, store_server: StoreServer) -> None:
    """Its sessions end before others adopt them."""
    async with (
        Cable(store_server) as cable,
        deployed(tmp_path, store_server.url, "b", "c") as hosts,
    ):
        await hosts.start("a", store=cable.url)
        one = Visitor(hosts)
        await one.initialize("a")
        await saved(store_server, owner=owner_of(hosts, "a"))
        assert await one.answer("b", "who") == "a"
        cable.cut()
        # who adopts it would not know
        assert (await one.request("a", "resources/subscribe", uri="stock://tea")).status == 503
        heard: list[tuple[str, int]] = []
        adopted = False
        async with asyncio.timeout(8):
            while not adopted:
                direct, other = await asyncio.gather(one.call("a", "who"), one.call("b", "who"))
                heard.append(("a", direct.status))
                adopted = other.status == 200 and b'"text":"b"' in other.body
                await asyncio.sleep(0.05)
        assert heard[-1] == ("a", 503)
        for _ in range(20):
            assert (await one.call("a", "who")).status == 503
            assert await one.answer("c", "who") == "b"
        cable.is_cut = False
        assert await one.answer("a", "who") == "b"


@pytest.mark.parametrize("workers", [1, 2])
async def test_any_host_takes_messages_of_http_and_sse(
    tmp_path: Path, store_server: StoreServer, workers: int
) -> None:
    """Their session ends with its stream."""
    async with deployed(tmp_path, store_server.url, "a", "b", workers=workers) as hosts:
        one = Visitor(hosts)
        stream = await one.send("a", "GET", path="/sse", accept="text/event-stream")
        opened = await stream.head()
        while not opened.events:
            assert await stream.more(opened)
        place = f"/{opened.events[0]['data']}"
        hello = {"protocolVersion": "2024-11-05", "capabilities": {}}
        hello["clientInfo"] = {"name": "one", "version": "1"}
        for host, text in (
            ("b", message("initialize", hello, 0)),
            ("a", message("notifications/initialized")),
            ("b", call_of("who", 1)),
            ("a", call_of("who", 2)),
        ):
            assert (await one.ask(host, path=place, body=text)).status == 202
        while b'"id":2' not in opened.body:
            assert await stream.more(opened)
        assert opened.body.count(b'"text":"a"') == 2
        for id in ("x", "a.0." + "A" * 32, "b.0." + "A" * 32, "b.1." + "A" * 32):
            gone = await one.ask("b", path=f"/sse?session_id={id}", body=call_of("who", 1))
            assert gone.status == 404
        stream.close()
        while (await one.ask("b", path=place, body=call_of("who", 3))).status != 404:
            await asyncio.sleep(0.05)
