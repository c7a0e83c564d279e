"""Late spans of the OpenTelemetry SDK, made with its public interfaces.

See `wirespeed.server.requests.tracer`. The SDK's tracer makes a span at its first read or write,
with the ids and the sampling decision from the start of the request.
"""

from __future__ import annotations

import contextvars
import copy
import re
import threading
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace import Tracer as SdkTracer
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    ParentBasedTraceIdRatio,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags

from wirespeed.ext._conventions import (
    mark_failed,
    request_attributes,
    server_span_name,
    strings_of,
)
from wirespeed.server.requests.tracer import LateSpan, Tracer

if TYPE_CHECKING:
    from wirespeed.server.server import Server

_ALL = 1 << 64  # above every value of 64 bits
_RANDOM = 2
# The key of the current span in a context: the only key of a context with only a span.
(_KEY,) = trace.set_span_in_context(trace.INVALID_SPAN, Context())

_SIMPLE = (type(ALWAYS_ON), TraceIdRatioBased)
_PARENT_BASED = re.compile(
    r"ParentBased\{root:(.*),remoteParentSampled:(.*),remoteParentNotSampled:(.*),"
    r"localParentSampled:.*\}"
)
_RATIO = re.compile(r"TraceIdRatioBased\{(.*)\}")


def late_tracer(server: Server, tracer: Any) -> Tracer | None:
    """Return None if a part of the tracer is not the SDK's own."""
    if type(tracer) is not SdkTracer or type(tracer.id_generator) is not RandomIdGenerator:
        return None
    bounds = bounds_of(tracer.sampler)
    variable = contextvars.Context().run(_current_variable)
    if bounds is None or variable is None:
        return None
    return Tracer(Sdk(server, tracer, variable), bounds)


def _current_variable() -> contextvars.ContextVar[Context] | None:
    """Return the context variable of the current context; None if that is kept elsewhere."""
    probe = Context()
    otel_context.attach(probe)
    found = list(contextvars.copy_context().items())
    return found[0][0] if len(found) == 1 and found[0][1] is probe else None


class Sdk:
    """The SDK's part of a `Tracer`."""

    context_type = Context
    key = _KEY
    flags = tuple(map(TraceFlags, range(4)))
    no_state = trace.INVALID_SPAN_CONTEXT.trace_state

    def __init__(self, server: Server, tracer: SdkTracer, variable: Any) -> None:
        self._server = server
        self._tracer = tracer
        self.variable = variable
        self.processor = tracer.span_processor
        self.ids_type = _Ids
        self.span_type = _KeptSpan

    def extract(self, meta: Any) -> tuple[Context, SpanContext | None]:
        """Return the context of a request's ``_meta``, and the remote parent in the context."""
        context = propagate.extract(strings_of(meta), Context())
        parent = trace.get_current_span(context).get_span_context()
        return context, parent if parent.is_valid else None

    def made(self, span: LateSpan) -> Any:
        """Return the SDK's span for a late span. An ended late span becomes an ended span."""
        if span.request is None:
            return NonRecordingSpan(span.context)
        tracer: Any = copy.copy(self._tracer)
        tracer.id_generator = tracer.sampler = _Given(span.context)
        tracer.span_processor = SpanProcessor()  # processors receive the late span instead
        method, target = span.request[:2]
        made = tracer.start_span(
            server_span_name(self._server, method, target),
            span.above,
            SpanKind.SERVER,
            request_attributes(span.request),
            start_time=span.started,
        )
        if span.finished:
            self.close(span, made)
        return made

    def close(self, span: LateSpan, made: Any) -> None:
        """End the SDK's span with the outcome of the request."""
        with _closing:
            if made.is_recording():
                mark_failed(made, span.code, span.failed, span.note)
                made.end(span.finished)


_closing = threading.Lock()


class _Ids(SpanContext):
    """A valid `SpanContext` that costs a fifth: each processor reads that of each span."""

    trace_id, span_id, is_remote, trace_flags, trace_state, is_valid = map(
        property, map(itemgetter, range(6))
    )

    def __reduce__(self) -> Any:
        return SpanContext, self.__getnewargs__()


_Ids.__name__ = SpanContext.__name__  # for its repr


class _KeptSpan(LateSpan, ReadableSpan):
    """A span for exporters: the properties of this `ReadableSpan` read the SDK's span."""

    __slots__ = ()
    # The interpreter finds an attribute faster by these two than by the slot of the base.
    __getattribute__ = object.__getattribute__
    __getattr__ = LateSpan.__getattr__


trace.Span.register(LateSpan)


class _Given:
    """Returns earlier ids and an earlier decision, in place of the SDK's generator and sampler."""

    def __init__(self, ids: SpanContext) -> None:
        self._ids = ids

    def generate_trace_id(self) -> int:
        return self._ids.trace_id

    def generate_span_id(self) -> int:
        return self._ids.span_id

    def is_trace_id_random(self) -> bool:
        return self._ids.trace_flags & _RANDOM != 0

    def should_sample(
        self, context: Any, trace_id: int, name: str, kind: Any, attributes: Any, links: Any
    ) -> SamplingResult:
        return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, self._ids.trace_state)


def bounds_of(sampler: Any) -> tuple[int, int, int] | None:
    """Return the bounds of a sampler that decides by the trace id alone; see `Tracer`."""
    texts = [sampler.get_description()] * 3
    if type(sampler) in (ParentBased, ParentBasedTraceIdRatio):
        match = _PARENT_BASED.fullmatch(texts[0])
        # a subclass may have the description of its base
        if match is None or not all(type(part) in _SIMPLE for part in vars(sampler).values()):
            return None
        texts = [match[1], match[2], match[3]]
    elif type(sampler) not in _SIMPLE:
        return None
    root, sampled, unsampled = map(_bound, texts)
    if root is None or sampled is None or unsampled is None:
        return None
    return root, sampled, unsampled


def _bound(text: str) -> int | None:
    ratio = _RATIO.fullmatch(text)
    if ratio is not None:
        return TraceIdRatioBased.get_bound_for_rate(float(ratio[1]))
    fixed = {ALWAYS_ON.get_description(): _ALL, ALWAYS_OFF.get_description(): 0}
    return fixed.get(text)
