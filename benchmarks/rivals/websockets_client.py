"""Rival: a client made of `websockets` and msgspec; one reader task, futures by id.

Compression and keep-alive pings are off; texts stay bytes both ways, which spares a decode.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from _client_load import Call, main
from websockets.asyncio.client import connect


class Arguments(msgspec.Struct, gc=False):
    text: str


class CallParams(msgspec.Struct, gc=False):
    name: str
    arguments: Arguments


class Request(msgspec.Struct, gc=False):
    id: int
    method: str
    params: Any
    jsonrpc: str = "2.0"


class Text(msgspec.Struct, tag="text", gc=False):
    text: str


class CallResult(msgspec.Struct, gc=False):
    content: list[Text]
    isError: bool = False


class Answer(msgspec.Struct, gc=False):
    id: int
    result: CallResult


HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "websockets", "version": "1"},
}


@asynccontextmanager
async def open_client(command: list[str]) -> AsyncIterator[Call]:
    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder(Answer).decode
    loop = asyncio.get_running_loop()
    waiting: dict[int, asyncio.Future[CallResult]] = {}
    ids = itertools.count(1)

    async with connect(
        command[0], subprotocols=["mcp"], compression=None, ping_interval=None, max_size=None
    ) as socket:
        await socket.send(encode(Request(0, "initialize", HELLO)), text=True)
        if "result" not in msgspec.json.decode(await socket.recv()):
            raise RuntimeError("initialize was refused")
        await socket.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', text=True)

        async def read() -> None:
            while True:
                answer = decode(await socket.recv(decode=False))
                waiting.pop(answer.id).set_result(answer.result)

        async def call(text: str) -> str:
            id = next(ids)
            future = waiting[id] = loop.create_future()
            request = Request(id, "tools/call", CallParams("echo", Arguments(text)))
            await socket.send(encode(request), text=True)
            result = await future
            if result.isError:
                raise RuntimeError("isError is set")
            return result.content[0].text

        reader = asyncio.create_task(read())
        yield call
        reader.cancel()


if __name__ == "__main__":
    main(open_client)
