"""What the bare picows servers share: listening, and everything that is not tools/call.

Like the bare loops on stdio they check nothing: no Origin or Host, no token, no UTF-8, no version,
no duplicate ids, no limits, no cancellation.
"""

import asyncio
from collections.abc import Callable

import uvloop
from _bare import Request, answer_other
from _port import tell
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server

TEXT = WSMsgType.TEXT
MAX_FRAME = 256 << 20


class Bare(WSListener):  # type: ignore[misc]
    transport: WSTransport

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def other(self, request: Request) -> None:
        if (answer := answer_other(request)) is not None:
            self.transport.send(TEXT, answer)

    def not_text(self, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            self.transport.send_close(frame.get_close_code(), frame.get_close_message())
            self.transport.disconnect()


def frame_head(n: int) -> bytes:
    if n < 126:
        return b"\x81" + n.to_bytes(1, "big")
    if n < 65536:
        return b"\x81\x7e" + n.to_bytes(2, "big")
    return b"\x81\x7f" + n.to_bytes(8, "big")


HEADS = [frame_head(n) for n in range(4096)]


class Joined(Bare):
    """Writes the answers of one tick at once.

    picows writes every frame it sends at once, a system call each.  Here the frames are put
    together by hand and handed to its transport's transport, joined.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.parts: list[bytes] = []
        self.flushing = False

    def queue(self, answer: bytes) -> None:
        n = len(answer)
        self.parts += (HEADS[n] if n < 4096 else frame_head(n), answer)

    def flush_soon(self) -> None:
        if not self.flushing:
            self.flushing = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        self.flushing = False
        if self.parts:
            self.transport.underlying_transport.write(b"".join(self.parts))
            self.parts = []


def serve(listener: Callable[[], Bare]) -> None:
    async def main() -> None:
        server = await ws_create_server(
            lambda _: listener(),
            "127.0.0.1",
            0,
            max_frame_size=MAX_FRAME,
            backlog=1024,
            use_aiofastnet=False,
        )
        tell(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())
