"""Middleware of a client: functions around each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from wirespeed._exports import set_public_home

if TYPE_CHECKING:
    from wirespeed.client.requests.send import Sender
    from wirespeed.client.timeouts import Timeout

__all__ = ["ClientMiddleware", "OutboundChain", "OutboundNext", "OutboundRequest"]


class _Named(msgspec.Struct):
    name: str | None = None
    uri: str | None = None


_named = msgspec.json.Decoder(_Named).decode


class OutboundRequest:
    """A request of a client, as its middleware sees it.

    Attributes:
        arguments: The arguments of tools/call, as the caller passed them; may be replaced.
        params: For every other method, and for further rounds of a call (basic/patterns/mrtr): the
            JSON text of the params without ``_meta``, or None; may be replaced.
        meta: Members of ``_meta`` besides those that the client writes; may be changed.
        timeout: Seconds; None for no limit, `CLIENT_DEFAULT` for the client's; may be changed.
    """

    __slots__ = ("_method", "_name", "_sender", "arguments", "meta", "params", "timeout")

    def __init__(
        self,
        sender: Sender,
        method: str,
        name: str | None,
        params: bytes | None,
        arguments: Any,
        meta: Mapping[str, Any] | None,
        timeout: Timeout,
    ) -> None:
        self._sender = sender
        self._name = name
        self._method = method
        self.params = params
        self.arguments = arguments
        self.meta: dict[str, Any] = dict(meta or {})
        self.timeout = timeout

    def __repr__(self) -> str:
        return f"<OutboundRequest {self.method} {self.name or ''}>"

    @property
    def method(self) -> str:
        """The method. It cannot be replaced: the caller waits for the result of this method."""
        return self._method

    @property
    def name(self) -> str | None:
        """The name of the tool or prompt, or the URI of the resource, or None."""
        if self._name is None and self.params is not None:
            try:
                found = _named(self.params)
            except msgspec.DecodeError:  # of another type, in a method of an extension
                return None
            self._name = found.name or found.uri
        return self._name

    @property
    def protocol_version(self) -> str | None:
        """The revision agreed on; None before that."""
        agreement = self._sender.life.agreement
        return None if agreement is None else agreement.revision.version


OutboundNext: TypeAlias = Callable[[OutboundRequest], Awaitable[Any]]
"""The function that a middleware of a client calls for the result of the request."""

ClientMiddleware: TypeAlias = Callable[[OutboundRequest, OutboundNext], Awaitable[Any]]
"""A middleware of a client: an ``async`` function with the request and the next function."""


class OutboundChain:
    """The middleware of one client, outermost first.

    TypeError: a middleware is not callable.
    """

    __slots__ = ("_links",)

    def __init__(self, links: Iterable[ClientMiddleware]) -> None:
        self._links = tuple(links)
        for link in self._links:
            if not callable(link):
                raise TypeError(f"a middleware must be callable, not {type(link).__name__}")

    def with_outermost(self, link: ClientMiddleware) -> OutboundChain:
        """The chain with one more middleware around it."""
        return OutboundChain((link, *self._links))

    async def run(self, request: OutboundRequest, send: OutboundNext) -> Any:
        """Pass a request through the middleware; the last one calls ``send``."""
        return await self._step(0, send)(request)

    def _step(self, at: int, send: OutboundNext) -> OutboundNext:
        if at == len(self._links):
            return send

        def call_next(request: OutboundRequest) -> Awaitable[Any]:
            return self._links[at](request, self._step(at + 1, send))

        return call_next


set_public_home(globals())
