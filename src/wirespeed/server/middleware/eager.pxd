cdef extern from *:
    """
    /* One step of a coroutine; NULL with an exception set at PYGEN_ERROR. */
    static PyObject *ws_send(PyObject *coro, PyObject *value, PySendResult *status) {
        PyObject *out = NULL;
        *status = PyIter_Send(coro, value, &out);
        return out;
    }
    """
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT

    object ws_send(object coro, object value, PySendResult *status)


cdef class EagerAwaitable:
    cdef object rest                   # coroutine: what is left to do; or None
    cdef bint started

    cdef object reach_c(self)


cdef class StartedCoroutine:
    cdef object work, first, fault
    cdef bint told


cdef int enable_send(object kind) except -1
cdef StartedCoroutine started(object work, object first, object fault)
