"""Awaitables whose work mostly ends at the first step.

A coroutine costs its frame, its wrapper for ``await`` and a StopIteration, even if it never
suspends. An `EagerAwaitable` does its work in the first step of its awaiter. A coroutine is made
only of the work that is left then.
"""

cimport cython

cdef extern from *:
    """
    typedef PyObject *(*ws_stepper)(PyObject *, PyObject *, PySendResult *);
    static ws_stepper ws_eager_step;

    static PySendResult ws_am_send(PyObject *self, PyObject *value, PyObject **result) {
        PySendResult status = PYGEN_ERROR;
        *result = ws_eager_step(self, value, &status);
        return *result == NULL ? PYGEN_ERROR : status;
    }

    static int ws_let_send(PyObject *type, ws_stepper stepper) {
        ws_eager_step = stepper;
        ((PyTypeObject *)type)->tp_as_async->am_send = ws_am_send;
        return 0;
    }
    """
    ctypedef object (*ws_stepper)(object, object, PySendResult *)
    int ws_let_send(object type, ws_stepper stepper) except -1


cdef object eager_step_c(object self, object value, PySendResult *status):
    """One step of an `EagerAwaitable`: the yielded value, or the result at the last step."""
    cdef EagerAwaitable eager = <EagerAwaitable> self
    cdef object given
    if eager.rest is None:
        if eager.started:
            raise RuntimeError("this can be awaited only once")
        eager.started = True
        given = eager.reach_c()
        if eager.rest is None:
            status[0] = PYGEN_RETURN
            return given
    return ws_send(eager.rest, value, status)


cdef class EagerAwaitable:
    """Can be awaited once, like a coroutine. Subclass it in Cython and override `reach_c`, which
    returns the result, or sets `rest` to a coroutine for it. Pass the subclass to `enable_send`."""

    def __init__(self):
        raise TypeError("cannot be created from Python")

    cdef object reach_c(self):
        raise NotImplementedError

    def __await__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """One step, for awaiters that do not use ``am_send``."""
        cdef PySendResult status = PYGEN_ERROR
        given = eager_step_c(self, value, &status)
        if status == PYGEN_RETURN:
            raise StopIteration(given)
        return given

    def throw(self, *exc):
        """Raise an exception where it waits."""
        if self.rest is None:
            self.started = True
            raise exc[0] if len(exc) < 2 or exc[1] is None else exc[1]
        return self.rest.throw(*exc)

    def close(self):
        """End it where it waits."""
        self.started = True
        if self.rest is not None:
            self.rest.close()


cdef int enable_send(object kind) except -1:
    """Make ``await`` use ``am_send`` for a subclass, without a StopIteration for the result."""
    return ws_let_send(kind, eager_step_c)


@cython.final
cdef class StartedCoroutine:
    """A coroutine whose first step has run already; its first `send` returns what that yielded."""

    def __init__(self):
        raise TypeError("cannot be created from Python")

    def __await__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """The next step; StopIteration with what the coroutine returns."""
        if self.told:
            return self.work.send(value)
        self.told = True
        first, self.first = self.first, None
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        return first

    def throw(self, *exc):
        """Raise an exception where the coroutine waits."""
        return self.work.throw(*exc)

    def close(self):
        """End the coroutine where it waits."""
        self.work.close()


cdef StartedCoroutine started(object work, object first, object fault):
    """``first`` is what the first step of ``work`` yielded, ``fault`` what it raised, or None."""
    cdef StartedCoroutine started = StartedCoroutine.__new__(StartedCoroutine)
    started.work = work
    started.first = first
    started.fault = fault
    return started
