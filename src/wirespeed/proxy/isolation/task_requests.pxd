from wirespeed.proxy.side cimport Translation


cdef class TaskNames(Translation):
    pass


cdef class TaskRequests(Translation):
    cdef object after            # a function of the client and its request: `Route.after`
