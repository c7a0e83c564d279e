"""Calls of another project's compiled code, which holds no reference to what it calls."""

from wirespeed.core cimport Session
from wirespeed.transport cimport Completion, Endpoint, TaskPool


cdef class Closer(Endpoint):
    """Closes its link at a chosen event."""

    cdef public Session session
    cdef public str closes_at
    cdef public list told
    cdef public list others            # what it writes to when data come

    def __init__(self, closes_at=None):
        self.others = []
        self.wire = self.session = Session()
        self.closes_at = closes_at
        self.told = []

    cdef int note_c(self, str event) except -1:
        self.told.append(event)
        if self.closes_at == event and self.link is not None:
            self.link.close()
        return 0

    cpdef object on_data(self):
        for _ in self.session:
            pass
        for other in self.others:
            write_c(other)
        self.note_c("data")

    cpdef object on_eof(self):
        self.note_c("eof")

    cpdef object on_drained(self):
        self.note_c("drained")

    cpdef object on_lost(self, exc):
        self.told.append("lost")


cdef int write_c(Closer other) except -1:
    other.session.send_notification("x")
    other.link.wrote_c()
    return 0


def flush(Endpoint endpoint not None):
    endpoint.link.flush()


def flush_now(Endpoint endpoint not None):
    endpoint.link.flush_now()


def update_reading(Endpoint endpoint not None):
    endpoint.link.update_reading()


def deliver(Endpoint endpoint not None):
    endpoint.link.deliver_c()


def check_drained(Endpoint endpoint not None):
    endpoint.link.check_drained_c()


def ended(Endpoint endpoint not None):
    endpoint.link.ended_c()


cdef class Holder:
    """Holds the only references that its calls rely on."""

    cdef public Session session
    cdef public TaskPool pool
    cdef public object result

    def next_event(self):
        return self.session.next_c()

    def answer(self, unsigned long long ref, body):
        return self.session.result_c(ref, body)

    def fail(self, unsigned long long ref, data):
        return self.session.error_c(ref, -32000, "no", data)

    def start(self, coro):
        cdef Noted noted = Noted()
        noted.holder = self
        return self.pool.start_c(coro, noted)


cdef class Noted(Completion):
    cdef Holder holder

    cdef int done_c(self, object result, object exc) except -1:
        self.holder.result = result
        return 0
