"""One JSON-RPC peer, as lists and dicts: who waits, who is owed an answer, what goes out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from model.envelope import Envelope, begun, read, split
from model.lines import Oversize, frames
from wirespeed.limits import Limits

IN_BATCH = "initialize cannot be part of a batch"
TWICE = "a request with this id is in flight already"
PARSE_ERROR, INVALID_REQUEST, OVERLOADED = -32700, -32600, -31000


def said(id: bytes) -> object:
    """What an id says: strings are one id however they are spelled."""
    return json.loads(id) if id.startswith(b'"') else id


@dataclass(eq=False)
class Batch:
    """Answers are joined once every request of it was answered or cancelled."""

    answers: list[bytes] = field(default_factory=list)
    open: int = 0
    read_through: bool = False

    @property
    def size(self) -> int:
        """Bytes of the answers that are held: each stands behind a bracket or a comma."""
        return sum(len(answer) + 1 for answer in self.answers)


@dataclass(eq=False)
class Request:
    """A request of the peer, from when it came in to its answer or its cancellation."""

    id: bytes
    batch: Batch | None
    token: object = None
    waits: bool = False
    size: int = 0  # bytes of its message, once it is worked on


@dataclass(eq=False)
class Event:
    message: Envelope
    request: Request | None = None  # of a request; of the one that a cancellation ends
    token: object = None


@dataclass(eq=False)
class Held:
    """A message that flow control holds back."""

    message: Envelope
    request: Request | None  # None: a fault, or a request whose id was in flight

    @property
    def size(self) -> int:
        return len(self.message.text)


class ModelSession:
    """`explain` gives the text for people of a fault, which is not part of the model, though its
    length counts for flow control: of a line, or of an element of a batch."""

    def __init__(
        self,
        limits: Limits,
        role: str,
        batches: bool,
        null_ids: bool,
        explain: Callable[[bytes, bool], str],
    ) -> None:
        self.explain = explain
        self.limits = limits
        self.is_server = role == "server"
        self.batches = batches
        self.null_ids = null_ids
        self.stream = b""
        self.eof = False
        self.n_frames = 0
        self.queue: list[Held] = []
        self.elements: list[Envelope] = []
        self.batch: Batch | None = None
        self.in_flight: dict[object, Request] = {}  # by what their ids say
        self.n_cancelled = 0  # handlers of cancelled requests that still run
        self.n_cancelled_bytes = 0  # of the messages of these
        self.outstanding: dict[int, object] = {}
        self.out = b""

    # -- flow control --------------------------------------------------------------------------

    def has_room(self) -> bool:
        working = sum(not request.waits for request in self.in_flight.values())
        size = sum(request.size for request in self.in_flight.values())
        return (
            working + self.n_cancelled < self.limits.max_in_flight
            and size + self.n_cancelled_bytes < self.limits.max_in_flight_bytes
            and len(self.out) < self.limits.output_high
        )

    def batches_are_full(self) -> bool:
        """Whether the answers that wait for the rest of their batches take all the room."""
        batches = {request.batch for request in self.in_flight.values()} | {self.batch}
        held = sum(batch.size for batch in batches if batch is not None)
        return held >= self.limits.max_in_flight_bytes

    def is_full(self) -> bool:
        """Whether as many wait as may."""
        return (
            len(self.queue) >= self.limits.max_waiting
            or sum(held.size for held in self.queue) >= self.limits.max_waiting_bytes
        )

    def is_flooded(self) -> bool:
        """Whether the peer reads nothing at all."""
        return len(self.out) >= 2 * self.limits.output_high

    def want_read(self) -> bool:
        if self.elements and self.is_flooded():
            return False
        return not self.is_full() or (bool(self.outstanding) and not self.is_flooded())

    # -- events --------------------------------------------------------------------------------

    def next_event(self) -> Event | None:
        while True:
            if self.batch is not None and not self.elements:
                self.batch.read_through = True
                self.join(self.batch)
                self.batch = None
            if self.elements and self.want_read():
                event = self.take_in(self.elements.pop(0), self.batch)
            elif self.queue and self.has_room():
                event = self.resume(self.queue.pop(0))
            elif self.elements or not self.want_read():
                return None
            else:
                found = frames(self.stream, self.eof, self.limits.max_message)
                if len(found) == self.n_frames:
                    return None
                self.n_frames += 1
                event = self.line(found[self.n_frames - 1])
            if event is not None:
                return event

    def line(self, text: bytes) -> Event | None:
        if isinstance(text, Oversize):
            message = begun(text, 1)
            message.reason = f"longer than the limit of {self.limits.max_message} bytes"
            message.text = b""
            if message.id is not None and len(message.id) > self.limits.max_id:
                message.id = None
            return self.take_in(message, None)
        if self.batches and text.startswith(b"["):
            parts = split(text, self.limits.max_batch, self.limits.max_depth)
            if isinstance(parts, Envelope):
                return self.take_in(parts, None)
            self.elements, self.batch = parts, Batch()
            return None
        message = read(text, self.limits.max_depth)
        if message.kind == "batch":
            message = Envelope("invalid", "request", text)
        return self.take_in(message, None)

    def resume(self, held: Held) -> Event | None:
        if held.message.kind == "invalid":
            return self.faulty(held.message, None)
        if held.request is None:
            return self.request(held.message, None)
        if held.request not in self.in_flight.values():
            return None  # cancelled meanwhile
        held.request.waits = False
        if held.request.batch is not None and self.batches_are_full():
            self.refuse_batched(held.request)
            return None
        held.request.size = len(held.message.text)
        return Event(held.message, held.request)

    def refuse_batched(self, request: Request) -> None:
        limit = self.limits.max_in_flight_bytes
        text = f"the answers of open batches have {limit} bytes or more"
        self.answer(request, error(OVERLOADED, text))

    def take_in(self, message: Envelope, batch: Batch | None) -> Event | None:
        if message.kind == "request" and len(message.id or b"") > self.limits.max_id:
            reason = f"an id of more than {self.limits.max_id} bytes"
            message = Envelope("invalid", "request", message.text, None, message.points, reason)
        match message.kind:
            case "request":
                return self.request(message, batch)
            case "notification":
                return self.notification(message)
            case "invalid":
                if not message.reason:
                    message.reason = self.explain(message.text, batch is not None)
                if self.is_server and self.is_flooded() and batch is None:
                    self.queue.append(Held(message, None))
                    return None
                return self.faulty(message, batch)
            case _:
                return self.response(message)

    def request(self, message: Envelope, batch: Batch | None) -> Event | None:
        assert message.id is not None
        method = message.string("method")
        if batch is not None and method == "initialize":
            self.refuse(batch, message.id, INVALID_REQUEST, IN_BATCH)
            return None
        key = said(message.id)
        if key in self.in_flight:
            if self.is_flooded() and batch is None:
                self.queue.append(Held(message, None))
            else:
                self.refuse(batch, message.id, INVALID_REQUEST, TWICE)
            return None
        can_start = not self.queue and self.has_room()
        request = self.in_flight[key] = Request(message.id, batch)
        if batch is not None:
            batch.open += 1
        if batch is not None and self.batches_are_full():
            self.refuse_batched(request)
            return None
        if can_start:
            request.size = len(message.text)
            return Event(message, request)
        if method == "ping" and not self.is_flooded():
            return Event(message, request)
        if self.is_full():
            count, size = self.limits.max_in_flight, self.limits.max_in_flight_bytes
            text = f"too many requests at once (the limits are {count} requests and {size} bytes)"
            self.answer(request, error(OVERLOADED, text))
            return None
        request.waits = True
        self.queue.append(Held(message, request))
        return None

    def notification(self, message: Envelope) -> Event:
        event = Event(message)
        match message.string("method"):
            case "notifications/cancelled":
                raw = message.points.get("params.requestId", b"")
                request = self.in_flight.pop(said(raw), None)
                if request is None:
                    event.token = self.outstanding.get(our_id(raw))
                    return event
                event.request = request
                event.token = request.token
                if request.token is not None:
                    self.n_cancelled += 1
                    self.n_cancelled_bytes += request.size
                self.settle(request)
            case "notifications/progress":
                raw = message.points.get("params.progressToken", b"")
                event.token = self.outstanding.get(our_id(raw))
        return event

    def response(self, message: Envelope) -> Event | None:
        id = our_id(message.id or b"")
        if id not in self.outstanding:
            id = id_alike(message.points.get("id"))
        if id not in self.outstanding:
            return Event(message) if message.id is None else None
        return Event(message, token=self.outstanding.pop(id))

    def faulty(self, message: Envelope, batch: Batch | None) -> Event:
        alike = id_alike(message.points.get("id"))
        if message.lacks_only_id and alike in self.outstanding:
            message.kind, message.fault, message.reason = "result", None, ""
            return Event(message, token=self.outstanding.pop(alike))
        is_call = message.points.keys() & {"method", "params"} or message.begins == "params"
        answers_nothing = message.fault == "response" or (
            message.fault == "request" and not is_call
        )
        if answers_nothing and message.id and our_id(message.id) in self.outstanding:
            message.fault = "response"
            return Event(message, token=self.outstanding.pop(our_id(message.id)))
        if self.is_server and message.fault == "parse":
            self.refuse(batch, None, PARSE_ERROR, "Parse error: " + message.reason)
        elif self.is_server and message.fault == "request":
            text = "Invalid request: " + message.reason
            self.refuse(batch, message.id, INVALID_REQUEST, text)
        return Event(message)

    def handler_ends(self) -> None:
        """A handler of a cancelled request has ended; it stands for an equal share of the bytes."""
        if self.n_cancelled:
            self.n_cancelled_bytes -= self.n_cancelled_bytes // self.n_cancelled
            self.n_cancelled -= 1

    # -- out -----------------------------------------------------------------------------------

    def refuse(self, batch: Batch | None, id: bytes | None, code: int, text: str) -> None:
        """An error that answers no request in flight."""
        if id is None and self.null_ids:
            id = b"null"
        head = b"" if id is None else b'"id":' + id + b","
        answer = b'{"jsonrpc":"2.0",' + head + error(code, text) + b"}"
        if batch is None:
            self.out += answer + b"\n"
        else:
            batch.answers.append(answer)

    def is_open(self, request: Request) -> bool:
        """Whether a request is neither answered nor cancelled."""
        return self.in_flight.get(said(request.id)) is request

    def answer(self, request: Request, body: bytes) -> bool:
        """Answer a request with ``"result":...`` or ``"error":...``; False: it is gone."""
        if not self.is_open(request):
            return False
        del self.in_flight[said(request.id)]
        text = b'{"jsonrpc":"2.0","id":' + request.id + b"," + body + b"}"
        if request.batch is None:
            self.out += text + b"\n"
        else:
            request.batch.answers.append(text)
        self.settle(request)
        return True

    def settle(self, request: Request) -> None:
        if request.batch is not None:
            request.batch.open -= 1
            self.join(request.batch)

    def join(self, batch: Batch) -> None:
        if batch.read_through and not batch.open and batch.answers:
            self.out += b"[" + b",".join(batch.answers) + b"]\n"
            batch.answers = []

    def call(self, id: int | None, method: str, params: bytes | None, token: object = None) -> None:
        """A request of ours with this id, or a notification."""
        head = b""
        if id is not None:
            assert id not in self.outstanding
            self.outstanding[id] = token
            head = b'"id":%d,' % id
        tail = b"" if params is None else b',"params":' + params
        name = json.dumps(method).encode()
        self.out += b'{"jsonrpc":"2.0",' + head + b'"method":' + name + tail + b"}\n"

    def data_to_send(self) -> bytes:
        out, self.out = self.out, b""
        return out


def our_id(raw: bytes) -> int:
    """The id of ours that is exactly this text; 0, which is none, otherwise."""
    return int(raw) if raw.isdigit() and not raw.startswith(b"0") and len(raw) < 20 else 0


def id_alike(raw: bytes | None) -> int:
    """The id of ours that has the value of this text in another type: a string of digits, or a
    number whose fraction is zero; 0 if there is none."""
    if not raw or raw[:1] not in b'"0123456789':
        return 0
    value = json.loads(raw) if raw[:1] == b'"' else raw.decode()
    found = re.fullmatch(r"([1-9][0-9]{0,15})(?:\.0+)?", value, re.ASCII)
    return int(found[1]) if found else 0


def error(code: int, message: str) -> bytes:
    return (
        b'"error":'
        + json.dumps(
            {"code": code, "message": message}, separators=(",", ":"), ensure_ascii=False
        ).encode()
    )
