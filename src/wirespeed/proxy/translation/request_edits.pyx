"""Requests that are passed from one era to the other, and the answers to them, as edits of text.

A request of 2026-07-28 says in ``params._meta`` what a legacy client says in ``initialize``. These
members are left out, or put in. To the result of a tool the members are added that each result of
that revision has. Arguments and content are not decoded. What no edit can express is left to
functions.

A request is suspended where its client has got an ``input_required`` and the legacy server goes on
with it. The client's next request takes its place.
"""

from operator import itemgetter

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from wirespeed._core._simd cimport (
    WS_META, WS_META_CLIENT_CAPABILITIES, WS_META_CLIENT_INFO, WS_META_LOG_LEVEL,
    WS_META_PROGRESS_TOKEN, WS_META_PROTOCOL_VERSION, WS_METHOD, WS_PARAMS, WS_RESULT,
)
from wirespeed._core.envelope cimport Message, RESULT, is_modern, nothing_c, poi_is, span_of
from wirespeed._core.span cimport Span, memmem, span_holds
from wirespeed._core.splice cimport Edit
from wirespeed.proxy.side cimport Route, Side, Translation, keep_progress_token
from wirespeed.server.requests.observer cimport CANCELLED

cdef enum:
    N_ERA = 4                    # members of the envelope
    META = 8                     # characters of `"_meta":`
    PARAMS = 10                  # characters of `,"params":`


cdef size_t skip_c(const uint8_t *p, size_t at) noexcept:
    """Skip white space."""
    while p[at] == c' ' or p[at] == c'\t' or p[at] == c'\n' or p[at] == c'\r':
        at += 1
    return at


cdef size_t back_c(const uint8_t *p, size_t at) noexcept:
    """The same backwards: the end of what is before it."""
    while p[at - 1] == c' ' or p[at - 1] == c'\t' or p[at - 1] == c'\n' or p[at - 1] == c'\r':
        at -= 1
    return at


cdef size_t key_of_c(const uint8_t *p, size_t at) noexcept:
    """Where the member begins whose value begins here. Its key has no quote, escaped or not."""
    at = back_c(p, back_c(p, at) - 1) - 2
    while p[at] != c'"':
        at -= 1
    return at


cdef int without_envelope_c(Message m, Edit *edits) noexcept:
    """The edits that leave the members of the envelope out."""
    cdef int which[N_ERA]
    cdef size_t at[N_ERA]
    cdef size_t end[N_ERA]
    cdef int i, j, n = 0, n_edits = 0
    cdef const uint8_t *p = m.p
    cdef size_t begin, after
    which[0] = WS_META_PROTOCOL_VERSION
    which[1] = WS_META_CLIENT_CAPABILITIES
    which[2] = WS_META_CLIENT_INFO
    which[3] = WS_META_LOG_LEVEL
    for i in range(N_ERA):
        if m.scan.poi[which[i]].len == 0:
            continue
        begin = m.scan.poi[which[i]].off
        j = n
        while j and at[j - 1] > begin:
            at[j] = at[j - 1]
            end[j] = end[j - 1]
            j -= 1
        at[j] = begin
        end[j] = begin + m.scan.poi[which[i]].len
        n += 1
    i = 0
    while i < n:
        begin = key_of_c(p, at[i])
        after = skip_c(p, end[i])
        while p[after] == c',' and i + 1 < n and skip_c(p, after + 1) == key_of_c(p, at[i + 1]):
            i += 1
            after = skip_c(p, end[i])
        if p[after] == c',':
            after = skip_c(p, after + 1)
        else:                          # nothing follows: the comma before them goes, too
            after = end[i]
            if p[back_c(p, begin) - 1] == c',':
                begin = back_c(p, begin) - 1
        edits[n_edits].at = begin
        edits[n_edits].n = after - begin
        edits[n_edits].text = Span(p, 0)
        n_edits += 1
        i += 1
    return n_edits


cdef Edit insertion(size_t at, bytes text, size_t skip, size_t less) noexcept:
    """The edit that puts a text in, without its first and last bytes."""
    cdef Edit edit
    edit.at = at
    edit.n = 0
    edit.text = Span(
        <const uint8_t *> PyBytes_AS_STRING(text) + skip,
        <size_t> PyBytes_GET_SIZE(text) - skip - less,
    )
    return edit


cdef bint always_c(Span text, bytes key, bytes value) noexcept:
    """Whether each value of this key, at whatever depth, begins so."""
    cdef const uint8_t *end = text.p + text.n
    cdef size_t n_key = <size_t> PyBytes_GET_SIZE(key)
    cdef size_t n_value = <size_t> PyBytes_GET_SIZE(value)
    cdef const uint8_t *found
    cdef size_t at
    while True:
        found = <const uint8_t *> memmem(
            text.p, <size_t> end - <size_t> text.p, PyBytes_AS_STRING(key), n_key
        )
        if found is NULL:
            return True
        at = skip_c(found, n_key)
        if found[at] == c':':
            at = skip_c(found, at + 1)
            if <size_t> end - <size_t> found < at + n_value or memcmp(
                found + at, PyBytes_AS_STRING(value), n_value
            ) != 0:
                return False
        text.p = found + n_key


@cython.final
cdef class Asked:
    """A function of an answer that knows the request."""

    def __call__(self, answer):
        return self.function(self.request, answer)


cdef bint is_call(object after) noexcept:
    """Whether a tool was called."""
    return type(after) is Asked and (<Asked> after).is_call


cdef Asked asked(object function, Message m):
    cdef Asked after = Asked.__new__(Asked)
    after.function = function
    after.request = m
    after.is_call = poi_is(m, WS_METHOD, b'"tools/call"')
    return after


@cython.final
cdef class Lowering(Translation):
    """For a client of 2026-07-28 with a server of a legacy era.

    Args:
        ending: What is added to the result of a tool: members after a comma.
        answered: A function of the request and the answer, which does what `Route.after` does.
        called: `Route.after` of a tool's call.

    Attributes:
        tracks: Whether the calls of tools are kept, too, until they are answered.
    """

    def __init__(self, bytes ending not None, answered, called):
        self.ending = ending
        self.answered = answered
        self.called = called

    cdef int request_c(self, Route route, Message m, Edit *edits) except -1:
        if not self.tracks and poi_is(m, WS_METHOD, b'"tools/call"'):
            route.after = self.called
        else:
            route.after = asked(self.answered, m)
        return without_envelope_c(m, edits)

    cdef bint answer_c(self, Route route, Message m) except -1:
        cdef Span result = span_of(m, WS_RESULT)
        cdef Edit edit
        cdef size_t at
        cdef Side asker = route.asker
        if (
            m.kind_c != RESULT or result.p[0] != c'{' or asker.link is None
            or (route.after is not self.called and not is_call(route.after))
            or span_holds(result, b'"_meta"', 7) or span_holds(result, b'"resultType"', 12)
        ):
            return False
        at = m.scan.poi[WS_RESULT].off + result.n - 1
        edit = insertion(at, self.ending, m.p[back_c(m.p, at) - 1] == c'{', 0)
        asker.session.splice_reply_c(route.ref, m, 0, &edit)
        return True


@cython.final
cdef class Raising(Translation):
    """For a client of a legacy era with a server of 2026-07-28.

    Args:
        answered: A function of the request and the answer, which does what `Route.after` does.

    Attributes:
        decodes: Whether each result of a tool is decoded, because the client's revision has fewer
            kinds of content.
    """

    def __init__(self, answered):
        self.answered = answered
        self.declare(b"")

    def declare(self, bytes members not None):
        """Set the members that are added to ``_meta``: JSON text without the braces."""
        self.params = b',"params":{"_meta":{%b}}' % members
        self.meta = b'"_meta":{%b},' % members
        self.members = b"%b," % members

    cdef Edit envelope_c(self, Message m) noexcept:
        """The edit that puts the members into the ``_meta`` of a request."""
        cdef size_t at
        cdef Edit edit
        if m.scan.poi[WS_PARAMS].len == 0:
            if m.scan.poi[WS_PARAMS].off:              # they are null
                edit = insertion(m.scan.poi[WS_PARAMS].off, self.params, PARAMS, 0)
                edit.n = nothing_c(m.p + edit.at, True)
                return edit
            return insertion(m.scan.value.off + m.scan.value.len - 1, self.params, 0, 0)
        if m.scan.poi[WS_META].len == 0:
            at = m.scan.poi[WS_PARAMS].off + 1
            return insertion(at, self.meta, 0, m.p[skip_c(m.p, at)] == c'}')
        at = m.scan.poi[WS_META].off
        if m.p[at] == c'{':
            return insertion(at + 1, self.members, 0, m.p[skip_c(m.p, at + 1)] == c'}')
        edit = insertion(at, self.meta, META, 1)       # null, or worse
        edit.n = m.scan.poi[WS_META].len
        return edit

    cdef int request_c(self, Route route, Message m, Edit *edits) except -1:
        route.after = asked(self.answered, m)
        if is_modern(m):               # sent again, with its envelope
            return 0
        edits[0] = self.envelope_c(m)
        return 1

    cdef bint answer_c(self, Route route, Message m) except -1:
        cdef Span result = span_of(m, WS_RESULT)
        cdef Side asker = route.asker
        if (
            m.kind_c != RESULT or self.decodes or not is_call(route.after)
            or asker.link is None
            or not always_c(result, b'"resultType"', b'"complete"')
            or not always_c(result, b'"structuredContent"', b'{')
        ):
            return False
        asker.session.splice_reply_c(route.ref, m, 0, NULL)
        return True


def open_requests(Side side not None):
    """Return the requests of a side that were passed on and may be suspended, the oldest first."""
    cdef list found = []
    for token in side.session.inflight.tokens:
        if type(token) is Route and type((<Route> token).after) is Asked:
            found.append(((<Route> token).id, (<Asked> (<Route> token).after).request))
    return [request for _, request in sorted(found, key=itemgetter(0))]


@cython.final
cdef class Suspended:
    """Answers a request of a client, and keeps it open at the server.

    Args:
        side: The client.
        request: One of `open_requests`.
        result: The JSON text of the answer.

    Attributes:
        answer: What the server has answered meanwhile, or None.
    """

    def __init__(self, Side side not None, Message request not None, bytes result not None):
        cdef object token = side.session.inflight.token_c(request.ref)
        if type(token) is not Route or type((<Route> token).after) is not Asked:
            raise ValueError("the request is not open")
        self.route = <Route> token
        self.function = (<Asked> self.route.after).function
        side.session.result_c(self.route.ref, result)
        self.route.ref = 0
        self.route.n_token = 0
        self.route.long_token = None
        self.route.after = self
        side.passed_c()

    def __call__(self, Message answer):
        self.answer = answer

    @property
    def is_open(self):
        """Whether the server has answered, or works on it still."""
        return self.answer is not None or self.route.answerer.session.pending.is_live_c(
            self.route.id
        )

    def resume(self, Message request not None):
        """Let another request of the same client get the answer, and the progress."""
        cdef Route route = self.route
        cdef Span token = span_of(request, WS_META_PROGRESS_TOKEN)
        route.ref = request.ref
        route.after = asked(self.function, request)
        keep_progress_token(route, token)
        route.asker.session.set_token_c(request.ref, route)
        if self.answer is not None:
            route.answerer.pass_answer_c(route, self.answer)

    def drop(self):
        """Nobody will ask for the answer: cancel the request at the server."""
        cdef Route route = self.route
        if route.answerer.session.pending.take_c(route.id) is not None:
            route.answerer.cancel(route.id, "the client has left")
        route.over_c(CANCELLED)
