"""Transcripts of the tests: the messages that the package sends, which a redesign must not change.

    pytest --transcripts build/now    write down what is sent
    python tests/wire_schemas/wire_transcripts.py build/now    compare it with the digest
    python tests/wire_schemas/wire_transcripts.py --freeze build/a build/b    make the digest anew

A transcript is a set: each line, or message of a WebSocket, that any connection has sent, once. So
it does not matter which test sends it, how often and when. What differs from one run to the next
(ids, ports, keys, times, all numbers but codes) is replaced by `#`. The digest,
`wire_transcripts.txt`, has the names of what each of the runs has sent that it was made of. A
comparison shows names of the digest that no run has sent, and what all runs have sent and the
digest does not have. `grep` finds the text of a name in the folder of a run.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path
from typing import Any

import wire_streams

from wirespeed._core.wire import Wire

DIGEST = Path(__file__).with_suffix(".txt")
NAMES_A_LINE = 11
MAX_BYTES = 4 << 20  # of one connection
SHOWN = 1000  # bytes of a message that count
# Not heard: what is random, so that each run sends something else, and what measures memory.
UNHEARD = {
    "property", "model", "fuzz", "stress", "test_chaos.py",
    "test_memory.py", "test_websocket_memory.py", "test_unfinished.py", "test_client_pressure.py",
}  # fmt: skip
# What differs from run to run, in order.
RULES = [
    (re.compile(pattern), text)
    for pattern, text in (
        (rb"/(tmp|dev/shm)/[^\"\\\s?#,;:]*", rb"/tmp/#"),
        (rb"\d{4}-\d\d-\d\d[T ]\d\d:[\d:.]+(Z|[+-]\d\d:?\d\d)?", b"#"),
        (rb"(?i)^(date|content-length|sec-websocket-(?:key|accept)): .*", rb"\1: #"),
        (rb"(?i)^(id|last-event-id|mcp-session-id): .*", rb"\1: #"),
        (rb'"nonce": ?("[^"]*"|null)|"(name|sub)": ?"[0-9a-f]{8}"', b"#"),
        (rb"^(wirespeed_\w+(\{.*\})?) .*", rb"\1 #"),
        (rb"0x[0-9a-f]{6,}", b"#"),
        (rb"(.)\1{40,}", rb"\1#"),
        (rb"reference [0-9a-f#]+", rb"reference #"),
    )
]
TOKEN = re.compile(rb"[\w~+/=-]{16,}")
# Codes, revisions and statuses say something; other numbers (ids, ports, sizes, times) do not.
NUMBER = re.compile(rb'("code": ?-?\d+|20\d\d-\d\d-\d\d|HTTP/1\.\d \d+)|-?\d[\d.]*')
HEAD = re.compile(rb"(?<=[}\]])(?=HTTP/1\.1 |(?:POST|GET|DELETE) /)")
CHUNK = re.compile(rb"[0-9a-fA-F]{1,8}\r?")


def normal(text: bytes) -> bytes:
    """A message without what differs from run to run. What is compressed or masked is all alike."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return b"#"
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    text = TOKEN.sub(lambda found: b"#" if re.search(rb"\d", found[0]) else found[0], text)
    text = NUMBER.sub(lambda found: found[1] or b"#", text)
    return re.sub(rb"#(\.?#)+", b"#", text)[:SHOWN]


def name_of(text: bytes) -> str:
    """The name of a message in the digest."""
    return hashlib.blake2b(text, digest_size=4).hexdigest()


class Transcript:
    """Each message that the connections of one process have sent."""

    def __init__(self) -> None:
        self._messages: dict[str, bytes] = {}
        self._wires: dict[int, tuple[wire_streams.Lines | wire_streams.Frames, int]] = {}

    def hear(self, wire: Wire, event: str, data: bytes) -> None:
        """The tap of `wirespeed._core.wire` calls it."""
        if event == "made":
            self._end(id(wire))  # the same place in memory, another wire
            streams = wire_streams.for_framing(type(wire.framer).__name__)
            self._wires[id(wire)] = (streams or wire_streams.Lines)(), 0
        elif event == "sent" and id(wire) in self._wires:
            stream, size = self._wires[id(wire)]
            size += len(data)
            self._wires[id(wire)] = stream, size
            if size <= MAX_BYTES:
                for text in stream.feed(data):
                    self._take(text)

    def _end(self, wire: int) -> None:
        stream, _ = self._wires.pop(wire, (None, 0))
        if isinstance(stream, wire_streams.Lines):
            self._take(stream.rest)

    def _take(self, text: bytes) -> None:
        for part in HEAD.split(text):  # a body of a known length, and the head behind it
            if part and not CHUNK.fullmatch(part):
                line = normal(part.rstrip(b"\r"))
                self._messages.setdefault(name_of(line), line)

    def write(self, file: Path) -> None:
        """Write a line for each message: its name, and its text."""
        for wire in [*self._wires]:
            self._end(wire)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as out:
            for name, text in sorted(self._messages.items()):
                out.write(name.encode() + b" " + text.replace(b"\n", b" ") + b"\n")


def read(folder: Path) -> dict[str, bytes]:
    """The messages of all processes of a run, by their names: by the rules of today, whatever rules
    they were written down by."""
    found: dict[str, bytes] = {}
    for file in sorted(folder.glob("*.txt")):
        for line in file.read_bytes().removesuffix(b"\n").split(b"\n"):  # a text may have b"\r"
            text = normal(line.partition(b" ")[2])
            found[name_of(text)] = text
    if not found:
        raise SystemExit(f"{folder}: no transcripts")
    return found


def in_each(runs: list[dict[str, bytes]]) -> set[str]:
    """The names of messages that each run has sent."""
    return set.intersection(*({*run} for run in runs))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", nargs="+", type=Path, help="a folder of pytest --transcripts")
    parser.add_argument("--freeze", action="store_true", help="write the digest")
    options = parser.parse_args()
    runs = [read(folder) for folder in options.run]
    always = in_each(runs)
    if options.freeze:
        names = sorted(always)
        lines = (
            " ".join(names[at : at + NAMES_A_LINE]) for at in range(0, len(names), NAMES_A_LINE)
        )
        DIGEST.write_text("\n".join(lines) + "\n")
        print(f"{len(names)} messages; {len(set().union(*runs)) - len(names)} were not in each run")
        return 0
    if not DIGEST.exists():
        raise SystemExit(f"there is no {DIGEST.name}: make it with --freeze")
    frozen = set(DIGEST.read_text().split())
    ever: dict[str, Any] = {name: text for run in runs for name, text in run.items()}
    missing, new = sorted(frozen - ever.keys()), sorted(always - frozen)
    for name in missing:
        print(f"missing {name}")
    for name in new:
        print(f"new {name} {ever[name].decode(errors='backslashreplace')}")
    print(f"{len(frozen)} messages are frozen, {len(missing)} are missing, {len(new)} are new")
    return 1 if missing or new else 0


if __name__ == "__main__":
    sys.exit(main())
