"""Our client and our server, in memory: what the server asks is answered, in both eras."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from lab.client import Run
from lab.wording import raises

from wirespeed import Client, Context, Server
from wirespeed.errors import HandlerFailed, RemoteError
from wirespeed.types import Accept, ElicitParams, SampleParams, SampleResult

pytestmark = pytest.mark.smoke


class Person(msgspec.Struct):
    name: str
    seats: int = 2


def booking() -> Server:
    server = Server("booking")

    @server.tool
    async def book(ctx: Context) -> str:
        got = await ctx.elicit("Who are you?", Person)
        if got.action != "accept":
            return got.action
        said = await ctx.sample("Greet them", max_tokens=10)
        roots = await ctx.roots()
        return f"{got.content.name} {got.content.seats} {said.text} {[r.uri for r in roots]}"

    @server.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit_url("Go there", "https://example.com/x")).action

    return server


def called(run: Run, tool: str, era: Any, **options: Any) -> Any:
    async def main() -> Any:
        async with Client(booking(), era=era, **options) as client:
            return await client.call_tool(tool)

    return run(main())


def test_a_handler_that_asks_for_everything(run: Run, era: str) -> None:
    asked: list[str] = []

    async def on_elicit(request: ElicitParams) -> Any:
        asked.append(request.message)
        assert request.defaults == {"seats": 2}
        return Accept({"name": "octocat"})

    def on_sample(request: SampleParams) -> Any:
        asked.append(request.messages[0].content.text)  # type: ignore[union-attr]
        return SampleResult(content="hello", model="m")

    result = called(run, "book", era, on_elicit=on_elicit, on_sample=on_sample, roots=["file:///a"])
    assert result.text == "octocat 2 hello ['file:///a']"
    assert asked == ["Who are you?", "Greet them"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_user_who_does_not_want(once: Run, era: str, action: str) -> None:
    result = called(
        once,
        "book",
        era,
        on_elicit=lambda request: action,
        on_sample=lambda request: "decline",
        roots=[],
    )
    assert result.text == action


def test_urls(once: Run, era: str) -> None:
    seen: list[ElicitParams] = []

    def on_elicit_url(request: ElicitParams) -> str:
        seen.append(request)
        return "accept"

    assert called(once, "visit", era, on_elicit_url=on_elicit_url).text == "accept"
    assert (seen[0].mode, seen[0].url) == ("url", "https://example.com/x")


def test_a_client_that_cannot_be_asked(once: Run, era: str) -> None:
    try:
        result = called(once, "book", era)
    except RemoteError as exc:
        assert exc.code == -32021
    else:
        assert era == "legacy"
        assert result.is_error


def test_a_handler_that_fails(once: Run) -> None:
    def on_elicit(request: ElicitParams) -> Any:
        raise ZeroDivisionError("mine")

    options: dict[str, Any] = {"on_elicit": on_elicit, "on_sample": print, "roots": []}
    with pytest.raises(HandlerFailed, match="mine"):
        called(once, "book", "modern", **options)
    result = called(once, "book", "legacy", **options)
    assert result.is_error
    assert "mine" not in result.text


@pytest.mark.parametrize("plain", [False, True])
async def test_handlers_nested_in_each_other_have_a_limit(plain: bool) -> None:
    """A handler calls the tool that asks it, and so on."""
    server = Server("echo")
    depth = 0

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Again", max_tokens=9)).text

    async def on_sample(request: SampleParams) -> SampleResult:
        nonlocal depth
        depth += 1
        return SampleResult(content=(await client.call_tool("ask")).text, model="m")

    def in_thread(request: SampleParams) -> Any:
        return on_sample(request)

    client = Client(server, era="modern", on_sample=in_thread if plain else on_sample, timeout=30)
    async with client:
        with raises(HandlerFailed):
            await client.call_tool("ask")
    assert depth == 32
