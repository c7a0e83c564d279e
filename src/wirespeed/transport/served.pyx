"""A client of a service, as HTTP sees it: its messages come as bodies of requests, each with a
route for its answers."""

from wirespeed._core.session cimport Session

from wirespeed.protocol.codes import SHUTTING_DOWN


cdef class Served(Endpoint):
    """The base of what `wirespeed.transport.service.Service.connect` returns, where the service can
    be served over HTTP."""

    def __init__(self, Session session not None, loop):
        self.wire = self.session = session
        self.loop = loop
        self.outlet = session.outbox

    cdef int assume_c(self, object revision) except -1:
        self.revision = revision
        self.session.batches = revision.batches
        return 0

    cdef int cut_off_c(self, str why) except -1:
        cdef Served me = self              # an answer may run any code
        if me.session.refusal is None:
            me.session.refusal = (SHUTTING_DOWN, why)
        me.session.pauses_requests = False
        me.session.cut_off_c(why)
        return 0 if me.link is None else me.link.wrote_c()

    cdef bint renew_c(self) except -1:
        self.revision = self.principal = self.peer = self.head = None
        self.session.batches = False
        self.outlet = self.session.outbox
        return not (
            self.draining or self.session.inflight.live or self.session.pending.live
        )

    def drain(self):
        """Take no more requests, answer those there are, then close."""
        raise NotImplementedError

    def cut_off(self, str why not None):
        """Answer the requests in flight with an error, for a reason, and close in order."""
        cdef Served me = self
        me.cut_off_c(why)
        if me.link is not None:
            me.link.flush_now()
        if me.link is not None:
            me.link.end()

    def abort(self):
        """Close now."""
        if self.link is not None:
            self.link.close()
