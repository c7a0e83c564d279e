"""The work that the guard counts instructions of, and the program that runs it under callgrind.

``workloads.py NAME=NUMBER …`` runs each workload in a process of its own, forked from one that has
imported everything. Only public interfaces are used, so that older commits run the same work. The
client and the server of a workload share one loop and one thread: nothing depends on timing.
"""

import asyncio
import gc
import os
import re
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Thread
from typing import Any

import wirespeed
from wirespeed import Client, Server, core

IN_FLIGHT = 64
NUMBERS = range(1000, 1000 + IN_FLIGHT)
MODERN = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientCapabilities":{}},'
)
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"guard","version":"1"}}}'
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mcp\r\n\r\n"
)


def call_text(number: int, meta: bytes = b"") -> bytes:
    return (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s"name":"echo",'
        b'"arguments":{"text":"number %d of a few words"}}}' % (number, meta, number)
    )


def bearer_of(user: str) -> str:
    """A token of the length of a usual JWT."""
    return f"eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCJ9.{user * 600:.600}.{'s' * 86}"


def make_server(*, middleware: bool = False, users: Sequence[str] = ()) -> Server:
    auth: dict[str, Any] = {}
    if users:
        from wirespeed.auth import AccessToken, ResourceServer

        tokens = {bearer_of(user): AccessToken(subject=user, issuer="guard") for user in users}
        auth = {"auth": ResourceServer("https://guard.example/", [], verifier=tokens.get)}
    server = Server("guard", version="1", **auth)

    @server.tool
    async def echo(text: str) -> str:
        return text

    if middleware:

        @server.add_middleware
        async def passes_on(request: Any, call_next: Any) -> Any:
            return await call_next(request)

    return server


class Peer:
    """A raw client in the loop of the server that it calls."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, data: bytes, mark: bytes, n: int) -> None:
        """Send, and read until ``mark`` has come ``n`` times."""
        self.writer.write(data)
        seen = b""
        while (count := seen.count(mark)) < n:
            more = await self.reader.read(1 << 20)
            if not more:
                raise EOFError(seen[-200:])
            if b'"error":' in more or b'"isError":true' in more:
                raise ValueError(more[:500])
            seen += more
        if count != n:
            raise ValueError(f"{count} answers to {n} requests")

    async def calls(self, number: int, batch: bytes) -> None:
        """Send a batch of `IN_FLIGHT` calls again and again: once to warm up, then ``number``."""
        for _ in range(0, number + IN_FLIGHT, IN_FLIGHT):
            await self.ask(batch, b'"result":', IN_FLIGHT)


async def stop(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def over_unix(server: Server, number: int, *, modern: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/s"
        serving = asyncio.ensure_future(server.serve(f"unix:{path}"))
        while not os.path.exists(path):
            await asyncio.sleep(0.01)
        peer = Peer(*await asyncio.open_unix_connection(path))
        if not modern:
            await peer.ask(INITIALIZE + b"\n", b'"result":', 1)
            peer.writer.write(INITIALIZED + b"\n")
        meta = MODERN if modern else b""
        await peer.calls(number, b"".join(call_text(n, meta) + b"\n" for n in NUMBERS))
        await stop(serving)


async def server_legacy(number: int) -> None:
    await over_unix(make_server(), number, modern=False)


async def server_modern(number: int) -> None:
    await over_unix(make_server(), number, modern=True)


async def middleware(number: int) -> None:
    await over_unix(make_server(middleware=True), number, modern=False)


def frame(text: bytes) -> bytes:
    """A masked text frame (RFC 6455) of up to 64 KiB."""
    key = b"\x11\x22\x33\x44"
    size = len(text)
    head = bytes([0x81, 0x80 | size]) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
    return head + key + bytes(byte ^ key[i & 3] for i, byte in enumerate(text))


async def over_tcp(
    scheme: str, server: Server | None = None
) -> tuple[asyncio.Task[None], int, Peer]:
    """A server, its port, and a connection to it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = server or make_server()
    serving = asyncio.ensure_future(server.serve(f"{scheme}://127.0.0.1:{port}/"))
    while True:
        try:
            return serving, port, Peer(*await asyncio.open_connection("127.0.0.1", port))
        except ConnectionRefusedError:
            await asyncio.sleep(0.01)


async def websocket(number: int) -> None:
    serving, port, peer = await over_tcp("ws")
    await peer.ask(UPGRADE % port, b"\r\n\r\n", 1)
    await peer.ask(frame(INITIALIZE), b'"result":', 1)
    peer.writer.write(frame(INITIALIZED))
    await peer.calls(number, b"".join(frame(call_text(n)) for n in NUMBERS))
    await stop(serving)


def post(body: bytes, fields: bytes) -> bytes:
    return (
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Accept: application/json, text/event-stream\r\n%bContent-Length: %d\r\n\r\n%b"
        % (fields, len(body), body)
    )


async def http_legacy(number: int) -> None:
    serving, _, peer = await over_tcp("http")
    peer.writer.write(post(INITIALIZE, b""))
    head = await peer.reader.readuntil(b"\r\n\r\n")
    await peer.reader.readuntil(b"}}")
    fields = b"MCP-Protocol-Version: 2025-11-25\r\n" + next(
        line for line in head.splitlines(True) if line.lower().startswith(b"mcp-session-id:")
    )
    peer.writer.write(post(INITIALIZED, fields))
    await peer.reader.readuntil(b"\r\n\r\n")
    await peer.calls(number, b"".join(post(call_text(n), fields) for n in NUMBERS))
    await stop(serving)


async def http_modern(number: int, users: Sequence[str] = ()) -> None:
    serving, _, peer = await over_tcp("http", make_server(users=users))
    common = b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n"
    fields = [b"%bAuthorization: Bearer %b\r\n" % (common, bearer_of(u).encode()) for u in users]
    fields = fields or [common]
    await peer.calls(
        number,
        b"".join(post(call_text(n, MODERN), fields[n % len(fields)]) for n in NUMBERS),
    )
    await stop(serving)


async def http_token(number: int) -> None:
    """A connection shows the same token again and again."""
    await http_modern(number, ("anne",))


async def http_tokens(number: int) -> None:
    """Each request shows another token than the one before it, which the server knows: what the
    first request of a connection costs, and each request of a proxy's connection."""
    await http_modern(number, ("anne", "bob"))


async def answer_calls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server behind the proxy, which gives all calls the same answer."""
    hello = (
        b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
        b'"serverInfo":{"name":"guard","version":"1"}}'
    )
    results = {
        b"initialize": hello,
        b"tools": b'{"content":[{"type":"text","text":"number 1000 of a few words"}]}',
    }
    rest = b""
    while data := await reader.read(1 << 20):
        lines, _, rest = (rest + data).rpartition(b"\n")
        writer.writelines(
            b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id, results[method])
            for id, method in re.findall(rb'"id":(\d+),"method":"(\w+)', lines)
        )
    writer.close()


def serve_posts(listener: socket.socket) -> None:
    """A server of Streamable HTTP (2026-07-28), which gives all calls the same answer."""
    results = {
        b"server/discover": b'{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},'
        b'"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":'
        b'{"name":"guard","version":"1"}},"resultType":"complete"}',
        b"tools/list": b'{"tools":[{"name":"echo","inputSchema":{"type":"object"}}],'
        b'"ttlMs":0,"cacheScope":"private","resultType":"complete"}',
        b"tools/call": b'{"content":[{"type":"text","text":"number 1000 of a few words"}],'
        b'"resultType":"complete"}',
    }

    def answer(connection: socket.socket) -> None:
        rest = b""
        while data := connection.recv(1 << 20):
            rest += data
            while (end := rest.find(b"\r\n\r\n")) >= 0:
                found = re.search(rb"(?i)content-length: (\d+)", rest[:end])
                size = end + 4 + (int(found[1]) if found else 0)
                if len(rest) < size:
                    break
                body, rest = rest[end + 4 : size], rest[size:]
                id, method = re.search(rb'"id":(\d+),"method":"([^"]+)', body).groups()  # type: ignore[union-attr]
                text = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, results[method])
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (len(text), text)
                )

    while True:
        Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


@contextmanager
def http_server() -> Iterator[int]:
    """The port of `serve_posts`, in a process of its own: its instructions do not count."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        pid = os.fork()
        if pid == 0:
            try:
                serve_posts(listener)
            finally:
                os._exit(1)
    try:
        yield port
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


async def http_client_alone(number: int) -> None:
    with http_server() as port:
        await calls_of(Client(f"http://127.0.0.1:{port}/", era="modern"), number, 1)


async def proxy_http(number: int) -> None:
    """One call at a time: how many connections are ready in a turn of the loop is up to the
    kernel."""
    from wirespeed import Http
    from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

    with http_server() as behind:
        target = Http(f"http://127.0.0.1:{behind}/")
        backend = BackendConfig(target=target, isolation="shared", era="modern")
        config = ProxyConfig(backends=(backend,), listen=("http://127.0.0.1:0/",))
        urls: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(Proxy(config).serve(on_listening=urls.set_result))
        port = int((await urls)[0].rpartition(":")[2].partition("/")[0])
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
        fields = b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n"
        for n in range(number + IN_FLIGHT):
            await peer.ask(post(call_text(1000 + n % 1000, MODERN), fields), b'"result":', 1)
        await stop(serving)


async def proxy(number: int) -> None:
    """One client over WebSocket, and a shared server at a socket."""
    from wirespeed import Socket
    from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/s"
        async with await asyncio.start_unix_server(answer_calls, path):
            backend = BackendConfig(target=Socket(f"unix:{path}"), isolation="shared")
            config = ProxyConfig(backends=(backend,), listen=("ws://127.0.0.1:0/",))
            urls: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
            serving = asyncio.ensure_future(Proxy(config).serve(on_listening=urls.set_result))
            port = int((await urls)[0].rpartition(":")[2].rstrip("/"))
            peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
            await peer.ask(UPGRADE % port, b"\r\n\r\n", 1)
            await peer.ask(frame(INITIALIZE), b'"result":', 1)
            await peer.calls(number, b"".join(frame(call_text(n)) for n in NUMBERS))
            await stop(serving)


async def calls_of(one: Client, number: int, callers: int) -> None:
    """Callers with a call each."""

    async def calls(first: int, n: int) -> None:
        for i in range(first, first + n):
            result = await one.call_tool("echo", {"text": f"number {i:06}"})
            if result.is_error:
                raise ValueError(result)

    async with one:
        await one.list_tools()
        await asyncio.gather(*(calls(i * number, 8) for i in range(callers)))
        await asyncio.gather(*(calls(i * number, number // callers) for i in range(callers)))


async def client(number: int) -> None:
    await calls_of(Client(make_server()), number, 8)


async def http_client(number: int) -> None:
    serving, port, peer = await over_tcp("http")
    peer.writer.close()
    # How many of several connections are ready in a turn of the loop is up to the kernel.
    await calls_of(Client(f"http://127.0.0.1:{port}/"), number, 1)
    await stop(serving)


async def foreign_service(number: int) -> None:
    """A call of a service that is not ours, whose handler returns a constant."""
    from wirespeed.peer import SessionConnection
    from wirespeed.transport import FdLink
    from wirespeed.transport.taskpool_choice import close_pool, open_pool

    result = b'{"content":[{"type":"text","text":"number 1000 of a few words"}],"isError":false}'

    async def answer() -> bytes:
        return result

    class Answering(SessionConnection):
        def take(self, message: Any) -> None:
            if message.kind == "request":
                self.run(message, answer(), pool)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        pool = open_pool(loop)
        session = core.Session(limits=core.Limits(), role="server")
        end = Answering(session, None, loop, None)
        FdLink(loop, end, ours.fileno(), ours.fileno()).start()
        peer = Peer(*await asyncio.open_connection(sock=theirs))
        await peer.calls(number, b"".join(call_text(n) + b"\n" for n in NUMBERS))
        end.abort()
        await close_pool(pool)


async def sdk_dispatcher(number: int) -> None:
    """A call of the official SDK on its adapter, whose handler returns a constant. What it takes
    more than `foreign_service` is the adapter's own share."""
    from wirespeed.adapters.mcp.dispatcher import SdkDispatcher, use_sdk
    from wirespeed.transport import FdLink

    nothing: dict[str, Any] = dict.fromkeys(
        ("mcp_error", "no_back_channel", "handler_error_data", "run_notify_intercept", "from_json",
         "to_json", "event", "shielded", "traced", "traced_request")
    )  # fmt: skip
    use_sdk(**nothing)
    result = {"content": [{"type": "text", "text": "number 1000 of a few words"}], "isError": False}

    async def on_request(context: Any, method: str, params: Any) -> dict[str, Any]:
        return result

    async def on_notify(context: Any, method: str, params: Any) -> None:
        pass

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        end = SdkDispatcher(
            None, loop, make_link=lambda end: FdLink(loop, end, ours.fileno(), ours.fileno())
        )
        running = asyncio.ensure_future(end.run(on_request, on_notify))
        peer = Peer(*await asyncio.open_connection(sock=theirs))
        await peer.calls(number, b"".join(call_text(n) + b"\n" for n in NUMBERS))
        await stop(running)


async def scan(number: int) -> None:
    chunk = b"".join(call_text(n) + b"\n" for n in NUMBERS)
    reader = core.MessageReader(limits=core.Limits())
    for _ in range(0, number, IN_FLIGHT):
        reader.receive_data(chunk)
        if sum(1 for message in reader if message.method == "tools/call") != IN_FLIGHT:
            raise ValueError("messages are missing")


WORKLOADS: dict[str, tuple[Callable[[int], Awaitable[None]], int]] = {
    "scan": (scan, 25600),
    "server, 2025-11-25": (server_legacy, 640),
    "server, 2026-07-28": (server_modern, 640),
    "middleware": (middleware, 640),
    "WebSocket server": (websocket, 640),
    "HTTP server, 2025-11-25": (http_legacy, 640),
    "HTTP server, 2026-07-28": (http_modern, 640),
    "HTTP server, a token": (http_token, 640),
    "HTTP server, two tokens": (http_tokens, 640),
    "client": (client, 320),
    "HTTP client and server": (http_client, 640),
    "HTTP client": (http_client_alone, 256),
    "proxy": (proxy, 640),
    "proxy, HTTP to HTTP": (proxy_http, 256),
    "foreign service": (foreign_service, 640),
    "SDK dispatcher": (sdk_dispatcher, 640),
}


def run(name: str, number: int) -> None:
    gc.collect()
    gc.disable()
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(WORKLOADS[name][0](number))  # type: ignore[arg-type]


def main(arguments: list[str]) -> int:
    run("client", 8)  # imports what a first use imports
    failed = 0
    for argument in arguments:
        name, _, number = argument.rpartition("=")
        if name.startswith("HTTP") and not hasattr(wirespeed, "HttpOptions"):
            continue  # a commit from before
        if name.endswith(("token", "tokens")) and find_spec("wirespeed.auth") is None:
            continue
        if name.startswith("foreign") and find_spec("wirespeed.peer") is None:
            continue
        if name.startswith("SDK") and find_spec("wirespeed.adapters") is None:
            continue
        if name.startswith("proxy") and find_spec("wirespeed.proxy") is None:
            continue
        print(name, number, end=" ", flush=True)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                run(name, int(number))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        print(pid, flush=True)
        failed |= os.waitpid(pid, 0)[1]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
