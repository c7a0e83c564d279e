"""Requests that a server works on while their client has an answer already: an ``input_required``.

The client's next request takes the place of the first.
"""

cimport cython

from wirespeed._core._simd cimport WS_META_PROGRESS_TOKEN
from wirespeed._core.envelope cimport Message, span_of
from wirespeed._core.span cimport Span
from wirespeed.server.requests.observer cimport CANCELLED
from wirespeed.proxy.side cimport Route, Side, set_token_of
from wirespeed.proxy.translation.edits cimport Asked, asked


def open_requests(Side side not None):
    """Return the requests of a side that were passed on and may be suspended, the oldest first."""
    cdef list found = []
    for token in side.session.inflight.tokens:
        if type(token) is Route and type((<Route> token).after) is Asked:
            found.append(((<Route> token).id, (<Asked> (<Route> token).after).request))
    return [request for _, request in sorted(found, key=first)]


def first(pair):
    return pair[0]


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
        set_token_of(route, token)
        route.asker.session.set_token_c(request.ref, route)
        if self.answer is not None:
            route.answerer.pass_answer_c(route, self.answer)

    def drop(self):
        """Nobody will ask for the answer: cancel the request at the server."""
        cdef Route route = self.route
        if route.answerer.session.pending.take_c(route.id) is not None:
            route.answerer.cancel(route.id, "the client has left")
        route.over_c(CANCELLED)
