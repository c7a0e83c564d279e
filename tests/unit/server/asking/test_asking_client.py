"""Handlers that ask, and the package's own client, in memory: the same in both eras."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from lab.questions import Seat

from wirespeed import Client, Context, Server
from wirespeed.client.answering.types import SampleResult
from wirespeed.types import ElicitRequest, InputRequired

pytestmark = pytest.mark.smoke

ERAS = ("legacy", "modern")


@pytest.fixture
def travel(server: Server) -> Server:
    @server.tool
    async def book(to: str, ctx: Context) -> str:
        seat = await ctx.elicit("Which seat?", Seat)
        if not seat.accepted:
            return f"no seat: {seat.action}"
        paid, roots = await asyncio.gather(
            ctx.elicit_url("Pay", "https://pay.example/1"), ctx.roots()
        )
        note = await ctx.sample([f"A greeting from {to}"], max_tokens=20)
        return f"{to} {seat.content} {paid.action} {len(roots)} {note.text}"

    @server.tool
    async def explicit(ctx: Context) -> str | InputRequired:
        seat = ctx.input_responses.get("seat")
        if seat is None:
            return InputRequired({"seat": ElicitRequest("Which seat?", Seat)}, state=7)
        return f"{seat.as_form(Seat)} {ctx.request_state}"

    @server.prompt
    async def trip(ctx: Context) -> str:
        return str((await ctx.elicit("Which seat?", Seat)).content)

    @server.resource("seat://{n}")
    async def seat(n: int, ctx: Context) -> str:
        return f"{n} {(await ctx.elicit('Which seat?', Seat)).content}"

    return server


def giving(answer: Any) -> Callable[[Any], Coroutine[Any, Any, Any]]:
    """A handler of a client that always answers the same."""

    async def handler(request: Any) -> Any:
        return answer

    return handler


def client(server: Server, era: Any, **options: Any) -> Client:
    handlers: dict[str, Any] = {
        "on_elicit": giving({"row": 5}),
        "on_elicit_url": giving("accept"),
        "on_sample": giving(SampleResult(content="Hello", model="m")),
        "roots": ["file:///a", "file:///b"],
    }
    return Client(server, era=era, **(handlers | options))


BOOKED = "Rome Seat(row=5, window=False) accept 2 Hello"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mounted", [False, True])
def test_every_kind_of_handler_asks(mounted: bool, era: str, run: Any, travel: Server) -> None:
    names, uris = ("travel_", "t+") if mounted else ("", "")
    server = Server("front") if mounted else travel
    if mounted:
        server.mount("travel", travel, uri_prefix=uris)

    async def main() -> list[str]:
        async with client(server, era) as c:
            return [
                (await c.call_tool(f"{names}book", {"to": "Rome"})).text,
                (await c.call_tool(f"{names}explicit")).text,
                str(await c.get_prompt(f"{names}trip")),
                str(await c.read_resource(f"{uris}seat://7")),
            ]

    booked, explicit, prompt, resource = run(main())
    assert booked == BOOKED
    assert explicit == "Seat(row=5, window=False) 7"
    assert "Seat(row=5, window=False)" in prompt
    assert "7 Seat(row=5, window=False)" in resource


@pytest.mark.parametrize("era", ERAS)
def test_a_user_says_no(era: str, run: Any, travel: Server) -> None:
    async def main() -> str:
        async with client(travel, era, on_elicit=giving("decline")) as c:
            return (await c.call_tool("book", {"to": "Rome"})).text

    assert run(main()) == "no seat: decline"


@pytest.mark.parametrize("era", ERAS)
def test_many_calls_at_once(era: str, run: Any, travel: Server) -> None:
    async def main() -> list[str]:
        async with client(travel, era) as c:
            results = await asyncio.gather(
                *(c.call_tool("book", {"to": f"town {n}"}) for n in range(20))
            )
            return [result.text for result in results]

    assert run(main()) == [f"town {n} Seat(row=5, window=False) accept 2 Hello" for n in range(20)]
