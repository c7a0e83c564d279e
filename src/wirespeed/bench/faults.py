"""Faults at random: what happens to messages on their way, and how long it takes.

A time is one of

====================  ==============================================================
``5ms``               always the same
``5ms±2ms``           normally distributed: mean and standard deviation, never below 0
``exp:5ms``           exponentially distributed: the mean
``uniform:1ms..9ms``  every time between the two is equally likely
====================  ==============================================================

Its units are ``us``, ``ms`` and ``s``. ``+-`` stands for ``±``.
"""

from __future__ import annotations

import random
import re
from typing import Literal, TypeAlias

_MOST = 3600.0  # seconds
_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_TIME = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(us|µs|ms|s)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")


class Delay:
    """A distribution of times.

    Args:
        text: One of the forms of the module's table.

    ValueError: the text is not one.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        kind, colon, rest = text.partition(":")
        self._low = self._high = self._deviation = 0.0
        if not colon:
            self._kind = "normal"
            mean, sign, deviation = text.replace("+-", "±").partition("±")
            self._low = self._time(mean)
            if sign:
                # 5ms±2 is 5ms±2ms
                unit = _TIME.fullmatch(mean)[2] if _NUMBER.fullmatch(deviation) else ""  # type: ignore[index]
                self._deviation = self._time(deviation + unit)
        elif kind == "exp":
            self._kind = kind
            self._low = self._time(rest)
        elif kind == "uniform" and ".." in rest:
            self._kind = kind
            low, _, high = rest.partition("..")
            self._low, self._high = self._time(low), self._time(high)
            if self._low > self._high:
                raise ValueError(f"{text!r}: {low} is more than {high}")
        else:
            raise self._wrong()

    def draw(self, source: random.Random) -> float:
        """Return the next time, in seconds."""
        if self._kind == "uniform":
            return source.uniform(self._low, self._high)
        if self._kind == "exp":
            return source.expovariate(1 / self._low) if self._low else 0.0
        if not self._deviation:
            return self._low
        return max(0.0, source.gauss(self._low, self._deviation))

    def _time(self, text: str) -> float:
        match = _TIME.fullmatch(text)
        if match is None:
            raise self._wrong()
        seconds = float(match[1]) * _UNITS[match[2]]
        if seconds > _MOST:
            raise ValueError(f"{self.text!r}: a time is at most an hour")
        return seconds

    def _wrong(self) -> ValueError:
        return ValueError(
            f"{self.text!r} is not a time: write 5ms, 5ms±2ms, exp:5ms or uniform:1ms..9ms"
        )


Fate: TypeAlias = Literal["pass", "drop", "duplicate", "cut"]

_FATES: dict[str, Fate] = {"drop": "drop", "duplicate": "duplicate", "cut": "cut"}


class Faults:
    """The faults that messages meet.

    Args:
        text: Members such as ``drop=0.001,duplicate=0.001,cut=0.0001,delay=5ms±2``: a probability
            for each message, and a time.
        seed: Repeats the same faults for the same messages of each connection; None for others each
            time.

    Attributes:
        counts: What was done to how many messages. A message that is delayed is also counted as
            what else was done to it.

    ValueError: the text has another form.
    """

    def __init__(self, text: str, seed: int | None = None) -> None:
        self.counts = {"pass": 0, "drop": 0, "duplicate": 0, "cut": 0, "delay": 0}
        self._delay: Delay | None = None
        self._chances: dict[Fate, float] = {}
        self._seed = random.randrange(2**63) if seed is None else seed
        seen = set()
        for part in text.split(","):
            name, _, value = part.strip().partition("=")
            if name in seen:
                raise ValueError(f"{name} is there twice")
            seen.add(name)
            if name == "delay":
                self._delay = Delay(value)
            elif name in _FATES:
                self._chances[_FATES[name]] = _chance(name, value)
            else:
                raise ValueError(
                    f"{part.strip()!r} is not a fault: there are drop=0.001, duplicate=0.001, "
                    "cut=0.0001 and delay=5ms±2"
                )
        if sum(self._chances.values()) > 1:
            raise ValueError("drop, duplicate and cut are more than 1 together")

    def source(self, connection: int, direction: str) -> random.Random:
        """Return the random numbers of one direction of a connection."""
        return random.Random(f"{self._seed}/{connection}/{direction}")

    def next(self, source: random.Random, *, once: bool = False) -> tuple[Fate, float]:
        """Return what happens to the next message, and the seconds for which it is held. ``once``:
        It cannot be passed twice."""
        fate: Fate = "pass"
        number = source.random()
        for one, chance in self._chances.items():
            if number < chance:
                fate = "pass" if once and one == "duplicate" else one
                break
            number -= chance
        self.counts[fate] += 1
        if self._delay is None or fate == "drop":
            return fate, 0.0
        self.counts["delay"] += 1
        return fate, self._delay.draw(source)


def _chance(name: str, text: str) -> float:
    if not _NUMBER.fullmatch(text) or float(text) > 1:
        raise ValueError(f"{name}={text!s}: {name} is a probability, from 0 to 1")
    return float(text)
