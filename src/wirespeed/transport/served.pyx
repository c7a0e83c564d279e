"""A client of a service, as HTTP sees it: its messages come as bodies of requests, each with a
route for its answers."""

from wirespeed._core.session cimport Session


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

    def abort(self):
        """Close now."""
        if self.link is not None:
            self.link.close()
