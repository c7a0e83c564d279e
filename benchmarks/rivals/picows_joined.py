"""Rival: picows + msgspec on uvloop, a Task a request, and the answers of one tick in one write."""

from asyncio import Task

from _bare import CallResult, Response, Text, decode_params, decode_request, encode
from _picows import TEXT, Joined, serve
from picows import WSFrame, WSTransport


async def echo(text: str) -> str:
    return text


class Listener(Joined):
    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type != TEXT:
            return self.not_text(frame)
        request = decode_request(frame.get_payload_as_memoryview())
        if request.method == "tools/call":
            params = decode_params(request.params)
            Task(self.call(request.id, params.arguments.text), loop=self.loop)
            # Behind the Tasks of this chunk: what they answer at once leaves in one write.
            if frame.last_in_buffer:
                self.flush_soon()
        else:
            self.other(request)

    async def call(self, id: int | str | None, text: str) -> None:
        self.queue(encode(Response(id, CallResult([Text(await echo(text))]))))
        self.flush_soon()


if __name__ == "__main__":
    serve(Listener)
