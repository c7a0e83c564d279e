"""What a listener of HTTP serves: the targets by path, and who may come in."""

cimport cython

import asyncio
import email.utils
import logging
import time

from wirespeed.transport.quiet import Quiet
from wirespeed.transport.taskpool_choice import LAST_WAIT

logger = logging.getLogger("wirespeed.server")


@cython.final
cdef class HttpSite:
    """What a listener serves: the targets by path, and who may come in.

    Args:
        targets: The targets by the path of a request.
        options: A `HttpOptions`.
        limits: The `Limits` of a connection.
        gate: The checks of Host, Origin and token.
        loop: The event loop.
    """

    def __init__(self, targets, *, options, limits, gate, loop):
        self.targets = {path.encode("latin-1"): target for path, target in targets.items()}
        self.options = options
        self.max_requests = options.max_requests or 0
        self.limits = limits
        self.gate = gate
        self.early = gate.authenticate is None
        self.loop = loop
        self.quiet = Quiet(logger)
        self.admitting = set()
        self.date = b""
        if options.trusted_proxies:
            from wirespeed.transport.http.forwarded import Forwarded

            self.forwarded = Forwarded(options.trusted_proxies)
        if options.access_log is not None:
            from wirespeed.transport.http.access_log import AccessLog

            self.log = AccessLog(options.access_log, options.access_log_sample)

    def share(self, int worker, int n):
        """The port is shared by n processes; this is the one with that number."""
        for target in self.targets.values():
            target.share(worker, n)

    def leave(self):
        """The server will shut down soon: tell who asks for its state."""
        for target in self.targets.values():
            target.leave()

    def drain(self):
        """The server shuts down: end what no request waits for."""
        for target in self.targets.values():
            target.drain()

    def close(self):
        """End everything now."""
        for target in self.targets.values():
            target.close()

    async def aclose(self):
        """After `close`: wait for what has to end in order."""
        for target in self.targets.values():
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

    cdef bytes date_c(self):
        """The Date field (RFC 9110 section 6.6.1), made once a second."""
        cdef double now = time.time()
        self.now = now
        if now >= self.date_until or now < self.date_until - 1:
            self.date_until = <double> (<long long> now + 1)
            self.date = b"Date: %b\r\n" % email.utils.formatdate(now, usegmt=True).encode()
        return self.date
