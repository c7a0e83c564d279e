"""A proxy in this process, raw clients, and a server behind it that does as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from wirespeed import Stdio
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig
from wirespeed.proxy.downstream import Downstream

BACKEND = """
import json, os, sys, time

log = open(sys.argv[1], "a", buffering=1)
held = {}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

def send(*messages):
    for m in messages:
        sys.stdout.write((m if isinstance(m, str) else json.dumps(m)) + "\\n")
    sys.stdout.flush()

def note(method, **params):
    send({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})

def answer(i, **result):
    send({"jsonrpc": "2.0", "id": i, "result": result})

def told(i, **said):
    answer(i, content=[], _meta=said)

def once(name):
    # whether this is the first process that does it
    try:
        os.close(os.open(sys.argv[1] + "." + name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

if len(sys.argv) > 2:
    sys.exit(int(sys.argv[2]))
versions = os.environ.get("VERSIONS", "").split()
log.write(json.dumps({"method": "started", "pid": os.getpid()}) + "\\n")
time.sleep(float(os.environ.get("SLOW", 0)))
greeted = False
for line in sys.stdin:
    log.write(line)
    m = json.loads(line)
    i, method, p = m.get("id"), m.get("method"), m.get("params") or {}
    greeted = greeted or method == "initialize"
    if versions == ["mute"] and not greeted:
        continue
    if method == "server/discover":
        if not versions:
            send({"jsonrpc": "2.0", "id": i, "error": {"code": -32601, "message": "no"}})
        elif versions == ["dies"]:
            os._exit(4)
        elif versions != ["silent"]:
            able = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
            answer(i, resultType="complete", supportedVersions=versions, capabilities=able,
                   ttlMs=0, cacheScope="private")
    elif method == "initialize" and versions == ["2026-07-28"]:
        send({"jsonrpc": "2.0", "id": i, "error": {"code": -32022, "message": "modern only",
              "data": {"supported": versions, "requested": p["protocolVersion"]}}})
    elif method == "initialize":
        agreed = p["protocolVersion"]
        agreed = agreed if agreed in ("2025-03-26", "2025-06-18") else "2025-11-25"
        answer(i, protocolVersion=agreed, serverInfo={"name": "b", "version": "1"},
               capabilities={"tools": {}, "logging": {}, "completions": {}, "tasks": {},
                             "resources": {"subscribe": True}})
    elif method == "tools/call":
        what, a = p["name"], p.get("arguments") or {}
        token = p.get("_meta", {}).get("progressToken")
        if what == "crash":
            os._exit(3)
        elif "task" in p:
            held["tasks"] = [*held.get("tasks", []), str(len(held.get("tasks", [])) + 1)]
            answer(i, task={"taskId": held["tasks"][-1], "status": "working"})
        elif what == "hang":
            time.sleep(3600)
        elif what == "once" and once(a["as"]):
            note("progress", progressToken=token, progress=1, message="first") if token else None
            os._exit(3)
        elif what == "grow":
            held["memory"] = b"x" * a["bytes"]
            told(i)
        elif what == "hold":
            held[a["as"]] = (i, token)
            note("progress", progressToken=token, progress=1, message=a["as"])
        elif what == "free":
            if a["as"] in held:        # else another process has it
                first, its = held.pop(a["as"])
                note("progress", progressToken=its, progress=2, message=a["as"])
                told(first, said=a["as"])
                told(first, said="twice")
            told(i)
        elif what == "uris":
            told(i, uris=sorted(held.get("uris", ())))
        elif what == "note":
            note(a["method"], **a["params"])
            told(i)
        elif what == "sleep":
            time.sleep(a["seconds"])
            told(i, pid=os.getpid())
        elif what == "fail":
            send(a["text"].replace('"$id"', str(i)))
        elif what == "half":
            sys.stdout.write(a["text"].replace("$id", str(i)))
            sys.stdout.flush()
            os._exit(3)
        elif what == "raw":
            send(a["text"])
            told(i)
        elif what == "ask":
            send({"jsonrpc": "2.0", "id": a["its"], "method": a["method"], "params": {}})
            held["asked"] = (i, token)
        elif what not in ("want", "hang", "grow"):
            if token is not None:
                note("progress", progressToken=token, progress=1, message=a.get("nonce"))
            told(i, nonce=a.get("nonce"), pid=os.getpid())
        if what == "change":
            for listening in held.get("listening", []):
                note("tools/list_changed", _meta={SUBSCRIPTION: listening}, by=os.getpid())
                note("tasks", _meta={SUBSCRIPTION: listening}, taskId=str(os.getpid()))
        elif what == "want":
            state = p.get("requestState")
            if state:
                told(i, state=state, pid=os.getpid())
            else:
                answer(i, resultType="input_required", inputRequests={},
                       requestState=f"state of {os.getpid()}")
    elif method == "resources/subscribe" and p["uri"] == "once:" and not once("subscribed"):
        pass                           # another process has answered it
    elif method == "resources/subscribe" and p["uri"] == "none:":
        send({"jsonrpc": "2.0", "id": i, "error": {"code": -32002, "message": "there is none"}})
    elif method == "resources/subscribe":
        held.setdefault("uris", set()).add(p["uri"])
        answer(i)
    elif method == "resources/unsubscribe":
        held.setdefault("uris", set()).discard(p["uri"])
        answer(i)
    elif method == "subscriptions/listen":
        held.setdefault("listening", []).append(i)
        note("subscriptions/acknowledged", _meta={SUBSCRIPTION: i},
             notifications=p["notifications"])
    elif p.get("_meta", {}).get("once") and once(p["_meta"]["once"]):
        os._exit(3)
    elif method == "tools/list" and os.environ.get("TOOLS"):
        answer(i, tools=json.loads(os.environ["TOOLS"]))
    elif method == "tools/list":
        answer(i, tools=[], nextCursor=f"{os.getpid()}~é", _meta={"cursor": p.get("cursor")})
    elif method == "tasks/list":
        answer(i, tasks=[{"taskId": one, "status": "working"} for one in held.get("tasks", [])])
    elif method == "tasks/get":
        answer(i, resultType="complete", taskId=p["taskId"], _meta={"pid": os.getpid()})
    elif method is None and "asked" in held:
        told(held.pop("asked")[0], got=m)
    elif i is not None:
        answer(i)
"""


# Seconds that requests in flight have when their client leaves, or the proxy ends.
GRACE = 0.2
MODERN = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Raw:
    """A client that sends and reads text, a message a line."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: str | None
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.is_modern = version == MODERN

    def text_of(self, message: dict[str, Any]) -> str:
        """A message as this client sends it: with an envelope if it is modern."""
        if self.is_modern and "id" in message:
            params = message.get("params", {})
            meta = {**params.get("_meta", {}), **ENVELOPE}
            message = {**message, "params": {**params, "_meta": meta}}
        return json.dumps(message)

    async def send(self, *texts: Any) -> None:
        for text in texts:
            line = text if isinstance(text, str) else self.text_of(text)
            self.writer.write(line.encode() + b"\n")
        await self.writer.drain()

    async def text(self) -> str:
        line = await self.reader.readuntil(b"\n")
        return line.decode().removesuffix("\n")

    async def recv(self) -> Any:
        return json.loads(await self.text())

    async def ask(self, text: Any) -> Any:
        await self.send(text)
        return await self.recv()

    async def initialize(self, version: str = "2025-11-25") -> Any:
        params = {
            "protocolVersion": version,
            "capabilities": {"sampling": {}},
            "clientInfo": {"name": "raw", "version": "1"},
        }
        answer = await self.ask(
            {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params}
        )
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    async def ended(self) -> None:
        """The proxy ends the connection, and says nothing more."""
        assert await self.reader.read() == b""

    async def silent(self) -> None:
        """Nothing has come: an answer to a ping is the next message."""
        method = "server/discover" if self.is_modern else "ping"
        got = await self.ask({"jsonrpc": "2.0", "id": "silent?", "method": method})
        assert got["id"] == "silent?" and "result" in got

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def call(id: Any, tool: str, token: Any = None, **arguments: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def said(answer: Any) -> Any:
    """What the server's tool told."""
    return answer["result"]["_meta"]


def delayed(backend: BackendConfig, **delays: Any) -> BackendConfig:
    """Return the same server with other delays: fields of `BackendDelays`."""

    class Delayed(BackendConfig):
        pass

    Delayed.delays = backend.delays._replace(**delays)
    return Delayed(**{one.name: getattr(backend, one.name) for one in dataclasses.fields(backend)})


class Lab:
    """A proxy at a UNIX socket.

    Attributes:
        seen: What the servers read, in a file.
        urls: Where the proxy listens.
    """

    def __init__(
        self,
        folder: Path,
        isolation: Any,
        *arguments: str,
        name: str = "b",
        versions: str = "",
        era: Any = "auto",
        size: int = 4,
        translate: bool = True,
        env: dict[str, str] | None = None,
        config: dict[str, Any] | None = None,
        delays: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.seen = folder / "seen"
        script = folder / "backend.py"
        script.write_text(BACKEND)
        self.path = folder / "s"
        self.clients: list[Raw] = []
        self.urls: tuple[str, ...] = ()
        target = Stdio(
            sys.executable,
            ["-S", str(script), str(self.seen), *arguments],
            {"VERSIONS": versions, **(env or {})},
            shutdown_grace=0.2,
        )
        backend = BackendConfig(
            target=target,
            name=name,
            isolation=isolation,
            era=era,
            size=size,
            **{"translate": translate, **(config or {})},
        )
        if delays:
            backend = delayed(backend, **delays)
        options = {"shutdown_grace": GRACE, **options}
        listen = (f"unix:{self.path}",)
        self.proxy = Proxy(ProxyConfig(backends=(backend,), listen=listen, **options))

    @property
    def fronts(self) -> set[Downstream]:
        """The proxy's ends of the clients' connections."""
        return next(iter(self.proxy.services.values())).downstreams

    @property
    def assignment(self) -> Any:
        """What knows the servers."""
        return next(iter(self.proxy.services.values())).assignment

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        left = len(self.proxy.config.listen) + (self.proxy.config.admin is not None)

        def on_listening(urls: tuple[str, ...]) -> None:
            nonlocal left
            self.urls += urls
            left -= 1
            if not left:
                listening.set_result(None)

        task = asyncio.ensure_future(self.proxy.serve(on_listening=on_listening))
        await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        try:
            yield
        finally:
            for client in self.clients:
                await client.close()
            task.cancel()
            await asyncio.wait((task,))

    async def connect(self, version: str | None = "2025-11-25") -> Raw:
        streams = await asyncio.open_unix_connection(str(self.path), limit=1 << 24)
        client = Raw(*streams, version)
        self.clients.append(client)
        if version not in (None, MODERN):
            await client.initialize(version)
        return client

    def read(self, method: str) -> list[Any]:
        """What the servers read of a method."""
        lines = [json.loads(line) for line in self.seen.read_text().splitlines()]
        return [m for m in lines if m.get("method") == method]

    async def until_read(self, method: str, n: int) -> list[Any]:
        """Wait until the servers have read ``n`` messages of a method."""
        while len(found := self.read(method)) < n:
            await asyncio.sleep(0.01)
        assert len(found) == n
        return found


async def until(condition: Any, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)
