from typing import Self, final

from typing_extensions import Buffer

from wirespeed._core.framing.base import Framer
from wirespeed._core.slab import Lease
from wirespeed._core.wire import Wire
from wirespeed.limits import Limits

@final
class FrameStream(Wire):
    paused: bool
    def __new__(cls, framer: Framer, *, limits: Limits | None = None) -> FrameStream: ...
    @property
    def frames_in(self) -> int: ...
    @property
    def frames_out(self) -> int: ...
    @property
    def oversize(self) -> int: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Lease | None: ...
    def send(self, data: Buffer, /) -> None: ...

__pyx_capi__: dict[str, object]  # what other compiled modules cimport
