"""Checks of the adapter of the official SDK where something goes wrong, or is to be refused:
``sdk_faults.py NAME``.

A check that fails is a traceback and exit status 1.
"""

import asyncio
import contextlib
import copy
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp
from mcp import StdioServerParameters
from mcp.server import MCPServer, Server
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp_types import CallToolResult, TextContent
from pydantic import AnyHttpUrl
from sdk_checks import told

import wirespeed
from wirespeed import ListenOptions, User
from wirespeed.adapters import mcp as adapter
from wirespeed.adapters.mcp import http_runner
from wirespeed.transport.address import parse
from wirespeed.transport.gate import Gate, Refused
from wirespeed.transport.headers import Headers
from wirespeed.transport.http.options import HttpOptions
from wirespeed.transport.options import HttpRequest


class Verifier:
    """Verifies no token."""

    async def verify_token(self, token: str) -> None:
        return None


def guarded() -> MCPServer:
    """A server that asks for tokens."""
    auth = AuthSettings(
        issuer_url=AnyHttpUrl("https://issuer.example"),
        resource_server_url=AnyHttpUrl("https://guarded.example/mcp"),
    )
    return MCPServer("guarded", auth=auth, token_verifier=Verifier())


async def access() -> None:
    """What the SDK's own application asks of a client is not lost: tokens, Host and Origin."""
    for url in ("http://127.0.0.1:0/mcp", "ws://127.0.0.1:0/mcp", "tcp://127.0.0.1:0"):
        for server in (guarded(), {"/mcp": guarded()}):
            try:
                async with asyncio.timeout(5):
                    await adapter.serve(server, url)
            except ValueError as exc:
                assert "guarded" in str(exc), exc
            else:
                raise AssertionError("served without its tokens")
    assert adapter.SdkService(guarded(), over_stdio=True).name == "guarded"
    assert http_runner.reason_for_stock(guarded(), {}) == "it verifies tokens"
    own = MCPServer("own")
    own.streamable_http_app = lambda **options: None  # type: ignore[assignment, method-assign]
    assert "an application of its own" in str(http_runner.reason_for_stock(own, {}))
    # each is compared with the stock middleware
    allowed = ["localhost:*", "a.example", "b.example:8000", "[::1]:*", "*", "*:*", "http://c:1"]
    origins = ["http://localhost:*", "https://a.example", "*"]
    settings = TransportSecuritySettings(allowed_hosts=allowed, allowed_origins=origins)
    stock = TransportSecurityMiddleware(settings)
    url = parse("http://127.0.0.1/mcp")
    gate = Gate(ListenOptions(**http_runner.gate_options(settings)), url, local=True)
    none = TransportSecuritySettings()
    closed = Gate(ListenOptions(**http_runner.gate_options(none)), url, local=True)
    hosts = ("localhost:1", "a.example", "b.example:8000", "b.example:1", "[::1]:5", "evil.example")
    for host in (*hosts, "c:1", "a.example.evil.example"):
        asked = HttpRequest("/mcp", "", Headers({"host": host}), "127.0.0.1:1")
        assert lets_in(gate.check_host, asked) == stock._validate_host(host), host
        assert not lets_in(closed.check_host, asked)
    for origin in ("http://localhost:3", "https://a.example", "https://evil.example", "null"):
        fields = Headers({"host": "localhost:1", "origin": origin})
        asked = HttpRequest("/mcp", "", fields, "127.0.0.1:1")
        assert lets_in(gate.check_origin, asked) == stock._validate_origin(origin), origin


def lets_in(check: Any, request: Any) -> bool:
    try:
        check(request)
    except Refused:
        return False
    return True


async def requests() -> None:
    """What handlers see of an HTTP request."""
    from wirespeed.adapters.mcp.http import WireRequest

    exchange = SimpleNamespace(
        address="[::1]:5", path="/mcp", query="a=1", method="POST", user=None, gone=False,
        headers=Headers({"host": "localhost", "x-own": "ü"}),
    )  # fmt: skip
    request = WireRequest(exchange)
    assert (request.client.host, request.client.port) == ("::1", 5)  # type: ignore[union-attr]
    assert (request.headers["x-own"], request.query_params["a"]) == ("ü", "1")
    assert not await request.is_disconnected()
    exchange.gone = True
    assert await request.is_disconnected()
    try:
        await asyncio.wait_for(request.body(), 5)
    except RuntimeError:
        pass
    else:
        raise AssertionError("there is a body")
    copy.copy(WireRequest(exchange))


async def whose(ctx: Any, params: Any) -> Any:
    access = get_access_token()
    text = "nobody"
    if access is not None:
        text = f"{access.client_id} {access.subject} {access.scopes} {access.token}"
    return CallToolResult(content=[TextContent(type="text", text=text)])


def let_in(request: Any) -> Any:
    return User(request.token, scopes=["read"]) if request.token else False


async def users() -> None:
    """A client that the listener has let in is the user of the SDK, which binds its state to it."""
    loop = asyncio.get_running_loop()
    for url in ("http://127.0.0.1:0/mcp", "ws://127.0.0.1:0/mcp"):
        listening = loop.create_future()
        serving = asyncio.create_task(
            adapter.serve(
                Server("users", on_call_tool=whose),
                url,
                authenticate=let_in,
                on_listening=listening.set_result,
            )
        )
        (place,) = await listening
        for era in ("legacy", "modern"):
            for name in ("ann", "bob", "ann"):
                async with wirespeed.Client(place, token=name, era=era) as client:
                    said = (await client.call_tool("whose")).text
                if url.startswith("http") or era == "modern":
                    assert said == f"{name} {name} ['read'] {name}", (url, era, said)
        serving.cancel()
        await asyncio.wait((serving,))


CODES = (-32700, -32600, -32601, -32602, -32603, -32020, -32022, -32000, -31000, -31003, 7, 2**40)


async def fails_with(ctx: Any, params: Any) -> Any:
    raise mcp.MCPError(code=params.arguments["code"], message="no ü", data={"why": 1})


async def post(
    port: int, body: Any, path: str = "/mcp", **fields: str
) -> tuple[int, dict[str, str], str]:
    """The status, the header fields and the text of an answer."""
    text = json.dumps(body).encode()
    head = {
        "host": f"127.0.0.1:{port}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "connection": "close",
        "content-length": str(len(text)),
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    writer.write(f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + text)
    said = (await reader.read()).decode()
    writer.close()
    first, _, rest = said.partition("\r\n")
    named, _, answer = rest.partition("\r\n\r\n")
    found = dict(line.split(": ", 1) for line in named.split("\r\n"))
    return int(first.split()[1]), {name.lower(): found[name] for name in found}, answer


async def statuses_at(port: int) -> list[Any]:
    """The statuses of errors of a handler: with a session, and in 2026-07-28."""
    seen = []
    info = {"name": "c", "version": "1"}
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening}
    _, fields, _ = await post(port, begin)
    session = {"mcp_protocol_version": "2025-11-25"}
    if "mcp-session-id" in fields:
        session["mcp_session_id"] = fields["mcp-session-id"]
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await post(port, note, **session))[0] == 202
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    modern = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "t"}
    for code in CODES:
        params: dict[str, Any] = {"name": "t", "arguments": {"code": code}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        status, _, answer = await post(port, call, **session)
        assert str(code) in answer, answer
        seen.append((code, status))
        call = {**call, "params": {**params, "_meta": meta}}
        status, _, answer = await post(port, call, **modern)
        assert str(code) in answer, answer
        seen.append((code, "2026-07-28", status))
    return seen


async def statuses() -> None:
    """An error of a handler has the status that it has in the SDK."""
    import uvicorn

    loop = asyncio.get_running_loop()
    for stateless in (False, True):
        app = Server("codes", on_call_tool=fails_with).streamable_http_app(stateless_http=stateless)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        stock = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
        running = asyncio.create_task(stock.serve())
        while not stock.started:
            await asyncio.sleep(0.01)
        expected = await statuses_at(port)
        stock.should_exit = True
        await running
        listening = loop.create_future()
        serving = asyncio.create_task(
            adapter.serve(
                Server("codes", on_call_tool=fails_with),
                "http://127.0.0.1:0/mcp",
                http=HttpOptions(stateless=stateless),
                on_listening=listening.set_result,
            )
        )
        (url,) = await listening
        found = await statuses_at(int(url.rpartition(":")[2].partition("/")[0]))
        serving.cancel()
        await asyncio.wait((serving,))
        differing = [pair for pair in zip(expected, found, strict=True) if pair[0] != pair[1]]
        assert not differing, differing


async def over_sse() -> None:
    """A request of 2026-07-28 over HTTP+SSE is served as on another stream."""
    listening = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        adapter.serve(
            Server("sse", on_call_tool=whose),
            "http://127.0.0.1:0/mcp",
            http=HttpOptions(sse_path="/sse"),
            on_listening=listening.set_result,
        )
    )
    (url,) = await listening
    port = int(url.rpartition(":")[2].partition("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /sse HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    while not (line := await reader.readline()).startswith(b"data: sse"):
        pass
    place = line.decode().removeprefix("data: ").strip()
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "t", "arguments": {}, "_meta": meta}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    assert (await post(port, call, path=f"/{place}"))[0] == 202
    while not (line := await reader.readline()).startswith(b"data: {"):
        pass
    answer = json.loads(line.decode().removeprefix("data: "))
    assert answer["result"]["content"][0]["text"] == "nobody", answer
    writer.close()
    serving.cancel()
    await asyncio.wait((serving,))


async def lifespans() -> None:
    """A lifespan whose start is given up is left. One that ends by itself is in the log."""
    lines, seen = told(), []
    going = asyncio.Event()

    @contextlib.asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[None]:
        seen.append("entered")
        try:
            await going.wait()
            yield
        finally:
            seen.append("left")

    service = adapter.SdkService(Server("lives", lifespan=lifespan))
    holding = asyncio.create_task(service.hold())
    await asyncio.sleep(0.01)
    holding.cancel()
    await asyncio.wait((holding,))
    assert holding.cancelled() and seen == ["entered", "left"], seen
    going.set()
    await service.hold()
    await service.release(None)
    assert seen == ["entered", "left"] * 2

    @contextlib.asynccontextmanager
    async def broken(server: Any) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(breaking())
            yield

    async def breaking() -> None:
        await asyncio.sleep(0.01)
        raise OSError("gone")

    service = adapter.SdkService(Server("breaks", lifespan=broken))
    await service.hold()
    while not lines:
        await asyncio.sleep(0.01)
    assert lines == ["ERROR the lifespan of breaks has ended"], lines
    try:
        await service.release(None)
    except* OSError:
        pass
    else:
        raise AssertionError("the fault is not told")


# A server that counts its starts. From the second one on it answers `initialize` not at all, or
# ends at it.
FICKLE = """
import json, pathlib, sys

starts, how = pathlib.Path(sys.argv[1]), sys.argv[2]
n = len(starts.read_text()) if starts.exists() else 0
starts.write_text("x" * (n + 1))
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "exit" or (n and how == "dies"):
        raise SystemExit(3)
    if message["method"] == "initialize" and n == 1:
        if how == "silent":
            continue
        if how == "refuses":
            error = {"code": -32000, "message": "no"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
            continue
    if "id" in message:
        result = {"start": n, "protocolVersion": "2025-11-25", "capabilities": {}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def fails(call: Any) -> None:
    try:
        await asyncio.wait_for(call, 20)
    except mcp.MCPError:
        return
    raise AssertionError("it did not fail")


async def nothing(*arguments: Any) -> Any:
    return {}


async def renewals() -> None:
    """A link that is made again is used after its handshake, and not after the end."""
    with tempfile.TemporaryDirectory() as folder:
        for how in ("silent", "refuses", "dies"):
            starts = Path(folder, how)
            target = wirespeed.Stdio(
                sys.executable, ["-c", FICKLE, str(starts), how], restart=20, stderr="discard"
            )
            async with adapter.connect(target) as dispatcher:
                running = asyncio.create_task(dispatcher.run(nothing, nothing))
                await asyncio.sleep(0)
                ask = dispatcher.send_raw_request
                await ask("initialize", {})
                await fails(ask("exit", None))
                if how == "silent":
                    given_up = asyncio.create_task(ask("where", None))
                    while len(starts.read_text()) < 2:
                        await asyncio.sleep(0.05)
                    await asyncio.sleep(0.3)
                    given_up.cancel()
                    await asyncio.wait((given_up,))
                else:
                    await fails(ask("where", None))
                if how != "dies":
                    found = await ask("where", None)
                    assert found["start"] == 2, found
                else:
                    await fails(ask("where", None))
                    await fails(ask("where", None))
                    last = asyncio.create_task(ask("where", None))
                    await asyncio.sleep(0.05)  # it waits before a further start
                n = starts.read_text()
            await running
            if how == "dies":
                await fails(last)
                assert starts.read_text() == n


SAYS = """
import json, os
print(json.dumps({"jsonrpc": "2.0", "method": "env", "params": dict(os.environ)}), flush=True)
input()
"""


async def children() -> None:
    """Servers that a program starts install the adapter, too, where the program itself did so by
    its environment."""
    adapter.install()
    server = StdioServerParameters(command=sys.executable, args=["-c", SAYS], env={"OWN": "1"})
    for variables in ({}, adapter.environment()):
        os.environ |= variables
        async with mcp.stdio_client(server) as (read, _):
            found = (await read.receive()).message.params
        assert found["OWN"] == "1" and "HOME" in found
        assert found.get("WIRESPEED_ADAPTERS") == variables.get("WIRESPEED_ADAPTERS"), found


if __name__ == "__main__":
    check = {
        "access": access,
        "children": children,
        "lifespans": lifespans,
        "over_sse": over_sse,
        "renewals": renewals,
        "requests": requests,
        "statuses": statuses,
        "users": users,
    }[sys.argv[1]]
    asyncio.run(check())
    print("ok")
