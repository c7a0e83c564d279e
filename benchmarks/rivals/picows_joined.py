"""Rival: picows + msgspec on uvloop, a Task a request, and the answers of one tick in one write.

picows writes every frame it sends at once, a system call each.  Here the frames are put together
by hand and handed to its transport's transport, joined.
"""

import asyncio
from asyncio import Task

from _bare import CallResult, Response, Text, decode_params, decode_request, encode
from _picows import TEXT, Bare, serve
from picows import WSFrame, WSTransport


def frame_head(n: int) -> bytes:
    if n < 126:
        return b"\x81" + n.to_bytes(1, "big")
    if n < 65536:
        return b"\x81\x7e" + n.to_bytes(2, "big")
    return b"\x81\x7f" + n.to_bytes(8, "big")


HEADS = [frame_head(n) for n in range(4096)]


async def echo(text: str) -> str:
    return text


class Listener(Bare):
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.parts: list[bytes] = []
        self.flushing = False

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type != TEXT:
            return self.not_text(frame)
        request = decode_request(frame.get_payload_as_memoryview())
        if request.method == "tools/call":
            params = decode_params(request.params)
            Task(self.call(request.id, params.arguments.text), loop=self.loop)
            # Behind the Tasks of this chunk: what they answer at once leaves in one write.
            if frame.last_in_buffer and not self.flushing:
                self.flushing = True
                self.loop.call_soon(self.flush)
        else:
            self.other(request)

    async def call(self, id: int | str | None, text: str) -> None:
        answer = encode(Response(id, CallResult([Text(await echo(text))])))
        n = len(answer)
        self.parts += (HEADS[n] if n < 4096 else frame_head(n), answer)
        if not self.flushing:
            self.flushing = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        self.flushing = False
        if self.parts:
            self.transport.underlying_transport.write(b"".join(self.parts))
            self.parts = []


if __name__ == "__main__":
    serve(Listener)
