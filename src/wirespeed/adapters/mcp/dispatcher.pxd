from libc.stdint cimport int64_t, uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.span cimport Span
from wirespeed.peer.connection cimport SessionConnection
from wirespeed.transport.taskpool cimport Completion, Running, TaskPool


cdef enum Era:
    UNDECIDED = 0                      # the first request decides
    LEGACY = 1
    MODERN = 2
    ANY_ERA = 3                        # handlers do not depend on it: a client's


cdef class SdkDispatcher(SessionConnection)


# A request or a notification of the peer, as the SDK's handlers see it.
cdef class MessageContext(Completion):
    cdef SdkDispatcher dispatcher
    cdef uint64_t ref                  # 0: of a notification
    cdef readonly object request_id    # None: of a notification
    cdef readonly str method
    cdef object progress_token
    cdef Running running               # None before a suspension and after the end
    cdef object event                  # of `cancel_requested`; None: nobody has asked for it
    cdef readonly object exchange      # of HTTP; None elsewhere
    cdef readonly bytes envelope       # the text of `_meta` of 2026-07-28; None: see `envelope_c`
    cdef readonly bint is_routed       # the header fields of a call have the bytes of its body
    cdef object metadata               # made at the first access
    cdef int rounds                    # how often it was cancelled
    cdef bint closed                   # the handler has ended
    cdef bint cancelled                # by the peer
    cdef readonly bint modern          # handlers cannot ask the client

    cdef int interrupt_c(self) except -1


# A request of ours that waits for its answer.
cdef class SentRequest:
    cdef object future
    cdef readonly object on_progress
    cdef object token                  # that progress notifications name
    cdef bint expired


cdef class SdkDispatcher(SessionConnection):
    cdef TaskPool pool
    cdef bint owns_pool
    cdef object make_link              # called with the dispatcher by `run`; or None
    cdef object context                # handlers run in copies of it
    cdef object on_request, on_notify, on_modern, on_modern_notify, on_stateless, intercept
    cdef public object on_stream_exception
    cdef public object on_ended        # called when the link is gone; or None
    cdef public object describe        # makes the metadata of a message that HTTP brought; or None
    cdef public object agreed          # returns the version that `initialize` agreed on; or None
    cdef public object make_transport  # makes the SDK's TransportContext of a message
    cdef Era era
    cdef public bint drains_at_eof     # requests are answered, not cancelled, when the peer leaves
    cdef public bint raises            # an exception of a handler ends the connection
    cdef public bint interrupts        # a cancellation of the peer cancels the handler
    cdef public bint names_requests    # ids are 1, 2, 3 …, or those of callers
    cdef public bint asks              # handlers may ask the client
    cdef public bint parks             # requests wait until `initialize` is answered
    cdef bint started, shut
    cdef int64_t last_id
    cdef dict aliases                  # number -> id of its caller; None: there are none
    cdef set live                      # contexts of handlers that are suspended
    cdef MessageContext parked         # `initialize` runs, and further requests wait for its end
    cdef list early                    # notifications before the first request
    cdef public object failure         # an exception that `raises` made the end of the connection

    cdef int request_c(self, Message m) except -1
    cdef object handler_c(self, MessageContext c, Message m, object params)
    cdef bytes envelope_c(self, Message m)
    cdef int refuse_c(self, MessageContext c, int code, str text) except -1
    cdef int answer_c(self, MessageContext c, object result, object exc) except -1
    cdef int result_c(self, MessageContext c, object result) except -1
    cdef int fail_c(self, MessageContext c, object exc) except -1
    cdef int error_c(
        self, MessageContext c, object code, str text, object data, bint of_handler=*
    ) except -1
    cdef int notification_c(self, Message m) except -1
    cdef int name_subscription_c(self, dict params) except -1
    cdef int progress_c(self, SentRequest sent, object params) except -1
    cdef int note_c(self, str method, object params) except -1
    cdef int start_notice_c(self, object coro, str what) except -1
    cdef object by_other_type_c(self, Span id)
    cdef int cancel_c(self, MessageContext c) except -1
    cdef int unwound_c(self, MessageContext c) except -1
    cdef int answered_c(self, Message m) except -1
    cdef int stop_c(self) except -1
    cdef int fail_sent_c(self) except -1
    cdef int64_t send_c(
        self, SentRequest sent, str method, object params, object id, uint64_t about
    ) except -1
