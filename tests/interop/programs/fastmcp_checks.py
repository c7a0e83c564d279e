"""FastMCP on our adapter: checks in one process, whose outcomes are printed as JSON.

python fastmcp_checks.py [serve]    (under `wirespeed.adapters.fastmcp`)

With ``serve`` its server is served on stdio instead.
"""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import fastmcp
from check_report import report
from fastmcp import Context, FastMCP
from fastmcp.client.transports import PythonStdioTransport
from opentelemetry import trace

from wirespeed.adapters import fastmcp as adapter

PROGRAM = """
import os

from fastmcp import FastMCP

server = FastMCP("calculator")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
def pid() -> int:
    return os.getpid()


server.run(show_banner=False)
"""
server = FastMCP("calculator")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def steps(n: int, ctx: Context) -> list[str]:
    """Report progress."""
    for i in range(n):
        await ctx.report_progress(i, n)
    return [str(i) for i in range(n)]


@server.tool
async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


@server.tool
async def traced() -> str:
    """Return the trace that the client began."""
    return format(trace.get_current_span().get_span_context().trace_id, "032x")


@asynccontextmanager
async def served(url: str, **options: Any) -> AsyncIterator[str]:
    listening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        adapter.serve(server, url, on_listening=listening.set_result, **options)
    )
    await asyncio.wait([task, listening], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield listening.result()[0]
    finally:
        task.cancel()
        await asyncio.wait([task])


async def used(client: Any) -> None:
    noted: list[Any] = []

    async def note(*values: Any) -> None:
        noted.append(values)

    assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5
    assert (await client.call_tool("steps", {"n": 2}, progress_handler=note)).data == ["0", "1"]
    assert [values[0] for values in noted] == [0, 1]
    assert "add" in [tool.name for tool in await client.list_tools()]
    failed = await client.call_tool("add", {"a": "x", "b": 3}, raise_on_error=False)
    assert failed.is_error


async def urls() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for url in ("ws://127.0.0.1:0/mcp", "tcp://127.0.0.1:0", f"unix:{folder}/it"):
            async with served(url) as at, fastmcp.Client(adapter.Transport(at)) as client:
                await used(client)
        async with served("http://127.0.0.1:0/mcp") as at, fastmcp.Client(at) as client:
            await used(client)


async def configuration() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with served(f"unix:{folder}/it") as at:
            async with adapter.Client({"mcpServers": {"one": {"url": at}}}) as client:
                await used(client)
            two = {"mcpServers": {"one": {"url": at}, "two": {"url": at}}}
            async with adapter.Client(two) as client:
                names = [tool.name for tool in await client.list_tools()]
                assert "one_add" in names and "two_add" in names
                assert (await client.call_tool("two_add", {"a": 2, "b": 3})).data == 5


async def a_server_that_died_is_started_again() -> None:
    """FastMCP keeps a server for the next connection, unless it is gone."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(PROGRAM)
        client = fastmcp.Client(PythonStdioTransport(program))
        pids = []
        for _ in range(2):
            async with client:
                pids.append((await client.call_tool("pid")).data)
                os.kill(pids[-1], signal.SIGKILL)
                try:
                    await client.call_tool("pid")
                except Exception as exc:
                    assert "closed" in str(exc), exc
                else:
                    raise AssertionError("it is alive")
        await client.transport.close()
        assert len(set(pids)) == 2, pids


async def stdio() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(PROGRAM)
        async with fastmcp.Client(PythonStdioTransport(program)) as client:
            assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5


@asynccontextmanager
async def connected() -> AsyncIterator[Any]:
    """A client of FastMCP at a socket."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            served(f"unix:{folder}/it") as at,
            fastmcp.Client(adapter.Transport(at)) as client,
        ):
            yield client


async def a_call_ends_with_the_session() -> None:
    async with connected() as client:
        call = asyncio.ensure_future(client.call_tool("wait"))
        await asyncio.sleep(0.1)
        client._session_state.session_task.cancel()
        try:
            async with asyncio.timeout(5):
                await call
        except RuntimeError as exc:
            assert "Session task completed" in str(exc)
        except Exception as exc:
            assert "closed" in str(exc).lower(), exc
        else:
            raise AssertionError("the call has ended")


async def auth_is_refused() -> None:
    from fastmcp.server.auth import StaticTokenVerifier

    closed = FastMCP("closed", auth=StaticTokenVerifier(tokens={}))
    try:
        await adapter.serve(closed, "ws://127.0.0.1:0/mcp")
    except ValueError as exc:
        assert "auth" in str(exc)
    else:
        raise AssertionError("served without its auth")


async def spans() -> None:
    """A parent that the client sends is the parent in the handler."""
    given = "0af7651916cd43dd8448eb211c80319c"
    async with connected() as client:
        assert (await client.call_tool("traced")).data == "0" * 32
        meta = {"traceparent": f"00-{given}-b7ad6b7169203331-01"}
        assert (await client.call_tool("traced", meta=meta)).data == given


async def uninstalled() -> None:
    from fastmcp.utilities import async_utils

    assert adapter.installed() and adapter.install()
    ours = async_utils.gather
    adapter.uninstall()
    try:
        assert async_utils.gather is not ours
        assert not adapter.installed()
        async with fastmcp.Client(server) as client:
            await used(client)
    finally:
        assert adapter.install()
    async with fastmcp.Client(server) as client:
        await used(client)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        server.run(show_banner=False)
    else:
        report(
            *(urls, configuration, stdio, a_server_that_died_is_started_again),
            *(a_call_ends_with_the_session, auth_is_refused, spans, uninstalled),
        )
