"""Digests of lists (modelcontextprotocol/transports-wg, proposals/XXXX-definition-digests.md), on
both sides: the testing plan of the draft."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab.wording import raises

from wirespeed import Client, Context, Extension, Server
from wirespeed.errors import InvalidResponse
from wirespeed.protocol.digests import META_KNOWN_DIGESTS, META_STALE_DIGESTS, digest_of
from wirespeed.types import Reply

LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]


def lister(n: int = 5, **options: Any) -> Server:
    """A server with some tools, a prompt, a resource and a template."""
    server = Server("lister", digests=True, **options)
    for i in range(n):
        server.add_tool(lambda: 1, name=f"tool{i}")
    server.add_prompt(greet)
    server.resource("file:///a")(content)
    server.resource("file:///{name}")(named)
    return server


async def greet() -> str:
    return "hi"


async def content() -> str:
    return "a"


async def named(name: str) -> str:
    return name


async def digest(client: Client, method: str, **params: Any) -> Any:
    return (await client.request(method, params or None)).get("digest")


class Asked:
    """A middleware that keeps the requests for tools."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def __call__(self, request: Any, call_next: Any) -> Any:
        if request.method.startswith("tools/"):
            self.requests.append(request.decode())
        return await call_next(request)

    def n(self) -> int:
        found = len(self.requests)
        self.requests.clear()
        return found


def test_a_digest_is_of_the_collection() -> None:
    assert digest_of([]).startswith("sha256:")
    assert digest_of([b"a", b"b"]) == digest_of([b"b", b"a"]) != digest_of([b"ab"])
    assert len({digest_of([]), digest_of([b""]), digest_of([b"", b""])}) == 3


async def test_what_changes_a_digest() -> None:
    server = lister(page_size=2)
    async with Client(server, era="modern", cache=False) as client:
        before = {method: await digest(client, method) for method in LISTS}
        assert len(set(before.values())) == 4
        first = await client.request("tools/list")
        second = await client.request("tools/list", {"cursor": first["nextCursor"]})
        assert first["digest"] == second["digest"] == before["tools/list"]
        said = await digest(client, "server/discover")
        server.add_tool(lambda: 1, name="more")
        after = {method: await digest(client, method) for method in LISTS}
        assert [method for method in LISTS if after[method] != before[method]] == ["tools/list"]
        server.remove_tool("more")
        assert await digest(client, "tools/list") == before["tools/list"]
        assert await digest(client, "server/discover") == said
    # neither the size of pages, nor the order, nor the time to live is in it
    other = Server("lister", digests=True, list_ttl_ms=1000)
    for i in reversed(range(5)):
        other.add_tool(lambda: 1, name=f"tool{i}")
    async with Client(other, era="modern") as client:
        assert await digest(client, "tools/list") == before["tools/list"]


async def test_who_gets_none() -> None:
    async with Client(lister(), era="legacy") as client:
        assert await digest(client, "tools/list") is None
    async with Client(Server("plain"), era="modern") as client:
        assert await digest(client, "tools/list") is None
    hiding = lister(filter=lambda user, entry: entry.name != "tool1")
    async with Client(hiding, era="modern") as client:
        assert await digest(client, "tools/list") is None
        result = await client.call_tool("tool0", meta={META_KNOWN_DIGESTS: {"tools/list": "x"}})
        assert META_STALE_DIGESTS not in (result.meta or {})


async def test_a_result_names_what_is_stale() -> None:
    server = lister()
    async with Client(server, era="modern") as client:
        known = {method: await digest(client, method) for method in ("server/discover", *LISTS)}

        async def stale(**hints: Any) -> Any:
            meta = {META_KNOWN_DIGESTS: {**known, **hints}}
            found = []
            for result in (
                await client.call_tool("tool0", meta=meta),
                await client.get_prompt("greet", meta=meta),
                await client.read_resource("file:///a", meta=meta),
            ):
                assert result.meta is not None
                assert "io.modelcontextprotocol/serverInfo" in result.meta
                found.append(result.meta.get(META_STALE_DIGESTS))
            assert found[0] == found[1] == found[2]
            return found[0]

        assert await stale() is None
        assert await stale(**{"x/list": "?", "tools/list": 7}) is None
        assert await stale(**{"tools/list": "sha256:"}) == ["tools/list"]
        server.add_tool(lambda: 1, name="more")
        server.add_prompt(greet, name="other")
        assert await stale() == ["tools/list", "prompts/list"]


async def test_a_client_asks_for_the_first_page_alone() -> None:
    server = lister(page_size=2)
    asked = Asked()
    server.add_middleware(asked)
    async with Client(server, era="modern", digests=True) as client:
        tools = await client.list_tools()
        assert asked.n() == 3
        again = await client.list_tools()
        assert asked.n() == 1
        assert [tool.name for tool in again] == [tool.name for tool in tools]
        assert again is not tools
        server.add_tool(lambda: 1, name="more")
        assert [tool.name for tool in await client.list_tools()][-1] == "more"
        assert asked.n() == 3
        await client.call_tool("tool0")
        (call,) = asked.requests
        hints = call["_meta"][META_KNOWN_DIGESTS]
        assert hints == {"tools/list": await digest(client, "tools/list")}


async def test_a_stale_list_is_dropped() -> None:
    server = lister(page_size=2, list_ttl_ms=60_000)
    asked = Asked()
    server.add_middleware(asked)
    async with Client(server, era="modern", digests=True) as client:
        await client.list_tools()
        await client.list_tools()
        assert asked.n() == 3  # it is fresh
        server.add_tool(lambda: 1, name="more")
        await client.call_tool("tool0")
        asked.n()
        assert [tool.name for tool in await client.list_tools()][-1] == "more"
        assert asked.n() == 3


async def test_a_list_outlives_its_connection() -> None:
    server = lister(page_size=2)
    asked = Asked()
    server.add_middleware(asked)
    client = Client(server, era="modern", digests=True)
    for n in (3, 1):
        async with client:
            assert len(await client.list_tools()) == 5
            assert asked.n() == n


def scripted(*pages: dict[str, Any]) -> Extension:
    """Pages of a list, one after the other, the last one again and again."""
    left = list(pages)

    async def answer(request: Any, call_next: Any) -> Any:
        if request.method != "tools/list":
            return await call_next(request)
        page = left.pop(0) if len(left) > 1 else left[0]
        return Reply.result(json.dumps({"ttlMs": 0, "cacheScope": "private", **page}).encode())

    return Extension("com.example/pages", middleware=answer)


def tools(*names: str) -> list[Any]:
    return [{"name": name, "inputSchema": {"type": "object"}} for name in names]


@pytest.mark.parametrize("keeps", [False, True])
async def test_pages_of_different_digests_are_not_joined(keeps: bool) -> None:
    old = {"tools": tools("a"), "nextCursor": "1", "digest": "old"}
    new = {"tools": tools("b"), "nextCursor": "1", "digest": "new"}
    last = {"tools": tools("c"), "digest": "new"}
    server = Server("changes")
    server.add_extension(scripted(old, last, new, last))
    async with Client(server, era="modern", digests=keeps) as client:
        assert [tool.name for tool in await client.list_tools()] == ["b", "c"]
    server = Server("never still")
    server.add_extension(scripted(*[old, last] * 5))
    async with Client(server, era="modern", digests=keeps) as client:
        with raises(InvalidResponse):
            await client.list_tools()


async def test_a_digest_that_is_no_text_is_none() -> None:
    server = Server("odd")
    server.add_extension(scripted({"tools": tools("a"), "digest": 7}))
    async with Client(server, era="modern", digests=True) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a"]


async def test_of_a_mounted_server_nobody_knows_the_list() -> None:
    inner, outer = lister(), Server("outer")
    outer.mount("in", inner)
    async with Client(outer, era="modern") as client:
        result = await client.call_tool("in_tool0", meta={META_KNOWN_DIGESTS: {"tools/list": "x"}})
        assert META_STALE_DIGESTS not in (result.meta or {})


async def test_context_of_a_tool_is_as_ever() -> None:
    server = lister()

    @server.tool
    async def whole(ctx: Context) -> bool:
        return META_KNOWN_DIGESTS in ctx.meta

    async with Client(server, era="modern", digests=True) as client:
        await client.list_tools()
        assert (await client.call_tool("whole")).data is True


@pytest.mark.parametrize("digests", [True, False])
async def test_a_page_without_a_digest_fits_the_first_one(digests: bool) -> None:
    server = lister(page_size=2)
    asked = Asked()

    async def first_alone(request: Any, call_next: Any) -> Any:
        reply = await call_next(request)
        if request.method != "tools/list" or "cursor" not in request.decode():
            return reply
        page = reply.decode()
        del page["digest"]
        return Reply.result(page)

    server.add_middleware(asked)
    server.add_middleware(first_alone)
    async with Client(server, era="modern", cache=False, digests=digests) as client:
        assert len(await client.list_tools()) == 5
        assert asked.n() == 3
        assert [tool.name async for tool in client.iter_tools()] == [f"tool{i}" for i in range(5)]
        assert asked.n() == 3
