from collections.abc import Callable
from typing import final

from wirespeed.server.http.sessions import Session
from wirespeed.transport.link import Link

@final
class SessionLink(Link):
    session: Session | None
    carry: Callable[[list[bytes]], object] | None
    on_room: Callable[[], object] | None
    full: bool
    def start(self) -> None: ...
    def flush(self) -> None: ...
    def update_reading(self) -> None: ...
    def lose(self, exc: BaseException | None) -> None: ...
    def close(self) -> None: ...
