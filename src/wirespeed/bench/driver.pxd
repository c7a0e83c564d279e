from libc.stdint cimport int64_t

from wirespeed._core.outbox cimport Outbox
from wirespeed._core.span cimport Span
from wirespeed.bench.recorder cimport Outcome, Recorder
from wirespeed.bench.script cimport Scripts, Walk
from wirespeed.bench.work cimport Work
from wirespeed.client.connection.connection cimport Awaited
from wirespeed.peer.connection cimport OPEN, AskingConnection


cdef Outcome outcome_of(object exc) except *


# How many calls may still begin, of all connections together.
cdef class Budget:
    cdef int64_t left                  # negative: any number
    cdef readonly int64_t begun
    cdef readonly bint over

    cdef int64_t take_c(self) except -2


cdef class BenchCall(Awaited):
    cdef Driver driver
    cdef Recorder recorder
    cdef Work work
    cdef Walk walk                     # whose step it is; None: it is the load's only request
    cdef int64_t intended              # nanoseconds of the clock
    cdef int64_t sent
    cdef bytes body                    # its arguments, or params
    cdef Span expected                 # the inside of the JSON string that is to come back
    cdef bint cancels                  # its deadline is that of its cancellation
    cdef double progress               # of the last notification
    cdef bint disordered               # progress did not increase


# The calls over one connection of any protocol. Override what is said to be for subclasses.
cdef class Driver:
    cdef readonly AskingConnection connection
    cdef readonly Work work            # of each call; None: there are scripts
    cdef readonly Scripts scripts
    cdef readonly Recorder recorder    # of the phase
    cdef readonly Budget budget
    cdef readonly Py_ssize_t in_flight
    cdef readonly Py_ssize_t live      # places in flight that are taken
    cdef readonly object idle          # future: nothing is left to do, or the connection is lost
    cdef object loop
    cdef double timeout                # seconds of a call
    cdef double think                  # seconds between an answer and the call in its place
    cdef Py_ssize_t pauses             # places in flight that wait for the end of a pause
    cdef bint awaits_room
    cdef Pacer pacer                   # sends the calls; None: each answer sends the next
    cdef object ready                  # deque of users who go on with their next step
    cdef public object visit           # makes a connection for a user of their own
    cdef readonly dict given_up        # ids of calls that took too long
    cdef set cancelled                 # ids of calls that were cancelled
    cdef set cancelled_before          # the same, of earlier ones
    cdef list spare                    # calls that are over, to be used again

    # -- for subclasses
    cdef bint linked                   # calls need a link; not over HTTP without a session
    cdef Outbox outbox                 # of the connection; None: calls do not wait for the peer
    cdef size_t output_high            # bytes in it while calls wait
    cdef bint comes_late_c(self) except -1
    cdef BenchCall new_call_c(self)
    # Send a call, until a time of the loop. It leaves with `Link.wrote_c` or `Link.flush_now`.
    cdef int write_c(self, BenchCall call, double deadline) except -1

    cdef bint send_c(self, int64_t intended, int64_t now) except -1
    cdef bint step_c(self, int64_t now) except -1
    cdef int fill_c(self, int64_t now) except -1
    cdef int await_room_c(self) except -1
    cdef int rest_c(self) except -1
    cdef int go_on_c(self, int64_t now) except -1
    cdef int go_on_walking_c(self, int64_t now) except -1
    cdef int expired_c(self, BenchCall call, object id) except -1
    cdef int failed_c(self, BenchCall call, object exc, Outcome outcome) except -1
    cdef int ended_c(self, BenchCall call, Outcome outcome, int64_t now) except -1
    cdef int count_c(self, Recorder recorder, Walk walk, Outcome outcome) except -1
    cdef int settle_c(self) except -1
    # An answer to no call that waits. `issued`: whether a call had this id.
    cdef int stray_c(self, object id, bint issued) except -1


# Whether calls can be sent, now or when there is room.
cdef inline bint usable(Driver driver) noexcept:
    return driver.connection.phase == OPEN and (
        driver.connection.link is not None or not driver.linked
    )


cdef class Pacer:
    cdef readonly list drivers
    cdef readonly double interval      # mean nanoseconds between two calls
    cdef bint poisson
    cdef double due                    # nanoseconds of the clock: when the next call is to leave
    cdef Py_ssize_t turn               # the driver that is next
    cdef bint held                     # no driver has room: the next answer goes on
    cdef int64_t held_until            # calls that were due before this were held up
    cdef int timer                     # descriptor; -1: the loop's timers
    cdef object loop
    cdef object handle
    cdef object random
    cdef Recorder recorder
    cdef Budget budget
    cdef readonly bint running

    cdef int tick_c(self) except -1
    cdef Driver next_c(self)
    cdef double pause_c(self) except -1
    cdef int arm_c(self) except -1
