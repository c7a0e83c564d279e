"""Requests of a legacy server (2024-11-05 to 2025-11-25), answered by the handlers of the client
and of its extensions.

``Limits.max_in_flight`` of the session limits the requests that are answered at once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.client.answering.answerer import Answering, Question, question_of
from wirespeed.client.answering.progress import Reporter, reporter_of
from wirespeed.client.callback_queue import CallbackQueue
from wirespeed.errors import Declined, HandlerFailed, ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.asking import CREATE_MESSAGE, RULES, ElicitRequestParams
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.connection.connection import ClientConnection

__all__ = ["Inbox"]

# Elicitations in url mode whose completion a server may report. The oldest is forgotten first.
MAX_EXPECTED = 1000


class _Completed(msgspec.Struct, rename="camel"):
    elicitation_id: str


_completed = msgspec.json.Decoder(_Completed).decode
_params = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

logger = logging.getLogger("wirespeed.client")


class _Running:
    """A request that a handler works on. The session keeps it as the request's token."""

    __slots__ = ("cancelled", "ref", "task")

    task: asyncio.Future[Any]

    def __init__(self, ref: int) -> None:
        self.ref = ref
        self.cancelled = False

    def cancel(self) -> None:
        """The server cancelled the request."""
        self.cancelled = True
        self.task.cancel()


class Inbox:
    """The requests that the server sends over one connection."""

    def __init__(
        self,
        connection: ClientConnection,
        answering: Answering | None,
        capabilities: Mapping[str, Any],
        version: str,
        functions: Mapping[str, Callable[[dict[str, Any]], Any]],
    ) -> None:
        self._connection = connection
        self._answering = answering
        self._capabilities = capabilities
        self._version = version
        self._functions = functions
        self._running: set[_Running] = set()
        self._held: list[tuple[int, float]] = []  # time limits, while a handler runs
        self._since = 0.0
        self._expected: dict[str, None] = {}
        self._quiet = RateLimitedLog(logger)
        self._on_complete: CallbackQueue | None = None
        if answering is not None and answering.on_elicit_complete is not None:
            name, spawn = "on_elicit_complete", connection.owner.spawn
            self._on_complete = CallbackQueue(answering.on_elicit_complete, name, spawn)

    def asked(self, message: Message) -> None:
        """Answer a request of the server."""
        method = message.method
        assert method is not None
        running = _Running(message.ref)
        function = self._functions.get(method)
        if function is not None:
            params = message.params
            text = b"{}" if params is None else bytes(params)
            self._start(running, self._serve(running, method, function, text))
            return
        try:
            question = question_of(method, message.params, self._capabilities, self._version)
        except ProtocolError as exc:
            self._connection.refuse(message.ref, exc.code, exc.message, exc.data)
            return
        if isinstance(question.params, ElicitRequestParams):
            self._expect(question.params.elicitation_id)
        reporter = reporter_of(self._connection, message)
        self._start(running, self._answer(running, question, reporter))

    def _start(self, running: _Running, work: Coroutine[Any, Any, None]) -> None:
        if not self._running:
            # the time limits of calls stand still: the handler may ask a person
            self._held, self._since = self._connection.stand_still(), self._connection.loop.time()
        self._running.add(running)
        self._connection.session.set_token(running.ref, running)
        running.task = self._connection.owner.spawn(work)
        # a callback: a task that is cancelled before its start never runs its coroutine
        running.task.add_done_callback(lambda _: self._ended(running))

    def _expect(self, elicitation_id: Any) -> None:
        if isinstance(elicitation_id, str) and RULES[self._version].elicitation_id:
            self._expected[elicitation_id] = None
            if len(self._expected) > MAX_EXPECTED:
                del self._expected[next(iter(self._expected))]

    def required(self, data: Any) -> None:
        """The server refused a request with -32042 until the elicitations in its ``data`` are
        complete (client/elicitation of 2025-11-25, "URL Elicitation Required Error")."""
        elicitations = data.get("elicitations") if isinstance(data, dict) else None
        for one in elicitations if isinstance(elicitations, list) else ():
            if isinstance(one, dict):
                self._expect(one.get("elicitationId"))

    def completed(self, message: Message) -> None:
        """Handle notifications/elicitation/complete (2025-11-25). Unknown ids are ignored."""
        params = message.params
        try:
            completed = _completed(b"" if params is None else params).elicitation_id
        except msgspec.DecodeError as exc:
            text = "notifications/elicitation/complete of the server is not valid: %s"
            self._quiet.log(logging.WARNING, text, exc)
            return
        if completed not in self._expected:
            return
        del self._expected[completed]
        if self._on_complete is not None:
            self._on_complete(completed)

    def close(self) -> None:
        """Cancel the handlers: the connection has ended, so no answer can be sent."""
        for running in tuple(self._running):
            running.task.cancel()

    def _ended(self, running: _Running) -> None:
        self._running.discard(running)
        if not self._running:
            stood = self._connection.loop.time() - self._since
            self._connection.go_on(self._held, stood)
        if running.cancelled:
            self._connection.session.cancelled_done()
            if self._connection.link is not None:
                self._connection.link.wrote()  # the session has room for a waiting request

    async def _answer(
        self, running: _Running, question: Question, reporter: Reporter | None
    ) -> None:
        connection, ref = self._connection, running.ref
        assert self._answering is not None
        try:
            connection.answer(ref, await self._answering.answer(question, reporter))
        except Declined as exc:
            # client/sampling of 2025-11-25, "Error Handling"
            logger.info("%s", exc)
            what = "sampling" if question.method == CREATE_MESSAGE else question.method
            connection.refuse(ref, codes.USER_REJECTED, f"User rejected {what} request")
        except HandlerFailed as exc:
            # the details are for the client's log, not for the server
            logger.error("%s: %s", question.method, exc, exc_info=exc.__cause__)
            connection.refuse(ref, codes.INTERNAL_ERROR, "Internal error")
        except asyncio.CancelledError:
            if not running.cancelled:  # the client is closing
                connection.refuse(ref, codes.INTERNAL_ERROR, "Internal error")
            raise

    async def _serve(
        self,
        running: _Running,
        method: str,
        function: Callable[[dict[str, Any]], Any],
        params: bytes,
    ) -> None:
        """Answer a request that an extension adds."""
        connection, ref = self._connection, running.ref
        try:
            result = function(_params(params))
            if inspect.isawaitable(result):
                result = await result
            connection.answer(ref, _encode({} if result is None else dict(result)))
        except ProtocolError as exc:
            connection.refuse(ref, exc.code, exc.message, exc.data)
        except msgspec.DecodeError as exc:
            connection.refuse(ref, codes.INVALID_PARAMS, f"Invalid params: {exc}")
        except asyncio.CancelledError:
            if not running.cancelled:  # the client is closing
                connection.refuse(ref, codes.INTERNAL_ERROR, "Internal error")
            raise
        except Exception:
            logger.exception("the extension's handler of %.100s failed", method)
            connection.refuse(ref, codes.INTERNAL_ERROR, "Internal error")
