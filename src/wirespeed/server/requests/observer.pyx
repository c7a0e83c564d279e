"""Counts and durations of requests as plain numbers. Metrics are made when they are read.

Without an observer a request costs one comparison. With one, a request costs two readings
of the clock and a few additions; `wirespeed.ext.prometheus` reads the numbers when it is scraped.
"""

cimport cython
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from wirespeed._core._simd cimport WS_NAME
from wirespeed._core.envelope cimport Message

from wirespeed.protocol.revisions import REQUEST_METHODS

BUCKETS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
)

cdef enum:
    MAX_SERIES = 2000          # further names are counted together

# All names that nothing is registered under are counted as one.
cdef str UNKNOWN = "unknown"


cdef double now_c() noexcept:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <double> t.tv_sec + 1e-9 * <double> t.tv_nsec


@cython.final
cdef class Series:
    """Requests of one kind.

    Args:
        method: The method of the requests.
        name: The tool; empty where all requests of a method are counted together.
        bounds: Upper bounds of the buckets, in seconds, rising.
    """

    def __init__(self, str method not None, str name not None, tuple bounds not None):
        cdef double last = -1.0, bound
        if len(bounds) > MAX_BUCKETS:
            raise ValueError(f"more than {MAX_BUCKETS} buckets")
        self.method = method
        self.name = name
        self.codes = {}
        for bound in bounds:
            if not bound > last:
                raise ValueError("bounds of buckets must be above 0, and rise")
            last = self.bounds[self.n_bounds] = bound
            self.n_bounds += 1

    cdef int add_c(self, double seconds, int code, bint failed) except -1:
        cdef int i = 0
        while i < self.n_bounds and seconds > self.bounds[i]:
            i += 1
        self.counts[i] += 1
        self.seconds += seconds
        if failed:
            self.failures += 1
        if code:
            self.codes[code] = self.codes.get(code, 0) + 1
        return 0

    def add(self, double seconds, int code=0, bint failed=False):
        """Count a request: its duration, the code of its error (0: none; 1: cancelled), and whether
        its result says ``isError``."""
        self.add_c(seconds, code, failed)

    @property
    def buckets(self):
        """The number of requests that took no longer than each bound; at the end, of all."""
        cdef list sums = []
        cdef long long total = 0
        cdef int i
        for i in range(self.n_bounds + 1):
            total += self.counts[i]
            sums.append(total)
        return sums


@cython.final
cdef class Observer:
    """The numbers of one server or client.

    Args:
        bounds: Upper bounds of the buckets of durations, in seconds; at most 32.
    """

    def __init__(self, bounds=BUCKETS):
        self.bounds = tuple(bounds)
        self.series = {}
        self.by_method = {}
        self.by_tool = {}
        self.gone = {}
        Series("", "", self.bounds)    # ValueError now, not at the first request

    cdef Series of_c(self, str method, str name):
        cdef tuple key = (method, name)
        found = self.series.get(key)
        if found is None:
            if len(self.series) >= MAX_SERIES and name not in ("", "other"):
                return self.of_c(method, "other")
            found = self.series[key] = Series(method, name, self.bounds)
        return <Series> found

    cdef Series of_method_c(self, str method):
        found = self.by_method.get(method)
        if found is None:
            found = self.by_method[method] = self.of_c(method, "")
        return <Series> found

    cdef Series of_tool_c(self, str name):
        found = self.by_tool.get(name)
        if found is None:
            found = self.by_tool[name] = self.of_c("tools/call", name)
        return <Series> found

    cdef Series of_request_c(self, Message m, object service):
        cdef str method = m.method
        cdef str name
        if method == "tools/call":
            name = m.text_c(WS_NAME)
            return self.of_tool_c(name if name in service.tools.items else UNKNOWN)
        if method not in REQUEST_METHODS and method not in service.extensions.handlers:
            method = UNKNOWN
        return self.of_method_c(method)

    def of(self, str method not None, str name not None=""):
        """The series of a method, and of a name within it. The caller limits the names: after 2,000
        series every further name is counted as ``other``."""
        return self.of_c(method, name)

    def joined(self):
        """A connection was made."""
        self.n_connections += 1

    def left(self, dict counters not None):
        """A connection has ended; these are its counters."""
        for name, value in counters.items():
            self.gone[name] = self.gone.get(name, 0) + value


cdef class RequestSpan:
    """The span of a request. `entered` is called when the request begins, `end_call` at its end."""

    cpdef object entered(self, object base):
        """A copy of a context (of `contextvars`) in which this span is the current one."""
        raise NotImplementedError

    cpdef object end_call(self, int code, bint failed):
        """The request has ended: the code of its error (0: none; 1: cancelled), and whether its
        result says ``isError``."""
        raise NotImplementedError
