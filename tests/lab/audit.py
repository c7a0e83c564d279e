"""Lines of an audit log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def until(path: Path, n: int) -> list[dict[str, Any]]:
    while not path.exists() or len(lines(path)) < n:
        await asyncio.sleep(0.01)
    return lines(path)
