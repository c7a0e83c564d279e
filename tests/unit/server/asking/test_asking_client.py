"""Handlers that ask, and the package's own client, in memory: the same in both eras."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from wirespeed import Client, Context, Server
from wirespeed.client.answering.types import SampleResult
from wirespeed.server import ElicitRequest, InputRequired

pytestmark = pytest.mark.smoke

Run = Callable[[Coroutine[Any, Any, Any]], Any]
ERAS = ("legacy", "modern")


class Seat(msgspec.Struct):
    row: int
    window: bool = False


@pytest.fixture
def run(runner: asyncio.Runner) -> Run:
    async def bounded(work: Coroutine[Any, Any, Any]) -> Any:
        async with asyncio.timeout(20):
            return await work

    return lambda work: runner.run(bounded(work))


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


@pytest.mark.parametrize("era", ERAS)
def test_a_handler_asks_four_times(era: str, run: Run, travel: Server) -> None:
    async def main() -> str:
        async with client(travel, era) as c:
            return (await c.call_tool("book", {"to": "Rome"})).text

    assert run(main()) == "Rome Seat(row=5, window=False) accept 2 Hello"


@pytest.mark.parametrize("era", ERAS)
def test_the_explicit_form(era: str, run: Run, travel: Server) -> None:
    async def main() -> str:
        async with client(travel, era) as c:
            return (await c.call_tool("explicit")).text

    assert run(main()) == "Seat(row=5, window=False) 7"


@pytest.mark.parametrize("era", ERAS)
def test_prompts_and_resources(era: str, run: Run, travel: Server) -> None:
    async def main() -> tuple[Any, Any]:
        async with client(travel, era) as c:
            return await c.get_prompt("trip"), await c.read_resource("seat://7")

    prompt, resource = run(main())
    assert "Seat(row=5, window=False)" in str(prompt)
    assert "7 Seat(row=5, window=False)" in str(resource)


@pytest.mark.parametrize("era", ERAS)
def test_a_user_says_no(era: str, run: Run, travel: Server) -> None:
    async def main() -> str:
        async with client(travel, era, on_elicit=giving("decline")) as c:
            return (await c.call_tool("book", {"to": "Rome"})).text

    assert run(main()) == "no seat: decline"


@pytest.mark.parametrize("era", ERAS)
def test_many_calls_at_once(era: str, run: Run, travel: Server) -> None:
    async def main() -> list[str]:
        async with client(travel, era) as c:
            results = await asyncio.gather(
                *(c.call_tool("book", {"to": f"town {n}"}) for n in range(20))
            )
            return [result.text for result in results]

    assert run(main()) == [f"town {n} Seat(row=5, window=False) accept 2 Hello" for n in range(20)]


@pytest.mark.parametrize("era", ERAS)
def test_what_is_mounted_asks_too(era: str, run: Run, travel: Server) -> None:
    front = Server("front")
    front.mount("travel", travel, uri_prefix="t+")

    async def main() -> list[str]:
        async with client(front, era) as c:
            booked = await c.call_tool("travel_book", {"to": "Rome"})
            explicit = await c.call_tool("travel_explicit")
            return [
                booked.text,
                explicit.text,
                str(await c.get_prompt("travel_trip")),
                str(await c.read_resource("t+seat://7")),
            ]

    booked, explicit, prompt, resource = run(main())
    assert booked == "Rome Seat(row=5, window=False) accept 2 Hello"
    assert explicit == "Seat(row=5, window=False) 7"
    assert "Seat(row=5, window=False)" in prompt
    assert "7 Seat(row=5, window=False)" in resource
