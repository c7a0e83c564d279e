"""Rival: picows + msgspec on uvloop, one asyncio Task a request.

The frame's memory is picows' own and ends with the callback, so both decodes are done before the
Task is made.
"""

import asyncio
from asyncio import Task

from _bare import CallResult, Response, Text, decode_params, decode_request, encode
from _picows import TEXT, Bare, serve
from picows import WSFrame, WSTransport


async def echo(text: str) -> str:
    return text


class Listener(Bare):
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type != TEXT:
            return self.not_text(frame)
        request = decode_request(frame.get_payload_as_memoryview())
        if request.method == "tools/call":
            params = decode_params(request.params)
            Task(self.call(transport, request.id, params.arguments.text), loop=self.loop)
        else:
            self.other(request)

    async def call(self, transport: WSTransport, id: int | str | None, text: str) -> None:
        result = CallResult([Text(await echo(text))])
        transport.send(TEXT, encode(Response(id, result)))


if __name__ == "__main__":
    serve(Listener)
