"""Speaks LiteMCP as its pages show it, with our server, and reports what it saw.

python ws_lite_client.py LIBRARY URL    (of the calculator; libraries: see ws_raw_links.py)
"""

import asyncio
import contextlib
import json
import sys
import traceback
from typing import Any

from ws_raw_links import MAX_SIZE, api_of

UNICODE = 'Grüße \u2028\u2029\u0085 \r\n\t"\\/ 日本語 🎉 \0\x1f\x7f'
TOKEN = {"Authorization": "Bearer secret"}
# As the page on WebSocket has them, white space and all.
GET = """{
    "version": [1, 0, 0],
    "id": 1,
    "type": "get",
    "data": {}
}"""
CALL = """{
    "version": [1, 0, 0],
    "id": 2,
    "type": "call",
    "data": {
        "version": [1, 0, 0],
        "tool": "Calculator",
        "arguments": [
          "2",
          "3"
        ]
    }
}"""


class Session:
    def __init__(self, library: str, url: str) -> None:
        self.api = api_of(library)
        self.url = url
        self.other = url.replace("/calculator", "/tools/echo")

    def connect(self, url: str, headers: dict[str, str], **options: Any) -> Any:
        return self.api.connect(url, additional_headers=headers, max_size=MAX_SIZE, **options)

    async def status(self, headers: dict[str, str]) -> int:
        try:
            async with self.connect(self.url, headers):
                return 101
        except self.api.exceptions.InvalidStatus as exc:
            code: int = exc.response.status_code
            return code

    async def doors(self) -> Any:
        good, bad = "Bearer secret", "Bearer guess"
        return {
            "nothing": await self.status({}),
            "wrong": await self.status({"Authorization": bad}),
            "Authorization": await self.status({"Authorization": good}),
            "Authentication": await self.status({"Authentication": good}),
            "scheme in lower case": await self.status({"authorization": "bearer secret"}),
            "both": await self.status({"Authorization": good, "Authentication": good}),
            "both, one wrong": await self.status({"Authorization": good, "Authentication": bad}),
        }

    async def calculator(self) -> Any:
        async with self.connect(self.url, TOKEN) as link:
            await link.send(GET)
            info = json.loads(await link.recv())
            await link.send(CALL)
            result = json.loads(await link.recv())
            await link.send(CALL)  # the same id: ignored
            await link.send(CALL.replace('"id": 2', '"id": 3').replace('"2"', '"x"'))
            wrong = json.loads(await link.recv())
            await link.send(CALL.replace('"id": 2', '"id": 4').replace("Calculator", "calculator"))
            unknown = json.loads(await link.recv())
            return {"info": info, "result": result, "wrong": wrong, "unknown": unknown}

    async def echo(self) -> Any:
        async with self.connect(self.other, TOKEN, subprotocols=["whatever"]) as link:
            number = 0

            async def send(*arguments: str) -> int:
                nonlocal number
                number += 1
                data = {"version": [1, 0, 0], "tool": "echo", "arguments": arguments}
                message = {"version": [1, 0, 0], "id": number, "type": "call", "data": data}
                await link.send(json.dumps(message, ensure_ascii=False))
                return number

            async def outcome() -> tuple[int, str, bool]:
                message = json.loads(await link.recv())
                response = message["data"]["response"]
                (content,) = response["content"]
                return message["id"], content["data"], response["error"]

            big = "x日🎉\n" * (1 << 17)
            await send(UNICODE)
            _, unicode, _ = await outcome()
            await send(big)
            _, large, _ = await outcome()
            await send("fail")
            _, failed, error = await outcome()
            sent = {await send(f"text {i}", str(i * 7 % 20)): f"text {i}" for i in range(100)}
            got = {number: text for number, text, _ in [await outcome() for _ in sent]}
            await (await link.ping())
            await link.send(b"bytes")
            with contextlib.suppress(self.api.ConnectionClosed):
                await link.recv()
            return {
                "subprotocol": link.subprotocol,
                "unicode": unicode == UNICODE,
                "big": large == big,
                "fail": [error, "boom" in failed],
                "many": got == sent,
                "closed": link.close_code,
            }


async def main() -> None:
    session = Session(*sys.argv[1:3])
    report: dict[str, Any] = {}
    for step in (session.doors, session.calculator, session.echo):
        try:
            async with asyncio.timeout(30):
                report[step.__name__] = await step()
        except Exception:
            report[step.__name__] = {"failed": traceback.format_exc()[-2000:]}
    print(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main())
