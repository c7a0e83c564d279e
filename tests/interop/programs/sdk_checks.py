"""Checks of the adapter of the official SDK, where both are installed: ``sdk_checks.py NAME``.

A check that fails is a traceback and exit status 1.
"""

import asyncio
import contextlib
import copy
import datetime
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
from types import SimpleNamespace
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


def transcripts() -> None:
    """The unchanged server answers a script of lines as it does on stock, in both eras."""
    for lines in (LINES, LINES_2026):
        stock, adapted = transcript(False, lines), transcript(True, lines)
        assert len(stock) == len(adapted) > 10
        assert stock == adapted, [
            pair for pair in zip(stock, adapted, strict=False) if pair[0] != pair[1]
        ]


def many_tools() -> list[Any]:
    """Servers with tools of every kind of result."""
    from mcp.server.mcpserver.exceptions import ToolError

    server = mcp.server.MCPServer("kinds", version="1", icons=[], log_level="CRITICAL")
    text = mcp.types.TextContent(type="text", text="ü")
    noted = text.model_copy(update={"meta": {"a": 1}})
    results: dict[str, Any] = {
        "string": "ü",
        "number": 1.5,
        "nothing": None,
        "values": {"a": None, "b": [1, 2.5, True, None, {"c": {}}]},
        "infinite": {"a": float("inf")},
        "texts": [text, text],
        "noted": [noted],
        "mixed": [text, mcp.types.ImageContent(type="image", data="", mime_type="image/png"), 3],
        "result": mcp.types.CallToolResult(content=[text], structured_content={"n": 1}),
        "failed": mcp.types.CallToolResult(content=[], is_error=True),
        "list": mcp.types.CallToolResult(content=[], structured_content=[1]),
        "marked": mcp.types.CallToolResult(content=[text], _meta={"m": 1}),
        "date": mcp.types.CallToolResult(content=[], structured_content={"at": datetime.date.min}),
    }

    def returning(value: Any) -> Any:
        async def tool() -> Any:
            return value

        return tool

    for name, value in results.items():
        for structured in (None, False):
            server.add_tool(returning(value), f"{name}-{structured}", structured_output=structured)

    @server.tool()
    async def typed(number: int, text: str = "a", numbers: list[int] | None = None) -> str:
        if number < 0:
            raise ValueError("secret")
        if number == 0:
            raise ToolError("told")
        return f"{number} {text} {numbers}"

    async def lowlevel(ctx: Any, params: Any) -> Any:
        value = results.get(params.name, "ü")
        return value if isinstance(value, mcp.types.CallToolResult) else {"content": [], "n": value}

    return [server._lowlevel_server, mcp.server.lowlevel.Server("low", on_call_tool=lowlevel)]


def same_checks() -> None:
    """A client's check of results takes what the SDK's takes, and refuses the rest as it does."""
    from mcp_types import methods
    from pydantic import ValidationError

    from wirespeed.adapters.mcp import tool_calls

    stock = methods.validate_server_result
    ours = tool_calls.result_check(stock)
    versions = ("2024-11-05", "2025-11-25", "2026-07-28")
    assert all(tool_calls.takes_texts(version) for version in versions)
    assert tool_calls.is_text("2025-11-25", {"content": [{"type": "text", "text": "a"}]})
    text: dict[str, Any] = {"type": "text", "text": "ü"}
    contents = [[], [text], [text, text], [text | {"text": 1}], [text | {"type": "x"}], [text | {
        "more": 1}], [text | {"_meta": 1}], [1], None, text, [{"type": "text"}]]  # fmt: skip
    more: list[dict[str, Any]] = [
        {}, {"isError": True}, {"isError": "x"}, {"isError": None}, {"structuredContent": {"a": 1}},
        {"structuredContent": [1]}, {"structuredContent": None}, {"resultType": "complete"},
        {"resultType": 1}, {"_meta": {}}, {"_meta": 1}, {"unknown": 1},
    ]  # fmt: skip

    def outcome(check: Any, method: str, version: str, data: Any) -> Any:
        try:
            return check(method, version, data)
        except ValidationError as exc:
            return exc.errors(include_url=False)
        except (KeyError, ValueError) as exc:
            return repr(exc)

    for method in ("tools/call", "tools/list", "nothing/here"):
        for version in (*versions, "1999-01-01"):
            for content in contents:
                for one in more:
                    for other in more:
                        data = {"content": content} | one | other
                        found = outcome(ours, method, version, copy.deepcopy(data))
                        assert found == outcome(stock, method, version, data), (version, data)


async def same_results() -> None:
    """The adapter's runner gives what the SDK's gives, text for text."""
    from mcp.server.connection import Connection
    from mcp.server.runner import ServerRunner
    from mcp.shared.exceptions import MCPError
    from pydantic import ValidationError
    from pydantic_core import to_json

    from wirespeed.adapters.mcp import envelopes, runner, tool_calls

    assert runner._known and tool_calls._known
    versions = ("2024-11-05", "2025-11-25", "2026-07-28")
    assert all(tool_calls.is_loose(version) for version in versions)
    assert all(tool_calls.is_same(version) for version in versions)

    async def outcome(kind: Any, server: Any, version: str, params: Any) -> tuple[str, Any]:
        meta = params["_meta"] if params and version == "2026-07-28" else {}
        own: Any = Connection.from_envelope(version, None, {})
        running = kind(server, own, {})
        if meta and kind is runner.Runner:
            context: Any = SimpleNamespace(envelope=json.dumps(meta).encode())
            running.envelope = envelopes.read(context, "tools/call", params)
            running.connection = running.envelope.connection()
        context = SimpleNamespace(message_metadata=None, request_id=1, can_send_request=False)
        try:
            result = await running._on_request(context, "tools/call", params)
            return "result", to_json(result)
        except MCPError as exc:
            return "error", (exc.code, exc.message, exc.data)
        except ValidationError as exc:
            return "invalid", exc.errors(include_url=False)

    for server in many_tools():
        names = ["string", "nothing", "result", "failed", "list", "marked", "date", "infinite"]
        listed = server.get_request_handler("tools/list")
        if listed is not None:
            tools = await listed.handler(SimpleNamespace(), None)
            names = [tool.name for tool in tools.tools]
        given: list[Any] = [{"name": name, "arguments": {}} for name in [*names, "none"]]
        given += [
            {"name": names[0]},
            {"name": names[0], "arguments": None},
            {"name": names[0], "arguments": 1},
            {"name": names[0], "arguments": {"other": 1}},
            {"name": "typed", "arguments": {"number": 1}},
            {"name": "typed", "arguments": {"number": "5", "numbers": "[1]", "text": "[1]"}},
            {"name": "typed", "arguments": {"number": 1, "numbers": "5"}},
            {"name": "typed", "arguments": {"number": "x", "other": 1}},
            {"name": "typed", "arguments": {"number": -1}},
            {"name": "typed", "arguments": {"number": 0}},
            {"name": names[0], "more": 1},
            {"name": names[0], "task": {"ttl": 1}},
            {"name": names[0], "task": 1},
            {"name": names[0], "inputResponses": 1},
            {"name": 1},
            {},
        ]
        for version in versions:
            metas: list[Any] = [None, {}, {"progressToken": 1}, {"progressToken": 1.5}, {"x": [1]}]
            if version == "2026-07-28":
                metas = [MODERN, LOUD, MODERN | {"x": {"y": 1}}]
            for meta in metas:
                for params in given:
                    asked = params if meta is None else params | {"_meta": meta}
                    stock, adapted = [
                        await outcome(kind, server, version, copy.deepcopy(asked))
                        for kind in (ServerRunner, runner.Runner)
                    ]
                    assert stock == adapted, (version, asked, stock, adapted)


def clients_apart() -> None:
    """Each request has capabilities of its own, which a handler may change, and Python takes 1, 1.0
    and True for the same. A provider of spans that the environment names is one."""
    from wirespeed.adapters.mcp import envelopes, sdk

    def seen(value: object, known: bool) -> object:
        capabilities = {"experimental": {"own": {"value": value}}}
        meta = MODERN | {"io.modelcontextprotocol/clientCapabilities": capabilities}
        context: Any = SimpleNamespace(envelope=json.dumps(meta).encode() if known else None)
        connection = envelopes.read(context, "ping", {"_meta": meta}).connection()
        found = connection.client_capabilities.experimental["own"].pop("value")
        assert connection.client_capabilities.experimental["own"] == {}  # it is this request's
        # as stock: one value for both
        assert connection.client_params.capabilities is connection.client_capabilities
        return found

    values = (1, True, 1.0, "1", 1)
    for known in (False, True, True):
        assert [repr(seen(value, known)) for value in values] == [repr(value) for value in values]
    assert not sdk.has_provider()
    code = "from wirespeed.adapters.mcp import sdk; raise SystemExit(not sdk.has_provider())"
    named = os.environ | {"OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"}
    assert subprocess.run([sys.executable, "-c", code], env=named).returncode == 0


if __name__ == "__main__":
    run(
        *(seams, clients, clients_apart, targets, over_http, no_asyncio, same_checks),
        same_results,
        transcripts,
    )
