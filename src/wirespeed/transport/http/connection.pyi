from asyncio import Future
from collections.abc import Callable
from typing import Any, Literal, final

from wirespeed._core.framing.http.framer import HttpFramer
from wirespeed._core.wire import Wire
from wirespeed.limits import Limits
from wirespeed.transport.http.exchange import Carrier, Exchange
from wirespeed.transport.http.site import HttpSite
from wirespeed.transport.options import NotPassed
from wirespeed.transport.service import Peer

@final
class HttpWire(Wire):
    def __new__(cls, framer: HttpFramer, limits: Limits) -> HttpWire: ...

@final
class HttpConnection(Carrier):
    certificate: bytes | None
    principal: bytes | None
    peer: Peer | None
    on_upgrade: Callable[[Any, bytes], object] | None
    def __init__(self, site: HttpSite, address: str, *, full: bool = False) -> None: ...
    @property
    def site(self) -> HttpSite: ...
    @property
    def closed(self) -> Future[BaseException | None]: ...
    @property
    def n_requests(self) -> int: ...
    @property
    def waits_for(self) -> Literal["request", "head", "body", "verdict"] | None: ...
    def pass_on(
        self,
        exchange: Exchange,
        worker: int,
        body: bytes,
        otherwise: Callable[[NotPassed], object],
    ) -> None: ...
    def take_again(self, exchange: Exchange, body: bytes) -> None: ...
    def upgrade(self, answer: bytes, opening: Any) -> None: ...
    def time_out(self) -> None: ...
    def drain(self) -> None: ...
    def abort(self) -> None: ...
