"""A LiteMCP server: the one tool of the second part of ``wirespeed demo``.

Run it with ``python -m wirespeed.demo.convert``; ask it with, say,
``wirespeed call --lite -- python -m wirespeed.demo.convert -- convert '[100, "km", "mi"]'``.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from wirespeed.litemcp import LiteServer

METRES = {"mm": 0.001, "m": 1.0, "km": 1000.0, "in": 0.0254, "ft": 0.3048, "mi": 1609.344}

Unit = Annotated[str, Meta(description=f"one of {', '.join(METRES)}", examples=["km"])]

server = LiteServer()


@server.tool
async def convert(value: float, unit: Unit, to: Unit) -> float:
    """Convert a length from one unit to another."""
    for name in (unit, to):
        if name not in METRES:
            raise ValueError(f"there is no unit {name!r} here, only {', '.join(METRES)}")
    return value * METRES[unit] / METRES[to]


if __name__ == "__main__":
    server.run()
