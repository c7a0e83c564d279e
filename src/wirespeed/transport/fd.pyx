# cython: nonecheck=True
"""Byte streams on non-blocking file descriptors: pipes, sockets, and all else that can be polled.

The link reads straight into the wire's input memory and writes straight out of its gather list, on
any asyncio loop. The transports of uvloop and asyncio would add a Python call for each read and
write, and asyncio's a copy.
"""

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t

import os
import weakref

from wirespeed._core.outbox cimport iovec
from wirespeed._core.wire cimport Wire
from wirespeed.transport.link cimport Endpoint, Link


cdef extern from "<unistd.h>" nogil:
    ssize_t c_read "read"(int fd, void *p, size_t n)

cdef extern from "<sys/socket.h>" nogil:
    int SHUT_WR
    int MSG_PEEK
    ssize_t c_recv "recv"(int fd, void *p, size_t n, int flags)
    ssize_t c_send "send"(int fd, const void *p, size_t n, int flags)
    int c_shutdown "shutdown"(int fd, int how)

cdef extern from "<sys/uio.h>" nogil:
    ssize_t c_writev "writev"(int fd, const iovec *vectors, int n)

cdef enum:
    READS_A_TURN = 8       # then the loop serves others
    LAST_TURNS = 16        # reads of bytes that a peer sent before it stopped reading
    MAX_VECTORS = 64
    PEEK_AFTER = 1         # seconds
    PEEKS_A_TURN = 256
    LONG = 65536           # bytes whose copy takes longer than it takes to release the GIL


cdef inline ssize_t receive(int fd, bint is_socket, void *p, size_t n) noexcept nogil:
    # recv and send take 6 % less time than read and writev, which look at the file first
    return c_recv(fd, p, n, 0) if is_socket else c_read(fd, p, n)


cdef inline ssize_t send(int fd, bint is_socket, const iovec *vectors, int n) noexcept nogil:
    if is_socket and n == 1:
        return c_send(fd, vectors.iov_base, vectors.iov_len, 0)
    return c_writev(fd, vectors, n)


@cython.final
cdef class FdLink(Link):
    """Joins an endpoint to a pair of file descriptors (the same one twice for a socket).

    The descriptors must be non-blocking. The link does not close them: their owner closes them
    in `on_lost`.
    """

    def __init__(self, loop, Endpoint endpoint not None, int read_fd, int write_fd):
        Link.__init__(self, loop, endpoint)
        self.read_fd = read_fd
        self.write_fd = write_fd
        self.is_socket = read_fd == write_fd
        # only sockets are reset, and only libuv misses it
        self.peeks = self.is_socket and type(loop).__module__.startswith("uvloop")

    def start(self):
        """Begin to read. OSError or PermissionError for a descriptor that cannot be polled."""
        self.reading = True
        try:
            self.loop.add_reader(self.read_fd, self._readable)
        except BaseException:
            self.reading = False
            raise

    def _readable(self):
        cdef FdLink me = self
        try:
            self.read_c()
        except Exception as exc:       # else the loop would call this again at once
            me.failed_c(exc)

    cdef int read_c(self) except -1:
        cdef FdLink me = self          # an event may close the link
        cdef Wire wire = self.wire
        cdef uint8_t *p = NULL
        cdef size_t room = 0
        cdef ssize_t n
        for _ in range(READS_A_TURN):
            wire.get_buffer_c(&p, &room)
            if self.long_read:
                with nogil:
                    n = receive(self.read_fd, self.is_socket, p, room)
            else:
                n = receive(self.read_fd, self.is_socket, p, room)
            if n > 0:
                self.long_read = n >= LONG
                wire.commit_c(<size_t> n)
                self.deliver_c()
                if not self.reading:
                    return 0
                if <size_t> n < room:
                    return self.peek_later_c()
            elif n == 0:
                self._stop_reading()
                self.saw_eof = True
                wire.receive_eof()
                self.deliver_c()
                return self.ended_c()
            elif errno == EINTR:
                continue
            elif errno == EAGAIN:
                return 0
            else:
                return self.lose_c(OSError(errno, os.strerror(errno)))
        return me.peek_later_c()

    cdef int peek_later_c(self) except -1:
        """Make sure that a reset behind the bytes just read is noticed.

        libuv stops polling a descriptor after an error, and reports a reset together with the data
        before it. The link therefore peeks at the socket once it has been quiet for a while.
        """
        if self.peeks and self.due is None:
            self.due = peeks_of(self.loop)
            self.due.links[self] = None
        return 0

    cdef int peek_c(self) except -1:
        cdef char byte = 0
        cdef ssize_t n
        self.due = None
        if self.reading and not self.lost:
            n = c_recv(self.read_fd, &byte, 1, MSG_PEEK)
            if n >= 0 or errno != EAGAIN:
                self._readable()
        return 0

    def _stop_reading(self):
        if self.reading:
            self.reading = False
            self.loop.remove_reader(self.read_fd)
            if self.due is not None:
                self.due.links.pop(self, None)
                self.due = None

    cpdef object update_reading(self):
        cdef bint want
        if self.lost or self.saw_eof:
            return
        want = (not self.closing or self.ending) and self.wire.want_read_c()
        if want and not self.reading:
            self.reading = True
            self.loop.add_reader(self.read_fd, self._readable)
        elif not want:
            self._stop_reading()

    cpdef object flush(self):
        cdef FdLink me = self          # what is sent is freed, which may close the link
        cdef Wire wire = self.wire
        cdef iovec vectors[MAX_VECTORS]
        cdef int n_vectors
        cdef ssize_t n
        if self.writing or self.lost or self.broken is not None:
            return
        while wire.outbox.size:
            n_vectors = wire.outbox.gather_c(vectors, MAX_VECTORS)
            if n_vectors == 0:
                break                  # what is queued is held
            if wire.outbox.size >= LONG:
                with nogil:
                    n = send(self.write_fd, self.is_socket, vectors, n_vectors)
            else:
                n = send(self.write_fd, self.is_socket, vectors, n_vectors)
            if n >= 0:
                wire.sent_c(<size_t> n)
            elif errno == EINTR:
                continue
            elif errno == EAGAIN:
                self.writing = True
                self.loop.add_writer(self.write_fd, self._writable)
                break
            elif wire.awaits_c() and not self.saw_eof:
                # the peer reads no more, but may have answered before
                self.broken = OSError(errno, os.strerror(errno))
                self.loop.call_soon(self._read_rest)
                return
            else:
                self.lose_c(OSError(errno, os.strerror(errno)))
                return
        me.check_drained_c()

    def _read_rest(self):
        for _ in range(LAST_TURNS):
            if self.lost or not self.reading:
                break
            self._readable()
        self.lose_c(self.broken)

    def _writable(self):
        cdef FdLink me = self
        self.writing = False
        self.loop.remove_writer(self.write_fd)
        try:
            self.flush()
            if not self.lost:
                # requests that waited until the peer reads may start
                self.deliver_c()
        except Exception as exc:
            me.failed_c(exc)

    cdef int part_c(self) except -1:
        cdef char waste[4096]
        if self.is_socket and not self.lost and self.wire.outbox.size == 0:
            # what nobody has read would make a reset of the end, which can destroy the last bytes
            for _ in range(LAST_TURNS):
                if c_recv(self.read_fd, waste, sizeof(waste), 0) <= 0:
                    break
        return Link.part_c(self)

    cdef int lose_c(self, object exc) except -1:
        cdef FdLink me = self          # the loop and the endpoint drop their references
        if self.lost:
            return 0
        self.lost = True
        self._stop_reading()
        if self.writing:
            self.writing = False
            self.loop.remove_writer(self.write_fd)
        self.released_c()
        me.endpoint.on_lost(exc)
        return 0

    def half_close(self):
        """Tell the peer that no more bytes will come: shut down a socket for writing."""
        if c_shutdown(self.write_fd, SHUT_WR) != 0:
            self.close()

    def lose(self, exc):
        """Close at once because of `exc`; `on_lost(exc)` follows at once."""
        self.lose_c(exc)

    def close(self):
        """Close at once and drop the queued output. `on_lost(None)` follows at once."""
        self.lose_c(None)


# By the id of a loop, whose timer holds them: a loop that is gone keeps nothing alive.
cdef object PEEKS = weakref.WeakValueDictionary()


@cython.final
cdef class _Peeks:
    """One timer peeks at all sockets: with one for each, many connections that begin at once would
    leave much memory behind."""

    def look(self):
        """Peek at all."""
        if PEEKS.get(id(self.loop)) is self:
            del PEEKS[id(self.loop)]           # what is read from now on has another timer
        try:
            for _ in range(PEEKS_A_TURN):
                if not self.links:             # one that reads can close others
                    break
                (<FdLink> self.links.popitem()[0]).peek_c()
        finally:
            if self.links:
                self.loop.call_soon(self.look)


cdef _Peeks peeks_of(object loop):
    cdef _Peeks peeks = PEEKS.get(id(loop))
    if peeks is None:
        peeks = _Peeks.__new__(_Peeks)
        peeks.loop, peeks.links = loop, {}
        PEEKS[id(loop)] = peeks
        loop.call_later(PEEK_AFTER, peeks.look)
    return peeks


def enlarge_pipe(int fd, int size):
    """Give a pipe room for ``size`` bytes, for fewer switches between the two processes. Linux
    only. Without effect on what is not a pipe, has the room already, or may not be enlarged."""
    import fcntl

    if hasattr(fcntl, "F_SETPIPE_SZ"):
        try:
            if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < size:
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)
        except OSError:
            pass
