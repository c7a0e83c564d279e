"""A client's time limit stands still while a handler of its own answers: it may ask a person."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wirespeed import Client, Context, Server
from wirespeed.errors import CallTimeout

pytestmark = pytest.mark.compiled


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("your name?")
        return str(answer.action)

    @server.tool
    async def ask_then_hang(ctx: Context) -> None:
        await ctx.elicit("your name?")
        await asyncio.sleep(1000)

    return server


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_limit_of_a_call(run: Any, era: Any) -> None:
    async def slow(*_: Any) -> str:
        await asyncio.sleep(1.5)
        return "decline"

    async with Client(asking(), era=era, on_elicit=slow) as client:
        assert (await client.call_tool("ask", timeout=1.0)).text == "decline"
        # what is left of the limit goes on afterwards
        with pytest.raises(CallTimeout):
            await client.call_tool("ask_then_hang", timeout=1.0)
