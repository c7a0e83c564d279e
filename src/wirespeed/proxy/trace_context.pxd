from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.http.head cimport HttpHead

# The same request with another `params._meta`, JSON text. Nothing else of it is decoded.
cdef Message with_meta_c(Message m, bytes meta)
# The same request with the trace context of the header fields, if it has none of its own.
cdef Message with_fields_c(Message m, HttpHead head)
