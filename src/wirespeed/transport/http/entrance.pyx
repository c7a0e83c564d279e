"""Access checks of an HTTP connection, when the head of a request has arrived."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp

import inspect
import logging

from wirespeed._core.framing.http.fields cimport (
    AUTHENTICATION,
    AUTHORIZATION,
    HOST,
    OPTIONS,
    ORIGIN,
)
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.span cimport Span
from wirespeed.transport.http.cors cimport PageOrigin
from wirespeed.transport.http.exchange cimport Carrier, Exchange, HttpTarget, headers_c
from wirespeed.transport.http.targets cimport value_of

from wirespeed._core.framing.http.writer import field_lines
from wirespeed.transport.gate import Refused
from wirespeed.transport.http import cors
from wirespeed.transport.options import HttpRequest

cdef int WARNING = logging.WARNING
cdef int INFO = logging.INFO


cdef class Entrance(Carrier):
    """A connection of a client whose requests are judged one by one. Abstract: `HttpConnection` is
    one."""

    cdef HttpTarget target_c(self):
        """The target at the path of the request; None: nothing is served there."""
        cdef Span path = self.framer.head.path_c()
        cdef bytes text
        if (
            self.path is not None and self.known is self.site.targets
            and path.n == <size_t> PyBytes_GET_SIZE(self.path)
            and memcmp(path.p, PyBytes_AS_STRING(self.path), path.n) == 0
        ):
            return self.target
        text = PyBytes_FromStringAndSize(<const char *> path.p, <Py_ssize_t> path.n)
        self.known = self.site.targets
        self.target = self.known.get(text)
        if self.target is None:                # a slash at the end says nothing else
            other = text.removesuffix(b"/") if text.endswith(b"/") else text + b"/"
            self.target = self.known.get(other)
        if self.target is None:
            self.target = self.site.below_c(text)
        self.path = None if self.target is None else text
        return self.target

    cdef object read_request_c(self):
        """The request whose head has arrived, for the gate."""
        cdef HttpHead head = self.framer.head
        cdef object headers = headers_c(head), forwarded = self.site.forwarded
        return HttpRequest(
            path=head.path, query=head.query or "", headers=headers,
            peer=self.address if forwarded is None else forwarded.peer(self.address, headers),
            method=head.method, certificate=self.certificate,
        )

    cdef bint is_admitted_c(self, HttpTarget target, HttpHead head) except -1:
        """Whether the gate let in a request with the same fields before."""
        if self.admitted is not None and self.admitted.covers_c(target, head, self.site.now):
            return True
        self.admitted = self.site.find_c(target, head)
        return self.admitted is not None

    cdef bint is_unasked_c(self, HttpTarget target, HttpHead head) except -1:
        """Whether the request of a page's browser is answered without asking the gate."""
        return head.method_c == OPTIONS and "OPTIONS" not in target.methods

    cdef object judge_c(self, HttpTarget target, HttpHead head):
        """Ask the gate about a request, unless it has decided on the same fields before. Returns
        None, and `admitted` is the verdict, or what has to be awaited. Refused: it is not let
        in."""
        if not target.opens and self.is_admitted_c(target, head):
            return None
        verdict = target.admit(self.site.gate, self.read_request_c())
        if inspect.isawaitable(verdict):
            return verdict
        self.admit_c(target, head, verdict)
        return None

    cdef int admit_c(self, HttpTarget target, HttpHead head, object verdict) except -1:
        """The gate has let a request in."""
        # what may depend on a certificate holds for this connection alone
        self.admitted = self.site.keep_c(
            target, head, verdict, not target.opens and self.certificate is None
        )
        self.fields = field_lines(verdict.fields) if verdict.fields else None
        return 0

    # -- web pages (Fetch, "CORS protocol") ----------------------------------------------------

    cdef PageOrigin page_c(self, HttpHead head):
        """The page that sends a request; None: no page does. Refused: it may not connect."""
        cdef PageOrigin page = self.page
        if page is not None and page.sends_c(head):
            return page
        request = self.read_request_c()
        self.site.gate.check_page(request)
        if "origin" not in request.headers:
            return None
        page = PageOrigin(value_of(head, ORIGIN), value_of(head, HOST))
        if head.n_authority == 0:
            self.page = page
        return page

    cdef bint options_c(self, Exchange exchange, HttpHead head) except -1:
        """Let the browser of a web page show it the response. True: the request is OPTIONS, and was
        answered. Refused: the page may not connect."""
        cdef PageOrigin page
        cdef tuple methods = exchange.target.methods
        if exchange.target.for_pages:
            if head.method_c == OPTIONS:
                exchange.respond(204, b"", cors.public_preflight_fields(methods))
            return head.method_c == OPTIONS
        page = self.page_c(head)
        if page is not None:
            exchange.more_fields = page.lines
        if head.method_c != OPTIONS or "OPTIONS" in methods:
            return False
        headers = headers_c(head)
        fields = [("Allow", ", ".join((*methods, "OPTIONS")))]
        if cors.is_preflight(headers):
            exchange.more_fields = b""
            fields += cors.preflight_fields(headers, methods)
        exchange.respond(204, b"", fields)
        return True

    cdef tuple shown_c(self):
        """The header fields that let a page read the refusal of its request."""
        cdef HttpHead head = self.framer.known_head_c()
        cdef PageOrigin page = None
        cdef Span field
        if head is None:
            # Its Origin is not known. The last page is asked for, unless others may use this
            # connection: its browser compares the origin.
            if not self.output.apart and self.site.forwarded is None:
                page = self.page
        elif head.value_c(ORIGIN, &field):
            try:
                page = self.page_c(head)
            except Refused:
                pass
        return () if page is None else page.fields

    cdef int level_c(self, int status, HttpHead head) except -1:
        """The level of the log line of a refusal. A first request without credentials is how
        clients find out what is needed."""
        cdef Span field
        if (
            status == 401 and head is not None and not head.value_c(AUTHORIZATION, &field)
            and not head.value_c(AUTHENTICATION, &field)
        ):
            return INFO
        return WARNING
