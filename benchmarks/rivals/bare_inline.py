"""Rival: bare uvloop + msgspec, a plain function called inline; one write a chunk."""

import asyncio

from _bare import (
    CallResult,
    Response,
    Text,
    answer_other,
    decode_params,
    decode_request,
    encode,
    serve,
)


def echo(text: str) -> str:
    return text


class Loop(asyncio.Protocol):
    def __init__(self, writer: asyncio.WriteTransport, ended: asyncio.Future[None]) -> None:
        self.writer = writer
        self.ended = ended
        self.rest = b""

    def data_received(self, data: bytes) -> None:
        lines = (self.rest + data if self.rest else data).split(b"\n")
        self.rest = lines.pop()
        answers = []
        for line in lines:
            request = decode_request(line)
            if request.method == "tools/call":
                text = echo(decode_params(request.params).arguments.text)
                answers.append(encode(Response(request.id, CallResult([Text(text)]))))
            elif (answer := answer_other(request)) is not None:
                answers.append(answer)
        if answers:
            answers.append(b"")
            self.writer.write(b"\n".join(answers))

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)


if __name__ == "__main__":
    serve(Loop)
