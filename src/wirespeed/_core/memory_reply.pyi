from collections.abc import Callable
from typing import final

from wirespeed._core.framing.writer import FrameWriter
from wirespeed._core.reply_route import ReplyRoute

@final
class NoticeWriter(FrameWriter): ...

@final
class MemoryReply(ReplyRoute):
    def __new__(
        cls,
        *,
        on_notice: Callable[[bytes], object] | None = None,
        on_done: Callable[[MemoryReply], object] | None = None,
    ) -> MemoryReply: ...
    @property
    def data(self) -> bytes | None: ...
    @property
    def done(self) -> bool: ...
