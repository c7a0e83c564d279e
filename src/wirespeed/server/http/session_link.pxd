from wirespeed.server.http.sessions cimport Session
from wirespeed.transport.link cimport Link


cdef class SessionLink(Link):
    cdef public Session session        # whose connection it is; None: a lane
    cdef public object carry           # gets the messages of the own stream; None drops them
    cdef public object on_room         # called while the session reads on; or None
    cdef public bint full              # what carries them has no room
    cdef Link via                      # the link that the answers leave by, where it is one
    cdef bint lost

    cdef int wrote_own_c(self) except -1
    cdef int lose_c(self, object exc) except -1
