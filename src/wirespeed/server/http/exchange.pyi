from collections.abc import Iterable
from typing import final

from wirespeed._core.framing.writer import FrameWriter
from wirespeed.server.connection import ServerConnection
from wirespeed.server.http.http_session import HttpSession
from wirespeed.transport.http.exchange import Exchange

@final
class NoticeWriter(FrameWriter): ...

@final
class McpExchange(Exchange):
    session: HttpSession | None
    def refuse_response(self) -> None: ...
    def open_events(self) -> None: ...
    def leave(self) -> None: ...
    def move(self, other: McpExchange) -> None: ...
    def pause(self, retry: float | None) -> bool: ...

def dismiss_all(connection: ServerConnection) -> None: ...

SESSION_OVER: str

def refuse(
    exchange: Exchange, status: int, sentence: str, fields: Iterable[tuple[str, str]] = ()
) -> None: ...
