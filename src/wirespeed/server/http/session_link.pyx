"""The link of a server's connection that has no byte stream: its requests come as bodies of HTTP
requests, and are answered by their routes."""

cimport cython

from wirespeed.transport.link cimport Link

from wirespeed._core.wire import show_carried


@cython.final
cdef class SessionLink(Link):
    """Takes what a connection says of its own accord, a message a line.

    Attributes:
        session: The session whose connection it is; None for a lane.
        carry: A function that gets a list of these messages, each as bytes of JSON text. Without it
            they are dropped: no stream carries them.
        on_room: Called without arguments while the session reads on; or None.
        full: Whether the messages stay queued, because what carries them has no room.
    """

    def __init__(self, loop, endpoint):
        Link.__init__(self, loop, endpoint)
        show_carried(self.wire)

    def start(self):
        """Nothing is read."""

    cdef int wrote_own_c(self) except -1:
        """Let the messages of the connection leave, and the requests start that waited."""
        if self.wire.outbox.size or self.wire.wants_turn_c():
            return Link.wrote_c(self)
        return 0

    cdef int wrote_c(self) except -1:
        self.wrote_own_c()
        return 0 if self.via is None else self.via.wrote_c()

    cpdef object flush(self):
        cdef SessionLink me = self         # `carry` may close the link
        if self.lost or self.full or self.wire.outbox.size == 0:
            return
        lines = b"".join(self.wire.data_to_send())
        if me.carry is not None:
            me.carry(lines.removesuffix(b"\n").split(b"\n"))
        me.check_drained_c()

    cpdef object update_reading(self):
        if self.on_room is not None and not self.lost and self.wire.want_read_c():
            self.on_room()

    cdef int lose_c(self, object exc) except -1:
        cdef SessionLink me = self         # the endpoint drops its reference
        if self.lost:
            return 0
        self.lost = True
        self.carry = self.on_room = self.via = self.session = None
        self.released_c()
        me.endpoint.on_lost(exc)
        return 0

    def lose(self, exc):
        """Close because of `exc`; `on_lost(exc)` follows at once."""
        self.lose_c(exc)

    def close(self):
        """Close; `on_lost(None)` follows at once."""
        self.lose_c(None)
