"""Requests that wait for a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed.proxy.ongoing import CANCELLED, Ongoing

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.front import Front


class Waiting:
    """Requests that wait for a server, those of each client in their order. One that is cancelled
    is dropped: its message holds the memory that it was read into."""

    def __init__(self) -> None:
        self._requests: dict[Front, dict[int, _Request]] = {}  # by client and `ref`

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._requests.values()))

    def add(self, front: Front, message: Message) -> None:
        """Let a request of a client wait."""
        requests = self._requests.setdefault(front, {})
        request = requests[message.ref] = _Request(front, message, requests)
        if message.method != "initialize":  # which must not be cancelled
            front.give_token(message, request)

    def take(self) -> list[tuple[Front, Message]]:
        """Return all, which wait no more."""
        found, self._requests = self._requests, {}
        return [
            (front, one.request) for front, requests in found.items() for one in requests.values()
        ]

    def take_listens(self) -> list[tuple[Front, Message]]:
        """Return the subscriptions among them, which wait no more."""
        found = [
            (front, one.request)
            for front, requests in self._requests.items()
            for one in requests.values()
            if one.request.method == "subscriptions/listen"
        ]
        for front, message in found:
            del self._requests[front][message.ref]
        return found

    def left(self, front: Front) -> None:
        """Drop what a client that has left had asked."""
        for request in self._requests.pop(front, {}).values():
            request.note(CANCELLED)


class _Request(Ongoing):
    """A request that waits. It is the token of its message.

    Args:
        requests: All requests of the client that wait.
    """

    request: Message
    waits = True

    def __init__(self, front: Front, request: Message, requests: dict[int, _Request]) -> None:
        self.request = request
        self._front = front
        self._requests = requests

    def notified(self, message: Message) -> None:
        """The client has cancelled the request."""
        self._requests.pop(message.ref, None)
        self.note(CANCELLED)
        self._front.session.cancelled_done()
