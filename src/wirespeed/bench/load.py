"""The load of a run, and what it found, as data."""

from __future__ import annotations

from typing import Any

import msgspec

MAX_CALLS = 10**12


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The way in which calls are made.

    Attributes:
        connections: The connections; of a command each has a process of its own.
        in_flight: The most calls without an answer on one connection.
        calls: The calls that are measured; None: those that begin within ``duration``.
        duration: Seconds in which calls begin; None: until ``calls`` have begun.
        rate: Calls a second, of all connections together, whatever the answers do (an open loop);
            None: each answer sends the next call (a closed loop).
        poisson: Whether the pauses of an open loop are random, as of many independent users.
        warmup: Calls before them, which are not measured.
        timeout: Seconds after which a call counts as missing.
        think: Seconds between an answer and the next call of a closed loop.
        seed: Of the random values of arguments and pauses; None for others in each run.
        bytes: The size of the texts ``"$text"``; None: there are none.
        processes: The processes of this program, which share connections, calls and rate.

    ValueError: values that do not go together.
    """

    connections: int = 1
    in_flight: int = 16
    calls: int | None = None
    duration: float | None = None
    rate: float | None = None
    poisson: bool = False
    warmup: int = 100
    timeout: float = 10.0
    think: float = 0.0
    seed: int | None = None
    bytes: int | None = None
    processes: int = 1

    def __post_init__(self) -> None:
        leasts = {"connections": 1, "in_flight": 1, "warmup": 0, "processes": 1}
        for name, least in leasts.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}")
        if self.processes > self.connections:
            raise ValueError("connections must be as many as processes at least")
        if self.in_flight * self.connections >= 2**20:
            raise ValueError("in_flight times connections must be below 2**20")
        if (self.calls is None) == (self.duration is None):
            raise ValueError("give either calls or duration")
        if self.calls is not None and self.calls < 1:
            raise ValueError("calls must be at least 1")
        for name in ("calls", "warmup"):
            if (getattr(self, name) or 0) > MAX_CALLS:
                raise ValueError(f"{name} must be at most {MAX_CALLS:,}")
        for name in ("duration", "timeout"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e9:
                raise ValueError(f"{name} must be above 0 and below 1,000,000,000 seconds")
        if self.rate is not None and not self.rate > 0:
            raise ValueError("rate must be above 0")
        if self.rate is not None and self.rate > 1e7:
            raise ValueError("rate must be at most 10,000,000 a second")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise ValueError("seed must be at least 0 and below 2**63")
        if not 0 <= self.think < 1e6:
            raise ValueError("think must be at least 0 and below 1,000,000 seconds")
        if self.rate is None and self.poisson:
            raise ValueError("poisson is for a rate")
        if self.rate is not None and self.think:
            raise ValueError("think is for loads without a rate")


class Latency(msgspec.Struct, frozen=True):
    """Percentiles, in microseconds, of the right answers. All 0 without an answer."""

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    max: float = 0.0
    mean: float = 0.0


class Window(msgspec.Struct, frozen=True):
    """A part of a run.

    Attributes:
        t: Seconds from the begin of the run to the end of this part.
        ok: Right answers.
        errors: Other outcomes of calls.
        p50, p99, max: Microseconds, of the right answers.
    """

    t: float
    ok: int
    errors: int
    p50: float
    p99: float
    max: float


class Traffic(msgspec.Struct, frozen=True):
    """Bytes of messages, both ways, of all connections."""

    sent: int
    received: int


class Cost(msgspec.Struct, frozen=True):
    """The cost of a run for the server's processes: processor seconds, and the most resident memory
    in bytes. None: it is not known."""

    cpu_seconds: float | None = None
    rss_peak: int | None = None


class ToolCost(msgspec.Struct, frozen=True):
    """The cost of a run for this process, and the calls that it sent over a millisecond late."""

    cpu_seconds: float
    late_starts: int


class Startup(msgspec.Struct, frozen=True):
    """Microseconds to the answer of a call that is alone.

    Attributes:
        cold_us: Of the first one, from the start of its connection, of a command with that of its
            process.
        warm_us: Of the last one of the warm-up.
    """

    cold_us: float
    warm_us: float


class UsersResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The findings about one kind of users: its calls, by their outcomes.

    Attributes:
        progress: Progress notifications of calls that asked for them.
        latency_histogram: As of `Result`.
    """

    name: str
    calls: int
    counts: dict[str, int]
    latency_us: Latency
    progress: int = 0
    latency_histogram: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The findings of a run. Their JSON form is that of ``wirespeed bench --json``.

    Attributes:
        target: The server, as people read it.
        era: ``legacy``, ``modern`` or ``lite``.
        transport: ``stdio``, ``http``, ``websocket`` or ``lines``.
        load: The load.
        seconds: From the first call to the last answer.
        calls: The calls that were sent: the sum of their outcomes.
        rate: Right answers a second.
        counts: The number of each outcome (`wirespeed.bench.recorder.OUTCOMES`).
        latency_us: From the intended time of each call to its answer.
        service_time_us: The same from the time at which it was sent.
        bytes: What was sent and received.
        server: What it cost the server.
        tool: What it cost this process.
        machine: The processor, their number, the system, and the share of all processors that
            other processes took during the run (``others``; None: it is not known).
        versions: Of the programs.
        series: The run in parts, 600 at most.
        round: Of several runs with the same load: the number of this one, from 0.
        versus: Whether it is a run on the target of ``--versus``.
        latency_histogram: The latencies, in nanoseconds, in the encoded form of HDR histograms.
        startup: The time to the first answer; None without a warm-up of at least two calls.
        users: The kinds of users, if there are any.
        held_up: The calls of an open loop that waited over a millisecond for a place in flight.
    """

    target: str
    era: str
    transport: str
    load: Load
    seconds: float
    calls: int
    rate: float
    counts: dict[str, int]
    latency_us: Latency
    service_time_us: Latency
    bytes: Traffic
    server: Cost
    tool: ToolCost
    machine: dict[str, Any]
    versions: dict[str, str]
    series: list[Window]
    round: int = 0
    versus: bool = False
    latency_histogram: str = ""
    startup: Startup | None = None
    users: list[UsersResult] = []
    held_up: int = 0
