from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.session cimport Session
from wirespeed.transport.link cimport Endpoint
from wirespeed.transport.taskpool cimport Completion, Running, TaskPool


cdef enum ConnectionPhase:
    OPEN = 0
    DRAINING = 1                       # what was asked is answered; no more is taken, or asked
    CLOSED = 2                         # the link is gone


# One end of a connection, with any framing. Override `on_data`, and what is said to be for
# subclasses.
cdef class PeerConnection(Endpoint):
    cdef readonly object loop
    cdef readonly object closed        # future: why the connection was lost; None: it was closed
    cdef object log                    # gets faults of the peer, and the loss; None: no log
    cdef ConnectionPhase phase

    cpdef object log_fault(self, long long n, str text, object what)


# An end that answers what it was asked before it closes: override `answered_all`.
cdef class DrainingConnection(PeerConnection):
    cdef readonly object service       # has `shutdown_grace`; None: it is never drained
    cdef public object principal       # digest of the peer's credential, or None
    cdef public object peer            # what the transport knows of the peer (Peer), or None
    cdef object grace_timer            # of the drain

    cdef int drain_c(self) except -1
    cpdef bint answered_all(self) except -1
    cpdef object check_drained(self)


cdef class AskingConnection(PeerConnection):
    cdef readonly object owner         # hears of its loss; or None
    cdef object released               # called when the link is gone; or None
    cdef public object lost_error      # why it is gone: what calls fail with
    cdef public str exit_note          # what a call that got no answer adds to its error
    cdef object room_waiters           # deque of futures


# One end of a session. Override `take_c`, or in Python `take`.
cdef class SessionConnection(DrainingConnection):
    cdef readonly Session session
    cdef Outbox outlet                 # where what it sends without a reason waits for the peer
    cdef public bint shared            # its requests come from different clients
    cdef public object revision        # what `initialize` negotiated, or None
    cdef size_t most_unread            # bytes; see `drops_c`
    cdef readonly long long n_dropped  # notifications that the peer did not read in time
    cdef list waiters                  # futures of who waits for the peer to read; or None
    cdef set ending                    # cancelled handlers that later requests wait for; or None
    cdef object hold_timer             # bounds that; None: no request waits
    cdef set handlers                  # those of `run` that are suspended; or None

    # The fields of the HTTP request that brought a request; None: there are none, or they are gone.
    cdef HttpHead head_of_c(self, Message m)
    # What the transport knows of the client that sent a request, by its `ref`.
    cdef object peer_of_c(self, uint64_t ref)
    # A message arrived: an event of the session.
    cdef int take_c(self, Message m) except -1
    # Taking it, or the handler of a request, raised an exception: answer the request, if it is one.
    cdef int raised_c(self, uint64_t ref, str what, object exc) except -1
    # Let later requests wait until a cancelled handler has ended (`has_ended_c`), at most 50 ms.
    cdef int await_end_c(self, object handler) except -1
    cdef int has_ended_c(self, object handler) except -1
    cdef int cancel_handlers_c(self) except -1
    # Whether a notification about a request (by its `ref`, or 0) is dropped, because the peer does
    # not read: it is counted then.
    cdef bint drops_c(self, uint64_t about) except -1
    cdef int notify_c(self, str method, bytes params, uint64_t about) except -1
    cdef int release_waiters_c(self) except -1
    # Serve the next request by a revision without a handshake.
    cdef int assume_c(self, object revision) except -1
    # Get ready for the next client. False: the last one is still worked for.
    cpdef bint renew(self) except -1
    # Answer the requests in flight with an error, for a reason: they are not waited for any more.
    # Those that were not read yet are refused.
    cdef int cut_off_c(self, str why) except -1


# The handler of one request; see `SessionConnection.run`.
cdef class Handler(Completion):
    cdef SessionConnection connection
    cdef uint64_t ref                  # of the request
    cdef Running running               # None until it suspends
    cdef bint unwanted                 # the peer has cancelled the request

    cdef int cancel_c(self) except -1
