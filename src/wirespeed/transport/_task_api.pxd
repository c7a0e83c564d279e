"""The part of CPython's C API that pooled_tasks.pyx needs: one step of a coroutine inside a
context, the traces that a user can leave on a task, and the C functions behind a task's getters.
"""

from cpython.object cimport PyObject

cdef extern from *:
    """
    /* The current exception, normalised, with its traceback; no error is set afterwards. */
    static PyObject *ws_take_error(void) {
    #if PY_VERSION_HEX >= 0x030C0000
        return PyErr_GetRaisedException();
    #else
        PyObject *type, *value, *tb;
        PyErr_Fetch(&type, &value, &tb);
        PyErr_NormalizeException(&type, &value, &tb);
        if (tb != NULL)
            PyException_SetTraceback(value, tb);
        Py_XDECREF(type);
        Py_XDECREF(tb);
        return value;
    #endif
    }

    /* One step of `coro` inside `context`: throw `exc`, or send None if it is None. Gives what
       it yielded (NEXT), returned (RETURN) or raised (ERROR). In C, so that our frames stay out
       of tracebacks and of sys.exc_info(). */
    static PyObject *ws_step(PyObject *context, PyObject *coro, PyObject *exc,
                             PyObject *throw_name, PySendResult *status) {
        PyObject *out = NULL;
        *status = PYGEN_ERROR;
        if (PyContext_Enter(context) < 0)
            return ws_take_error();
        if (exc == Py_None) {
            *status = PyIter_Send(coro, Py_None, &out);
        } else {
            out = PyObject_CallMethodOneArg(coro, throw_name, exc);
            if (out != NULL)
                *status = PYGEN_NEXT;
        }
        if (out == NULL) {
            out = ws_take_error();
            if (exc != Py_None && Py_IS_TYPE(out, (PyTypeObject *)PyExc_StopIteration)) {
                PyObject *value = ((PyStopIterationObject *)out)->value;
                value = Py_NewRef(value == NULL ? Py_None : value);
                Py_DECREF(out);
                out = value;
                *status = PYGEN_RETURN;
            }
        }
        if (PyContext_Exit(context) < 0) {
            Py_DECREF(out);
            out = ws_take_error();
            *status = PYGEN_ERROR;
        }
        return out;
    }

    static int ws_call2(PyObject *func, PyObject *a, PyObject *b) {
        PyObject *args[3] = {NULL, a, b};
        PyObject *res = PyObject_Vectorcall(func, args + 1,
                                            2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        if (res == NULL)
            return -1;
        Py_DECREF(res);
        return 0;
    }

    /* What asyncio's _enter_task and _leave_task do to `tasks`, their dictionary of the current
       task of each loop: 0. Without effect where another task is current: 1. */
    static int ws_enter(PyObject *tasks, PyObject *loop, PyObject *task) {
        PyObject *found = PyDict_SetDefault(tasks, loop, task);
        return found == NULL ? -1 : found != task;
    }

    static int ws_leave(PyObject *tasks, PyObject *loop, PyObject *task) {
        PyObject *found = NULL;
    #if PY_VERSION_HEX >= 0x030D0000
        PyDict_Pop(tasks, loop, &found);
    #else
        found = _PyDict_Pop(tasks, loop, NULL);
    #endif
        if (found == task) {
            Py_DECREF(found);
            return 0;
        }
        if (found != NULL) {           /* another task is current, and stays so */
            PyDict_SetItem(tasks, loop, found);
            Py_DECREF(found);
        }
        PyErr_Clear();
        return 1;
    }

    static inline Py_ssize_t ws_refs(PyObject *o) { return Py_REFCNT(o); }

    /* Weak references to `o`; counting stops at `limit`. */
    static int ws_weakrefs(PyObject *o, int limit) {
        PyWeakReference *ref;
        int n = 0;
        if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(o)))
            return 0;
        ref = *(PyWeakReference **)PyObject_GET_WEAKREFS_LISTPTR(o);
        for (; ref != NULL && n < limit; ref = ref->wr_next)
            n++;
        return n;
    }

    static int ws_has_attributes(PyObject *o) {
        PyObject **dict = _PyObject_GetDictPtr(o);
        return dict != NULL && *dict != NULL && PyDict_GET_SIZE(*dict) != 0;
    }

    /* C functions behind a class's getter and no-argument method, or NULL. */
    static PyGetSetDef *ws_getter(PyObject *descr) {
        if (!Py_IS_TYPE(descr, &PyGetSetDescr_Type))
            return NULL;
        return ((PyGetSetDescrObject *)descr)->d_getset;
    }

    static PyCFunction ws_method(PyObject *descr) {
        PyMethodDef *def;
        if (!Py_IS_TYPE(descr, &PyMethodDescr_Type))
            return NULL;
        def = ((PyMethodDescrObject *)descr)->d_method;
        return def->ml_flags == METH_NOARGS ? def->ml_meth : NULL;
    }

    static inline PyObject *ws_get(PyGetSetDef *def, PyObject *o) {
        return def->get(o, def->closure);
    }

    static inline PyObject *ws_call0(PyCFunction meth, PyObject *o) { return meth(o, NULL); }
    """
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    ctypedef struct PyGetSetDef:
        pass
    ctypedef void *PyCFunction

    object ws_step(
        object context, object coro, object exc, object throw_name, PySendResult *status)
    int ws_call2(object func, object a, object b) except -1
    int ws_try_call2 "ws_call2"(object func, object a, object b) noexcept
    int ws_enter(object tasks, object loop, object task) except -1
    int ws_leave(object tasks, object loop, object task) noexcept
    object ws_take_error()
    Py_ssize_t ws_refs(PyObject *o) noexcept
    int ws_weakrefs(PyObject *o, int limit) noexcept
    bint ws_has_attributes(PyObject *o) noexcept
    PyGetSetDef *ws_getter(object descr) noexcept
    PyCFunction ws_method(object descr) noexcept
    object ws_get(PyGetSetDef *getter, PyObject *o)
    object ws_call0(PyCFunction meth, PyObject *o)

cdef extern from "Python.h":
    object PyContext_Copy(object context)
    void PyErr_Clear() noexcept
