"""Operations that are not tools: prompts, resources, completions, methods of extensions."""

cimport cython

import logging

from wirespeed.server.requests.call cimport TIMED_OUT, Call, Operation

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.server.requests import launchers

logger = logging.getLogger("wirespeed.server")


@cython.final
cdef class Feature(Operation):
    """An operation whose result is encoded by a function.

    Args:
        name: The name of the operation.
        kind: ``"prompt"``, ``"resource"`` …
        function: The function to call.
        encode: ``(value, Revision) -> Body``: the result object (see
            `wirespeed.server.requests.reply`).
        timeout: Seconds after which a call is given up; None for no limit.
        wants_context: Whether `invoke` is to be given a context.
        launch: How a call becomes a coroutine, one of `wirespeed.server.requests.launchers`; not
            needed for a coroutine function.
    """

    def __init__(self, str name not None, str kind not None, function, *, encode, timeout=None,
                 bint wants_context=False, launch=None):
        self.name = name
        self.kind = kind
        self.function = function
        self.encode = encode
        self.timeout = timeout
        self.wants_context = wants_context
        self.launch = launch

    def __repr__(self):
        return f"<Feature {self.kind} {self.name!r}>"

    def invoke(self, list values not None, names=None):
        """A coroutine that calls the function with these values, the last of which have names."""
        if self.launch is not None:
            return self.launch(self.function, values, names)
        return launchers.call(self.function, values, names)

    cdef int respond_c(self, Call call, object value) except -1:
        try:
            body = self.encode(value, call.revision)
        except Exception as exc:
            return self.fail_c(call, exc)
        return call.reply_c(body)

    cdef int fail_c(self, Call call, object exc) except -1:
        if isinstance(exc, ProtocolError):
            return call.refuse_c(exc)
        if call.reason == TIMED_OUT:
            text = f"The {self.kind} {self.name} timed out after {self.timeout:g} s"
            logger.warning("%s", text)
            return call.error_c(codes.INTERNAL_ERROR, text, None)
        return call.fail_internally_c(f"{self.kind} {self.name}", exc)
