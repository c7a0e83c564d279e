from wirespeed._core.envelope cimport Message

# The same request with another `params._meta`, JSON text. Nothing else of it is decoded.
cdef Message with_meta_c(Message m, bytes meta)
