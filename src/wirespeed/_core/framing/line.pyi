from typing import final

from wirespeed._core.framing.base import Framer
from wirespeed._core.framing.writer import FrameWriter

@final
class LineWriter(FrameWriter): ...

@final
class LineFramer(Framer):
    def __new__(cls, max_frame: int) -> LineFramer: ...
