"""Awaitables for work that mostly ends at once.

A coroutine costs its frame, its wrapper for ``await`` and a StopIteration, also if it never
suspends. An `Ahead` does its work in the first step of whoever awaits it, and makes a coroutine
only of what is left then.
"""

cimport cython

cdef extern from *:
    """
    typedef PyObject *(*ws_stepper)(PyObject *, PyObject *, PySendResult *);
    static ws_stepper ws_ahead;

    static PySendResult ws_am_send(PyObject *self, PyObject *value, PyObject **result) {
        PySendResult status = PYGEN_ERROR;
        *result = ws_ahead(self, value, &status);
        return *result == NULL ? PYGEN_ERROR : status;
    }

    static int ws_let_send(PyObject *type, ws_stepper stepper) {
        ws_ahead = stepper;
        ((PyTypeObject *)type)->tp_as_async->am_send = ws_am_send;
        return 0;
    }
    """
    ctypedef object (*ws_stepper)(object, object, PySendResult *)
    int ws_let_send(object type, ws_stepper stepper) except -1


cdef object ahead_c(object self, object value, PySendResult *status):
    """One step of an `Ahead`: what it yields, or in its last what it gives."""
    cdef Ahead ahead = <Ahead> self
    cdef object given
    if ahead.rest is None:
        if ahead.begun:
            raise RuntimeError("this can be awaited only once")
        ahead.begun = True
        given = ahead.reach_c()
        if ahead.rest is None:
            status[0] = PYGEN_RETURN
            return given
    return ws_send(ahead.rest, value, status)


cdef class Ahead:
    """To be awaited once, like a coroutine. Subclass it in Cython and override `reach_c`, which
    gives the outcome, or sets `rest` to a coroutine of it; hand the class to `take_ahead`."""

    def __init__(self):
        raise TypeError("made where it is given")

    cdef object reach_c(self):
        raise NotImplementedError

    def __await__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """One step, for those who cannot take the short way."""
        cdef PySendResult status = PYGEN_ERROR
        given = ahead_c(self, value, &status)
        if status == PYGEN_RETURN:
            raise StopIteration(given)
        return given

    def throw(self, *exc):
        """Raise an exception where it waits."""
        if self.rest is None:
            self.begun = True
            raise exc[0] if len(exc) < 2 or exc[1] is None else exc[1]
        return self.rest.throw(*exc)

    def close(self):
        """End it where it waits."""
        self.begun = True
        if self.rest is not None:
            self.rest.close()


cdef int take_ahead(object kind) except -1:
    """Let ``await`` take a class of these the short way: by ``am_send``, without a StopIteration
    for the outcome."""
    return ws_let_send(kind, ahead_c)


@cython.final
cdef class Begun:
    """A coroutine whose first step was made elsewhere: what came of that comes first."""

    def __init__(self):
        raise TypeError("made where it is given")

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


cdef Begun begun(object work, object first, object fault):
    """``first`` is what the first step of ``work`` yielded, ``fault`` what it raised, or None."""
    cdef Begun begun = Begun.__new__(Begun)
    begun.work = work
    begun.first = first
    begun.fault = fault
    return begun
