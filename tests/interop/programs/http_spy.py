"""Stands between clients and a server over Streamable HTTP, and writes down what each says.

    python http_spy.py FOLDER [NAME=VALUE…] -- command args…

As `ws_spy.py`: the variables are for the server, whose first line on stdout must be the URL that
it listens at; the spy's own first line is the URL for clients. Bytes go through unchanged. SIGTERM
goes on to the server, and the spy ends when the server has.

Makes FOLDER/<time>-<pid>/ with what `spy.py` makes: ``wire`` (a line a message: a body of JSON, or
an event), ``stderr``, ``exit``; also ``heads`` (JSON, a line each: "> " and a request's lines, "< "
and a response's).
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO
from urllib.parse import urlsplit, urlunsplit

Note = Callable[[str, bytes], None]


class Reader:
    """Reads one direction of a connection: heads of HTTP and their bodies."""

    def __init__(self, mark: bytes, note: Note, methods: list[str], *, requests: bool) -> None:
        self.mark = mark
        self.note = note
        self.methods = methods  # of the requests whose responses are still to come
        self.requests = requests
        self.rest = b""
        self.body = b""
        self.events = False
        self.left: int | None = 0  # bytes of the body; None: up to the end of the connection
        self.step = self.head

    def feed(self, chunk: bytes) -> None:
        self.rest += chunk
        while self.step():
            pass

    def line(self) -> bytes | None:
        """The next line, if it is whole."""
        line, end, rest = self.rest.partition(b"\r\n")
        if not end:
            return None
        self.rest = rest
        return line

    def head(self) -> bool:
        head, end, rest = self.rest.partition(b"\r\n\r\n")
        if not end:
            return False
        self.rest = rest
        lines = head.decode("latin-1").split("\r\n")
        self.note("heads", self.mark + json.dumps(lines).encode())
        fields = {
            name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines[1:])
        }
        self.body = b""
        self.events = fields.get("content-type", "").startswith("text/event-stream")
        self.left = int(fields.get("content-length", 0))
        self.step = self.plain
        if self.requests:
            self.methods.append(lines[0].split()[0])
        else:
            status = lines[0].split()[1]
            if status.startswith("1"):
                return True
            bodiless = self.methods.pop(0) == "HEAD" or status in ("204", "304")
            if bodiless:
                self.left = 0
            elif "content-length" not in fields and "transfer-encoding" not in fields:
                self.left = None
        if fields.get("transfer-encoding", "").lower() == "chunked":
            self.step = self.size
        return True

    def take(self) -> bool:
        """Take what is there of ``left`` bytes; whether these are all."""
        length = len(self.rest) if self.left is None else min(self.left, len(self.rest))
        self.body += self.rest[:length]
        self.rest = self.rest[length:]
        if self.events:
            self.body = self.body.replace(b"\r\n", b"\n")
            *events, self.body = self.body.split(b"\n\n")
            for event in events:
                lines = [x[5:].removeprefix(b" ") for x in event.split(b"\n") if x[:5] == b"data:"]
                self.message(b"\n".join(lines))
        if self.left is not None:
            self.left -= length
        return self.left == 0

    def plain(self) -> bool:
        if not self.take():
            return False
        self.end()
        return bool(self.rest)

    def size(self) -> bool:
        if (line := self.line()) is None:
            return False
        self.left = int(line.partition(b";")[0], 16)
        self.step = self.chunk if self.left else self.trailer
        return True

    def chunk(self) -> bool:
        if self.left and not self.take():
            return False
        if self.line() is None:
            return False
        self.step = self.size
        return True

    def trailer(self) -> bool:
        while line := self.line():
            pass
        if line is None:
            return False
        self.end()
        return bool(self.rest)

    def end(self) -> None:
        if not self.events:
            self.message(self.body)
        self.step = self.head

    def message(self, data: bytes) -> None:
        """Note what is JSON, and not what is only text of an error."""
        if data.lstrip()[:1] in (b"{", b"["):
            self.note("wire", self.mark + data.replace(b"\n", b" "))


def main() -> int:
    end = sys.argv.index("--")
    variables = dict(argument.split("=", 1) for argument in sys.argv[2:end])
    folder = os.path.join(sys.argv[1], f"{time.monotonic_ns():020}-{os.getpid()}")
    os.makedirs(folder)
    files: dict[str, BinaryIO] = {
        name: open(os.path.join(folder, name), "ab", buffering=0)  # noqa: SIM115
        for name in ("wire", "heads")
    }
    lock = threading.Lock()

    def note(name: str, line: bytes) -> None:
        with lock:
            files[name].write(line + b"\n")

    with open(os.path.join(folder, "stderr"), "wb") as stderr:
        child = subprocess.Popen(
            sys.argv[end + 1 :],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=os.environ | variables,
        )
    assert child.stdout is not None
    signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number))
    url = urlsplit(child.stdout.readline().decode().strip())
    threads: list[threading.Thread] = []

    def carry(source: socket.socket, target: socket.socket, reader: Reader) -> None:
        try:
            while chunk := source.recv(1 << 16):
                reader.feed(chunk)  # first: what is read here after a message came after it
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # one of them is gone: the other is to see that too
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            server = socket.create_connection((url.hostname, url.port))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            methods: list[str] = []
            for source, target, mark in ((client, server, b"> "), (server, client, b"< ")):
                reader = Reader(mark, note, methods, requests=source is client)
                thread = threading.Thread(target=carry, args=(source, target, reader), daemon=True)
                thread.start()
                threads.append(thread)

    if url.port:
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=accept, daemon=True).start()
        here = f"127.0.0.1:{listener.getsockname()[1]}"
        print(urlunsplit(url._replace(netloc=here)), flush=True)
    status = child.wait()
    for thread in threads:
        thread.join(5)
    with open(os.path.join(folder, "exit"), "w") as out:
        out.write(str(status))
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
