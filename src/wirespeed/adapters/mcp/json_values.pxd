from wirespeed._core.span cimport Span

# The value of a JSON text, which is read in place.
cdef object loads_c(Span s)
cdef object loads_bytes_c(bytes text)
# The JSON text of a value, as the SDK writes it.
cdef bytes dumps_c(object value)
# The JSON text of the name of a method.
cdef bytes method_json_c(str method)
