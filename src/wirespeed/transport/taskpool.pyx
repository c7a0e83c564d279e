"""Runs coroutines as handlers: the interface of a task pool, and its plain form.

`TaskPool` makes one `asyncio.Task` a request. The task starts eagerly where Python can do so (3.12
and later): the handler's first step runs before `start_c` returns. On Python 3.11 the first step
runs in the next turn of the loop.

`wirespeed.transport.pooled_tasks.PooledTasks` has the same interface and reuses its tasks, which is
faster, but relies on how CPython implements tasks. `wirespeed.transport.taskpool_choice.open_pool`
chooses between the two.
"""

cimport cython

import asyncio
import sys
from asyncio import CancelledError, current_task, iscoroutine
from asyncio.events import _get_running_loop
from functools import partial

cdef extern from "Python.h":
    bint PyCoro_CheckExact(object o) noexcept
    object PyContext_Copy(object context)
    object PyContext_CopyCurrent()

cdef dict EAGER = {"eager_start": True} if sys.version_info >= (3, 12) else {}
cdef unsigned long long serial = 0


cdef object cancelled_error_c(object msg):
    return CancelledError() if msg is None else CancelledError(msg)


cdef bint leaves_loop_c(object exc) noexcept:
    return isinstance(exc, (KeyboardInterrupt, SystemExit))


cdef class Completion:
    """The receiver of the outcome of a request. Subclass it in Cython and override `done_c`.

    `done_c(result, exc)` is called exactly once for each accepted request, with the handler's
    result and None, or with None and its exception (`asyncio.CancelledError` if it was
    cancelled). It runs outside of the request's context and while no task is current, so that it
    may start the next request; it may run before `start_c` returns. An exception of its own goes
    to the loop's exception handler, except KeyboardInterrupt and SystemExit, which propagate.
    """

    cdef int done_c(self, object result, object exc) except -1:
        return 0


@cython.final
cdef class _Callback(Completion):
    """Calls a Python function with (result, exc)."""
    cdef object func

    cdef int done_c(self, object result, object exc) except -1:
        self.func(result, exc)
        return 0


@cython.final
@cython.freelist(64)
cdef class Running:
    """A request that did not finish while it was being started."""

    def __init__(self):
        raise TypeError("Running is made by TaskPool")

    cpdef bint cancel(self, object msg=None) except -1:
        """Cancel the request as `asyncio.Task.cancel` does; False if it has ended already.

        Before its deferred start the handler is cancelled without having run at all.
        """
        if self.task is not None:
            return self.task.cancel(msg)
        if self.coro is None:
            return False
        self.cancellation = cancelled_error_c(msg)
        return True

    cpdef bint done(self) noexcept:
        """Whether the request has ended; its hook has then been called or is being called."""
        return self.task is None and self.coro is None


cdef class TaskPool:
    """Runs coroutines in tasks of one event loop.

    Each request runs in its own copy of a context: the one that `start` is given, by default the
    context in which the pool was created. A pool belongs to its loop's thread.

    Args:
        loop: The event loop.
        max_idle: The number of parked tasks that the pool keeps, if it reuses tasks.
    """

    def __cinit__(self, loop, *, Py_ssize_t max_idle=256):
        if max_idle < 0:
            raise ValueError(f"max_idle must not be negative, got {max_idle}")
        self.loop = loop
        self.max_idle = max_idle
        # Looked up here, not at import: a program may have put the pure-Python tasks in place.
        self.task_type = asyncio.tasks.Task
        self.enter = asyncio.tasks._enter_task
        self.leave = asyncio.tasks._leave_task
        self.context = PyContext_CopyCurrent()
        self.callback_context = PyContext_Copy(self.context)
        self.deferred = set()
        self.requests = set()

    @property
    def idle(self):
        """The number of tasks that are ready for a request."""
        return 0

    @property
    def tasks(self):
        """The number of tasks of this pool that are not done, parked ones included."""
        return len(self.live_c())

    def start(self, coro, callback, /, context=None):
        """Run `coro` and call `callback(result, exc)` once, at its end.

        Returns None if the coroutine finished before this method returned, else a `Running`.
        If a task is current, or the loop is not running yet, the start is put off to a callback
        of the loop (`loop.call_soon`). KeyboardInterrupt and SystemExit go to the callback and
        then propagate, out of this method or out of the loop.

        Raises TypeError if `coro` is not a coroutine, RuntimeError if the pool is closed or
        another loop is running in this thread; `coro` is closed then.
        """
        cdef _Callback hook = _Callback.__new__(_Callback)
        hook.func = callback
        running = _get_running_loop()
        if running is self.loop:
            return self.start_c(coro, hook, context)
        self.check_c(coro)
        if running is not None:
            coro.close()
            raise RuntimeError("the pool belongs to another event loop")
        return self.defer_c(coro, hook, None, self.copied_c(coro, context))

    cdef object start_c(self, object coro, Completion hook, object context=None):
        """As `start`; the caller is on the loop's thread and the loop is running."""
        if self.closed or not PyCoro_CheckExact(coro):
            self.check_c(coro)
        return self.first_step_c(coro, hook, None, None, self.copied_c(coro, context))

    cdef object step_out_c(self):
        """Make no task the current one: a request that starts meanwhile is not put off. Returns
        what `step_in_c` takes."""
        cdef object task = current_task(self.loop)
        if task is not None:
            self.leave(self.loop, task)
        return task

    cdef int step_in_c(self, object task) except -1:
        """Make a task the current one again."""
        if task is not None:
            self.enter(self.loop, task)
        return 0

    cdef object copied_c(self, object coro, object context):
        try:
            return PyContext_Copy(self.context if context is None else context)
        except BaseException:
            coro.close()
            raise

    cdef int check_c(self, object coro) except -1:
        if not iscoroutine(coro):
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        if self.closed:
            coro.close()  # else it would warn that it was never awaited
            raise RuntimeError("the task pool is closed")
        return 0

    cdef object first_step_c(
            self, object coro, Completion hook, Running running, object exc, object context):
        """Start a request in `context`, or throw `exc` into its coroutine, if that is not None."""
        cdef TaskPool me = self        # the handler's first step may drop the pool
        cdef object task
        if exc is not None:
            coro.close()
            self.deliver_c(hook, None, exc)
            return None
        if current_task(self.loop) is not None:
            return self.defer_c(coro, hook, running, context)
        if running is None:
            running = Running.__new__(Running)
        running.hook = hook
        self.requests.add(running)     # without a task: in its first step
        try:
            # Not loop.create_task(): a task factory would wrap the coroutine.
            task = self.task_type(
                coro, loop=self.loop, name=self.name_c(), context=context, **EAGER)
        except BaseException as error:
            self.requests.discard(running)
            running.hook = None
            if leaves_loop_c(error):
                self.deliver_c(hook, None, error)
            raise
        if task.done():
            self._ended(running, task)
            return None
        running.task = task
        task.add_done_callback(partial(me._ended, running), context=me.callback_context)
        return running

    def _ended(self, Running running not None, task):
        """The plain task of a request is done."""
        cdef Completion hook = running.hook
        cdef object result = None, exc = None
        self.requests.discard(running)
        running.task = running.hook = None
        try:
            exc = task.exception()
            if exc is None:
                result = task.result()
        except CancelledError as error:
            exc = error
        self.deliver_c(hook, result, exc)

    cdef object defer_c(self, object coro, Completion hook, Running running, object context):
        if running is None:
            running = Running.__new__(Running)
        try:
            self.loop.call_soon(self._begin, running, context=self.callback_context)
        except BaseException:
            coro.close()  # the loop is closed
            raise
        running.coro = coro
        running.hook = hook
        running.context = context
        self.deferred.add(running)
        return running

    def _begin(self, Running running not None):
        cdef object coro = running.coro, context = running.context
        cdef Completion hook = running.hook
        self.deferred.discard(running)
        running.coro = running.hook = running.context = None
        self.first_step_c(coro, hook, running, running.cancellation, context)

    cdef object name_c(self):
        global serial
        serial += 1
        return f"wirespeed-{serial}"

    cdef int deliver_c(self, Completion hook, object result, object exc) except -1:
        try:
            hook.done_c(result, exc)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.report_c("the completion hook of a request failed", error, None)
        return 0

    cdef int report_c(self, str message, object exc, object task) except -1:
        cdef dict context = {"message": message, "exception": exc}
        if task is not None:
            context["task"] = task
        self.loop.call_exception_handler(context)
        return 0

    cdef list live_c(self):
        """The tasks of this pool that are not done."""
        return [running.task for running in self.requests if running.task is not None]

    cdef int cancel_all_c(self) except -1:
        for task in self.live_c():
            task.cancel()
        return 0

    cdef int forget_c(self, object task) except -1:
        """Stop counting a task that is not done."""
        cdef Running running
        for running in self.requests:
            if running.task is task:
                self.requests.discard(running)
                break
        return 0

    async def aclose(self):
        """Cancel every request, wait until all have ended, and finish every task of the pool.

        No request can be started afterwards. Later calls wait for the same end. Raises RuntimeError
        if called by a handler of this pool (it would wait for itself) or in another loop.
        """
        cdef Running running
        if _get_running_loop() is not self.loop:
            raise RuntimeError("the pool belongs to another event loop")
        cdef bint inside = current_task(self.loop) in self.live_c()
        for running in self.requests:
            inside = inside or running.task is None
        if inside:
            raise RuntimeError("a handler cannot close the pool that runs it")
        if not self.closed:
            self.closed = True
            for running in self.deferred:
                running.cancel()
            self.cancel_all_c()
        while True:
            tasks = self.live_c()
            if tasks:
                await asyncio.wait(tasks)
            elif self.deferred:
                await asyncio.sleep(0)
            else:
                break

    def abandon(self):
        """After a call of `aclose`: stop waiting for handlers that ignore their cancellation.

        `asyncio.all_tasks` no longer lists their tasks, so that the end of the loop does not wait
        for them either. Returns the number of these tasks.
        """
        cdef list tasks = self.live_c()
        for task in tasks:
            asyncio.tasks._unregister_task(task)
            self.forget_c(task)
        return len(tasks)
