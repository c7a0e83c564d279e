"""Coroutine handlers run in pooled, real asyncio tasks. pooled_tasks.pyx explains the idea."""

from wirespeed.transport.taskpool cimport Completion, Running, TaskPool


cdef class PooledTasks(TaskPool):
    cdef dict current             # in which both keep the current task of each loop; or None
    cdef list parked              # a stack of workers: the last one used is warm
    cdef _Worker hot              # the top of that stack, outside of the list; or None
    cdef set workers              # every worker whose task is not done
    cdef Py_ssize_t idle_refs     # reference count of a parked task that no other code holds
    cdef Py_ssize_t step_refs     # the same inside a step of the task; 0: not measured yet
    cdef bint native              # tasks are _asyncio.Task: C getters may be called directly

    cdef bint enter_c(self, object task) except -1
    cdef bint leave_c(self, object task) noexcept
    cdef _Worker take_c(self)
    cdef bint has_room_c(self) noexcept
    cdef int park_c(self, _Worker worker) except -1
    cdef _Worker new_worker_c(self)
    cdef int release_c(self, _Worker worker, object result, object exc) except -1


cdef class _Worker:
    cdef PooledTasks pool
    cdef object task
    cdef str name
    cdef object context           # the task's own; no handler ever runs in it
    cdef object wakeup            # the task's callback; set while this worker alone has it
    cdef object wakeup_context
    cdef object coro              # of the request, from its first suspension on
    cdef object request_context
    cdef Completion hook
    cdef Running running
    cdef object waiting           # the object of the first suspension, until it is handed over
    cdef object pending           # exception to throw at the next step
    cdef object outcome           # in ENDING: how the task is to finish
    cdef object failure
    cdef int phase
    cdef Py_ssize_t idle_refs
    cdef int weakrefs
    cdef bint fresh               # the task has not run its first step
    cdef bint listed              # in the pool's stack
    cdef bint absorb              # the cancellation to come has reached the awaited future
    cdef public bint _asyncio_future_blocking

    cdef object _step(self, object exc)
    cdef object _finish(self, object result, object exc)
    cdef object _park(self)
    cdef int _suspend(self, object waiting) except -1
    cdef bint _accepts(self, object waiting) except -1
    cdef int _wake(self) except -1
    cdef int _end(self, object result, object exc) except -1
    cdef int _dead(self, object exc) except -1
    cdef bint _clean(self, Py_ssize_t refs) except -1
    cdef bint _must_cancel(self) except -1
