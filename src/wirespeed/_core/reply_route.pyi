from collections.abc import Callable
from typing import final

from typing_extensions import disjoint_base

from wirespeed._core.framing.base import FrameWriter

@disjoint_base
class ReplyRoute(FrameWriter):
    @property
    def n_open(self) -> int: ...
    @property
    def parent(self) -> ReplyRoute | None: ...
    @property
    def holds(self) -> bool: ...
    def retry_after(self, seconds: int) -> None: ...
    def unserved(self) -> None: ...

@final
class BatchReply(ReplyRoute): ...

@final
class CallbackWriter(FrameWriter): ...

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
