from collections.abc import Iterable
from typing import final

from wirespeed._core.framing.base import FrameWriter

def field_lines(fields: Iterable[tuple[str, str]], /) -> bytes: ...

@final
class HttpWriter(FrameWriter):
    def __new__(cls, line: bytes = ..., fields: bytes = ...) -> HttpWriter: ...
    @property
    def streaming(self) -> bool: ...
