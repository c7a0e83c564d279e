from typing import final

from wirespeed.bench.driver import BenchCall, Driver
from wirespeed.bench.recorder import Recorder
from wirespeed.bench.script import Scripts
from wirespeed.bench.work import Work
from wirespeed.client.connection.connection import ClientConnection

@final
class SessionCall(BenchCall): ...

@final
class SessionDriver(Driver):
    def __init__(
        self,
        connection: ClientConnection,
        work: Work | Scripts | None,
        recorder: Recorder,
        in_flight: int,
        timeout: float,
        think: float = ...,
    ) -> None: ...
