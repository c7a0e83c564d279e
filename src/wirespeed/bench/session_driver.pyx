"""Calls over the connections of clients of MCP."""

cimport cython
from libc.stdint cimport int64_t

import msgspec

from wirespeed._core._simd cimport WS_ID_INTEGER
from wirespeed._core.envelope cimport ERROR, INVALID, RESULT, Message, method_is
from wirespeed.bench.driver cimport BenchCall, Driver, outcome_of
from wirespeed.bench.recorder cimport (
    MISSING, OK, PROTOCOL_ERROR, REFUSED, UNEXPECTED, WRONG, Outcome, now_c,
)
from wirespeed.client.connection.connection cimport ClientConnection

from wirespeed.client.results.features import Progress
from wirespeed.errors import ConnectionLost
from wirespeed.protocol import codes
from wirespeed.protocol.messages import ErrorObject

cdef enum:
    MAX_DIGITS = 20                    # of an id that may be one of ours

cdef object decode_error = msgspec.json.Decoder(ErrorObject).decode
cdef object decode_progress = msgspec.json.Decoder(Progress).decode


@cython.final
cdef class SessionCall(BenchCall):
    """A request of MCP that waits for its answer."""

    cdef int answered_c(self, ClientConnection connection, Message m) except -1:
        cdef SessionDriver driver = self.driver
        cdef int64_t now = now_c()
        cdef Outcome outcome
        driver.garbled = False
        if m.scan.id_kind != WS_ID_INTEGER:
            outcome = WRONG            # clients take "4" or 4.0 for 4, which it is not
        elif m.kind_c == RESULT:
            outcome = self.work.judge_c(m, self.expected)
            if outcome == OK and self.walk is not None:
                if self.disordered:
                    outcome = WRONG
                elif self.work.decode_page is not None:
                    self.walk.paged_c(self.work, self.work.cursor)
        elif m.kind_c == ERROR:
            try:
                code = decode_error(m.error).code
            except msgspec.MsgspecError:
                outcome = WRONG
            else:
                outcome = REFUSED if code == codes.OVERLOADED else PROTOCOL_ERROR
        else:
            outcome = WRONG
        return driver.ended_c(self, outcome, now)

    cdef int notified_c(self, ClientConnection connection, Message m) except -1:
        if method_is(m, b'"notifications/progress"', "notifications/progress"):
            self.progressed_c(m)
        return 0

    cdef int progressed_c(self, Message m) except -1:
        if not self.work.progress:
            self.recorder.count_c(UNEXPECTED)
            return 0
        self.recorder.progress += 1
        if self.walk is not None:
            self.walk.script.recorder.progress += 1
        # "The progress value MUST increase with each notification" (basic/utilities/progress)
        try:
            value = decode_progress(m.params).progress
        except msgspec.MsgspecError:
            self.disordered = True
        else:
            self.disordered = self.disordered or not value > self.progress
            self.progress = value
        return 0

    cdef int expired_c(self, ClientConnection connection) except -1:
        return self.driver.expired_c(self, self.id)

    cdef bint failed_c(self, object exc) except -1:
        cdef SessionDriver driver = self.driver
        driver.failed_c(self, exc, driver.failure_c(exc))
        return True


@cython.final
cdef class SessionDriver(Driver):
    """The calls over one connection of a client of MCP (see `Driver`)."""

    def __init__(self, ClientConnection connection not None, *args):
        Driver.__init__(self, connection, *args)
        self.client = connection
        self.outbox = connection.session.outbox
        self.output_high = connection.session.output_high
        connection.measure(self._stray)

    @property
    def traffic(self):
        return self.client.session.bytes_out, self.client.session.bytes_in

    def close(self):
        self.client.measure(None)
        Driver.close(self)

    cdef bint comes_late_c(self) except -1:
        # over HTTP an answer belongs to its request, but HTTP+SSE has one stream for all
        return getattr(self.client.link, "old", True)

    cdef BenchCall new_call_c(self):
        return SessionCall.__new__(SessionCall)

    cdef int write_c(self, BenchCall call, double deadline) except -1:
        cdef ClientConnection client = self.client
        client.await_c(call, True, deadline)
        if call.work.is_call:
            client.write_call_c(call.id, call.work.name, call.body, call.work.progress, None)
        else:
            client.write_request_c(
                call.id, call.work.name, call.body, call.work.progress, client.meta, None
            )
        return 0

    cdef Outcome failure_c(self, object exc) except *:
        """The outcome of a call that failed without an answer."""
        cdef Outcome outcome = outcome_of(exc)
        if outcome == WRONG:
            # over HTTP, the body of its response was not its answer
            if self.garbled:
                self.recorder.outcomes[<int> UNEXPECTED] -= 1      # it is one fault
            else:
                outcome = MISSING
        elif isinstance(exc.__cause__, ConnectionLost):
            outcome = MISSING          # a stream that ended could not be resumed
        self.garbled = False
        return outcome

    def _stray(self, Message m not None):
        """A response that answers no call."""
        cdef bint issued
        self.garbled = m.kind_c == INVALID
        if self.garbled or m.scan.id_kind != WS_ID_INTEGER or len(m.raw_id) > MAX_DIGITS:
            self.recorder.count_c(UNEXPECTED)
            return
        id = int(m.raw_id)
        issued = -1 < id < 2 ** 62 and self.client.session.pending.was_issued(id)
        self.stray_c(id, issued)
