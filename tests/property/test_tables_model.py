"""The tables of ids against plain dicts, step by step."""

from __future__ import annotations

import json
import math
import sys

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from lab.examples import examples

from wirespeed._core.inflight import InFlight
from wirespeed._core.pending import Pending

LIMIT = 12
deadlines = st.sampled_from((math.inf, math.inf, 0.0, 1.0, 1.0, 2.0, 3.5, -1.0, 1e300))


class PendingMachine(RuleBasedStateMachine):
    """Outstanding ids are a dict of id to (token, deadline)."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = Pending(LIMIT)
        self.model: dict[int, tuple[object, float]] = {}
        self.ever: list[int] = []

    @rule(deadline=deadlines)
    def add(self, deadline: float) -> None:
        token = object()
        if len(self.model) == LIMIT:
            with pytest.raises(OverflowError):
                self.pending.add(token, deadline)
            return
        id = self.pending.add(token, deadline)
        assert 0 < id < 2**52
        assert id not in self.ever
        self.ever.append(id)
        self.model[id] = (token, deadline)

    @rule(pick=st.integers(0, 200), shift=st.sampled_from((0, 0, 0, 1 << 20, 1 << 52, -1)))
    def take(self, pick: int, shift: int) -> None:
        if self.ever:
            id = self.ever[pick % len(self.ever)] + shift
            expected, _ = self.model.pop(id, (None, 0))
            assert self.pending.take(id) is expected
            assert self.pending.find(b"%d" % id) is None

    @rule(pick=st.integers(0, 200))
    def find(self, pick: int) -> None:
        if self.ever:
            id = self.ever[pick % len(self.ever)]
            expected, _ = self.model.get(id, (None, 0))
            assert self.pending.find(b"%d" % id) is expected
            assert self.pending.find(b"0%d" % id) is None
            assert self.pending.find(b'"%d"' % id) is None

    @rule(now=deadlines)
    def expire(self, now: float) -> None:
        found = self.pending.expire(now)
        due = {id for id, (_, at) in self.model.items() if at <= now and at != math.inf}
        assert {id for id, _ in found} == due
        times = []
        for id, token in found:
            expected, at = self.model.pop(id)
            assert token is expected
            times.append(at)
        assert times == sorted(times)

    @rule()
    def take_all(self) -> None:
        assert dict(self.pending.take_all()) == {id: t for id, (t, _) in self.model.items()}
        self.model.clear()

    @rule(n=st.integers(1, 150))
    def come_and_go(self, n: int) -> None:
        """Short calls with far deadlines, which leave entries in the heap."""
        for _ in range(n):
            if len(self.model) < LIMIT:
                id = self.pending.add("short", 5.0)
                self.ever.append(id)
                assert self.pending.take(id) == "short"

    @invariant()
    def figures_agree(self) -> None:
        assert len(self.pending) == self.pending.live == len(self.model)
        finite = [at for _, at in self.model.values() if at != math.inf]
        assert self.pending.next_deadline() == min(finite, default=None)

    def teardown(self) -> None:
        tokens = [token for token, _ in self.model.values()]
        self.model.clear()
        counts = list(map(sys.getrefcount, tokens))
        del self.pending
        assert [n - 1 for n in counts] == list(map(sys.getrefcount, tokens))


IDS = [b"%d" % i for i in range(40)] + [b'"%d"' % i for i in range(40)]
IDS += [b'"' + b"long" * 10 + b'%d"' % i for i in range(40)] + [b"x" * n for n in range(30, 42)]
IDS += [rb'"\u003%d"' % i for i in range(10)] + [
    rb'"\/%s\ud83d\ude00"' % (b"l" * n) for n in (0, 30)
]
IDS += [f'"/{"l" * n}\U0001f600"'.encode() for n in (0, 30)] + [
    rb'"\ud83d"',
    rb'"\"1\""',
    rb'"\\u0031"',
]


def said(id: bytes) -> object:
    return json.loads(id) if id.startswith(b'"') else id


class InFlightMachine(RuleBasedStateMachine):
    """Requests in flight are a dict of what an id says to the ref."""

    @initialize(n=st.sampled_from((0, 0, 100, 1000)))
    def start(self, n: int) -> None:
        self.table = InFlight()
        self.model: dict[object, int] = {}
        self.gone: list[int] = []
        for i in range(n):
            self.model[b"filler %d" % i] = self.table.add(b"filler %d" % i)

    @rule(id=st.sampled_from(IDS))
    def add(self, id: bytes) -> None:
        ref = self.table.add(id)
        if said(id) in self.model:
            assert ref == 0
            return
        assert ref != 0
        assert ref not in self.gone
        assert ref not in self.model.values()
        self.model[said(id)] = ref

    @rule(id=st.sampled_from(IDS))
    def remove(self, id: bytes) -> None:
        ref = self.model.pop(said(id), 0)
        assert self.table.remove(ref) == (ref != 0)
        if ref:
            self.gone.append(ref)

    @rule(id=st.sampled_from(IDS))
    def find(self, id: bytes) -> None:
        assert self.table.find(id) == self.model.get(said(id), 0)

    @rule()
    def remove_stale(self) -> None:
        assert not any(map(self.table.remove, self.gone))

    @rule(which=st.integers(0, 6))
    def remove_many(self, which: int) -> None:
        for id in list(self.model)[which::7]:
            ref = self.model.pop(id)
            assert self.table.remove(ref)
            self.gone.append(ref)

    @invariant()
    def all_are_found(self) -> None:
        if hasattr(self, "table"):
            assert len(self.table) == self.table.live == len(self.model)
            assert all(self.table.find(id) == self.model.get(said(id), 0) for id in IDS)


TestPending = PendingMachine.TestCase
TestPending.settings = examples(60, stateful_step_count=40)
TestInFlight = InFlightMachine.TestCase
TestInFlight.settings = examples(40, stateful_step_count=40)
