"""The middleware of `wirespeed.middleware`."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from lab.wording import raises

from wirespeed import Client, Context, Server, User
from wirespeed.errors import ProtocolError, RemoteError
from wirespeed.middleware import CacheResults, LimitRate, LimitResponses, Retry, Timing
from wirespeed.types import Reply, ToolResult

pytestmark = pytest.mark.compiled
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> Server:
    server = Server("lab")
    server.runs = []  # type: ignore[attr-defined]

    @server.tool
    async def text(n: int, word: str = "é") -> str:
        server.runs.append(n)  # type: ignore[attr-defined]
        return word * n

    @server.tool
    async def structured(n: int) -> list[int]:
        return list(range(n))

    @server.tool
    async def fails(times: int) -> str:
        server.runs.append(times)  # type: ignore[attr-defined]
        if len(server.runs) <= times:  # type: ignore[attr-defined]
            raise ValueError("not yet")
        return "at last"

    @server.tool
    async def refuses(code: int) -> str:
        server.runs.append(code)  # type: ignore[attr-defined]
        raise ProtocolError(code, "no")

    @server.resource("lab://{n}")
    async def resource(n: str) -> str:
        server.runs.append(n)  # type: ignore[attr-defined]
        return n * 1000

    @server.prompt
    async def prompt(word: str) -> str:
        server.runs.append(word)  # type: ignore[attr-defined]
        return word

    return server


def runs(server: Any) -> list[Any]:
    found: list[Any] = server.runs
    return found


# -- Timing ---------------------------------------------------------------------------------------


async def test_times_are_logged(server: Server, caplog: Any) -> None:
    server.add_middleware(Timing())
    server.add_middleware(Timing(logging.getLogger("lab.slow"), logging.DEBUG, slow=0.0))
    caplog.set_level(logging.DEBUG)
    async with Client(server) as client:
        await client.call_tool("text", {"n": 1})
        await client.call_tool("fails", {"times": 9})
        with raises(RemoteError, code=-1):
            await client.call_tool("refuses", {"code": -1})
        await client.list_tools()
    lines = [(one.name, one.levelname, one.getMessage()) for one in caplog.records]
    logged = [(name, level, text.rpartition(":")[0]) for name, level, text in lines]
    for what in ("text", "fails failed", "refuses failed"):
        assert ("wirespeed.server", "INFO", f"tools/call {what}") in logged
        assert ("lab.slow", "WARNING", f"tools/call {what}") in logged
    assert ("wirespeed.server", "INFO", "tools/list") in logged


async def test_a_name_of_a_client_is_one_line(server: Server, caplog: Any) -> None:
    server.add_middleware(Timing())
    caplog.set_level(logging.INFO, "wirespeed.server")
    async with Client(server) as client:
        with raises(RemoteError):
            await client.call_tool("a\nINFO of another")
    (line,) = [one.getMessage() for one in caplog.records if "another" in one.getMessage()]
    assert line.startswith("'tools/call a\\nINFO of another'")


# -- LimitResponses -------------------------------------------------------------------------------


@ERAS
async def test_a_long_result_is_a_failure(server: Server, era: Any) -> None:
    server.add_middleware(LimitResponses(500))
    async with Client(server, era=era) as client:
        assert (await client.call_tool("text", {"n": 3})).text == "ééé"
        result = await client.call_tool("text", {"n": 1000})
        assert result.is_error
        assert result.text.endswith(" bytes, and at most 500 are sent: ask for less")
        with raises(RemoteError, code=-32603):
            await client.read_resource("lab://7")


@ERAS
async def test_a_long_text_is_cut(server: Server, era: Any) -> None:
    sizes = []

    async def measured(request: Any, call_next: Any) -> Any:
        reply = await call_next(request)
        sizes.append(len(reply.data))
        return reply

    @server.tool
    async def several() -> ToolResult:
        return ToolResult(content=["a" * 100, "\n" * 1000, "b"])

    server.add_middleware(measured)
    server.add_middleware(LimitResponses(600, cut=True))
    async with Client(server, era=era) as client:
        result = await client.call_tool("text", {"n": 1000, "word": "é"})
        assert not result.is_error and result.text.endswith("é… (cut)")
        assert 550 <= sizes[-1] <= 600
        result = await client.call_tool("several")
        assert [len(block.text) > 50 for block in result.content] == [True, True]  # type: ignore[union-attr]
        assert 550 <= sizes[-1] <= 600
        assert (await client.call_tool("structured", {"n": 1000})).is_error


async def test_a_result_that_is_long_without_its_text_is_a_failure(server: Server) -> None:
    async def more(request: Any, call_next: Any) -> Any:
        if request.method != "tools/call":
            return await call_next(request)
        blocks = [{"type": "text", "text": "a" * 500, "_meta": {"key": "x" * 1000}}]
        return Reply.result({"content": blocks})

    server.add_middleware(LimitResponses(600, cut=True))
    server.add_middleware(more)
    async with Client(server) as client:
        result = await client.call_tool("text", {"n": 1})
        assert result.is_error and "at most 600 are sent" in result.text


async def test_only_some_tools_are_limited(server: Server) -> None:
    server.add_middleware(LimitResponses(200, tools=["structured"]))
    async with Client(server) as client:
        assert not (await client.call_tool("text", {"n": 1000})).is_error
        assert (await client.call_tool("structured", {"n": 1000})).is_error
        assert len((await client.read_resource("lab://7")).text) == 1000
    with raises(ValueError):
        LimitResponses(10)
    with raises(TypeError):
        LimitResponses(1000, tools="text")


# -- CacheResults ---------------------------------------------------------------------------------


@ERAS
async def test_a_result_is_kept(server: Server, era: Any) -> None:
    clock = Clock()
    cache = server.add_middleware(
        CacheResults(10, tools=["text", "fails"], resources=True, prompts=True, clock=clock)
    )
    async with Client(server, era=era, cache=False) as client:
        for _ in range(3):
            assert (await client.call_tool("text", {"n": 2, "word": "a"})).text == "aa"
            assert (await client.call_tool("text", {"word": "a", "n": 2}, meta={"x": 1})).text
            assert (await client.read_resource("lab://7")).text.startswith("77")
            assert (await client.get_prompt("prompt", {"word": "p"})).messages[0].text == "p"
        assert runs(server) == [2, "7", "p"]
        await client.call_tool("text", {"n": 3})
        assert runs(server)[3:] == [3]
        clock.now += 10
        await client.call_tool("text", {"n": 3})
        assert runs(server)[3:] == [3, 3]
        for _ in range(2):
            assert (await client.call_tool("fails", {"times": 99})).is_error
        assert runs(server)[5:] == [99, 99]
        cache.clear()
        await client.call_tool("text", {"n": 3})
        assert runs(server)[7:] == [3]
        assert cache.n_bytes > 0


@pytest.mark.parametrize("shared", [False, True])
async def test_each_user_has_results_of_their_own(server: Server, shared: bool) -> None:
    server.add_middleware(CacheResults(10, tools=["text"], shared=shared))
    for name in ("ann", "ann", "bob"):
        async with Client(server, user=User(name)) as client:
            await client.call_tool("text", {"n": 1})
    assert len(runs(server)) == (1 if shared else 2)


@pytest.mark.parametrize("shared", [False, True])
async def test_a_result_is_no_way_around_a_permission(shared: bool) -> None:
    server = Server("vault")
    server.add_middleware(
        CacheResults(10, tools=["secret", "hidden"], resources=True, prompts=True, shared=shared)
    )

    @server.tool(scopes=["read"])
    async def secret() -> str:
        return "s"

    @server.tool
    async def hidden(ctx: Context) -> str:
        await ctx.disable(names=["hidden"])
        return "h"

    @server.resource("vault://{part}", scopes=["read"])
    async def part(part: str) -> str:
        return part

    @server.prompt(scopes=["read"])
    async def words() -> str:
        return "w"

    async with Client(server, user=User("ann", scopes=["read"]), era="legacy", cache=False) as ann:
        assert (await ann.call_tool("secret")).text == "s"
        assert (await ann.read_resource("vault://x")).text == "x"
        assert (await ann.get_prompt("words")).messages
        assert (await ann.call_tool("hidden")).text == "h"
        with raises(RemoteError):
            await ann.call_tool("hidden")
    async with Client(server, user=User("ann"), era="legacy", cache=False) as again:
        with raises(RemoteError):
            await again.call_tool("secret")
        with raises(RemoteError):
            await again.read_resource("vault://x")
        with raises(RemoteError):
            await again.get_prompt("words")


async def test_the_oldest_results_make_room(server: Server) -> None:
    cache = server.add_middleware(CacheResults(10, tools=["text"], max_bytes=1000))
    async with Client(server, era="legacy") as client:
        for n in (200, 201, 202, 202, 200, 5000, 5000):
            await client.call_tool("text", {"n": n, "word": "a"})
            assert cache.n_bytes <= 1000
    assert runs(server) == [200, 201, 202, 5000, 5000]
    with raises(ValueError):
        CacheResults(0)


async def test_what_is_kept_of_a_request_is_short(server: Server) -> None:
    cache = server.add_middleware(CacheResults(10, tools=["text"]))
    async with Client(server, era="legacy") as client:
        for letter in "ab":
            for _ in range(2):
                await client.call_tool("text", {"n": 0, "word": letter * 100_000})
    assert runs(server) == [0, 0]
    parts = [part for key in cache._kept for part in key]
    assert max(len(part) for part in parts if isinstance(part, str | bytes)) < 100


async def test_a_question_is_not_kept() -> None:
    server, asked = Server("lab"), []

    @server.tool
    async def ask(ctx: Context) -> str:
        return "yes" if await ctx.elicit("Really?") else "no"

    server.add_middleware(CacheResults(10, tools=["ask"]))
    for answer in ("accept", "decline"):

        def on_elicit(request: Any, answer: str = answer) -> str:
            asked.append(answer)
            return answer

        async with Client(server, era="modern", on_elicit=on_elicit) as client:
            assert (await client.call_tool("ask")).text == {"accept": "yes", "decline": "no"}[
                answer
            ]
    assert asked == ["accept", "decline"]


# -- Retry ----------------------------------------------------------------------------------------


async def test_a_failure_is_tried_again(server: Server) -> None:
    server.add_middleware(Retry(["fails", "refuses"], wait=0))
    async with Client(server) as client:
        assert (await client.call_tool("fails", {"times": 2})).text == "at last"
        assert runs(server) == [2, 2, 2]
        runs(server).clear()
        assert (await client.call_tool("fails", {"times": 9})).is_error
        assert runs(server) == [9, 9, 9]
        for code, n in ((-31000, 3), (-32603, 3), (-5, 1)):
            runs(server).clear()
            with pytest.raises(RemoteError):
                await client.call_tool("refuses", {"code": code})
            assert len(runs(server)) == n


async def test_who_decides_what_is_tried_again(server: Server) -> None:
    server.add_middleware(Retry(["fails"], wait=0, when=lambda failure: False))
    server.add_middleware(Retry(["refuses"], wait=0, attempts=2, when=lambda failure: True))
    async with Client(server) as client:
        assert (await client.call_tool("fails", {"times": 1})).is_error
        with raises(RemoteError, code=-5):
            await client.call_tool("refuses", {"code": -5})
        assert runs(server) == [1, -5, -5]
        assert (await client.call_tool("text", {"n": 1})).text == "é"
    with raises(ValueError):
        Retry([], attempts=0)


# -- LimitRate ------------------------------------------------------------------------------------


async def test_each_user_has_a_rate(server: Server) -> None:
    clock = Clock()
    server.add_middleware(LimitRate(2, burst=3, clock=clock))

    async def calls(name: str, n: int) -> int:
        done = 0
        async with Client(server, user=name) as client:
            for _ in range(n):
                await client.list_tools()
                try:
                    await client.call_tool("text", {"n": 1})
                except RemoteError as exc:
                    assert exc.code == -31000
                    assert 0 < exc.data["retryAfterMs"] <= 500
                else:
                    done += 1
        return done

    assert await calls("ann", 5) == 3
    assert await calls("ann", 1) == 0
    assert await calls("bob", 5) == 3
    clock.now += 1
    assert await calls("ann", 5) == 2


async def test_whose_bucket_counts(server: Server) -> None:
    server.add_middleware(LimitRate(0.001, by=lambda request: request.name, methods=["tools/call"]))
    async with Client(server) as client:
        assert (await client.call_tool("text", {"n": 1})).text == "é"
        assert (await client.call_tool("structured", {"n": 1})).text == "[0]"
        with raises(RemoteError, code=-31000):
            await client.call_tool("text", {"n": 1})
        assert (await client.read_resource("lab://7")).text
    async with Client(server) as client:
        assert json.loads((await client.read_resource("lab://7")).text[:1]) == 7
    for wrong in ({"rate": 0}, {"rate": 1, "burst": 0}):
        with raises(ValueError):
            LimitRate(**wrong)  # type: ignore[arg-type]
