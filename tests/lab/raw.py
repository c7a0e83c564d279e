"""A client made of bytes: spawns a program, writes what it is told, reads lines.

It knows nothing of the package under test, nor of the protocol but that messages are lines. Its
deadlines are for a broken server only; nothing is measured with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FOREVER = 30.0
CHILDREN = Path(__file__).resolve().parents[1] / "children"
META = "io.modelcontextprotocol/"


def encode(message: Any) -> bytes:
    """One line of JSON; bytes are taken as they are."""
    if isinstance(message, bytes):
        return message
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


def request(id: Any, method: str, params: Any = None, **meta: Any) -> dict[str, Any]:
    """A request; keyword arguments become its ``_meta``."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": method}
    if meta:
        params = {**(params or {}), "_meta": meta}
    if params is not None:
        message["params"] = params
    return message


def notification(method: str, params: Any = None) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "method": method}
    return message if params is None else message | {"params": params}


def call(id: Any, tool: str, arguments: Any = None, **meta: Any) -> dict[str, Any]:
    """A tools/call of a legacy client; None leaves ``arguments`` out."""
    params = {"name": tool} if arguments is None else {"name": tool, "arguments": arguments}
    return request(id, "tools/call", params, **meta)


def cancel(id: Any) -> dict[str, Any]:
    return notification("notifications/cancelled", {"requestId": id})


def envelope(version: str = "2026-07-28", client: str = "raw", **more: Any) -> dict[str, Any]:
    """The ``_meta`` of a modern request."""
    return {
        META + "protocolVersion": version,
        META + "clientCapabilities": {},
        META + "clientInfo": {"name": client, "version": "1"},
        **more,
    }


def modern(id: Any, method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    """A modern request; keyword arguments go to its ``_meta``."""
    return request(id, method, {**(params or {}), "_meta": envelope(**more)})


def initialize(id: Any, version: str = "2025-06-18") -> dict[str, Any]:
    return request(
        id,
        "initialize",
        {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        },
    )


class Raw:
    """A running program with a pipe at each end; a context manager.

    ``stdin`` and ``stdout`` are descriptors of our end when the caller made the plumbing itself
    (``give``: the program's ends, closed here once it runs). stderr goes to a file.
    """

    def __init__(
        self,
        argv: Iterable[str],
        *,
        env: Mapping[str, str] | None = None,
        give: tuple[int, int] | None = None,
        take: tuple[int | None, int | None] = (None, None),
        group: bool = False,
    ) -> None:
        self.stdin, self.stdout = take
        if give is None:
            theirs_in, self.stdin = os.pipe()
            self.stdout, theirs_out = os.pipe()
            give = theirs_in, theirs_out
        self.buffer = bytearray()
        self.reads: list[int] = []  # bytes of each read
        self.eof = False
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self.process = subprocess.Popen(
            list(argv),
            stdin=give[0],
            stdout=give[1],
            stderr=self.errors,
            env={**surroundings(), **(env or {})},
            start_new_session=group,
        )
        for fd in set(give):
            os.close(fd)
        for fd in self.ours:
            os.set_blocking(fd, False)

    @classmethod
    def socket(cls, argv: Iterable[str], **options: Any) -> Raw:
        """With one socket for both directions."""
        ours, theirs = socket.socketpair()
        fd = ours.detach()
        theirs_fd = theirs.detach()
        return cls(argv, give=(theirs_fd, theirs_fd), take=(fd, fd), **options)

    @property
    def ours(self) -> set[int]:
        return {fd for fd in (self.stdin, self.stdout) if fd is not None}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for fd in self.ours:
            os.close(fd)
        self.stdin = self.stdout = None
        if exc is not None or self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if exc is not None:
            exc.add_note("stderr of the program:\n" + self.stderr()[-4000:])
        self.errors.close()

    # -- writing -------------------------------------------------------------------------------

    def send(self, *messages: Any, reading: bool = True) -> None:
        """Write all of it, in one piece if it goes; what comes meanwhile is kept.

        With ``reading=False`` nothing is read, and TimeoutError says that no more went.
        """
        data = memoryview(b"".join(map(encode, messages)))
        while data:
            data = data[self.write_some(data, reading=reading) :]

    def write_some(self, data: Any, *, reading: bool, seconds: float = FOREVER) -> int:
        """Write a part; waits for room, at most so long, and reads meanwhile if it may."""
        assert self.stdin is not None
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(BlockingIOError):
                return os.write(self.stdin, data)
            wait_for = [self.stdout] if reading and not self.eof else []
            readable, writable, _ = select.select(
                wait_for, [self.stdin], [], max(0, deadline - time.monotonic())
            )
            if readable:
                self._read()
            elif not writable:
                raise TimeoutError("the program does not read")

    def end_input(self) -> None:
        """End of file for the program."""
        assert self.stdin is not None
        if self.stdin == self.stdout:
            with socket.socket(fileno=os.dup(self.stdin)) as end:
                end.shutdown(socket.SHUT_WR)
        else:
            os.close(self.stdin)
        self.stdin = None

    # -- reading -------------------------------------------------------------------------------

    def _read(self) -> None:
        assert self.stdout is not None
        try:
            data = os.read(self.stdout, 1 << 20)
        except BlockingIOError:
            return
        except OSError:  # a terminal or socket whose other end is gone
            data = b""
        if data:
            self.reads.append(len(data))
            self.buffer += data
        else:
            self.eof = True

    def _wait(self, deadline: float) -> None:
        readable, _, _ = select.select([self.stdout], [], [], max(0, deadline - time.monotonic()))
        if not readable:
            raise TimeoutError(f"nothing came; unread: {bytes(self.buffer[:200])!r}")
        self._read()

    def line(self, seconds: float = FOREVER) -> bytes:
        """The next line, without its newline. EOFError when there is none any more."""
        deadline = time.monotonic() + seconds
        while (end := self.buffer.find(b"\n")) < 0:
            if self.eof:
                raise EOFError(f"the program closed its output; unread: {bytes(self.buffer)!r}")
            self._wait(deadline)
        line = bytes(self.buffer[:end])
        del self.buffer[: end + 1]
        return line

    def recv(self, seconds: float = FOREVER) -> Any:
        """The next line, which must be strict JSON."""
        return strict(self.line(seconds))

    def ask(self, message: Any) -> Any:
        """Send one message; the next line."""
        self.send(message)
        return self.recv()

    def until(self, id: Any) -> list[Any]:
        """All messages up to and with the answer to a request."""
        got = []
        while True:
            got.append(self.recv())
            last = got[-1]
            if isinstance(last, dict) and "method" not in last and last.get("id") == id:
                return got

    def rest(self, seconds: float = FOREVER) -> bytes:
        """Everything up to the end of the output."""
        deadline = time.monotonic() + seconds
        while not self.eof:
            self._wait(deadline)
        data = bytes(self.buffer)
        self.buffer.clear()
        return data

    # -- the process ---------------------------------------------------------------------------

    def handshake(self, version: str = "2025-06-18") -> Any:
        """The legacy handshake; what initialize gave."""
        answer = self.ask(initialize("init", version))
        self.send(notification("notifications/initialized"))
        return answer["result"]

    def wait(self, seconds: float = FOREVER) -> int:
        """The exit status."""
        return self.process.wait(seconds)

    def end(self) -> int:
        """Close the input; nothing more may come. The exit status."""
        self.end_input()
        assert self.rest() == b""
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stderr(self) -> str:
        """What the program has written to stderr so far."""
        size = os.fstat(self.errors.fileno()).st_size
        return os.pread(self.errors.fileno(), size, 0).decode("utf-8", "replace")

    def wait_stderr(self, text: str) -> None:
        """Until stderr holds a text."""
        deadline = time.monotonic() + FOREVER
        while text not in self.stderr():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{text!r} not in stderr: {self.stderr()[-500:]!r}")
            time.sleep(0.005)

    def rss(self) -> int:
        """Resident bytes."""
        figures = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return int(figures.stdout) * 1024


def surroundings() -> dict[str, str]:
    """Our environment without what changes how a Python program buffers its output."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}


def without_sanitizers() -> dict[str, str]:
    """Our environment for programs of others, which may hang below AddressSanitizer."""
    return {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}


def strict(line: bytes) -> Any:
    """One line as strict JSON: UTF-8, no NaN, no lone surrogate."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    value = json.loads(line.decode("utf-8"), parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def tool_server(**options: Any) -> list[str]:
    """The command of children/tool_server.py."""
    return [sys.executable, str(CHILDREN / "tool_server.py"), json.dumps(options)]


def loops() -> list[str]:
    """Values for WIRESPEED_LOOP."""
    return ["uvloop", "asyncio"]
