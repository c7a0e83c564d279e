from asyncio import Future
from collections.abc import Callable
from typing import final

from typing_extensions import disjoint_base

from wirespeed._core.framing.base import Framer
from wirespeed._core.wire import Wire
from wirespeed.limits import Limits
from wirespeed.transport.http.exchange import Exchange
from wirespeed.transport.link import Endpoint
from wirespeed.transport.options import NotPassed

MAX_REQUESTS: int
MAX_UNSENT: int
LAST_WAIT: float

def proof_frame(proof: bytes, /) -> bytes: ...

@final
class PassingFramer(Framer):
    def __new__(cls, max_frame: int) -> PassingFramer: ...

@final
class PassingWire(Wire):
    def __new__(cls, limits: Limits, max_frame: int, asks: bool) -> PassingWire: ...

@disjoint_base
class PassingEnd(Endpoint):
    def abort(self) -> None: ...

@final
class AskingEnd(PassingEnd):
    def __init__(
        self, limits: Limits, *, far: bool, on_closed: Callable[[AskingEnd], object]
    ) -> None: ...
    @property
    def takes(self) -> bool: ...
    def pass_on(
        self,
        exchange: Exchange,
        worker: int,
        body: bytes,
        otherwise: Callable[[NotPassed], object],
    ) -> None: ...
    def ask(self, question: bytes, future: Future[bytes | None]) -> None: ...
    def close(self) -> None: ...

@final
class PassedRequest:
    def gone(self) -> None: ...
    def drained(self) -> None: ...
    def drain(self) -> None: ...
    def cut_off(self) -> None: ...
