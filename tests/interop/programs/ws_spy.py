"""Stands between clients and a server over WebSocket, and writes down what each says.

    python ws_spy.py FOLDER [NAME=VALUE…] -- command args…

The variables are for the server, whose first line on stdout must be the URL that it listens at;
the spy's own first line is the URL for clients. Bytes go through unchanged: the handshake, the
frames and their extensions are the business of the two. SIGTERM goes on to the server, and the
spy ends when the server has.

Makes FOLDER/<time>-<pid>/ with what `spy.py` makes: ``wire`` (a line a text message), ``stderr``,
``exit``; also ``heads`` (JSON, a line each: the request and the response of an opening handshake)
and ``frames`` (a line a frame: "> " or "< ", final or not, opcode, payload's length or, for a
closing frame, its code).
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
import zlib
from collections.abc import Callable
from typing import BinaryIO
from urllib.parse import urlsplit, urlunsplit

NAMES = {0: "continuation", 1: "text", 2: "binary", 8: "close", 9: "ping", 10: "pong"}


class Reader:
    """Reads one direction of a connection: a head of HTTP, then frames."""

    def __init__(self, mark: bytes, note: Callable[[str, bytes], None]) -> None:
        self.mark = mark
        self.note = note
        self.rest = b""
        self.head = False
        self.parts: list[bytes] = []
        self.opcode = 0
        self.deflated = False
        self.inflate = zlib.decompressobj(-15)

    def feed(self, chunk: bytes) -> None:
        self.rest += chunk
        if not self.head:
            head, end, self.rest = self.rest.partition(b"\r\n\r\n")
            if not end:
                self.rest = head
                return
            self.head = True
            lines = head.decode("latin-1").split("\r\n")
            self.note("heads", self.mark + json.dumps(lines).encode())
        while (size := self.frame()) > 0:
            self.rest = self.rest[size:]

    def frame(self) -> int:
        """Note the frame at the start of ``rest``; its length, or 0 when it is not yet whole."""
        data = self.rest
        if len(data) < 2:
            return 0
        length, at = data[1] & 127, 2
        if length >= 126:
            at = 4 if length == 126 else 10
            length = int.from_bytes(data[2:at], "big")
        masked = bool(data[1] & 128)
        start = at + 4 * masked
        if len(data) < start + length:
            return 0
        payload = data[start : start + length]
        if masked and length:
            key = (data[at:start] * (length // 4 + 1))[:length]
            both = int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")
            payload = both.to_bytes(length, "big")
        self.take(data[0] & 15, bool(data[0] & 128), bool(data[0] & 64), payload)
        return start + length

    def take(self, opcode: int, final: bool, deflated: bool, payload: bytes) -> None:
        said: object = len(payload)
        if opcode == 8:
            said = int.from_bytes(payload[:2], "big") if payload else None
        words = [NAMES[opcode], "final" if final else "more", "deflated" if deflated else "plain"]
        self.note("frames", self.mark + " ".join([*words, str(said)]).encode())
        if opcode >= 8:
            return
        if opcode:
            self.opcode, self.deflated = opcode, deflated
        self.parts.append(payload)
        if not final:
            return
        message, self.parts = b"".join(self.parts), []
        if self.deflated:
            message = self.inflate.decompress(message + b"\0\0\xff\xff")
        if self.opcode == 1:
            # JSON: a line break is only white space
            self.note("wire", self.mark + message.replace(b"\n", b" "))


def main() -> int:
    end = sys.argv.index("--")
    variables = dict(argument.split("=", 1) for argument in sys.argv[2:end])
    folder = os.path.join(sys.argv[1], f"{time.monotonic_ns():020}-{os.getpid()}")
    os.makedirs(folder)
    names = ("wire", "heads", "frames")
    files: dict[str, BinaryIO] = {
        name: open(os.path.join(folder, name), "ab", buffering=0)  # noqa: SIM115
        for name in names
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
            for source, target, mark in ((client, server, b"> "), (server, client, b"< ")):
                reader = Reader(mark, note)
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
