"""What went over a wire, as `programs/spy.py` and `programs/ws_spy.py` wrote it down."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any


@dataclass
class Run:
    """One life of a server."""

    wire: list[list[str]]  # [">" to the server or "<" from it, line]
    stderr: str
    exit: int | None
    folder: Path = field(repr=False)
    heads: list[tuple[str, list[str]]] = field(default_factory=list)  # WebSocket: [side, lines]
    frames: list[list[str]] = field(default_factory=list)  # [side, opcode, …]: see ws_spy.py

    @cached_property
    def messages(self) -> list[tuple[str, dict[str, Any]]]:
        return [(side, json.loads(line)) for side, line in self.wire]

    def requests(self, method: str) -> list[dict[str, Any]]:
        """Requests and notifications of a method, of either side."""
        return [message for _, message in self.messages if message.get("method") == method]

    def responses(self, request_id: Any) -> list[dict[str, Any]]:
        return [
            message
            for side, message in self.messages
            if side == "<" and "method" not in message and message.get("id") == request_id
        ]

    def errors(self) -> list[tuple[str, int]]:
        """What was refused: methods, and the codes of the errors."""
        found = []
        asked: dict[tuple[str, str], str] = {}
        for side, message in self.messages:
            key = json.dumps(message.get("id"))
            if "method" in message:
                asked[side, key] = message["method"]
            elif "error" in message:
                other = "<" if side == ">" else ">"
                found.append((asked.get((other, key), "?"), message["error"]["code"]))
        return found


def runs(folder: Path) -> list[Run]:
    """The lives of the server, in order."""
    found = []
    for place in sorted(folder.iterdir()):
        status = place / "exit"
        found.append(
            Run(
                [line.split(" ", 1) for line in _lines(place / "wire")],
                (place / "stderr").read_text(errors="replace"),
                int(status.read_text()) if status.exists() else None,
                place,
                [(line[0], json.loads(line[2:])) for line in _lines(place / "heads")],
                [line.split() for line in _lines(place / "frames")],
            )
        )
    return found


def _lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1] if path.exists() else []
