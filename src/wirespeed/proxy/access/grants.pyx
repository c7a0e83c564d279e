"""Grants: what principals may use at one endpoint, asked for each request of their clients.

A client is known by the digest of its principal, which the gate has put there. The name of a tool
is looked up by its JSON text as it lies in the request: nothing is decoded.
"""

cimport cython

from wirespeed._core._simd cimport WS_NAME
from wirespeed._core.envelope cimport Message, method_is, span_of
from wirespeed._core.span cimport Span
from wirespeed.proxy.side cimport AccessCheck, Side

import functools

import msgspec

from wirespeed.protocol import codes

cdef enum:
    MAX_KNOWN = 1000             # names that are kept for each principal and endpoint
    MAX_NAME = 200               # bytes of such a name; characters of a name in an error

cdef object members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
cdef object entries_of = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Named(msgspec.Struct):
    name: str


cdef object named = msgspec.json.Decoder(_Named).decode


@cython.final
cdef class PrincipalGrant:
    """The grant of one principal at one endpoint.

    Args:
        name: The principal's.
        servers: A function of the name of a server: may it be used?
        allows: A function of the name of a tool that clients see: may it be called? None: every
            tool may.
    """

    def __init__(self, str name not None, servers, allows):
        self.name = name
        self.servers = servers
        self.allows = allows
        self.known = {}

    def may_use(self, str server not None):
        """Return whether clients may use a server."""
        return bool(self.servers(server))

    def shows(self, str name not None):
        """Return whether clients may see and call a tool."""
        return self.allows is None or bool(self.allows(name))

    cdef bint allows_c(self, bytes text, str name) except -1:
        """Whether a tool is allowed, and keep that for its JSON text."""
        cdef bint allowed = self.allows(name)
        if len(text) <= MAX_NAME:
            if len(self.known) >= MAX_KNOWN:
                self.known.clear()
            self.known[text] = allowed
        return allowed


@cython.final
cdef class Grants(AccessCheck):
    """The grants of all principals at one endpoint.

    Args:
        grants: The grants by the digests of principals.
        everyone: That of a client of another principal, or of none; None: it may use nothing.

    Attributes:
        n_refused: The requests that were not admitted.
    """

    def __init__(self, grants, PrincipalGrant everyone=None):
        self.grants = dict(grants)
        self.everyone = everyone

    def adopt(self, Grants other not None):
        """Take the grants of another configuration, for connections that are there, too."""
        self.grants, self.everyone = other.grants, other.everyone

    cdef PrincipalGrant of_c(self, object principal):
        found = None if principal is None else self.grants.get(principal)
        return self.everyone if found is None else <PrincipalGrant> found

    def of(self, principal):
        """Return the grant of a principal, by its digest; None: it has none."""
        return self.of_c(principal)

    cdef bint admits_c(self, Side asker, Message m) except -1:
        cdef PrincipalGrant grant = self.of_c(asker.principal)
        cdef Span s
        cdef bytes text
        cdef str name
        if grant is None:
            return self.refuse(asker, m, codes.INVALID_REQUEST, "this client may not do that")
        if grant.allows is None or not method_is(m, b'"tools/call"', "tools/call"):
            return True
        s = span_of(m, WS_NAME)
        text = (<const char *> s.p)[:s.n]
        found = grant.known.get(text)
        if found is True:
            return True
        name = m.text_c(WS_NAME)
        if name is None:
            return self.refuse(asker, m, codes.INVALID_PARAMS, "params.name must be a string")
        if found is None and grant.allows_c(text, name):
            return True
        return self.refuse(asker, m, codes.INVALID_PARAMS, f"Unknown tool: {name[:MAX_NAME]}")

    cdef object filter_c(self, Side asker, Message m):
        cdef PrincipalGrant grant
        if not method_is(m, b'"tools/list"', "tools/list"):
            return None
        grant = self.of_c(asker.principal)
        if grant is not None and grant.allows is None:
            return None
        return functools.partial(self.without, grant)

    def refuse(self, Side asker not None, Message m not None, int code, str text not None):
        """Answer a request with an error. Returns False."""
        self.n_refused += 1
        asker.refuse(m, code, text)
        return False

    def without(self, PrincipalGrant grant, text):
        """Return the result of ``tools/list`` without the tools that are not allowed."""
        cdef dict result = members(text)
        cdef list kept = []
        try:
            for entry in entries_of(result.get("tools", b"[]")):
                try:
                    name = named(entry).name
                except msgspec.ValidationError:
                    continue               # nobody can call it
                if grant is not None and grant.allows(name):
                    kept.append(entry)
        except msgspec.ValidationError:
            pass                           # not a list: nothing of it is shown
        result["tools"] = kept
        result.pop("digest", None)         # that of all of the server's tools
        return msgspec.json.encode(result)


def everyone(allows):
    """Return the grants of an endpoint that each client may use, but for the tools that are not
    allowed."""
    return Grants({}, PrincipalGrant("", _any, allows))


def _any(server):
    return True
