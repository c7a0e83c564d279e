from asyncio import AbstractEventLoop, Future
from typing import final

from typing_extensions import disjoint_base

from wirespeed._core.framing.base import Framer
from wirespeed._core.wire import Wire
from wirespeed.limits import Limits
from wirespeed.transport.link import Endpoint
from wirespeed.transport.service import Peer

@final
class RawFramer(Framer):
    def __new__(cls) -> RawFramer: ...

@final
class RelayWire(Wire):
    def __new__(cls, limits: Limits) -> RelayWire: ...

@disjoint_base
class RelayEnd(Endpoint):
    def __init__(self, limits: Limits) -> None: ...

@final
class Relay(RelayEnd):
    principal: bytes | None
    peer: Peer | None
    def __init__(
        self, limits: Limits, *, loop: AbstractEventLoop, fd: int, patience: float, grace: float
    ) -> None: ...
    @property
    def closed(self) -> Future[BaseException | None]: ...
    @property
    def draining(self) -> bool: ...
    def start(self) -> None: ...
    def drain(self) -> None: ...
    def abort(self) -> None: ...
