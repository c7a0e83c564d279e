"""The targets of an HTTP listener by path, and the requests and web pages that its gate let in."""

cimport cython
from cpython.time cimport time

from wirespeed._core.framing.http.rfc9112 cimport AUTHENTICATION, AUTHORIZATION, HOST, ORIGIN
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed.transport.http.exchange cimport HttpTarget

import asyncio
import email.utils
import logging

from wirespeed._core.framing.http.writer import field_lines
from wirespeed.transport.http.cors import response_fields
from wirespeed.transport.rate_limited_log import RateLimitedLog
from wirespeed.transport.taskpool_choice import LAST_WAIT

logger = logging.getLogger("wirespeed.server")

MAX_ADMITTED = 4096  # verdicts of the gate that a listener keeps
MAX_ADMITTED_HEAD = 8192  # bytes of the head of a request that one of them is about
KEEP_ADMITTED = 60  # seconds after which all of them are forgotten


@cython.final
cdef class PageOrigin:
    """The origin of a web page that the gate let in.

    Args:
        origin: The header field of its requests.
        host: The same; None where the target of the request has the host.
    """

    def __init__(self, bytes origin not None, bytes host):
        self.origin = origin
        self.host = host
        self.fields = tuple(response_fields(origin.decode("latin-1")))
        self.lines = field_lines(self.fields)

    cdef bint sends_c(self, HttpHead head) noexcept:
        return (
            head.n_authority == 0 and not head.twice_c(ORIGIN)
            and is_known(head, ORIGIN, self.origin)
            and is_known(head, HOST, self.host)
        )


@cython.final
cdef class Admitted:
    """A request that the gate has let in, and what it decided."""

    cdef bint covers_c(self, HttpTarget target, HttpHead head, double now) noexcept:
        return (
            self.until > now and self.target is target and not is_ambiguous(head)
            and is_known(head, HOST, self.host) and is_known(head, ORIGIN, self.origin)
            and is_known(head, AUTHORIZATION, self.authorization)
            and is_known(head, AUTHENTICATION, self.authentication)
        )

    cdef bint lasts_c(self, HttpTarget target, HttpHead head, double now) noexcept:
        if self.until == 0:            # it is asked once for a request
            return self.target is target and self.expires > now
        return self.covers_c(target, head, now)


cdef inline bint is_ambiguous(HttpHead head) noexcept:
    """Whether the gate looks at more than the first values of the fields."""
    return (
        head.n_authority != 0 or head.twice_c(ORIGIN) or head.twice_c(AUTHORIZATION)
        or head.twice_c(AUTHENTICATION)
    )


@cython.final
cdef class HttpSite:
    """The targets of a listener by path, and its gate.

    Args:
        targets: The targets by the path of a request.
        options: A `HttpOptions`.
        limits: The `Limits` of a connection.
        gate: The checks of Host, Origin and token.
        budget: The `InputBudget` of all connections.
        loop: The event loop.
    """

    def __init__(self, targets, *, options, limits, gate, budget, loop):
        self.serve_c(targets)
        self.options = options
        self.max_requests = options.max_requests or 0
        self.limits = limits
        self.gate = gate
        self.budget = budget
        self.loop = loop
        self.quiet = RateLimitedLog(logger)
        self.admitting = set()
        self.admitted = {}
        self.replaced = set()
        self.date = b""
        if options.trusted_proxies:
            from wirespeed.transport.gate import Forwarded

            self.forwarded = Forwarded(options.trusted_proxies)
        if options.access_log is not None:
            from wirespeed.transport.access_log import AccessLog

            self.log = AccessLog(options.access_log, options.access_log_sample)

    cdef int serve_c(self, object targets) except -1:
        cdef HttpTarget target
        self.targets = {path.encode("latin-1"): target for path, target in targets.items()}
        for target in self.targets.values():
            target.site = self
        return 0

    def replace(self, targets, limits):
        """Serve other targets from now on. What was served and is not any more takes no requests,
        and ends what no request waits for. Returns these targets, which are due to `forget`."""
        cdef set gone = set(self.targets.values()).difference(targets.values())
        self.serve_c(targets)
        self.limits = limits
        self.admitted.clear()
        self.replaced |= gone
        for target in gone:
            target.leave()
            target.drain()
        return gone

    async def forget(self, targets):
        """End targets that were replaced, when their requests are answered."""
        for target in targets:
            await target.drained()
            target.close()
            await target.aclose()
            self.replaced.discard(target)

    async def prepare(self):
        """Wait for what has to be there before the first request."""
        for target in self.targets.values():
            await target.prepare()

    def share(self, int worker, int n, workers):
        """The port is shared by n processes; this is the one with that number. ``workers``: passes
        requests on to the others."""
        self.workers = workers
        for target in self.targets.values():
            target.share(worker, n)

    cdef HttpTarget below_c(self, bytes path):
        cdef HttpTarget target = self.targets.get(path.rpartition(b"/")[0])
        return target if getattr(target, "answers_below", False) else None

    def close_each(self):
        """Let each response be the last one of its connection: its client comes back by another."""
        self.closes = True

    def leave(self):
        """The server will shut down soon: tell who asks for its state."""
        for target in self.targets.values():
            target.leave()

    def drain(self):
        """The server shuts down: end what no request waits for."""
        for target in self.targets.values():
            target.drain()

    async def drained(self):
        """After `drain`: wait for the sessions."""
        for target in [*self.targets.values(), *self.replaced]:
            await target.drained()

    def close(self):
        """End everything now."""
        for target in [*self.targets.values(), *self.replaced]:
            target.close()

    async def aclose(self):
        """After `close`: wait for what has to end in order."""
        for target in [*self.targets.values(), *self.replaced]:
            await target.aclose()
        for task in self.admitting:
            task.cancel()
        if self.admitting:
            _, stubborn = await asyncio.wait(self.admitting, timeout=LAST_WAIT)
            if stubborn:
                logger.warning("authenticate ignores its cancellation and is abandoned")

    cdef object admit_c(self, object admission):
        """Start a task that awaits a verdict of the gate."""
        cdef object task = self.loop.create_task(admission)
        self.admitting.add(task)
        task.add_done_callback(self.admitting.discard)
        return task

    cdef int withdraw_c(self, object task) except -1:
        """The verdict is not needed any more."""
        self.loop.call_soon(task.cancel)       # after its first step, so that `authenticate` ends
        return 0

    cdef Admitted find_c(self, HttpTarget target, HttpHead head):
        cdef Admitted found = None
        if self.admitted:
            # a dict compares keyed hashes of tokens, and the tokens only where these are the same
            found = self.admitted.get(
                (value_of(head, AUTHORIZATION), value_of(head, AUTHENTICATION))
            )
        return found if found is not None and found.covers_c(target, head, self.now) else None

    cdef Admitted keep_c(self, HttpTarget target, HttpHead head, object admission, bint share):
        cdef Admitted one = Admitted.__new__(Admitted)
        one.user, one.principal = admission.user, admission.principal
        one.until, one.expires = admission.until, admission.expires
        one.target = target
        if one.until <= self.now or is_ambiguous(head):
            one.until = 0
            return one
        one.host = value_of(head, HOST)
        one.origin = value_of(head, ORIGIN)
        one.authorization = value_of(head, AUTHORIZATION)
        one.authentication = value_of(head, AUTHENTICATION)
        if share and head.at <= <size_t> MAX_ADMITTED_HEAD:
            if self.now >= self.admitted_until or len(self.admitted) >= MAX_ADMITTED:
                self.admitted.clear()          # so that tokens do not stay in memory
                self.admitted_until = self.now + KEEP_ADMITTED
            self.admitted[one.authorization, one.authentication] = one
        return one

    cdef bytes date_c(self):
        """The Date field (RFC 9110 section 6.6.1), made once a second."""
        cdef double now = time()
        self.now = now
        if now >= self.date_until or now < self.date_until - 1:
            self.date_until = <double> (<long long> now + 1)
            self.date = b"Date: %b\r\n" % email.utils.formatdate(now, usegmt=True).encode()
        return self.date
