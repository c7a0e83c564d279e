from wirespeed._core.wire cimport Wire


# Override the four events. They are called on the loop's thread; any of them may close the link.
cdef class Endpoint:
    cdef public Wire wire               # set before the link is made, and never replaced
    cdef readonly Link link             # None before the link is made, and after it is lost

    cpdef object on_data(self)
    cpdef object on_eof(self)
    cpdef object on_lost(self, exc)
    cpdef object on_drained(self)


# Output of a link that may not leave yet: see `Link.hold`.
cdef class Hold:
    cdef readonly Link link            # None after the end
    cdef long long at                  # bytes of the link that may leave before
    cdef object timer

    cdef int drop_c(self) except -1


# What the links of one loop share. While one of them delivers events, the others that are written
# to are noted; the outermost delivery flushes them at its end, without another turn of the loop.
cdef class _Turn:
    cdef int phase
    cdef list written                  # links to flush; `flush_scheduled` is set in each

    cdef int end_c(self) except -1


# A link of one's own overrides `start`, `flush`, `update_reading`, `close` and `lose`, and calls
# `deliver_c` after input, `ended_c` at the end of its input, `check_drained_c` after output, and
# `released_c` when it is closed, before `Endpoint.on_lost`. Others call `wrote_c` after they have
# queued output: it leaves at the end of the delivery that runs on the loop, else in the next turn.
# `flush_now` does at once what `wrote_c` schedules: it also delivers requests that waited for
# room, which `flush` does not. Inside the link's own `on_data` it only flushes. Every method may
# be called through the endpoint's field: ``endpoint.link.flush()``. Afterwards look at that field,
# for the link may be lost. `wrote_more_c` is a `wrote_c` for output that may wait for that of other
# deliveries in this turn of the loop: it leaves in the next.
cdef class Link:
    cdef readonly object loop
    cdef readonly Endpoint endpoint
    cdef readonly Wire wire            # the endpoint's
    cdef _Turn turn
    cdef bint flush_scheduled
    cdef bint corked                   # events are being delivered: `deliver_c` flushes after them
    cdef bint was_full                 # the outbox reached its high mark: `on_drained` is owed
    cdef public bint closing           # no more requests are taken
    cdef public bint at_once           # output does not wait for more: each message leaves alone
    cdef readonly bint ending          # our goodbye is sent; the peer's is awaited
    cdef bint half_closed              # both goodbyes are sent; the peer's end is awaited
    cdef bint parting                  # closes once all output has left: there is no goodbye
    cdef object close_timer            # bounds these waits
    cdef public double close_timeout   # seconds for the peer's goodbye
    cdef public tuple farewell         # code and reason of our goodbye; None: GOING_AWAY
    cdef object flush_callback
    cdef list holds                    # Holds in the order of their bytes; None: nothing is held

    cdef int wrote_c(self) except -1
    cdef int wrote_more_c(self) except -1
    cdef int flush_later_c(self) except -1
    cdef int flush_for_c(self) except -1
    cdef int deliver_c(self) except -1
    # An exception of this link or of its endpoint, in a callback of the loop: the link is lost.
    cdef int failed_c(self, object exc) except -1
    cdef int take_events_c(self) except -1
    cdef int check_drained_c(self) except -1
    cdef int ended_c(self) except -1
    cdef int check_over_c(self) except -1
    cdef int part_c(self) except -1
    cdef int released_c(self) except -1
    cdef int arm_c(self, double seconds) except -1
    cpdef object flush(self)
    cpdef object flush_now(self)
    cpdef object update_reading(self)
