from typing import final

from wirespeed._core.framing.base import Framer, FrameWriter

@final
class LineWriter(FrameWriter): ...

@final
class LineFramer(Framer):
    def __new__(cls, max_frame: int) -> LineFramer: ...

@final
class BlankLineWriter(FrameWriter): ...

@final
class BlankLineFramer(Framer):
    def __new__(cls, max_frame: int, *, lenient: bool = False) -> BlankLineFramer: ...
    @property
    def lenient(self) -> bool: ...
