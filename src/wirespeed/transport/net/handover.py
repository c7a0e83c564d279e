"""Connections that one worker passes on to another: a request of a session that lives there.

Each worker has a mailbox, a pair of sockets that was made before the workers were forked. A message
is one byte with two descriptors (SCM_RIGHTS): the connection, and a file that says what the worker
knows of it (`Known`).

A connection of TLS stays where its state is. One end of a pair of sockets is passed on for it, and
`relay` moves the bytes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from typing import BinaryIO, cast

import msgspec

FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def _file() -> BinaryIO:
    """A file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("request", os.MFD_CLOEXEC), "wb")
    return cast("BinaryIO", tempfile.TemporaryFile())


class Known(msgspec.Struct, frozen=True, array_like=True):
    """The facts about a connection that is passed on.

    Attributes:
        peer: The address of the client.
        certificate: The client's certificate of the TLS connection (DER); None without one.
        data: What was read of the connection, from the request on that the other worker answers.
    """

    peer: str
    certificate: bytes | None
    data: bytes


class Mailboxes:
    """The mailboxes of all workers; the parent keeps them, so that they outlive a worker."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._pairs = [socket.socketpair() for _ in range(n)]
        for pair in self._pairs:
            for end in pair:
                end.setblocking(False)

    def of(self, worker: int) -> Mailbox:
        """The mailbox of a worker, for use in its process."""
        return Mailbox(worker, self._pairs[worker][0], [sender for _, sender in self._pairs])

    def close(self) -> None:
        """Release the sockets."""
        for pair in self._pairs:
            for end in pair:
                end.close()


class Mailbox:
    """The mailbox of this process, and the ways to the others.

    Attributes:
        worker: The number of this process.
        n: The number of processes.
    """

    def __init__(self, worker: int, box: socket.socket, senders: list[socket.socket]) -> None:
        self.worker = worker
        self.n = len(senders)
        self._box = box
        self._senders = senders

    def fileno(self) -> int:
        """The descriptor that is readable when a connection has arrived."""
        return self._box.fileno()

    def send(self, worker: int, connection: socket.socket, known: Known) -> bool:
        """Pass a connection on. False: the other worker takes none now, and nothing was passed on.
        Our descriptor stays open."""
        try:
            with _file() as file:
                file.write(msgspec.msgpack.encode(known))
                file.flush()
                socket.send_fds(self._senders[worker], [b"C"], [connection.fileno(), file.fileno()])
        except OSError:
            return False
        return True

    def send_end(self, worker: int, known: Known) -> socket.socket | None:
        """Pass on one end of a pair of sockets for a connection that stays here. Return our end.
        None: nothing was passed on."""
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            return None
        with theirs:
            if self.send(worker, theirs, known):
                ours.setblocking(False)
                return ours
        ours.close()
        return None

    def receive(self) -> tuple[socket.socket, Known] | None:
        """The next connection, and what is known of it; None: there is none now."""
        try:
            _, found, _, _ = socket.recv_fds(self._box, 1, 2, FLAGS)
        except BlockingIOError:
            return None
        with contextlib.ExitStack() as stack:
            for fd in found:
                stack.callback(os.close, fd)
            if len(found) < 2:
                raise OSError("no descriptor is left for a connection of another worker")
            connection, file = found
            text = os.pread(file, os.fstat(file).st_size, 0)
            known = msgspec.msgpack.decode(text, type=Known)
            sock = socket.socket(fileno=os.dup(connection))
        sock.setblocking(False)
        return sock, known
