from asyncio import AbstractEventLoop, Future
from collections.abc import Mapping
from typing import Any, final

from wirespeed._core.framing.http.framer import HttpFramer
from wirespeed._core.wire import Wire
from wirespeed.limits import Limits
from wirespeed.transport.gate import Gate
from wirespeed.transport.http.exchange import Carrier, HttpTarget
from wirespeed.transport.service import Peer

@final
class HttpWire(Wire):
    def __new__(cls, framer: HttpFramer, limits: Limits) -> HttpWire: ...

@final
class HttpSite:
    def __init__(
        self,
        targets: Mapping[str, HttpTarget],
        *,
        options: Any,
        limits: Limits,
        gate: Gate,
        loop: AbstractEventLoop,
    ) -> None: ...
    @property
    def targets(self) -> dict[bytes, HttpTarget]: ...
    @property
    def gate(self) -> Gate: ...
    @property
    def options(self) -> Any: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def loop(self) -> AbstractEventLoop: ...

@final
class HttpConnection(Carrier):
    principal: bytes | None
    peer: Peer | None
    def __init__(self, site: HttpSite, address: str) -> None: ...
    @property
    def site(self) -> HttpSite: ...
    @property
    def closed(self) -> Future[BaseException | None]: ...
    @property
    def draining(self) -> bool: ...
    @property
    def n_requests(self) -> int: ...
    def drain(self) -> None: ...
    def abort(self) -> None: ...
