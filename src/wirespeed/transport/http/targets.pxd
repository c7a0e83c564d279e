# What the connections of one listener share.
cdef class HttpSite:
    cdef readonly dict targets         # path as a request has it, bytes: HttpTarget
    cdef readonly object gate          # who may come in
    cdef bint early                    # the gate decides at once, by the head alone
    cdef readonly object options       # HttpOptions
    cdef long max_requests             # of a connection; 0: no limit
    cdef readonly object limits        # of a connection: the largest of the services
    cdef readonly object loop
    cdef object quiet                  # logs refusals, not too many
    cdef object forwarded              # finds clients behind trusted proxies; None without these
    cdef object log                    # of requests, or None
    cdef set admitting                 # tasks that await verdicts of the gate
    cdef bytes date                    # the Date field with its line end
    cdef double date_until, now        # in Unix seconds; `date_c` reads the clock

    cdef object admit_c(self, object admission)
    cdef bytes date_c(self)
