"""Speaks raw JSON-RPC with our server through a WebSocket library, and reports what it saw.

python ws_raw_client.py LIBRARY URL [--deflate] [--trust FILE]    (libraries: see ws_raw_links.py)
"""

import asyncio
import json
import sys
import traceback
from typing import Any

from ws_raw_links import Closed, connected

UNICODE = 'Grüße \u2028\u2029\u0085 \r\n\t"\\/ 日本語 🎉 \0\x1f\x7f'
BIG = "x日🎉\n" * (1 << 19)
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "peer", "version": "1"},
}


def request(number: Any, method: str, **params: Any) -> str:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(message, ensure_ascii=False)


def call(number: Any, tool: str, /, meta: Any = None, **arguments: Any) -> str:
    more = {} if meta is None else {"_meta": meta}
    return request(number, "tools/call", name=tool, arguments=arguments, **more)


def text_of(message: Any) -> str:
    (block,) = message["result"]["content"]
    text: str = block["text"]
    return text


async def answer(link: Any) -> Any:
    return json.loads(await link.recv())


async def legacy(link: Any) -> dict[str, Any]:
    report: dict[str, Any] = dict(link.facts)
    info = {"name": "peer", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    await link.send(request("hello", "initialize", **hello))
    got = await answer(link)
    report["version"] = got["result"]["protocolVersion"], got["id"]
    await link.send('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    await link.send(request(1, "tools/list"))
    report["tools"] = [tool["name"] for tool in (await answer(link))["result"]["tools"]]
    await link.send(call(2, "add", a=2, b=3))
    report["add"] = (await answer(link))["result"]["structuredContent"]
    await link.send(call(3, "echo", text=UNICODE))
    report["unicode"] = text_of(await answer(link)) == UNICODE
    await link.send(call(4, "echo", text=BIG))
    report["big"] = text_of(await answer(link)) == BIG
    whole = call(5, "echo", text=UNICODE * 100)
    await link.send(*(whole[i : i + 100] for i in range(0, len(whole), 100)))
    report["fragments"] = text_of(await answer(link)) == UNICODE * 100
    await link.send(call(6, "fail"))
    got = (await answer(link))["result"]
    report["fail"] = [got["isError"], "boom" in got["content"][0]["text"]]
    await link.send(call(7, "count", meta={"progressToken": "mine"}, n=3))
    steps = [await answer(link) for _ in range(4)]
    report["progress"] = [step["params"]["progress"] for step in steps[:3]] + [steps[3]["id"]]
    await link.send('{"jsonrpc": "2.0", "id": 8, "method": oops}')
    report["bad_json"] = (await answer(link))["error"]["code"]
    await link.ping()
    report["ping"] = "pong"
    many = set()
    for i in range(300):
        await link.send(call(f"many {i}", "echo", text=f"text {i}", ms=i * 7 % 20))
    for _ in range(300):
        got = await answer(link)
        many.add((got["id"].removeprefix("many "), text_of(got).removeprefix("text ")))
    report["many"] = sum(a == b for a, b in many)
    await link.send(call("w", "wait", meta={"progressToken": 1}, tag="mine"))
    assert (await answer(link))["method"] == "notifications/progress"
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}}
    await link.send(json.dumps(cancel))
    noticed: list[str] = []
    while not noticed:
        await link.send(call("n", "noticed"))
        got = await answer(link)
        assert got["id"] == "n"
        noticed = json.loads(text_of(got))
    report["cancelled"] = noticed
    await link.close()
    return report


async def modern(link: Any) -> dict[str, Any]:
    await link.send(request(1, "server/discover", _meta=META))
    versions = (await answer(link))["result"]["supportedVersions"]
    await link.send(call(2, "add", meta=META, a=2, b=3))
    got = await answer(link)
    await link.close()
    return {"versions": versions, "add": got["result"]["structuredContent"], "id": got["id"]}


async def binary(link: Any) -> Any:
    await link.send_binary(request(1, "server/discover", _meta=META).encode())
    try:
        return await link.recv()
    except Closed as exc:
        return exc.args[0]


async def main() -> None:
    library, url, *options = sys.argv[1:]
    trust = options[options.index("--trust") + 1] if "--trust" in options else None
    report: dict[str, Any] = {}
    for step in (legacy, modern, binary):
        try:
            async with (
                asyncio.timeout(30),
                connected(library, url, deflate="--deflate" in options, trust=trust) as link,
            ):
                report[step.__name__] = await step(link)
        except Exception:
            report[step.__name__] = {"failed": traceback.format_exc()[-2000:]}
    print(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main())
