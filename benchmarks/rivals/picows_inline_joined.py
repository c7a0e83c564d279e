"""Rival: picows + msgspec on uvloop, a plain function called inside the frame callback, and the
answers of one read in one write."""

from _bare import CallResult, Response, Text, decode_params, decode_request, encode
from _picows import TEXT, Joined, serve
from picows import WSFrame, WSTransport


def echo(text: str) -> str:
    return text


class Listener(Joined):
    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type != TEXT:
            return self.not_text(frame)
        request = decode_request(frame.get_payload_as_memoryview())
        if request.method == "tools/call":
            text = echo(decode_params(request.params).arguments.text)
            self.queue(encode(Response(request.id, CallResult([Text(text)]))))
        else:
            self.other(request)
        if frame.last_in_buffer:
            self.flush()


if __name__ == "__main__":
    serve(Listener)
