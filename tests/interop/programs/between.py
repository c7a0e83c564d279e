"""What `ws_spy.py` and `http_spy.py` share: bytes between clients and a server that listens."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit, urlunsplit

Note = Callable[[str, bytes], None]


class Reader(Protocol):
    """Reads one direction of a connection, and notes what it says."""

    def feed(self, chunk: bytes) -> None: ...


Readers = Callable[[Note], tuple[Reader, Reader]]
"""The readers of a new connection: of the client's bytes, of the server's."""


def stand_between(names: Iterable[str], readers: Readers) -> None:
    """Run the command of the spy until its server ends. ``names``: the files to which the readers
    write notes."""
    end = sys.argv.index("--")
    variables = dict(argument.split("=", 1) for argument in sys.argv[2:end])
    folder = os.path.join(sys.argv[1], f"{time.monotonic_ns():020}-{os.getpid()}")
    os.makedirs(folder)
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
            ours, theirs = readers(note)
            for source, target, reader in ((client, server, ours), (server, client, theirs)):
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
