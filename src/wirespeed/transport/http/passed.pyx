"""The end that answers requests of the connection between two processes (`passing`): the process
that has the session. An `HttpConnection` without a stream of its own answers each of them, as it
does below ASGI: sessions, streams and eras have one implementation.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint32_t, uint8_t
from libc.string cimport memcpy

from typing import Annotated

import msgspec

from wirespeed._core.framing.http.framer cimport HttpFramer
from wirespeed._core.framing.http.writer cimport HttpWriter
from wirespeed._core.outbox cimport Outbox, iovec
from wirespeed._core.slab cimport Slab
from wirespeed.transport.http.connection cimport HttpConnection
from wirespeed.transport.http.exchange cimport PassedClient
from wirespeed.transport.http.passing cimport (
    ANSWER, CUT, DRAIN, END, GONE, HEAD_OF_ANSWER, LAST, PART, PAUSE, PROOF, REQUEST, RESUME,
    STATE,
    PassingEnd, PassingWire, number_at, put_number,
)
from wirespeed.transport.http.site cimport HttpSite
from wirespeed.transport.link cimport Link

from wirespeed.transport.http.passing import MAX_REQUESTS
from wirespeed.transport.options import OF_SESSION, User

PATIENCE = 5.0  # seconds for the proof of the other process, and for what it does not read
MAX_FRAME = 2**31  # bytes: offsets into a frame have 32 bits

cdef enum:
    SHORT = 4096          # bytes below which a copy costs less than a reference
    MAX_VECTORS = 16
    MAX_FREE = 64         # PassedLinks that wait for requests
    MAX_CLIENTS = 4096    # that are remembered
    OWN = 0x10000         # bytes of a request besides its head and its body
    MAX_PROOF = 64        # bytes

Worker = Annotated[int, msgspec.Meta(ge=0)]    # below 0: the client would be at this process
# address, user, scopes, principal, expires, worker, whether it is of another host, whether it sent
# the request on a stream
cdef object decode = msgspec.msgpack.Decoder(
    tuple[str, str | None, tuple[str, ...], bytes | None, float | None, Worker, bool, bool]
).decode


@cython.final
cdef class AnsweringEnd(PassingEnd):
    """The end that answers requests of another process. It is a connection of a listener.

    Args:
        site: What is served.
        is_proof: Called with the proof of the other process; returns whether that is right.
        state: Called with the text of a question, for the text of the answer.
    """

    def __init__(self, HttpSite site not None, is_proof, state):
        self.site = site
        self.is_proof = is_proof
        self.state = state
        self.wire = self.passing = PassingWire(site.limits, MAX_PROOF, False)
        self.open = {}
        self.waiting = {}
        self.free = []
        self.clients = {}
        self.telling = set()
        self.closed = site.loop.create_future()
        self.timer = site.loop.call_later(PATIENCE, self.abort)

    cdef int frame_c(self, uint8_t kind, uint32_t number, const uint8_t *p, size_t n) except -1:
        cdef PassedLink link
        if self.is_proof is not None:
            return self.prove_c(p, n) if kind == PROOF else self.break_c("does not prove who it is")
        if kind == REQUEST:
            if not self.draining:      # it knows that this request is not taken
                return self.take_c(number, p, n)
        elif kind == STATE:
            question = PyBytes_FromStringAndSize(<const char *> p, <Py_ssize_t> n)
            said = self.state(question)
            if not isinstance(said, int):
                return self.send_c(STATE, number, said)
            task = self.site.loop.create_task(self._tell(number, said, question))
            self.telling.add(task)
            task.add_done_callback(self.telling.discard)
        elif kind == GONE or kind == PAUSE or kind == RESUME or kind == DRAIN:
            link = self.open.get(number)
            if link is None:
                return 0               # it was answered meanwhile
            if kind == GONE:
                link.taken = False
                link.lose_c(None)
            elif kind == DRAIN:
                if link.connection.exchange is not None:
                    link.connection.drain()
            else:
                link.paused = kind == PAUSE
                if not link.paused:
                    link.deliver_c()
        else:
            return self.break_c(f"sends a frame of the kind {kind}")
        return 0

    async def _tell(self, number, worker, question):
        """Pass on the state that a worker says."""
        said = await self.site.workers.ask(worker, question)
        if said is not None and self.link is not None:
            self.send_c(STATE, number, said)

    cdef int prove_c(self, const uint8_t *p, size_t n) except -1:
        is_proof, self.is_proof = self.is_proof, None
        self.timer.cancel()
        if not is_proof(PyBytes_FromStringAndSize(<const char *> p, <Py_ssize_t> n)):
            return self.break_c("is not a member")
        return self.passing.frames.widen_c(
            min(self.site.limits.max_message + self.site.options.max_head + OWN, MAX_FRAME)
        )

    cdef int oversize_c(self, uint8_t kind, uint32_t number) except -1:
        if kind != REQUEST or number <= self.last:
            return self.break_c("sends a frame that is too long")
        if self.draining:
            return 0
        self.last = number
        return self.refuse_c(number, 413)

    cdef int refuse_c(self, uint32_t number, uint32_t status) except -1:
        """Answer a request without a body."""
        cdef uint8_t head[HEAD_OF_ANSWER]
        put_number(head, status)
        put_number(head + 4, 0)
        put_number(head + 8, 0)
        self.send_c(ANSWER, number, (<const char *> head)[:HEAD_OF_ANSWER])
        return self.send_c(END, number, b"")

    cdef int take_c(self, uint32_t number, const uint8_t *p, size_t n) except -1:
        cdef PassedLink link
        cdef PassedClient client
        cdef size_t n_said = number_at(p) if n >= 4 else n
        if n_said + 4 > n or number <= self.last or len(self.open) >= MAX_REQUESTS:
            return self.break_c("passes a request on wrongly")
        self.last = number
        client = self.client_c(p + 4, n_said)
        link = <PassedLink> self.free.pop() if self.free else PassedLink(self)
        self.open[number] = link
        return link.take_c(
            number, client, self.passing.frames.slab, p + 4 + n_said, n - 4 - n_said
        )

    cdef PassedClient client_c(self, const uint8_t *p, size_t n):
        cdef bytes text = PyBytes_FromStringAndSize(<const char *> p, <Py_ssize_t> n)
        cdef PassedClient client = self.clients.get(text)
        if client is None:
            address, user, scopes, principal, expires, worker, far, streams = decode(text)
            client = PassedClient(
                address, None if user is None else User(user, scopes, OF_SESSION), principal,
                INFINITY if expires is None else expires, worker, far, streams,
            )
            if len(self.clients) >= MAX_CLIENTS:
                self.clients.clear()
            self.clients[text] = client
        return client

    cpdef object on_drained(self):
        cdef PassedLink link
        cdef dict waiting = self.waiting
        self.waiting = {}
        for link in waiting.values():
            link.deliver_c()           # which waits again, behind the others, if there is no room

    cpdef object on_lost(self, exc):
        cdef PassedLink link
        self.timer.cancel()
        self.is_proof = self.state = None
        for link in [*self.open.values(), *self.free]:
            link.taken = False
            link.lose_c(exc)
        self.open.clear()
        self.waiting.clear()
        self.free.clear()
        if not self.closed.done():
            self.closed.set_result(exc)

    cdef int check_over_c(self) except -1:
        if self.draining and not self.open and self.link is not None:
            self.link.end()
        return 0

    def drain(self):
        """Take no more requests when the sessions have ended, answer those that were taken, then
        close."""
        if self.ending is None and self.link is not None:
            self.drain_open_c()
            self.ending = self.site.loop.create_task(self._drain())

    cdef int drain_open_c(self) except -1:
        cdef PassedLink link
        for link in list(self.open.values()):
            link.connection.drain()
        return 0

    async def _drain(self):
        cdef PassedLink link
        grace = 0.0
        await self.site.drained()
        if self.link is not None:
            self.draining = True
            self.send_c(LAST, self.last, b"")
            for link in list(self.open.values()):
                if link.connection.exchange is not None:
                    grace = max(grace, link.connection.exchange.target.shutdown_grace)
            self.drain_open_c()            # what was taken meanwhile
            self.check_over_c()
            self._wait(grace + PATIENCE, None)

    def _wait(self, seconds, before):
        """Close the connection if no byte of any response was sent for so many seconds. ``before``:
        The bytes of each response that had been sent then."""
        if self.link is not None:
            sent = {number: one.wire.bytes_out for number, one in self.open.items()}
            if sent == before:
                self.abort()
            else:
                self.timer = self.site.loop.call_later(seconds, self._wait, seconds, sent)


@cython.final
cdef class PassedLink(Link):
    """The link of an `HttpConnection` that answers one request after another of another process."""

    def __init__(self, AnsweringEnd end not None):
        self.end = end
        self.connection = HttpConnection(end.site, "")
        self.writer = self.connection.output
        self.writer.apart = True
        Link.__init__(self, end.site.loop, self.connection)

    def start(self):
        """Nothing is read."""

    cpdef object update_reading(self):
        """Nothing is read."""

    cdef int take_c(
        self, uint32_t number, PassedClient client, Slab slab, const uint8_t *p, size_t n
    ) except -1:
        """Answer a request: n bytes at p, which lie in the slab."""
        cdef HttpFramer framer = self.connection.framer
        self.number = number
        self.taken = True
        self.paused = False
        self.connection.serve_c(client)
        framer.lie_c(slab, p, n)
        self.deliver_c()
        return framer.drop_slab_c()

    cdef int wrote_c(self) except -1:
        return 0 if self.corked else self.flush_for_c()

    cpdef object flush(self):
        cdef PassedLink me = self      # the end of a response may close it
        cdef PassingWire wire = self.end.passing
        cdef Outbox own = self.wire.outbox, out = wire.outbox
        cdef iovec vectors[MAX_VECTORS]
        cdef int i, n_vectors
        cdef size_t n = own.ready_c(), before = out.size
        if self.lost or not self.taken or self.paused:
            return
        if out.size >= wire.output_high or self.end.waiting:
            if n or self.writer.told or me.connection.exchange is None:
                self.end.waiting[self.number] = self
            return
        if self.writer.told:
            self.begin_answer_c()
        if n:
            wire.begin_c(PART, self.number, n)
            if n < SHORT:
                while own.ready_c():
                    n_vectors = own.gather_c(vectors, MAX_VECTORS)
                    n = 0
                    for i in range(n_vectors):
                        out.write_c(vectors[i].iov_base, vectors[i].iov_len)
                        n += vectors[i].iov_len
                    self.wire.sent_c(n)
            else:
                self.wire.bytes_out += <long long> n
                out.absorb_c(own)
        if me.connection.exchange is None and own.size == 0:
            wire.begin_c(END, me.number, 0)
            me.complete_c()
        if out.size != before and me.end.link is not None:
            me.end.link.wrote_c()
        me.check_drained_c()

    cdef int begin_answer_c(self) except -1:
        cdef HttpWriter writer = self.writer
        cdef PassingWire wire = self.end.passing
        cdef Py_ssize_t n = PyBytes_GET_SIZE(writer.told_fields)
        cdef int64_t length = writer.told_length
        cdef uint8_t *p
        writer.told = False
        wire.begin_c(ANSWER, self.number, <size_t> (HEAD_OF_ANSWER + n))
        p = wire.outbox.reserve_c(<size_t> (HEAD_OF_ANSWER + n))
        put_number(p, <uint32_t> int(writer.told_line[9:12]))
        put_number(p + 4, <uint32_t> (length & 0xFFFFFFFF))
        put_number(p + 8, <uint32_t> (length >> 32 & 0xFFFFFFFF))
        memcpy(p + HEAD_OF_ANSWER, PyBytes_AS_STRING(writer.told_fields), <size_t> n)
        return wire.outbox.commit_c(<size_t> (HEAD_OF_ANSWER + n))

    cdef int complete_c(self) except -1:
        """The response has left."""
        self.taken = False
        self.end.open.pop(self.number, None)
        if (
            self.connection.last or self.writer.closes or self.connection.framer.buffered_c()
            or self.end.link is None or len(self.end.free) >= MAX_FREE
        ):
            self.lose_c(None)
        else:
            self.end.free.append(self)
        return self.end.check_over_c()

    cdef int lose_c(self, object exc) except -1:
        cdef PassedLink me = self      # the endpoint drops its reference
        if self.lost:
            return 0
        self.lost = True
        self.end.open.pop(self.number, None)
        self.end.waiting.pop(self.number, None)
        if self.taken:
            self.taken = False
            self.end.send_c(CUT, self.number, b"")
        self.released_c()
        me.endpoint.on_lost(exc)
        return me.end.check_over_c()

    def half_close(self):
        """All is said."""
        self.lose_c(None)

    def lose(self, exc):
        """Stop now because of `exc`; `on_lost(exc)` follows at once."""
        self.lose_c(exc)

    def close(self):
        """Stop now, and drop queued bytes. `on_lost(None)` follows at once."""
        self.lose_c(None)
