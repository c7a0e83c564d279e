"""OpenTelemetry traces of servers, clients and the proxy.

They need ``pip install wirespeed[otel]``. To record spans, they also need an SDK
(``opentelemetry-sdk``) with an exporter.

>>> from wirespeed.ext.otel import instrument
>>> instrument(server)          # the global TracerProvider, or tracer_provider=…

Each request becomes a span, of kind SERVER in a server and of kind CLIENT in a client. Its name is
``{method} {tool}``, ``{method} {prompt}``, or the method alone. Its attributes are those of the
semantic conventions for MCP (status: development): ``mcp.method.name``, ``mcp.protocol.version``,
``jsonrpc.request.id``, ``gen_ai.tool.name`` and ``gen_ai.operation.name`` (``execute_tool``),
``gen_ai.prompt.name``, ``mcp.resource.uri``. The span of a failed request also has ``error.type``
(the error code, ``tool_error`` for a result with ``isError``, or ``cancelled``),
``rpc.response.status_code``, and the status ERROR with the error's message. Arguments and results
are not recorded.

The context of the parent span is sent in ``_meta`` as ``traceparent``, ``tracestate`` and
``baggage`` (2026-07-28 basic, "OpenTelemetry trace context"), in requests of legacy revisions, too.
Values that are not valid are ignored. In a handler and in a server's middleware the request's span
is the current span, so that their own spans become its children.

A request that the proxy passes on becomes a span of kind SERVER, which ends with the answer. Its
name is the method, and ``peer.service`` is the server that got it. That server's span
becomes its child: the proxy edits ``_meta`` of the request, and nothing else of it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from wirespeed.client.requests.middleware import OutboundChain
from wirespeed.errors import CallTimeout, ConfigError, RemoteError
from wirespeed.server.requests.observer import RequestSpan
from wirespeed.server.requests.params import described

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider

    from wirespeed._core.envelope import Message
    from wirespeed.client.client import Client
    from wirespeed.client.requests.middleware import OutboundNext, OutboundRequest
    from wirespeed.client.sync import SyncClient
    from wirespeed.protocol.revisions import Revision
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.proxy import Proxy
    from wirespeed.proxy.upstream import Upstream
    from wirespeed.server.middleware.functions import AskNext
    from wirespeed.server.middleware.stack import ServerRequest
    from wirespeed.server.server import Server

__all__ = ["instrument"]

logger = logging.getLogger("wirespeed.server")
proxy_logger = logging.getLogger("wirespeed.proxy")

SCOPE = "wirespeed"


def instrument(
    target: Server | Client | SyncClient | Proxy, *, tracer_provider: TracerProvider | None = None
) -> None:
    """Trace the requests of a server, a client or the proxy.

    Args:
        target: A `wirespeed.Server` or a `wirespeed.proxy.Proxy`, before its clients connect, or a
            client, before its calls.
        tracer_provider: The provider of tracers; by default the global provider, which must be set
            before this call.

    Raises:
        ValueError: The server or the proxy is traced already.
    """
    from wirespeed import __version__
    from wirespeed.client.client import Client
    from wirespeed.client.sync import SyncClient
    from wirespeed.server.server import Server

    provider = trace.get_tracer_provider() if tracer_provider is None else tracer_provider
    tracer = provider.get_tracer(SCOPE, __version__)
    if isinstance(target, SyncClient):
        target = target._client
    if isinstance(target, Client):
        link = client_link(tracer)
        chain = target._sender.middleware
        target._sender.middleware = (
            OutboundChain([link]) if chain is None else chain.with_outermost(link)
        )
        return
    if not isinstance(target, Server):
        target.trace(ProxyTracer(tracer))
        return
    observer = target.observe()
    if observer.tracer is not None:
        raise ValueError(f"{target!r} is traced already")
    observer.tracer = _Tracer(target, tracer)
    trace_questions(target, tracer)


def provider_of_environment(name: str, service: str = "wirespeed-proxy") -> TracerProvider:
    """Return a provider with what the variables of OpenTelemetry say (``OTEL_TRACES_EXPORTER``,
    ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_TRACES_SAMPLER``, …), or else the global one, if the
    program has one already (``opentelemetry-instrument``).

    Args:
        name: The name of this instance of the service.
        service: The name of the service, where the variables have none.

    Raises:
        ConfigError: The SDK, or the exporter that the variables name, is not installed.
    """
    import os
    from importlib.metadata import entry_points

    found = trace.get_tracer_provider()
    if not isinstance(found, trace.ProxyTracerProvider):
        return found
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider as Provider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ConfigError(
            "needs the SDK of OpenTelemetry: pip install opentelemetry-sdk "
            "opentelemetry-exporter-otlp"
        ) from None
    attributes = {"service.instance.id": name}
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        attributes["service.name"] = service
    provider = Provider(resource=Resource.create(attributes))
    given = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    for one in filter(None, map(str.strip, given.split(","))):
        if one == "none":
            continue
        exporters = entry_points(group="opentelemetry_traces_exporter", name=one)
        if not exporters:
            raise ConfigError(
                f"the exporter {one} is not installed: pip install opentelemetry-exporter-{one}, "
                "or name another one in OTEL_TRACES_EXPORTER"
            )
        provider.add_span_processor(BatchSpanProcessor(next(iter(exporters)).load()()))
    return provider


class _Tracer:
    """The spans of a server's requests."""

    def __init__(self, server: Server, tracer: Any) -> None:
        self._server = server
        self._tracer = tracer

    def begin(self, message: Message, negotiated: Revision | None) -> _Span | None:
        """Start and return the span of a request that the server received. None: a sampler or a
        span processor failed, and the request has no span."""
        request = described(message, negotiated)
        try:
            context = propagate.extract(strings_of(message.lease("params._meta")))
            span = self._tracer.start_span(
                server_span_name(self._server, request[0], request[1]),
                context,
                SpanKind.SERVER,
                request_attributes(request),
            )
        except Exception:
            logger.exception("a span cannot be made")
            return None
        return _Span(span, trace.set_span_in_context(span, context))


class _Span(RequestSpan):
    """The span of a request, with the interface that connections use."""

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
            mark_failed(self._span, code, failed, self.note)
            self._span.end()
        except Exception:
            logger.exception("a span processor failed")


def failed(span: Any, exc: BaseException) -> None:
    """Record the exception of a request in its span."""
    if isinstance(exc, RemoteError):
        span.set_attributes(error_attributes(exc.code, False))
        span.set_status(Status(StatusCode.ERROR, text_of(exc.message)))
        return
    kind = type(exc).__qualname__
    if isinstance(exc, asyncio.CancelledError):
        kind = "cancelled"
    elif isinstance(exc, CallTimeout):
        kind = "timeout"
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, text_of(str(exc)) or None))


def client_link(tracer: Any) -> Callable[[OutboundRequest, OutboundNext], Any]:
    """Return client middleware that traces requests."""

    async def traced(request: OutboundRequest, call_next: OutboundNext) -> Any:
        with tracer.start_as_current_span(
            span_name(request.method, request.name),
            kind=SpanKind.CLIENT,
            attributes=attributes_of(request.method, request.name, request.protocol_version),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            propagate.inject(request.meta)
            try:
                result = await call_next(request)
            except BaseException as exc:
                failed(span, exc)
                raise
            if getattr(result, "is_error", False) is True:
                span.set_attributes(error_attributes(0, True))
                span.set_status(Status(StatusCode.ERROR))
            return result

    return traced


def trace_questions(server: Server, tracer: Any) -> None:
    """Trace a server's requests to its client as children of the span of the client's request."""

    @server.add_ask_middleware
    async def traced(question: ServerRequest, call_next: AskNext) -> bytes:
        with tracer.start_as_current_span(
            question.method,
            kind=SpanKind.CLIENT,
            attributes={"mcp.method.name": question.method},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            if carrier:
                members = msgspec.json.decode(question.params or b"{}", type=dict[str, msgspec.Raw])
                meta = msgspec.json.decode(members.get("_meta", b"{}"), type=dict[str, msgspec.Raw])
                members["_meta"] = msgspec.Raw(msgspec.json.encode({**meta, **carrier}))
                question.params = msgspec.json.encode(members)
            try:
                return await call_next(question)
            except BaseException as exc:
                failed(span, exc)
                raise


class ProxyTracer:
    """The spans of the requests that the proxy passes on."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    def begin(
        self, asker: Downstream, answerer: Upstream, message: Message
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
    """The span of a request that the proxy passes on."""

    __slots__ = ("_span",)

    def __init__(self, span: Any) -> None:
        self._span = span

    def end(self, code: int) -> None:
        """The request is over: the code of its error, 0 for none, 1 if it was cancelled."""
        try:
            mark_failed(self._span, code, False, None)
            self._span.end()
        except Exception:
            proxy_logger.exception("a span processor failed")


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


# What `wirespeed.server.requests.params.described` returns: method, target (the name of a tool or
# prompt, or a URI), protocol version, JSON text of the id.
Request: TypeAlias = tuple[str, str | None, str | None, bytes]

CANCELLED = 1  # in place of an error code; no error has this code
MAX_TEXT = 1024  # the most characters that a span has of one text of the peer


def attributes_of(method: str, target: str | None, version: str | None) -> dict[str, Any]:
    """Return the attributes that a request has in the client's and in the server's span."""
    attributes: dict[str, Any] = {"mcp.method.name": text_of(method)}
    if method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    if target is not None:
        target = text_of(target)
        if method == "tools/call":
            attributes["gen_ai.tool.name"] = target
        elif method == "prompts/get":
            attributes["gen_ai.prompt.name"] = target
        elif method.startswith("resources/"):
            attributes["mcp.resource.uri"] = target
    if version is not None:
        attributes["mcp.protocol.version"] = text_of(version)
    return attributes


def request_attributes(request: Request) -> dict[str, Any]:
    """Return the attributes of a request that a server received."""
    method, target, version, raw_id = request
    attributes = attributes_of(method, target, version)
    attributes["jsonrpc.request.id"] = id_text(raw_id) if len(raw_id) <= MAX_TEXT else ""
    return attributes


def span_name(method: str, target: str | None) -> str:
    if target is not None and method in ("tools/call", "prompts/get"):
        return f"{method} {target}"
    return method


def server_span_name(server: Server, method: str, target: str | None) -> str:
    """Return the `span_name` with a target that the server has, otherwise the method alone: clients
    must not choose the names of spans."""
    if method == "tools/call" and target not in server.service.tools:
        return method
    if method == "prompts/get" and target not in server.service.prompts:
        return method
    return span_name(method, target)


def mark_failed(span: Any, code: int, failed: bool, note: str | None) -> None:
    """Record the failure of a request in its span: an error's code and text, or ``isError``."""
    error = error_attributes(code, failed)
    if error:
        span.set_attributes(error)
        span.set_status(Status(StatusCode.ERROR, None if note is None else text_of(note)))


def error_attributes(code: int, failed: bool) -> dict[str, Any]:
    if code == CANCELLED:
        return {"error.type": "cancelled"}
    if code:
        return {"error.type": str(code), "rpc.response.status_code": str(code)}
    return {"error.type": "tool_error"} if failed else {}


def id_text(raw_id: bytes) -> str:
    try:
        return str(msgspec.json.decode(raw_id))
    except msgspec.DecodeError:  # half a surrogate pair
        return raw_id.decode("utf-8", "replace")


def text_of(text: str) -> str:
    """Return a peer's text as an exporter can send it: short, and without lone surrogates."""
    text = text[:MAX_TEXT]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def strings_of(meta: Any) -> dict[str, str]:
    """Return the string members of ``meta``, the JSON text of a request's ``_meta``; no members if
    the text is not a valid object."""
    try:
        members = {} if meta is None else msgspec.json.decode(meta, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    return {key: value for key, value in members.items() if isinstance(value, str)}
