from wirespeed._core.envelope cimport Message
from wirespeed.server.middleware.inbound cimport InboundRequest
from wirespeed.server.requests.call cimport AnswerSink, Call, Operation, Pipeline


cdef class Chain(Pipeline):
    cdef readonly tuple links          # the middleware, outermost first


cdef class HandlerAnswer(AnswerSink):
    cdef ChainCall chain_call
    cdef Message message               # in place of the client's, or None
    cdef Call call                     # the handler's, from the first step on
    cdef object work                   # awaitable: what the handler's call has left to wait for
    cdef object waiter                 # future: the answer of a run in a task of its own; or None
    cdef bytes body                    # the handler's result
    cdef object fault                  # ProtocolError: the handler's error
    cdef bint ended
    cdef bint cancelled_with_chain     # the handler ended because the chain was cancelled

    cdef object call_handler_c(self)
    cdef int returned_c(self, object value) except -1
    cdef int raised_c(self, object exc) except -1
    cdef int leave_c(self) except -1
    cdef int abandon_c(self) except -1
    cdef object outcome_c(self)
    cdef int wake_c(self) except -1


cdef class ChainCall(Call):
    cdef Message message
    cdef Chain chain
    cdef InboundRequest request        # what middleware sees; None once the chain has ended
    cdef HandlerAnswer answer          # the last one that called the handler, or None
    cdef bint is_open                  # subscriptions/listen: answered over the wire
