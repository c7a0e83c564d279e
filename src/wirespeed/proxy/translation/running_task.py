"""A task of a legacy server that a client of 2026-07-28 has begun."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from wirespeed.proxy.translation.rounds import decline, embedded
from wirespeed.proxy.translation.task_shapes import has_extension
from wirespeed.tasks.views import with_related

if TYPE_CHECKING:
    from msgspec import Raw

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend import Backend


class RunningTask:
    """A task, and its open questions.

    Args:
        task_id: The server's id.
        place: Of the process that has it, in a pool.
        capabilities: What the client declares in its call.

    Attributes:
        is_awaited: Whether the proxy waits for its end, because the client knows no tasks.
        asked: Set while there are questions.
        fetching: A tasks/result that waits for the end, and brings the questions; or None.
    """

    def __init__(self, task_id: str, place: int, capabilities: dict[str, Any]) -> None:
        self.id = task_id
        self.place = place
        self.capabilities = capabilities
        self.is_awaited = not has_extension(capabilities)
        self.questions: dict[str, tuple[Backend, Message]] = {}
        self.n_asked = 0
        self.asked = asyncio.Event()
        self.fetching: asyncio.Future[bytes] | None = None

    @property
    def key(self) -> tuple[int, str]:
        """Its place and id, which no other task of the server has."""
        return self.place, self.id

    def input_requests(self) -> dict[str, Any]:
        """The open questions as clients of 2026-07-28 get them."""
        return {key: embedded(question) for key, (_, question) in self.questions.items()}

    def take(self, responses: dict[str, Raw]) -> None:
        """Give the server the answers. Those to other questions are ignored."""
        for key, response in responses.items():
            backend, question = self.questions.pop(key, (None, None))
            if backend is not None and question is not None and backend.link is not None:
                backend.session.send_result(question, with_related(bytes(response), self.id))
                backend.link.wrote()
        if not self.questions:
            self.asked.clear()

    def drop(self) -> None:
        """Drop its questions: no client of this connection waits for it any more."""
        for backend, question in self.questions.values():
            decline(backend, question)
        self.questions.clear()
        if self.fetching is not None:
            self.fetching.cancel()
