from wirespeed._core.envelope cimport Message
from wirespeed.proxy.party cimport Party


cdef class Choice:
    cdef list servers
    cdef list clients            # of each server, a set: those that it has had a request of

    # The server that gets a request of the modern era; None: that is to be looked at.
    cdef Party choose_c(self, Party asker, Message m)
