"""The sans-I/O engine, for authors of SDKs and proxies.

`Session` is one JSON-RPC peer over one byte stream: bytes in, events out; calls in, bytes out.
`MessageStream` is a connection without the state of requests, for code with its own multiplexing:
messages in, messages out; `MessageReader` is its reading half. `FrameStream` is for protocols that
are not JSON-RPC: frames in, frames out.

A message that comes whole, such as the body of an HTTP request, is given to
`Session.receive_message` with a `ReplyRoute`, which gets its answer; `MemoryReply` is one for
Python.

A framer separates the messages in the stream. Each of these classes takes one as `framer`:
`LineFramer` (one message a line, the default for messages) or `WebSocketFramer` (RFC 6455, from
behind the opening handshake)::

    framer = WebSocketFramer("server", max_message=2**20, binary=True)
    stream = FrameStream(framer)
    stream.receive_data(data)               # from the socket
    for message in stream:
        send = framer.send_binary if framer.is_binary else framer.send_text
        send(message)
    for chunk in stream.data_to_send():     # to the socket; close it once stream.over
        ...

None of these classes does I/O or reads a clock.

``from wirespeed.core cimport Session`` works in Cython code: ``wirespeed/core.pxd`` says what there
is. An extension calls ``import_wirespeed()`` once, which raises ImportError if the extension was
compiled for another `ABI`, a number that grows with every change of a compiled class. The ABI is
provisional before 1.0.
"""

from wirespeed._core._simd import ABI
from wirespeed._core._simd import level as simd_level
from wirespeed._core.envelope import POINTS, Message, parse
from wirespeed._core.framing.line import LineFramer
from wirespeed._core.framing.websocket import WebSocketFramer
from wirespeed._core.reader import MessageReader
from wirespeed._core.reply_route import MemoryReply, ReplyRoute
from wirespeed._core.session import Session
from wirespeed._core.slab import Lease
from wirespeed._core.streams import FrameStream, MessageStream
from wirespeed.limits import Limits

__all__ = [
    "ABI",
    "POINTS",
    "FrameStream",
    "Lease",
    "Limits",
    "LineFramer",
    "MemoryReply",
    "Message",
    "MessageReader",
    "MessageStream",
    "ReplyRoute",
    "Session",
    "WebSocketFramer",
    "parse",
    "simd_level",
]
