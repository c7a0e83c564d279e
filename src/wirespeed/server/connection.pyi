from asyncio import AbstractEventLoop
from typing import final

from wirespeed._core.envelope import Message
from wirespeed._core.framing.base import Framer
from wirespeed.server.requests.call import Pipeline, Serving
from wirespeed.server.service import McpService
from wirespeed.server.subscriptions import ChangeNotifier, ListenStream
from wirespeed.server.tool_search import ServerToolSearch
from wirespeed.transport.taskpool import TaskPool

@final
class ServerConnection(Serving):
    through: Pipeline | None
    search: ServerToolSearch | None
    listens: dict[bytes, ListenStream]
    def __init__(
        self,
        service: McpService,
        loop: AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> None: ...
    @property
    def changes(self) -> ChangeNotifier: ...
    def forget_tools(self) -> None: ...
    def notification(self, m: Message) -> None: ...
