"""The requests of a record, and its answers, as data; how two answers are compared.

Answers are equal if they are of the same kind (result, failure of a tool, error with the same code)
and if the results are equal as JSON without what differs each time: ``_meta``, ``ttlMs``, the
values of ``nextCursor``, ``requestState`` and ``taskId``, the times of tasks, and ``lastModified``.
A time in a text may differ if each of the two was the time of its answer.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec

from wirespeed.bench.tap_file import BadRecord

if TYPE_CHECKING:
    from wirespeed.bench.tap_file import From, RecordedMessage, RecordHeader
    from wirespeed.client.connection.handshake import Era

AnswerKind: TypeAlias = Literal["result", "failure", "error"]

_META = "io.modelcontextprotocol/"
_VERSION = f"{_META}protocolVersion"
_CAPABILITIES = f"{_META}clientCapabilities"
# Of ``_meta``: the client writes these itself.
_OURS = ("progressToken", _VERSION, _CAPABILITIES, f"{_META}clientInfo")
# The client asks or says these by itself.
_HANDSHAKE = ("initialize", "server/discover", "notifications/initialized")
# Members that a server chooses, and that a later request hands back: in an answer, in a request.
HANDLES = {"nextCursor": "cursor", "requestState": "requestState", "taskId": "taskId"}
_TIMES = ("createdAt", "lastUpdatedAt")
_SHOWN = 200  # characters of a value

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


@dataclass(slots=True)
class RecordedAnswer:
    """An answer of the record.

    Attributes:
        kind: Its kind.
        code: Of an error.
        result: The JSON text of the result; None of an error.
        handles: The values that a later request may hand back, by their names.
        at: When it came, in seconds since 1970.
    """

    kind: AnswerKind
    code: int | None = None
    result: msgspec.Raw | None = None
    handles: dict[str, str] = field(default_factory=dict)
    at: float = 0.0

    @property
    def value(self) -> Any:
        """The result, without what differs each time. It is decoded each time: the text is
        smaller."""
        return None if self.result is None else comparable(decode(self.result))


@dataclass(slots=True)
class RecordedStep:
    """A message of a client.

    Attributes:
        t: Its time in the record.
        method: Its method; ``notifications/cancelled`` for the end of ``cancels``.
        params: Its params, as JSON texts, without ``_meta``.
        meta: Further members of ``_meta``.
        asks: Whether it is a request.
        progress: Whether it wants progress.
        after: The steps that had been answered since the step before it.
        cancels: The request that it cancels.
        expected: Its answer; None: there is none in the record.
    """

    t: float
    method: str
    params: dict[str, msgspec.Raw] | None = None
    meta: dict[str, msgspec.Raw] = field(default_factory=dict)
    asks: bool = True
    progress: bool = False
    after: list[RecordedStep] = field(default_factory=list)
    cancels: RecordedStep | None = None
    expected: RecordedAnswer | None = None


@dataclass
class ClientAnswer:
    """A client's answer to a request of the server: a result, or an error."""

    result: msgspec.Raw | None
    error: dict[str, Any] | None


@dataclass
class RecordedConnection:
    """One connection of a record, from the client's side.

    Attributes:
        steps: The client's messages.
        answers: Its answers to requests of the server, by their method, in the order of the record.
        capabilities: Those that the client declared.
        modern: Whether its requests are of the modern era.
    """

    steps: list[RecordedStep] = field(default_factory=list)
    answers: dict[str, deque[ClientAnswer]] = field(default_factory=dict)
    capabilities: dict[str, Any] = field(default_factory=dict)
    modern: bool = False

    @property
    def era(self) -> Era:
        """The era of its requests."""
        return "modern" if self.modern else "legacy"

    @property
    def in_flight(self) -> int:
        """The most requests without an answer in the record."""
        live = most = 0
        for step in self.steps:
            live += step.asks - len(step.after)
            most = max(most, live)
        return most


class _Envelope(msgspec.Struct):
    method: str | msgspec.UnsetType = msgspec.UNSET
    id: int | float | str | msgspec.UnsetType | None = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Error(msgspec.Struct):
    code: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
    message: str


_envelopes = msgspec.json.Decoder(_Envelope | list[_Envelope]).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def connections_of(
    header: RecordHeader, messages: Iterable[RecordedMessage]
) -> list[RecordedConnection]:
    """Return the connections of a record that ask something. Texts that are not messages are left
    out. BadRecord: a message has what no client or server says."""
    began = datetime.fromisoformat(header.started).timestamp()
    readers: dict[int, _ConnectionReader] = {}
    for message in messages:
        try:
            try:
                found = _envelopes(message.data)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            reader = readers.setdefault(message.connection, _ConnectionReader(began))
            for one in found if isinstance(found, list) else [found]:
                reader.take(message.sender, message.t, one)
        except RecursionError:
            raise BadRecord(f"line {message.line}: the message is nested too deep") from None
        except BadRecord as exc:
            raise BadRecord(f"line {message.line}: {exc}") from None
    return [reader.part for reader in readers.values() if reader.part.steps]


class _ConnectionReader:
    """The messages of one connection, one after another."""

    def __init__(self, began: float) -> None:
        self._began = began
        self.part = RecordedConnection()
        self._asked: dict[Any, RecordedStep] = {}  # without an answer, by their id
        self._known: dict[Any, RecordedStep] = {}  # all of them
        self._questions: dict[Any, str] = {}  # methods of the server's requests
        self._done: list[RecordedStep] = []

    def take(self, sender: From, t: float, message: _Envelope) -> None:
        """Take the next message."""
        if message.method is msgspec.UNSET:
            self._answer(sender, t, message)
        elif sender == "server":
            if message.id is not msgspec.UNSET:
                self._questions[message.id] = message.method
        else:
            self._step(t, message, message.method)

    def _step(self, t: float, message: _Envelope, method: str) -> None:
        params, meta = _params(message.params)
        capabilities = (params or {}).get("capabilities") if method == "initialize" else None
        if _VERSION in meta and method not in _HANDSHAKE:
            self.part.modern = True
        capabilities = capabilities or meta.get(_CAPABILITIES)
        if capabilities is not None and isinstance(found := decode(capabilities), dict):
            for name, settings in found.items():
                if not isinstance(settings, dict):
                    raise BadRecord(f"the capability {name} is not an object")
            self.part.capabilities |= found
        if method in _HANDSHAKE:
            return
        for name in ("name", *HANDLES.values()):
            if isinstance(decode((params or {}).get(name, b"null")), list | dict):
                raise BadRecord(f"{name} is not a text")
        asks = message.id is not msgspec.UNSET
        step = RecordedStep(t, method, params, meta, asks=asks, progress="progressToken" in meta)
        step.meta = {name: value for name, value in meta.items() if name not in _OURS}
        if asks:
            self._asked[message.id] = self._known[message.id] = step
        elif method == "notifications/cancelled":
            id = decode((params or {}).get("requestId", b"null"))
            if isinstance(id, list | dict):
                raise BadRecord("requestId is not an id")
            step.cancels = self._known.get(id)
            if step.cancels is None:
                return
        elif method == "notifications/progress":
            return  # about a request of the server, whose token is another one
        step.after, self._done = self._done, []
        self.part.steps.append(step)

    def _answer(self, sender: From, t: float, message: _Envelope) -> None:
        if sender == "client":
            method = self._questions.pop(message.id, None)
            if method is not None:
                result = None if message.result is msgspec.UNSET else message.result
                error = None if message.error is msgspec.UNSET else _error(message.error)
                self.part.answers.setdefault(method, deque()).append(ClientAnswer(result, error))
            return
        step = self._asked.pop(message.id, None)
        if step is not None:
            step.expected = _expected(message, self._began + t)
            self._done.append(step)


def _error(raw: msgspec.Raw) -> dict[str, Any]:
    """The error of an answer."""
    try:
        msgspec.json.decode(raw, type=_Error)
    except msgspec.MsgspecError as exc:
        raise BadRecord(f"the error of an answer: {exc}") from None
    error: dict[str, Any] = decode(raw)
    return error


def _params(
    raw: msgspec.Raw | msgspec.UnsetType,
) -> tuple[dict[str, msgspec.Raw] | None, dict[str, msgspec.Raw]]:
    """The params of a message without ``_meta``, and ``_meta``."""
    try:
        params = None if raw is msgspec.UNSET else _members(raw)
        meta = {} if params is None else _members(params.pop("_meta", b"{}"))
    except msgspec.MsgspecError:
        return None, {}
    return params, meta


def _expected(message: _Envelope, at: float) -> RecordedAnswer | None:
    if message.error is not msgspec.UNSET:
        error = decode(message.error)
        code = error.get("code") if isinstance(error, dict) else None
        return RecordedAnswer("error", code=code if isinstance(code, int) else None, at=at)
    if message.result is msgspec.UNSET:
        return None
    result = decode(message.result)
    return RecordedAnswer(kind_of(result), result=message.result, handles=handles_of(result), at=at)


def kind_of(result: Any) -> AnswerKind:
    """Return the kind of an answer with a result."""
    return "failure" if isinstance(result, dict) and result.get("isError") is True else "result"


def handles_of(result: Any) -> dict[str, str]:
    """Return the values that a later request may hand back, by their names."""
    if not isinstance(result, dict):
        return {}
    task = result.get("task")
    members = result | task if isinstance(task, dict) else result
    found = {name: members.get(name) for name in HANDLES}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def comparable(result: Any) -> Any:
    """Return a result without what differs each time."""
    if not isinstance(result, dict):
        return result
    found = {name: value for name, value in _without_handles(result).items() if name != "ttlMs"}
    if isinstance(task := found.get("task"), dict):
        found["task"] = _without_handles(task)
    return _without_meta(found)


def _without_handles(members: dict[str, Any]) -> dict[str, Any]:
    names = (*HANDLES, *(_TIMES if "taskId" in members else ()))
    return {
        name: True if name in names and isinstance(value, str) else value
        for name, value in members.items()
    }


def _without_meta(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_meta(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: _without_meta(one) for name, one in value.items() if name != "_meta"}
    notes = found.get("annotations")
    if isinstance(notes, dict) and "lastModified" in notes:
        found["annotations"] = notes | {"lastModified": True}
    return found


def difference(expected: RecordedAnswer, result: Any, at: float) -> str | None:
    """Return the first place where a result differs from that of the record, in words; None: they
    are equal.

    at: When the result came, in seconds since 1970.
    """
    return _difference(expected.value, comparable(result), "result", (expected.at, at))


def _difference(then: Any, now: Any, path: str, times: tuple[float, float]) -> str | None:
    if isinstance(then, dict) and isinstance(now, dict):
        for name in [*then, *(name for name in now if name not in then)]:
            if name not in now or name not in then:
                where = "is not there now" if name in then else "is not in the record"
                return f"{path}.{name} {where}"
            found = _difference(then[name], now[name], f"{path}.{name}", times)
            if found is not None:
                return found
        return None
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        each = (_difference(one, other, f"{path}[{n}]", times) for n, (one, other) in pairs)
        return next(filter(None, each), None)
    if then == now and isinstance(then, bool) == isinstance(now, bool):
        return None
    if _is_time(then, times[0]) and _is_time(now, times[1]):
        return None
    texts = isinstance(then, str) and isinstance(now, str)
    if texts and without_moments(then, times[0]) == without_moments(now, times[1]):
        return None
    return f"{path} is {_shown(now)}, and was {_shown(then)}"


def _is_time(value: Any, at: float) -> bool:
    """Whether a number is a time, in seconds or milliseconds since 1970."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return min(abs(value - at), abs(value / 1000 - at)) <= _NEAR


def _shown(value: Any) -> str:
    text: str = encode(value).decode()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


# -- times in texts --------------------------------------------------------------------------------

_NEAR = 5.0  # seconds
_QUARTER = 900  # seconds: time zones differ by a multiple of these
_MOMENT = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)(?:[T ](?P<at>\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|(?P<american>\d{1,2}/\d{1,2}/\d{4})"
    r"|(?P<clock>\d{1,2}:\d\d:\d\d)(?:\s?[AP]M)?"
    r"|(?<![\w.])(?P<epoch>\d{10}(?:\d{3})?)(?![\w.])"
)


def without_moments(text: str, at: float) -> str:
    """Return a text with ``…`` in place of each date and time that is the given one, in seconds
    since 1970: of any time zone, and a few seconds before or after it."""

    def replaced(match: re.Match[str]) -> str:
        return "…" if _is_moment(match, at) else match[0]

    return _MOMENT.sub(replaced, text)


def _is_moment(match: re.Match[str], at: float) -> bool:
    if (epoch := match["epoch"]) is not None:
        return abs(int(epoch) / (1000 if len(epoch) == 13 else 1) - at) <= _NEAR
    try:
        if (date := match["date"] or match["american"]) is not None:
            form = "%Y-%m-%d" if match["date"] else "%m/%d/%Y"
            day = datetime.strptime(date, form).replace(tzinfo=UTC).timestamp()
            if not -86400 <= at - day <= 2 * 86400:
                return False
        if (clock := match["at"] or match["clock"]) is None:
            return True
    except ValueError:
        return False
    _, minute, second = map(int, clock.split(":"))
    away = (minute * 60 + second - at) % _QUARTER
    return min(away, _QUARTER - away) <= _NEAR
