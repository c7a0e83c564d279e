"""The compiled session against the model: the same events, the same bytes, the same counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from lab.examples import examples
from model import streams as wire
from model.session import Event, ModelSession, Request, error

from wirespeed.core import Limits, MemoryReply, Message, Session

limits = st.builds(
    Limits,
    max_message=st.sampled_from((60, 200, 10_000)),
    max_depth=st.sampled_from((1, 2, 3, 6, 100)),
    max_batch=st.sampled_from((1, 3, 100)),
    max_id=st.sampled_from((2, 100)),
    max_in_flight=st.sampled_from((1, 2, 100)),
    max_in_flight_bytes=st.sampled_from((1, 150, 10_000)),
    max_waiting=st.sampled_from((1, 2, 100)),
    max_waiting_bytes=st.sampled_from((1, 150, 10_000)),
    output_high=st.sampled_from((100, 400, 10_000)),
    output_low=st.just(50),
)


class Token:
    """What a caller or a handler is known by."""


@dataclass(eq=False)
class Shown:
    """A request as both sides showed it."""

    message: Message
    request: Request
    raw_id: bytes


class Pair:
    """A compiled session and a model, told the same and compared at each step."""

    def __init__(self, limits: Limits, role: str, batches: bool, null_ids: bool) -> None:
        self.session = Session(limits=limits, role=role)
        self.session.batches = batches
        self.session.null_ids = null_ids
        self.model = ModelSession(limits, role, batches, null_ids, self.explain)
        self.shown: list[Shown] = []
        self.ids: list[int] = []

    def explain(self, text: bytes, in_batch: bool) -> str:
        """What the compiled code says of this text alone."""
        limits = self.session.limits.replace(max_message=10**6)
        session = Session(limits=limits, role="client")
        session.batches = self.session.batches
        session.receive_data(b"\n" + (b"[" + text + b"]" if in_batch else text) + b"\n")
        message = session.next_event()
        assert message is not None
        assert message.reason
        return message.reason

    def receive(self, chunk: bytes, door: str) -> None:
        if door == "data":
            self.session.receive_data(chunk)
            self.model.stream += chunk
            return
        self.drain()  # get_buffer wants what was fed before to be taken
        self.model.stream += chunk
        while chunk:
            view = self.session.get_buffer()
            n = min(len(view), len(chunk))
            view[:n] = chunk[:n]
            self.session.buffer_updated(n)
            chunk = chunk[n:]

    def step(self) -> bool:
        """Compare one event; False when there is none."""
        event = self.model.next_event()
        message = self.session.next_event()
        if event is None or message is None:
            assert (event is None) == (message is None), (event, message)
            return False
        self.compare(event, message)
        if message.kind == "request":
            assert event.request is not None
            assert message.raw_id is not None
            self.shown.append(Shown(message, event.request, message.raw_id))
        return True

    def drain(self) -> None:
        while self.step():
            pass

    def compare(self, event: Event, message: Message) -> None:
        expected = event.message
        assert (message.kind, message.fault) == (expected.kind, expected.fault), message
        assert message.raw_id == expected.id
        assert message.token is event.token
        assert (message.raw is None) == (not expected.text)
        assert message.raw is None or bytes(message.raw) == expected.text
        if message.kind != "invalid":
            assert message.reason is None
            assert not expected.reason
            for point, text in expected.points.items():
                lease = message.lease(point)
                assert lease is not None
                assert bytes(lease) == text, point
            if message.kind in ("request", "notification"):
                assert message.method == expected.string("method")
        else:
            assert message.reason == expected.reason

    def compare_state(self) -> None:
        counters = self.session.counters
        assert self.session.want_read == self.model.want_read()
        assert counters["bytes_queued"] == len(self.session.outbox) == len(self.model.out)
        assert counters["requests_in_flight"] == len(self.model.in_flight)
        assert counters["requests_outstanding"] == len(self.model.outstanding)
        assert counters["requests_waiting"] == len(self.model.queue)
        assert counters["bytes_in_flight"] == sum(
            request.size for request in self.model.in_flight.values()
        )

    def sent(self) -> None:
        assert b"".join(map(bytes, self.session.data_to_send())) == self.model.data_to_send()

    def answer(self, pick: int, good: bool) -> None:
        if self.shown:
            shown = self.shown[pick % len(self.shown)]
            assert shown.message.raw_id == shown.raw_id
            if good:
                told = self.session.send_result(shown.message, b'{"a":1}')
                assert told == self.model.answer(shown.request, b'"result":{"a":1}')
            else:
                told = self.session.send_error(shown.message.ref, -32601, "")
                assert told == self.model.answer(shown.request, error(-32601, ""))

    def claim(self, pick: int) -> None:
        """A handler begins: of a request that was shown by now."""
        self.drain()
        if self.shown:
            shown, token = self.shown[pick % len(self.shown)], Token()
            alive = self.model.is_open(shown.request)
            assert self.session.set_token(shown.message, token) == alive
            if alive:
                shown.request.token = token

    def handler_ends(self) -> None:
        self.session.cancelled_done()
        self.model.handler_ends()

    def ask(self) -> None:
        token = Token()
        self.ids.append(self.session.send_request("a", b"{}", token=token))
        self.model.call(self.ids[-1], "a", b"{}", token)

    def give_up(self, pick: int) -> None:
        if self.ids:
            id = self.ids[pick % len(self.ids)]
            token = self.session.cancel(id)
            assert token is self.model.outstanding.pop(id, None)
            if token is not None:
                self.model.call(None, "notifications/cancelled", b'{"requestId":%d}' % id)


OWNER_ACTS: dict[str, Callable[[Pair, int], object]] = {
    "step": lambda pair, _: pair.step(),
    "drain": lambda pair, _: pair.drain(),
    "result": lambda pair, pick: pair.answer(pick, True),
    "error": lambda pair, pick: pair.answer(pick, False),
    "claim": lambda pair, pick: pair.claim(pick),
    "handler ends": lambda pair, _: pair.handler_ends(),
    "ask": lambda pair, _: pair.ask(),
    "give up": lambda pair, pick: pair.give_up(pick),
    "send": lambda pair, _: pair.sent(),
}
acts = st.lists(st.tuples(st.sampled_from(sorted(OWNER_ACTS)), st.integers(0, 5)), max_size=5)


def peer_reads(pair: Pair) -> None:
    """Let everything go on that can: the peer reads, handlers end, requests are answered."""
    for _ in range(500):
        pair.sent()
        pair.drain()
        pair.compare_state()
        pair.handler_ends()
        for shown in pair.shown:
            pair.session.send_result(shown.message, b"{}")
            pair.model.answer(shown.request, b'"result":{}')
        pair.shown.clear()
        if not (
            pair.model.out or pair.model.queue or pair.model.elements or pair.model.n_cancelled
        ):
            return
    raise AssertionError("it never ends")


def play(data: st.DataObject, pair: Pair, stream: bytes) -> None:
    """Let a stream arrive in chunks, with acts of the owner behind each, and all of it end."""
    for name, pick in data.draw(acts):
        OWNER_ACTS[name](pair, pick)
    turns = data.draw(wire.turns(acts))
    for i, chunk in enumerate(data.draw(wire.cuts(stream))):
        pair.receive(chunk, "data")
        for name, pick in turns[i % len(turns)]:
            OWNER_ACTS[name](pair, pick)
            pair.compare_state()
    if data.draw(st.booleans()):
        pair.session.receive_eof()
        pair.model.eof = True
    peer_reads(pair)
    # nothing was lost: no request is without an answer, and no line was left
    assert not pair.model.in_flight
    assert not pair.session.counters["requests_in_flight"]
    assert pair.session.want_read


@examples(150)
@given(st.data())
def test_the_session_does_what_the_model_does(data: st.DataObject) -> None:
    pair = Pair(
        data.draw(limits),
        data.draw(st.sampled_from(("server", "server", "client"))),
        data.draw(st.booleans()),
        data.draw(st.booleans()),
    )
    play(data, pair, data.draw(wire.streams()))


@examples(200)
@given(
    st.data(),
    st.sampled_from((Limits(max_in_flight=1), Limits(max_in_flight=9, max_in_flight_bytes=60))),
)
def test_cancelled_handlers_take_room_until_they_end(data: st.DataObject, limits: Limits) -> None:
    pair = Pair(limits, "server", False, True)
    play(data, pair, data.draw(wire.busy))


@examples(75)
@given(stream=wire.streams(), data=st.data(), batches=st.booleans())
def test_the_other_door_gives_the_same(stream: bytes, data: st.DataObject, batches: bool) -> None:
    pair = Pair(Limits(max_message=300, max_depth=6), "server", batches, True)
    looks = data.draw(wire.turns(st.booleans()))
    for i, chunk in enumerate(data.draw(wire.cuts(stream))):
        pair.receive(chunk, "buffer")
        if looks[i % len(looks)]:
            pair.drain()
    pair.session.receive_eof()
    pair.model.eof = True
    peer_reads(pair)


@examples(75)
@given(stream=wire.streams(max_lines=30), data=st.data())
def test_what_went_out_answers_each_request_once(stream: bytes, data: st.DataObject) -> None:
    """Accounting without the model's help: every registered request got one answer or was
    cancelled, in any order of answering."""
    session = Session(limits=Limits(max_in_flight=2, max_waiting=3))
    session.batches = True
    for chunk in data.draw(wire.cuts(stream)):
        session.receive_data(chunk)
    session.receive_eof()
    shown: list[Message] = []
    answered = cancelled = 0
    while True:
        found = list(session.events())
        shown += [m for m in found if m.kind == "request"]
        cancelled += sum(m.kind == "notification" and m.ref != 0 for m in found)
        if not shown:
            break
        message = shown.pop(data.draw(st.integers(0, len(shown) - 1)))
        answered += session.send_result(message, b'{"mine":1}')
    sent = b"".join(map(bytes, session.data_to_send()))
    assert sent.count(b'"result":{"mine":1}') == answered
    counters = session.counters
    assert counters["cancelled"] == cancelled
    assert counters["requests_in_flight"] == counters["requests_waiting"] == 0
    assert sent.count(b'{"jsonrpc":') == counters["messages_out"]


@examples(75)
@given(texts=st.lists(wire.texts, max_size=12), batches=st.booleans())
def test_a_message_that_comes_whole_is_as_one_of_the_stream(
    texts: list[bytes], batches: bool
) -> None:
    limits = Limits(max_message=300, max_depth=6, max_batch=3)
    streamed, whole = Session(limits=limits), Session(limits=limits)
    streamed.batches = whole.batches = batches

    def events(session: Session) -> list[object]:
        found: list[object] = []
        for message in session:
            found.append((message.kind, message.fault, message.raw_id, message.reason))
            if message.kind == "request":
                session.send_result(message, b"{}")
        return found

    for text in texts:
        text = text.strip().replace(b"\n", b" ")
        if not text or text.startswith(b"\xef"):  # no message, and a byte order mark, of a stream
            continue
        streamed.receive_data(text + b"\n")
        expected = events(streamed)
        reply = MemoryReply()
        whole.receive_message(text, reply)
        assert events(whole) == expected
        assert reply.done
        answer = b"" if reply.data is None else reply.data + b"\n"
        assert answer == b"".join(map(bytes, streamed.data_to_send()))
    assert whole.data_to_send() == []
