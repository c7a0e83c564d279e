from collections.abc import Callable, Mapping
from typing import Any, final

@final
class LongTexts:
    def __new__(cls, offsets: Mapping[str, int]) -> LongTexts: ...
    def decode(self, decode: Callable[[bytes], Any], data: bytes, /) -> Any: ...
