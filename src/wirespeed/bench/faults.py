"""Times at random, as servers and networks take them.

====================  ==============================================================
``5ms``               always the same
``5ms±2ms``           normally distributed: mean and standard deviation, never below 0
``exp:5ms``           exponentially distributed: the mean
``uniform:1ms..9ms``  every time between the two is equally likely
====================  ==============================================================

A time is a number and ``us``, ``ms`` or ``s``. ``+-`` stands for ``±``.
"""

from __future__ import annotations

import random
import re

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
