"""What handlers know of their client: the user, its address, headers, the session."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lab.rows import every

from wirespeed import Client, Context, HttpRequest, Server, User, WebSocket

pytestmark = pytest.mark.compiled


def telling(**options: Any) -> Server:
    """A server whose tool tells what it knows of its client."""
    server = Server("lab", **options)

    @server.tool
    def known(ctx: Context) -> dict[str, Any]:
        return {
            "user": ctx.user,
            "scopes": None if ctx.user is None else sorted(ctx.user.scopes),
            "data": None if ctx.user is None else ctx.user.data,
            "peer": ctx.peer,
            "tea": ctx.headers.get("X-Tea"),
            "fields": len(ctx.headers),
        }

    return server


@contextlib.asynccontextmanager
async def listening(server: Server, url: str, **options: Any) -> AsyncIterator[str]:
    """The URL of the server at work."""
    listens: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(server.serve(url, on_listening=listens.set_result, **options))
    try:
        (address,) = await listens
        yield address
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


ANNE = User("anne", scopes=["read", "write"], data={"team": 7})


@every("era", ["legacy", "modern"])
@every(
    "verdict, user, scopes, data",
    [
        ("anne", "anne", [], None),
        (ANNE, "anne", ["read", "write"], {"team": 7}),
        (True, None, None, None),
    ],
)
async def test_what_authenticate_returned_is_the_user(
    verdict: Any, user: Any, scopes: Any, data: Any, era: Any
) -> None:
    def authenticate(request: HttpRequest) -> Any:
        assert request.token == "secret"
        return verdict

    server = telling()
    seen: list[Any] = []

    @server.add_middleware
    async def look(request: Any, call_next: Any) -> Any:
        seen.append((request.user, request.peer, request.headers["x-tea"]))
        return await call_next(request)

    async with listening(server, "ws://127.0.0.1:0/mcp", authenticate=authenticate) as url:
        target = WebSocket(url, token="secret", headers={"X-Tea": "green"})
        async with Client(target, era=era) as client:
            known = (await client.call_tool("known")).structured_content
    assert (known["user"], known["scopes"], known["data"]) == (user, scopes, data)
    assert known["peer"].startswith("127.0.0.1:")
    assert known["tea"] == "green"
    assert set(seen) == {(user, known["peer"], "green")}
    assert all(isinstance(user, User | None) for user, _, _ in seen)


async def test_a_token_alone_names_no_user() -> None:
    async with (
        listening(telling(), "ws://127.0.0.1:0/mcp", token="secret") as url,
        Client(WebSocket(url, token="secret")) as client,
    ):
        known = (await client.call_tool("known")).structured_content
    assert known["user"] is None
    assert known["fields"] > 3


@pytest.mark.parametrize("scheme", ["tcp", "unix"])
async def test_streams_have_an_address_and_no_headers(scheme: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = "tcp://127.0.0.1:0" if scheme == "tcp" else f"unix:{os.path.join(folder, 's')}"
        async with listening(telling(), place) as url, Client(url) as client:
            known = (await client.call_tool("known")).structured_content
    assert known["peer"]
    assert (known["user"], known["fields"]) == (None, 0)


async def test_in_memory_nothing_is_known() -> None:
    async with Client(telling()) as client:
        known = (await client.call_tool("known")).structured_content
    assert known == {
        "user": None, "scopes": None, "data": None, "peer": None, "tea": None, "fields": 0
    }  # fmt: skip


def test_a_user_is_a_string_and_can_be_pickled() -> None:
    copy = pickle.loads(pickle.dumps(ANNE))
    assert (copy, copy.scopes, copy.data) == ("anne", {"read", "write"}, {"team": 7})
    assert User("bob").scopes == frozenset()
    assert "team" not in repr(ANNE)


# -- sessions -------------------------------------------------------------------------------------


@pytest.fixture
def counting() -> Server:
    server = Server("lab")

    @server.tool
    def count(ctx: Context) -> int:
        ctx.session_state["n"] = ctx.session_state.get("n", 0) + 1
        n: int = ctx.session_state["n"]
        return n

    @server.tool
    def session(ctx: Context) -> str:
        return ctx.session_id

    return server


def test_a_session_has_state_and_an_id(counting: Server, connect: Any) -> None:
    one, other = (connect("2025-11-25", to=counting) for _ in range(2))

    def ask(peer: Any, tool: str) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}}
        return peer.result(call)["content"][0]["text"]

    assert [ask(one, "count"), ask(other, "count"), ask(one, "count")] == ["1", "1", "2"]
    ids = [ask(one, "session"), ask(other, "session"), ask(one, "session")]
    assert ids[0] == ids[2] != ids[1]
    assert all(len(id) == 32 and int(id, 16) >= 0 for id in ids)


@pytest.mark.parametrize("tool", ["count", "session"])
async def test_2026_07_28_has_no_sessions(tool: str, counting: Server) -> None:
    async with Client(counting, era="modern") as client:
        result = await client.call_tool(tool)
    assert result.is_error
    assert result.text.startswith("2026-07-28 has no sessions: keep what outlives a request by ")
