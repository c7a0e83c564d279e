"""What three parsers make of the same bytes: ours, llhttp (httptools) and h11."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import h11
import httptools

from wirespeed._core.framing.http.framer import HttpFramer
from wirespeed.core import FrameStream

Reading = list[bytes] | None  # the bodies of the requests that are whole; None: refused


def pieces(data: bytes, step: int) -> Iterator[bytes]:
    for at in range(0, len(data), step):
        yield data[at : at + step]


def ours(data: bytes, max_body: int) -> Reading:
    framer = HttpFramer(max_body=max_body)
    stream = FrameStream(framer)
    stream.receive_data(data)
    bodies = [bytes(body or b"") for body in stream]
    return bodies if framer.failure is None else None


class Messages:
    """What httptools calls."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.body = b""

    def on_message_begin(self) -> None:
        self.body = b""

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.bodies.append(self.body)


def llhttp(data: bytes, max_body: int) -> Reading:
    messages = Messages()
    parser = httptools.HttpRequestParser(messages)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        return None
    return messages.bodies


def h11_(data: bytes, max_body: int) -> Reading:
    bodies: list[bytes] = []
    body = b""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return None
        if event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
            return bodies
        if event is h11.PAUSED:
            # it reads on when the request is answered
            if connection.our_state is h11.SEND_RESPONSE:
                connection.send(h11.Response(status_code=404, headers=[]))
                connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return bodies
            connection.start_next_cycle()
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            bodies.append(body)
            body = b""


PARSERS: dict[str, Callable[[bytes, int], Reading]] = {"llhttp": llhttp, "h11": h11_}


def difference(own: Reading, theirs: Reading) -> str:
    """What another parser does where its reading is not ours; empty where it is."""
    if theirs == own:
        return ""
    if theirs is None:
        return "refuses"
    if theirs == [] and own is None:
        return "waits"
    return "takes" if own is None else "reads"
