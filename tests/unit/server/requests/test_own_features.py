"""What a handler shares with others of its request, and what it uses of its own server."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Any

import pytest

from wirespeed import Client, Context, Depends, Server
from wirespeed.errors import ProtocolError, ResourceNotFound
from wirespeed.types import (
    Accept,
    ElicitRequest,
    InboundRequest,
    InputRequired,
    PromptMessage,
    PromptResult,
    Reply,
    ResourceContents,
    ResourceResult,
)

pytestmark = pytest.mark.compiled


# -- state of a request ---------------------------------------------------------------------------


async def tenant(ctx: Context) -> str:
    ctx.state["tenant"] = ctx.state.get("tenant", "nobody") + "'s"
    return str(ctx.state["tenant"])


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_middleware_dependencies_and_handler_share_the_state(era: Any) -> None:
    server = Server("lab")
    after: list[Any] = []

    @server.add_middleware
    async def outer(request: InboundRequest, call_next: Any) -> Any:
        if request.method != "tools/call":
            return await call_next(request)
        request.state["tenant"] = "anne"
        reply = await call_next(request)
        after.append(request.state)
        return reply

    @server.tool
    async def look(ctx: Context, tenant: Annotated[str, Depends(tenant)]) -> list[Any]:
        ctx.state["seen"] = True
        await asyncio.sleep(0)
        return [tenant, sorted(ctx.state)]

    async with Client(server, era=era) as client:
        result = await client.call_tool("look")
    assert result.structured_content == {"result": ["anne's", ["seen", "tenant"]]}
    assert after == [{"tenant": "anne's", "seen": True}]


@pytest.mark.parametrize("middleware", [False, True])
async def test_each_request_has_a_state_of_its_own(middleware: bool) -> None:
    server = Server("lab")

    if middleware:

        @server.add_middleware
        async def pass_on(request: InboundRequest, call_next: Any) -> Any:
            return await call_next(request)

    @server.tool(inline=True)
    def count(ctx: Context) -> int:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        n: int = ctx.state["n"]
        return n

    async with Client(server) as client:
        for _ in range(3):
            assert (await client.call_tool("count")).structured_content == {"result": 1}


async def test_a_handler_whose_call_became_a_task_keeps_the_state() -> None:
    from wirespeed import TASKS

    server = Server("lab")
    started, go_on = asyncio.Event(), asyncio.Event()

    @server.add_middleware
    async def outer(request: InboundRequest, call_next: Any) -> Any:
        request.state["tenant"] = "anne"
        return await call_next(request)

    @server.tool(task="required")
    async def slow(ctx: Context) -> str:
        started.set()
        await go_on.wait()
        return str(ctx.state["tenant"])

    async with Client(server, extensions=[TASKS]) as client:
        task = await client.start_tool("slow")
        await started.wait()
        go_on.set()
        assert (await task.result()).text == "anne"


# -- the server, its resources and prompts --------------------------------------------------------


@pytest.fixture
def library() -> Server:
    """A server whose tools pass on what they read of it."""
    server = Server("library")
    server.add_resource("lib://fixed", {"a": 1})

    @server.resource("lib://books/{name}", mime_type="text/plain")
    async def book(name: str, ctx: Context) -> str | None:
        await ctx.progress(1)
        return None if name == "lost" else f"{name} for {ctx.request_id}"

    @server.resource("lib://many")
    def many() -> ResourceResult:
        contents = [ResourceContents("", "text/plain", text="a"), ResourceContents("", blob=b"b")]
        return ResourceResult(contents=contents, ttl_ms=5, meta={"k": 1})

    @server.resource("lib://broken")
    def broken() -> str:
        raise LookupError("no shelf")

    @server.resource("lib://slow", timeout=0.01)
    async def slow() -> str:
        await asyncio.Event().wait()
        return ""

    @server.prompt
    def summary(book: str, pages: int = 3) -> Any:
        """Sum a book up."""
        if book == "whole":
            return PromptResult(messages=["x"], description="other", meta={"k": 1})
        return [f"{book} in {pages}", PromptMessage("assistant", "yes")]

    @server.tool
    async def read(uri: str, ctx: Context) -> Any:
        try:
            result = await ctx.read_resource(uri)
        except ResourceNotFound as exc:
            return {"missing": exc.uri}
        except (LookupError, TimeoutError) as exc:
            return {"failed": type(exc).__name__}
        return {
            "text": result.text,
            "blobs": [base64.b64encode(c.blob).decode() for c in result.contents if c.blob],
            "uris": [c.uri for c in result.contents],
            "ttl": result.ttl_ms,
            "meta": result.meta,
            "id": ctx.request_id,
        }

    @server.tool
    async def get(name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        try:
            result = await ctx.get_prompt(name, arguments)
        except ProtocolError as exc:
            return {"code": exc.code, "message": exc.message}
        return {
            "messages": [[m.role, m.text] for m in result.messages],
            "description": result.description,
            "meta": result.meta,
        }

    @server.tool
    def whose(ctx: Context) -> str:
        return ctx.server.name

    return server


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_handler_reads_a_resource_of_its_server(era: Any, library: Server) -> None:
    async with Client(library, era=era) as client:

        async def read(uri: str) -> Any:
            return (await client.call_tool("read", {"uri": uri})).structured_content

        fixed = await read("lib://fixed")
        assert (fixed["text"], fixed["uris"]) == ('{"a":1}', ["lib://fixed"])
        seen: list[Any] = []
        got = await client.call_tool(
            "read", {"uri": "lib://books/moby"}, on_progress=lambda *step: seen.append(step)
        )
        moby = got.structured_content
        assert moby["text"] == f"moby for {moby['id']}"
        assert [step[0] for step in seen] == [1]  # the progress of the caller's request
        many = await read("lib://many")
        assert (many["text"], many["blobs"], many["ttl"]) == ("a", ["Yg=="], 5)
        assert (many["uris"], many["meta"]) == (["lib://many"] * 2, {"k": 1})
        assert await read("lib://nothing") == {"missing": "lib://nothing"}
        assert await read("lib://books/lost") == {"missing": "lib://books/lost"}
        assert await read("lib://broken") == {"failed": "LookupError"}
        assert await read("lib://slow") == {"failed": "TimeoutError"}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_handler_gets_a_prompt_of_its_server(era: Any, library: Server) -> None:
    async with Client(library, era=era) as client:

        async def get(name: str, **arguments: Any) -> Any:
            params = {"name": name, "arguments": arguments}
            return (await client.call_tool("get", params)).structured_content

        assert await get("summary", book="moby", pages=2) == {
            "messages": [["user", "moby in 2"], ["assistant", "yes"]],
            "description": "Sum a book up.",
            "meta": None,
        }
        whole = await get("summary", book="whole")
        assert (whole["description"], whole["meta"]) == ("other", {"k": 1})
        assert await get("summery", book="x") == {
            "code": -32602, "message": "Unknown prompt: summery; did you mean summary?"
        }  # fmt: skip
        wrong = await get("summary", book="x", pages="many")
        assert wrong["code"] == -32602
        assert "pages" in wrong["message"]


async def test_a_mounted_handler_uses_the_server_that_it_was_registered_at(
    library: Server,
) -> None:
    front = Server("front")
    front.mount("lib", library, uri_prefix="front+")
    async with Client(front) as client:
        assert (await client.call_tool("lib_whose")).text == "library"
        result = await client.call_tool("lib_read", {"uri": "lib://fixed"})
        assert result.structured_content["uris"] == ["lib://fixed"]


async def test_middleware_does_not_see_what_a_handler_reads(library: Server) -> None:
    seen: list[str] = []

    @library.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Reply | None:
        seen.append(request.method)
        return await call_next(request)  # type: ignore[no-any-return]

    async with Client(library) as client:
        await client.call_tool("read", {"uri": "lib://fixed"})
    assert "resources/read" not in seen
    assert "tools/call" in seen


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_resource_that_a_handler_reads_may_ask_the_client(era: Any) -> None:
    server = Server("lab")
    runs: list[str] = []

    @server.resource("lab://asks")
    async def asks(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?")
        return "yes" if answer.accepted else "no"

    @server.tool
    async def read(ctx: Context) -> str:
        runs.append("begun")
        text = (await ctx.read_resource("lab://asks")).text
        runs.append("ended")
        return text

    async with Client(server, era=era, on_elicit=lambda params: Accept({})) as client:
        assert (await client.call_tool("read")).text == "yes"
    rounds = 1 if era == "legacy" else 2
    assert runs == ["begun"] * rounds + ["ended"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_prompt_that_a_handler_gets_may_ask_explicitly(
    era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("lab")
    runs: list[str] = []

    @server.prompt
    async def asks(ctx: Context) -> str | InputRequired:
        if "sure" not in ctx.input_responses:
            return InputRequired({"sure": ElicitRequest("Sure?")})
        return "yes" if ctx.input_responses["sure"].accepted else "no"

    @server.tool
    async def get(ctx: Context) -> str:
        runs.append("begun")
        text = (await ctx.get_prompt("asks")).messages[0].text
        runs.append("ended")
        return text

    async with Client(server, era=era, on_elicit=lambda params: Accept({})) as client:
        assert (await client.call_tool("get")).text == "yes"
    rounds = 1 if era == "legacy" else 2
    assert runs == ["begun"] * rounds + ["ended"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("what", ["resource", "prompt"])
async def test_only_the_loop_s_thread_can_use_them(what: str, library: Server) -> None:
    @library.tool
    def blocking(ctx: Context) -> str:
        work = ctx.read_resource("lib://fixed") if what == "resource" else ctx.get_prompt("summary")
        try:
            work.send(None)
        except RuntimeError as exc:
            return str(exc)
        return "no error"

    async with Client(library) as client:
        text = (await client.call_tool("blocking")).text
    assert text.startswith("only the event loop's thread can ")
    assert text.endswith(": make the handler async")
