"""Coroutine handlers run in pooled, real asyncio tasks. Read taskpool.pyx for the idea."""

from cpython.object cimport PyObject


cdef class Completion:
    # Called once for every request that start_c() accepted, see Completion in taskpool.pyx.
    cdef int done_c(self, object result, object exc) except -1


cdef class Running:
    cdef TaskPool _pool
    cdef _Worker _worker          # set between the first suspension and the end
    cdef object _coro             # set while the start is still to come
    cdef Completion _hook         # the same
    cdef object _cancel           # CancelledError that awaits the start, or None

    cpdef bint cancel(self, object msg=*) except -1
    cpdef bint done(self) noexcept


cdef class TaskPool:
    cdef readonly object loop
    cdef readonly Py_ssize_t max_idle
    cdef object _task_type
    cdef object _enter
    cdef object _leave
    cdef object _base             # what every request's context is a copy of
    cdef bint _own_base           # it was made for the request that is started next, which gets it
    cdef object _callback_context
    cdef list _idle               # a stack: the last one used is warm
    cdef set _workers             # every worker whose task is not done
    cdef set _deferred            # Running handles that wait for their callback
    cdef Py_ssize_t _idle_refs    # reference count of a parked task that nobody else knows
    cdef Py_ssize_t _step_refs    # the same inside a step of the task; 0: not measured yet
    cdef bint _native             # tasks are _asyncio.Task: C getters may be called directly
    cdef bint _closed

    cdef object start_c(self, object coro, Completion hook)
    cdef object _first_step(self, object coro, Completion hook, Running running, object exc)
    cdef object _defer(self, object coro, Completion hook, Running running)
    cdef _Worker _take(self)
    cdef _Worker _new_worker(self)
    cdef int _release(self, _Worker worker, object result, object exc) except -1
    cdef int _deliver(self, Completion hook, object result, object exc) except -1
    cdef int _report(self, str message, object exc, object task) except -1
    cdef int _check(self, object coro) except -1


cdef class _Worker:
    cdef TaskPool pool
    cdef object task
    cdef str name
    cdef object context           # the task's own; no handler ever runs in it
    cdef object wakeup            # the task's callback; set while parked and nobody else has it
    cdef object wakeup_context
    cdef object coro              # of the request, from its first suspension on
    cdef object request_context
    cdef Completion hook
    cdef Running running
    cdef object waiting           # what the first suspension yielded, until handed over
    cdef object pending           # exception to throw at the next step
    cdef object outcome           # in ENDING: how the task is to finish
    cdef object failure
    cdef int phase
    cdef Py_ssize_t idle_refs
    cdef int weakrefs
    cdef bint fresh               # the task has not run its first step
    cdef bint listed              # in the pool's stack
    cdef bint absorb              # the cancellation to come has reached what we wait for
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
