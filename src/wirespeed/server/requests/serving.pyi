from asyncio import AbstractEventLoop, Future

from typing_extensions import disjoint_base

from wirespeed._core.framing.base import Framer
from wirespeed._core.framing.http.head import HttpHead
from wirespeed._core.session import Session
from wirespeed.protocol.revisions import Revision
from wirespeed.server.requests.call import Call
from wirespeed.server.requests.methods import State
from wirespeed.server.requests.observer import Observer
from wirespeed.server.requests.questions import Questions
from wirespeed.server.service import McpService
from wirespeed.transport.link import Endpoint
from wirespeed.transport.service import Peer
from wirespeed.transport.taskpool import TaskPool

@disjoint_base
class Serving(Endpoint):
    revision: Revision | None
    state: State
    head: HttpHead | None
    kept: bool
    shared: bool
    principal: bytes | None
    peer: Peer | None
    def __init__(
        self,
        service: McpService,
        loop: AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> None: ...
    @property
    def session(self) -> Session: ...
    @property
    def questions(self) -> Questions: ...
    @property
    def service(self) -> McpService: ...
    @property
    def loop(self) -> AbstractEventLoop: ...
    @property
    def pool(self) -> TaskPool: ...
    @property
    def running(self) -> set[Call]: ...
    @property
    def draining(self) -> bool: ...
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
