"""Runs coroutines as handlers in asyncio tasks. taskpool.pyx explains the interface."""


cdef class Completion:
    # Called once for each request that start_c() accepted.
    cdef int done_c(self, object result, object exc) except -1


cdef class Running:
    cdef readonly object task     # the asyncio.Task; None before a deferred start and after the end
    cdef object coro              # set while the start is still to come
    cdef Completion hook          # set until the end, unless a pooled task has it
    cdef object context           # the request's own; set while the start is still to come
    cdef object cancellation      # CancelledError that awaits the start, or None

    cpdef bint cancel(self, object msg=*) except -1
    cpdef bint done(self) noexcept


cdef class TaskPool:
    cdef readonly object loop
    cdef readonly Py_ssize_t max_idle
    cdef readonly bint closed
    cdef readonly object context  # each request runs in a copy of it
    cdef object callback_context  # callbacks of the loop run in it
    cdef object task_type
    cdef object enter, leave      # _enter_task and _leave_task of asyncio
    cdef set deferred             # Running handles that wait for their callback
    cdef set requests             # Running handles of plain tasks that are not done

    cdef object start_c(self, object coro, Completion hook, object context=*)
    cdef object first_step_c(
        self, object coro, Completion hook, Running running, object exc, object context)
    cdef object defer_c(self, object coro, Completion hook, Running running, object context)
    # Around what starts requests at once, inside a task: no task is current meanwhile.
    cdef object step_out_c(self)
    cdef int step_in_c(self, object task) except -1
    cdef object copied_c(self, object coro, object context)
    cdef object name_c(self)
    cdef list live_c(self)
    cdef int cancel_all_c(self) except -1
    cdef int forget_c(self, object task) except -1
    cdef int check_c(self, object coro) except -1
    cdef int deliver_c(self, Completion hook, object result, object exc) except -1
    cdef int report_c(self, str message, object exc, object task) except -1


cdef object cancelled_error_c(object msg)
cdef bint leaves_loop_c(object exc) noexcept
