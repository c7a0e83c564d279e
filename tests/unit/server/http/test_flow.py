"""Flow control over HTTP: requests that wait, clients that do not read, and what ends them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab import raw
from lab.http import META, message
from lab.session import HttpClient, Lab, Reply, served

from wirespeed import HttpRequest, Limits, MemoryEventStore, Server
from wirespeed.protocol.codes import CUT_OFF

ERAS = pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
SMALL = Limits(output_high=65_536, output_low=1_000)
MANY = 400  # messages of 20 KB that no connection holds
ONE = Limits(max_in_flight=1, max_waiting=1)


async def flooded(client: HttpClient, version: str = "2025-11-25", n: int = MANY) -> Reply:
    """The response to a call that says more than a connection holds."""
    params = {"name": "flood", "arguments": {"n": n}, "_meta": {"progressToken": 1}}
    if version == "2026-07-28":
        return await client.modern("tools/call", params)
    return await client.post(raw.request(1, "tools/call", params))


async def until_said(lab: Lab, n: int) -> None:
    while lab.n_said < n:
        await asyncio.sleep(0.01)


@ERAS
async def test_a_handler_waits_until_its_client_reads(version: str) -> None:
    lab = Lab(limits=SMALL)
    # the marks of another server at the port are higher, and its messages may be longer
    beside = Server("beside", limits=Limits(max_message=2**30, output_high=2**24, output_low=2**20))
    async with served(lab, beside=beside) as client:
        if version == "2025-11-25":
            await client.open()
        reply = await flooded(client, version)
        await lab.stuck()
        assert lab.n_said < MANY
        assert (await reply.body()).count(b"notifications/progress") == lab.n_said == MANY


async def test_a_handler_goes_on_when_its_client_leaves_without_having_read() -> None:
    lab = Lab(limits=SMALL)
    async with served(lab) as client:
        await client.open()
        reply = await flooded(client)
        await lab.stuck()
        reply.leave()
        await until_said(lab, MANY)


async def test_a_handler_whose_client_has_left_gives_others_turns() -> None:
    """Nothing makes it wait for a client any more. It is not the only one on the loop."""
    lab = Lab(limits=SMALL)
    async with served(lab, event_store=MemoryEventStore()) as client:
        await client.open()
        reply = await flooded(client, n=10 * MANY)
        await lab.stuck()
        reply.leave()
        before = lab.n_said
        while lab.n_said == before:
            await asyncio.sleep(0)
        assert lab.n_said < 10 * MANY
        await until_said(lab, 10 * MANY)


async def test_a_handler_goes_on_when_its_client_reads_the_stream_elsewhere() -> None:
    lab = Lab(limits=SMALL)
    async with served(
        lab, event_store=MemoryEventStore(max_bytes=2**26, max_stream_bytes=2**26)
    ) as client:
        await client.open()
        reply = await flooded(client)
        first = await reply.event()
        await lab.stuck()
        assert first is not None
        rest = await (await client.get(first.id)).body()
        assert rest.count(b"notifications/progress") == lab.n_said == MANY


# -- requests that wait ----------------------------------------------------------------------------


async def crowd(lab: Lab, client: HttpClient, n: int) -> list[asyncio.Task[Reply]]:
    """Calls of a session: one works, one waits, and the bodies of the others are not read."""
    calls = [asyncio.create_task(client.call("wait", id=i, name=f"a{i}")) for i in range(n)]
    assert await lab.started.get() == "a0"
    await arrived(client)
    return calls


async def arrived(client: HttpClient) -> None:
    """Until the server has noticed what its clients did before."""
    for _ in range(3):
        assert (await client.request("GET", path="/healthz")).status == 200


def open_gates(lab: Lab, n: int) -> None:
    for i in range(n):
        lab.gate(f"a{i}").set()


async def test_bodies_that_are_not_read_yet_are_served_in_order() -> None:
    lab = Lab(limits=ONE)
    async with served(lab) as client:
        await client.open()
        calls = await crowd(lab, client, 6)
        open_gates(lab, 6)
        assert [(await call).status for call in calls] == [200] * 6


async def test_a_session_that_ends_answers_bodies_that_are_not_read() -> None:
    lab = Lab(limits=ONE)
    async with served(lab) as client:
        await client.open()
        calls = await crowd(lab, client, 6)
        assert (await client.request("DELETE")).status == 204
        # one has begun, one waits to begin, the others were not read
        assert [(await call).status for call in calls] == [200, 503, 404, 404, 404, 404]
        assert (await (await calls[0]).message())["error"]["code"] == CUT_OFF
        assert lab.cancelled == ["a0"]


async def test_a_server_that_shuts_down_answers_bodies_that_are_not_read() -> None:
    lab = Lab(limits=ONE)
    async with served(lab) as client:
        await client.open()
        calls = await crowd(lab, client, 6)
        client.drain()
        open_gates(lab, 6)
        replies = [await call for call in calls]
        assert [reply.status for reply in replies] == [200, 200, 503, 503, 503, 503]
        assert (await replies[5].message())["error"]["code"] == -31001


def cancelled(id: int) -> dict[str, Any]:
    return raw.notification("notifications/cancelled", {"requestId": id})


async def test_a_cancellation_and_a_ping_pass_bodies_that_are_not_read() -> None:
    lab = Lab(limits=ONE)
    async with served(lab) as client:
        await client.open()
        calls = await crowd(lab, client, 6)
        for number in range(3):
            reply = await client.post(raw.request(f"ping {number}", "ping"))
            assert (await reply.message())["result"] == {}
        for id in (3, 77, 0):  # not read, unknown, at work
            assert (await client.post(cancelled(id))).status == 202
        assert [(await calls[i]).status for i in (3, 0)] == [202, 202]
        assert lab.cancelled == ["a0"]
        open_gates(lab, 6)
        assert [(await calls[i]).status for i in (1, 2, 4, 5)] == [200] * 4
        started = [await lab.started.get() for _ in range(4)]
        assert started == ["a1", "a2", "a4", "a5"]
        assert lab.started.empty()


async def test_bodies_of_clients_that_leave_are_not_kept() -> None:
    """Nothing else bounds the bodies of a session that are not read."""
    lab = Lab(limits=ONE)
    async with served(lab) as client:
        await client.open()
        calls = await crowd(lab, client, 6)
        for call in calls:
            call.cancel()
        client.leave()
        await arrived(client)
        open_gates(lab, 6)
        assert (await client.call("echo", id=9, text="x")).status == 200
        assert await lab.started.get() == "a1"  # which had been read, and waited
        assert lab.started.empty()


# -- clients that wait for the gate ----------------------------------------------------------------


class Gate:
    """Lets a number of requests in; the others wait for `opened`."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.opened = asyncio.Event()
        self.waiting = 0

    async def __call__(self, request: HttpRequest) -> str:
        self.n -= 1
        if self.n < 0:
            self.waiting += 1
            await self.opened.wait()
        return "me"

    async def until(self, n: int) -> None:
        while self.waiting < n:
            await asyncio.sleep(0.001)


async def test_a_session_is_over_when_the_gate_lets_its_client_in() -> None:
    lab = Lab()
    gate = Gate(2)
    async with served(lab, authenticate=gate) as client:
        await client.open()
        late = [
            asyncio.create_task(request)
            for request in (client.call("echo", text="x"), client.get(), client.request("DELETE"))
        ]
        await gate.until(3)
        client.drain()
        gate.opened.set()
        assert [(await reply).status for reply in late] == [404] * 3


async def test_what_the_gate_lets_in_during_a_shutdown_has_an_end() -> None:
    """A request has the grace time. No stream is opened that a shutdown has to end."""
    lab = Lab()
    lab.server.shutdown_grace = 0.05
    gate = Gate(0)
    async with served(lab, authenticate=gate, sse_path="/sse") as client:
        late = [
            asyncio.create_task(request)
            for request in (
                client.modern("tools/call", {"name": "wait", "arguments": {"name": "a"}}),
                client.listen(),
                client.get(path="/sse"),
            )
        ]
        await gate.until(3)
        client.drain()
        gate.opened.set()
        called, listens, stream = [await reply for reply in late]
        assert (await called.message())["error"]["code"] == CUT_OFF
        assert lab.cancelled == ["a"]
        assert "result" in (await listens.messages())[-1]
        assert stream.status == 503


async def test_an_answer_is_read_while_the_next_request_waits_for_the_gate() -> None:
    lab = Lab(limits=Limits(output_high=8_000_000, output_low=1))
    gate = Gate(1)

    @lab.server.tool
    async def long() -> str:
        return "x" * 20_000_000

    async with served(lab, authenticate=gate) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port, limit=2**16)
        for id in (1, 2):
            params = {"name": "long" if id == 1 else "echo", "_meta": META}
            params["arguments"] = {} if id == 1 else {"text": "short"}
            writer.write(post(message("tools/call", params, id), params["name"]))
        data = await reader.readuntil(b"\r\n\r\n")
        n = int(data.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while n:
            n -= len(await reader.read(min(n, 2**16)))
        assert gate.waiting == 1
        gate.opened.set()
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.close()


def post(body: bytes, name: Any) -> bytes:
    """A call of 2026-07-28."""
    fields = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
        "Content-Length": str(len(body)),
    }
    lines = "".join(f"{key}: {value}\r\n" for key, value in fields.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body
