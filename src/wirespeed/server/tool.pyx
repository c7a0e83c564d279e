"""A registered tool, ready to be called: everything that depends only on its signature is here."""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from wirespeed._core.slab cimport Lease
from wirespeed.server.texts cimport LongTexts

import msgspec

from wirespeed.server import launch as launchers
from wirespeed.server.content import ResultKind


cdef extern from *:
    """
    #include <structmember.h>

    /* Where an instance keeps the attribute behind a slot's descriptor; 0: not known. */
    static Py_ssize_t ws_slot_offset(PyObject *descr) {
        PyMemberDef *member;
        if (!Py_IS_TYPE(descr, &PyMemberDescr_Type))
            return 0;
        member = ((PyMemberDescrObject *)descr)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : 0;
    }
    """
    Py_ssize_t ws_slot_offset(object descr) noexcept

cdef extern from "Python.h":
    PyObject *PyObject_Vectorcall(
        object f, PyObject **args, size_t nargsf, PyObject *kwnames
    ) except NULL
    object PyObject_GetAttr(object o, object name)


@cython.final
cdef class Tool:
    """A tool of a server. `wirespeed.server.Server` makes them.

    Args:
        entry: What tools/list shows of it.
        spec: The `ToolSpec` of its function; None for a raw tool.
        function: What to call.
        inline: Whether a plain function runs on the loop's thread, holding everything else up.
        timeout: Seconds after which a call is given up; None for no limit.
        wants_context: Of a raw tool: it takes the context as its second argument.
        encode: Of a raw tool: how its results are encoded.
    """

    def __init__(self, entry, spec, function, *, bint inline, timeout, bint wants_context=False,
                 encode=None):
        self.name = entry.name
        self.name_json = msgspec.json.encode(entry.name)
        self.entry = entry
        self.spec = spec
        self.function = function
        self.timeout = timeout
        self.launch = None
        self.how = COROUTINE
        if spec is None:
            self.raw = True
            self.wants_context = wants_context
            self.encode = encode
            if not launchers.is_coroutine_function(function):
                self.how = INLINE if inline else LAUNCHED
                self.launch = launchers.in_thread
            return
        self.decode = spec.decoder.decode
        self.fields = spec.fields
        self.kwnames = spec.kwnames or None
        self.context_index = spec.context_index
        self.wants_context = spec.context_index >= 0
        self.encode = spec.result.encode
        if len(self.fields) < MAX_STACK:
            self.direct = True
            for i, field in enumerate(self.fields):
                self.offsets[i] = ws_slot_offset(spec.struct.__dict__.get(field))
                # a getter may give a new object, which nothing would keep alive
                self.direct = self.direct and self.offsets[i] != 0
        if self.direct:
            texts = {
                field.encode_name: self.offsets[self.fields.index(field.name)]
                for field in msgspec.structs.fields(spec.struct)
                if field.type in (str, str | None) and field.name in self.fields
            }
            self.texts = LongTexts(texts) if texts else None
        self.plain_text = spec.result.kind == ResultKind.TEXT
        if spec.is_async:
            pass
        elif spec.is_async_generator:
            self.how, self.launch = LAUNCHED, launchers.async_generator
        elif spec.wraps_async:
            self.how, self.launch = LAUNCHED, launchers.awaitable
        elif spec.is_generator:
            self.how, self.launch = LAUNCHED, launchers.generator
        elif inline:
            self.how = INLINE
        else:
            self.how, self.launch = LAUNCHED, launchers.in_thread

    def __repr__(self):
        return f"<Tool {self.name!r}>"

    cdef object decode_c(self, Lease arguments):
        """The decoded arguments; for a raw tool the lease itself. Raises what msgspec raises for
        arguments that do not fit. `arguments` is None where the call had none."""
        if self.raw:
            return b"{}" if arguments is None else arguments
        if self.texts is not None and arguments is not None and arguments.n >= LONG_ARGUMENTS:
            decoded = self.texts.decode_c(self.decode, arguments.p, <size_t> arguments.n)
            if decoded is not None:
                return decoded
        return self.decode(b"{}" if arguments is None else arguments)

    cdef object invoke_c(self, object decoded, object context):
        """Call with decoded arguments: the value, or a coroutine to run."""
        cdef PyObject *stack[MAX_STACK]
        cdef list values = None
        cdef Py_ssize_t n = 0, i
        cdef object result
        cdef PyObject *got
        if self.raw:
            values = [decoded, context] if self.wants_context else [decoded]
            if self.how == LAUNCHED:
                return self.launch(self.function, values, None)
            return self.function(*values)
        if self.how == LAUNCHED or not self.direct:
            values = [PyObject_GetAttr(decoded, name) for name in self.fields]
            if self.context_index >= 0:
                values.insert(self.context_index, context)
            if self.how == LAUNCHED:
                return self.launch(self.function, values, self.kwnames)
            return launchers.call(self.function, values, self.kwnames)
        # the fast path: no list, no tuple, no dict
        for i in range(len(self.fields)):
            if i == self.context_index:
                stack[n] = <PyObject *> context
                n += 1
            # borrowed: `decoded` keeps its slots alive, and nobody else knows it
            stack[n] = (<PyObject **> (<char *> <PyObject *> decoded + self.offsets[i]))[0]
            if stack[n] == NULL:
                raise AttributeError(self.fields[i])
            n += 1
        if self.context_index == len(self.fields):
            stack[n] = <PyObject *> context
            n += 1
        got = PyObject_Vectorcall(
            self.function, stack,
            n - (0 if self.kwnames is None else len(self.kwnames)),
            NULL if self.kwnames is None else <PyObject *> self.kwnames,
        )
        result = <object> got
        Py_DECREF(result)
        return result
