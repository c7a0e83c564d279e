from typing import final

from wirespeed._core.framing.base import Framer

@final
class LineFramer(Framer):
    def __new__(cls, max_frame: int) -> LineFramer: ...
