"""Messages without the state of a session: for bridges that do their own multiplexing."""

cimport cython

from wirespeed._core.envelope cimport BATCH, Message
from wirespeed._core.frames cimport send_frame_c
from wirespeed._core.framing.base cimport Framer
from wirespeed._core.framing.line cimport LineFramer
from wirespeed._core.outbox cimport json_line
from wirespeed._core.reader cimport MessageReader
from wirespeed._core.wire cimport Wire

from wirespeed.limits import Limits


@cython.final
cdef class MessageStream(Wire):
    """One connection whose owner matches requests and answers by itself.

    Iterate over it for the messages that are there now. Nothing is answered, counted as in flight
    or refused here: invalid messages are shown like others, and ids are the owner's.

    Args:
        limits: The limits of `MessageReader` apply, and `output_high`, at which reading stops.
        batches: Whether an array is a batch, whose elements are messages; else it is invalid.
        reads_always: Whether reading goes on while output waits. Two peers that both stop reading
            until the other has read wait for ever: the side that bounds its output by other means
            (a proxy towards its server) reads always.
        framer: How messages lie in the stream; one a line by default.

    An owner that has no room sets `paused`: reading stops, and the iteration ends.
    """

    def __cinit__(
        self, *, limits=None, bint batches=False, bint reads_always=False, Framer framer=None
    ):
        limits = Limits() if limits is None else limits
        self.join_c(limits, LineFramer(limits.max_message) if framer is None else framer)
        self.reader = MessageReader(limits=limits, batches=batches, framer=self.framer)
        self.reads_always = reads_always

    cdef bint want_read_c(self) noexcept:
        return not self.paused and (self.reads_always or self.outbox.size < self.output_high)

    cdef bint has_room_c(self) noexcept:
        return self.want_read_c()

    cdef bint wants_turn_c(self) noexcept:
        return self.held

    cdef Message next_c(self):
        cdef MessageStream me = self   # input memory is freed, which may run any code
        cdef Message m
        if not self.want_read_c():
            self.held = self.framer.buffered_c() != 0 or bool(self.reader.elements)
            return None
        self.held = False
        if self.reader.elements:
            m = <Message> self.reader.elements.pop()
        else:
            m = self.reader.next_c()
            if m is not None and m.kind_c == BATCH:
                m = <Message> me.reader.elements.pop()
        if m is not None:
            me.messages_in += 1
        return m

    def __iter__(self):
        return self

    def __next__(self):
        cdef Message m = self.next_c()
        if m is None:
            raise StopIteration
        return m

    def send(self, data, /):
        """Send a message: JSON text on one line, as a bytes-like object or a tuple or list of parts
        (ValueError for text that is empty or holds a raw newline). A part of 4 KiB or more may not
        be copied, and must not change until it is sent."""
        self.send_c(json_line(data))

    cdef int send_c(self, object data) except -1:
        send_frame_c(self, data)
        self.messages_out += 1
        return 0
