"""The link of requests that come by ASGI: a scope becomes the head of a request, and the head of
the response becomes values. `wirespeed.transport.http.asgi` moves the bodies."""

cimport cython

from wirespeed._core.framing.http.writer cimport HttpWriter
from wirespeed.transport.http.connection cimport HttpConnection
from wirespeed.transport.http.exchange cimport PassedClient
from wirespeed.transport.http.site cimport HttpSite
from wirespeed.transport.link cimport Link
from wirespeed.transport.taskpool cimport TaskPool

from urllib.parse import quote

# Fields of a connection, which is the other server's.
cdef frozenset OURS = frozenset(
    (b"connection", b"transfer-encoding", b"expect", b"upgrade", b"keep-alive")
)


cdef enum:
    MAX_DIGITS = 18       # of a length: more bytes than any limit


cdef str place_of(client):
    """The address of a client, as text for people."""
    if client is None:
        return "a client"
    host, port = client
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


cdef list pairs_of(bytes lines):
    """Names, in lower case as ASGI wants them, and values of fields."""
    cdef list pairs = []
    cdef bytes name
    for line in lines.split(b"\r\n"):
        name, _, value = line.partition(b": ")
        name = name.lower()
        if name and name not in OURS:
            pairs.append((name, value))
    return pairs


@cython.final
cdef class AsgiLink(Link):
    """Joins a connection to the calls of one request after another.

    Args:
        site: What is served.
        pool: The task pool of the handlers.
        full: Refuse the request, because there are too many.
        client: Who asks, where the gate has decided about that; None: the gate is asked.
    """

    cdef HttpConnection connection
    cdef HttpWriter writer
    cdef TaskPool pool
    cdef object waiter
    cdef bint closed
    cdef bint ended                    # the connection ended in order, after a whole response
    cdef bint sent                     # output was taken, and the connection was not told
    cdef Py_ssize_t left               # bytes of the body that were not fed yet
    cdef bint in_chunks                # the body has no length
    cdef bint spoiled                  # the body had more bytes than its length
    cdef object known_path, known_root  # of the last request
    cdef bytes known_target            # the path that these two make
    cdef bytes known_fields            # of the last response, and the same as pairs
    cdef list known_pairs

    def __init__(
        self, HttpSite site not None, TaskPool pool not None, *, bint full=False,
        PassedClient client=None,
    ):
        self.connection = HttpConnection(site, "", full=full)
        if client is not None:
            self.connection.serve_c(client)
        self.writer = self.connection.output
        self.writer.apart = True
        self.pool = pool
        Link.__init__(self, site.loop, self.connection)

    # -- a link ----------------------------------------------------------------------------------

    def start(self):
        """The application reads."""

    cpdef object update_reading(self):
        if not self.connection.http.still:
            self.wake_c()

    cpdef object flush(self):
        if self.has_output_c() or self.over_c():   # an end may have no bytes
            self.wake_c()

    def half_close(self):
        """All is said."""
        self.ended = True
        self.close()

    def lose(self, exc):
        """Stop now because of `exc`; `on_lost(exc)` follows at once."""
        cdef AsgiLink me = self            # the endpoint drops its reference
        if not self.closed:
            self.closed = True
            self.released_c()
            self.wake_c()
            me.endpoint.on_lost(exc)

    def close(self):
        """Stop now, and drop queued bytes. `on_lost(None)` follows at once."""
        self.lose(None)

    # -- what the application asks ---------------------------------------------------------------

    def begin(self, scope, bytes body not None, bint more):
        """Take in a request, or its beginning if there is ``more``.

        The other server has found the end of the body. A length beside Transfer-Encoding says
        nothing of it (RFC 9112 section 6.3), and no byte beyond the length is taken: it would begin
        the request of the next client.
        """
        cdef list parts = [(<str> scope["method"]).encode(), b" ", self.target_c(scope), b""]
        cdef Py_ssize_t n_lines = 3        # with the empty one
        cdef Py_ssize_t length = len(body)
        cdef bytes declared = None, head
        cdef bint chunked = False, differ = False
        if self.connection.passed is None:
            self.connection.address = place_of(scope.get("client"))
        for name, value in scope["headers"]:
            if name == b"content-length":
                differ |= declared is not None and declared != value
                declared = value
            elif name not in OURS:
                parts += (name, b": ", value, b"\r\n")
                n_lines += 1
            elif name == b"transfer-encoding":
                chunked = True
        self.in_chunks = more and (chunked or declared is None)
        if declared is not None and not chunked:
            if differ or not declared.isdigit() or len(declared) > MAX_DIGITS:
                return self.refuse_c("Content-Length is not valid")
            length = int(declared)
        if len(body) > length or (len(body) < length and not more):
            return self.refuse_c("the body has another length than Content-Length")
        if self.in_chunks:
            parts[3] = b" HTTP/1.1\r\nconnection: keep-alive\r\n"
            parts.append(b"transfer-encoding: chunked\r\n")
            n_lines += 1
            length = 1                     # there is more
        else:
            parts[3] = b" HTTP/1.0\r\nconnection: keep-alive\r\n"
        if not self.in_chunks and (length or declared is not None):
            parts += (b"content-length: ", b"%d" % length, b"\r\n")
            n_lines += 1
        parts.append(b"\r\n")
        head = b"".join(parts)
        if head.count(b"\n") != n_lines:   # other servers may let line ends pass (HTTP/2)
            return self.refuse_c("a header field has a line end")
        self.left = length
        self.wire.receive_data(head)
        self.feed(body)

    cdef bytes target_c(self, scope):
        """Path and query of a request as a URI has them."""
        cdef object path = scope["path"], root = scope.get("root_path", "")
        cdef object query = scope.get("query_string")
        if path != self.known_path or root != self.known_root:
            self.known_path, self.known_root = path, root
            if root and path.startswith(root):     # else the server has removed it
                path = path[len(root):] or "/"
            self.known_target = quote(path, safe="/%:@!$&'()*+,;=-._~").encode()
        return self.known_target + b"?" + query if query else self.known_target

    def feed(self, bytes data not None):
        """Take in bytes of the body. What is beyond its length is dropped."""
        if self.in_chunks:
            if data:
                self.receive_c(b"%x\r\n%b\r\n" % (len(data), data))
            else:
                self.run_c()               # there may be a refusal
            return
        if len(data) > self.left:
            self.spoiled = True
            data = data[:self.left]
        self.left -= len(data)
        self.receive_c(data)

    cdef int receive_c(self, bytes data) except -1:
        try:
            if data:
                self.wire.receive_data(data)
        except MemoryError as exc:
            return self.failed_c(exc)
        return self.run_c()

    def finish(self):
        """No more bytes of the body come."""
        if self.in_chunks:
            self.in_chunks = False
            self.left = 0
            if not self.closed and not self.has_output_c():
                self.receive_c(b"0\r\n\r\n")
            else:
                self.spoiled = True
        if self.left and not self.closed and not self.has_output_c():
            self.refuse_c("the body has another length than Content-Length")

    cdef object refuse_c(self, str sentence):
        """Answer a request that cannot be read, and close."""
        self.connection.output.answer_c(1, False, True)
        self.connection.refuse_c(400, sentence, ())

    async def room(self):
        """Wait until the connection takes bytes of the body: the gate decides before."""
        while (
            self.connection.http.still and self.connection.exchange is None
            and not self.closed and not self.has_output_c()
        ):
            await self.changed()

    cdef int run_c(self) except -1:
        """Let the connection work. Handlers start at once, as they do where no task is current."""
        cdef object task = self.pool.step_out_c()
        try:
            self.deliver_c()
        finally:
            self.pool.step_in_c(task)
        return 0

    cdef bint has_output_c(self) noexcept:
        return self.wire.outbox.ready_c() != 0 or self.writer.told

    @property
    def gone(self):
        """Whether the client left, or the connection broke off."""
        return self.closed and not self.ended

    cdef bint over_c(self) noexcept:
        return self.wire.outbox.size == 0 and not self.writer.told and (
            self.ended or (self.connection.exchange is None and not self.closed)
        )

    @property
    def over(self):
        """Whether the response is complete, and was taken."""
        return self.over_c()

    @property
    def has_output(self):
        """Whether there is more of the response."""
        return self.has_output_c()

    @property
    def lasts(self):
        """Whether the connection takes another request."""
        return not (
            self.closed or self.connection.last or self.writer.closes or self.left or self.spoiled
            or self.connection.framer.buffered_c()
        )

    @property
    def wants_body(self):
        """Whether the request is not answered yet, and its body is not whole."""
        return self.left != 0 and not self.closed and not self.has_output_c()

    def take(self):
        """Return what there is of the response: the message that starts it (None before its head
        is written, and later), bytes of its body, and whether it is complete with them."""
        cdef object start = self.start_c() if self.writer.told else None
        cdef object data = b""
        if self.wire.outbox.ready_c():
            self.sent = True
            data = b"".join(self.wire.data_to_send())
        return start, data, self.over_c()

    cdef dict start_c(self):
        cdef HttpWriter writer = self.writer
        cdef list pairs
        writer.told = False
        if writer.told_fields is not self.known_fields:
            self.known_pairs = pairs_of(writer.told_fields)
            self.known_fields = writer.told_fields
        pairs = self.known_pairs.copy()
        if writer.told_length >= 0:
            pairs.append((b"content-length", b"%d" % writer.told_length))
        return {
            "type": "http.response.start",
            "status": int(writer.told_line[9:12]),
            "headers": pairs,
        }

    def go_on(self):
        """Let the connection work on: the server has sent the output that it took."""
        if self.sent and not self.closed:
            self.sent = False
            self.check_drained_c()
            self.run_c()

    def drain(self):
        """The server shuts down: let the request be answered in its grace time."""
        self.connection.drain()

    async def changed(self):
        """Wait for output, or for the end."""
        self.waiter = self.loop.create_future()
        try:
            await self.waiter
        finally:
            self.waiter = None

    cdef int wake_c(self) except -1:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        return 0
