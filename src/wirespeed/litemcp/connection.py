"""A LiteMCP server's connection to one client: reads requests and sends answers.

LiteMCP has no answer to a frame that is not a message, to a repeated id, or to a message type that
clients do not send. Such frames are logged. Every other failure of a call is answered with a result
whose ``error`` is true.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING

import msgspec

from wirespeed._core.streams import FrameStream
from wirespeed.litemcp.call import SHOWN, Calls, LiteCall
from wirespeed.litemcp.envelope import BadMessage, SeenIds, id_of
from wirespeed.litemcp.messages import IOBasic, refuse_version
from wirespeed.peer.connection import DrainingConnection
from wirespeed.schema.from_strings import ArgumentError

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed._core.slab import Lease
    from wirespeed.litemcp.call import LiteServerOptions
    from wirespeed.litemcp.tool import LiteTool
    from wirespeed.transport.taskpool import TaskPool

logger = logging.getLogger("wirespeed.litemcp")

# Escapes in a JSON string: a backslash, a pair of surrogates, or (the group) a lone surrogate.
_PAIR_OR_HALF = re.compile(
    rb"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)", re.DOTALL
)

_encode = msgspec.json.Encoder().encode
_message = msgspec.json.Decoder(IOBasic).decode


class _StreamCall(LiteCall):
    """A call over a stream."""

    __slots__ = ("connection", "raw_id")

    def __init__(
        self, calls: Calls, arguments: list[str], connection: LiteConnection, raw_id: bytes
    ) -> None:
        super().__init__(calls, arguments)
        self.connection = connection
        self.raw_id = raw_id

    @property
    def gone(self) -> bool:
        return self.connection.link is None

    def send(self, result: bytes) -> None:
        self.connection.finish(self.raw_id, result)


class LiteConnection(DrainingConnection):
    """A connection of a `wirespeed.litemcp.LiteServer`."""

    def __init__(
        self,
        server: LiteServerOptions,
        tool: LiteTool,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer,
    ) -> None:
        super().__init__(server, loop, logger)
        self.faults = 0  # frames that cannot be answered
        self.wire = self.stream = FrameStream(framer, limits=server.limits)
        self._limits = server.limits
        self._info = server.info_json
        self._version = server.version
        self._head = b'{"version":%b,"id":' % _encode(server.version)
        self._seen = SeenIds()
        self._pool = pool
        self._calls = Calls(server, tool, loop, pool)
        self._running = self._calls.running
        self._at_eof = False

    def begin(self, server: LiteServerOptions, tool: LiteTool) -> None:
        """Serve another tool than that of the constructor, and the messages that waited for it:
        ``stream.paused`` was set before the first."""
        self._info = server.info_json
        self._calls = Calls(server, tool, self.loop, self._pool)
        self._running = self._calls.running
        self.stream.paused = False
        if self.link is not None:
            self.link.pump()

    def refuse(self, code: int, reason: str) -> None:
        """Close a connection that was paused before its first message: nothing is answered."""
        link = self.link
        if link is None:
            return
        link.farewell = (code, reason)
        self.drain()
        # the client's own goodbye is to be read
        self.stream.paused = False
        link.pump()

    # -- events of the link ----------------------------------------------------------------------

    def on_data(self) -> None:
        """Handle the messages of the input."""
        stream = self.stream
        for frame in stream:
            if self.link is None or self.link.ending:
                continue  # the connection is closing: requests are ignored
            if frame is None:
                self._fault(f"longer than the limit of {self._limits.max_message} bytes", None)
                continue
            try:
                raw_id = id_of(stream, frame, self._limits.max_depth)
                message = _message(frame)
            except BadMessage as exc:
                self._fault(str(exc), frame)
            except (msgspec.DecodeError, RecursionError) as exc:
                self._receive_faulty(raw_id, frame, exc)
            else:
                self._receive(message, raw_id, frame)
        if self.draining:
            self.check_drained()

    def on_eof(self) -> None:
        """The client has closed its side: answer its requests, then close."""
        self._at_eof = True
        self.drain()

    def clean_up(self, exc: BaseException | None) -> None:
        """The link is lost: cancel the running calls."""
        for call in list(self._running):
            call.cancel()
        self.service.forget(self)
        if not self.closed.done():
            self.closed.set_result(None)  # a loss is no error of who serves

    def _fault(self, reason: str, frame: Lease | None) -> None:
        """Log a frame that cannot be answered, up to a limit: a flood must not fill the log."""
        self.faults += 1
        text = b"" if frame is None else bytes(memoryview(frame)[:SHOWN])
        what = f"{reason}: {text!r}" if text else reason
        self.log_fault(self.faults, "ignored a message: %s", what)

    # -- requests --------------------------------------------------------------------------------

    def _receive(self, message: IOBasic, raw_id: bytes, frame: Lease) -> None:
        kind = message.type
        if kind != "call" and kind != "get":
            what = "is for clients" if kind in ("info", "result") else "is unknown"
            self._fault(f"its type {kind!r} {what}", frame)
        elif not self._seen.add(raw_id):
            self._fault(f"its id {_shown(raw_id)} was used before", frame)
        elif kind == "get":
            # a request of any version: the answer names the version of this server
            self._send(b'%b%b,"type":"info","data":%b}' % (self._head, raw_id, self._info))
        else:
            self._call_tool(message, raw_id)

    def _receive_faulty(self, raw_id: bytes, frame: Lease, exc: Exception) -> None:
        """Handle a frame that is JSON but cannot be decoded. A frame whose only fault is a lone
        surrogate is answered."""
        try:
            message = _message(_PAIR_OR_HALF.sub(_whole, bytes(frame)))
        except (msgspec.DecodeError, RecursionError):
            kind = None
        else:
            kind = message.type
        if kind == "call":
            message.data = msgspec.Raw(b"")  # `_call_tool` refuses empty data
        if kind in ("call", "get"):
            self._receive(message, raw_id, frame)
        else:
            self._fault(f"not a message of LiteMCP ({exc})", frame)

    def _call_tool(self, message: IOBasic, raw_id: bytes) -> None:
        calls = self._calls
        try:
            if reason := refuse_version(message.version, self._version):
                raise ArgumentError(reason)
            if not bytes(message.data):
                raise ArgumentError("data holds a lone surrogate: half of a pair of \\u escapes")
            arguments = calls.read(message.data, "data")
        except ArgumentError as exc:
            self._answer(raw_id, calls.refused(exc))
            return
        calls.start(_StreamCall(calls, arguments, self, raw_id))
        # reading stops at the limit
        self.stream.paused = len(self._running) >= self._limits.max_in_flight

    # -- answers ---------------------------------------------------------------------------------

    def finish(self, raw_id: bytes, result: bytes) -> None:
        """A handler has ended: send its result."""
        self._answer(raw_id, result)
        if self.stream.paused and len(self._running) < self._limits.max_in_flight:
            self.stream.paused = False
            if self.link is not None:
                self.link.pump()  # no effect inside on_data, which continues by itself
        if self.draining:
            self.check_drained()

    def _answer(self, raw_id: bytes, result: bytes) -> None:
        self._send(b'%b%b,"type":"result","data":%b}' % (self._head, raw_id, result))

    def _send(self, message: bytes) -> None:
        if self.link is not None:
            self.stream.send(message)
            self.link.wrote()

    # -- shutting down ---------------------------------------------------------------------------

    def on_draining(self) -> None:
        """Read no more requests."""
        if self.link is not None:
            self.link.closing = True
            self.link.update_reading()

    def answered_all(self) -> bool:
        """Return whether all calls are answered, also those that wait in the input."""
        return not self._running and not (self._at_eof and self.stream.framer.buffered)

    def on_grace_over(self) -> None:
        """Cancel the calls that run."""
        self._calls.give_up()
        self.wait_last(self._end)

    def _end(self) -> None:
        if self.link is not None:
            self.link.end()


def _whole(found: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if found[1] else found[0]


def _shown(raw_id: bytes) -> str:
    text = raw_id.decode("ascii")
    return text if len(text) <= 40 else text[:39] + "…"
