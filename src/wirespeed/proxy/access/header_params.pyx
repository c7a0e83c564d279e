"""Arguments of tools that clients repeat in header fields, compared before a call is passed on.

Which arguments these are is said by the input schemas of the tools. The server is asked for them at
the first call that comes over HTTP. Calls of tools that are not known wait for the answer; later it
is asked again behind the calls. A tool is looked up by the JSON text of its name.
"""

cimport cython

from wirespeed._core._simd cimport WS_ARGUMENTS, WS_NAME
from wirespeed._core.envelope cimport Message, is_modern, method_is, span_of
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.span cimport Span
from wirespeed.proxy.side cimport AccessCheck, Side
from wirespeed.peer.http.headers cimport check_params_c, copy_of
from wirespeed.server.requests.observer cimport now_c

import asyncio
import logging

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes

logger = logging.getLogger("wirespeed.proxy")

cdef enum:
    MAX_TEXTS = 10_000           # names of one server that are kept; their list may be longer
    MAX_NAME = 200               # bytes of the JSON text of such a name

cdef double REFRESH = 60.0       # seconds after which the server is asked again
cdef double PAUSE = 1.0          # in which it is not asked for a name that it does not have


@cython.final
cdef class HeaderParams(AccessCheck):
    """The arguments of one server's tools that are header fields.

    Args:
        ask: A coroutine function of a client. It returns the arguments of each tool that are header
            fields, by its name; None where the server does not say.
    """

    def __init__(self, ask):
        self.ask = ask
        self.tools = {}
        self.texts = {}
        self.held = set()

    cdef bint admits_c(self, Side asker, Message m) except -1:
        """Whether a request may be passed on now. If not, it was refused, or will go on later."""
        cdef Span s
        cdef bytes text
        cdef str name
        cdef tuple fields
        if not is_modern(m) or not method_is(m, b'"tools/call"', "tools/call"):
            return True
        s = span_of(m, WS_NAME)
        text = (<const char *> s.p)[:s.n]
        fields = <tuple> self.texts.get(text)
        if fields is None or now_c() > self.until:
            name = m.text_c(WS_NAME)
            if name is None:
                return True                # the server says what is wrong
            fields = self.fields_c(asker, name)
            if fields is None:
                self.hold_c(asker, m, copy_of(asker.head_of_c(m)), name)
                return False
            self.keep_c(m, fields)
        return self.agrees_c(asker, m, asker.head_of_c(m), fields)

    cdef int keep_c(self, Message m, tuple fields) except -1:
        """Know the tool of a call by the JSON text of its name."""
        cdef Span s = span_of(m, WS_NAME)
        if s.n <= MAX_NAME and len(self.texts) < MAX_TEXTS:
            self.texts[(<const char *> s.p)[:s.n]] = fields
        return 0

    cdef bint agrees_c(self, Side asker, Message m, HttpHead head, tuple fields) except -1:
        if not fields:
            return True
        try:
            check_params_c(head, fields, m.lease_c(WS_ARGUMENTS))
        except ProtocolError as exc:
            asker.refuse(m, exc.code, exc.message)
            return False
        return True

    def agrees(self, Side asker not None, Message m not None, HttpHead head not None, tuple fields):
        """Return whether a call says what the fields of its HTTP request say. If not, it was
        refused."""
        return self.agrees_c(asker, m, head, fields)

    # -- what is known ---------------------------------------------------------------------------

    cdef tuple fields_c(self, Side asker, str name):
        cdef double now = now_c()
        found = self.tools.get(name)
        if found is None and (self.asking is not None or now > self.asked + PAUSE):
            return None
        if now > self.until and self.asking is None:
            self.begin_c(asker)
        return () if found is None else found

    def fields(self, Side asker not None, str name not None):
        """Return which arguments of a tool are header fields; None: `learned` knows."""
        return self.fields_c(asker, name)

    async def learned(self, Side asker not None, str name not None):
        """Return the same after the server was asked."""
        if self.asking is None:
            self.begin_c(asker)
        await asyncio.shield(self.asking)
        if name not in self.tools and len(self.tools) < MAX_TEXTS and len(name) <= MAX_NAME:
            self.tools[name] = ()          # until the list is there anew
        return self.tools.get(name, ())

    def forget(self):
        """The server says that its tools have changed."""
        self.n_changes += 1
        self.tools, self.texts = {}, {}
        self.asked = self.until = 0

    cdef int begin_c(self, Side asker) except -1:
        """Ask the server."""
        self.asking = asyncio.ensure_future(self.learn(asker))
        return 0

    async def learn(self, Side asker):
        """Take what the server answers."""
        cdef long long n = self.n_changes
        try:
            found = await self.ask(asker)
            if found is not None:
                self.tools, self.texts = found, {}
        except Exception:
            logger.exception("internal error of the proxy at a list of tools")
        finally:
            self.asking = None
            if n == self.n_changes:        # else the answer may be old already
                self.asked = now_c()
                self.until = self.asked + REFRESH

    # -- calls that wait -------------------------------------------------------------------------

    cdef int hold_c(self, Side asker, Message m, HttpHead head, str name) except -1:
        """Go on with a call when its tool is known."""
        task = asyncio.ensure_future(self.go_on(asker, m, head, name))
        self.held.add(task)
        task.add_done_callback(self.held.discard)
        return 0

    async def go_on(self, asker, Message m, HttpHead head, str name):
        """Compare a call that has waited, and pass it on."""
        try:
            fields = await self.learned(asker, name)
            self.keep_c(m, fields)
            if asker.is_open(m) and self.agrees(asker, m, head, fields):
                asker.forward(m)
        except Exception:
            logger.exception("internal error of the proxy at %s", m)
            if asker.is_open(m):
                asker.refuse(m, codes.INTERNAL_ERROR, "Internal error")
