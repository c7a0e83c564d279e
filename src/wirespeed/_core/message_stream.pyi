from typing import Self, final

from wirespeed._core.envelope import Message
from wirespeed._core.framing.base import Framer
from wirespeed._core.outbox import _Data
from wirespeed._core.wire import Wire
from wirespeed.limits import Limits

@final
class MessageStream(Wire):
    paused: bool
    def __new__(
        cls,
        *,
        limits: Limits | None = None,
        batches: bool = False,
        reads_always: bool = False,
        framer: Framer | None = None,
    ) -> MessageStream: ...
    @property
    def messages_in(self) -> int: ...
    @property
    def messages_out(self) -> int: ...
    @property
    def reads_always(self) -> bool: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Message: ...
    def send(self, data: _Data, /) -> None: ...
