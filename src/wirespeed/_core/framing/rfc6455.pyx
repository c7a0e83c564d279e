"""The close codes of RFC 6455 in words. The `.pxd` file says which event leads to which code."""

# Section 7.4.1, and the registry of section 11.7.
cdef dict WORDS = {
    1000: "normal closure",
    1001: "going away",
    1002: "protocol error",
    1003: "unsupported data",
    1005: "no code given",
    1007: "not UTF-8",
    1008: "policy violation",
    1009: "message too big",
    1010: "an extension is missing",
    1011: "internal error",
    1012: "service restart",
    1013: "try again later",
    1014: "bad gateway",
}


def describe(int code):
    """Return a close code with its meaning: "1008 policy violation"."""
    words = WORDS.get(code)
    return f"{code} {words}" if words else str(code)
