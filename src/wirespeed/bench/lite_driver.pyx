"""Calls over the connections of clients of LiteMCP."""

cimport cython
from libc.stdint cimport int64_t

import json

import msgspec

from wirespeed.bench.driver cimport BenchCall, Driver, outcome_of
from wirespeed.bench.recorder cimport (
    CONNECTION_LOSS, OK, TOOL_ERROR, UNEXPECTED, WRONG, Outcome, now_c,
)
from wirespeed.bench.work cimport Work

from wirespeed.litemcp.client_connection import LiteRequest
from wirespeed.litemcp.messages import VERSION

cdef enum:
    MAX_ANSWERED = 32768               # twice as many are known

cdef object encode = msgspec.json.Encoder().encode
cdef object decode = msgspec.json.Decoder().decode

cdef bytes CALL = b'{"version":%b,"tool":%%b,"arguments":%%b}' % encode(VERSION)


class _Content(msgspec.Struct):
    data: str = ""


class _Response(msgspec.Struct):
    content: list[_Content] = []
    error: bool = False


class _CallResult(msgspec.Struct):
    response: _Response


cdef object decode_result = msgspec.json.Decoder(_CallResult).decode


class LiteCall(LiteRequest):
    """A call of LiteMCP that waits for its answer."""

    __slots__ = ("driver", "record")

    def __init__(self, str tool, driver, record):
        super().__init__(f"tool {tool}", "result")
        self.driver = driver
        self.record = record

    def answered(self, message):
        self.driver.answered(self.record, self.id, message.data)

    def expired(self, note):
        self.driver.expired(self.record, self.id)

    def failed(self, exc):
        self.driver.failed(self.record, self, exc)


@cython.final
cdef class LiteDriver(Driver):
    """The calls over one connection of a client of LiteMCP (see `Driver`)."""

    def __init__(self, requests, output_high, *args):
        Driver.__init__(self, requests, *args)
        self.requests = requests
        self.linked = requests.wire is not None
        if self.linked:
            self.outbox = requests.wire.outbox
            self.output_high = <size_t> output_high
        self.answered_ids = set()
        self.answered_before = set()
        requests.measure(self._stray)

    @property
    def traffic(self):
        # HTTP has no stream of messages
        wire = self.requests.wire
        return (self.sent, self.received) if wire is None else (wire.bytes_out, wire.bytes_in)

    def close(self):
        self.requests.measure(None)
        Driver.close(self)

    cdef bint comes_late_c(self) except -1:
        return self.requests.wire is not None

    cdef int write_c(self, BenchCall call, double deadline) except -1:
        cdef bytes text = CALL % (call.work.name, call.body)
        self.sent += len(text)
        request = LiteCall(call.work.tool, self, call)
        self.requests.ask(request, text, deadline - call.sent / 1e9)
        return 0

    def answered(self, BenchCall call not None, id, data):
        """A result arrived."""
        cdef int64_t now = now_c()
        self.received += len(data)
        self._over(id)
        self.ended_c(call, self.judge_c(call, data), now)

    def expired(self, BenchCall call not None, id):
        """The time of a call is over."""
        self.expired_c(call, id)

    def failed(self, BenchCall call not None, request, exc):
        """No result will come."""
        self._over(request.id)
        if request.broke:              # of HTTP, where the other connections go on
            call.recorder.count_c(CONNECTION_LOSS)
        self.failed_c(call, exc, outcome_of(exc))

    def _over(self, id):
        if len(self.answered_ids) >= MAX_ANSWERED:
            self.answered_before, self.answered_ids = self.answered_ids, set()
        self.answered_ids.add(id)

    cdef Outcome judge_c(self, BenchCall call, object data) except *:
        cdef Work work = call.work
        try:
            response = decode_result(data).response
            if response.error:
                return TOOL_ERROR
            if call.expected.p is not NULL:
                text = json.loads(b'"%b"' % (<const char *> call.expected.p)[:call.expected.n])
                return OK if response.content and response.content[0].data == text else WRONG
        except msgspec.MsgspecError:
            return WRONG
        return OK if work.allows_c(data) else WRONG

    def _stray(self, id):
        """An answer to no call that waits, or None for what is not a message."""
        if id is None:
            self.recorder.count_c(UNEXPECTED)
        else:
            self.stray_c(id, id in self.answered_ids or id in self.answered_before)
