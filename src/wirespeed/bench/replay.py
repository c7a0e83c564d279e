"""A replay: the requests of a record are asked again, over as many connections, and each answer is
compared with that of the record.

A request begins at its time of the record, divided by the speed, and not before the answers that
had come before it in the record. The handshake is the client's own. Where a server chooses a value
that a later request hands back, such as a cursor, the request gets the value of now.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec

from wirespeed.bench.client import LIMITS
from wirespeed.bench.load import Load, Result, ToolCost, Traffic
from wirespeed.bench.machine import ProcessCost, machine, versions
from wirespeed.bench.recorded_calls import (
    HANDLES,
    decode,
    difference,
    encode,
    handles_of,
    kind_of,
)
from wirespeed.bench.recorder import OF_CALLS, Recorder
from wirespeed.bench.run import LINGER, OPENED_AT_ONCE, await_all, name_of, transport_of
from wirespeed.bench.series import Series, encoded, latency_of
from wirespeed.client.connection.handshake import Identity
from wirespeed.client.connection.lifecycle import Lifecycle
from wirespeed.errors import HttpStatusError, InvalidResponse, RemoteError, WirespeedError
from wirespeed.protocol import codes

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed._core.session import Session
    from wirespeed.bench.recorded_calls import (
        ClientAnswer,
        RecordedAnswer,
        RecordedConnection,
        RecordedStep,
    )
    from wirespeed.bench.series import Watch
    from wirespeed.client.connection.connection import ClientConnection, Waiter
    from wirespeed.client.connection.handshake import Agreement, Era
    from wirespeed.client.targets import Target

_KINDS = {"result": "a result", "failure": "a failure", "error": "an error"}
_LATE = 0.001  # seconds
_COARSE = 0.002  # seconds: the timers of loops count milliseconds
_MOST_DIFFERING = 5
_MOST_KNOWN = 65536  # ids of calls, whose answers may come again


class Replay:
    """A record that is asked again.

    Args:
        target: The server.
        parts: The connections.
        load: As of `load_of`.
        speed: How much faster than in the record; None: each request is sent as soon as the answers
            that it followed are there.
        any_answer: Whether each answer of the right kind is right.
        era: As of `wirespeed.Client`; None for that of the record.
        handshake_timeout: Seconds for each handshake.
        pids: Processes of the server whose cost is measured; None: the children of this process.
        watch: As of `wirespeed.bench.run.Run`.
        remarks: Gets what differs in the first answers that are wrong.

    Attributes:
        busy, unsent, failure: As of `wirespeed.bench.run.Run`.
    """

    unsent = 0

    def __init__(
        self,
        target: Target,
        parts: Sequence[RecordedConnection],
        load: Load,
        *,
        speed: float | None = 1.0,
        any_answer: bool = False,
        era: Era | None = None,
        handshake_timeout: float = 60.0,
        pids: Iterable[int] | None = None,
        watch: Watch | None = None,
        remarks: list[str] | None = None,
    ) -> None:
        self.speed = speed
        self.any_answer = any_answer
        self.timeout = load.timeout
        self._stopped = asyncio.Event()
        self.recorder = Recorder(paced=speed is not None)
        self.busy = 0.0
        self.failure: WirespeedError | None = None
        self._target = target
        self._pids = None if pids is None else list(pids)
        self._watch = watch
        self._load = load
        self._remarks = [] if remarks is None else remarks
        self._began = 0.0
        self._first = min(part.steps[0].t for part in parts)
        self._players = [
            _Player(self, part, target, era or part.era, handshake_timeout) for part in parts
        ]

    def differs(self, step: RecordedStep, what: str) -> None:
        """An answer differs from that of the record."""
        if len(self._remarks) < _MOST_DIFFERING:
            name = step.params.get("name") if step.params is not None else None
            shown = f"{step.method} {decode(name)}" if name is not None else step.method
            self._remarks.append(f"{shown}: {what}")

    def stop(self) -> None:
        """Ask nothing more. `measure` returns when what was asked is answered."""
        self._stopped.set()

    async def wait_until(self, due: float) -> bool:
        """Wait for a time of the monotonic clock. False: nothing more is asked."""
        seconds = due - time.monotonic() - _COARSE
        if seconds > 0 and not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopped.wait()
        while not self._stopped.is_set() and time.monotonic() < due:
            await asyncio.sleep(0)
        return not self._stopped.is_set()

    def time_of(self, step: RecordedStep) -> float:
        """Return the time of a step, on the monotonic clock."""
        return self._began + (0.0 if self.speed is None else (step.t - self._first) / self.speed)

    async def measure(self) -> Result:
        """Ask everything again. Errors are as of `wirespeed.bench.run.Run`."""
        room = asyncio.Semaphore(OPENED_AT_ONCE)

        async def open_one(player: _Player) -> None:
            async with room:
                await player.life.open()

        try:
            await await_all(open_one(player) for player in self._players)
            return await self._measured()
        finally:
            await await_all(player.life.close() for player in self._players)

    async def _measured(self) -> Result:
        cost = ProcessCost(
            [os.getpid()] if self._pids is None else self._pids, themselves=self._pids is not None
        )
        sent, received = self._bytes()
        cpu, series = time.process_time(), Series(self._watch)
        began = self._began = time.monotonic()
        ticking = asyncio.ensure_future(series.run(self.recorder, began))
        try:
            await await_all(player.play() for player in self._players)
            ended = time.monotonic()
            await asyncio.sleep(LINGER)
        finally:
            ticking.cancel()
            await asyncio.wait((ticking,))
        series.take(self.recorder, time.monotonic() - began)
        cpu = time.process_time() - cpu
        seconds = ended - began
        self.busy = cpu / max(seconds, 1e-9)
        now_sent, now_received = self._bytes()
        counts = self.recorder.counts()
        life = self._players[0].life
        agreement = life.agreement
        assert agreement is not None
        return Result(
            target=name_of(self._target),
            era="modern" if agreement.revision.modern else "legacy",
            transport=transport_of(self._target),
            load=self._load,
            seconds=seconds,
            calls=sum(counts[name] for name in OF_CALLS),
            rate=counts["ok"] / seconds if seconds else 0.0,
            counts=counts,
            latency_us=latency_of(self.recorder.latency),
            service_time_us=latency_of(self.recorder.service),
            bytes=Traffic(now_sent - sent, now_received - received),
            server=cost.cost(),
            tool=ToolCost(cpu, self.recorder.late_starts),
            machine=machine(),
            versions=versions(agreement.server_info or {}),
            series=series.windows(),
            latency_histogram=encoded(self.recorder.latency),
        )

    def _bytes(self) -> tuple[int, int]:
        sent = received = 0
        for player in self._players:
            sent += sum(session.bytes_out for session in player.sessions)
            received += sum(session.bytes_in for session in player.sessions)
        return sent, received


def load_of(parts: Sequence[RecordedConnection], timeout: float) -> Load:
    """Return the load that the connections of a record are. ``timeout``: Seconds after which a
    request counts as missing."""
    return Load(
        connections=len(parts),
        in_flight=max(1, *(part.in_flight for part in parts)),
        calls=sum(step.asks for part in parts for step in part.steps),
        warmup=0,
        timeout=timeout,
    )


@dataclass
class _Ask:
    """A request that was sent."""

    step: RecordedStep
    waiter: Waiter
    intended: float
    sent: float
    over: asyncio.Future[None]


@dataclass
class _DeclaredAnswers:
    """The part of `wirespeed.client.answering.answerer.Answering` that a handshake needs."""

    capabilities: dict[str, Any]
    on_elicit_complete: None = None


class _Player:
    """One connection of a record: the host of a `Lifecycle`, which answers the server's requests as
    the record did."""

    listens = True

    def __init__(
        self,
        replay: Replay,
        part: RecordedConnection,
        target: Target,
        era: Era,
        handshake_timeout: float,
    ) -> None:
        from wirespeed import __version__

        self.sessions: list[Session] = []  # of all its links
        self._replay = replay
        self._part = part
        self._answers = {method: deque(answers) for method, answers in part.answers.items()}
        self._asks: dict[int, _Ask] = {}  # by the id of the step
        self._ids: dict[int, str] = {}  # what a further answer to a call is: late or duplicate
        self._handles: dict[str, str] = {}  # of the record, and what stands for them now
        self.life = Lifecycle(
            target,
            era,
            Identity(
                {"name": "wirespeed-bench", "version": __version__},
                {},
                answering=cast("Any", _DeclaredAnswers(part.capabilities)),
            ),
            LIMITS,
            self,
            handshake_timeout=handshake_timeout,
            probe_timeout=min(10.0, handshake_timeout),
        )

    async def play(self) -> None:
        """Say all that the client said."""
        for step in self._part.steps:
            for other in step.after:
                if (ask := self._asks.get(id(other))) is not None:
                    await ask.over
            # it may begin now, and is due now or later
            due = max(self._replay.time_of(step), time.monotonic())
            if not (await self._replay.wait_until(due) and await self._usable()):
                break
            now = time.monotonic()
            if now - due > _LATE:
                self._replay.recorder.late_starts += 1
            try:
                self._say(step, due, now)
            except WirespeedError as exc:
                self._replay.failure = exc
                break
        for ask in list(self._asks.values()):
            if ask.step.expected is not None:
                await ask.over
        for ask in self._asks.values():
            self._cancel(ask)  # the record has no answer either

    async def _usable(self) -> bool:
        """Whether there is a connection: one that was lost is opened again."""
        live = self.life.live
        try:
            if live is None or not live.usable:
                await self.life.open()
            elif live.full:
                await live.wait_for_room()
        except WirespeedError as exc:
            self._replay.failure = exc
            return False
        return True

    def _say(self, step: RecordedStep, due: float, now: float) -> None:
        live = self.life.live
        assert live is not None
        if step.cancels is not None:
            if (ask := self._asks.get(id(step.cancels))) is not None:
                self._cancel(ask)
            return
        params = None if step.params is None else self._text(step.params)
        if not step.asks:
            live.notify(step.method, params)
            return
        waiter = live.request(
            step.method,
            params,
            _timed,
            timeout=self._replay.timeout,
            on_progress=_ignore if step.progress else None,
            meta=self._text(step.meta)[1:-1] or None,
        )
        ask = _Ask(step, waiter, due, now, asyncio.get_running_loop().create_future())
        self._asks[id(step)] = ask
        if len(self._ids) >= _MOST_KNOWN:
            del self._ids[next(iter(self._ids))]
        self._ids[waiter.id] = "duplicate"  # of an answer that comes right behind the first one
        waiter.future.add_done_callback(lambda _: self._answered(ask))

    def _text(self, members: dict[str, msgspec.Raw]) -> bytes:
        for name in HANDLES.values():
            if name in members and (now := self._handles.get(decode(members[name]))) is not None:
                members = members | {name: msgspec.Raw(encode(now))}
        return encode(members).replace(b"\n", b" ")

    def _cancel(self, ask: _Ask) -> None:
        if not ask.over.done():
            if (live := self.life.live) is not None:
                live.abandon(ask.waiter)
            self._end(ask, "cancelled")

    def _answered(self, ask: _Ask) -> None:
        if ask.over.done():
            return
        recorder = self._replay.recorder
        try:
            at, raw = ask.waiter.future.result()
        except Exception as exc:
            at = time.monotonic()
            outcome = _outcome(ask.step.expected, exc)
        else:
            outcome = self._judged(ask.step, raw)
        if ask.waiter.other_id:
            self._replay.differs(ask.step, "the id of the answer is not that of the request")
            outcome = "wrong"
        self._end(ask, outcome)
        if outcome == "ok":
            recorder.latency.add(int((at - ask.intended) * 1e9))
            if recorder.service is not recorder.latency:
                recorder.service.add(int((at - ask.sent) * 1e9))

    def _end(self, ask: _Ask, outcome: str) -> None:
        self._replay.recorder.count(outcome)
        ask.over.set_result(None)
        if ask.waiter.id in self._ids:
            more = {"missing": "late", "cancelled": ""}.get(outcome, "duplicate")
            self._ids[ask.waiter.id] = more

    def _judged(self, step: RecordedStep, raw: bytes) -> str:
        """The outcome of a request that was answered with a result."""
        expected = step.expected
        try:
            result = decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            return "wrong"
        kind = kind_of(result)
        if expected is None:
            return "ok"
        for name, now in handles_of(result).items():
            if (then := expected.handles.get(name)) is not None:
                self._handles[then] = now
        if kind != expected.kind:
            self._replay.differs(
                step, f"{_KINDS[kind]}, and the record has {_KINDS[expected.kind]}"
            )
            return "tool_errors" if kind == "failure" else "wrong"
        if self._replay.any_answer:
            return "ok"
        try:
            found = difference(expected, result, time.time())
        except RecursionError:
            found = "it is nested too deep to be compared"
        if found is not None:
            self._replay.differs(step, found)
            return "wrong"
        return "ok"

    # -- for the lifecycle -----------------------------------------------------------------------

    async def started(
        self, connection: ClientConnection, agreement: Agreement, again: bool
    ) -> None:
        """The handshake is done."""
        self.sessions.append(connection.session)
        connection.measure(self._stray)
        if connection.answerer is not None:
            connection.answerer.close()
        connection.answerer = _Answerer(connection, self._answers)

    def notified(self, message: Message) -> None:
        """Notifications of the server are not compared."""

    def parted(self, exc: BaseException) -> None:
        """The link is lost."""
        self._replay.recorder.count("connection_losses")

    def _stray(self, message: Message) -> None:
        """A response that answers no request."""
        id = message.id if message.kind != "invalid" else None
        outcome = self._ids.get(id, "unexpected") if isinstance(id, int) else "unexpected"
        if outcome:  # an answer may cross its cancellation
            self._replay.recorder.count(outcome)


class _Answerer:
    """Answers the requests of a server as the record did, and those that it has not with an
    error."""

    def __init__(
        self, connection: ClientConnection, answers: dict[str, deque[ClientAnswer]]
    ) -> None:
        self._connection = connection
        self._answers = answers

    def asked(self, message: Message) -> None:
        """Answer a request."""
        method = message.method or ""
        waiting = self._answers.get(method)
        if not waiting:
            self._connection.refuse(
                message.ref, codes.METHOD_NOT_FOUND, f"the record has no further answer to {method}"
            )
            return
        answer = waiting.popleft()
        if answer.result is not None:
            self._connection.answer(message.ref, bytes(answer.result).replace(b"\n", b" "))
        else:
            error = answer.error if isinstance(answer.error, dict) else {}
            self._connection.refuse(
                message.ref,
                error.get("code", codes.INTERNAL_ERROR),
                error.get("message", ""),
                error.get("data"),
            )

    def completed(self, message: Message) -> None:
        """The end of an elicitation is not waited for."""

    def required(self, data: Any) -> None:
        """Nobody opens a page."""

    def close(self) -> None:
        """Nothing runs."""


def _timed(raw: Any) -> tuple[float, bytes]:
    return time.monotonic(), bytes(raw)


def _ignore(progress: float, total: float | None, message: str | None) -> None:
    """The progress of a request is not compared."""


def _outcome(expected: RecordedAnswer | None, exc: Exception) -> str:
    """The outcome of a request that failed."""
    if isinstance(exc, RemoteError):
        if expected is None or (expected.kind == "error" and expected.code == exc.code):
            return "ok"
        return "refused" if exc.code == codes.OVERLOADED else "protocol_errors"
    if isinstance(exc, HttpStatusError):
        return "refused" if exc.status in (429, 503) else "protocol_errors"
    return "wrong" if isinstance(exc, InvalidResponse) else "missing"
