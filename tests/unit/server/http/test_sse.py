"""HTTP+SSE of 2024-11-05: the stream, the POSTs, and how both end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab import raw
from lab.session import HttpClient, Lab, Reply, served

from wirespeed import Limits


class SseClient:
    """A client of HTTP+SSE."""

    def __init__(self, client: HttpClient, stream: Reply, place: str) -> None:
        self.client = client
        self.stream = stream
        self.place = place

    @classmethod
    async def connect(cls, client: HttpClient) -> SseClient:
        stream = await client.get(path="/sse")
        assert stream.status == 200 and stream.is_stream
        event = await stream.event()
        assert event is not None and event.fields["event"] == "endpoint"
        assert event.data is not None and event.data.startswith("sse?")
        return cls(client, stream, f"/{event.data}")

    async def post(self, message: Any, **fields: str | None) -> Reply:
        return await self.client.post(message, path=self.place, **fields)

    async def ask(self, message: Any) -> Any:
        """POST a request, and read its answer on the stream."""
        reply = await self.post(message)
        assert reply.status == 202 and await reply.body() == b""
        event = await self.stream.event()
        assert event is not None and event.fields["event"] == "message"
        assert event.message["id"] == message["id"]
        return event.message

    async def open(self, version: str = "2024-11-05") -> None:
        opened = await self.ask(raw.initialize(0, version))
        assert opened["result"]["protocolVersion"] == version
        assert (await self.post(raw.notification("notifications/initialized"))).status == 202


@pytest.mark.every_revision
async def test_a_session(version: str) -> None:
    if version == "2026-07-28":
        return
    lab = Lab()
    async with served(lab, sse_path="/sse") as client:
        one, two = [await SseClient.connect(client) for _ in range(2)]
        assert one.place != two.place
        for each in (one, two):
            await each.open(version)
        for text, each in (("1", one), ("2", two)):
            answer = await each.ask(raw.call(1, "echo", {"text": text}))
            assert answer["result"]["content"][0]["text"] == text
        lab.change()
        for each in (one, two):
            (changed,) = await each.stream.next_messages(1)
            assert changed["method"] == "notifications/tools/list_changed"
        # the endpoint of later revisions is there, too
        assert (await client.open()).status == 200


async def test_what_a_handler_says_is_on_the_stream() -> None:
    lab = Lab()
    async with served(lab, sse_path="/sse") as client:
        peer = await SseClient.connect(client)
        await peer.open()
        assert (await peer.post(raw.call(1, "ping"))).status == 202
        (question,) = await peer.stream.next_messages(1)
        assert question["method"] == "ping"
        await peer.post({"jsonrpc": "2.0", "id": question["id"], "result": {}})
        (answer,) = await peer.stream.next_messages(1)
        assert answer["result"]["content"][0]["text"] == "pong"


async def test_the_end_of_the_stream_is_the_end_of_the_session() -> None:
    lab = Lab()
    async with served(lab, sse_path="/sse") as client:
        peer = await SseClient.connect(client)
        await peer.open()
        await peer.post(raw.call(1, "wait", {"name": "a"}))
        await lab.started.get()
        peer.stream.leave()
        while (await peer.post(raw.request(2, "ping"))).status != 404:
            await asyncio.sleep(0.005)
        while lab.cancelled != ["a"]:
            await asyncio.sleep(0.005)


async def test_bad_input_is_answered() -> None:
    async with served(Lab(), sse_path="/sse") as client:
        peer = await SseClient.connect(client)
        reply = await client.request("POST", b"{", path=peer.place)
        assert reply.status == 202
        (error,) = await peer.stream.next_messages(1)
        assert error["error"]["code"] == -32700
        assert (await client.post({}, path="/sse")).status == 400
        over = await client.post({}, path="/sse?session_id=made-up")
        assert over.status == 404
        assert "open a new stream, and send initialize again" in (await over.body()).decode()
        assert (await peer.post({}, content_type="text/plain")).status == 415
        assert (await client.get(path="/sse", accept="application/json")).status == 406
        reply = await client.request("DELETE", path="/sse")
        assert reply.status == 405 and "GET" in reply.headers["allow"]
        # without the option nothing is there
    async with served(Lab()) as client:
        assert (await client.get(path="/sse")).status == 404


async def test_a_session_belongs_to_its_principal() -> None:
    async with served(Lab(), sse_path="/sse", token=["anne", "bob"]) as client:
        client.fields["authorization"] = "Bearer anne"
        peer = await SseClient.connect(client)
        await peer.open()
        client.fields["authorization"] = "Bearer bob"
        assert (await peer.post(raw.request(1, "ping"))).status == 404
        client.fields["authorization"] = "Bearer anne"
        assert "result" in await peer.ask(raw.request(1, "ping"))


async def test_as_many_sessions_as_there_may_be() -> None:
    async with served(Lab(), sse_path="/sse", max_sessions=1) as client:
        peer = await SseClient.connect(client)
        full = await client.get(path="/sse")
        assert full.status == 503 and int(full.headers["retry-after"]) >= 1
        peer.stream.leave()
        while (await client.get(path="/sse")).status != 200:
            await asyncio.sleep(0.005)


async def test_a_server_that_shuts_down_answers_what_it_works_on() -> None:
    lab = Lab()
    async with served(lab, sse_path="/sse") as client:
        peer = await SseClient.connect(client)
        await peer.open()
        await peer.post(raw.call(1, "wait", {"name": "a"}))
        await lab.started.get()
        client.drain()
        lab.gate("a").set()
        (answer,) = await peer.stream.messages()
        assert answer["result"]["content"][0]["text"] == "a"


async def test_a_silent_stream_gets_comments() -> None:
    async with served(Lab(), sse_path="/sse", sse_keepalive=0.2) as client:
        peer = await SseClient.connect(client)
        assert await peer.stream.comment() == ":"


async def test_a_handler_waits_until_its_client_reads() -> None:
    lab = Lab(limits=Limits(output_high=65_536, output_low=1_000))
    async with served(lab, sse_path="/sse") as client:
        one = await SseClient.connect(client)
        await one.open("2025-03-26")  # whose progress has a text
        params = {"name": "flood", "arguments": {"n": 400}, "_meta": {"progressToken": 1}}
        assert (await one.post(raw.request(1, "tools/call", params))).status == 202
        await lab.stuck()
        assert lab.n_said < 400
        assert (await one.post(raw.call(2, "echo", {"text": "behind"}))).status == 202
        body = await one.stream.read_until(b'"text":"said"')
        assert body.count(b"notifications/progress") == lab.n_said == 400
        assert b'"text":"behind"' in body


async def crowd(
    lab: Lab, peer: SseClient, client: HttpClient, last: HttpClient
) -> list[asyncio.Task[Reply]]:
    """Calls 0 to 5: the first is at work, the second waits, the POSTs of the others are held."""
    posts = []
    for n in range(6):
        call = raw.call(n, "wait", {"name": f"a{n}"})
        sender = last if n == 5 else client
        posts.append(asyncio.create_task(sender.post(call, path=peer.place)))
        if n < 2:
            await posts[-1]
    assert await lab.started.get() == "a0"
    for _ in range(3):  # until the server has read the others
        assert (await last.request("GET", path="/healthz")).status == 200
    assert not any(post.done() for post in posts[2:])
    return posts


async def test_a_cancellation_an_answer_and_a_ping_pass_requests_that_are_held() -> None:
    lab = Lab(limits=Limits(max_in_flight=1, max_waiting=1))
    async with served(lab, sse_path="/sse") as client:
        peer = await SseClient.connect(client)
        await peer.open()
        posts = await crowd(lab, peer, client, client)
        assert (await peer.ask(raw.request("alive?", "ping")))["result"] == {}
        assert (await peer.post({"jsonrpc": "2.0", "id": 1, "result": {}})).status == 202
        for id in (3, 77, 0):  # held, unknown, at work
            cancelled = raw.notification("notifications/cancelled", {"requestId": id})
            assert (await peer.post(cancelled)).status == 202
        assert (await posts[3]).status == 202
        for n in range(6):
            lab.gate(f"a{n}").set()
        assert [(await post).status for post in posts] == [202] * 6
        assert {answer["id"] for answer in await peer.stream.next_messages(4)} == {1, 2, 4, 5}
        assert [await lab.started.get() for _ in range(4)] == ["a1", "a2", "a4", "a5"]
        assert lab.cancelled == ["a0"] and lab.started.empty()


async def test_requests_that_are_held_for_clients_that_leave_are_not_kept() -> None:
    lab = Lab(limits=Limits(max_in_flight=1, max_waiting=1))
    async with served(lab, sse_path="/sse") as client:
        peer = await SseClient.connect(client)
        await peer.open()
        leaving = client.another()
        posts = await crowd(lab, peer, leaving, client)
        for post in posts[2:5]:
            post.cancel()
        leaving.leave()
        assert (await peer.ask(raw.request("alive?", "ping")))["result"] == {}
        for n in range(6):
            lab.gate(f"a{n}").set()
        assert {answer["id"] for answer in await peer.stream.next_messages(3)} == {0, 1, 5}


async def test_requests_above_the_limit_are_taken_when_there_is_room() -> None:
    lab = Lab(limits=Limits(max_in_flight=1, max_waiting=1))
    async with served(lab, sse_path="/sse") as client:
        one = await SseClient.connect(client)
        await one.open()
        for n in range(2):
            assert (await one.post(raw.call(n, "wait", {"name": f"a{n}"}))).status == 202
        posts = [
            asyncio.create_task(one.post(raw.call(n, "wait", {"name": f"a{n}"})))
            for n in range(2, 6)
        ]
        assert (await client.request("GET", path="/healthz")).status == 200
        assert not any(post.done() for post in posts)
        for n in range(6):
            lab.gate(f"a{n}").set()
        assert [(await post).status for post in posts] == [202] * 4
        assert {answer["id"] for answer in await one.stream.next_messages(6)} == {*range(6)}


async def test_requests_above_the_limit_of_a_session_that_ends_are_refused() -> None:
    lab = Lab(limits=Limits(max_in_flight=1, max_waiting=1))
    async with served(lab, sse_path="/sse") as client:
        one = await SseClient.connect(client)
        await one.open()
        for n in range(2):
            await one.post(raw.call(n, "wait", {"name": f"a{n}"}))
        post = asyncio.create_task(one.post(raw.call(2, "wait", {"name": "a2"})))
        assert (await client.request("GET", path="/healthz")).status == 200
        one.stream.leave()
        assert (await post).status == 404
