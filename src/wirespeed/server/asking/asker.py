"""Questions of a handler to its client: the requests, the ways they go, and their answers.

In the legacy eras a question is a request of the server, and the handler waits for the response
(`DirectAsker`). In 2026-07-28 a server sends no requests (basic/patterns/mrtr, `RoundsAsker`): it
answers the client's own request with the questions and cancels the handler. The client repeats the
request with the answers, and the handler runs again from its start. It gets the answers to its
earlier questions at once, from the sealed ``requestState``, and so reaches its next question.

A handler that works on a task asks through the task (`call.asker`), in every era.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import InvalidResponse, LimitExceeded, LocalError, MissingCapability
from wirespeed.protocol import codes
from wirespeed.protocol.asking import (
    LIST_ROOTS,
    ListRootsParams,
    ListRootsResult,
    Params,
    Root,
    missing_capability,
)
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.schema.json_schema import describe_validation_error
from wirespeed.schema.python_types import enc_hook
from wirespeed.transport.backoff import Backoff

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.server.asking.input_required import InputRequired
    from wirespeed.server.requests.call import Call, Serving

logger = logging.getLogger("wirespeed.server")

MAX_ROUNDS = 10
"""The rounds of questions of a handler that returns `InputRequired` (legacy eras)."""
POLLS = Backoff(0.05, 1.0)  # before the next call of a handler that waits without questions

OnProgress: TypeAlias = Callable[[float, float | None, str | None], object]
"""A function called with the progress, the total or None, and a message or None."""

_encode = msgspec.json.Encoder(enc_hook=enc_hook).encode
_roots = msgspec.json.Decoder(ListRootsResult).decode


# -- requests --------------------------------------------------------------------------------------


def missing(required: dict[str, Any], version: str, text: str | None = None) -> MissingCapability:
    """The error for a request that the client did not declare, with the code of its era."""
    modern = REVISIONS[version].modern
    code = codes.MISSING_CLIENT_CAPABILITY if modern else codes.INTERNAL_ERROR
    return MissingCapability(required, text, code=code)


class InputRequest:
    """A request to the client (``InputRequest`` of 2026-07-28)."""

    __slots__ = ()

    method: ClassVar[str]
    kind: ClassVar[str]
    """The beginning of its key, if the engine chooses the key."""

    def params(self) -> Params:
        """The parameters, as the newest revision has them."""
        raise NotImplementedError

    def fit(self, params: Params, version: str, capabilities: Mapping[str, Any]) -> Params:
        """*params* in the form of another revision and of this client."""
        return params

    def encoded(self, capabilities: Mapping[str, Any], version: str) -> bytes:
        """The parameters as JSON text for a client. MissingCapability: it did not declare this."""
        params = self.params()
        required = missing_capability(self.method, params, capabilities, version)
        if required is not None:
            raise missing(required, version)
        return _encode(self.fit(params, version, capabilities))

    def answer(self, data: bytes) -> Any:
        """The client's result, typed. InvalidResponse: it does not fit."""
        return self.plain_answer(data)

    def plain_answer(self, data: bytes) -> Any:
        """The client's result without the form's type. InvalidResponse: it is malformed."""
        try:
            return self.decode(data)
        except (msgspec.DecodeError, RecursionError) as exc:
            fault = describe_validation_error(exc, "result")
            raise InvalidResponse(f"the client's answer to {self.method}: {fault}") from exc

    @staticmethod
    def decode(data: Any) -> Any:
        """A result as the client sent it. `msgspec.DecodeError`: it is malformed."""
        raise NotImplementedError


class RootsRequest(InputRequest):
    """Ask for the directories and files that the client considers relevant."""

    __slots__ = ()

    method = LIST_ROOTS
    kind = "roots"

    def params(self) -> ListRootsParams:
        return ListRootsParams()

    @staticmethod
    def decode(data: Any) -> list[Root]:
        return _roots(data).roots


# -- askers ----------------------------------------------------------------------------------------


class QuestionOptions(NamedTuple):
    """The options of a question: see `Context.elicit`."""

    timeout: float | None = None
    on_progress: OnProgress | None = None


class Asker:
    """Asks the client of one call, by the capabilities that it declared."""

    def __init__(self, call: Call, capabilities: Mapping[str, Any]) -> None:
        self.call = call
        self.capabilities = capabilities
        self.version: str = call.revision.version
        self.responses: dict[str, Any] = {}  # of the explicit form, typed
        self.state: Any = None
        self._rounds = 0

    async def ask(self, question: InputRequest, how: QuestionOptions) -> Any:
        """The client's answer, typed. MissingCapability: the client cannot be asked this."""
        params = question.encoded(self.capabilities, self.version)
        self._check_running()
        if self.call.asker is not None:
            return question.answer(
                await self.call.asker.ask(question.kind, question.method, params)
            )
        return await self.put(question, params, how)

    def answers(self) -> Mapping[str, Any]:
        """The answers of the last round, typed, for the explicit form."""
        return self.responses

    def _check_running(self) -> None:
        """LocalError: the handler has ended. CancelledError: the handler was cancelled, caught
        that, and goes on."""
        if self.call.context is None:
            raise self._over()
        if self.call.ended and self.call.asker is None:
            raise asyncio.CancelledError

    def _over(self) -> LocalError:
        operation = self.call.operation
        return LocalError(
            f"the {operation.kind} {operation.name!r} has ended, so its client cannot be asked"
        )

    async def put(self, question: InputRequest, params: bytes, how: QuestionOptions) -> Any:
        """Ask in the form of the era."""
        raise NotImplementedError

    async def require(self, required: InputRequired) -> bool:
        """Ask the questions of an `InputRequired`. Returns whether to call the handler again."""
        return await self._drive(required)

    async def _drive(self, required: InputRequired) -> bool:
        """Ask all questions at once, and keep the answers for the handler."""
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            raise LimitExceeded(f"the handler asked more than {MAX_ROUNDS} times")
        if not required.requests:  # the handler polls
            await asyncio.sleep(POLLS.pause(self._rounds - 1))
        encoded = self._encoded(required)
        self._check_running()
        waiting = [
            asyncio.ensure_future(self._send(required.requests[key], params))
            for key, params in encoded.items()
        ]
        try:
            answers = await asyncio.gather(*waiting)
        finally:
            for one in waiting:  # after an error the others are withdrawn
                one.cancel()
        self.responses = dict(zip(encoded, answers, strict=True))
        if required.state is None:
            self.state = None
        else:  # after a round trip through JSON, as in the modern era
            self.state = msgspec.json.decode(_encode(required.state))
        return True

    async def _send(self, question: InputRequest, params: bytes) -> Any:
        if self.call.asker is not None:
            data = await self.call.asker.ask(question.kind, question.method, params)
        else:
            data = await self._request(question, params, QuestionOptions())
        return question.plain_answer(data)

    async def _request(self, question: InputRequest, params: bytes, how: QuestionOptions) -> bytes:
        """The result of a request of the server (legacy eras)."""
        connection, method = self.call.connection, question.method
        if how.on_progress is not None:
            with heard(connection, params, how.on_progress) as params:
                return await self._request(question, params, how._replace(on_progress=None))
        return await connection.ask(method, params, timeout=how.timeout, about=self.call.ref)

    def _encoded(self, required: InputRequired) -> dict[str, bytes]:
        return {
            key: question.encoded(self.capabilities, self.version)
            for key, question in required.requests.items()
        }


class DirectAsker(Asker):
    """Asks by requests to the client: the legacy eras."""

    async def put(self, question: InputRequest, params: bytes, how: QuestionOptions) -> Any:
        return question.answer(await self._request(question, params, how))


# -- progress of the client with a request (legacy eras) -------------------------------------------


_tokens = itertools.count(1)


class _Progress(msgspec.Struct):
    progressToken: int | str  # noqa: N815
    progress: float
    total: float | None = None
    message: str | None = None


_progress = msgspec.json.Decoder(_Progress).decode


def checked(on_progress: OnProgress) -> None:
    """TypeError: *on_progress* is not a plain function."""
    if not callable(on_progress) or inspect.iscoroutinefunction(on_progress):
        raise TypeError("on_progress must be a plain function")


@contextlib.contextmanager
def heard(connection: Serving, params: bytes, on_progress: OnProgress) -> Iterator[bytes]:
    """*params*, the JSON text of an object without ``_meta``, with a progress token. Within the
    block ``on_progress`` is called with the client's notifications whose progress rises."""
    last = -math.inf

    def risen(progress: float, total: float | None, message: str | None) -> None:
        nonlocal last
        if progress > last:
            last = progress
            on_progress(progress, total, message)

    token = next(_tokens)
    state = connection.state
    if "notifications/progress" not in state.heard:
        state.heard["notifications/progress"] = functools.partial(_told, state.progress)
    state.progress[token] = risen
    try:
        more = b"" if params == b"{}" else b"," + params[1:-1]
        yield b'{"_meta":{"progressToken":%d}%b}' % (token, more)
    finally:
        del state.progress[token]


def _told(waiting: dict[int | str, OnProgress], message: Message) -> None:
    """notifications/progress. Malformed notifications and unknown tokens are ignored."""
    raw = message.params
    try:
        told = _progress(b"{}" if raw is None else raw)
    except (msgspec.DecodeError, RecursionError):
        return
    on_progress = waiting.get(told.progressToken)
    if on_progress is None:
        return
    try:
        on_progress(told.progress, told.total, told.message)
    except Exception:
        logger.exception("on_progress failed")


set_public_home(globals())
