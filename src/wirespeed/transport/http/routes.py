"""Answers beside the endpoint: functions of one's own, and the state of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from wirespeed.transport.gate import NOBODY, Admission, Gate, bearer
from wirespeed.transport.http.exchange import Exchange, HttpTarget
from wirespeed.transport.http.options import RouteHandler
from wirespeed.transport.http.response import HttpResponse
from wirespeed.transport.options import HttpRequest
from wirespeed.transport.taskpool_choice import LAST_WAIT

logger = logging.getLogger("wirespeed.server")

GRACE = 5.0  # seconds that a route has for its answer when the server shuts down
INTERNAL_ERROR = HttpResponse(500, "internal error\n")
SHUTTING_DOWN = HttpResponse(503, "the server is shutting down\n")
ALIVE = HttpResponse(200, "ok\n")


class Route(HttpTarget):
    """The functions of one path, by method.

    Args:
        handlers: The functions.
        loop: The event loop.
    """

    def __init__(
        self, handlers: Mapping[str, RouteHandler], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.methods = tuple(handlers)
        self._handlers = handlers
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._grace: asyncio.TimerHandle | None = None

    def admit(self, gate: Gate, request: HttpRequest) -> Admission:
        """Check Host and Origin. The token is the function's own."""
        gate.check_host(request)
        gate.check_origin(request)
        return NOBODY

    def take(self, exchange: Exchange, body: bytes) -> None:
        handler = self._handlers.get(exchange.method)
        if handler is None:
            text = f"this path takes {' and '.join(self.methods)}\n"
            allow = {"Allow": ", ".join((*self.methods, "OPTIONS"))}
            send(exchange, HttpResponse(405, text, allow))
            return
        headers = exchange.headers
        request = HttpRequest(
            exchange.path,
            exchange.query,
            headers,
            exchange.address,
            bearer(headers.get("authorization", "")),
            exchange.method,
            body,
        )
        task = self._loop.create_task(self._answer(handler, request, exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        exchange.on_gone = task.cancel

    @staticmethod
    async def _answer(handler: RouteHandler, request: HttpRequest, exchange: Exchange) -> None:
        response = SHUTTING_DOWN
        try:
            response = await handler(request)
            if not isinstance(response, HttpResponse):
                raise TypeError(f"a route returns an HttpResponse, not {response!r:.50}")
        except Exception:
            logger.exception("the route %s %s failed", request.method, request.path)
            response = INTERNAL_ERROR
        finally:
            send(exchange, response)

    def drain(self) -> None:
        if self._grace is None:
            self._grace = self._loop.call_later(GRACE, self.close)

    def close(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
        for task in self._tasks:
            task.cancel()

    async def aclose(self) -> None:
        if self._tasks:
            _, stubborn = await asyncio.wait(self._tasks, timeout=LAST_WAIT)
            if stubborn:
                logger.warning("a route ignores its cancellation and is abandoned")


class Health(HttpTarget):
    """Answers whether the server is there and will stay, to everyone: a probe knows no name and no
    token."""

    methods = ("GET", "HEAD")
    _state = ALIVE

    def admit(self, gate: Gate, request: HttpRequest) -> Admission:
        """Let everyone in."""
        return NOBODY

    def take(self, exchange: Exchange, body: bytes) -> None:
        if exchange.method not in self.methods:
            send(exchange, HttpResponse(405, "", {"Allow": "GET, HEAD, OPTIONS"}))
            return
        if self._state is not ALIVE:
            exchange.close_after()
        send(exchange, self._state)

    def leave(self) -> None:
        self._state = SHUTTING_DOWN


def send(exchange: Exchange, response: HttpResponse) -> None:
    """Answer a request."""
    exchange.respond(response.status, response.content, response.fields)
