"""Coroutine handlers at the cost of a function call, inside real asyncio tasks.

A new `asyncio.Task` for every request costs its creation and a turn of the loop before the
handler's first line runs. Here a pool keeps real tasks that are parked, and a request borrows one:

* `PooledTasks.start_c` enters a parked task (`_enter_task` of asyncio) and runs the first step of
  the handler's coroutine in a context of its own, at once. Most handlers finish in that step; the
  task was never woken and is free again.
* A handler that suspends on a future hands it to the task: the future gets the wakeup callback
  that the task registered when it parked, so that it drives the handler from then on just as it
  drives any coroutine. That costs no further turn of the loop. What the task was parked on (the
  `_Worker`) answers for that future until it wakes: `cancel()` reaches it immediately.

The coroutine of the task is a plain `async def` that awaits the `_Worker`; the `_Worker` forwards
each step to the handler's coroutine, inside the request's context, and parks again at its end.

A task is used again only if its users cannot notice: no reference, weak reference, callback,
attribute, changed name or pending cancellation may be left on it. Otherwise it finishes with the
outcome of the handler, at once or one turn later, as a task of its own would have done.

What differs from one `asyncio.create_task` a request:

* The first step runs before `start_c` returns, as with an eager task.
* `Task.get_context()` and `Task.get_coro()` return the worker's context and coroutine. Parked tasks
  are listed by `asyncio.all_tasks()`; their names are `wirespeed-N`.
* A kept task becomes done within one turn after the handler's end, not in the very step. It never
  logs "exception was never retrieved", because the completion hook got the exception.
* In a task that is new (not yet parked) a cancellation between the first suspension and the next
  turn of the loop reaches the awaited future in that turn, not immediately.
"""

cimport cython
from cpython.object cimport PyObject

from wirespeed.transport._task_api cimport (
    PyCFunction, PyContext_Copy, PyErr_Clear, PYGEN_ERROR, PYGEN_NEXT, PYGEN_RETURN, PyGetSetDef,
    PySendResult, ws_call0, ws_call2, ws_enter, ws_get, ws_getter, ws_has_attributes, ws_leave,
    ws_method, ws_refs, ws_step, ws_take_error, ws_try_call2, ws_weakrefs,
)

from wirespeed.transport.taskpool cimport (
    Completion, Running, TaskPool, cancelled_error_c, leaves_loop_c,
)

import asyncio
from asyncio import CancelledError, InvalidStateError

cdef enum:
    IDLE      # no request
    FIRST     # the first step of a request is running
    BARE      # it yielded None: the next step of the task resumes it
    WAITS     # it yielded a future, in `waiting`, which wakes the task (or will, if it is new)
    ODD       # it yielded an object that tasks reject: the next step hands it to the task
    ADOPTED   # the task drives the request
    ENDING    # the next step of the task finishes it with `outcome` or `failure`
    DEAD      # the task is done

# The _Worker stands in for the future that its task waits for; anyio asks isinstance() of that.
cdef object Future = asyncio.Future
cdef str THROW = "throw"

cdef object NATIVE_TASK = asyncio.Task
cdef PyGetSetDef *get_must_cancel = ws_getter(NATIVE_TASK._must_cancel)
cdef PyGetSetDef *get_callbacks = ws_getter(NATIVE_TASK._callbacks)
cdef PyCFunction call_cancelling = ws_method(NATIVE_TASK.cancelling)
cdef PyCFunction call_get_name = ws_method(NATIVE_TASK.get_name)
cdef bint NATIVE = (
    get_must_cancel is not NULL and get_callbacks is not NULL
    and call_cancelling is not NULL and call_get_name is not NULL
)

# Real Python code: tools (anyio among them) ask inspect.getcoroutinestate() about a task's
# coroutine, which a compiled coroutine cannot answer.
cdef dict _namespace = {"__name__": __name__}
exec(
    compile(
        "async def request(worker):\n    return await worker\n", "<wirespeed task pool>", "exec"
    ),
    _namespace,
)
cdef object _request = _namespace["request"]


cdef dict current_tasks_of(object enter, object leave):
    """The dictionary in which these functions of asyncio keep the current task of each loop; None
    if there is none. Calling the functions takes 15 instructions of 100 of a short request."""
    cdef object probe = object()
    cdef bint found
    tasks = getattr(asyncio.tasks, "_current_tasks", None)
    if type(tasks) is not dict:
        return None
    try:
        enter(probe, probe)
        found = (<dict>tasks).get(probe) is probe
        leave(probe, probe)
    except Exception:                  # CPython 3.14 keeps the current task of a running loop only
        return None
    return tasks if found and probe not in <dict>tasks else None


def _retrieve(task):
    """Mark the exception of `task` as retrieved: the completion hook got it."""
    if not task.cancelled():
        task.exception()


@cython.final
cdef class PooledTasks(TaskPool):
    """A task pool that reuses its tasks. At most `max_idle` parked tasks are kept."""

    def __cinit__(self, loop, *, Py_ssize_t max_idle=256):
        self.current = current_tasks_of(self.enter, self.leave)
        self.native = NATIVE and self.task_type is NATIVE_TASK
        self.parked = []
        self.workers = set()
        # A task that no handler has seen shows the reference counts of an unshared one: its
        # first step notes `step_refs`, and the callback right behind it `idle_refs`.
        cdef _Worker probe = self.new_worker_c()
        loop.call_soon(self._calibrate, probe, context=self.callback_context)

    def _calibrate(self, _Worker probe not None):
        if probe.phase == IDLE and probe.wakeup is not None:
            self.idle_refs = probe.idle_refs = ws_refs(<PyObject *>probe.task)
            if self.has_room_c():
                self.park_c(probe)
            else:
                probe._end(None, None)

    @property
    def idle(self):
        return len(self.parked) + (self.hot is not None)

    cdef object first_step_c(
            self, object coro, Completion hook, Running running, object exc, object context):
        cdef _Worker worker = self.take_c()
        cdef PySendResult status = PYGEN_ERROR
        cdef object value, fault = None
        if not self.enter_c(worker.task):
            self.release_c(worker, None, None)
            return self.defer_c(coro, hook, running, context)
        worker.phase = FIRST
        value = ws_step(context, coro, exc, THROW, &status)
        if not self.leave_c(worker.task):
            fault = ws_take_error()
            self.report_c("a handler changed the current task", fault, worker.task)
        if status == PYGEN_NEXT:
            if running is None:
                running = Running.__new__(Running)
            running.task = worker.task
            worker.running = running
            worker.coro = coro
            worker.request_context = context
            worker.hook = hook
            worker._suspend(value)
            return running
        # Released first, so that the hook can start the next request in the same task.
        if status == PYGEN_RETURN and not worker._must_cancel():
            self.release_c(worker, value, None)
            self.deliver_c(hook, value, None)
            return None
        if status == PYGEN_RETURN:
            # A task that is cancelled in its last step is cancelled, whatever it returned.
            value = worker.task._make_cancelled_error()
        self.release_c(worker, None, value)
        self.deliver_c(hook, None, value)
        if leaves_loop_c(value):
            raise value
        return None

    cdef bint enter_c(self, object task) except -1:
        """Make a task the current one. Return False if another task is."""
        if self.current is not None:
            return ws_enter(self.current, self.loop, task) == 0
        if ws_try_call2(self.enter, self.loop, task) < 0:
            PyErr_Clear()              # the error says nothing else
            return False
        return True

    cdef bint leave_c(self, object task) noexcept:
        """Make no task the current one. Return False, with an error set, if another task is."""
        if self.current is not None and ws_leave(self.current, self.loop, task) == 0:
            return True
        return ws_try_call2(self.leave, self.loop, task) == 0

    cdef _Worker take_c(self):
        cdef _Worker worker
        while True:
            worker = self.hot
            if worker is not None:
                self.hot = None
            elif self.parked:
                worker = <_Worker>self.parked.pop()
            else:
                return self.new_worker_c()
            worker.listed = False
            if worker.phase == IDLE:
                if worker._clean(worker.idle_refs):
                    return worker
                worker._end(None, None)

    cdef bint has_room_c(self) noexcept:
        """Whether one more idle worker is kept."""
        return not self.closed and len(self.parked) + (self.hot is not None) < self.max_idle

    cdef int park_c(self, _Worker worker) except -1:
        """Keep an idle worker for a request to come."""
        worker.listed = True
        if self.hot is None:
            self.hot = worker
        else:
            self.parked.append(worker)
        return 0

    cdef _Worker new_worker_c(self):
        cdef _Worker worker = _Worker.__new__(_Worker)
        coro = _request(worker)
        # Started by hand, up to its await: a cancellation before the task's first step is then
        # thrown into the _Worker, which has a request to care for, and not into a coroutine that
        # has not begun.
        coro.send(None)
        worker.pool = self
        worker.phase = IDLE
        worker.fresh = True
        worker.name = self.name_c()
        worker.context = PyContext_Copy(self.callback_context)
        # Not loop.create_task(): a task factory would start it eagerly, or wrap it.
        worker.task = self.task_type(
            coro, loop=self.loop, name=worker.name, context=worker.context)
        # A parked task whose loop was closed is not a bug of the program.
        worker.task._log_destroy_pending = False
        worker.idle_refs = ws_refs(<PyObject *>worker.task)
        worker.weakrefs = ws_weakrefs(<PyObject *>worker.task, 64)
        self.workers.add(worker)
        return worker

    cdef int release_c(self, _Worker worker, object result, object exc) except -1:
        """Take back a worker that was never woken; finish its task if a handler left traces."""
        worker.phase = IDLE
        if self.has_room_c() and worker._clean(worker.idle_refs):
            return self.park_c(worker)
        return worker._end(result, exc)

    cdef list live_c(self):
        return [(<_Worker>item).task for item in self.workers]

    cdef int cancel_all_c(self) except -1:
        cdef _Worker worker
        self.parked.clear()
        self.hot = None
        for worker in tuple(self.workers):
            if worker.phase == IDLE:
                worker._end(None, None)
            elif worker.phase != ENDING:
                worker.task.cancel()
        return 0

    cdef int forget_c(self, object task) except -1:
        cdef _Worker worker
        for worker in self.workers:
            if worker.task is task:
                self.workers.discard(worker)
                break
        return 0


@cython.final
cdef class _Worker:
    """The object that a pooled task awaits: an iterator that forwards to the handler's coroutine,
    and the future that the task waits for while it is parked.
    """

    # --- the iterator: driven by the task ---

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        if self.task is None:
            return None  # the start by hand, see _new_worker()
        return self._step(None)

    def throw(self, typ, val=None, tb=None):
        if isinstance(typ, type):
            typ = typ() if val is None else val if isinstance(val, typ) else typ(val)
        if tb is not None:
            typ = typ.with_traceback(tb)
        if self.task is None:
            raise typ
        return self._step(typ)

    cdef object _step(self, object exc):
        """One step of the task. What is returned is yielded to it."""
        cdef PySendResult status = PYGEN_ERROR
        cdef object value, waiting = self.waiting
        cdef int phase = self.phase
        cdef bint fresh = self.fresh
        if phase == FIRST:
            # The handler runs the loop itself, inside its first step. Look again next turn.
            if exc is not None:
                self.pending = exc
            return None
        self.fresh = False
        if phase == IDLE:
            if exc is not None:  # cancelled before it was ever parked
                self._dead(None)
                raise exc
            if not self.listed and self.pool.step_refs == 0:  # the probe
                self.pool.step_refs = ws_refs(<PyObject *>self.task)
            return self._park()
        if phase == ENDING:
            # A cancel() after the handler's end has no effect.
            value = self.outcome
            exc = self.failure
            self._dead(exc)
            if exc is not None:
                raise exc
            raise StopIteration(value)
        if phase != ADOPTED:
            self.phase = ADOPTED
            self.waiting = None
            if phase == WAITS:
                if fresh:
                    if exc is not None and not self.absorb and not waiting.cancel(
                            msg=exc.args[0] if exc.args else None):
                        self.pending = exc
                    self.absorb = False
                    waiting._asyncio_future_blocking = True
                    return waiting
                if self.absorb and exc is not None and not waiting.cancelled():
                    exc = waiting.exception()  # the future swallowed its cancellation
                self.absorb = False
            elif phase == ODD and exc is None and self.pending is None:
                return waiting
            elif fresh and exc is None:
                # The first step was due before anything that the handler has scheduled: not yet.
                return None
        if self.pending is not None:
            if not isinstance(exc, CancelledError):
                exc = self.pending
            self.pending = None
        value = ws_step(self.request_context, self.coro, exc, THROW, &status)
        if status == PYGEN_NEXT:
            return value
        exc = None
        waiting = None
        if status == PYGEN_RETURN:
            return self._finish(value, None)
        return self._finish(None, value)

    cdef object _finish(self, object result, object exc):
        """The request has ended in a step of the task: deliver, then park or let the task end."""
        cdef PooledTasks pool = self.pool
        cdef Completion hook = self.hook
        cdef object failure = exc
        cdef object task
        cdef bint reuse, left
        if exc is None and self._must_cancel():
            failure = self.task._make_cancelled_error()
        self.running.task = None
        self.running = None
        self.hook = None
        self.coro = None
        self.request_context = None
        reuse = pool.idle_refs != 0 and self._clean(pool.step_refs)
        task = self.task               # only now, for references were counted
        # No task is current in a hook. If the handler tampered with that, the task itself will
        # complain at the end of this step, as every task does.
        left = pool.leave_c(self.task)
        if not left:
            PyErr_Clear()
        try:
            pool.deliver_c(hook, result if failure is None else None, failure)
        except BaseException:
            self._dead(None)
            raise
        finally:
            if left:
                ws_call2(pool.enter, pool.loop, task)
        if reuse and pool.has_room_c() and not leaves_loop_c(exc):
            return self._park()
        self._dead(exc)
        if exc is not None:
            raise exc
        raise StopIteration(result)

    cdef object _park(self):
        self.phase = IDLE
        self._asyncio_future_blocking = True
        return self

    # --- the future that a parked task waits for ---

    @property
    def __class__(self):
        return Future

    def get_loop(self):
        return self.pool.loop

    def add_done_callback(self, callback, /, *, context=None):
        if self.phase == WAITS:
            self.waiting.add_done_callback(callback, context=context)
            return
        if self.phase != IDLE or self.wakeup is not None:
            raise RuntimeError("only a task can wait for its worker")
        self.wakeup = callback
        self.wakeup_context = context
        if self.pool.idle_refs != 0:
            self.idle_refs = self.pool.idle_refs
            if not self.listed:
                self.pool.park_c(self)

    def remove_done_callback(self, callback, /):
        return self.waiting.remove_done_callback(callback) if self.phase == WAITS else 0

    def cancel(self, msg=None):
        """Called by `Task.cancel`. False makes the task raise CancelledError at its next step."""
        cdef bint hit
        if self.phase == WAITS:
            hit = self.waiting.cancel(msg=msg)
            if not hit:
                self.absorb = False
            return hit
        if self.phase == IDLE and self.wakeup is not None:
            self._end(None, cancelled_error_c(msg))
            return True
        return False

    def cancelled(self):
        return self.phase == WAITS and self.waiting.cancelled()

    def done(self):
        return self.phase == WAITS and self.waiting.done()

    def result(self):
        if self.phase == WAITS:
            return self.waiting.result()
        if self.wakeup is not None:
            raise InvalidStateError("Result is not set.")
        return None  # to the task, which _wake() is waking

    def exception(self):
        if self.phase == WAITS:
            return self.waiting.exception()
        raise InvalidStateError("Exception is not set.")

    def __repr__(self):
        if self.phase == WAITS:
            return repr(self.waiting)
        return f"<wirespeed worker of {self.name}>"

    # --- steps between the two ---

    cdef int _suspend(self, object waiting) except -1:
        """The first step has yielded `waiting`."""
        self.phase = BARE
        if waiting is not None:
            self.phase = ODD
            self.waiting = waiting
            try:
                if self._accepts(waiting):
                    # Cleared, as a task does it: others may await the same future.
                    waiting._asyncio_future_blocking = False
                    if not self.fresh:
                        waiting.add_done_callback(self.wakeup, context=self.wakeup_context)
                        self.wakeup = None
                    self.phase = WAITS
                    if self._must_cancel():
                        self.absorb = waiting.cancel(msg=self.task._cancel_message)
                    return 0
            except BaseException as error:
                self.phase = BARE
                self.waiting = None
                self.pending = error
        if self.wakeup is not None:
            self._wake()
        return 0

    cdef bint _accepts(self, object waiting) except -1:
        """Whether a task would wait for it. What a task would reject is handed to the task."""
        if waiting is self.task or not getattr(waiting, "_asyncio_future_blocking", None):
            return False
        get_loop = getattr(waiting, "get_loop", None)
        return (waiting._loop if get_loop is None else get_loop()) is self.pool.loop

    cdef int _wake(self) except -1:
        wakeup = self.wakeup
        self.wakeup = None
        self.pool.loop.call_soon(wakeup, self, context=self.wakeup_context)
        return 0

    cdef int _end(self, object result, object exc) except -1:
        """Finish the task of an idle worker at its next step, with this outcome."""
        self.phase = ENDING
        self.outcome = result
        self.failure = exc
        if self.wakeup is not None:
            self._wake()
        return 0

    cdef int _dead(self, object exc) except -1:
        """The task ends with this step."""
        self.phase = DEAD
        self.outcome = self.failure = None
        self.pool.workers.discard(self)
        if exc is not None and not isinstance(exc, CancelledError):
            self.task.add_done_callback(_retrieve)
        # The task keeps the exception that it ends with, whose traceback refers to this worker and
        # to the handler's locals. Without this reference they are freed now, not by the collector.
        self.task = None
        return 0

    cdef bint _must_cancel(self) except -1:
        if self.pool.native:
            return ws_get(get_must_cancel, <PyObject *>self.task) is True
        return self.task._must_cancel

    cdef bint _clean(self, Py_ssize_t refs) except -1:
        """Whether the task bears no traces; `refs` is the reference count of an unshared one."""
        cdef PyObject *task = <PyObject *>self.task
        cdef Py_ssize_t cancelling
        if (
            ws_refs(task) != refs
            or ws_weakrefs(task, 64) != self.weakrefs
            or ws_has_attributes(task)
        ):
            return False
        if self.pool.native:
            cancelling = ws_call0(call_cancelling, task)
            return (
                cancelling == 0
                and ws_get(get_must_cancel, task) is False
                and ws_get(get_callbacks, task) is None
                and ws_call0(call_get_name, task) is self.name
            )
        return (
            not self.task.cancelling()
            and not self.task._must_cancel
            and not self.task._callbacks
            and self.task.get_name() is self.name
        )
