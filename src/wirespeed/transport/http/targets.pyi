from asyncio import AbstractEventLoop
from collections.abc import Mapping
from typing import final

from wirespeed.limits import Limits
from wirespeed.transport.gate import Gate
from wirespeed.transport.http.exchange import HttpTarget
from wirespeed.transport.http.options import HttpOptions

MAX_ADMITTED: int
MAX_ADMITTED_HEAD: int
KEEP_ADMITTED: int

@final
class Admitted: ...

@final
class HttpSite:
    def __init__(
        self,
        targets: Mapping[str, HttpTarget],
        *,
        options: HttpOptions,
        limits: Limits,
        gate: Gate,
        loop: AbstractEventLoop,
    ) -> None: ...
    @property
    def targets(self) -> dict[bytes, HttpTarget]: ...
    @property
    def gate(self) -> Gate: ...
    @property
    def options(self) -> HttpOptions: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def loop(self) -> AbstractEventLoop: ...
    def share(self, worker: int, n: int) -> None: ...
    def leave(self) -> None: ...
    def drain(self) -> None: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...
