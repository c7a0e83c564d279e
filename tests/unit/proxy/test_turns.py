"""Turns in bytes: every client that waits gets its share of a server that has no room."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.examples import examples
from lab.proxy import Lab, Raw, call, until
from lab.wording import raises

from wirespeed import Limits
from wirespeed.proxy.flow.turns import Turn, Turns

pytestmark = pytest.mark.compiled

QUANTUM = 100
LONGEST = 350
sizes = st.lists(st.integers(1, LONGEST), max_size=40)


class Model:
    """Clients with messages, before an output that has room for some bytes at a time."""

    def __init__(self, backlogs: list[list[int]]) -> None:
        self.turns = Turns(QUANTUM)
        self.waiting = [deque(backlog) for backlog in backlogs]
        self.sent = [0] * len(backlogs)
        self.ones = [Turn(i) for i in range(len(backlogs))]

    def arrive(self, i: int) -> None:
        """The first message of a client passes at once: nobody could put it back."""
        if self.waiting[i]:
            n = self.waiting[i].popleft()
            self.sent[i] += n
            assert not self.turns.sent(self.ones[i], n)

    def drain(self, room: int) -> int:
        """Fill the room. Returns what is left of it."""
        while room > 0 and (one := self.turns.next()) is not None:
            i = one.owner
            assert one.balance > 0
            while self.waiting[i] and room > 0:
                n = self.waiting[i].popleft()
                room -= n
                self.sent[i] += n
                if not self.turns.sent(one, n):
                    break
            if not self.waiting[i]:
                self.turns.leave(one)
        return room


@examples(300)
@given(st.lists(sizes, min_size=1, max_size=6), st.lists(st.integers(1, 500), min_size=1))
def test_shares_and_no_idle_room(backlogs: list[list[int]], rooms: list[int]) -> None:
    model = Model(backlogs)
    for i in range(len(backlogs)):
        model.arrive(i)
    while any(model.waiting):
        for room in rooms:
            left = model.drain(room)
            busy = [
                sent for sent, waiting in zip(model.sent, model.waiting, strict=True) if waiting
            ]
            # Room is left only if nothing waits.
            assert left <= 0 or not busy
            # All clients that always had something to send have the same share.
            assert not busy or max(busy) - min(busy) < QUANTUM + LONGEST
            # Nobody who is done had more than that.
            assert not busy or all(sent - min(busy) < QUANTUM + LONGEST for sent in model.sent)
    assert model.sent == [sum(backlog) for backlog in backlogs]
    model.drain(1)
    assert len(model.turns) == 0 and model.turns.next() is None


@examples(200)
@given(st.integers(1, 10**9), st.integers(1, 8), st.integers(1, 10**6))
def test_debts_are_paid_without_a_loop(debt: int, others: int, quantum: int) -> None:
    """A long message costs its sender turns, and the others no time."""
    turns = Turns(quantum)
    long = Turn("long")
    turns.sent(long, debt)
    rest = [Turn(i) for i in range(others)]
    for one in rest:
        turns.sent(one, 1)
    gained = 0
    while (one := turns.next()) is not long:
        assert one is not None
        gained += one.balance + 1
        turns.sent(one, one.balance + 1)
        if gained > 20 * others * quantum:
            assert debt > 15 * quantum
            for each in rest:
                turns.leave(each)
            assert turns.next() is long and 0 < long.balance <= quantum
            return
    assert gained <= (debt // quantum + 2) * others * (quantum + 1)


def test_a_turn_that_is_left() -> None:
    turns = Turns(10, "the server")
    one, two = Turn("one"), Turn("two")
    assert turns.owner == "the server" and turns.quantum == 10
    assert not turns.sent(one, 5) and not turns.sent(two, 5)
    assert turns.next() is one and turns.next() is one and one.balance == 5
    assert turns.sent(one, 4) and turns.current is one and one.at is turns
    turns.leave(one)
    assert (one.balance, one.at, len(turns)) == (0, None, 1)
    assert turns.next() is two
    turns.leave(two)
    turns.leave(two)
    assert turns.next() is None and turns.current is None
    with raises(ValueError):
        Turns(0)


# -- with real processes -----------------------------------------------------------------------

# Reads while a file is there. Writes whose request it has read.
STUCK = """
import json, os, sys, time

gate, log = sys.argv[1] + ".gate", open(sys.argv[1], "a", buffering=1)
for line in sys.stdin.buffer:
    m = json.loads(line)
    if m["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "b", "version": "1"},
                  "capabilities": {"tools": {}}}
    else:
        result = {"content": []}
    if "id" in m:
        answer = json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result})
        sys.stdout.write(answer + "\\n")
        sys.stdout.flush()
    if m["method"] == "tools/call":
        log.write(json.dumps([m["params"]["name"], len(line)]) + "\\n")
        while not os.path.exists(gate):
            time.sleep(0.005)
"""


class StuckLab(Lab):
    """A shared server that reads when it is told to."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, "shared", era="legacy", **options)
        (folder / "backend.py").write_text(STUCK)
        self.gate = folder / "seen.gate"
        self.gate.touch()

    def order(self) -> list[tuple[str, int]]:
        """Whose requests the server has read, and how long they were."""
        return [tuple(json.loads(line)) for line in self.seen.read_text().splitlines()]

    @property
    def side(self) -> Any:
        """The proxy's end of the connection to the server."""
        return next(iter(self.fronts)).across


# What is in the pipe to a server, at most, and before it in the proxy.
PIPE, HIGH = 1 << 20, 256 * 1024


async def flood(client: Raw, name: str, n: int, size: int) -> None:
    """Send requests as fast as the proxy takes them, and read nothing."""
    with contextlib.suppress(ConnectionError):
        for i in range(n):
            client.writer.write(json.dumps(call(i, name, fill="x" * size)).encode() + b"\n")
            await client.writer.drain()


async def test_floods_have_equal_shares_and_others_their_turn(tmp_path: Path) -> None:
    """Two clients flood a server that does not read, a third sends a few short requests. When the
    server reads again, the third has its turn, and the floods alternate."""
    lab = StuckLab(tmp_path)
    async with lab.serving():
        one, two, third = [await lab.connect() for _ in range(3)]
        lab.gate.unlink()
        size, n = 65536, 60
        floods = [
            asyncio.ensure_future(flood(client, name, n, size))
            for client, name in ((one, "one"), (two, "two"))
        ]
        await until(lambda: sum(front.session.pauses_requests for front in lab.fronts) == 2)
        side = lab.side
        held = HIGH + 2 * (size + 200)  # the pipe may still take some of it
        assert side.session.counters["bytes_queued"] <= held
        await third.send(*(call(i, "third", fill="x" * 900) for i in range(20)))
        await until(lambda: sum(front.session.pauses_requests for front in lab.fronts) == 3)
        await asyncio.sleep(0.1)
        # what waits for the server has not grown, and what the floods send is not read
        assert side.session.counters["bytes_queued"] <= held
        waiting = [front.session.counters["requests_waiting"] for front in lab.fronts]
        assert max(waiting) <= 1024 * 1024 / size + 20
        lab.gate.touch()
        for i in range(20):
            assert (await third.recv())["id"] == i
        order = lab.order()
        last = max(i for i, (name, _) in enumerate(order) if name == "third")
        before = sum(n for _, n in order[:last])
        # what was in the pipe and queued, and a turn of each flood with one more message
        assert before <= PIPE + held + 2 * (65536 + size + 200) + 20 * 1100
        await asyncio.gather(*floods)
        await until(lambda: len(lab.order()) == 2 * n + 20)
        # The first had the pipe to itself. From then on neither gets ahead of the other.
        ahead, read, left = [], 0, {"one": n, "two": n, "third": 20}
        for name, length in lab.order():
            read += length
            left[name] -= 1
            if read > PIPE + held and left["one"] and left["two"]:
                ahead.append((left["one"] - left["two"]) * size)
        assert len(ahead) > 20
        assert max(ahead) - min(ahead) <= 2 * (65536 + size)
        assert not any(left.values())
        assert side.n_turns >= (2 * n * size - PIPE - held) // (65536 + size)
        # no client waits: the next request passes at once
        turns = side.n_turns
        await third.ask(call("more", "third"))
        assert side.n_turns == turns


async def test_a_cancellation_passes_what_waits(tmp_path: Path) -> None:
    """A client that waits cancels one request, and pings: both are heard at once."""
    lab = StuckLab(tmp_path, limits=Limits(max_waiting_bytes=1 << 23))
    async with lab.serving():
        client = await lab.connect()
        lab.gate.unlink()
        await flood(client, "one", 30, 65536)
        front = next(iter(lab.fronts))
        await until(lambda: front.session.counters["messages_in"] == 32)
        assert front.session.counters["requests_waiting"] > 5
        assert (await client.recv())["id"] == 0  # the server reads one before it stops
        await client.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 28}},
            {"jsonrpc": "2.0", "id": "p", "method": "ping"},
        )
        assert (await client.recv()) == {"jsonrpc": "2.0", "id": "p", "result": {}}
        lab.gate.touch()
        got = [(await client.recv())["id"] for _ in range(28)]
        assert got == [i for i in range(1, 30) if i != 28]
        await client.silent()


@pytest.mark.parametrize("who", ["waits", "has the turn"])
async def test_a_client_that_leaves_while_it_waits(who: str, tmp_path: Path) -> None:
    """The turn goes to the next one."""
    lab = StuckLab(tmp_path, shutdown_grace=0.2)
    async with lab.serving():
        one, two, three = [await lab.connect() for _ in range(3)]
        lab.gate.unlink()
        floods = []
        for client, name in ((one, "one"), (two, "two"), (three, "three")):
            floods.append(asyncio.ensure_future(flood(client, name, 30, 65536)))
            paused = ("one", "two", "three").index(name) + 1
            await until(
                lambda paused=paused: sum(f.session.pauses_requests for f in lab.fronts) == paused
            )
        if who == "has the turn":
            lab.gate.touch()
            await until(lambda: lab.side.n_turns > 0)
            lab.gate.unlink()
        floods.pop(0).cancel()
        one.writer.transport.abort()
        await until(lambda: len(lab.fronts) == 2)
        lab.gate.touch()
        for client in (two, three):
            assert [(await client.recv())["id"] for _ in range(30)] == list(range(30))
        assert lab.side.n_turns > 0
        await asyncio.gather(*floods)


async def test_a_server_that_ends_while_clients_wait(tmp_path: Path) -> None:
    """What it had gets an error, what waited goes to the next one."""
    lab = StuckLab(tmp_path)
    async with lab.serving():
        clients = [await lab.connect() for _ in range(2)]
        lab.gate.unlink()
        floods = [asyncio.ensure_future(flood(client, "one", 16, 65536)) for client in clients]
        await until(lambda: sum(f.session.pauses_requests for f in lab.fronts) == 2)
        await until(lambda: all(f.session.counters["requests_waiting"] > 3 for f in lab.fronts))
        lab.side.abort()
        lab.gate.touch()
        for client in clients:
            answers = [await client.recv() for _ in range(16)]
            lost = [one["id"] for one in answers if "error" in one]
            assert sorted(one["id"] for one in answers) == list(range(16))
            assert 0 < len(lost) < 16
            assert all(one["error"]["code"] == -31004 for one in answers if "error" in one)
        await asyncio.gather(*floods)
