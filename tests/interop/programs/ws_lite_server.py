"""The calculator of LiteMCP's pages on a WebSocket library; answers look as they do there.

python ws_lite_server.py LIBRARY    (see ws_raw_links.py; not picows' own API)

It prints its URL and ends at SIGTERM. Who comes without the token, or without the header X-Tenant,
gets 403. What is no number is an error. A sum of 0 is answered after one of 100, and one of -1 by
closing with 1001.
"""

import asyncio
import json
import signal
import sys
from http import HTTPStatus
from typing import Any

from ws_raw_links import api_of

PARAMETERS = [
    {"name": name, "type": "number", "description": f"The {place} number", "example": example}
    for name, place, example in (("a", "first", "2"), ("b", "second", "3"))
]
TOOL = {
    "version": [1, 0, 0],
    "name": "Calculator",
    "description": "A simple calculator",
    "example": "Calculate the sum of 2 and 3",
    "parameters": PARAMETERS,
}

hundred = asyncio.Event()


def door(connection: Any, request: Any) -> Any:
    brought = [request.headers.get(name) for name in ("Authorization", "Authentication")]
    if brought != ["Bearer secret"] * 2 or request.headers.get("X-Tenant") != "blue":
        return connection.respond(HTTPStatus.FORBIDDEN, "no permission\n")
    return None


async def handle(connection: Any) -> None:
    tasks: set[Any] = set()
    async for text in connection:
        task = asyncio.ensure_future(answer(connection, json.loads(text)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def answer(connection: Any, message: dict[str, Any]) -> None:
    kind, data = "info", TOOL
    if message["type"] == "call":
        arguments = message["data"]["arguments"]
        kind, error = "result", False
        try:
            value = sum(float(argument) for argument in arguments)
        except ValueError as exc:
            content, error = {"type": "text", "data": str(exc)}, True
        else:
            content = {"type": "number", "data": f"{value:g}"}
            if value == -1:
                return await connection.close(1001)
            if value == 0:
                await hundred.wait()
        names = [parameter["name"] for parameter in PARAMETERS]
        data = {
            "version": [1, 0, 0],
            "params": dict(zip(names, arguments, strict=True)),
            "response": {"content": [content], "error": error},
        }
    answered = {"version": [1, 0, 0], "id": message["id"], "type": kind, "data": data}
    await connection.send(json.dumps(answered, indent=4))
    if kind == "result" and content["data"] == "100":
        hundred.set()


async def main() -> None:
    api = api_of(sys.argv[1])
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = await api.serve(handle, "127.0.0.1", 0, process_request=door)
    port = next(iter(server.sockets)).getsockname()[1]
    print(f"ws://127.0.0.1:{port}/calculator?lang=en", flush=True)
    await ended.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
