from asyncio import AbstractEventLoop, Future, Task
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, final

from typing_extensions import disjoint_base

from wirespeed._core.envelope import Message
from wirespeed._core.framing.base import Framer
from wirespeed._core.reply_route import ReplyRoute
from wirespeed.peer.connection import SessionConnection
from wirespeed.protocol.messages import CallInput
from wirespeed.protocol.revisions import Revision
from wirespeed.server.connection import ServerConnection
from wirespeed.server.methods import State
from wirespeed.server.requests.observer import Observer
from wirespeed.server.requests.operation import HandlerContext
from wirespeed.server.requests.reply import Body
from wirespeed.server.service import McpService
from wirespeed.transport.service import Peer
from wirespeed.transport.taskpool import Completion, TaskPool

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

SHUTTING_DOWN: str
WAS_CUT_OFF: str

def use_contexts(cls: type) -> None: ...
def context_class() -> type: ...

@disjoint_base
class Operation:
    owner: Any  # the McpService that it was registered at, or None
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def wants_context(self) -> bool: ...

@disjoint_base
class AnswerSink:
    def result(self, data: bytes) -> None: ...
    def error(self, code: int, message: str, data: Any) -> None: ...
    def cancelled(self) -> None: ...
    def tagged(self, method: str, params: bytes) -> bytes | None: ...

@disjoint_base
class Call(Completion):
    asker: Any
    def __init__(self, *args: object, **kwargs: object) -> None: ...  # TypeError
    @property
    def connection(self) -> ServerConnection: ...
    @property
    def operation(self) -> Operation: ...
    @property
    def revision(self) -> Revision: ...
    @property
    def context(self) -> HandlerContext | None: ...
    @property
    def input(self) -> CallInput | None: ...
    @property
    def route(self) -> ReplyRoute | None: ...
    @property
    def peer(self) -> Peer | None: ...
    @property
    def ref(self) -> int: ...
    @property
    def ended(self) -> bool: ...
    @property
    def detached(self) -> bool: ...
    @property
    def timed_out(self) -> bool: ...
    def begin(self, operation: Operation, message: Message) -> None: ...
    def shared_state(self) -> dict[str, Any]: ...
    def start(self, work: Coroutine[Any, Any, Any]) -> None: ...
    def cancel(self) -> None: ...
    def expire(self) -> None: ...
    def task_done(self, task: Task[Any]) -> None: ...
    def ask_input(self, result: bytes) -> None: ...
    def detach(self, body: Body, sink: AnswerSink) -> None: ...
    def notify(self, method: str, params: bytes | None) -> None: ...

@disjoint_base
class Pipeline: ...

@final
class Feature(Operation):
    def __init__(
        self,
        name: str,
        kind: str,
        function: Callable[..., Any],
        *,
        encode: Callable[[Any, Revision], Body],
        timeout: float | None = None,
        wants_context: bool = False,
        launch: Callable[..., Coroutine[Any, Any, Any]] | None = None,
    ) -> None: ...
    def invoke(self, values: list[Any], names: tuple[str, ...] | None = None) -> Any: ...
