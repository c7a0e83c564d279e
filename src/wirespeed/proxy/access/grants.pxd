from wirespeed.proxy.side cimport AccessCheck


# What one principal may use at one endpoint.
cdef class PrincipalGrant:
    cdef readonly str name             # the principal's
    cdef object servers                # function of the name of a server
    cdef object allows                 # function of the name of a tool; None: all of them
    cdef dict known                    # JSON text of a name -> whether it is allowed

    cdef bint allows_c(self, bytes text, str name) except -1


cdef class Grants(AccessCheck):
    cdef dict grants                   # digest of a principal -> PrincipalGrant
    cdef PrincipalGrant everyone                # of other clients; None: they may use nothing
    cdef readonly long long n_refused  # requests

    cdef PrincipalGrant of_c(self, object principal)
