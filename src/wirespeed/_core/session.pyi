from collections.abc import Iterator
from typing import Any, Literal, Self, final

from typing_extensions import Buffer

from wirespeed._core.envelope import Message
from wirespeed._core.framing.base import Framer
from wirespeed._core.reply_route import ReplyRoute
from wirespeed._core.requester import Requester
from wirespeed.limits import Limits

@final
class Session(Requester):
    batches: bool
    refusal: tuple[int, str] | None
    pauses_requests: bool
    answers_requests: bool
    paused: bool
    shows_late_responses: bool
    def __new__(
        cls,
        *,
        limits: Limits | None = None,
        role: Literal["server", "client"] = "server",
        framer: Framer | None = None,
        reads_always: bool = False,
    ) -> Session: ...
    @property
    def reads_always(self) -> bool: ...
    @property
    def answers_faults(self) -> bool: ...
    @property
    def messages_in(self) -> int: ...
    @property
    def faults(self) -> int: ...
    @property
    def late_responses(self) -> int: ...
    @property
    def duplicate_ids(self) -> int: ...
    @property
    def refused(self) -> int: ...
    @property
    def cancelled_in(self) -> int: ...
    @property
    def counters(self) -> dict[str, int]: ...

    # bodies in
    def receive_message(self, data: Buffer, route: ReplyRoute | None = None, /) -> None: ...
    def cancel_route(self, route: ReplyRoute, /) -> list[Any]: ...

    # events out
    def next_event(self) -> Message | None: ...
    def events(self) -> Iterator[Message]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Message: ...
