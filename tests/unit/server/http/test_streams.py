"""Streams of events that are silent, and calls that are: comments keep them open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab import raw
from lab.session import HttpClient, Lab, Reply, served

from wirespeed import MemoryEventStore
from wirespeed.errors import ProtocolError
from wirespeed.types import CallNext, InboundRequest
from wirespeed.types import Reply as Answer

SOON = 0.1  # seconds of silence
ERAS = pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])


async def waiting(client: HttpClient, version: str, **fields: str | None) -> Reply:
    """The response to a call that waits at the gate "a", once its head is there."""
    return await client.call_as(version, "wait", {"name": "a"}, **fields)


async def text_of(reply: Reply) -> Any:
    """The text of the only message of a response."""
    message = (await reply.messages())[0] if reply.is_stream else await reply.message()
    return message["result"]["content"][0]["text"]


@ERAS
async def test_a_silent_stream_gets_comments(version: str) -> None:
    lab = Lab()
    async with served(lab, sse_keepalive=0.2, response="sse") as client:
        if version == "2025-11-25":
            await client.open(version)
            streams = [await client.get(), await client.call("wait", name="a")]
        else:
            streams = [await client.listen()]
            await streams[0].event()
        for stream in streams:
            assert await stream.comment() == ":"
        lab.gate("a").set()
        if version == "2025-11-25":
            (result,) = await streams[1].messages()
            assert result["result"]["content"][0]["text"] == "a"


@ERAS
@pytest.mark.parametrize("response", ["auto", "sse"])
async def test_a_call_that_says_nothing_becomes_a_stream(version: str, response: str) -> None:
    lab = Lab()
    async with served(lab, sse_keepalive=SOON, response=response) as client:
        if version == "2025-11-25":
            await client.open()
        reply = await waiting(client, version)
        assert reply.status == 200 and reply.is_stream
        assert await reply.comment() == ":"
        lab.gate("a").set()
        assert await text_of(reply) == "a"


@ERAS
@pytest.mark.parametrize("why", ["the server's option", "the client's Accept", "never"])
async def test_a_call_that_says_nothing_stays_json(version: str, why: str) -> None:
    lab = Lab()
    options: dict[str, Any] = {"sse_keepalive": SOON}
    fields = {}
    if why == "the server's option":
        options["response"] = "json"
    elif why == "the client's Accept":
        fields = {"accept": "application/json"}
    else:
        options["sse_keepalive"] = None
    async with served(lab, **options) as client:
        if version == "2025-11-25":
            await client.open()
        call = asyncio.create_task(waiting(client, version, **fields))
        await lab.started.get()
        await asyncio.sleep(4 * SOON)
        assert not call.done()
        lab.gate("a").set()
        reply = await call
        assert not reply.is_stream
        assert await text_of(reply) == "a"


async def test_a_batch_that_says_nothing_becomes_a_stream() -> None:
    lab = Lab()
    async with served(lab, sse_keepalive=SOON) as client:
        await client.open("2025-03-26")
        calls = [raw.call(n, "wait", {"name": name}) for n, name in enumerate("ab")]
        lab.gate("b").set()
        reply = await client.post(calls)
        assert await reply.comment() == ":"
        lab.gate("a").set()
        (answers,) = await reply.messages()
        assert {answer["result"]["content"][0]["text"] for answer in answers} == {"a", "b"}


@ERAS
async def test_an_error_after_the_first_comment_is_an_event(version: str) -> None:
    lab = Lab()

    @lab.server.add_middleware
    async def refuse(request: InboundRequest, call_next: CallNext) -> Answer:
        if request.method == "tools/call":
            await lab.at_gate("a")
            raise ProtocolError(-32601, "not today")
        return await call_next(request)

    async with served(lab, sse_keepalive=SOON) as client:
        if version == "2025-11-25":
            await client.open()
        reply = await waiting(client, version)
        assert reply.status == 200
        lab.gate("a").set()
        (message,) = await reply.messages()
        assert message["error"] == {"code": -32601, "message": "not today"}
        now = await waiting(client, version)  # an error that comes in time has its status
        assert now.status == (404 if version == "2026-07-28" else 200) and not now.is_stream


async def test_a_client_that_leaves_a_silent_call_cancels_it() -> None:
    lab = Lab()
    async with served(lab, sse_keepalive=SOON) as client:
        reply = await waiting(client, "2026-07-28")
        assert await reply.comment() == ":"
        reply.leave()
        while not lab.cancelled:
            await asyncio.sleep(0.01)
        lab.gate("a").set()
        assert await text_of(await waiting(client, "2026-07-28")) == "a"


async def test_a_client_comes_back_to_a_silent_call() -> None:
    lab = Lab()
    async with served(lab, sse_keepalive=SOON, event_store=MemoryEventStore()) as client:
        await client.open()
        reply = await waiting(client, "2025-11-25")
        primer = await reply.event()
        assert primer is not None and primer.data == ""
        reply.leave()
        again = await client.get(primer.id)
        assert await again.comment() == ":"  # it is silent here, too
        lab.gate("a").set()
        assert await text_of(again) == "a"


async def test_a_session_without_a_store_goes_on_when_its_client_leaves_a_silent_call() -> None:
    lab = Lab()
    async with served(lab, sse_keepalive=SOON) as client:
        await client.open()
        reply = await waiting(client, "2025-11-25")
        reply.leave()
        await asyncio.sleep(2 * SOON)
        lab.gate("a").set()
        assert await text_of(await client.call("echo", id=2, text="x")) == "x"
        assert lab.cancelled == []


async def test_a_session_that_ends_closes_a_silent_call() -> None:
    lab = Lab()
    async with served(lab, sse_keepalive=SOON) as client:
        await client.open()
        reply = await waiting(client, "2025-11-25")
        assert (await client.request("DELETE")).status == 204
        (answer,) = await reply.messages()
        assert answer["error"]["code"] == -31006
        assert lab.cancelled == ["a"]
