"""Targets that open WebSockets at the paths of a listener. HTTP connections read the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from wirespeed._core.slab import InputBudget
from wirespeed.limits import Limits
from wirespeed.transport.address import Address
from wirespeed.transport.gate import Admission, Gate, Refused, authority_of
from wirespeed.transport.headers import Headers
from wirespeed.transport.http.exchange import Exchange, HttpTarget, headers_of
from wirespeed.transport.http.options import HttpOptions
from wirespeed.transport.http.routes import well_known_paths
from wirespeed.transport.http.site import HttpSite
from wirespeed.transport.http.upgrade import Opening
from wirespeed.transport.options import ListenOptions, Refusal
from wirespeed.transport.service import Peer, ReadsHeaders, Service, has_capability


class _Fields:
    """The header fields of a request, parsed where a handler looks at them: parsed fields take four
    times the memory."""

    __slots__ = ("_head",)

    def __init__(self, head: bytes) -> None:
        self._head = head

    def __call__(self) -> Headers:
        return headers_of(self._head)


class WebSocketTarget(HttpTarget):
    """Opens WebSockets at the path of a service.

    Args:
        service: The service.
        options: The options of the listener.
    """

    methods = ("GET",)

    def __init__(self, service: Service, options: ListenOptions) -> None:
        self.opens = True
        self.auth_headers = tuple(service.auth_headers)
        self.refusal_status = service.refusal_status
        self.authority = authority_of(service)
        self._service = service
        self._options = options

    def take(self, exchange: Exchange, body: bytes) -> None:
        """Answer the opening handshake. Refused: the request is not accepted."""
        connection: Any = exchange.carrier
        if exchange.method != "GET":
            raise Refused(Refusal(405, "a WebSocket is opened by GET", {"Allow": "GET, OPTIONS"}))
        if connection.framer.head.minor == 0:
            raise Refused(Refusal(505, "a WebSocket is opened by HTTP/1.1"))
        if connection.draining:
            raise Refused(Refusal(503, "the server is shutting down"))
        try:
            from wirespeed.transport.websocket.upgrade import ServerHandshake
        except ModuleNotFoundError as exc:
            why = f"this server has no WebSocket: its package {exc.name} is not installed"
            raise Refused(Refusal(501, why)) from None
        from wirespeed._core.framing.websocket import WebSocketFramer

        service = self._service
        handshake = ServerHandshake(exchange.headers, compression=self._options.compression)
        answer = handshake.accept(self._choose(handshake.offered), self._options.headers)
        end = len(b"\r\n")
        answer = answer[:-end] + exchange.more_fields + answer[-end:]
        framer = WebSocketFramer(
            "server", max_message=service.limits.max_message, deflate=handshake.extension
        )
        unread = has_capability(service, ReadsHeaders) and not service.reads_headers
        fields = None if unread else _Fields(exchange.head)
        peer = Peer(exchange.address, exchange.user, fields)
        admitted = Admission(exchange.user, exchange.principal, expires=exchange.expires)
        connection.upgrade(answer, Opening(self, service, peer, admitted, framer))

    def _choose(self, offered: list[str]) -> str | None:
        """The subprotocol of the connection."""
        own = self._service.subprotocol
        if own is None:
            return offered[0] if offered else None
        if own in offered:
            return own
        if offered or self._options.require_subprotocol:
            raise Refused(Refusal(400, f"the subprotocol of this server is {own}"))
        return None


def make_site(
    services: Mapping[str, Service],
    options: ListenOptions,
    address: Address,
    *,
    local: bool,
    loop: asyncio.AbstractEventLoop,
) -> HttpSite:
    """Return what a listener of ``ws://`` serves: one request a connection, without a body to speak
    of. ModuleNotFoundError: the package `websockets` is not installed."""
    import wirespeed.transport.websocket.upgrade  # noqa: F401

    http = HttpOptions(max_requests=1)
    return HttpSite(
        service_targets(services, options, {}),
        options=http,
        limits=Limits(max_message=http.max_head),
        gate=Gate(options, address, local=local),
        budget=InputBudget(options.max_input_bytes),
        loop=loop,
    )


def service_targets(
    services: Mapping[str, Service], options: ListenOptions, known: Mapping[str, HttpTarget]
) -> dict[str, HttpTarget]:
    """Return the targets of services by path. ``known``: those that there are already."""
    targets = dict(known)
    for path, service in services.items():
        if path not in known:
            targets[path] = WebSocketTarget(service, options)
        for place, target in well_known_paths(service, path).items():
            targets.setdefault(place, target)
    return targets
