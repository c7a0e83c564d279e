from wirespeed.server.requests.observer cimport Series


cdef class Breakdown:
    cdef readonly dict tools           # JSON text of the name -> Series
    cdef readonly dict principals      # digest, or None -> Series
    cdef readonly Series other_tools   # of names that are not kept
    cdef readonly Series other_principals

    # A request has ended; `tool`: the JSON text of the name of the tool, or None.
    cdef int add_c(self, bytes tool, object principal, double seconds, int code) except -1
