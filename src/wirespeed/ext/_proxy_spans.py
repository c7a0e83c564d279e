"""Spans of the requests that the proxy passes on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind

from wirespeed.ext._conventions import mark_failed, request_attributes, strings_of, text_of
from wirespeed.server.requests.params import described

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.front import Front

logger = logging.getLogger("wirespeed.proxy")


class ProxyTracer:
    """Makes a span for each request."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    def begin(
        self, asker: Front, answerer: Backend, message: Message
    ) -> tuple[ProxySpan, bytes | None]:
        """Start the span of a request. Returns it, and the JSON text of ``_meta`` with its context;
        None: ``_meta`` stays as it is."""
        lease = message.lease("params._meta")
        context = propagate.extract(strings_of(lease))
        request = described(message, asker.revision)
        attributes = request_attributes(request)
        attributes["peer.service"] = answerer.name
        span = self._tracer.start_span(text_of(request[0]), context, SpanKind.SERVER, attributes)
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span, context))
        return ProxySpan(span), _with(lease, carrier) if carrier else None


class ProxySpan:
    """The span of a request."""

    __slots__ = ("_span",)

    def __init__(self, span: Any) -> None:
        self._span = span

    def end(self, code: int) -> None:
        """The request is over: the code of its error, 0 for none, 1 if it was cancelled."""
        try:
            mark_failed(self._span, code, False, None)
            self._span.end()
        except Exception:
            logger.exception("a span processor failed")


def _with(meta: Any, carrier: dict[str, str]) -> bytes | None:
    """``_meta`` with the members of a trace context; None: it is not an object."""
    try:
        members = msgspec.json.decode(b"{}" if meta is None else meta, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return None
    members.pop("tracestate", None)  # of another trace, unless it is in the carrier
    for name, value in carrier.items():
        members[name] = msgspec.Raw(msgspec.json.encode(value))
    return msgspec.json.encode(members)
