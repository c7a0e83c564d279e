from typing import final

from wirespeed._core.framing.base import Framer
from wirespeed._core.framing.writer import FrameWriter

@final
class BlankLineWriter(FrameWriter): ...

@final
class BlankLineFramer(Framer):
    def __new__(cls, max_frame: int, *, lenient: bool = False) -> BlankLineFramer: ...
    @property
    def lenient(self) -> bool: ...
