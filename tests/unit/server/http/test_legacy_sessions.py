"""Sessions of legacy clients over HTTP: opening, requests, the GET stream, the end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import h11
import pytest
from lab import raw
from lab.session import Lab, served

from wirespeed import Limits
from wirespeed.protocol.codes import CUT_OFF

CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


async def text_of(reply: Any) -> str:
    """The text of a tool's result that came as JSON."""
    assert reply.status == 200 and reply.headers["content-type"] == "application/json"
    text: str = (await reply.message())["result"]["content"][0]["text"]
    return text


async def refused(reply: Any, status: int, code: int = -32600) -> str:
    """The message of a refusal, which is a JSON-RPC error without an id."""
    assert reply.status == status
    assert reply.headers["content-type"] == "application/json"
    body = await reply.message()
    assert body["jsonrpc"] == "2.0" and body.get("id") is None
    assert body["error"]["code"] == code
    message: str = body["error"]["message"]
    return message


@pytest.mark.every_revision
async def test_a_session(version: str) -> None:
    if version in ("2024-11-05", "2026-07-28"):
        return
    async with served(Lab()) as client:
        opened = await client.open(version)
        assert opened.status == 200 and opened.headers["content-type"] == "application/json"
        session = opened.headers["mcp-session-id"]
        assert len(session) >= 22 and all(0x21 <= ord(char) <= 0x7E for char in session)
        assert (await opened.message())["result"]["protocolVersion"] == version
        reply = await client.call("echo", text="hello")
        assert "mcp-session-id" not in reply.headers
        assert await text_of(reply) == "hello"


async def test_a_request_without_its_session_is_refused() -> None:
    async with served(Lab()) as client:
        await client.open()
        for fields, status in (({"mcp_session_id": None}, 400), ({"mcp_session_id": "no"}, 404)):
            for method in ("POST", "GET", "DELETE"):
                body = json.dumps(raw.request(1, "ping")).encode()
                reply = await client.request(method, body, **fields)
                assert await refused(reply, status)


async def test_a_session_belongs_to_its_principal() -> None:
    async with served(Lab(), token=["anne", "bob"]) as client:
        client.fields["authorization"] = "Bearer anne"
        await client.open()
        assert await text_of(await client.call("echo", text="1")) == "1"
        client.fields["authorization"] = "Bearer bob"
        await refused(await client.call("echo", text="2"), 404)
        await refused(await client.get(), 404)
        await refused(await client.request("DELETE"), 404)
        client.fields["authorization"] = "Bearer anne"
        assert await text_of(await client.call("echo", text="3")) == "3"


async def test_the_version_header_has_a_default_and_is_checked() -> None:
    async with served(Lab()) as client:
        await client.open("2025-06-18")
        for version in (None, "2025-06-18", "2025-03-26"):
            reply = await client.post(raw.request(1, "ping"), mcp_protocol_version=version)
            assert reply.status == 200, version
        for version in ("2020-01-01", "x", ""):
            reply = await client.post(raw.request(1, "ping"), mcp_protocol_version=version)
            assert reply.status == 400, version
            reply = await client.get(mcp_protocol_version=version)
            assert reply.status == 400, version


async def test_notifications_and_responses_get_202_without_a_body() -> None:
    async with served(Lab()) as client:
        await client.open()
        for message in (
            raw.notification("notifications/initialized"),
            raw.notification("notifications/unknown"),
            {"jsonrpc": "2.0", "id": 77, "result": {}},
        ):
            reply = await client.post(message)
            assert reply.status == 202 and await reply.body() == b""


async def test_leaving_cancels_nothing() -> None:
    lab = Lab()
    async with served(lab) as client:
        await client.open()
        call = asyncio.create_task(client.call("wait", id=0, name="a"))
        assert await lab.started.get() == "a"
        client.leave()
        with pytest.raises((ConnectionError, h11.RemoteProtocolError)):
            await call
        assert await text_of(await client.call("echo", text="still here")) == "still here"
        assert lab.cancelled == []
        lab.gate("a").set()


async def test_a_cancellation_ends_a_call() -> None:
    lab = Lab()
    async with served(lab) as client:
        await client.open()
        call = asyncio.create_task(client.call("wait", id="x", name="a"))
        await lab.started.get()
        assert (await client.post(raw.cancel("x"))).status == 202
        reply = await call
        assert reply.status in (200, 202) and await reply.body() == b""
        assert lab.cancelled == ["a"]


async def test_requests_behind_a_cancellation_are_answered() -> None:
    """They wait for the handler's end, which has no message of its own."""
    lab = Lab()
    async with served(lab) as client:
        await client.open()
        for n in range(5):
            call = asyncio.create_task(client.call("wait", id=f"x{n}", name=f"a{n}"))
            await lab.started.get()
            cancelled, reply = await asyncio.gather(
                client.post(raw.cancel(f"x{n}")), client.call("echo", id=n, text="behind")
            )
            assert cancelled.status == 202
            assert await text_of(reply) == "behind"
            await call


async def test_more_calls_at_once_than_are_worked_on() -> None:
    lab = Lab(limits=Limits(max_in_flight=4))
    async with served(lab) as client:
        await client.open()
        calls = [asyncio.create_task(client.call("wait", id=n, name=f"a{n}")) for n in range(12)]
        for _ in range(12):
            name = await lab.started.get()
            lab.gate(name).set()
        assert [reply.status for reply in await asyncio.gather(*calls)] == [200] * 12


async def test_the_end_of_a_session() -> None:
    lab = Lab()
    async with served(lab) as client:
        await client.open()
        stream = await client.get()
        call = asyncio.create_task(client.call("wait", name="a"))
        await lab.started.get()
        assert (await client.request("DELETE")).status in (200, 204)
        assert await stream.events() == []
        # it has begun: at 404 its client would send it again in another session
        assert (await (await call).message())["error"]["code"] == CUT_OFF
        assert lab.cancelled == ["a"]
        await refused(await client.call("echo", text="x"), 404)
        await refused(await client.request("DELETE"), 404)
        client.fields.clear()
        await client.open()
        assert await text_of(await client.call("echo", text="again")) == "again"


async def test_a_session_expires() -> None:
    async with served(Lab(), session_ttl=0.05) as client:
        await client.open()
        stream = await client.get()  # keeps it
        await asyncio.sleep(0.3)
        assert await text_of(await client.call("echo", text="x")) == "x"
        stream.leave()
        while (reply := await client.call("echo", text="x")).status == 200:
            await asyncio.sleep(0.2)
        await refused(reply, 404)


async def test_as_many_sessions_as_there_may_be() -> None:
    async with served(Lab(), max_sessions=2, session_ttl=100) as client:
        for _ in range(2):
            assert (await client.open()).status == 200
            kept = dict(client.fields)
            client.fields.clear()
        full = await client.open()
        assert "2 sessions" in await refused(full, 503)
        assert 1 <= int(full.headers["retry-after"]) <= 100
        client.fields = kept
        assert await text_of(await client.call("echo", text="x")) == "x"
        assert (await client.request("DELETE")).status in (200, 204)
        client.fields.clear()
        assert (await client.open()).status == 200


async def test_what_the_server_says_of_its_own_accord_is_on_the_get_stream() -> None:
    lab = Lab()
    async with served(lab) as client:
        await client.open()
        stream = await client.get()
        assert stream.status == 200 and stream.is_stream
        lab.change()
        assert await stream.next_messages(1) == [CHANGED]
        # a request that is worked on has its own messages on its own stream
        call = asyncio.create_task(client.call("talk", name="a", n=1, meta={"progressToken": 5}))
        await lab.started.get()
        reply = await call
        assert reply.is_stream
        lab.change()
        lab.gate("a").set()
        found = await reply.messages()
        assert [message.get("method") for message in found] == 2 * ["notifications/progress"] + [
            None
        ]
        assert found[-1]["result"]["content"][0]["text"] == "a"
        assert await stream.next_messages(1) == [CHANGED]


async def test_messages_wait_for_the_get_stream() -> None:
    lab = Lab()
    async with served(lab) as client:
        await client.open()
        lab.change()
        await client.post(raw.request(1, "ping"))
        stream = await client.get()
        assert await stream.next_messages(1) == [CHANGED]
        stream.leave()
        # and each of them is sent once
        other = await client.get()
        lab.change()
        assert await other.next_messages(1) == [CHANGED]
        await client.request("DELETE")
        assert await other.messages() == []


async def test_a_message_goes_to_one_of_several_get_streams() -> None:
    lab = Lab()
    async with served(lab) as client:
        await client.open()
        first, second = await client.get(), await client.get()
        for _ in range(3):
            lab.change()
            assert await second.next_messages(1) == [CHANGED]
        second.leave()
        while True:  # until the server has noticed
            lab.change()
            try:
                async with asyncio.timeout(0.1):
                    assert await first.next_messages(1) == [CHANGED]
                    break
            except TimeoutError:
                pass
        await client.request("DELETE")
        assert await first.messages() == []


async def test_a_get_needs_a_client_that_takes_events() -> None:
    async with served(Lab()) as client:
        await client.open()
        await refused(await client.get(accept="application/json"), 406)
        for accept in ("text/event-stream", "*/*", None):
            assert (await client.get(accept=accept)).is_stream, accept
        reply = await client.request("PUT", accept="*/*")
        assert reply.status == 405 and "POST" in reply.headers["allow"]


async def test_a_question_to_the_client() -> None:
    async with served(Lab()) as client:
        await client.open()
        reply = await client.call("ping")
        assert reply.is_stream
        event = await reply.event()
        assert event is not None and event.message["method"] == "ping"
        answer = {"jsonrpc": "2.0", "id": event.message["id"], "result": {}}
        assert (await client.post(answer)).status == 202
        (result,) = await reply.messages()
        assert result["result"]["content"][0]["text"] == "pong"


async def test_a_question_goes_to_the_get_stream_where_the_response_is_json() -> None:
    async with served(Lab(), response="json") as client:
        await client.open()
        stream = await client.get()
        call = asyncio.create_task(client.call("ping"))
        (question,) = await stream.next_messages(1)
        assert question["method"] == "ping"
        await client.post({"jsonrpc": "2.0", "id": question["id"], "result": {}})
        assert await text_of(await call) == "pong"


@pytest.mark.parametrize("response", ["auto", "json", "sse"])
async def test_the_form_of_a_response(response: str) -> None:
    lab = Lab()
    async with served(lab, response=response) as client:
        opened = await client.open()
        assert opened.is_stream == (response == "sse")
        reply = await client.call("echo", text="x")
        assert reply.is_stream == (response == "sse")
        lab.gate("a").set()
        reply = await client.call("talk", name="a", n=2, meta={"progressToken": 1})
        assert reply.is_stream == (response != "json")
        if reply.is_stream:
            assert len(await reply.messages()) == 5
        else:
            assert (await reply.message())["result"]["content"][0]["text"] == "a"


async def test_a_batch_of_2025_03_26() -> None:
    lab = Lab()
    async with served(lab) as client:
        await client.open("2025-03-26")
        batch = [raw.call(1, "echo", {"text": "1"}), raw.call(2, "echo", {"text": "2"})]
        reply = await client.post(batch)
        assert reply.status == 200
        found = await reply.message()
        assert [(one["id"], one["result"]["content"][0]["text"]) for one in found] == [
            (1, "1"),
            (2, "2"),
        ]
        reply = await client.post([raw.notification("notifications/initialized")] * 2)
        assert reply.status == 202
        lab.gate("a").set()
        talk = raw.call(3, "talk", {"name": "a", "n": 1}, progressToken=1)
        reply = await client.post([raw.request(4, "ping"), talk])
        assert reply.is_stream
        found = await reply.messages()
        assert [one["method"] for one in found[:2]] == ["notifications/progress"] * 2
        answers = [one for part in found[2:] for one in (part if type(part) is list else [part])]
        assert sorted(one["id"] for one in answers) == [3, 4]


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_later_revisions_have_no_batches(version: str) -> None:
    async with served(Lab()) as client:
        await client.open(version)
        reply = await client.post([raw.request(1, "ping")])
        assert reply.status == 400
        assert (await reply.message())["error"]["code"] == -32600


async def test_stateless_mode() -> None:
    lab = Lab()
    async with served(lab, stateless=True) as client:
        opened = await client.open()
        assert opened.status == 200 and "mcp-session-id" not in opened.headers
        for version in (None, "2025-03-26", "2025-06-18", "2025-11-25"):
            client.fields["mcp_protocol_version"] = version
            message = raw.call(1, "echo", {"text": str(version)})
            assert await text_of(await client.post(message)) == str(version)
            reply = await client.post([raw.request(1, "ping")])
            assert reply.status == (200 if version in (None, "2025-03-26") else 400)
        client.fields["mcp_protocol_version"] = "2025-11-25"
        for method in ("GET", "DELETE"):
            reply = await client.request(method)
            assert reply.status == 405 and reply.headers["allow"] == "POST"
        # a session id that a client made up, or has from before, is not looked at
        message = raw.call(1, "echo", {"text": "x"})
        assert await text_of(await client.post(message, mcp_session_id="old")) == "x"
        lab.gate("a").set()
        reply = await client.call("talk", name="a", n=1, meta={"progressToken": 1})
        assert len(await reply.messages()) == 3


async def test_a_server_that_shuts_down_answers_what_it_works_on() -> None:
    lab = Lab()
    async with served(lab) as client:
        await client.open()
        stream = await client.get()
        call = asyncio.create_task(client.call("wait", name="a"))
        await lab.started.get()
        client.drain()
        assert await stream.messages() == []
        assert lab.cancelled == []
        lab.gate("a").set()
        assert await text_of(await call) == "a"


async def test_a_client_that_does_not_read_its_get_loses_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = Lab()

    @lab.server.resource("x://{name}")
    def thing(name: str) -> str:
        return name

    uris = [f"x://{letter * 8000}" for letter in "abcdefgh"]
    async with served(lab) as client:
        await client.open()
        for uri in uris:
            await client.post(raw.request(1, "resources/subscribe", {"uri": uri}))
        await client.get()
        while "does not read its GET" not in caplog.text:
            for uri in uris:
                lab.server.resource_updated(uri)
            await asyncio.sleep(0)
        stream = await client.get()
        (update,) = await stream.next_messages(1)
        assert update["method"] == "notifications/resources/updated"
