from wirespeed._core.envelope cimport Message
from wirespeed.server.middleware.eager cimport EagerAwaitable
from wirespeed.server.requests.call cimport Call, Operation


cdef class Chain:
    cdef readonly tuple links          # the middleware, outermost first


cdef class ChainCall(Call):
    cdef Message message
    cdef Chain chain
    cdef object asked                  # the InboundRequest that middleware sees
    cdef Call inner                    # what the handler's run is, while there is one
    cdef Operation reached             # whose handler ran; or None
    cdef object work                   # the handler's coroutine, until it is awaited
    cdef Call cut                      # the handler's run that ended with the chain's task, or None
    cdef object waiter                 # future: the answer of a run in a task of its own; or None
    cdef bytes body                    # the handler's result
    cdef object fault                  # ProtocolError: the handler's error
    cdef int body_failed               # whether the result says isError; -1: not known
    cdef bint open                     # answered over the wire: subscriptions/listen

    cdef int begin_c(self) except -1
    cdef object reach_c(self, EagerAwaitable eager)
    cdef object outcome_c(self)
    cdef int heard_c(self) except -1
