from collections.abc import Callable
from typing import Literal, Protocol, final

from typing_extensions import Buffer

from wirespeed._core.framing.base import Framer, FrameWriter

class _Deflate(Protocol):
    def encode(self, data: bytes, /) -> Buffer: ...
    def decode(self, data: bytes, max_size: int, /) -> Buffer | None: ...

@final
class WebSocketWriter(FrameWriter):
    def __new__(
        cls,
        masks: bool = False,
        raw: bool = False,
        deflate: _Deflate | None = None,
        random: Callable[[int], bytes] | None = None,
    ) -> WebSocketWriter: ...

@final
class WebSocketFramer(Framer):
    def __new__(
        cls,
        role: Literal["server", "client"],
        *,
        max_message: int,
        max_fragments: int = 1024,
        max_control: int = 1000,
        binary: bool = False,
        check_utf8: bool | None = None,
        deflate: _Deflate | None = None,
        random: Callable[[int], bytes] = ...,
    ) -> WebSocketFramer: ...
    @property
    def n_pings_in(self) -> int: ...
    @property
    def n_pongs_in(self) -> int: ...
    @property
    def is_binary(self) -> bool: ...
    @property
    def failure(self) -> tuple[int, str] | None: ...
    @property
    def close_code(self) -> int | None: ...
    @property
    def close_reason(self) -> str: ...
    def send_text(self, data: str | Buffer, /) -> None: ...
    def send_binary(self, data: Buffer, /) -> None: ...
    def ping(self, payload: Buffer = b"", /) -> None: ...
    def goodbye(self, code: int = ..., reason: str = "", /) -> None: ...
    def allow_control(self) -> None: ...
