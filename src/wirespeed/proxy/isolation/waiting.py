"""Requests that wait for a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed.proxy.ongoing import Ongoing

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.front import Front


class Waiting:
    """Requests that wait for a server, those of each client in their order. One that is cancelled
    is dropped: its message holds the memory that it was read into."""

    def __init__(self) -> None:
        self._queues: dict[Front, _Queue] = {}

    def __len__(self) -> int:
        """How many wait."""
        return sum(len(queue.messages) for queue in self._queues.values())

    def add(self, front: Front, message: Message) -> None:
        """Let a request of a client wait."""
        queue = self._queues.get(front)
        if queue is None:
            queue = self._queues[front] = _Queue(front)
        queue.messages[message.ref] = message
        if message.method != "initialize":  # which must not be cancelled
            front.session.set_token(message, queue)

    def take(self) -> list[tuple[Front, Message]]:
        """Return all, which wait no more."""
        queues, self._queues = self._queues, {}
        return [(front, one) for front, queue in queues.items() for one in queue.messages.values()]

    def left(self, front: Front) -> None:
        """Drop what a client that has left had asked."""
        self._queues.pop(front, None)


class _Queue(Ongoing):
    """The requests of one client that wait, by their ``ref``. It is the token of each."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self.messages: dict[int, Message] = {}

    def notified(self, message: Message) -> None:
        """The client has cancelled a request."""
        self.messages.pop(message.ref, None)
        self._front.session.cancelled_done()
