"""What servers write to stderr, each line with the name of its server."""

from __future__ import annotations

import contextlib
import select
import sys
import time

MAX_LINES = 200  # in a second, of one server
MAX_BYTES = 65536  # in a second, of one server
_MAX_BYTES = 4096  # of a line; so much can be written at once to a pipe that has room

# Control characters, line ends of other systems, and marks that change the direction of text: they
# would speak to the terminal of a reader of the log, or forge lines of it.
_ESCAPED = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (
        *range(9), *range(10, 32), *range(127, 160), 0x2028, 0x2029,
        *range(0x200E, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A),
    )
}  # fmt: skip


class NamedLines:
    """A function of a line, for `Stdio.stderr`: writes it to our stderr, with control characters
    escaped.

    Lines are dropped and counted when there are too many, and when nobody reads our stderr: the
    proxy does not wait.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._second = 0
        self._n = 0
        self._n_bytes = 0
        self.dropped = 0
        self._told = 0

    def __call__(self, line: str) -> None:
        """Write a line."""
        now = int(time.monotonic())
        if now != self._second:
            self._second, self._n, self._n_bytes = now, 0, 0
            if self.dropped > self._told and _write(
                f"{self._name}: {self.dropped - self._told} lines of stderr were dropped"
            ):
                self._told = self.dropped
        shown = f"{self._name}: {line[:_MAX_BYTES].translate(_ESCAPED)}"
        self._n += 1
        self._n_bytes += len(shown)
        if self._n > MAX_LINES or self._n_bytes > MAX_BYTES or not _write(shown):
            self.dropped += 1


def _write(line: str) -> bool:
    """Write a line to stderr if that does not block."""
    data = line.encode(errors="replace")[: _MAX_BYTES - 1] + b"\n"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        fd = sys.stderr.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        if not poll.poll(0):
            return False
        sys.stderr.flush()
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        return True
    return False
