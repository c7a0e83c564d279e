from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from typing import Any, final

from typing_extensions import disjoint_base

from wirespeed._core.framing.base import Framer
from wirespeed._core.session import Session
from wirespeed.protocol.revisions import Revision
from wirespeed.server.methods import State
from wirespeed.server.requests.call import Call
from wirespeed.server.requests.observer import Observer
from wirespeed.server.service import McpService
from wirespeed.transport.link import Endpoint
from wirespeed.transport.served import Served
from wirespeed.transport.taskpool import TaskPool

@final
class Questions:
    def __init__(
        self,
        connection: Endpoint,
        session: Session,
        loop: AbstractEventLoop,
        middleware: Callable[[Any, str, bytes | None, float | None, int], Future[bytes]] | None,
    ) -> None: ...
    def ask(
        self,
        method: str,
        params: bytes | None,
        *,
        timeout: float | None = None,
        about: int = 0,
    ) -> Future[bytes]: ...
    def send(
        self, method: str, params: bytes | None, timeout: float | None, about: int
    ) -> Future[bytes]: ...

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
