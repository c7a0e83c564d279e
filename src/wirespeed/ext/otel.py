"""OpenTelemetry traces of servers and clients; needs ``pip install wirespeed[otel]``, and for spans
that are kept an SDK (``opentelemetry-sdk``) with an exporter.

>>> from wirespeed.ext.otel import instrument
>>> instrument(server)          # the global TracerProvider, or tracer_provider=…

A server's requests become spans of kind SERVER, a client's of kind CLIENT, named
``{method} {tool}`` or ``{method} {prompt}``, with the attributes of the semantic conventions for
MCP (status: development): ``mcp.method.name``, ``mcp.protocol.version``, ``jsonrpc.request.id``,
``gen_ai.tool.name`` and ``gen_ai.operation.name`` (``execute_tool``), ``gen_ai.prompt.name``,
``mcp.resource.uri``; of requests that fail ``error.type`` (the code, ``tool_error`` for a result
that says ``isError``, ``cancelled``), ``rpc.response.status_code``, and the status ERROR with the
error's message. Arguments and results are not recorded.

The parent travels in ``_meta`` as ``traceparent``, ``tracestate`` and ``baggage`` (2026-07-28
basic, "OpenTelemetry trace context"; legacy servers are told in the same way). What does not read
as such is ignored. In a handler the request's span is the current one, so that spans of its own are
children; in the middleware of a server too.

With the TracerProvider of the SDK, spans of a server are plain numbers until a processor or an
exporter reads them, the usual samplers (always on or off, by ratio, by the parent) decide without a
call, and what ends goes straight into the queue of a `BatchSpanProcessor`, if that is the only
processor. Everything else is done as the API says, at its price: other providers, and processors
that want to see spans begin (``on_start``).
"""

from __future__ import annotations

import contextvars
import logging
import os
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from wirespeed.client.middleware import OutboundChain
from wirespeed.ext._conventions import (
    MAX_TEXT,
    attributes_of,
    error_attributes,
    exception_attributes,
    id_text,
    server_span_name,
    strings_of,
    text_of,
)
from wirespeed.ext._outbound import client_link, trace_questions
from wirespeed.server.observer import RequestSpan
from wirespeed.server.spans import CallSpan, Tracer

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import TracerProvider

    from wirespeed.client.client import Client
    from wirespeed.client.sync import SyncClient
    from wirespeed.server.server import Server

__all__ = ["instrument"]

logger = logging.getLogger("wirespeed.server")

trace.Span.register(cast("Any", CallSpan))

SCOPE = "wirespeed"

_FLAGS = [TraceFlags(value) for value in range(4)]
_NO_STATE = TraceState()
_BATCH = ("_max_export_batch_size", "_queue", "_shutdown", "_worker_awaken")
_NEEDS = ("sampler", "id_generator", "resource", "_span_limits")
_IDS_ARE_TUPLES = (1, 2, False, _FLAGS[1], _NO_STATE, True) == SpanContext(
    1, 2, False, _FLAGS[1], _NO_STATE
)
_ATTRIBUTES_ARE_A_DICT = getattr(BoundedAttributes(2, {"a": "b"}), "_dict", None) == {"a": "b"}
_UNSET = Status(StatusCode.UNSET)
_baggage = W3CBaggagePropagator()
# Where a context keeps its current span: the one key of a context that has nothing else.
(_KEY,) = trace.set_span_in_context(trace.INVALID_SPAN, otel_context.Context())


def instrument(
    target: Server | Client | SyncClient, *, tracer_provider: TracerProvider | None = None
) -> None:
    """Trace the requests of a server, before its clients connect, or of a client, before its calls.

    Args:
        target: A `wirespeed.Server` or a client.
        tracer_provider: Whose tracers to use; by default the global one, which must be set before.

    Raises:
        ValueError: The server is traced already.
    """
    from wirespeed import __version__
    from wirespeed.client.client import Client
    from wirespeed.client.sync import SyncClient

    provider = trace.get_tracer_provider() if tracer_provider is None else tracer_provider
    tracer = provider.get_tracer(SCOPE, __version__)
    if isinstance(target, SyncClient):
        target = target._client
    if isinstance(target, Client):
        link = client_link(tracer)
        chain = target._outgoing
        target._outgoing = OutboundChain([link]) if chain is None else chain.with_outermost(link)
        return
    observer = target.observe()
    if observer.tracer is not None:
        raise ValueError(f"{target!r} is traced already")
    observer.tracer = _Light.of(target, provider, tracer) or _Plain(target, tracer)
    trace_questions(target, tracer)


def _status(now: Status | None, status: Any, description: str | None) -> Status | None:
    """The status of a span after it was set: OK stays, and nothing is UNSET again."""
    if now is not None and now.status_code is StatusCode.OK:
        return now
    new = status if isinstance(status, Status) else Status(status, description)
    return now if new.status_code is StatusCode.UNSET else new


def _makes_spans_of_their_own() -> bool:
    """Whether trace context is read by other propagators than those of W3C, the default."""
    propagator = propagate.get_global_textmap()
    if type(propagator) is not CompositePropagator:
        return True
    parts = getattr(propagator, "_propagators", [None])
    return not all(
        type(part) in (TraceContextTextMapPropagator, W3CBaggagePropagator) for part in parts
    )


# -- servers: the SDK's spans, made late ----------------------------------------------------------


def _variable() -> contextvars.ContextVar[Any] | None:
    """The context variable that the current context is in, if it is in one."""
    runtime = getattr(otel_context, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)
    if not isinstance(variable, contextvars.ContextVar):
        return None
    probe = otel_context.Context()

    def seen() -> bool:
        variable.set(probe)
        return otel_context.get_current() is probe

    return variable if contextvars.copy_context().run(seen) else None


class _Light:
    """What `wirespeed.server.spans.Tracer` asks where it does not know for itself."""

    attach = staticmethod(otel_context.attach)
    variable = _variable()
    context_type = otel_context.Context
    key = _KEY
    exception_attributes = staticmethod(exception_attributes)
    status = staticmethod(_status)

    seed: Callable[[], None]  # of the tracer

    def __init__(self, server: Server, provider: Any, tracer: Any) -> None:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.sdk.util import BoundedList

        self._event_type = Event
        self.processor = provider._active_span_processor
        self.plain = _Plain(server, tracer)
        self._sampler = provider.sampler
        self._ids = provider.id_generator
        self._resource = provider.resource
        self._limits = limits = provider._span_limits
        self.new_events = partial(BoundedList, limits.max_events)
        self.new_links = partial(BoundedList, limits.max_links)
        self._scope = tracer._instrumentation_scope
        self.readable_type = ReadableSpan

    @classmethod
    def of(cls, server: Server, provider: Any, tracer: Any) -> Tracer | None:
        """A tracer that makes spans late, if the provider's processors do not mind."""
        try:
            from opentelemetry.sdk.trace import TracerProvider as SdkProvider
            from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        except ImportError:
            return None
        if type(provider) is not SdkProvider or not _fits(provider, tracer):
            return None
        support = cls(server, provider, tracer)
        root, sampled, unsampled, bound = _modes(provider.sampler)
        light = Tracer(
            server,
            support,
            root=root,
            below_sampled=sampled,
            below_unsampled=unsampled,
            bound=bound,
            generic=_makes_spans_of_their_own(),
            own_ids=type(provider.id_generator) is RandomIdGenerator,
        )
        support.seed = light.seed
        _supports.add(support)
        return light

    # -- for the tracer --------------------------------------------------------------------------

    def batch(self) -> Any:
        """The insides of the SDK's processor of batches, if that is the only one."""
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        parts = self.processor._span_processors
        if len(parts) != 1 or type(parts[0]) is not BatchSpanProcessor:
            return None
        batch: Any = getattr(parts[0], "_batch_processor", None)
        fits = all(hasattr(batch, name) for name in _BATCH) and type(batch._queue) is deque
        return batch if fits and batch._queue.maxlen is not None else None

    def silent(self) -> bool:
        """Whether no processor that the provider has now wants to see spans begin."""
        return all(map(_silent, self.processor._span_processors))

    def new_ids(self) -> tuple[int, int, int]:
        """A trace's id, a span's, and the flags of a trace that begins with them."""
        is_random = getattr(self._ids, "is_trace_id_random", bool)()
        return self._ids.generate_trace_id(), self._ids.generate_span_id(), 2 if is_random else 0

    def sample(self, span: CallSpan) -> tuple[bool, bool, BoundedAttributes | None, Any]:
        """What the sampler says: sampled, recording, attributes, tracestate."""
        parent = self.parent(span)
        context = otel_context.Context(span.carried or {})
        if parent is not None:
            context = trace.set_span_in_context(trace.NonRecordingSpan(parent), context)
        result = self._sampler.should_sample(
            context,
            span.trace_id,
            text_of(server_span_name(span.server, span.method or "", span.target)),
            SpanKind.SERVER,
            attributes_of(span.method or "", span.target, span.version),
            (),
        )
        decision = result.decision
        own = self.new_attributes(result.attributes) if result.attributes else None
        return decision.is_sampled(), decision.is_recording(), own, result.trace_state

    def extract(self, meta: Any) -> tuple[Any, SpanContext | None]:
        """The context that a request brought, and its span's, by the global propagators."""
        context = propagate.extract(strings_of(meta), otel_context.Context())
        parent = trace.get_current_span(context).get_span_context()
        return context or None, parent if parent.is_valid else None

    def baggage(self, text: str) -> Context:
        """The context that has this baggage."""
        return _baggage.extract({"baggage": text}, otel_context.Context())

    def tracestate(self, text: str) -> TraceState:
        """A tracestate."""
        return TraceState.from_header([text])

    def span_context(self, span: CallSpan) -> SpanContext:
        """The ids of a span."""
        state = _NO_STATE if span.state is None else span.state
        if not _IDS_ARE_TUPLES:
            return SpanContext(span.trace_id, span.id, False, _FLAGS[span.flags], state)
        ids = (span.trace_id, span.id, False, _FLAGS[span.flags], state, True)
        return tuple.__new__(SpanContext, ids)

    # -- what handlers set, within the provider's limits -----------------------------------------

    def new_attributes(self, attributes: Any = None) -> BoundedAttributes:
        """Attributes of a span."""
        limits = self._limits
        return BoundedAttributes(
            limits.max_span_attributes,
            attributes,
            immutable=False,
            max_value_len=limits.max_span_attribute_length,
        )

    def event(self, name: str, attributes: Any, timestamp: int) -> Any:
        """An event."""
        bounded = self._told(self._limits.max_event_attributes, attributes)
        return self._event_type(name, bounded, timestamp)

    def link(self, context: SpanContext | None, attributes: Any) -> trace.Link | None:
        """A link; None where it would say nothing."""
        if context is None or not (context.is_valid or attributes or context.trace_state):
            return None
        return trace.Link(context, self._told(self._limits.max_link_attributes, attributes))

    def _told(self, most: int | None, attributes: Any) -> BoundedAttributes:
        return BoundedAttributes(most, attributes, max_value_len=self._limits.max_attribute_length)

    # -- for exporters ---------------------------------------------------------------------------

    def parent(self, span: CallSpan) -> SpanContext | None:
        """The ids of its parent."""
        if not span.parent_span_id or span.remote_parent is not None:
            return cast("SpanContext | None", span.remote_parent)
        return SpanContext(span.trace_id, span.parent_span_id, True, _FLAGS[span.flags], span.state)

    def readable(self, span: CallSpan) -> ReadableSpan:
        """All that a span says; of one that has not ended what it says by now."""
        method = span.method or ""
        attributes = attributes_of(method, span.target, span.version)
        attributes["jsonrpc.request.id"] = id_text(span.raw_id)
        error = error_attributes(span.code, span.failed)
        if span.own is None:
            attributes.update(error)
            bounded = self._bounded(attributes)
        else:
            bounded = self.new_attributes(attributes)
            bounded.update(span.own)
            bounded.update(error)
            bounded.dropped += span.own.dropped
            bounded._immutable = not span.is_recording()
        return self.readable_type(
            span.renamed or text_of(server_span_name(span.server, method, span.target)),
            context=span.context,
            parent=self.parent(span),
            resource=self._resource,
            attributes=bounded,
            events=() if span.own_events is None else span.own_events,
            links=() if span.own_links is None else span.own_links,
            kind=SpanKind.SERVER,
            status=self._failure(span.note) if error else span.own_status or _UNSET,
            start_time=span.started,
            end_time=span.finished or None,
            instrumentation_scope=self._scope,
        )

    @staticmethod
    def _failure(note: str | None) -> Status:
        return Status(StatusCode.ERROR, None if note is None else text_of(note))

    def _bounded(self, attributes: dict[str, Any]) -> BoundedAttributes:
        """Attributes of ours, which are clean."""
        limits = self._limits
        most, longest = limits.max_span_attributes, limits.max_span_attribute_length
        full = most is not None and most < len(attributes)
        if full or longest is not None or not _ATTRIBUTES_ARE_A_DICT:
            return BoundedAttributes(most, attributes, max_value_len=longest)
        bounded = BoundedAttributes(most)
        bounded._dict = attributes
        return bounded


# Whose ids must differ after a fork; what is registered there is never forgotten.
_supports: weakref.WeakSet[_Light] = weakref.WeakSet()


def _after_fork() -> None:
    for support in list(_supports):
        support.seed()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _silent(processor: Any) -> bool:
    """Whether a processor does nothing when a span begins, nor just before it ends."""
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    usual = (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)
    return all(
        getattr(type(processor), name, None) in [getattr(kind, name, None) for kind in usual]
        for name in ("on_start", "_on_ending")
    )


def _fits(provider: Any, tracer: Any) -> bool:
    """Whether the provider has all that late spans need."""
    from opentelemetry.sdk.trace import SynchronousMultiSpanProcessor

    processor = getattr(provider, "_active_span_processor", None)
    parts = getattr(processor, "_span_processors", None)
    return (
        type(processor) is SynchronousMultiSpanProcessor
        and isinstance(parts, tuple)
        and all(map(_silent, parts))
        and all(hasattr(provider, name) for name in _NEEDS)
        and hasattr(tracer, "_instrumentation_scope")
        and getattr(tracer, "_is_enabled", bool)()
    )


def _mode(sampler: Any) -> tuple[str, int]:
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, TraceIdRatioBased

    if sampler is ALWAYS_ON:
        return "keep", 0
    if sampler is ALWAYS_OFF:
        return "drop", 0
    if getattr(type(sampler), "should_sample", None) is TraceIdRatioBased.should_sample:
        bound = sampler.bound
        return ("keep", 0) if bound > 0xFFFFFFFFFFFFFFFF else ("ratio", bound)
    return "ask", 0


def _modes(sampler: Any) -> tuple[str, str, str, int]:
    """How a sampler decides on roots, below sampled and below unsampled parents."""
    from opentelemetry.sdk.trace.sampling import ParentBased

    if getattr(type(sampler), "should_sample", None) is ParentBased.should_sample:
        parts = [
            getattr(sampler, name, None)
            for name in ("_root", "_remote_parent_sampled", "_remote_parent_not_sampled")
        ]
    else:
        parts = [sampler] * 3
    found = [_mode(part) for part in parts]
    bounds = {bound for mode, bound in found if mode == "ratio"}
    if len(bounds) > 1 or any(mode == "ask" for mode, _ in found):
        return "ask", "ask", "ask", 0
    root, sampled, unsampled = (mode for mode, _ in found)
    return root, sampled, unsampled, bounds.pop() if bounds else 0


# -- servers: spans as the API has them -----------------------------------------------------------


class _Plain:
    """Spans made by ``tracer.start_span``, whatever the tracer is."""

    def __init__(self, server: Server, tracer: Any) -> None:
        self._server = server
        self._tracer = tracer

    def begin(self, connection: Any, message: Any) -> _PlainSpan:
        """The span of a request that came in."""
        carrier = strings_of(message.lease("params._meta"))
        context = propagate.extract(carrier, otel_context.Context())
        method = text_of(message.method)
        target = message.text("params.uri" if method.startswith("resources/") else "params.name")
        version = message.text("params._meta.io.modelcontextprotocol/protocolVersion")
        if version is None and connection.revision is not None:
            version = connection.revision.version
        attributes = attributes_of(method, target, version)
        raw_id = message.raw_id
        attributes["jsonrpc.request.id"] = id_text(raw_id) if len(raw_id) <= MAX_TEXT else ""
        span = self._tracer.start_span(
            server_span_name(self._server, method, target),
            context,
            SpanKind.SERVER,
            attributes,
        )
        return _PlainSpan(span, trace.set_span_in_context(span, context))


class _PlainSpan(RequestSpan):
    """A span of any tracer, as a connection has it."""

    __slots__ = ("_context", "_span")

    def __init__(self, span: Any, context: Context) -> None:
        self._span = span
        self._context = context

    def entered(self, base: Any) -> Any:
        variables = base.copy()
        variables.run(otel_context.attach, self._context)
        return variables

    def end_call(self, code: int, failed: bool) -> None:
        try:
            error = error_attributes(code, failed)
            if error:
                self._span.set_attributes(error)
                note = None if self.note is None else text_of(self.note)
                self._span.set_status(Status(StatusCode.ERROR, note))
            self._span.end()
        except Exception:
            logger.exception("a span processor failed")
