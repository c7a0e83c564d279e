"""A calculator: the server of ``wirespeed demo``, and an example of the API.

Run it with ``python -m wirespeed.demo.calculator``; ask it with, say,
``wirespeed call -- python -m wirespeed.demo.calculator -- add '{"a": 1, "b": 2}'``.
"""

from __future__ import annotations

import asyncio
import math
import statistics as stats
from typing import Annotated

import msgspec
from msgspec import Meta

from wirespeed import Context, Server, __version__

server = Server(
    "calculator",
    __version__,
    title="Calculator",
    instructions="Exact for integers; everything else is 64-bit floating point.",
)

Number = int | float
Numbers = Annotated[list[float], Meta(min_length=1, description="one number or more")]


class Summary(msgspec.Struct):
    """What `statistics` says of a list of numbers."""

    count: int
    mean: float
    median: float
    stdev: float
    minimum: float
    maximum: float


@server.tool
async def add(a: Number, b: Number) -> Number:
    """Add two numbers."""
    return a + b


@server.tool
async def subtract(a: Number, b: Number) -> Number:
    """Subtract b from a."""
    return a - b


@server.tool
async def multiply(a: Number, b: Number) -> Number:
    """Multiply two numbers."""
    return a * b


@server.tool
async def divide(a: float, b: float) -> float:
    """Divide a by b."""
    if b == 0:
        raise ValueError("cannot divide by zero: b must not be 0")
    return a / b


@server.tool
async def power(base: float, exponent: float) -> float:
    """Raise base to exponent."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        raise ValueError("the result is too large for a 64-bit number") from None
    except ValueError:
        raise ValueError(f"{base:g} to the power of {exponent:g} is not a real number") from None


@server.tool
async def sqrt(x: Annotated[float, Meta(ge=0)]) -> float:
    """Take the square root."""
    return math.sqrt(x)


@server.tool
async def mean(numbers: Numbers) -> float:
    """Take the arithmetic mean."""
    return stats.fmean(numbers)


@server.tool
async def statistics(numbers: Numbers) -> Summary:
    """Describe a list of numbers: count, mean, median, standard deviation, extremes."""
    return Summary(
        count=len(numbers),
        mean=stats.fmean(numbers),
        median=stats.median(numbers),
        stdev=stats.stdev(numbers) if len(numbers) > 1 else 0.0,
        minimum=min(numbers),
        maximum=max(numbers),
    )


@server.tool
async def slow_sum(
    numbers: Numbers, ctx: Context, pause: Annotated[float, Meta(ge=0, le=10)] = 0.25
) -> float:
    """Sum a list one number at a time, waiting `pause` seconds before each, and report progress."""
    total = 0.0
    for done, number in enumerate(numbers, start=1):
        await asyncio.sleep(pause)
        total += number
        await ctx.progress(done, total=len(numbers), message=f"so far {total:g}")
    return total


if __name__ == "__main__":
    server.run()
