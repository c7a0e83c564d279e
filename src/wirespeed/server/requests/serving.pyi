from asyncio import AbstractEventLoop, Future
from enum import IntEnum

from typing_extensions import disjoint_base

from wirespeed._core.framing.base import Framer
from wirespeed.peer.connection import SessionConnection
from wirespeed.protocol.revisions import Revision
from wirespeed.server.methods import State
from wirespeed.server.requests.call import Call
from wirespeed.server.requests.observer import Observer
from wirespeed.server.service import McpService
from wirespeed.transport.taskpool import TaskPool

class Handshake(IntEnum):
    NEW = 0
    GREETED = 1
    INITIALIZED = 2
    MODERN = 3

@disjoint_base
class Serving(SessionConnection):
    revision: Revision | None
    state: State
    handshake: Handshake
    kept: bool
    def __init__(
        self,
        service: McpService,
        loop: AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> None: ...
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
    def ask(
        self,
        method: str,
        params: bytes | None,
        *,
        timeout: float | None = None,
        about: int = 0,
    ) -> Future[bytes]: ...
    def ask_client(
        self, method: str, params: bytes | None, timeout: float | None, about: int
    ) -> Future[bytes]: ...
