"""What the two bare picows servers share: listening, and everything that is not tools/call.

Like the bare loops on stdio they check nothing: no Origin or Host, no token, no UTF-8, no version,
no duplicate ids, no limits, no cancellation.
"""

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
