from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from typing import Any, final

from wirespeed._core.session import Session
from wirespeed.transport.link import Endpoint

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
