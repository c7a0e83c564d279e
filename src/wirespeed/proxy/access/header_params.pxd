from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed.proxy.side cimport AccessCheck, Side


cdef class HeaderParams(AccessCheck):
    cdef object ask                    # coroutine function of a client: name -> ParamFields
    cdef dict tools                    # name -> its ParamFields
    cdef dict texts                    # the same by the JSON text of the name, as far as it came
    cdef object asking                 # a task; None: nobody is asked
    cdef set held                      # tasks of the calls that wait for the answer
    cdef double asked, until           # when it was asked last; when it is to be asked again
    cdef long long n_changes           # of the list

    cdef tuple fields_c(self, Side asker, str name)
    cdef int begin_c(self, Side asker) except -1
    cdef int hold_c(self, Side asker, Message m, HttpHead head, str name) except -1
    cdef int keep_c(self, Message m, tuple fields) except -1
    cdef bint agrees_c(self, Side asker, Message m, HttpHead head, tuple fields) except -1
