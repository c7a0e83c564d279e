"""What went over a wire, as `programs/spy.py` wrote it down."""

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
        lines = (place / "wire").read_bytes().decode().split("\n")[:-1]
        status = place / "exit"
        found.append(
            Run(
                [line.split(" ", 1) for line in lines],
                (place / "stderr").read_text(errors="replace"),
                int(status.read_text()) if status.exists() else None,
                place,
            )
        )
    return found
