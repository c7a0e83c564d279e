from typing import Any, final

from wirespeed.bench.driver import BenchCall, Driver
from wirespeed.bench.recorder import Recorder
from wirespeed.bench.script import Scripts
from wirespeed.bench.work import Work
from wirespeed.litemcp.client_connection import LiteRequest, LiteRequests
from wirespeed.litemcp.messages import IOBasic

class LiteCall(LiteRequest):
    driver: LiteDriver
    record: BenchCall
    def __init__(self, tool: str, driver: LiteDriver, record: BenchCall) -> None: ...
    def answered(self, message: IOBasic) -> None: ...
    def expired(self, note: str) -> None: ...
    def failed(self, exc: BaseException) -> None: ...

@final
class LiteDriver(Driver):
    def __init__(
        self,
        requests: LiteRequests,
        output_high: int,
        work: Work | Scripts | None,
        recorder: Recorder,
        in_flight: int,
        timeout: float,
        think: float = ...,
    ) -> None: ...
    def answered(self, call: BenchCall, id: int, data: Any) -> None: ...
    def expired(self, call: BenchCall, id: int) -> None: ...
    def failed(self, call: BenchCall, request: LiteCall, exc: BaseException) -> None: ...
