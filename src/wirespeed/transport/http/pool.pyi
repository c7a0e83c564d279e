import asyncio
import ssl as ssl_
from collections.abc import Callable
from typing import Any, Protocol, final

from wirespeed.limits import Limits
from wirespeed.transport.address import Address
from wirespeed.transport.headers import Headers
from wirespeed.transport.http.client_connection import CallOwner, HttpCall, ResponseReceiver
from wirespeed.transport.net.connect import HttpProxy

CLOSED: str
MAX_HEAD: int
MAX_REDIRECTS: int

class Receiver(Protocol):
    def on_response(self, status: int, headers: Headers, streaming: bool) -> None: ...
    def on_body(self, data: Any) -> None: ...
    def on_event(self, event: str, data: Any, id: str | None, retry: int | None) -> None: ...
    def on_end(self, exc: BaseException | None, sent: bool) -> None: ...

@final
class PythonReceiver(ResponseReceiver): ...

@final
class HttpPool(CallOwner):
    def __init__(
        self,
        address: Address,
        *,
        loop: asyncio.AbstractEventLoop,
        ssl: ssl_.SSLContext | None = None,
        proxy: HttpProxy | None = None,
        limits: Limits | None = None,
        max_connections: int = 100,
        max_head: int = ...,
        connect_timeout: float = 10.0,
        idle_timeout: float = 4.0,
        max_redirects: int = ...,
        may_reach: Callable[[str], bool] | None = None,
    ) -> None: ...
    def request(
        self, method: str, target: str, fields: bytes, body: Any, receiver: Receiver
    ) -> HttpCall: ...
    async def close(self) -> None: ...
    def release(self) -> None: ...
