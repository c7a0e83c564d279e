"""The numbers of the other workers of a port: each asks all others when somebody asks it.

Each worker has a mailbox, a pair of sockets that was made before the workers were forked. A
question is one byte with one end of a new pair of sockets; the answer is what comes there until its
end.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import msgspec

from wirespeed.proxy.operation.snapshot import Snapshot
from wirespeed.transport.net.handover import FLAGS

PATIENCE = 1.0  # seconds that a worker has for its answer
MAX_ANSWER = 1 << 24
QUESTION = b"?"


class Neighbours:
    """The workers of one port.

    Args:
        n: Their number.
    """

    def __init__(self, n: int) -> None:
        self._pairs = [socket.socketpair() for _ in range(n)]
        for pair in self._pairs:
            for end in pair:
                end.setblocking(False)
        self._answering: set[asyncio.Task[None]] = set()

    def serve(self, worker: int, take: Callable[[], Awaitable[Snapshot]]) -> None:
        """Answer the others. ``worker``: the number of this process."""
        box = self._pairs[worker][0]
        asyncio.get_running_loop().add_reader(box.fileno(), self._receive, box, take)

    def stop(self, worker: int) -> None:
        """Answer no more."""
        asyncio.get_running_loop().remove_reader(self._pairs[worker][0].fileno())
        for task in self._answering:
            task.cancel()

    def _receive(self, box: socket.socket, take: Callable[[], Awaitable[Snapshot]]) -> None:
        with contextlib.suppress(OSError):
            _, found, _, _ = socket.recv_fds(box, 1, 1, FLAGS)
            for fd in found:
                task = asyncio.ensure_future(_answer(socket.socket(fileno=fd), take))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    async def ask(self, worker: int) -> tuple[list[Snapshot], list[int]]:
        """Return the snapshots of all workers but this one, and the numbers of those that did not
        answer."""
        others = [one for one in range(len(self._pairs)) if one != worker]
        answers = await asyncio.gather(*map(self._ask, others))
        missing = [one for one, found in zip(others, answers, strict=True) if found is None]
        return [found for found in answers if found is not None], missing

    async def _ask(self, worker: int) -> Snapshot | None:
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            with theirs:
                try:
                    socket.send_fds(self._pairs[worker][1], [QUESTION], [theirs.fileno()])
                except OSError:  # its mailbox is full
                    return None
            answer = bytearray()
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(PATIENCE):
                    while data := await loop.sock_recv(ours, 1 << 18):
                        answer += data
                        if len(answer) > MAX_ANSWER:
                            return None
                return msgspec.msgpack.decode(answer, type=Snapshot)
            except (TimeoutError, OSError, msgspec.DecodeError):
                return None


async def _answer(asker: socket.socket, take: Callable[[], Awaitable[Snapshot]]) -> None:
    with asker, contextlib.suppress(OSError, TimeoutError):
        asker.setblocking(False)
        async with asyncio.timeout(PATIENCE):
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(asker, msgspec.msgpack.encode(await take()))
