"""Servers of one era each, with all that an era has, behind a proxy that clients of the other
use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.proxy import MODERN, Lab, Raw

# What the programs of scripted servers begin with.
PROGRAM = """
import json, os, sys, time

log = open(sys.argv[1], "a", buffering=1)
modern = "2026-07-28" in os.environ.get("VERSIONS", "")
META = "io.modelcontextprotocol/"
INFO = {"name": "scripted", "version": "7"}

def send(m):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **m}) + "\\n")
    sys.stdout.flush()

def answer(i, **result):
    if modern:
        result = {"resultType": "complete", **result}
        result.setdefault("_meta", {})[META + "serverInfo"] = INFO
    send({"id": i, "result": result})

def fail(i, code, message, **data):
    send({"id": i, "error": {"code": code, "message": message, "data": data}})

def text(i, said, **more):
    answer(i, content=[{"type": "text", "text": said}], **more)

def cached(**result):
    return {"ttlMs": 5, "cacheScope": "public", **result} if modern else result
"""
SERVER = (
    PROGRAM
    + """
SUBSCRIPTION = META + "subscriptionId"
OFFERED = {"tools": {"listChanged": True}, "prompts": {}, "completions": {}, "logging": {},
           "resources": {"subscribe": True, "listChanged": True}}
INFO["title"] = "T"
listens, asking = {}, {}

def note(method, **params):
    send({"method": "notifications/" + method, "params": params})

def changed(method, **params):
    if not modern:
        return note(method, **params)
    for i, wanted in listens.items():
        if method == "resources/updated":
            if params["uri"] not in wanted.get("resourceSubscriptions", []):
                continue
        elif not wanted.get(method.split("/")[0] + "ListChanged"):
            continue
        note(method, _meta={SUBSCRIPTION: i}, **params)

def call(i, p):
    name, a = p["name"], p.get("arguments") or {}
    if name == "echo":
        token = p.get("_meta", {}).get("progressToken")
        if token is not None:
            note("progress", progressToken=token, progress=1)
        text(i, json.dumps(p.get("_meta")))
    elif name == "raw":
        send({"id": i, "result": a["result"]})
    elif name == "fail":
        send({"id": i, "error": a["error"]})
    elif name == "hold":
        asking["held"] = (i, p)
        token = p.get("_meta", {}).get("progressToken")
        if token is not None:
            note("progress", progressToken=token, progress=1)
    elif name == "free":
        text(asking.pop("held")[0], "freed")
        text(i, "done")
    elif name == "change":
        changed(a["method"], **a.get("params", {}))
        text(i, "done")
    elif name == "log":
        note("message", level=a["level"], data="line")
        text(i, "done")
    elif name == "ask" and modern:
        got = p.get("inputResponses")
        if got is None and a.get("rounds") is None:
            answer(i, resultType="input_required", requestState="s1",
                   inputRequests={"k": {"method": a["method"], "params": a.get("params", {})}})
        elif a.get("rounds") is not None:
            answer(i, resultType="input_required", requestState="again")
        else:
            text(i, json.dumps([got, p["requestState"]]))
    elif name == "ask":
        n = a.get("n", 1)
        asking[i] = [n, [], p.get("_meta", {}).get("progressToken")]
        for k in range(n):
            send({"id": f"q{i}-{k}", "method": a["method"], "params": a.get("params", {})})
    else:
        fail(i, -32602, "Unknown tool")

for line in sys.stdin:
    log.write(line)
    m = json.loads(line)
    i, method, p = m.get("id"), m.get("method"), m.get("params") or {}
    if modern and i is not None and META + "protocolVersion" not in p.get("_meta", {}):
        fail(i, -32022, "modern", supported=["2026-07-28"], requested="x")
    elif method == "server/discover" and modern:
        answer(i, **cached(supportedVersions=["2026-07-28"], instructions="be good",
               capabilities={**OFFERED, "extensions": {"com.example/x": {}}}))
    elif method == "initialize" and not modern:
        answer(i, protocolVersion="2025-11-25", serverInfo=INFO, instructions="be good",
               capabilities={**OFFERED, "tasks": {"list": {}}})
    elif method == "tools/call":
        call(i, p)
    elif method == "tools/list":
        tool = {"name": "echo", "inputSchema": {"type": "object"}, "title": "E",
                "outputSchema": {"type": "array" if modern else "object"}}
        if not modern:
            tool["execution"] = {"taskSupport": "optional"}
        answer(i, **cached(tools=[tool], nextCursor=p.get("cursor", "") + "c"))
    elif method == "prompts/list":
        answer(i, **cached(prompts=[{"name": "p", "title": "P", "vendor": 1}]))
    elif method == "resources/list":
        answer(i, **cached(resources=[{"uri": "u:1", "name": "r"}]))
    elif method == "resources/templates/list":
        answer(i, **cached(resourceTemplates=[]))
    elif method == "resources/read":
        if p["uri"] == "u:none":
            fail(i, -32602 if modern else -32002, "Resource not found", uri=p["uri"])
        else:
            answer(i, **cached(contents=[{"uri": p["uri"], "text": "t"}]))
    elif method == "prompts/get":
        answer(i, messages=[{"role": "user", "content": {"type": "audio", "data": "",
                             "mimeType": "audio/wav"}}])
    elif method == "completion/complete":
        answer(i, completion={"values": ["a"]})
    elif method == "subscriptions/listen" and modern:
        wanted = p["notifications"]
        if "u:mute" in wanted.get("resourceSubscriptions", []):
            continue
        uris = [u for u in wanted.get("resourceSubscriptions", []) if u != "u:none"]
        listens[i] = {**wanted, "resourceSubscriptions": uris}
        note("subscriptions/acknowledged", _meta={SUBSCRIPTION: i}, notifications=listens[i])
    elif method == "notifications/cancelled":
        listens.pop(p["requestId"], None)
    elif method in ("resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
        if p.get("uri") == "u:none":
            fail(i, -32602, "no")
        else:
            answer(i)
    elif method is None and isinstance(i, str) and i.startswith("q"):
        its = int(i[1:].split("-")[0])
        state = asking[its]
        state[1].append(m.get("result", m.get("error")))
        if len(state[1]) == state[0]:
            if state[2] is not None:
                note("progress", progressToken=state[2], progress=2)
            text(its, json.dumps(state[1]))
    elif i is not None:
        fail(i, -32601, "Method not found")
"""
)


class EraLab(Lab):
    """A proxy before a scripted server of one era. ``modern``: of which."""

    def __init__(self, folder: Path, isolation: str, *, modern: bool, **options: Any) -> None:
        super().__init__(folder, isolation, versions=MODERN if modern else "", **options)
        (folder / "backend.py").write_text(SERVER)

    async def client(self, capabilities: dict[str, Any] | None = None) -> ModernRaw:
        """A client of 2026-07-28."""
        plain = await self.connect(MODERN)
        client = ModernRaw(plain.reader, plain.writer, MODERN)
        client.capabilities = capabilities or {}
        return client

    async def legacy(self, version: str = "2025-11-25", **capabilities: Any) -> tuple[Raw, Any]:
        """A client of a legacy era, and what it was told in ``initialize``."""
        client = await self.connect(None)
        params = {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        }
        answer = await client.ask(request("hello", "initialize", **params))
        await client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return client, answer


class ModernRaw(Raw):
    """A raw client with capabilities of its own.

    Attributes:
        meta: Further members of each request's ``_meta``.
    """

    capabilities: dict[str, Any]
    meta: dict[str, Any] = {}  # noqa: RUF012

    def text_of(self, message: dict[str, Any]) -> str:
        """A message with this client's envelope."""
        import json

        if "id" not in message:
            return json.dumps(message)
        params = message.get("params", {})
        meta = {
            **params.get("_meta", {}),
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            **self.meta,
        }
        return json.dumps({**message, "params": {**params, "_meta": meta}})


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def tool(id: Any, name: str, **arguments: Any) -> dict[str, Any]:
    return request(id, "tools/call", name=name, arguments=arguments)


def text_in(answer: Any) -> Any:
    """The JSON in the text that a tool gave."""
    import json

    return json.loads(answer["result"]["content"][0]["text"])
