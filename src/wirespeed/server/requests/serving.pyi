from asyncio import AbstractEventLoop, Future

from typing_extensions import disjoint_base

from wirespeed._core.framing.base import Framer
from wirespeed.protocol.revisions import Revision
from wirespeed.server.requests.call import Call
from wirespeed.server.requests.methods import State
from wirespeed.server.requests.observer import Observer
from wirespeed.server.requests.questions import Questions
from wirespeed.server.service import McpService
from wirespeed.transport.served import Served
from wirespeed.transport.taskpool import TaskPool

@disjoint_base
class Serving(Served):
    revision: Revision | None
    state: State
    kept: bool
    def __init__(
        self,
        service: McpService,
        loop: AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> None: ...
    @property
    def questions(self) -> Questions: ...
    @property
    def service(self) -> McpService: ...
    @property
    def pool(self) -> TaskPool: ...
    @property
    def running(self) -> set[Call]: ...
    @property
    def thread(self) -> int: ...
    @property
    def serial(self) -> int: ...
    @property
    def observer(self) -> Observer | None: ...
    @property
    def n_dropped(self) -> int: ...
    def wrote(self) -> None: ...
    def wait_for_room(self, about: int = 0) -> Future[None] | None: ...
    def on_drained(self) -> None: ...
