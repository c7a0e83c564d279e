"""A POST of Streamable HTTP and its response: JSON, or a stream of events."""

cimport cython

from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed.transport.http.exchange cimport STREAM_FIELDS, Exchange

cdef enum:
    # `wirespeed.protocol.codes`, for the switch below
    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    HEADER_MISMATCH = -32020
    MISSING_CLIENT_CAPABILITY = -32021
    UNSUPPORTED_PROTOCOL_VERSION = -32022
    OVERLOADED = -31000
    SHUTTING_DOWN = -31001


@cython.final
cdef class NoticeWriter(FrameWriter):
    """Writes messages about a request before its answer."""

    cdef int begin_c(self) except -1:
        cdef McpExchange exchange = self.exchange
        if exchange.carrier is not None and not exchange.carrier.output.streaming:
            exchange.open_events_c()
            self.size_before = self.out.size     # what is aborted is the message, not the head
        return Exchange.begin_c(exchange)

    cdef int finish_c(self, char last) except -1:
        return self.exchange.finish_c(last)


@cython.final
cdef class McpExchange(Exchange):
    """The route of the answers to a body."""

    cdef int open_events_c(self) except -1:
        return self.open_stream_c(STREAM_FIELDS)

    cdef FrameWriter notices_c(self):
        cdef NoticeWriter notices = self.notices
        if self.response == JSON or (self.carrier is None and self.is_lane):
            return None
        if notices is None:
            notices = self.notices = NoticeWriter.__new__(NoticeWriter)
            notices.exchange = self
        notices.out = self.out
        return notices

    cdef int status_c(self) noexcept:
        """docs/explanation/readings.md says which error has which status."""
        cdef int code = self.code
        if code == 0:
            return 200
        if code == METHOD_NOT_FOUND:
            return 404 if self.modern else 200
        if code == INVALID_PARAMS:
            return 400 if self.modern and self.refused else 200
        if (
            code == PARSE_ERROR or code == INVALID_REQUEST or code == HEADER_MISMATCH
            or code == MISSING_CLIENT_CAPABILITY or code == UNSUPPORTED_PROTOCOL_VERSION
        ):
            return 400
        return 503 if code == OVERLOADED or code == SHUTTING_DOWN else 200

    cdef int begin_c(self) except -1:
        if (
            self.response == EVENTS and self.carrier is not None
            and not self.carrier.output.streaming
        ):
            self.open_events_c()
            self.size_before = self.out.size
        return Exchange.begin_c(self)

    cdef int finish_c(self, char last) except -1:
        Exchange.finish_c(self, last)
        if not self.is_lane and self.carrier is not None:
            self.carrier.link.wrote_c()
        return 0

    cdef int ended_c(self) except -1:
        """All that the body asked for is answered (2025-11-25 basic/transports, "Sending Messages
        to the Server")."""
        if self.carrier is not None:
            if self.status == 0:
                self.set_head_c(202, b"")
                self.carrier.output.send_c(b"", True)
            self.done_c()
        if self.is_lane:
            self.target.release(self.client)
        return 0

    cdef int gone_c(self) except -1:
        Exchange.gone_c(self)
        # 2026-07-28 basic/transports/streamable-http, "Cancellation"; before, no cancellation
        if self.is_lane and self.client.link is not None:
            self.client.link.close()
        return 0

    cdef int drained_c(self) except -1:
        self.client.on_drained()
        return 0

    cdef int drain_c(self) except -1:
        if self.is_lane:
            self.client.drain()
        return 0
