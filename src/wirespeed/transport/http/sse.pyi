from typing import final

from typing_extensions import Buffer

from wirespeed._core.slab import Lease

@final
class EventReader:
    def __new__(cls, *, max_event: int) -> EventReader: ...
    @property
    def max_event(self) -> int: ...
    @property
    def failure(self) -> str | None: ...
    def feed(self, data: Buffer, /) -> list[tuple[str, Lease | bytes, str | None, int | None]]: ...
