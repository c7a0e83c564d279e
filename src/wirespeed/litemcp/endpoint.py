"""A LiteMCP server at a path of HTTP: GET returns the tool, POST calls it (LiteMCP,
transmission/http). Bodies are the Tool, the ToolCall and the CallResult without an envelope."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from typing import TYPE_CHECKING

from wirespeed.litemcp.call import Calls, LiteCall, NotACall
from wirespeed.litemcp.envelope import BadMessage, check_json
from wirespeed.peer.http.headers import is_json
from wirespeed.schema.from_strings import ArgumentError
from wirespeed.transport.http.exchange import HttpTarget
from wirespeed.transport.taskpool_choice import LAST_WAIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wirespeed.litemcp.call import LiteServerOptions
    from wirespeed.litemcp.tool import LiteTool
    from wirespeed.transport.http.exchange import Exchange
    from wirespeed.transport.http.options import HttpOptions
    from wirespeed.transport.taskpool import TaskPool

_JSON = (("Content-Type", "application/json"),)
_TEXT = (("Content-Type", "text/plain; charset=utf-8"),)

# What the page on HTTP shows for long calls.
_KEPT_SECONDS = 180
_KEPT_REQUESTS = 100


class _HttpCall(LiteCall):
    """A call whose result is the body of a response."""

    __slots__ = ("exchange", "keep_alive")

    def __init__(
        self, calls: Calls, arguments: list[str], exchange: Exchange, keep_alive: bytes
    ) -> None:
        super().__init__(calls, arguments)
        self.exchange = exchange
        self.keep_alive = keep_alive

    @property
    def gone(self) -> bool:
        return self.exchange.gone or self.exchange.status != 0

    def send(self, result: bytes) -> None:
        if self.gone:
            return
        if self.running is not None and self.exchange.lasts:
            self.exchange.more_fields += self.keep_alive
        self.exchange.respond(200, result, _JSON)


class LiteEndpoint(HttpTarget):
    """The requests at one path.

    Args:
        server: The server, whose options apply.
        tool: Its tool.
        options: Those of the listener.
        loop: The event loop.
        pool: Runs the handlers.
    """

    methods = ("GET", "HEAD", "POST")

    def __init__(
        self,
        server: LiteServerOptions,
        tool: LiteTool,
        options: HttpOptions,
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
    ) -> None:
        self.auth_headers = server.auth_headers
        self.refusal_status = server.refusal_status
        self._limits = server.limits
        self._info = server.info_json
        self._grace = server.shutdown_grace
        self._loop = loop
        self._calls = Calls(server, tool, loop, pool)
        self._ending: asyncio.TimerHandle | None = None
        self._keep_alive = b""
        seconds = min(_KEPT_SECONDS, int(options.idle_timeout))
        if seconds and options.max_requests is None:
            fields = b"Connection: Keep-Alive\r\nKeep-Alive: timeout=%d, max=%d\r\n"
            self._keep_alive = fields % (seconds, _KEPT_REQUESTS)

    def take(self, exchange: Exchange, body: bytes) -> None:
        """Answer a request."""
        method = exchange.method
        if method == "POST":
            self._call(exchange, body)
        elif method in self.methods:
            exchange.respond(200, self._info, _JSON)
        else:
            allowed = ", ".join((*self.methods, "OPTIONS"))
            refuse(exchange, 405, f"this endpoint takes {allowed}", [("Allow", allowed)])

    def _call(self, exchange: Exchange, body: bytes) -> None:
        headers, most = exchange.headers, self._limits.max_message
        if not is_json(headers.get("content-type", "")):
            refuse(exchange, 415, "the body must be application/json")
        elif headers.get("content-encoding", "identity").lower() != "identity":
            fields = [("Accept-Encoding", "identity")]
            refuse(exchange, 415, "coded bodies are not taken", fields)
        elif len(body) > most:
            refuse(exchange, 413, f"the body has more than {most} bytes")
        else:
            self._run(exchange, body.removeprefix(BOM_UTF8))

    def _run(self, exchange: Exchange, body: bytes) -> None:
        calls = self._calls
        try:
            check_json(body, self._limits.max_depth)
            arguments = calls.read(body, "the body")
        except BadMessage as exc:
            refuse(exchange, 400, f"the body is not a ToolCall: {exc}")
        except NotACall as exc:
            refuse(exchange, 400, str(exc))
        except ArgumentError as exc:
            exchange.respond(200, calls.refused(exc), _JSON)
        else:
            call = _HttpCall(calls, arguments, exchange, self._keep_alive)
            exchange.on_gone = call.cancel
            calls.start(call)

    # -- shutting down ---------------------------------------------------------------------------

    def drain(self) -> None:
        """Running calls have the grace time of the server."""
        if self._ending is None:
            self._ending = self._loop.call_later(self._grace, self._give_up)

    def _give_up(self) -> None:
        self._calls.give_up()
        self._ending = self._loop.call_later(LAST_WAIT, self._answer)

    def _answer(self) -> None:
        # do not wait for a handler that ignores its cancellation
        for call in list(self._calls.running):
            if call.given_up:
                call.done(None, asyncio.CancelledError())
        # again: for calls that the gate lets in after this
        self._ending = self._loop.call_later(self._grace, self._give_up)

    def close(self) -> None:
        """End everything now."""
        if self._ending is not None:
            self._ending.cancel()


def refuse(
    exchange: Exchange, status: int, sentence: str, fields: Iterable[tuple[str, str]] = ()
) -> None:
    """Answer a request that is not served, with the reason as text."""
    exchange.respond(status, sentence.encode() + b"\n", [*_TEXT, *fields])
