"""The requests to one server by tool and by principal: counts, errors and durations.

Names come from clients, so there are at most 500 tools: a tool gets a place with its first result,
and further tools are counted together.
"""

cimport cython

from wirespeed.server.requests.observer cimport Series

from wirespeed.server.requests.observer import BUCKETS

cdef enum:
    MAX_TOOLS = 500
    MAX_PRINCIPALS = 1000
    MAX_NAME = 200               # bytes of the JSON text of a name


cdef Series series(str method):
    return Series(method, "", BUCKETS)


@cython.final
cdef class Breakdown:
    """The numbers of one server.

    Attributes:
        tools: The calls of each tool, by the JSON text of its name.
        principals: The requests of each principal, by its digest; None: of clients without one.
        other_tools, other_principals: The sums of all that have no place.
    """

    def __init__(self):
        self.tools = {}
        self.principals = {}
        self.other_tools = series("other")
        self.other_principals = series("other")

    cdef int add_c(self, bytes tool, object principal, double seconds, int code) except -1:
        cdef object found
        if tool is not None:
            found = self.tools.get(tool)
            if found is None:
                if code == 0 and len(self.tools) < MAX_TOOLS and len(tool) <= MAX_NAME:
                    found = self.tools[tool] = series("tools/call")
                else:
                    found = self.other_tools
            (<Series> found).add_c(seconds, code, False)
        found = self.principals.get(principal)
        if found is None:
            if len(self.principals) < MAX_PRINCIPALS:
                found = self.principals[principal] = series("")
            else:
                found = self.other_principals
        return (<Series> found).add_c(seconds, code, False)

    def add(self, bytes tool, bytes principal, double seconds, int code):
        """Count a request that has ended."""
        self.add_c(tool, principal, seconds, code)
