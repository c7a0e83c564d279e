"""The requests of a LiteMCP client over HTTP: GET for the tool, POST for a call (LiteMCP,
transmission/http)."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed._core.framing.http.writer import field_lines
from wirespeed.client.connection.network_channels import pools_to
from wirespeed.client.http.answers import status_error
from wirespeed.errors import ConnectionClosed, InvalidResponse
from wirespeed.litemcp.envelope import BadMessage, check_json
from wirespeed.litemcp.messages import VERSION, IOBasic
from wirespeed.litemcp.requests import Requests, Waiter

if TYPE_CHECKING:
    from wirespeed.client.targets import Http
    from wirespeed.limits import Limits
    from wirespeed.transport.options import Headers

__all__ = ["HttpRequests"]

_OWN_VERSION = msgspec.Raw(msgspec.json.encode(VERSION))
_ACCEPT = ("Accept", "application/json")
_TYPE = ("Content-Type", "application/json")
_TOKEN = "; Http(token=…) takes the server's token"


class HttpRequests(Requests):
    """The requests to one server, and the channel to it. Nothing is sent before the first
    request. TransportError: the proxy of the environment is not valid."""

    def __init__(self, target: Http, limits: Limits) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop, limits)
        self.target = target
        self.max_depth = limits.max_depth
        self._pool = pools_to(target, loop, limits)(target.max_connections)
        fields = [*target.request_headers().items(), _ACCEPT]
        self._get_fields = field_lines(fields)
        self._post_fields = field_lines([*fields, _TYPE])

    def _send(self, waiter: Waiter, call: bytes | None) -> None:
        method = "GET" if call is None else "POST"
        fields = self._get_fields if call is None else self._post_fields
        place, answer = self.target.address.target, _Answer(self, waiter)
        waiter.call = self._pool.request(method, place, fields, call, answer)

    def ended(self, answer: _Answer, exc: BaseException | None) -> None:
        """The response is whole, or an error is known."""
        waiter = self._take(answer.waiter.id)
        if waiter is None or waiter.future.done():
            return
        if exc is None:
            self.answers += 1
            exc = self._fault(answer)
        if exc is not None:
            waiter.future.set_exception(exc)
        else:
            # the envelope that HTTP leaves out
            waiter.answered(IOBasic(waiter.kind, _OWN_VERSION, data=msgspec.Raw(answer.body)))

    def _fault(self, answer: _Answer) -> Exception | None:
        """Return why a response is not an answer; None: it is."""
        what, status = answer.waiter.what, answer.status
        if status != 200:
            note = _TOKEN if status in (401, 403) and self.target.token is None else ""
            return status_error(
                self.target.where,
                what,
                status,
                answer.headers,
                answer.body,
                secrets=self.target.secrets(),
                note=note,
            )
        try:
            check_json(answer.body, self.max_depth)
        except BadMessage as exc:
            return InvalidResponse(f"{self.target.where} answered {what} with a body that is {exc}")
        return None

    # -- the channel -----------------------------------------------------------------------------

    def hang_up(self) -> None:
        """Nothing is queued."""

    def released(self) -> None:
        """There is no link."""

    async def failure(self, reason: str) -> ConnectionClosed:
        """Return the error of a link that is gone."""
        return ConnectionClosed(reason)

    async def close(self, *, hurry: bool = False) -> None:
        """End all requests, and close all connections, which waits for nothing."""
        await self._pool.close()


class _Answer:
    """Receives one response; see `wirespeed.transport.http.pool.Receiver`."""

    __slots__ = ("body", "headers", "requests", "status", "waiter")

    headers: Headers

    def __init__(self, requests: HttpRequests, waiter: Waiter) -> None:
        self.requests = requests
        self.waiter = waiter
        self.status = 0
        self.body = b""

    def on_response(self, status: int, headers: Headers, streaming: bool) -> None:
        self.status, self.headers = status, headers
        if streaming:
            where, what = self.requests.target.where, self.waiter.what
            exc = InvalidResponse(f"{where} answered {what} with a stream of events")
            self.requests.ended(self, exc)
            if self.waiter.call is not None:
                self.waiter.call.abort()

    def on_body(self, data: Any) -> None:
        self.body = bytes(data).removeprefix(BOM_UTF8)

    def on_event(self, event: str, data: Any, id: str | None, retry: int | None) -> None:
        """No event is received."""

    def on_end(self, exc: BaseException | None, sent: bool) -> None:
        self.requests.ended(self, exc)
