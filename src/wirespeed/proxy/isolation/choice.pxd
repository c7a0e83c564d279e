from wirespeed.proxy.side cimport Choice, Translation


cdef class LeastLoaded(Choice):
    cdef list servers
    cdef list clients            # of each server, a set: those that it has had a request of


cdef class TaskNames(Translation):
    pass


cdef class TaskRequests(Translation):
    cdef object after            # a function of the client and its request: `Route.after`
