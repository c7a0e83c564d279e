"""Checks of the adapter of the official SDK, where both are installed: ``sdk_checks.py NAME``.

A check that fails is a traceback and exit status 1.
"""

import asyncio
import contextlib
import functools
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import unittest.mock
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import IO, Any

import mcp
import mcp.client.stdio
import mcp.server.mcpserver.server
import mcp.server.stdio
from mcp import Client, ClientSession, StdioServerParameters
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import ElicitResult

import wirespeed
from wirespeed.adapters import mcp as adapter
from wirespeed.adapters.mcp.dispatcher import SdkDispatcher

SERVER = str(Path(__file__).with_name("sdk_server.py"))
STOCK = StdioServerParameters(command=sys.executable, args=[SERVER])


def told() -> list[str]:
    """What the adapters log from now on."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.levelname} {record.getMessage()}")

    logging.getLogger("wirespeed.adapters").addHandler(Lines())
    logging.getLogger("wirespeed.adapters").setLevel(logging.INFO)
    return lines


async def answer(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Ann"})


async def use(client: Client, modern: bool) -> None:
    """Call everything of the server."""
    told: list[Any] = []

    async def on_progress(*values: Any) -> None:
        told.append(values)

    tools = await client.list_tools()
    assert {"echo", "fails"} <= {tool.name for tool in tools.tools}
    texts = [f"{n} ü" for n in range(20)]
    results = await asyncio.gather(*(client.call_tool("echo", {"text": text}) for text in texts))
    assert [result.content[0].text for result in results] == texts  # type: ignore[union-attr]
    assert results[0].structured_content == {"result": texts[0]}
    assert (await client.call_tool("blocking", {"number": 4})).structured_content == {"result": 5}
    assert (await client.call_tool("fails", {"why": "so"})).is_error
    assert (await client.call_tool("nothing", {})).is_error or modern
    await client.call_tool("reports", {}, progress_callback=on_progress)
    assert told == [(1.0, 2.0, "half")], told
    if not modern:  # where servers ask by results
        asked = await client.call_tool("asks", {})
        assert asked.content[0].text == "Ann", asked  # type: ignore[union-attr]
    memo = await client.read_resource("memo://a")
    assert memo.contents[0].text == "note a"  # type: ignore[union-attr]
    prompt = await client.get_prompt("greet", {"name": "Bo"})
    assert prompt.messages[0].content.text == "Hello, Bo!"  # type: ignore[union-attr]
    with contextlib.suppress(mcp.MCPError):
        await client.session.send_request(
            mcp.types.CallToolRequest(
                params=mcp.types.CallToolRequestParams(name="slow", arguments={"seconds": 60})
            ),
            mcp.types.CallToolResult,
            request_read_timeout_seconds=0.05,
        )
        raise AssertionError("a call had no time limit")


async def both_eras(target: Any, make: Any = Client) -> None:
    for mode in ("legacy", "auto"):
        async with make(target, mode=mode, elicitation_callback=answer) as client:
            await use(client, mode == "auto")


@contextlib.asynccontextmanager
async def program(way: str, log: IO[str] | None = None) -> AsyncIterator[int]:
    """The server's program over HTTP, under the adapter; yields its port.

    ``log``: The file that gets its log.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "wirespeed.adapters.mcp", SERVER, way, str(port)]
    child = subprocess.Popen(command, stderr=log)
    try:
        while child.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            await asyncio.sleep(0.05)
        yield port
    finally:
        child.terminate()
        child.wait(20)


@contextlib.asynccontextmanager
async def listening(serve: Callable[..., Coroutine[Any, Any, None]]) -> AsyncIterator[str]:
    """Serve in this process; yields the URL. ``serve`` is called with its ``on_listening``."""
    told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(on_listening=told.set_result))
    await asyncio.wait((told, serving), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    try:
        yield told.result()[0]
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


def served(server: Any, url: str, **options: Any) -> AbstractAsyncContextManager[str]:
    """A server by `adapter.serve`; yields its URL."""
    return listening(functools.partial(adapter.serve, server, url, **options))


def run(*checks: Any) -> None:
    """Run the check that the command line names."""
    (check,) = (one for one in checks if one.__name__ == sys.argv[1])
    outcome = check(*sys.argv[2:])
    if outcome is not None:
        asyncio.run(outcome)
    print("ok")


# -- checks --------------------------------------------------------------------------------------


def seams() -> None:
    """install() sets all or nothing, says so once, and uninstall() restores."""
    lines = told()
    places = (
        (mcp.server.stdio, "stdio_server"),
        (mcp.server.mcpserver.server, "stdio_server"),
        (mcp.client.stdio, "stdio_client"),
        (mcp, "stdio_client"),
        (mcp.server.mcpserver.server.MCPServer, "run_streamable_http_async"),
    )
    before = [getattr(owner, name) for owner, name in places]
    assert adapter.install() and adapter.install() and adapter.installed()
    assert len(lines) == 1 and lines[0].startswith("INFO wirespeed.adapters.mcp runs mcp 2."), lines
    assert all(getattr(*place) is not old for place, old in zip(places, before, strict=True))
    adapter.uninstall()
    assert not adapter.installed()
    assert [getattr(owner, name) for owner, name in places] == before
    # a seam that has moved
    kept = mcp.server.runner.serve_dual_era_loop
    del mcp.server.runner.serve_dual_era_loop
    assert not adapter.install() and not adapter.installed()
    mcp.server.runner.serve_dual_era_loop = kept
    assert [getattr(owner, name) for owner, name in places] == before
    assert lines[-1].startswith("WARNING") and "serve_dual_era_loop is missing" in lines[-1], lines
    # a version that is not known
    with unittest.mock.patch("wirespeed.adapters.seams.distribution_version", lambda name: "3.0.0"):
        assert not adapter.install()
    assert "3.0.0 stays as it is" in lines[-1], lines


async def clients() -> None:
    """An unchanged client of an unchanged server, each on the adapter."""
    adapter.install()
    STOCK.env = adapter.environment()
    await both_eras(STOCK)
    async with mcp.stdio_client(STOCK) as (read, write), ClientSession(read, write) as session:
        assert type(session._dispatcher) is SdkDispatcher
        assert isinstance(session._dispatcher, JSONRPCDispatcher)
        await session.initialize()
        await session.list_tools()
    # a program that uses the streams itself
    async with mcp.stdio_client(STOCK) as (read, write):
        ping = mcp.types.JSONRPCRequest(jsonrpc="2.0", id="a", method="ping")
        await write.send(mcp.shared.message.SessionMessage(ping))
        got = await read.receive()
        assert got.message.id == "a", got
        try:
            read.statistics()
        except AttributeError as exc:
            assert "wirespeed.adapters.mcp" in str(exc) and "uninstall()" in str(exc)
        else:
            raise AssertionError("an attribute of the stock stream was found")
    try:
        async with mcp.stdio_client(StdioServerParameters(command="/nowhere")):
            raise AssertionError("a program that does not exist has started")
    except FileNotFoundError:
        pass


async def targets() -> None:
    """connect() and Client on targets; serve() at URLs."""
    from sdk_server import server

    path = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    await both_eras(wirespeed.Stdio(sys.executable, [SERVER], env=path), adapter.Client)
    try:
        async with adapter.Client(wirespeed.Stdio(sys.executable, ["-c", "raise SystemExit(7)"])):
            raise AssertionError("a program that has ended was used")
    except* mcp.MCPError as group:
        assert "status 7" in str(group.exceptions[0]), group
    with tempfile.TemporaryDirectory() as folder:
        for url in (
            f"unix:{folder}/u",
            "tcp://127.0.0.1:0",
            "ws://127.0.0.1:0/mcp",
            "http://127.0.0.1:0/mcp",
        ):
            async with served(server, url) as place:
                async with wirespeed.Client(place) as ours:
                    assert (await ours.call_tool("echo", {"text": "a"})).text == "a"
                await both_eras(place, adapter.Client)
                if url.startswith("http"):
                    await both_eras(place)
                    async with Client(place) as stock:
                        shown = await stock.call_tool("header", {"name": "mcp-method"})
                        assert shown.content[0].text == "tools/call", shown


async def over_http() -> None:
    """`run("streamable-http")` on our listener, and what stays the SDK's own."""
    async with program("streamable-http") as port:
        url = f"http://127.0.0.1:{port}/mcp"
        await both_eras(url)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /mcp HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert (await reader.readline()).split()[1] in (b"403", b"421")
        writer.close()
    async with program("routes") as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"hello")
        writer.close()
        await both_eras(f"http://127.0.0.1:{port}/mcp")


def no_asyncio() -> None:
    """On another loop, or on none, the stock transports serve, which the log says once; serve()
    refuses in one sentence."""
    lines = told()
    adapter.install()
    entering = mcp.stdio_client(STOCK).__aenter__()
    try:
        entering.send(None)
    except Exception as exc:
        assert "wirespeed" not in str(exc)  # anyio's own
    else:
        raise AssertionError("a transport started without a loop")
    assert "stdio_client() on another loop stays as it is" in lines[-1], lines
    serving = adapter.serve(None)
    try:
        serving.send(None)
    except RuntimeError as exc:
        assert "trio" in str(exc)
    else:
        raise AssertionError("served without a loop")


def transcript(adapted: bool, lines: list[str]) -> list[Any]:
    """What the server answers to a script of lines, by the ids."""
    module = ["-m", "wirespeed.adapters.mcp"] if adapted else []
    child = subprocess.Popen(
        [sys.executable, *module, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin and child.stdout
    told = []
    for number, line in enumerate(lines):
        message = json.loads(line)
        child.stdin.write(line.encode() + b"\n")
        child.stdin.flush()
        if "id" in message:
            while True:
                told.append(json.loads(child.stdout.readline()))
                if told[-1].get("id") == message["id"]:
                    break
        assert number >= 0
    child.stdin.close()
    assert child.stdout.read() == b""
    assert child.wait(20) == 0
    return told


LINES = [
    '{"jsonrpc":"2.0","id":0,"method":"tools/list"}',
    '{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25",'
    '"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}',
    '{"jsonrpc":"2.0","method":"notifications/initialized"}',
    '{"jsonrpc":"2.0","id":1,"method":"ping"}',
    '{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}',
    '{"jsonrpc":"2.0","id":"3","method":"tools/call","params":{"name":"echo","arguments":{"text":"ü"}}}',
    '{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"echo","arguments":{}}}',
    '{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"none"}}',
    '{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"arguments":{}}}',
    '{"jsonrpc":"2.0","id":7,"method":"nothing/here"}',
    '{"jsonrpc":"2.0","id":8,"method":"resources/read","params":{"uri":"memo://x"}}',
    '{"jsonrpc":"2.0","id":9,"method":"resources/read","params":{"uri":"none://x"}}',
    '{"jsonrpc":"2.0","id":10,"method":"prompts/get","params":{"name":"greet"}}',
    '{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"reports",'
    '"_meta":{"progressToken":"t"}}}',
    '{"jsonrpc":"2.0","id":12,"method":"tools/list","params":{"_meta":{'
    '"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}',
]


MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
}
LOUD = MODERN | {"io.modelcontextprotocol/logLevel": "loud"}
LINES_2026 = [
    json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    for id, (method, params) in enumerate(
        [
            ("server/discover", {"_meta": MODERN}),
            ("tools/call", {"name": "echo", "arguments": {"text": "ü"}, "_meta": MODERN}),
            ("tools/call", {"name": "echo", "arguments": {"text": "again"}, "_meta": MODERN}),
            ("tools/call", {"name": "echo", "arguments": {"text": 1}, "_meta": MODERN}),
            ("tools/call", {"name": "echo", "arguments": None, "_meta": MODERN}),
            ("tools/call", {"name": "echo", "arguments": [], "_meta": MODERN}),
            ("tools/call", {"name": "none", "_meta": MODERN}),
            ("tools/call", {"name": 1, "_meta": MODERN}),
            ("tools/call", {"_meta": MODERN}),
            ("tools/call", {"name": "echo", "arguments": {"text": "a"}, "requestState": 1,
                            "_meta": MODERN}),
            ("tools/call", {"name": "fails", "arguments": {"why": "so"}, "_meta": MODERN}),
            ("tools/call", {"name": "reports", "_meta": MODERN | {"progressToken": "t"}}),
            ("tools/call", {"name": "echo", "arguments": {"text": "a"}, "_meta": LOUD}),
            ("tools/call", {"name": "echo", "arguments": {"text": "a"}, "_meta": LOUD}),
            ("tools/call", {"name": "echo", "arguments": {"text": "a"}, "_meta": 5}),
            ("tools/list", {"_meta": MODERN}),
            ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "_meta": MODERN}),
            ("nothing/here", {"_meta": MODERN}),
            ("tools/call", {"name": "echo", "arguments": {"text": "last"}, "_meta": MODERN}),
        ]
    )
]  # fmt: skip


_CALL = '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":%s,%s}}'
_META = '"_meta":' + json.dumps(MODERN)
_A = '{"text":"a"}'


def calls(*members: tuple[str, str, str]) -> list[str]:
    return [_CALL % (id, *one) for id, one in enumerate(members)]


# Requests with the envelope of an earlier one, and with names that are escaped.
LINES_ESCAPED = calls(
    *[("echo", _A, _META)] * 6,
    ("echo", _A, _META.replace("_meta", "\\u005fmeta")),
    ("echo", _A, _META.replace("Version", "V\\u0065rsion")),
    ("echo", '{"t\\u0065xt":"\\ud83d\\ude00"}', _META),
    ("reports", "{}", _META[:-1] + ',"progressTok\\u0065n":"t"}'),
    ("echo", _A, _META),
)
# Members that are there twice, which the engine refuses, behind an envelope that is known.
LINES_TWICE = calls(
    ("echo", _A, _META),
    ("echo", _A, f'{_META},"\\u005fmeta":5'),
    ("echo", _A, f'"\\u005fmeta":5,{_META}'),
    ("echo", _A, f'{_META},"n\\u0061me":"none"'),
    ("echo", _A, f'{_META},"arg\\u0075ments":{{"text":"b"}}'),
    ("reports", "{}", _META[:-1] + ',"progressToken":"t","progressTok\\u0065n":"u"}'),
)


def transcripts() -> None:
    """The unchanged server answers a script of lines as it does on stock, in both eras."""
    for lines in (LINES, LINES_2026, LINES_ESCAPED):
        stock, adapted = transcript(False, lines), transcript(True, lines)
        assert len(stock) == len(adapted) > 10
        assert stock == adapted, [
            pair for pair in zip(stock, adapted, strict=False) if pair[0] != pair[1]
        ]
    first, *twice = transcript(True, LINES_TWICE)
    assert "result" in first and len(twice) == len(LINES_TWICE) - 1
    assert {one["error"]["code"] for one in twice} == {-32600}, twice


if __name__ == "__main__":
    run(seams, clients, targets, over_http, no_asyncio, transcripts)
