"""HTTP/1.1 as data: the bytes of each class, and the status and sentence of each fault."""

from libc.stdint cimport uint8_t

cdef uint8_t table[256]
classes = table

cdef bytes ALNUM = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


cdef int mark_class(bytes members, int bit) except -1:
    cdef uint8_t c
    for c in members:
        table[c] = <uint8_t> (table[c] | bit)
    return 0


mark_class(ALNUM + b"!#$%&'*+-.^_`|~", IN_TOKEN)
mark_class(b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100)), IN_VALUE)
mark_class(ALNUM + b"-._~:/[]@!$&'()*+,;=%\\^`{|}", IN_TARGET)
mark_class(ALNUM + b"-._~!$&'()*+,;=%", IN_HOST)
mark_class(ALNUM + b"-._~!$&'()*+,;=:", IN_LITERAL)
mark_class(
    b"\t !" + bytes(range(0x23, 0x5C)) + bytes(range(0x5D, 0x7F)) + bytes(range(0x80, 0x100)),
    IN_QUOTES,
)

# Status and sentence of each Fault; "{}" stands for the limit.
cdef tuple FAULTS = (
    (500, "there is no fault"),
    (400, "this is not an HTTP request"),
    (400, "the first line is not a method, a target and a version with one space between them"),
    (501, "the method has more than {} characters"),
    (414, "the target has more than {} bytes"),
    (400, "the target has a character that a URI does not have"),
    (400, "the target is neither a path nor an http URL"),
    (501, "CONNECT is a method of proxies"),
    (505, "the HTTP version is neither 1.0 nor 1.1"),
    (502, "the first line is not an HTTP version, a status of three digits and a reason"),
    (400, "a line ends with a newline without a carriage return"),
    (400, "a carriage return is not followed by a newline"),
    (400, "a header line begins with white space"),
    (400, "the name of a header field is not a token"),
    (400, "white space stands between the name of a header field and its colon"),
    (400, "the value of a header field has a control character"),
    (431, "the head has more than {} bytes"),
    (431, "the head has more than {} header fields"),
    (400, "the Host field is missing"),
    (400, "the Host field occurs twice"),
    (400, "the Host field is not a host with an optional port"),
    (400, "the Content-Length field occurs twice"),
    (400, "the Content-Length field is not one decimal number of at most 19 digits"),
    (400, "the Transfer-Encoding field occurs twice"),
    (400, "the Transfer-Encoding field does not end with chunked"),
    (501, "the only supported transfer coding is chunked"),
    (400, "HTTP/1.0 has no Transfer-Encoding field"),
    (400, "the fields Content-Length and Transfer-Encoding occur together"),
    (417, "the only supported expectation is 100-continue"),
    (413, "the body has more than {} bytes"),
    (400, "the size of a chunk is not a hexadecimal number of at most 16 digits"),
    (400, "the extension of a chunk is malformed"),
    (400, "a chunk is not followed by the end of a line"),
    (431, "the chunk extensions and trailers of a body have more than {} bytes"),
    (400, "the stream ended inside a message"),
)
assert len(FAULTS) == <int> N_FAULTS


cdef tuple failure_of(Fault fault, size_t limit, bint response):
    """The status of a fault and its sentence. The status of a response's fault is 502."""
    status, sentence = FAULTS[<int> fault]
    return (502 if response else status), sentence.format(limit)
