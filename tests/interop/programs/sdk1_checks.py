"""mcp 1.x at URLs, by our adapter: checks in one process, whose outcomes are printed as JSON.

python sdk1_checks.py    (under `wirespeed.adapters.mcp1`)
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import mcp
from check_report import report
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.fastmcp import Context, FastMCP

from wirespeed import Socket, WebSocket
from wirespeed.adapters import mcp1
from wirespeed.errors import WirespeedError

server = FastMCP("calculator")
left: list[str] = []


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def steps(n: int, ctx: Context[Any, Any, Any]) -> str:
    """Report progress."""
    for i in range(n):
        await ctx.report_progress(i, n)
    return "done"


@server.tool()
async def waits() -> str:
    """Wait for ever."""
    try:
        await asyncio.Event().wait()
    finally:
        left.append("waits")
    return "never"


@contextlib.asynccontextmanager
async def served(url: str, what: Any = server, **options: Any) -> AsyncIterator[str]:
    listening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        mcp1.serve(what, url, on_listening=listening.set_result, **options)
    )
    await asyncio.wait([serving, listening], return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    try:
        yield listening.result()[0]
    finally:
        serving.cancel()
        await asyncio.wait([serving])


@contextlib.asynccontextmanager
async def connected(target: Any) -> AsyncIterator[mcp.ClientSession]:
    async with mcp1.connect(target) as streams, mcp.ClientSession(*streams) as session:
        await session.initialize()
        yield session


async def noted(session: mcp.ClientSession) -> list[float]:
    """The progress of a call."""
    found: list[float] = []

    async def note(progress: float, total: Any, message: Any) -> None:
        found.append(progress)

    await session.call_tool("steps", {"n": 3}, progress_callback=note)
    return found


async def urls() -> None:
    """Each client has a session of its own at each URL."""
    with tempfile.TemporaryDirectory() as folder:
        for url in ("ws://127.0.0.1:0/mcp", "tcp://127.0.0.1:0", f"unix:{folder}/it"):
            async with served(url) as at, connected(at) as session, connected(at) as other:
                sums = [session.call_tool("add", {"a": n, "b": n}) for n in range(20)]
                for n, result in enumerate(await asyncio.gather(*sums)):
                    assert result.content[0].text == str(2 * n), result
                assert await noted(other) == [0, 1, 2]
                assert (await other.call_tool("add", {"a": "x"})).isError
                assert "add" in {tool.name for tool in (await other.list_tools()).tools}


async def a_client_that_leaves() -> None:
    """Its calls are cancelled, and the others go on."""
    left.clear()
    async with served("tcp://127.0.0.1:0") as at, connected(at) as stays:
        async with connected(at) as leaves:
            call = asyncio.ensure_future(leaves.call_tool("waits", {}))
            await stays.call_tool("add", {"a": 1, "b": 2})
            await asyncio.sleep(0.1)
        await asyncio.wait([call])
        assert call.cancelled() or isinstance(call.exception(), mcp.McpError)
        async with asyncio.timeout(10):
            while not left:
                await stays.call_tool("add", {"a": 1, "b": 2})


async def tokens() -> None:
    """The token of the listener is asked for."""
    async with served("ws://127.0.0.1:0/mcp", token="right") as at:
        async with connected(WebSocket(at, token="right")) as session:
            assert (await session.list_tools()).tools
        await refused(WebSocket(at, token="wrong"))
        await refused(at)


async def refused(target: Any) -> None:
    try:
        async with connected(target):
            raise AssertionError("let in")
    except WirespeedError as exc:
        assert "401" in str(exc), exc


async def token_verifiers() -> None:
    """A server whose tokens the SDK's own HTTP verifies is served nowhere else."""

    class Tokens:
        async def verify_token(self, token: str) -> AccessToken | None:
            return None

    place: Any = "https://it.example/mcp"
    auth = AuthSettings(issuer_url=place, resource_server_url=place)
    closed = FastMCP("closed", token_verifier=Tokens(), auth=auth)
    try:
        async with served("ws://127.0.0.1:0/mcp", closed):
            raise AssertionError("served to everybody")
    except ValueError as exc:
        assert "'closed' are verified by the SDK's own HTTP alone" in str(exc), exc


async def http_is_refused() -> None:
    """HTTP is the SDK's own."""
    for attempt in (served("http://127.0.0.1:0/mcp"), mcp1.connect("http://127.0.0.1:1/mcp")):
        try:
            async with attempt:
                raise AssertionError("over HTTP")
        except ValueError as exc:
            assert "http" in str(exc).lower(), exc


async def nobody_listens() -> None:
    """A connection that fails says why."""
    try:
        async with connected(Socket("unix:/nowhere/it")):
            raise AssertionError("connected")
    except WirespeedError as exc:
        assert "/nowhere/it" in str(exc), exc


if __name__ == "__main__":
    report(urls, a_client_that_leaves, tokens, token_verifiers, http_is_refused, nobody_listens)
