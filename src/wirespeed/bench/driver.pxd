from libc.stdint cimport int64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.span cimport Span
from wirespeed.bench.arguments cimport Arguments
from wirespeed.bench.recorder cimport Outcome, Recorder
from wirespeed.client.connection.connection cimport Awaited, ClientConnection


# What each call of a load asks, and how its answer is checked.
cdef class Work:
    cdef readonly str tool
    cdef bytes name                    # JSON text of the tool's name
    cdef Arguments arguments
    cdef object check                  # result, as decoded JSON -> bool; None: by text, or not

    # An answer that was right has these parts around the text that was expected: another one that
    # has them around its own text is right, too.
    cdef list form
    cdef Py_ssize_t form_size
    cdef int learned                   # how often a form was learned

    cdef Outcome judge_c(self, Message m, Span expected) except *
    cdef bint has_form_c(self, Span result, Span expected) noexcept
    cdef int learn_c(self, Span result, Span expected) except -1


# How many calls may still begin, of all connections together.
cdef class Budget:
    cdef int64_t left                  # negative: any number
    cdef readonly int64_t begun
    cdef readonly bint over

    cdef int64_t take_c(self) except -2


cdef class BenchCall(Awaited):
    cdef Driver driver
    cdef Recorder recorder
    cdef int64_t intended              # nanoseconds of the clock
    cdef int64_t sent
    cdef bytes body                    # its arguments
    cdef Span expected                 # the inside of the JSON string that is to come back


cdef class Driver:
    cdef readonly ClientConnection connection
    cdef readonly Work work
    cdef readonly Recorder recorder    # of the phase
    cdef readonly Budget budget
    cdef readonly Py_ssize_t in_flight
    cdef readonly Py_ssize_t live      # calls without an answer
    cdef readonly object idle          # future: nothing is left to do, or the connection is lost
    cdef object loop
    cdef double timeout                # seconds of a call
    cdef double think                  # seconds between an answer and the call in its place
    cdef Py_ssize_t pauses             # places in flight that wait for the end of a pause
    cdef bint awaits_room
    cdef Pacer pacer                   # sends the calls; None: each answer sends the next
    cdef readonly dict given_up        # ids of calls that took too long
    cdef list spare                    # calls that are over, to be used again

    cdef bint usable_c(self) noexcept
    cdef bint has_room_c(self) noexcept
    cdef bint send_c(self, int64_t intended, int64_t now) except -1
    cdef int fill_c(self, int64_t now) except -1
    cdef int await_room_c(self) except -1
    cdef int go_on_c(self, int64_t now) except -1
    cdef int ended_c(self, BenchCall call, Outcome outcome, int64_t now) except -1
    cdef int settle_c(self) except -1


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
