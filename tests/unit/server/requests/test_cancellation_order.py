"""What comes behind a cancellation: requests wait for the handler's end, all else does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.raw import call, cancel, request
from lab.server import pass_on, text_of

from wirespeed import Server

pytestmark = pytest.mark.compiled


class Slot:
    """A tool that refuses while another call has the one slot, and gives it back late."""

    def __init__(self, *, clean_up: float = 0.0) -> None:
        self.server = Server("slot")
        self.server.add_tool(self.take)
        self.server.add_tool(self.look)
        self.taken = False
        self.clean_up = clean_up

    async def take(self) -> str:
        if self.taken:
            return "refused"
        self.taken = True
        try:
            await asyncio.Event().wait()
        finally:
            if self.clean_up:
                await asyncio.sleep(self.clean_up)
            self.taken = False
        return "never"

    async def look(self) -> str:
        return "taken" if self.taken else "free"


@pytest.mark.parametrize("middleware", [False, True])
def test_a_request_behind_a_cancellation_finds_what_the_handler_held(
    connect: Any, middleware: bool
) -> None:
    slot = Slot()
    if middleware:
        slot.server.add_middleware(pass_on)
    peer = connect("2025-06-18", to=slot.server)
    peer.send(call(1, "take"))
    peer.fence()
    peer.send(cancel(1), call(2, "look"), call(3, "look"))
    got = peer.answers(2, 3)
    assert [text_of(got[id]["result"]) for id in (2, 3)] == ["free", "free"]


def test_a_handler_that_ends_late_holds_requests_up_for_a_moment_only(connect: Any) -> None:
    slot = Slot(clean_up=3600)
    peer = connect("2025-06-18", to=slot.server)
    peer.send(call(1, "take"))
    peer.fence()
    peer.send(cancel(1), call(2, "look"), request(3, "ping"))
    assert peer.recv()["id"] == 3  # a ping does not wait
    assert text_of(peer.recv()["result"]) == "taken"


def test_a_request_that_waits_behind_a_cancellation_can_be_cancelled(connect: Any) -> None:
    slot = Slot()
    peer = connect("2025-06-18", to=slot.server)
    peer.send(call(1, "take"))
    peer.fence()
    peer.send(cancel(1), call(2, "take"), cancel(2), call(3, "look"))
    assert text_of(peer.recv()["result"]) == "free"


def test_a_handler_that_closes_the_connection_is_the_last_one(connect: Any) -> None:
    server = Server("closing")
    began: list[str] = []

    def close() -> str:
        peer.connection.abort()
        return "x"

    def effect() -> str:
        began.append("began")
        return "x"

    server.add_tool(close, inline=True)
    server.add_tool(effect, inline=True)
    peer = connect("2025-06-18", to=server)
    peer.send(call(1, "close"), call(2, "effect"))
    peer.wait_for(lambda: peer.connection.closed.done())
    assert began == []
