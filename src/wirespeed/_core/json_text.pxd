# The JSON text of a string. UnicodeEncodeError: the string has lone surrogates.
cdef bytes quoted(object text)
# The same, with lone surrogates as escapes.
cdef bytes quoted_always(object text)
# The string of a valid JSON text. Lone surrogates, legal in JSON as escapes, are kept.
cdef str unquoted(bytes text)
# The JSON text of None, bool, int, float, str, list, tuple or dict. NaN and infinities are null;
# lone surrogates are written as escapes. TypeError: of any other value.
cdef bytes json_text(object value)
