from asyncio import Future
from collections.abc import Callable
from typing import final

from wirespeed.transport.http.passing import PassingEnd
from wirespeed.transport.http.site import HttpSite
from wirespeed.transport.link import Link
from wirespeed.transport.service import Peer

PATIENCE: float
MAX_FRAME: int
MAX_REQUESTS: int
OF_SESSION: object

@final
class AnsweringEnd(PassingEnd):
    principal: bytes | None
    peer: Peer | None
    def __init__(
        self,
        site: HttpSite,
        is_proof: Callable[[bytes], bool],
        state: Callable[[bytes], bytes | int],
    ) -> None: ...
    @property
    def closed(self) -> Future[BaseException | None]: ...
    @property
    def draining(self) -> bool: ...
    def drain(self) -> None: ...

@final
class PassedLink(Link):
    def __init__(self, end: AnsweringEnd) -> None: ...
