"""Middleware of a client: what it sees and changes, and what its callers get."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.wording import raises

from wirespeed import Client, Context, Server, SyncClient
from wirespeed.client.requests.middleware import OutboundRequest
from wirespeed.errors import CallTimeout, RemoteError
from wirespeed.server.middleware.inbound import InboundRequest


def lab() -> tuple[Server, list[dict[str, Any]]]:
    """A server, and the ``_meta`` of each request that reached it."""
    server = Server("lab")
    metas: list[dict[str, Any]] = []

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    @server.prompt
    def hello(name: str) -> str:
        return f"hello {name}"

    @server.add_middleware
    async def note(request: InboundRequest, call_next: Any) -> Any:
        metas.append({"": request.method, **request.meta})
        return await call_next(request)

    return server, metas


async def test_it_sees_each_request_and_its_result(run: Any, era: Any) -> None:
    seen: list[Any] = []

    async def look(request: OutboundRequest, call_next: Any) -> Any:
        result = await call_next(request)
        seen.append((request.method, request.name, request.protocol_version, result))
        return result

    server, _ = lab()
    async with Client(server, era=era, middleware=[look]) as client:
        result = await client.call_tool("echo", {"text": "hi"})
        assert seen.pop() == ("tools/call", "echo", client.protocol_version, result)
        prompt = await client.get_prompt("hello", {"name": "you"})
        assert seen.pop()[:2] == ("prompts/get", "hello")
        assert prompt.messages
        await client.list_tools()
        assert seen.pop()[:2] == ("tools/list", None)
        await client.ping()
        assert seen.pop()[0] == ("server/discover" if era == "modern" else "ping")
        assert repr(OutboundRequest(client, "a/b", "c", None, None, None, None))


async def test_it_changes_what_is_sent(run: Any, era: Any) -> None:
    async def change(request: OutboundRequest, call_next: Any) -> Any:
        request.meta["traceparent"] = "00-1"
        if request.method == "tools/call":
            assert request.arguments == {"text": "hi"}
            request.arguments = {"text": "changed"}
        elif request.params is not None:
            request.params = request.params.replace(b'"you"', b'"them"')
        return await call_next(request)

    server, metas = lab()
    async with Client(server, era=era, middleware=[change]) as client:
        result = await client.call_tool("echo", {"text": "hi"}, meta={"own": 1})
        assert result.content[0].text == "changed"
        assert metas[-1].items() >= {"": "tools/call", "own": 1, "traceparent": "00-1"}.items()
        prompt = await client.get_prompt("hello", {"name": "you"})
        assert prompt.messages[0].content.text == "hello them"
        assert metas[-1]["traceparent"] == "00-1"


async def test_the_order_and_answers_without_asking(run: Any) -> None:
    order: list[str] = []

    def named(name: str) -> Any:
        async def middleware(request: OutboundRequest, call_next: Any) -> Any:
            order.append(name)
            return "cached" if name == "c" else await call_next(request)

        return middleware

    server, metas = lab()
    async with Client(server, middleware=map(named, "abcd")) as client:
        before = len(metas)
        assert await client.call_tool("echo", {"text": "x"}) == "cached"
        assert order == ["a", "b", "c"]
        assert len(metas) == before


async def test_what_goes_wrong_reaches_it_and_the_caller(run: Any) -> None:
    seen: list[type[BaseException]] = []

    async def look(request: OutboundRequest, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except BaseException as exc:
            seen.append(type(exc))
            raise

    server, metas = lab()
    async with Client(server, middleware=[look]) as client:
        with pytest.raises(RemoteError):
            await client.call_tool("nothing")
        with pytest.raises(CallTimeout):
            await client.call_tool("wait", timeout=0.01)
        calling = asyncio.ensure_future(client.call_tool("wait"))
        while metas[-1][""] != "tools/call" or len(metas) < 4:
            await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert seen == [RemoteError, CallTimeout, asyncio.CancelledError]


async def test_its_own_failure_is_the_callers(run: Any) -> None:
    async def broken(request: OutboundRequest, call_next: Any) -> Any:
        raise LookupError("mine")

    async with Client(lab()[0], middleware=[broken]) as client:
        with pytest.raises(LookupError, match="mine"):
            await client.call_tool("echo", {"text": "x"})


async def test_it_tries_again(run: Any) -> None:
    async def retry(request: OutboundRequest, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except RemoteError:
            request.params = b'{"name":"hello","arguments":{"name":"again"}}'
            return await call_next(request)

    async with Client(lab()[0], middleware=[retry]) as client:
        prompt = await client.get_prompt("nothing")
        assert prompt.messages[0].content.text == "hello again"


def test_progress_and_the_blocking_client_go_through_it() -> None:
    server = Server("lab")
    names: list[str | None] = []

    @server.tool
    async def steps(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        return "done"

    async def look(request: OutboundRequest, call_next: Any) -> Any:
        names.append(request.name)
        return await call_next(request)

    told: list[Any] = []
    with SyncClient(server, middleware=[look]) as client:
        client.call_tool("steps", on_progress=lambda *args: told.append(args))
    assert names == ["steps"]
    assert told == [(1, 2, "half")]


def test_a_middleware_must_be_callable() -> None:
    with raises(TypeError):
        Client(Server("lab"), middleware=[5])  # type: ignore[list-item]


async def test_the_method_stays_what_it_is(run: Any) -> None:
    async def change(request: OutboundRequest, call_next: Any) -> Any:
        with pytest.raises(AttributeError):
            request.method = "tools/list"  # type: ignore[misc]
        with pytest.raises(AttributeError):
            request.name = "wait"  # type: ignore[misc]
        return await call_next(request)

    server, metas = lab()
    async with Client(server, middleware=[change]) as client:
        assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
    assert metas[-1][""] == "tools/call"
