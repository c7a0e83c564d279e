"""Requests that come whole, each with a route for its answer: what handlers say takes it, too."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from lab.raw import call, encode, initialize, modern
from lab.server import Peer, text_of

from wirespeed import Context, Server
from wirespeed.core import MemoryReply


async def post(peer: Peer, message: Any) -> tuple[list[Any], Any]:
    """What is said about a request, and its answer."""
    done = asyncio.get_running_loop().create_future()
    said: list[Any] = []

    def on_notice(text: bytes) -> None:
        said.append(json.loads(text))
        if "id" in said[-1]:  # the client answers in a body of its own
            answer = {"jsonrpc": "2.0", "id": said[-1]["id"], "result": {"action": "accept"}}
            peer.connection.session.receive_message(encode(answer), MemoryReply())
            peer.connection.link.wrote()

    reply = MemoryReply(on_notice=on_notice, on_done=done.set_result)
    peer.connection.session.receive_message(encode(message), reply)
    peer.connection.link.deliver()
    async with asyncio.timeout(20):
        await done
    return said, json.loads(reply.data or b"null")


def test_what_a_handler_says_takes_the_route_of_its_request(connect: Any, server: Server) -> None:
    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await ctx.warning("careful")
        await ctx.ping()
        return (await ctx.elicit("Go on?")).action

    peer = connect()
    hello = initialize("init", "2025-11-25")
    hello["params"]["capabilities"] = {"elicitation": {}}
    peer.ask(hello)
    said, answer = peer.run(post(peer, call(7, "talk", {}, progressToken="t")))
    assert [one["method"] for one in said] == [
        "notifications/progress", "notifications/message", "ping", "elicitation/create",
    ]  # fmt: skip
    assert answer["id"] == 7
    assert text_of(answer["result"]) == "accept"
    assert peer.fence() == []


def test_a_subscription_takes_the_route_of_its_request(connect: Any, server: Server) -> None:
    peer = connect()

    async def listen() -> tuple[list[Any], Any]:
        wanted = {"notifications": {"toolsListChanged": True}}
        listening = asyncio.ensure_future(post(peer, modern(1, "subscriptions/listen", wanted)))
        await asyncio.sleep(0)
        server.tool(lambda: 1, name="more")
        while not listening.done():
            await asyncio.sleep(0.01)
            peer.connection.changes.end()
        return await listening

    said, answer = peer.run(listen())
    assert [one["method"] for one in said] == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
        "notifications/cancelled",
    ]
    assert answer["id"] == 1
    assert peer.fence() == []
