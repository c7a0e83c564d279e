"""The requests of the clients of one server that are about tasks."""

cimport cython

from wirespeed._core.envelope cimport Message, method_is
from wirespeed._core.splice cimport Edit
from wirespeed.proxy.given cimport names_task_c, names_tasks_c
from wirespeed.proxy.side cimport Route, Translation


@cython.final
cdef class TaskNames(Translation):
    """Has requests of 2026-07-28 looked at that may name tasks, by `route`: the ids have seals."""

    cdef int request_c(self, Route route, Message m, Edit *edits) except -1:
        return 0

    cdef bint answer_c(self, Route route, Message m) except -1:
        return False

    cdef bint diverts_c(self, Message m) noexcept:
        return names_tasks_c(m)


@cython.final
cdef class TaskRequests(Translation):
    """Has the answers to calls that ask for a task looked at, and those to ``tasks/list``, each
    time that such a request is sent. Nothing is edited.

    Args:
        after: A function of the client and the request that returns `Route.after`.
    """

    def __init__(self, after):
        self.after = after

    cdef int request_c(self, Route route, Message m, Edit *edits) except -1:
        if method_is(m, b'"tools/call"', "tools/call"):
            if names_task_c(m):
                route.after = self.after(route.asker, m)
        elif method_is(m, b'"tasks/list"', "tasks/list"):
            route.after = self.after(route.asker, m)
        return 0

    cdef bint answer_c(self, Route route, Message m) except -1:
        return False
